package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
)

// LoadCopy reads a committed generation, with the present states of its chunks.
func (s *Store) LoadCopy(ctx context.Context, sliceID uint64, generation uint32) (*Copy, error) {
	fail := func(err error) (*Copy, error) {
		return nil, fmt.Errorf("load slice %d generation %d: %w", sliceID, generation, err)
	}
	c, token, err := s.loadHead(ctx, sliceID, generation)
	if err != nil {
		return fail(err)
	}
	if c.Objects, err = s.loadObjects(ctx, sliceID, token, c); err != nil {
		return fail(err)
	}
	if err := s.loadSegments(ctx, sliceID, token, c.Objects); err != nil {
		return fail(err)
	}
	return c, nil
}

// loadHead reads a copy without its objects, and the token it was committed under.
func (s *Store) loadHead(ctx context.Context, sliceID uint64, generation uint32) (*Copy, uint64, error) {
	sl, err := s.Slice(ctx, sliceID)
	if err != nil {
		return nil, 0, err
	}
	c := &Copy{SliceKey: sl.SliceKey, Lo: sl.Lo, Hi: sl.Hi, Generation: generation}
	var token uint64
	var hash string
	err = s.db.QueryRowContext(ctx, "SELECT token, attempt, schema_hash, show_create, copied_at FROM copies WHERE slice_id = ? AND generation = ?", sliceID, generation).
		Scan(&token, &c.Attempt, &hash, &c.ShowCreate, &c.CopiedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, ErrNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	if c.Schema, err = s.schema(ctx, hash); err != nil {
		return nil, 0, err
	}
	c.Chunks, err = s.loadChunks(ctx, sliceID, token)
	return c, token, err
}

// schema reads a schema by its hash, once.
func (s *Store) schema(ctx context.Context, hash string) (*message.Schema, error) {
	s.mu.Lock()
	m := s.schemas[hash]
	s.mu.Unlock()
	if m != nil {
		return m, nil
	}
	var definition []byte
	if err := s.db.QueryRowContext(ctx, "SELECT definition FROM table_schemas WHERE hash = ?", hash).Scan(&definition); err != nil {
		return nil, fmt.Errorf("read the manifest's schema %s: %w", hash, err)
	}
	m, err := message.ParseSchema(definition)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	s.mu.Lock()
	s.schemas[hash] = m
	s.mu.Unlock()
	return m, nil
}

func (s *Store) loadChunks(ctx context.Context, sliceID, token uint64) (all []Chunk, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT seq, from_id, to_id, warm_hi, warm_lo, warm_rows, carried_hi, carried_lo, carried_rows, state, staged "+
		"FROM chunks WHERE slice_id = ? AND token = ? ORDER BY seq", sliceID, token)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var c Chunk
		if err := rows.Scan(&c.Seq, &c.From, &c.To, &c.Warm.Hi, &c.Warm.Lo, &c.Warm.Rows, &c.Carried.Hi, &c.Carried.Lo, &c.Carried.Rows, &c.State, &c.Staged); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, rows.Err()
}

func (s *Store) loadObjects(ctx context.Context, sliceID, token uint64, c *Copy) (all []Object, err error) {
	prefix := ObjectPrefix(c.SliceKey, c.Generation, c.Attempt)
	rows, err := s.db.QueryContext(ctx, "SELECT seq, name, file FROM objects WHERE slice_id = ? AND token = ? ORDER BY seq", sliceID, token)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var seq int
		var name string
		var file sql.RawBytes
		if err := rows.Scan(&seq, &name, &file); err != nil {
			return nil, err
		}
		o := Object{Key: longKey(prefix, name)}
		if o.File, err = parseFile(file); err != nil {
			return nil, fmt.Errorf("object %s: %w", o.Key, err)
		}
		if seq != len(all) {
			return nil, fmt.Errorf("%w: object %d is missing", ErrCorrupt, len(all))
		}
		all = append(all, o)
	}
	return all, rows.Err()
}

func (s *Store) loadSegments(ctx context.Context, sliceID, token uint64, objects []Object) error {
	rows, err := s.db.QueryContext(ctx, "SELECT object_seq, conversation, min_cursor, max_cursor, first_row, row_count, first_group, last_group, sum_hi, sum_lo "+
		"FROM segments WHERE slice_id = ? AND token = ? ORDER BY object_seq, seq", sliceID, token)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var at int
		var sp segment.Span
		if err := rows.Scan(&at, &sp.Conversation, &sp.MinCursor, &sp.MaxCursor, &sp.FirstRow, &sp.Rows, &sp.FirstGroup, &sp.LastGroup, &sp.Fingerprint.Hi, &sp.Fingerprint.Lo); err != nil {
			return err
		}
		sp.Fingerprint.Rows = uint64(sp.Rows) //nolint:gosec // written from one
		if at >= len(objects) {
			return fmt.Errorf("%w: a segment of object %d, there are %d", ErrCorrupt, at, len(objects))
		}
		objects[at].Segs = append(objects[at].Segs, sp)
	}
	return rows.Err()
}
