package manifest

import (
	"context"
	"database/sql"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// DayState is the slices of one day in one state.
type DayState struct {
	Day    snowflake.Day
	State  State
	Slices int
	Rows   uint64 // of their newest generations
	Bytes  uint64
	Failed int // of them, those whose last try failed
	// Last is when the last of them was verified; of State Verified only.
	Last *time.Time
}

// maxShardArgs is how many shards a condition lists.
const maxShardArgs = 20_000

// By the index of tables, of which each is found once.
const shardsQuery = "SELECT DISTINCT db_name, table_name FROM slices FORCE INDEX (shard) WHERE source_id = ? ORDER BY db_name, table_name"

// Shards lists the shards that have slices and match a glob over "database.table";
// an empty one is all.
func (s *Store) Shards(ctx context.Context, glob string) (all []Shard, err error) {
	fail := func(err error) ([]Shard, error) { return nil, fmt.Errorf("list the manifest's shards: %w", err) }
	if _, err := path.Match(glob, ""); err != nil {
		return fail(fmt.Errorf("pattern %q: %w", glob, err))
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, shardsQuery, src)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var sh Shard
		if err := rows.Scan(&sh.Database, &sh.Table); err != nil {
			return fail(err)
		}
		if ok, _ := path.Match(glob, sh.String()); glob == "" || ok { // the pattern was tried before
			all = append(all, sh)
		}
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return all, nil
}

// of is the filter's States, From and To as a condition on slices s, with the shards instead
// of the glob; nil shards are all.
func (f Filter) of(src uint32, shards []Shard) (string, []any) {
	where, args := f.where(src)
	if shards == nil {
		return where, args
	}
	where += " AND CONCAT(s.db_name, '.', s.table_name) IN (''" + strings.Repeat(", ?", len(shards)) + ")"
	for _, sh := range shards {
		args = append(args, sh.String())
	}
	return where, args
}

// narrowed is the filter as a condition that the server alone decides.
func (s *Store) narrowed(ctx context.Context, f Filter) (string, []any, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return "", nil, err
	}
	var shards []Shard
	if f.Shard != "" {
		if shards, err = s.Shards(ctx, f.Shard); err != nil {
			return "", nil, err
		}
		if len(shards) > maxShardArgs {
			return "", nil, fmt.Errorf("shard pattern %q: it fits %d shards, at most %d can be asked for at once", f.Shard, len(shards), maxShardArgs)
		}
		if shards == nil {
			shards = []Shard{}
		}
	}
	where, args := f.of(src, shards)
	return where, args, nil
}

