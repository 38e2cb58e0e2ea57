package warm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coldtier/coldtier/archive/message"
)

// NextID is the lowest message ID at or above from.
func (t *Table) NextID(ctx context.Context, from uint64) (id uint64, ok bool, err error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return 0, false, err
	}
	defer s.close(ctx)
	id, ok, err = t.next(ctx, s, t.name, t.def.Load(), from, 0)
	if err != nil {
		return 0, false, fmt.Errorf("table %s: next message ID: %w", t.shard, err)
	}
	return id, ok, nil
}

// next is the ID that has skip IDs at or above from before it.
func (t *Table) next(ctx context.Context, s *session, table string, def *definition, from uint64, skip int) (id uint64, ok bool, err error) {
	err = s.row(ctx, fmt.Sprintf("SELECT CAST(%s AS CHAR) FROM %s FORCE INDEX (%s) WHERE %s >= %d ORDER BY %s LIMIT 1 OFFSET %d",
		def.id, table, def.key, def.id, from, def.id, skip), &id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return id, err == nil, err
}

// Settle returns when no transaction of others that deletes or changes rows of
// [from, to) is open. ErrLocked: one is, and it did not end in LockWait.
//
// It reads with a lock and so waits for rows that such a transaction has marked,
// which a plain read sees as they were before.
func (t *Table) Settle(ctx context.Context, from, to uint64) error {
	s, err := t.d.session(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if _, err := settle(ctx, s, t.name, t.def.Load(), from, to); err != nil {
		return fmt.Errorf("table %s: locked read of message IDs [%d, %d): %w", t.shard, from, to, err)
	}
	return nil
}

// settle counts the rows of [from, to), with a lock.
func settle(ctx context.Context, s *session, table string, def *definition, from, to uint64) (n uint64, err error) {
	err = s.row(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s FORCE INDEX (%s) WHERE %s LOCK IN SHARE MODE", table, def.key, def.between(from, to)), &n)
	return n, err
}

// Scan gives the rows of [from, to) in chunks that are in order, follow each other
// without a gap and cover the range whole, so that any row that there is or will be
// lies in exactly one. A chunk's batch is valid until fn returns.
//
// Each chunk is one statement and one snapshot of its own; no transaction stays
// open between them.
func (t *Table) Scan(ctx context.Context, from, to uint64, fn func(message.Chunk) error) error {
	if from > to {
		return fmt.Errorf("table %s: scan from %d to %d: the first lies above the last", t.shard, from, to)
	}
	s, err := t.d.session(ctx)
	if err != nil {
		return err
	}
	defer func() { s.close(ctx) }()
	r := newReader(t, s, t.name, t.def.Load(), "")
	for from < to {
		c, err := r.chunk(ctx, from, to)
		if err != nil {
			return fmt.Errorf("table %s: scan of message IDs [%d, %d): %w", t.shard, from, to, err)
		}
		begun := t.d.cfg.Now()
		if err := fn(c); err != nil {
			return err
		}
		from = c.To
		// Servers close connections that do nothing for long.
		if from < to && t.d.cfg.Now().Sub(begun) > idleTime {
			s.close(ctx)
			next, err := t.d.session(ctx)
			if err != nil {
				return err // s is closed a second time, which does nothing
			}
			s, r.s = next, next
		}
	}
	return nil
}

// idleTime is how long a scan's connection may do nothing before it is asked whether it
// still lives.
const idleTime = 5 * time.Second

// reader reads chunks and finds their right size.
type reader struct {
	t     *Table
	s     *session
	table string // quoted
	def   *definition
	lock  string // "" or " FOR UPDATE"
	size  int    // rows to ask for
	batch *message.Batch
	hash  message.Hasher
}

// A first chunk is small, since nothing is known about the rows' size and the
// server's speed; later ones grow at most by growth each.
const (
	firstChunk = 500
	growth     = 2
)

func newReader(t *Table, s *session, table string, def *definition, lock string) *reader {
	return &reader{t: t, s: s, table: table, def: def, lock: lock, size: min(firstChunk, t.d.cfg.ChunkRows), batch: message.NewBatch(def.schema)}
}

// errFull ends the reading of a chunk that has reached its bytes.
var errFull = errors.New("chunk is full")

// chunk reads the next chunk of [from, to). A statement that runs into the time
// limit is tried again with fewer rows.
func (r *reader) chunk(ctx context.Context, from, to uint64) (message.Chunk, error) {
	for {
		c, err := r.read(ctx, from, to)
		if err == nil || !errors.Is(err, errSlow) || r.size == 1 {
			return c, err
		}
		r.size = max(1, r.size/4)
	}
}

func (r *reader) read(ctx context.Context, from, to uint64) (message.Chunk, error) {
	cfg := r.t.d.cfg
	r.batch.Reset()
	asked := r.size
	q := fmt.Sprintf("SELECT %s FROM %s FORCE INDEX (%s) WHERE %s >= %s AND %s < %s ORDER BY %s LIMIT %d%s", r.def.selects, r.table, r.def.key,
		r.def.id, strconv.FormatUint(from, 10), r.def.id, strconv.FormatUint(to, 10), r.def.id, asked, r.lock)
	begun := cfg.Now()
	var f message.Fingerprint
	err := r.s.rows(ctx, q, func(row [][]byte) error {
		if err := r.batch.Append(row); err != nil {
			if errors.Is(err, message.ErrBatchFull) && r.batch.Len() > 0 {
				return errFull
			}
			return err
		}
		f = f.Add(r.hash.Row(row))
		if r.batch.Bytes() >= cfg.ChunkBytes {
			return errFull
		}
		return nil
	})
	full := errors.Is(err, errFull)
	if err != nil && !full {
		return message.Chunk{}, err
	}
	n := r.batch.Len()
	c := message.Chunk{From: from, To: to, Batch: r.batch, Fingerprint: f}
	if n > 0 && (full || n == asked) {
		c.To = r.batch.MessageID(n-1) + 1 // below to, which the last ID is below
	}
	r.resize(cfg.Now().Sub(begun), full)
	return c, nil
}

// resize aims at chunks that last ChunkTime and have half of ChunkBytes on average.
func (r *reader) resize(took time.Duration, full bool) {
	cfg, n := r.t.d.cfg, r.batch.Len()
	if n == 0 {
		return
	}
	next := r.size * growth
	if n < r.size && !full {
		next = r.size // the range ended: nothing was learnt
	}
	if took > 0 {
		next = min(next, int(float64(n)*float64(cfg.ChunkTime)/float64(took)))
	}
	if perRow := r.batch.Bytes() / n; perRow > 0 {
		next = min(next, cfg.ChunkBytes/2/perRow)
	}
	r.size = min(max(next, 1), cfg.ChunkRows)
}
