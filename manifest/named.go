package manifest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"path"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// Named is a slice and all generations that the manifest names of it: also those that
// another has taken the place of, whose objects and rows are kept.
type Named struct {
	Slice
	Purge   bool // a purge was begun on it at some time
	Touched bool // a chunk of the live generation is not ChunkPresent
	Copies  []NamedCopy
}

// NamedCopy is a generation without its chunks and objects.
type NamedCopy struct {
	Generation uint32
	Attempt    string
	RecordKey  string
	RecordSum  [32]byte
	Rows       uint64
	Bytes      int64
}

// Copy finds a generation.
func (n *Named) Copy(generation uint32) (NamedCopy, bool) {
	for _, c := range n.Copies {
		if c.Generation == generation {
			return c, true
		}
	}
	return NamedCopy{}, false
}

// Has says whether an attempt is one of the generations.
func (n *Named) Has(generation uint32, attempt string) bool {
	c, ok := n.Copy(generation)
	return ok && c.Attempt == attempt
}

// Named lists the slices that a filter selects with their generations, as they are at one
// moment: oldest day first, then by shard.
func (s *Store) Named(ctx context.Context, f Filter) ([]Named, error) {
	if _, err := path.Match(f.Shard, ""); err != nil {
		return nil, fmt.Errorf("shard pattern %q: %w", f.Shard, err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	where, args := f.where(src)
	return s.named(ctx, where, args, f.Shard)
}

// NamedSlice is Named of one slice; ok is false when the manifest lacks it.
func (s *Store) NamedSlice(ctx context.Context, k SliceKey) (n Named, ok bool, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return n, false, err
	}
	list, err := s.named(ctx, "s.source_id = ? AND s.day = ? AND s.db_name = ? AND s.table_name = ?", []any{src, k.Day, k.Shard.Database, k.Shard.Table}, "")
	if err != nil || len(list) == 0 {
		return n, false, err
	}
	return list[0], true, nil
}

func (s *Store) named(ctx context.Context, where string, args []any, glob string) (all []Named, err error) {
	fail := func(err error) ([]Named, error) { return nil, fmt.Errorf("list the manifest's generations: %w", err) }
	rows, err := s.db.QueryContext(ctx, "SELECT "+sliceColumns+", "+heldSQL+", s.purge_begun, "+
		"EXISTS (SELECT 1 FROM chunks x WHERE x.slice_id = s.id AND x.token = s.live_token AND s.live_generation > 0 AND x.state <> 'present'), "+
		"c.generation, c.attempt, c.record_key, c.record_sum, c.row_count, c.bytes FROM slices s LEFT JOIN copies c ON c.slice_id = s.id WHERE "+where+
		" ORDER BY s.day, s.db_name, s.table_name, c.generation", args...)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var n Named
		var held bool
		var generation, count sql.Null[uint64]
		var bytes sql.NullInt64
		var attempt sql.NullString
		var key, sum []byte
		if n.Slice, err = s.scanSlice(rows.Scan, &held, &n.Purge, &n.Touched, &generation, &attempt, &key, &sum, &count, &bytes); err != nil {
			return fail(err)
		}
		n.Held = held
		if glob != "" {
			if ok, _ := path.Match(glob, n.Shard.String()); !ok { // the pattern was tried before
				continue
			}
		}
		if last := len(all) - 1; last < 0 || all[last].ID != n.ID {
			all = append(all, n)
		}
		if !generation.Valid {
			continue
		}
		if len(sum) != 32 {
			return fail(fmt.Errorf("slice %s generation %d: %w: a checksum of %d bytes", n.SliceKey, generation.V, ErrCorrupt, len(sum)))
		}
		of := &all[len(all)-1]
		of.Copies = append(of.Copies, NamedCopy{Generation: uint32(generation.V), Attempt: attempt.String, RecordKey: string(key), RecordSum: [32]byte(sum), Rows: count.V, Bytes: bytes.Int64}) //nolint:gosec // written from one
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return all, nil
}

// Days lists the days of the source's slices, oldest first.
func (s *Store) Days(ctx context.Context) ([]snowflake.Day, error) { return s.days(ctx) }

// NamedObject is an object of a generation as far as a listing can tell.
type NamedObject struct {
	Key  string
	Size int64
	Rows int64
}

// NamedObjects lists a generation's objects, in the order in which they were committed.
func (s *Store) NamedObjects(ctx context.Context, n *Named, c NamedCopy) (all []NamedObject, err error) {
	fail := func(err error) ([]NamedObject, error) {
		return nil, fmt.Errorf("list the objects of slice %s generation %d: %w", n.SliceKey, c.Generation, err)
	}
	prefix := ObjectPrefix(n.SliceKey, c.Generation, c.Attempt)
	rows, err := s.db.QueryContext(ctx, "SELECT o.seq, o.name, o.file FROM copies c JOIN objects o ON o.slice_id = c.slice_id AND o.token = c.token WHERE c.slice_id = ? AND c.generation = ? ORDER BY o.seq",
		n.ID, c.Generation)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var seq int
		var name string
		var file sql.RawBytes
		if err := rows.Scan(&seq, &name, &file); err != nil {
			return fail(err)
		}
		f, err := parseFile(file)
		if err != nil {
			return fail(fmt.Errorf("object %d: %w", seq, err))
		}
		if seq != len(all) {
			return fail(fmt.Errorf("%w: object %d is missing", ErrCorrupt, len(all)))
		}
		all = append(all, NamedObject{Key: longKey(prefix, name), Size: f.Size, Rows: f.Rows})
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return all, nil
}

// Record makes a generation's commit record again, as far as the manifest still knows what
// was in it: a status that was put again since is not the one that the record has. So it
// counts only if it has the checksum that was committed.
func (s *Store) Record(ctx context.Context, sliceID uint64, generation uint32) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("make the commit record of slice %d generation %d again: %w", sliceID, generation, err)
	}
	c, err := s.LoadCopy(ctx, sliceID, generation)
	if err != nil {
		return fail(err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return fail(err)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+statusColumns+" FROM statuses FORCE INDEX (message) WHERE source_id = ? AND message_id >= ? AND message_id < ? AND folded = ? ORDER BY message_id, conversation",
		src, c.Lo, c.Hi, generation)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		st, err := scanStatus(rows.Scan)
		if err != nil {
			return fail(err)
		}
		c.Statuses = append(c.Statuses, st)
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	var b bytes.Buffer
	if err := EncodeRecord(&b, c); err != nil {
		return fail(err)
	}
	return b.Bytes(), nil
}

