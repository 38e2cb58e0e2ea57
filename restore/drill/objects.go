package drill

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/restore/drill/scratch"
)

// window is what is read of a large object at once; a smaller one is read whole.
const window = 8 << 20

// objectsAtOnce is how many objects of a slice are read at once.
const objectsAtOnce = 8

// windowed reads an object from front to back, a window at a time.
type windowed struct {
	ctx  context.Context //nolint:containedctx // io.ReaderAt has none
	b    Bucket
	key  string
	size int64
	off  int64
	data []byte
}

func (w *windowed) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		if off >= w.size {
			return n, io.EOF
		}
		if off < w.off || off >= w.off+int64(len(w.data)) {
			data, err := w.b.ReadRange(w.ctx, w.key, off, min(window, w.size-off))
			if err != nil {
				return n, err
			}
			if w.off, w.data = off, data; len(data) == 0 {
				return n, io.ErrUnexpectedEOF
			}
		}
		m := copy(p[n:], w.data[off-w.off:])
		n, off = n+m, off+int64(m)
	}
	return n, nil
}

// object reads a whole object, every byte of it, and gives its rows: independently.
func (r *run) object(ctx context.Context, o *manifest.Object, fn func(*message.Batch) error) error {
	if o.File.Size > window {
		_, err := segment.ReadAll(o.File, &windowed{ctx: ctx, b: r.bucket, key: o.Key, size: o.File.Size}, fn)
		return err
	}
	data, err := r.bucket.Get(ctx, o.Key)
	if err != nil {
		return err
	}
	if int64(len(data)) != o.File.Size {
		return fmt.Errorf("it has %d bytes, the manifest says %d", len(data), o.File.Size)
	}
	_, err = segment.ReadAll(o.File, bytes.NewReader(data), fn)
	return err
}

