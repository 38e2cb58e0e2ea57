package snowflake

import (
	"database/sql/driver"
	"fmt"
	"time"
)

// Day is a calendar day. It is comparable; the zero Day is 1970-01-01.
type Day struct{ n int32 } // days since 1970-01-01

// MakeDay is the day of a date; out-of-range values are normalised as by time.Date.
func MakeDay(year int, month time.Month, day int) Day {
	return Day{int32(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / 86400)} //nolint:gosec // dates of years 0..9999
}

// DayAt is the day of an instant in a zone.
func DayAt(t time.Time, zone *time.Location) Day {
	y, m, d := t.In(zone).Date()
	return MakeDay(y, m, d)
}

// ParseDay reads a day written as 2026-05-01.
func ParseDay(s string) (Day, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return Day{}, fmt.Errorf("day %q: want the form 2026-05-01", s)
	}
	return MakeDay(t.Date()), nil
}

func (d Day) utc() time.Time { return time.Unix(int64(d.n)*86400, 0).UTC() }

// String writes the day as 2026-05-01.
func (d Day) String() string { return d.utc().Format(time.DateOnly) }

// Next is the day after.
func (d Day) Next() Day { return Day{d.n + 1} }

// Add is the day n days later.
func (d Day) Add(n int) Day { return Day{d.n + int32(n)} } //nolint:gosec // small counts of days

// Sub is the number of days from o to d.
func (d Day) Sub(o Day) int { return int(d.n - o.n) }

// Before says whether d is earlier than o.
func (d Day) Before(o Day) bool { return d.n < o.n }

// Compare is -1, 0 or 1, as slices.SortFunc wants it.
func (d Day) Compare(o Day) int {
	switch {
	case d.n < o.n:
		return -1
	case d.n > o.n:
		return 1
	}
	return 0
}

// Start is the first instant of the day in a zone: midnight or, where daylight
// saving time skips midnight, the first instant that exists.
func (d Day) Start(zone *time.Location) time.Time {
	y, m, dd := d.utc().Date()
	t := time.Date(y, m, dd, 0, 0, 0, 0, zone)
	// time.Date resolves a skipped midnight with either offset, so it may lie
	// in the day before, or an hour into this one where a zone jumps at midnight.
	if DayAt(t, zone).Before(d) {
		// The gap's end is the first instant of the day; find it by the zone's own transition.
		_, end := t.ZoneBounds()
		if !end.IsZero() {
			return end
		}
	}
	if start, _ := t.ZoneBounds(); !start.IsZero() && start.Before(t) && DayAt(start, zone) == d && DayAt(start.Add(-1), zone).Before(d) {
		return start
	}
	// A midnight that happens twice (clocks go back over it) counts from the first.
	if start, _ := t.ZoneBounds(); !start.IsZero() {
		_, now := t.Zone()
		_, was := start.Add(-1).Zone()
		if was > now {
			first := t.Add(-time.Duration(was-now) * time.Second)
			if first.Before(start) && DayAt(first, zone) == d {
				return first
			}
		}
	}
	return t
}

// MarshalText writes the day as 2026-05-01.
func (d Day) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a day written as 2026-05-01.
func (d *Day) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDay(string(b))
	return err
}

// Value gives the day to a database as a date.
func (d Day) Value() (driver.Value, error) { return d.String(), nil }

// Scan takes a date from a database.
func (d *Day) Scan(v any) error {
	switch v := v.(type) {
	case time.Time:
		*d = MakeDay(v.Date())
		return nil
	case []byte:
		return d.UnmarshalText(v)
	case string:
		return d.UnmarshalText([]byte(v))
	}
	return fmt.Errorf("day from a %T: want a date", v)
}