// UnmirroredFor counts what the manifest alone has known for longer than some time, by its
// clock. Of purges no time is known: they are from before there were marks, and all count.
func (s *Store) UnmirroredFor(ctx context.Context, age time.Duration) (u Unmirrored, err error) {
	if u, err = s.Unmirrored(ctx); err != nil || u.Holds+u.Stops+u.Statuses == 0 {
		return u, err
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return u, err
	}
	const old = " < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"
	for query, into := range map[string]*int{
		"SELECT COUNT(*) FROM holds WHERE source_id = ? AND mirrored = 0 AND GREATEST(placed_at, COALESCE(released_at, placed_at))" + old: &u.Holds,
		"SELECT COUNT(*) FROM stops WHERE source_id = ? AND mirrored = 0 AND GREATEST(placed_at, COALESCE(lifted_at, placed_at))" + old:   &u.Stops,
		"SELECT COUNT(*) FROM statuses FORCE INDEX (mirrored) WHERE source_id = ? AND mirrored = 0 AND put_at" + old:                      &u.Statuses} {
		if err := s.db.QueryRowContext(ctx, query, src, micros(age)).Scan(into); err != nil {
			return u, fmt.Errorf("count what is not in the bucket for %s: %w", age, err)
		}
	}
	return u, nil
}

// MirroredHolds lists the holds that the bucket should have as they are, and all others.
func (s *Store) MirroredHolds(ctx context.Context) (mirrored, others map[uint64]Hold, err error) {
	all, err := s.allHolds(ctx)
	if err != nil {
		return nil, nil, err
	}
	mirrored, others = map[uint64]Hold{}, map[uint64]Hold{}
	for id, h := range all {
		if h.mirrored {
			mirrored[id] = h.Hold
		} else {
			others[id] = h.Hold
		}
	}
	return mirrored, others, nil
}
