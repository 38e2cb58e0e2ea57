package manifest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// NextGeneration is the number of the slice's next copy. Commit takes any number
// from it upwards, so that a number can be skipped whose record in the bucket is
// damaged or another's.
func (s Slice) NextGeneration() uint32 { return s.Generation + 1 }

const sliceColumns = `s.id, s.day, s.db_name, s.table_name, s.lo, s.hi, s.state, s.reason, s.live_generation, s.generation, s.row_count, s.bytes,
	s.failed, COALESCE(s.error, ''), s.tries, s.interrupted, s.tried_seconds * 1000000000, s.staging, s.verified_at, s.purged_at, s.lease_until, s.lease_owner`

// heldSQL says of slices s whether a hold on it is in force. The subject is
// SliceKey.String.
const heldSQL = `EXISTS (SELECT 1 FROM holds h WHERE h.source_id = s.source_id AND h.kind = 'slice' AND ` + inForce + `
	AND h.subject = CAST(CONCAT(DATE_FORMAT(s.day, '%Y-%m-%d'), ' ', s.db_name, '.', s.table_name) AS BINARY))`

func (s *Store) scanSlice(scan func(...any) error, more ...any) (sl Slice, err error) {
	sl.Source = s.source
	err = scan(append([]any{&sl.ID, &sl.Day, &sl.Shard.Database, &sl.Shard.Table, &sl.Lo, &sl.Hi, &sl.State, &sl.Reason, &sl.Live, &sl.Generation,
		&sl.Rows, &sl.Bytes, &sl.Failed, &sl.Error, &sl.Tries, &sl.Interrupted, &sl.Tried, &sl.Staging, &sl.VerifiedAt, &sl.PurgedAt, &sl.LeaseUntil, &sl.LeaseOwner}, more...)...)
	return sl, err
}

// Slice reads one slice.
func (s *Store) Slice(ctx context.Context, id uint64) (Slice, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return Slice{}, err
	}
	row := s.db.QueryRowContext(ctx, "SELECT "+sliceColumns+", "+heldSQL+" FROM slices s WHERE s.id = ? AND s.source_id = ?", id, src)
	var held bool
	sl, err := s.scanSlice(row.Scan, &held)
	if errors.Is(err, sql.ErrNoRows) {
		return sl, fmt.Errorf("slice %d of source %s: %w", id, s.source, ErrNotFound)
	}
	if err != nil {
		return sl, fmt.Errorf("read slice %d: %w", id, err)
	}
	sl.Held = held
	return sl, nil
}

// Filter selects slices; the zero Filter selects all.
type Filter struct {
	States   []State
	From, To *snowflake.Day // inclusive
	Shard    string         // glob over "database.table"
}

