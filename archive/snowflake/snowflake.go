package snowflake

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxShift is the largest number of low bits a Layout may have: with more, fewer
// than 32 bits (49 days) would be left for the milliseconds.
const MaxShift = 32

// ErrOutOfRange says that an instant or a day has no IDs in a layout: it lies
// before the epoch or beyond the last millisecond that fits.
var ErrOutOfRange = errors.New("outside the range of snowflake IDs")

// Layout says how an ID encodes its time.
type Layout struct {
	Epoch time.Time // ID 0
	Shift uint      // bits below the milliseconds
}

// Validate refuses layouts that cannot be meant.
func (l Layout) Validate() error {
	if l.Shift > MaxShift {
		return fmt.Errorf("snowflake time shift %d: at most %d bits", l.Shift, MaxShift)
	}
	if l.Epoch.IsZero() {
		return errors.New("snowflake epoch is not set")
	}
	if y := l.Epoch.UTC().Year(); y < 1970 || y > 9000 {
		return fmt.Errorf("snowflake epoch %s: the year must lie in 1970..9000", l.Epoch.UTC().Format(time.RFC3339))
	}
	return nil
}

// maxMillis is the largest number of milliseconds an ID can hold.
func (l Layout) maxMillis() uint64 { return math.MaxUint64 >> l.Shift }

// Time is the instant an ID was made, to the millisecond, in UTC.
func (l Layout) Time(id uint64) time.Time {
	return time.UnixMilli(l.Epoch.UnixMilli() + int64(id>>l.Shift)).UTC() //nolint:gosec // at most 2^64>>Shift ms; wraps only for absurd shifts below 2
}

// Lowest is the lowest ID that can be made at or after t.
func (l Layout) Lowest(t time.Time) (uint64, error) {
	ms := t.UnixMilli() - l.Epoch.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++ // the first whole millisecond not before t
	}
	if ms < 0 || uint64(ms) > l.maxMillis() {
		return 0, fmt.Errorf("%s: %w (epoch %s, shift %d)", t.UTC().Format(time.RFC3339Nano), ErrOutOfRange,
			l.Epoch.UTC().Format(time.RFC3339), l.Shift)
	}
	return uint64(ms) << l.Shift, nil
}

// Parts are the fields of an ID.
type Parts struct {
	Time time.Time
	Low  uint64 // the Shift low bits
}

// Split takes an ID apart.
func (l Layout) Split(id uint64) Parts {
	return Parts{Time: l.Time(id), Low: id & (1<<l.Shift - 1)}
}

// DayOf is the day an ID belongs to, in the zone whose midnight cuts the days.
func (l Layout) DayOf(id uint64, zone *time.Location) Day { return DayAt(l.Time(id), zone) }

// Window is the range of IDs [lo, hi) of a day. A day that begins before the
// epoch and ends after it starts at ID 0; a day wholly outside is ErrOutOfRange.
func (l Layout) Window(d Day, zone *time.Location) (lo, hi uint64, err error) {
	start, end := d.Start(zone), d.Next().Start(zone)
	if !end.After(l.Epoch) {
		return 0, 0, fmt.Errorf("day %s: %w (it ends before the epoch %s)", d, ErrOutOfRange, l.Epoch.UTC().Format(time.RFC3339))
	}
	if start.Before(l.Epoch) {
		start = l.Epoch
	}
	if lo, err = l.Lowest(start); err != nil {
		return 0, 0, fmt.Errorf("day %s: %w", d, err)
	}
	if hi, err = l.Lowest(end); err != nil {
		return 0, 0, fmt.Errorf("day %s: %w", d, err)
	}
	return lo, hi, nil
}
