package manifest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Coverage says how much of what is relied on was checked, and since when all of it was.
type Coverage struct {
	Slices    int         `json:"slices"` // generations that are relied on, see Check
	Bytes     uint64      `json:"bytes"`  // of their objects
	Never     Unchecked   `json:"never"`
	Older     []Unchecked `json:"older"`            // not within so long, those of Never among them
	Oldest    *Check      `json:"oldest,omitempty"` // the one that was found equal longest ago, or never
	Different []Check     `json:"different"`        // the first 100 that were not as they were committed when they were read last
}

// Unchecked is what was not found equal within some time.
type Unchecked struct {
	Within time.Duration `json:"-"` // 0: ever
	For    string        `json:"for,omitempty"`
	Slices int           `json:"slices"` // that were not in whole
	Bytes  uint64        `json:"bytes"`  // of those of their objects that were not
}

const maxDifferent = 100

// aheadBy is how far toCome is to come.
const aheadBy = 5 * time.Minute

// reliedOn says of a generation c of slice s that somebody relies on it.
const reliedOn = "(c.generation = s.live_generation OR (c.generation = s.generation AND s.state IN ('committed', 'verified', 'purging', 'purged')))"

// relied joins slices s with the generations c that are relied on, and what is noted of
// their checks in k.
const relied = "FROM slices s JOIN copies c ON c.slice_id = s.id AND " + reliedOn + " LEFT JOIN checks k ON k.slice_id = c.slice_id AND k.generation = c.generation"

// reliedNewest and reliedFormer together are relied, of one source: the newest generations,
// of which slices has all that is summed up, so that copies is not read, and the few that
// are live still although there is a newer one.
const (
	reliedNewest = "FROM slices c LEFT JOIN checks k ON k.slice_id = c.id AND k.generation = c.generation WHERE c.source_id = ? AND c.generation > 0 " +
		"AND (c.generation = c.live_generation OR c.state IN ('committed', 'verified', 'purging', 'purged'))"
	reliedFormer = "FROM (SELECT s.id, s.day, s.db_name, s.table_name, c.generation, c.bytes FROM slices s JOIN copies c ON c.slice_id = s.id AND c.generation = s.live_generation " +
		"WHERE s.source_id = ? AND s.live_generation > 0 AND s.live_generation <> s.generation) c LEFT JOIN checks k ON k.slice_id = c.id AND k.generation = c.generation"
)

// longestAgo sorts generations c by when they were found equal, never first, then by day,
// shard and generation. It ends with generation and number of the slice. Argument: the time
// from which on a reading is one to come.
const longestAgo = "CONCAT_WS(' ', IF(k.good_at IS NULL OR k.good_at > ?, '', DATE_FORMAT(k.good_at, '%Y-%m-%dT%H:%i:%s.%f')), c.day, c.db_name, c.table_name, LPAD(c.generation, 10, '0'), c.id)"

