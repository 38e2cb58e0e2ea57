package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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
	g.Go(func() error {
		var h message.Hasher
		var got message.Fingerprint
		err := v.Rows.ReadCopy(ctx, c.ID(), c.Schema, func(b *message.Batch) error {
			got = got.Add(h.Batch(b, 0, b.Len()))
			return nil
		})
		if err == nil && got != want {
			err = fmt.Errorf("ClickHouse: %w: slice %s generation %d holds %s, its commit says %s", ErrMismatch, c.SliceKey, c.Generation, got, want)
		}
		return err
	})
	return g.Wait()
}

// objects reads all objects of a copy, several at once, and gives their batches
// with their fingerprints to fn, which may be called from several goroutines.
func (v *Verifier) objects(ctx context.Context, c *manifest.Copy, fn func(*message.Batch, message.Fingerprint) error) error {
	return v.eachObject(ctx, c, func(ctx context.Context, o *manifest.Object) error { return v.object(ctx, c, o, fn) })
}

// eachObject calls fn for all objects of a copy, several at once.
func (v *Verifier) eachObject(ctx context.Context, c *manifest.Copy, fn func(context.Context, *manifest.Object) error) error {
	g, each := errgroup.WithContext(ctx) // Wait ends each, but not ctx
	g.SetLimit(max(4, v.cfg.Uploads/v.cfg.Workers))
	limit := v.cfg.perSlice() / 4
	memory := semaphore.NewWeighted(limit)
	for i := range c.Objects {
		// An object's bytes and the rows of one row group: compressed, a few times over.
		weight := min(4*min(c.Objects[i].File.Size, wholeObject), limit)
		if memory.Acquire(each, weight) != nil {
			break // each has ended
		}
		g.Go(func() error {
			defer memory.Release(weight)
			if err := fn(each, &c.Objects[i]); err != nil {
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
// conversation's rows, order and cursors.
func (v *Verifier) object(ctx context.Context, c *manifest.Copy, o *manifest.Object, fn func(*message.Batch, message.Fingerprint) error) error {
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
	spans := spanChecker{want: o.Segs}
	for i, rg := range o.File.RowGroups {
		data, err := read(rg.Offset, rg.Length)
		if err != nil {
			return mismatch(err)
		}
		if err := hash(rg.Offset, data); err != nil {
			return err
		}
		b, err := r.ReadGroup(i, data)
		if err != nil {
			return mismatch(err)
		}
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

// mismatch marks the errors that say what a store holds is not the copy, as
// opposed to those that say nothing about it.
func mismatch(err error) error {
	if errors.Is(err, ErrNotFound) || errors.Is(err, segment.ErrCorrupt) {
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
		return fmt.Errorf("%w: its segment %d holds %s with cursors %d to %d, its commit says %s with %d to %d", ErrMismatch, s.at-1,
			s.got.Fingerprint, s.got.MinCursor, s.got.MaxCursor, w.Fingerprint, w.MinCursor, w.MaxCursor)
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
		v.Log.Error("an object of a committed generation is damaged; its rows are taken from ClickHouse", "slice", c.SliceKey.String(), "generation", c.Generation, "key", o.Key, "error", err)
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

// VerifyOutcome is what became of one slice in a verification.
type VerifyOutcome struct {
	Slice      manifest.SliceKey `json:"slice"`
	Generation uint32            `json:"generation"`
	State      manifest.State    `json:"state"` // after it
	Rows       uint64            `json:"rows"`
	Bytes      int64             `json:"bytes"`
	Seconds    float64           `json:"seconds"`
	Err        error             `json:"-"`
	Error      string            `json:"error,omitempty"`
}

// VerifyReport is what a verification found.
type VerifyReport struct {
	Equal     []VerifyOutcome `json:"equal"`
	Different []VerifyOutcome `json:"different"` // a store holds something else than was committed
	Unknown   []VerifyOutcome `json:"unknown"`   // could not be read, or another worker has the slice
	Rows      uint64          `json:"rows"`
	Bytes     int64           `json:"bytes"`
	Seconds   float64         `json:"seconds"`
}

// Err joins the errors of the slices that are different or unknown.
func (r *VerifyReport) Err() error {
	var errs []error
	for _, list := range [][]VerifyOutcome{r.Different, r.Unknown} {
		for _, o := range list {
			errs = append(errs, fmt.Errorf("slice %s: %w", o.Slice, o.Err))
		}
	}
	return errors.Join(errs...)
}

// Plan lists the slices a verification would read, oldest day first.
func (v *Verifier) Plan(ctx context.Context, sel Selection) ([]manifest.Slice, error) {
	return v.Manifest.Slices(ctx, manifest.Filter{From: sel.From, To: sel.To, Shard: sel.Shard,
		States: []manifest.State{manifest.Committed, manifest.Verified, manifest.Purging, manifest.Purged}})
}

// Run verifies slices. A committed slice that is equal becomes verified. A slice
// whose rows are still in MySQL and whose copy is different is copied again by the
// next archive run; until then nothing of it is purged.
func (v *Verifier) Run(ctx context.Context, list []manifest.Slice, progress Progress) (*VerifyReport, error) {
	begun := v.Clock()
	progress.Slices(len(list))
	r := &VerifyReport{}
	for _, s := range list {
		t0 := v.Clock()
		o := VerifyOutcome{Slice: s.SliceKey, Generation: s.Generation, State: s.State}
		if err := ctx.Err(); err != nil {
			o.Err = context.Cause(ctx)
		} else {
			o.Err = v.slice(ctx, s, &o)
		}
		o.Seconds = v.Clock().Sub(t0).Seconds()
		progress.SliceDone(int(o.Rows)) //nolint:gosec // a count of rows
		switch {
		case o.Err == nil:
			r.Equal = append(r.Equal, o)
			r.Rows, r.Bytes = r.Rows+o.Rows, r.Bytes+o.Bytes
		case errors.Is(o.Err, ErrMismatch):
			o.Error = o.Err.Error()
			r.Different = append(r.Different, o)
		default:
			o.Error = o.Err.Error()
			r.Unknown = append(r.Unknown, o)
		}
	}
	r.Seconds = v.Clock().Sub(begun).Seconds()
	return r, nil
}

func (v *Verifier) slice(ctx context.Context, s manifest.Slice, o *VerifyOutcome) error {
	switch s.State {
	case manifest.Committed, manifest.Verified:
		lease, err := v.Manifest.Claim(ctx, s.ID, v.Owner, []manifest.State{s.State}, s.State)
		if err != nil {
			return elsewhere(err)
		}
		held, stop := lease.Keep(ctx)
		err = v.load(held, s, o)
		stop()
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		switch {
		case errors.Is(err, ErrMismatch):
			o.State = manifest.Pending
			return errors.Join(err, v.Manifest.Reopen(clean, lease, manifest.ReasonMismatch))
		case err != nil:
			return errors.Join(err, lease.Release(clean, s.State))
		case s.State == manifest.Committed:
			o.State = manifest.Verified
			if err := v.Manifest.Verified(ctx, lease, s.Generation); err != nil {
				return err
			}
			return lease.Release(clean, manifest.Verified)
		}
		return lease.Release(clean, s.State)
	default:
		err := v.load(ctx, s, o)
		if errors.Is(err, errSetBack) && s.State == manifest.Purged {
			err = errors.Join(err, v.Manifest.ReopenLate(ctx, s.ID))
			o.State = manifest.Pending
		}
		return err
	}
}

func (v *Verifier) load(ctx context.Context, s manifest.Slice, o *VerifyOutcome) error {
	c, err := v.Manifest.LoadCopy(ctx, s.ID, s.Generation)
	if err != nil {
		return err
	}
	o.Rows, o.Bytes = c.Fingerprint().Rows, c.Bytes()
	return errors.Join(v.Check(ctx, c), v.newest(ctx, s))
}

// errSetBack says that the manifest does not know the newest generation.
var errSetBack = fmt.Errorf("%w: the manifest was set back", ErrMismatch)

// newest looks whether the bucket has the commit record of a later generation than
// the manifest. A manifest that was set back to a backup lacks it, and what that
// generation alone holds nobody would read. The next archive run takes it over.
func (v *Verifier) newest(ctx context.Context, s manifest.Slice) error {
	key := manifest.RecordKey(s.SliceKey, s.NextGeneration())
	_, err := v.Objects.Get(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("look for a later commit record: %w", err)
	}
	return fmt.Errorf("%w: the bucket has the commit record %s, the manifest knows generation %d", errSetBack, key, s.Generation)
}