// DayStates sums up what a filter selects, oldest day first and then in the order of a
// slice's life. It reads no slice one by one.
func (s *Store) DayStates(ctx context.Context, f Filter) (all []DayState, err error) {
	where, args, err := s.narrowed(ctx, f)
	if err != nil {
		return nil, err
	}
	type key struct {
		day   snowflake.Day
		state State
	}
	at := map[key]int{}
	read := func(query string, scan func(scan func(...any) error) error) error {
		rows, err := s.db.QueryContext(ctx, query, args...)
		if err != nil {
			return fmt.Errorf("sum up the manifest's days: %w", err)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			if err := scan(rows.Scan); err != nil {
				return fmt.Errorf("sum up the manifest's days: %w", err)
			}
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("sum up the manifest's days: %w", err)
		}
		return nil
	}
	err = read(dayStatesQuery+where+" GROUP BY s.state, s.day", func(scan func(...any) error) error {
		var d DayState
		if err := scan(&d.Day, &d.State, &d.Slices, &d.Rows, &d.Bytes); err != nil {
			return err
		}
		all = append(all, d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b DayState) int {
		if c := a.Day.Compare(b.Day); c != 0 {
			return c
		}
		return slices.Index(States(), a.State) - slices.Index(States(), b.State)
	})
	for i, d := range all {
		at[key{d.Day, d.State}] = i
	}
	// What became so in between is in the next summary.
	err = read("SELECT s.day, s.state, COUNT(*) FROM slices s WHERE "+where+" AND s.failed = 1 GROUP BY s.day, s.state", func(scan func(...any) error) error {
		var k key
		var n int
		if err := scan(&k.day, &k.state, &n); err != nil {
			return err
		}
		if i, ok := at[k]; ok {
			all[i].Failed = min(n, all[i].Slices)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, read("SELECT s.day, MAX(s.verified_at) FROM slices s WHERE "+where+" AND s.state = 'verified' GROUP BY s.day", func(scan func(...any) error) error {
		k := key{state: Verified}
		var last *time.Time
		if err := scan(&k.day, &last); err != nil {
			return err
		}
		if i, ok := at[k]; ok {
			all[i].Last = last
		}
		return nil
	})
}

// The index is named, since MySQL takes another, by which each slice is looked up.
const dayStatesQuery = "SELECT s.day, s.state, COUNT(*), CAST(SUM(s.row_count) AS UNSIGNED), CAST(SUM(s.bytes) AS UNSIGNED) FROM slices s FORCE INDEX (state) WHERE "

// FailedSlices lists slices that a filter selects and whose last try failed, oldest day
// first, at most limit.
func (s *Store) FailedSlices(ctx context.Context, f Filter, limit int) ([]Slice, error) {
	where, args, err := s.narrowed(ctx, f)
	if err != nil {
		return nil, err
	}
	return s.listSlices(ctx, where+" AND s.failed = 1 ORDER BY s.day, s.db_name, s.table_name LIMIT ?", append(args, limit), "")
}

const heldBatch = 200

// HeldSlices lists the slices that a filter selects and that a hold in force is on, oldest
// day first.
func (s *Store) HeldSlices(ctx context.Context, f Filter) (all []Slice, err error) {
	if _, err := path.Match(f.Shard, ""); err != nil {
		return nil, fmt.Errorf("shard pattern %q: %w", f.Shard, err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	keys, err := s.heldKeys(ctx, src, f)
	if err != nil {
		return nil, err
	}
	const one = "(s.day = ? AND s.db_name = ? AND s.table_name = ?)"
	for some := range slices.Chunk(keys, heldBatch) {
		args := []any{src}
		for _, k := range some {
			args = append(args, k.Day, k.Shard.Database, k.Shard.Table)
		}
		found, err := s.listSlices(ctx, "s.source_id = ? AND ("+one+strings.Repeat(" OR "+one, len(some)-1)+") ORDER BY s.day, s.db_name, s.table_name", args, "")
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// heldKeys are the slices that holds in force are on, whether they exist or not; in order.
func (s *Store) heldKeys(ctx context.Context, src uint32, f Filter) (keys []SliceKey, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT DISTINCT h.subject FROM holds h WHERE h.source_id = ? AND h.kind = 'slice' AND "+inForce, src)
	if err != nil {
		return nil, fmt.Errorf("list what is held in the manifest: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var subject string
		if err := rows.Scan(&subject); err != nil {
			return nil, fmt.Errorf("list what is held in the manifest: %w", err)
		}
		k, err := ParseSlice(s.source, subject)
		if err != nil {
			return nil, fmt.Errorf("a hold in the manifest: %w", err)
		}
		match, _ := path.Match(f.Shard, k.Shard.String()) // the pattern was tried before
		if (f.From != nil && k.Day.Before(*f.From)) || (f.To != nil && f.To.Before(k.Day)) || (f.Shard != "" && !match) {
			continue
		}
		keys = append(keys, k)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list what is held in the manifest: %w", err)
	}
	slices.SortFunc(keys, func(a, b SliceKey) int {
		if c := a.Day.Compare(b.Day); c != 0 {
			return c
		}
		return strings.Compare(a.Shard.String(), b.Shard.String())
	})
	return keys, nil
}

// Amount is a number of slices and what is in them.
type Amount struct {
	Slices int    `json:"slices"`
	Rows   uint64 `json:"rows"`  // of them in warm
	Bytes  uint64 `json:"bytes"` // of their objects
}

// goneSQL gives, of slices that are being purged or were copied again, how many rows of the
// live copy are not in warm any more: those of deleted chunks, and those that an earlier
// purge had deleted. Its argument is the source. leftSQL is how many are left of slices s,
// joined with it as g.
const (
	goneSQL = "(SELECT c.slice_id, SUM(c.carried_rows + IF(c.state = 'deleted', c.warm_rows, 0)) AS gone FROM slices s " +
		"JOIN chunks c ON c.slice_id = s.id AND c.token = s.live_token WHERE s.source_id = ? AND s.state IN ('verified', 'purging') " +
		"AND (s.live_generation > 1 OR s.state = 'purging') GROUP BY c.slice_id)"
	leftSQL = "GREATEST(s.row_count - COALESCE(g.gone, 0), 0)"
)

// Deletable is what a purge may delete.
type Deletable struct {
	Now  Amount     // past its lag, or in purging already
	Then Amount     // with what will be past its lag at a later time
	Next *time.Time // when the next slice will be past it; nil: none waits
}

// Deletable sums up what is past its lag by the database's clock, and what will be at a
// time. Slices that are held do not count.
func (s *Store) Deletable(ctx context.Context, lag time.Duration, then time.Time, held []Slice) (d Deletable, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return d, err
	}
	sums := "COALESCE(SUM(x.ok), 0), CAST(COALESCE(SUM(IF(x.ok, x.row_count, 0)), 0) AS UNSIGNED), CAST(COALESCE(SUM(IF(x.ok, x.bytes, 0)), 0) AS UNSIGNED)"
	not, args := without(held)
	const past = "(s.state = 'purging' OR s.verified_at + INTERVAL ? MICROSECOND <= %s)"
	query := "SELECT " + sums + ", " + strings.ReplaceAll(sums, "x.ok", "x.late") + ", MIN(IF(x.ok, NULL, x.verified_at)) FROM (SELECT " + leftSQL + " AS row_count, s.bytes, s.verified_at, " +
		fmt.Sprintf(past, "UTC_TIMESTAMP(6)") + " AS ok, " + fmt.Sprintf(past, "?") + " AS late FROM slices s LEFT JOIN " + goneSQL + " g ON g.slice_id = s.id WHERE s.source_id = ? AND s.state IN ('verified', 'purging')" + not + ") x"
	var next sql.NullTime
	err = s.db.QueryRowContext(ctx, query, append([]any{micros(lag), micros(lag), then.UTC(), src, src}, args...)...).
		Scan(&d.Now.Slices, &d.Now.Rows, &d.Now.Bytes, &d.Then.Slices, &d.Then.Rows, &d.Then.Bytes, &next)
	if err != nil {
		return d, fmt.Errorf("sum up what the manifest lets be deleted: %w", err)
	}
	if next.Valid {
		d.Next = new(next.Time.Add(lag))
	}
	return d, nil
}

// without is the condition that slices s are none of a list.
func without(list []Slice) (string, []any) {
	if len(list) == 0 {
		return "", nil
	}
	args := make([]any, len(list))
	for i, h := range list {
		args[i] = h.ID
	}
	return " AND s.id NOT IN (?" + strings.Repeat(", ?", len(list)-1) + ")", args
}

// ShardBehind is a shard with slices for which something is due.
type ShardBehind struct {
	Shard  Shard         `json:"shard"`
	Oldest snowflake.Day `json:"oldest"` // the oldest day it is due for
	Slices int           `json:"slices"`
	Failed int           `json:"failed"` // of them, those whose last try failed
	Rows   uint64        `json:"rows"`   // of their newest generations, as far as they are in warm; 0 for what was never copied
	Since  *time.Time    `json:"since,omitempty"`
}

// BehindArchive lists the shards with slices up to a day that are not verified, those with
// the oldest first.
func (s *Store) BehindArchive(ctx context.Context, due snowflake.Day) ([]ShardBehind, error) {
	return s.behind(ctx, "NULL", "s.row_count", "", "s.state IN ('pending', 'copying', 'committed') AND s.day <= ?", due)
}

// BehindPurge lists the shards with slices that are past their lag by the database's
// clock, not held and not purged, those that wait for longest first.
func (s *Store) BehindPurge(ctx context.Context, lag time.Duration, held []Slice) ([]ShardBehind, error) {
	not, args := without(held)
	const over = "s.verified_at + INTERVAL ? MICROSECOND"
	return s.behind(ctx, "MIN("+over+")", leftSQL, " LEFT JOIN "+goneSQL+" g ON g.slice_id = s.id", "s.state IN ('verified', 'purging') AND (s.state = 'purging' OR "+over+" <= UTC_TIMESTAMP(6))"+not,
		append([]any{micros(lag), micros(lag)}, args...)...)
}

// behind: the first of the arguments are of since, where it has any, then those of where;
// the source is put in for what a join asks for.
func (s *Store) behind(ctx context.Context, since, count, join, where string, args ...any) (all []ShardBehind, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	n := strings.Count(since, "?")
	for range strings.Count(join, "?") + 1 {
		args = slices.Insert(args, n, any(src))
	}
	rows, err := s.db.QueryContext(ctx, "SELECT s.db_name, s.table_name, MIN(s.day), COUNT(*), CAST(SUM(s.failed) AS SIGNED), CAST(SUM("+count+") AS UNSIGNED), "+since+" AS since "+
		"FROM slices s"+join+" WHERE s.source_id = ? AND "+where+" GROUP BY s.db_name, s.table_name ORDER BY MIN(s.day), since, COUNT(*) DESC, s.db_name, s.table_name", args...)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's shards that are behind: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var b ShardBehind
		if err := rows.Scan(&b.Shard.Database, &b.Shard.Table, &b.Oldest, &b.Slices, &b.Failed, &b.Rows, &b.Since); err != nil {
			return nil, fmt.Errorf("list the manifest's shards that are behind: %w", err)
		}
		all = append(all, b)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's shards that are behind: %w", err)
	}
	return all, nil
}

// VerifiedSince counts the slices that were verified since a time and are not purged yet.
func (s *Store) VerifiedSince(ctx context.Context, since time.Time) (n int, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return 0, err
	}
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM slices FORCE INDEX (due) WHERE source_id = ? AND state = 'verified' AND verified_at >= ?", src, since.UTC()).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what was verified in the manifest: %w", err)
	}
	return n, nil
}