// Coverage sums up what was checked, for times within which it should have been.
func (s *Store) Coverage(ctx context.Context, within ...time.Duration) (c Coverage, err error) {
	fail := func(err error) error { return fmt.Errorf("sum up what was checked: %w", err) }
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return c, err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return c, fail(err)
	}
	// Times are given rather than reckoned for each generation. A limit of NULL is one that
	// nothing is older than but what never was.
	ahead := now.Add(aheadBy)
	limits := []any{nil}
	for _, d := range within {
		limits = append(limits, now.Add(-d))
	}
	stale := func(col string) string {
		return "(" + col + " IS NULL OR " + col + " > ? OR COALESCE(" + col + " < ?, 0))"
	}
	var sums, moved strings.Builder
	sumArgs, movedArgs := []any{ahead}, []any{}
	for _, l := range limits {
		sums.WriteString(", COALESCE(SUM(" + stale("k.good_at") + "), 0), CAST(COALESCE(SUM(IF(" + stale("k.objects_at") + ", c.bytes, 0)), 0) AS SIGNED)")
		sumArgs = append(sumArgs, ahead, l, ahead, l)
		// Objects that differ from the others of their generation in this.
		own := "(o.error IS NOT NULL OR " + stale("o.good_at") + ")"
		moved.WriteString(", CAST(COALESCE(SUM(CAST(o.bytes AS SIGNED) * (" + own + " - " + stale("k.objects_at") + ")), 0) AS SIGNED)")
		movedArgs = append(movedArgs, ahead, l, ahead, l)
	}
	c.Older = make([]Unchecked, len(within))
	all := make([]Unchecked, len(limits))
	bytes := make([]int64, len(limits))
	different := 0
	var oldest string
	for _, of := range []string{reliedNewest, reliedFormer} {
		var slices, differ int
		var size uint64
		var first sql.NullString
		n, m := make([]int, len(limits)), make([]int64, len(limits))
		into := []any{&slices, &size, &differ, &first}
		for i := range limits {
			into = append(into, &n[i], &m[i])
		}
		if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*), CAST(COALESCE(SUM(c.bytes), 0) AS UNSIGNED), COALESCE(SUM(k.different), 0), MIN("+longestAgo+")"+sums.String()+" "+of, append(sumArgs, src)...).Scan(into...); err != nil {
			return c, fail(err)
		}
		c.Slices, c.Bytes, different = c.Slices+slices, c.Bytes+size, different+differ
		for i := range limits {
			all[i].Slices, bytes[i] = all[i].Slices+n[i], bytes[i]+m[i]
		}
		if first.Valid && (oldest == "" || first.String < oldest) {
			oldest = first.String
		}
	}
	// The few objects that were read apart from the others of their generation come first, so
	// that not each generation is looked up for them.
	more := make([]int64, len(limits))
	into := []any{new(int)}
	for i := range more {
		into = append(into, &more[i])
	}
	if err := s.db.QueryRowContext(ctx, "SELECT STRAIGHT_JOIN COUNT(*)"+moved.String()+" FROM object_checks o JOIN slices s ON s.id = o.slice_id JOIN copies c ON c.slice_id = o.slice_id AND c.generation = o.generation AND "+reliedOn+
		" LEFT JOIN checks k ON k.slice_id = c.slice_id AND k.generation = c.generation WHERE s.source_id = ?", append(movedArgs, src)...).Scan(into...); err != nil {
		return c, fail(err)
	}
	for i := range all {
		all[i].Bytes = uint64(max(bytes[i]+more[i], 0))
	}
	c.Never = all[0]
	for i, d := range within {
		c.Older[i] = all[i+1]
		c.Older[i].Within = d
	}
	c.Different = []Check{}
	if different > 0 {
		if c.Different, err = s.listChecks(ctx, "s.source_id = ? AND k.different = 1 ORDER BY s.day, s.db_name, s.table_name, c.generation LIMIT ?", src, maxDifferent); err != nil {
			return c, err
		}
	}
	if oldest != "" {
		parts := strings.Split(oldest, " ")
		found, err := s.listChecks(ctx, "s.source_id = ? AND s.id = ? AND c.generation = ?", src, parts[len(parts)-1], parts[len(parts)-2])
		if err != nil {
			return c, err
		}
		if len(found) > 0 {
			c.Oldest = &found[0]
		}
	}
	return c, nil
}

func (s *Store) listChecks(ctx context.Context, where string, args ...any) (all []Check, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT s.id, s.day, s.db_name, s.table_name, s.state, c.generation, c.row_count, c.bytes, "+past("k.read_at")+", "+past("k.good_at")+", COALESCE(k.different, 0) "+relied+" WHERE "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("list what was checked when: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		c := Check{SliceKey: SliceKey{Source: s.source}}
		if err := rows.Scan(&c.SliceID, &c.Day, &c.Shard.Database, &c.Shard.Table, &c.State, &c.Generation, &c.Rows, &c.Bytes, &c.ReadAt, &c.GoodAt, &c.Different); err != nil {
			return nil, fmt.Errorf("list what was checked when: %w", err)
		}
		all = append(all, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list what was checked when: %w", err)
	}
	return all, nil
}
