package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/manifest"
)

// wholeObject is the size up to which an object is read back in one piece.
const wholeObject = 8 << 20

// Verifier reads copies back and compares them with what their commits say.
type Verifier struct {
	Deps
	cfg Config
}

// NewVerifier makes a verifier. It needs no Tables.
func NewVerifier(d Deps, cfg Config) *Verifier { return &Verifier{Deps: d, cfg: cfg.withDefaults()} }

// Check reads every object of a copy back through the code that serves readers,
// and every row of it in ClickHouse, and compares both with the fingerprints the
// scan computed. It is ErrMismatch when a store holds anything else, and another
// error when a store could not be read: then nothing is known.
func (v *Verifier) Check(ctx context.Context, c *manifest.Copy) error {
	g, ctx := errgroup.WithContext(ctx)
	want := c.Fingerprint()
	g.Go(func() error {
		var mu sync.Mutex
		var got message.Fingerprint
		err := v.objects(ctx, c, func(_ *message.Batch, f message.Fingerprint) error {
			mu.Lock()
			defer mu.Unlock()
			got = got.Add(f)
			return nil
		})
		if err == nil && got != want {
			err = fmt.Errorf("bucket: %w: the objects of slice %s generation %d hold %s, its commit says %s", ErrMismatch, c.SliceKey, c.Generation, got, want)
		}
		return err
	})
	g.Go(func() error { return v.rows(ctx, c) })
	return g.Wait()
}

// objects reads all objects of a copy, several at once, and gives their batches
// with their fingerprints to fn, which may be called from several goroutines.
func (v *Verifier) objects(ctx context.Context, c *manifest.Copy, fn func(*message.Batch, message.Fingerprint) error) error {
	return v.eachObject(ctx, c, func(ctx context.Context, o *manifest.Object) error { return v.object(ctx, c, o, fn) })
}

// eachObject calls fn for all objects of a copy, several at once.
func (v *Verifier) eachObject(ctx context.Context, c *manifest.Copy, fn func(context.Context, *manifest.Object) error) error {
	all := make([]int, len(c.Objects))
	for i := range all {
		all[i] = i
	}
	return v.eachOf(ctx, c, all, func(ctx context.Context, i int) error { return fn(ctx, &c.Objects[i]) })
}

