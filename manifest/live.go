package manifest

import (
	"context"
	"fmt"
	"path"

	"github.com/coldtier/coldtier/archive/message"
)

// Live is the generation of a slice that serves reads.
type Live struct {
	Slice
	Attempt string          `json:"attempt"`
	Schema  *message.Schema `json:"-"`
	Rows    uint64          `json:"rows"` // of the live generation; Slice's are of the newest
	Bytes   int64           `json:"bytes"`
}

// LiveCopies lists the slices that a filter selects and that have a live generation,
// oldest day first, then by shard, with what is known of that generation without its
// chunks and objects.
func (s *Store) LiveCopies(ctx context.Context, f Filter) (all []Live, err error) {
	fail := func(err error) ([]Live, error) { return nil, fmt.Errorf("list the manifest's live copies: %w", err) }
	if _, err := path.Match(f.Shard, ""); err != nil {
		return nil, fmt.Errorf("shard pattern %q: %w", f.Shard, err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	where, args := f.where(src)
	rows, err := s.db.QueryContext(ctx, "SELECT "+sliceColumns+", "+heldSQL+", c.attempt, c.schema_hash, c.row_count, c.bytes FROM slices s "+
		"JOIN copies c ON c.slice_id = s.id AND c.generation = s.live_generation WHERE "+where+" AND s.live_generation > 0 ORDER BY s.day, s.db_name, s.table_name", args...)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	var hashes []string
	for rows.Next() {
		var l Live
		var hash string
		var held bool
		if l.Slice, err = s.scanSlice(rows.Scan, &held, &l.Attempt, &hash, &l.Rows, &l.Bytes); err != nil {
			return fail(err)
		}
		l.Held = held
		if f.Shard != "" {
			if ok, _ := path.Match(f.Shard, l.Shard.String()); !ok { // the pattern was tried before
				continue
			}
		}
		all, hashes = append(all, l), append(hashes, hash)
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	for i := range all { // after the rows, so that one connection is enough
		if all[i].Schema, err = s.schema(ctx, hashes[i]); err != nil {
			return fail(err)
		}
	}
	return all, nil
}

// LoadHead is LoadCopy without the objects.
func (s *Store) LoadHead(ctx context.Context, sliceID uint64, generation uint32) (*Copy, error) {
	c, _, err := s.loadHead(ctx, sliceID, generation)
	if err != nil {
		return nil, fmt.Errorf("load the head of slice %d generation %d: %w", sliceID, generation, err)
	}
	return c, nil
}