// objects reads all objects of a copy, several at once, so that fn is called from several
// goroutines. What is wrong with an object is a failure of the check, and the others are read.
func (r *run) objects(ctx context.Context, l *manifest.Live, copied *manifest.Copy, c *check, fn func(*message.Batch) error) (whole bool, f facts, err error) {
	var mu sync.Mutex
	whole = true
	all := &tally{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(objectsAtOnce)
	for i := range copied.Objects {
		o := &copied.Objects[i]
		g.Go(func() error {
			own := &tally{}
			var failed error // of fn
			err := r.object(gctx, o, func(b *message.Batch) error {
				if !b.Schema().Equal(copied.Schema) {
					return fmt.Errorf("%w: it has other columns than its commit", segment.ErrCorrupt)
				}
				own.batch(b)
				failed = fn(b)
				return failed
			})
			mu.Lock()
			defer mu.Unlock()
			all.add(own)
			if gctx.Err() != nil {
				return context.Cause(gctx)
			}
			if failed != nil {
				return failed
			}
			if err != nil {
				whole = false
				p := of(l, "the whole object: "+err.Error())
				p.Object = o.Key
				c.fail(p)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return false, facts{}, err
	}
	return whole, all.facts(), nil
}

// facts are what rows say of themselves, beside their fingerprint.
type facts struct {
	scratch.Facts
	sum         message.Fingerprint
	first, last uint64 // message IDs
}

// tally computes facts of rows that come in the order of message.Compare, object by object.
type tally struct {
	h    message.Hasher
	f    facts
	runs []sequence
}

// sequence is rows of one conversation that follow each other in one object.
type sequence struct {
	conversation string
	from, to     scratch.Place
}

func (t *tally) batch(b *message.Batch) {
	t.f.sum = t.f.sum.Add(t.h.Batch(b, 0, b.Len()))
	for i := range b.Len() {
		p := scratch.Place{Cursor: b.Cursor(i), ID: b.MessageID(i)}
		if t.f.Rows++; t.f.Rows == 1 || p.ID < t.f.first {
			t.f.first = p.ID
		}
		t.f.last = max(t.f.last, p.ID)
		n := len(t.runs)
		if n == 0 || t.runs[n-1].conversation != string(b.Conversation(i)) {
			t.runs = append(t.runs, sequence{string(b.Conversation(i)), p, p})
			continue
		}
		t.pair(t.runs[n-1].to, p)
		t.runs[n-1].to = p
	}
}

// pair counts two rows that follow each other in a conversation.
func (t *tally) pair(a, b scratch.Place) {
	if a.Cursor == b.Cursor {
		t.f.Ties++
	}
	if b.ID < a.ID {
		t.f.Inversions++
	}
}

func (t *tally) add(o *tally) {
	f := o.f
	if f.Rows > 0 {
		if t.f.Rows == 0 || f.first < t.f.first {
			t.f.first = f.first
		}
		t.f.last = max(t.f.last, f.last)
	}
	t.f.sum = t.f.sum.Add(f.sum)
	t.f.Rows, t.f.Ties, t.f.Inversions = t.f.Rows+f.Rows, t.f.Ties+f.Ties, t.f.Inversions+f.Inversions
	t.runs = append(t.runs, o.runs...)
}

func (t *tally) facts() facts {
	slices.SortFunc(t.runs, func(a, b sequence) int {
		return cmp.Or(cmp.Compare(a.conversation, b.conversation), cmp.Compare(a.from.Cursor, b.from.Cursor), cmp.Compare(a.from.ID, b.from.ID))
	})
	for i, s := range t.runs {
		if i == 0 || t.runs[i-1].conversation != s.conversation {
			t.f.Conversations++
			continue
		}
		t.pair(t.runs[i-1].to, s.from)
	}
	t.f.IDs = t.f.Rows // no ID may be there twice
	return t.f
}

// against compares rows that a store gave with those that were restored, byte for byte in
// every column.
func (r *run) against(ctx context.Context, s *sampled, b *message.Batch, c *check, store string) error {
	type met struct {
		conflicts []conflict
		absent    []uint64
	}
	m, err := patiently(ctx, r, func() (m met, err error) {
		w, absent, err := s.sink.Compare(ctx, b)
		m.absent = absent
		for _, x := range w.Conflicts {
			m.conflicts = append(m.conflicts, conflict{x.MessageID, x.Columns, x.Key})
		}
		return m, err
	})
	if err != nil {
		return err
	}
	c.count("rows", int64(b.Len()))
	for _, id := range m.absent {
		c.fail(one(&s.Live, id, store+" has a message that was not restored"))
	}
	for _, x := range m.conflicts {
		if !r.put(s, x) {
			c.fail(one(&s.Live, x.id, fmt.Sprintf("%s has other bytes than were restored, in %v", store, x.columns)))
		}
	}
	return nil
}

// gathered is rows of many small objects that are compared together: each comparison is a
// statement or a few. It is safe for concurrent use.
type gathered struct {
	mu      sync.Mutex
	schema  *message.Schema
	b       *message.Batch
	compare func(*message.Batch) error
}

// What is compared at once, at least.
const (
	gatheredRows  = 2000
	gatheredBytes = 4 << 20
)

func (g *gathered) add(b *message.Batch) error {
	g.mu.Lock()
	if g.b == nil {
		g.b = message.NewBatch(g.schema)
	}
	for i := range b.Len() {
		if err := g.b.AppendFrom(b, i); err != nil {
			g.mu.Unlock()
			return err
		}
	}
	full := g.b
	if full.Len() < gatheredRows && full.Bytes() < gatheredBytes {
		g.mu.Unlock()
		return nil
	}
	g.b = nil
	g.mu.Unlock()
	return g.compare(full)
}

// flush compares what is left.
func (g *gathered) flush() error {
	g.mu.Lock()
	b := g.b
	g.b = nil
	g.mu.Unlock()
	if b == nil || b.Len() == 0 {
		return nil
	}
	return g.compare(b)
}

type conflict struct {
	id      uint64
	columns []string
	key     string
}

// put says that a row differs in nothing but a status that was put after it was archived.
func (r *run) put(s *sampled, x conflict) bool {
	col := s.Schema.StatusColumn()
	return col >= 0 && x.key == "" && len(x.columns) == 1 && x.columns[0] == s.Schema.Columns()[col].Name && s.puts[x.id]
}

// noted is a place in the table that a slice was restored into.
func (s *sampled) noted(what string) report.Place { return of(&s.Live, what) }
