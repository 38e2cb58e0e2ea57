package manifest

import (
	"context"
	"fmt"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// forecastDays is how many days of messages a forecast looks back.
const forecastDays = 28

// trendDays is how many days a trend needs: two of each weekday, since these differ.
const trendDays = 14

// Forecast is how the cold tier grows. It speaks of days of messages: once archiving
// keeps up, one of them comes each day.
type Forecast struct {
	Rows       uint64        `json:"rows"`         // in the cold tier now
	Bytes      uint64        `json:"bytes"`        // of objects in the bucket now, of the newest generations
	Days       int           `json:"days"`         // of messages, that the forecast is made from: at most 28
	Few        bool          `json:"few_days"`     // they are too few for a trend, which is then 0: PerDay is their median
	Last       snowflake.Day `json:"last"`         // the youngest of them
	RowsPerDay float64       `json:"rows_per_day"` // at Last, by a line through Days; see Few
	PerDay     float64       `json:"bytes_per_day"`
	Trend      float64       `json:"bytes_per_day_trend"` // by how many bytes a day of messages grows with each day
	Sizes      []Projection  `json:"projections"`
	Waiting    Waiting       `json:"waiting"`
	QuotaDays  *float64      `json:"quota_days,omitempty"` // until the quota is reached, by PerDay; absent: there is none, or nothing grows
}

// Projection is the size of the bucket's objects in some days.
type Projection struct {
	In      int     `json:"in_days"`
	Bytes   float64 `json:"bytes"`            // if each day is as big as PerDay
	Trended float64 `json:"bytes_with_trend"` // if days go on to grow, or shrink, as Trend says
}

// Waiting is what is still in warm although it is archived, or known to be archived soon.
// Its bytes are those of objects: what warm needs for the same rows is more.
type Waiting struct {
	Uncopied int    `json:"uncopied_slices"` // that the manifest knows of and that have no verified copy
	Slices   int    `json:"slices"`          // with a verified copy and with rows in warm
	Rows     uint64 `json:"rows"`            // of these in warm
	Bytes    uint64 `json:"bytes"`
}

// Guess is what to add to a figure that comes of few days.
func (f *Forecast) Guess() string {
	switch {
	case !f.Few:
		return ""
	case f.Days == 1:
		return ", guessed from 1 day"
	}
	return fmt.Sprintf(", guessed from %d days", f.Days)
}

// horizons are the days for which sizes are projected.
func horizons() []int { return []int{30, 90, 365} }

const waitingQuery = "SELECT COUNT(*), CAST(COALESCE(SUM(" + leftSQL + "), 0) AS UNSIGNED), COALESCE(SUM(s.bytes), 0) FROM slices s LEFT JOIN " + goneSQL + " g ON g.slice_id = s.id " +
	"WHERE s.source_id = ? AND s.state IN ('verified', 'purging')"

// Forecast says how the cold tier grows. quota is the most bytes that the bucket may hold;
// 0: no limit.
//
// The line through the days is Theil and Sen's: its slope is the median of the slopes
// between all pairs of days, so that a few days that were not like the others (a holiday,
// a flood of messages, a day that is copied in part only) do not move it.
func (s *Store) Forecast(ctx context.Context, quota uint64) (f Forecast, err error) {
	if f.Rows, f.Bytes, err = s.ColdSize(ctx); err != nil {
		return f, err
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return f, err
	}
	if err := s.db.QueryRowContext(ctx, waitingQuery, src, src).Scan(&f.Waiting.Slices, &f.Waiting.Rows, &f.Waiting.Bytes); err != nil {
		return f, fmt.Errorf("sum up the manifest's slices that are not purged: %w", err)
	}
	n, err := s.stateCounts(ctx, src)
	if err != nil {
		return f, err
	}
	f.Waiting.Uncopied = n[Pending] + n[Copying] + n[Committed]
	last, ok, err := s.lastCopied(ctx, src)
	if err != nil {
		return f, err
	}
	if ok {
		f.Last = last
		days, err := s.DayTotals(ctx, last.Add(1-forecastDays), last)
		if err != nil {
			return f, err
		}
		f.fit(days)
	}
	f.project(quota)
	return f, nil
}

const lastCopiedQuery = "SELECT day FROM slices WHERE source_id = ? AND state = ? ORDER BY day DESC LIMIT 1"

// lastCopied is the youngest day with a slice that has a verified copy.
func (s *Store) lastCopied(ctx context.Context, src uint32) (last snowflake.Day, ok bool, err error) {
	var found *snowflake.Day
	for _, state := range []State{Verified, Purging, Purged} {
		later := func(a, b snowflake.Day) int { return b.Compare(a) }
		if found, err = earlier(s.db.QueryRowContext(ctx, lastCopiedQuery, src, string(state)), found, later); err != nil {
			return last, false, fmt.Errorf("find the manifest's last day with a copy: %w", err)
		}
	}
	if found == nil {
		return last, false, nil
	}
	return *found, true, nil
}

// fit lays a line through the days, the last of which is f.Last.
func (f *Forecast) fit(days []DayTotal) {
	f.Days, f.Few = len(days), len(days) < trendDays
	x, rows, bytes := make([]float64, len(days)), make([]float64, len(days)), make([]float64, len(days))
	for i, d := range days {
		x[i] = float64(d.Day.Sub(f.Last))
		rows[i], bytes[i] = float64(d.Rows), float64(d.Bytes)
	}
	if f.Few {
		f.RowsPerDay, f.PerDay = median(rows), median(bytes)
		return
	}
	_, f.RowsPerDay = line(x, rows)
	f.Trend, f.PerDay = line(x, bytes)
	f.RowsPerDay, f.PerDay = max(f.RowsPerDay, 0), max(f.PerDay, 0)
}

// line is Theil and Sen's line through points: its slope, and what it is at 0.
func line(x, y []float64) (slope, at0 float64) {
	var slopes []float64
	for i := range x {
		for j := range i {
			slopes = append(slopes, (y[i]-y[j])/(x[i]-x[j]))
		}
	}
	slope = median(slopes)
	rest := make([]float64, len(x))
	for i := range x {
		rest[i] = y[i] - slope*x[i]
	}
	return slope, median(rest)
}

func (f *Forecast) project(quota uint64) {
	now, day := float64(f.Bytes), f.PerDay
	trended, at := now, 0
	for _, in := range horizons() {
		for ; at < in; at++ {
			trended += max(f.PerDay+f.Trend*float64(at+1), 0)
		}
		f.Sizes = append(f.Sizes, Projection{In: in, Bytes: now + day*float64(in), Trended: trended})
	}
	if quota > 0 && day > 0 {
		left := max((float64(quota)-now)/day, 0)
		f.QuotaDays = &left
	}
}
