package manifest

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// ToDelete is what a purge of a slice has left to delete from warm.
type ToDelete struct {
	Chunks int
	Rows   uint64
}

// ToDelete counts, by slice, the chunks of live copies that are not deleted, and their rows.
func (s *Store) ToDelete(ctx context.Context, ids []uint64) (map[uint64]ToDelete, error) {
	all := map[uint64]ToDelete{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for batch := range slices.Chunk(ids, planBatch) {
		g.Go(func() error {
			args := make([]any, len(batch))
			for i, id := range batch {
				args[i] = id
			}
			rows, err := s.db.QueryContext(ctx, "SELECT k.slice_id, COUNT(*), CAST(SUM(k.warm_rows) AS UNSIGNED) FROM slices s JOIN chunks k ON k.slice_id = s.id AND k.token = s.live_token "+
				"WHERE s.id IN ("+placeholders(len(args))+") AND k.state <> 'deleted' AND k.warm_rows > 0 GROUP BY k.slice_id", args...)
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			mu.Lock()
			defer mu.Unlock()
			for rows.Next() {
				var id uint64
				var d ToDelete
				if err := rows.Scan(&id, &d.Chunks, &d.Rows); err != nil {
					return err
				}
				all[id] = d
			}
			return rows.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("count what is to be deleted: %w", err)
	}
	return all, nil
}

// Past is what former copies of a shard's slices came to.
type Past struct {
	Slices int
	Rows   uint64
	Bytes  int64
}

// pastDays is how many days before the newest copied one are looked at.
const pastDays = 60

// Past sums up, by shard, the newest generations of the slices of the last days that were
// copied, those without rows aside.
func (s *Store) Past(ctx context.Context) (map[Shard]Past, error) {
	fail := func(err error) (map[Shard]Past, error) {
		return nil, fmt.Errorf("sum up former copies: %w", err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	var newest sql.NullString
	if err := s.db.QueryRowContext(ctx, "SELECT DATE_FORMAT(MAX(day), '%Y-%m-%d') FROM slices WHERE source_id = ? AND row_count > 0", src).Scan(&newest); err != nil {
		return fail(err)
	}
	all := map[Shard]Past{}
	if !newest.Valid {
		return all, nil
	}
	rows, err := s.db.QueryContext(ctx, "SELECT db_name, table_name, COUNT(*), CAST(SUM(row_count) AS UNSIGNED), CAST(SUM(bytes) AS UNSIGNED) FROM slices WHERE source_id = ? AND day > CAST(? AS DATE) - INTERVAL ? DAY AND row_count > 0 GROUP BY db_name, table_name",
		src, newest.String, pastDays)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var sh Shard
		var p Past
		if err := rows.Scan(&sh.Database, &sh.Table, &p.Slices, &p.Rows, &p.Bytes); err != nil {
			return fail(err)
		}
		all[sh] = p
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return all, nil
}

// PastObjects is what the objects of some copies are like.
type PastObjects struct {
	Copies  int
	Objects int
	Rows    int64
	Bytes   int64
	Below   []int // objects by size: below each of the given bounds and not below the one before; the last are the others
}

// maxPastObjects is how many objects of one copy are looked at.
const maxPastObjects = 50_000

// PastObjects reads the sizes of the objects of a shard's newest copies that have rows.
func (s *Store) PastObjects(ctx context.Context, sh Shard, copies int, bounds []int64) (p PastObjects, err error) {
	p.Below = make([]int, len(bounds)+1)
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return p, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT id FROM slices WHERE source_id = ? AND db_name = ? AND table_name = ? AND row_count > 0 ORDER BY day DESC LIMIT ?", src, sh.Database, sh.Table, copies)
	if err != nil {
		return p, fmt.Errorf("list the newest copies of %s: %w", sh, err)
	}
	defer func() { _ = rows.Close() }()
	var ids []uint64
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return p, fmt.Errorf("list the newest copies of %s: %w", sh, err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return p, fmt.Errorf("list the newest copies of %s: %w", sh, err)
	}
	for _, id := range ids {
		if err := s.pastObjects(ctx, id, bounds, &p); err != nil {
			return p, err
		}
		p.Copies++
	}
	return p, nil
}

func (s *Store) pastObjects(ctx context.Context, id uint64, bounds []int64, p *PastObjects) error {
	// The first bytes of a file's form are enough: see appendFile.
	rows, err := s.db.QueryContext(ctx, "SELECT SUBSTRING(o.file, 1, 64) FROM slices s JOIN objects o ON o.slice_id = s.id AND o.token = s.copy_token WHERE s.id = ? LIMIT ?", id, maxPastObjects)
	if err != nil {
		return fmt.Errorf("read the sizes of the objects of slice %d: %w", id, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var b sql.RawBytes
		if err := rows.Scan(&b); err != nil {
			return fmt.Errorf("read the sizes of the objects of slice %d: %w", id, err)
		}
		size, n, err := fileHead(b)
		if err != nil {
			return fmt.Errorf("object of slice %d: %w", id, err)
		}
		p.Objects, p.Rows, p.Bytes = p.Objects+1, p.Rows+n, p.Bytes+size
		at, found := slices.BinarySearch(bounds, size)
		if found {
			at++
		}
		p.Below[at]++
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the sizes of the objects of slice %d: %w", id, err)
	}
	return nil
}

// fileHead reads size and rows from the beginning of what appendFile wrote.
func fileHead(b []byte) (size, rows int64, err error) {
	if len(b) == 0 || b[0] != fileForm {
		return 0, 0, fmt.Errorf("%w: its file has an unknown form", ErrCorrupt)
	}
	r := &fileReader{b: b[1:]}
	r.int() // the version
	size = r.int()
	var sum [32]byte
	r.bytes(sum[:])
	if rows = r.int(); r.bad {
		return 0, 0, fmt.Errorf("%w: its file is cut off", ErrCorrupt)
	}
	return size, rows, nil
}