// eachOf calls fn for some objects of a copy, several at once. Its errors name the object.
func (v *Verifier) eachOf(ctx context.Context, c *manifest.Copy, some []int, fn func(ctx context.Context, i int) error) error {
	g, each := errgroup.WithContext(ctx) // Wait ends each, but not ctx
	g.SetLimit(max(4, v.cfg.Uploads/v.cfg.Workers))
	limit := v.cfg.perSlice() / 4
	memory := semaphore.NewWeighted(limit)
	for _, i := range some {
		// An object's bytes and the rows of one row group: compressed, a few times over.
		weight := min(4*min(c.Objects[i].File.Size, wholeObject), limit)
		if memory.Acquire(each, weight) != nil {
			break // each has ended
		}
		g.Go(func() error {
			defer memory.Release(weight)
			if err := v.mayGoOn(each); err != nil {
				return err
			}
			if err := fn(each, i); err != nil {
				return fmt.Errorf("object %s: %w", c.Objects[i].Key, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// object reads one object whole: the checksum of all its bytes, of its footer and
// of every row group; that it says of itself what the commit says of it; and each
// conversation's rows, order and cursors. What differs is a rowsError.
func (v *Verifier) object(ctx context.Context, c *manifest.Copy, o *manifest.Object, fn func(*message.Batch, message.Fingerprint) error) error {
	err := v.wholly(ctx, c, o, fn)
	var in *rowsError
	if errors.As(err, &in) {
		return err
	}
	return ofRows(0, o.File.Rows, err)
}

func (v *Verifier) wholly(ctx context.Context, c *manifest.Copy, o *manifest.Object, fn func(*message.Batch, message.Fingerprint) error) error {
	read := func(off, n int64) ([]byte, error) { return v.Objects.ReadRange(ctx, o.Key, off, n) }
	if o.File.Size <= wholeObject {
		all, err := v.Objects.Get(ctx, o.Key)
		if err != nil {
			return mismatch(err)
		}
		if int64(len(all)) != o.File.Size {
			return fmt.Errorf("%w: it has %d bytes, its commit says %d", ErrMismatch, len(all), o.File.Size)
		}
		read = func(off, n int64) ([]byte, error) {
			if off < 0 || n < 0 || off+n > int64(len(all)) {
				return nil, fmt.Errorf("%w: bytes [%d, %d) of %d", ErrMismatch, off, off+n, len(all))
			}
			return all[off : off+n], nil
		}
	}
	footer, err := read(o.File.Footer.Offset, o.File.Footer.Length)
	if err != nil {
		return mismatch(err)
	}
	r, err := segment.OpenFooter(o.File, footer)
	if err != nil {
		return mismatch(err)
	}
	m := r.Meta()
	if !r.Schema().Equal(c.Schema) || m.Source != c.Source || m.Shard != c.Shard.String() || m.Day != c.Day.String() || m.Generation != c.Generation || m.Attempt != c.Attempt {
		return fmt.Errorf("%w: it says it is of source %q, %s, %s, generation %d, attempt %s", ErrMismatch, m.Source, m.Shard, m.Day, m.Generation, m.Attempt)
	}
	sum, at := sha256.New(), int64(0)
	hash := func(off int64, data []byte) error {
		if off > at { // what lies between the parts, if anything
			gap, err := read(at, off-at)
			if err != nil {
				return mismatch(err)
			}
			sum.Write(gap)
		}
		sum.Write(data)
		at = off + int64(len(data))
		return nil
	}
	spans, first := spanChecker{want: o.Segs}, int64(0)
	for i, rg := range o.File.RowGroups {
		data, err := read(rg.Offset, rg.Length)
		if err != nil {
			return ofRows(first, rg.Rows, mismatch(err))
		}
		if err := hash(rg.Offset, data); err != nil {
			return err
		}
		b, err := r.ReadGroup(i, data)
		if err != nil {
			return ofRows(first, rg.Rows, mismatch(err))
		}
		first += rg.Rows
		f, err := spans.add(b)
		if err != nil {
			return err
		}
		if err := fn(b, f); err != nil {
			return err
		}
	}
	if err := hash(o.File.Footer.Offset, footer); err != nil {
		return err
	}
	if [32]byte(sum.Sum(nil)) != o.File.SHA256 || at != o.File.Size {
		return fmt.Errorf("%w: its bytes have another SHA-256 than its commit says", ErrMismatch)
	}
	return spans.end()
}

// rowsError says which rows of an object are not those of its commit.
type rowsError struct {
	first, rows int64
	err         error
}

// ofRows names the rows where an error speaks of what they are.
func ofRows(first, rows int64, err error) error {
	if errors.Is(err, ErrMismatch) {
		return &rowsError{first, rows, err}
	}
	return err
}

func (e *rowsError) Error() string {
	return fmt.Sprintf("rows [%d, %d): %v", e.first, e.first+e.rows, e.err)
}

func (e *rowsError) Unwrap() error { return e.err }

// mismatch marks the errors that say what a store holds is not the copy, as
// opposed to those that say nothing about it.
func mismatch(err error) error {
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) || errors.Is(err, segment.ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	return err
}

// spanChecker compares the rows of an object with its segments as they come.
type spanChecker struct {
	want  []segment.Span
	h     message.Hasher
	at    int // in want
	got   segment.Span
	begun bool
	last  *message.Batch // the row before, its last
}

func (s *spanChecker) add(b *message.Batch) (all message.Fingerprint, err error) {
	for i := range b.Len() {
		if prev, j := s.last, 0; prev != nil || i > 0 {
			if i > 0 {
				prev, j = b, i-1
			} else {
				j = prev.Len() - 1
			}
			if message.Compare(prev, j, b, i) >= 0 {
				return all, fmt.Errorf("%w: message %d is out of order or twice", ErrMismatch, b.MessageID(i))
			}
		}
		conv := b.Conversation(i)
		if !s.begun || !bytes.Equal(conv, s.got.Conversation) {
			if err := s.endSpan(); err != nil {
				return all, err
			}
			s.begun = true
			s.got = segment.Span{Conversation: bytes.Clone(conv), MinCursor: b.Cursor(i)}
		}
		f := s.h.Batch(b, i, i+1)
		s.got.Rows++
		s.got.MaxCursor = b.Cursor(i)
		s.got.Fingerprint = s.got.Fingerprint.Add(f)
		all = all.Add(f)
	}
	if b.Len() > 0 {
		s.last = b
	}
	return all, nil
}

func (s *spanChecker) endSpan() error {
	if !s.begun {
		return nil
	}
	if s.at >= len(s.want) {
		return fmt.Errorf("%w: it holds a conversation that its commit does not name", ErrMismatch)
	}
	w := s.want[s.at]
	s.at++
	if !bytes.Equal(w.Conversation, s.got.Conversation) || w.Rows != s.got.Rows || w.MinCursor != s.got.MinCursor || w.MaxCursor != s.got.MaxCursor || w.Fingerprint != s.got.Fingerprint {
		return &rowsError{w.FirstRow, w.Rows, fmt.Errorf("%w: its segment %d holds %s with cursors %d to %d, its commit says %s with %d to %d", ErrMismatch, s.at-1,
			s.got.Fingerprint, s.got.MinCursor, s.got.MaxCursor, w.Fingerprint, w.MinCursor, w.MaxCursor)}
	}
	return nil
}

func (s *spanChecker) end() error {
	if err := s.endSpan(); err != nil {
		return err
	}
	if s.at != len(s.want) {
		return fmt.Errorf("%w: it holds %d segments, its commit names %d", ErrMismatch, s.at, len(s.want))
	}
	return nil
}

// readBack gives all rows of a committed copy, from the bucket or, of the objects
// that it has lost or damaged, from ClickHouse. fn is called from one goroutine at a
// time. The caller compares the fingerprint.
func (v *Verifier) readBack(ctx context.Context, c *manifest.Copy, fn func(*message.Batch) error) error {
	// Look before the first row is handed on: fn cannot take rows back.
	var mu sync.Mutex
	damaged, lost := map[string]bool{}, map[string]bool{} // objects, conversations
	err := v.eachObject(ctx, c, func(ctx context.Context, o *manifest.Object) error {
		err := v.object(ctx, c, o, func(*message.Batch, message.Fingerprint) error { return nil })
		if !errors.Is(err, ErrMismatch) {
			return err
		}
		v.Log.ErrorContext(ctx, "an object of a committed generation is damaged; its rows are taken from ClickHouse", "slice", c.SliceKey.String(), "generation", c.Generation, "key", o.Key, "error", err)
		mu.Lock()
		defer mu.Unlock()
		damaged[o.Key] = true
		for _, s := range o.Segs {
			lost[string(s.Conversation)] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	good := *c
	good.Objects = slices.DeleteFunc(slices.Clone(c.Objects), func(o manifest.Object) bool { return damaged[o.Key] })
	err = v.objects(ctx, &good, func(b *message.Batch, _ message.Fingerprint) error {
		mu.Lock()
		defer mu.Unlock()
		return fn(b)
	})
	if err != nil || len(lost) == 0 {
		return err
	}
	return v.Rows.ReadCopy(ctx, c.ID(), c.Schema, func(b *message.Batch) error {
		kept := message.NewBatch(b.Schema())
		for i := range b.Len() {
			if lost[string(b.Conversation(i))] {
				if err := kept.AppendFrom(b, i); err != nil {
					return err
				}
			}
		}
		return fn(kept)
	})
}