// Slices lists the slices that a filter selects, oldest day first, then by shard.
func (s *Store) Slices(ctx context.Context, f Filter) ([]Slice, error) {
	if _, err := path.Match(f.Shard, ""); err != nil {
		return nil, fmt.Errorf("shard pattern %q: %w", f.Shard, err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	where, args := f.where(src)
	return s.listSlices(ctx, where+" ORDER BY s.day, s.db_name, s.table_name", args, f.Shard)
}

// where is the filter as a condition on slices s; Shard is left to the reader.
func (f Filter) where(src uint32) (string, []any) {
	where, args := "s.source_id = ?", []any{src}
	if len(f.States) > 0 {
		where += " AND s.state IN (?" + strings.Repeat(", ?", len(f.States)-1) + ")"
		for _, st := range f.States {
			args = append(args, string(st))
		}
	}
	if f.From != nil {
		where, args = where+" AND s.day >= ?", append(args, *f.From)
	}
	if f.To != nil {
		where, args = where+" AND s.day <= ?", append(args, *f.To)
	}
	return where, args
}

func (s *Store) listSlices(ctx context.Context, where string, args []any, glob string) (all []Slice, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT "+sliceColumns+", "+heldSQL+" FROM slices s WHERE "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's slices: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var held bool
		sl, err := s.scanSlice(rows.Scan, &held)
		if err != nil {
			return nil, fmt.Errorf("list the manifest's slices: %w", err)
		}
		sl.Held = held
		if glob != "" {
			if ok, _ := path.Match(glob, sl.Shard.String()); !ok { // the pattern was tried before
				continue
			}
		}
		all = append(all, sl)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's slices: %w", err)
	}
	return all, nil
}

const ensureBatch = 1000

// Ensure makes slices in state pending where there are none yet and leaves those
// that exist as they are. It gives the number it made. A slice that exists with
// another range of IDs is an error: the epoch, the zone or the shift was changed.
//
// Of a long list it begins somewhere, so that processes that make the same slices at the
// same time do not all wait for each other.
func (s *Store) Ensure(ctx context.Context, list []Slice) (created int, err error) {
	for _, sl := range list {
		if err := s.checkKey(sl); err != nil {
			return 0, err
		}
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return 0, err
	}
	batches := slices.Collect(slices.Chunk(list, ensureBatch))
	for i, first := 0, rand.IntN(max(len(batches), 1)); i < len(batches); i++ { //nolint:gosec // spreads load alone
		c, err := s.ensure(ctx, src, batches[(first+i)%len(batches)])
		created += c
		if err != nil {
			return created, err
		}
	}
	return created, nil
}

func (s *Store) checkKey(sl Slice) error {
	if sl.Source != s.source {
		return fmt.Errorf("slice %s: its source is %q, the manifest is opened for %q", sl.SliceKey, sl.Source, s.source)
	}
	if n := len(sl.Shard.Database); n == 0 || n > 64 {
		return fmt.Errorf("slice %s: database name of %d bytes: want 1 to 64", sl.SliceKey, n)
	}
	if n := len(sl.Shard.Table); n == 0 || n > 64 {
		return fmt.Errorf("slice %s: table name of %d bytes: want 1 to 64", sl.SliceKey, n)
	}
	if sl.Lo >= sl.Hi {
		return fmt.Errorf("slice %s: message IDs [%d, %d) are no range", sl.SliceKey, sl.Lo, sl.Hi)
	}
	return nil
}

func (s *Store) ensure(ctx context.Context, src uint32, list []Slice) (int, error) {
	missing, err := s.missing(ctx, src, list)
	if err != nil || len(missing) == 0 {
		return 0, err
	}
	// All in the same order: else two that make the same slices may wait for each other.
	slices.SortFunc(missing, func(a, b Slice) int {
		return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(a.Shard.Database, b.Shard.Database), cmp.Compare(a.Shard.Table, b.Shard.Table))
	})
	args := make([]any, 0, 7*len(missing))
	for _, sl := range missing {
		args = append(args, src, sl.Day, sl.Shard.Database, sl.Shard.Table, sl.Lo, sl.Hi, string(Pending))
	}
	var created int64
	err = s.inTx(ctx, func(tx *sql.Tx) (err error) {
		// IGNORE: another process may make the same slices now.
		created, err = exec(ctx, tx, "INSERT IGNORE INTO slices (source_id, day, db_name, table_name, lo, hi, state) VALUES "+values(len(missing), 7), args...)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("make %d slices in the manifest: %w", len(missing), err)
	}
	if int(created) == len(missing) {
		return int(created), nil
	}
	if missing, err = s.missing(ctx, src, list); err == nil && len(missing) > 0 {
		err = fmt.Errorf("slice %s was not made", missing[0].SliceKey)
	}
	return int(created), err
}

// denseDays is from how many slices a day on all slices of the days are read, instead of
// each for itself.
const denseDays = 8

// lookUp is the query that finds those of a list that exist, perhaps among others.
func lookUp(src uint32, list []Slice) (query string, args []any) {
	const find = "SELECT day, db_name, table_name, lo, hi FROM slices WHERE source_id = ? AND "
	args = []any{src}
	days := map[snowflake.Day]bool{}
	for _, sl := range list {
		days[sl.Day] = true
	}
	if len(list) >= denseDays*len(days) {
		in := "day IN (?" + strings.Repeat(", ?", len(days)-1) + ")"
		for d := range days {
			args = append(args, d)
		}
		return find + in, args
	}
	for _, sl := range list {
		args = append(args, sl.Day, sl.Shard.Database, sl.Shard.Table)
	}
	// Not a row constructor with IN, for which MariaDB uses no index.
	const one = "(day = ? AND db_name = ? AND table_name = ?)"
	return find + "(" + one + strings.Repeat(" OR "+one, len(list)-1) + ")", args
}

// missing gives those of a list that do not exist, and an error for one that
// exists with another range.
func (s *Store) missing(ctx context.Context, src uint32, list []Slice) ([]Slice, error) {
	query, args := lookUp(src, list)
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("look up the manifest's slices: %w", err)
	}
	defer func() { _ = rows.Close() }()
	have := map[SliceKey][2]uint64{}
	for rows.Next() {
		k := SliceKey{Source: s.source}
		var r [2]uint64
		if err := rows.Scan(&k.Day, &k.Shard.Database, &k.Shard.Table, &r[0], &r[1]); err != nil {
			return nil, fmt.Errorf("look up the manifest's slices: %w", err)
		}
		have[k] = r
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look up the manifest's slices: %w", err)
	}
	var missing []Slice
	for _, sl := range list {
		r, ok := have[sl.SliceKey]
		if !ok {
			missing = append(missing, sl)
		} else if r != [2]uint64{sl.Lo, sl.Hi} {
			return nil, fmt.Errorf("slice %s has message IDs [%d, %d) in the manifest, not [%d, %d): the snowflake epoch, its shift or the time zone was changed",
				sl.SliceKey, r[0], r[1], sl.Lo, sl.Hi)
		}
	}
	return missing, nil
}
