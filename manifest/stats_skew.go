package manifest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// The least medians that shards are compared with: that a shard has some rows where the
// others have none is no skew.
const (
	SkewMinRows  = 1000
	SkewMinBytes = 1 << 20
)

// DefaultSkew is the multiple of its day's median from which on a shard stands out.
const DefaultSkew = 3

// DaySkew is how evenly a day's messages lie in the shards.
type DaySkew struct {
	Day         snowflake.Day `json:"day"`
	Shards      int           `json:"shards"` // that have a verified copy of the day
	Rows        uint64        `json:"rows"`
	Bytes       uint64        `json:"bytes"`
	MedianRows  float64       `json:"median_rows"`
	MedianBytes float64       `json:"median_bytes"`
	Largest     *ShardSkew    `json:"largest,omitempty"` // by its ratio
	Over        []ShardSkew   `json:"over,omitempty"`    // those above the multiple, the largest first
}

// ShardSkew is one shard on one day. Its ratios are to the day's medians, or to SkewMinRows
// and SkewMinBytes where a median is less.
type ShardSkew struct {
	Shard      Shard   `json:"shard"`
	Rows       uint64  `json:"rows"`
	Bytes      uint64  `json:"bytes"`
	RowsRatio  float64 `json:"rows_ratio"`
	BytesRatio float64 `json:"bytes_ratio"`
}

// Times is how many times its day's median a shard has, of rows or of bytes, whichever is
// more; 0 where a median is.
func (d DaySkew) Times(s ShardSkew) (times float64) {
	if d.MedianRows > 0 && d.MedianBytes > 0 {
		times = max(float64(s.Rows)/d.MedianRows, float64(s.Bytes)/d.MedianBytes)
	}
	return times
}

// Ratio is the greater of its ratios.
func (s ShardSkew) Ratio() float64 { return max(s.RowsRatio, s.BytesRatio) }

const skewQuery = "SELECT day, db_name, table_name, row_count, bytes FROM slices WHERE source_id = ? AND day >= ? AND day <= ? AND live_generation > 0 ORDER BY day"

// Skew compares the shards of each day from one to another, inclusive, oldest first. Those
// with more rows or bytes than multiple times the median of their day stand out.
func (s *Store) Skew(ctx context.Context, from, to snowflake.Day, multiple float64) (days []DaySkew, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, skewQuery, src, from, to)
	if err != nil {
		return nil, fmt.Errorf("compare the manifest's shards: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var of []ShardSkew // of the last day
	end := func() {
		if n := len(days); n > 0 {
			days[n-1].judge(of, multiple)
		}
		of = nil
	}
	for rows.Next() {
		var day snowflake.Day
		var sh ShardSkew
		if err := rows.Scan(&day, &sh.Shard.Database, &sh.Shard.Table, &sh.Rows, &sh.Bytes); err != nil {
			return nil, fmt.Errorf("compare the manifest's shards: %w", err)
		}
		if n := len(days); n == 0 || days[n-1].Day != day {
			end()
			days = append(days, DaySkew{Day: day})
		}
		of = append(of, sh)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("compare the manifest's shards: %w", err)
	}
	end()
	return days, nil
}

func (d *DaySkew) judge(all []ShardSkew, multiple float64) {
	rows, bytes := make([]uint64, len(all)), make([]uint64, len(all))
	for i, s := range all {
		rows[i], bytes[i] = s.Rows, s.Bytes
		d.Rows, d.Bytes = d.Rows+s.Rows, d.Bytes+s.Bytes
	}
	d.Shards, d.MedianRows, d.MedianBytes = len(all), median(rows), median(bytes)
	for i := range all {
		s := &all[i]
		s.RowsRatio = float64(s.Rows) / max(d.MedianRows, SkewMinRows)
		s.BytesRatio = float64(s.Bytes) / max(d.MedianBytes, SkewMinBytes)
		if d.Largest == nil || s.Ratio() > d.Largest.Ratio() {
			d.Largest = s
		}
		if s.Ratio() > multiple {
			d.Over = append(d.Over, *s)
		}
	}
	slices.SortFunc(d.Over, func(a, b ShardSkew) int {
		return cmp.Or(cmp.Compare(b.Ratio(), a.Ratio()), cmp.Compare(a.Shard.String(), b.Shard.String()))
	})
}
