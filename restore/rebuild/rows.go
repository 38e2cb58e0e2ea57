package rebuild

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/manifest"
)

// ErrUnequal says that ClickHouse does not hold what was inserted.
var ErrUnequal = errors.New("ClickHouse does not hold the rows of the copy")

// RangeReader is the bucket as rows are read from it.
type RangeReader interface {
	// ReadRange reads exactly n bytes at off.
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)
}

// Rows is ClickHouse.
type Rows interface {
	archive.Rows
	// Drop removes a copy's rows, if there are any.
	Drop(ctx context.Context, id manifest.CopyID) error
}

// RowProgress is told how a rebuild of rows goes.
type RowProgress interface {
	Progress
	Rows(n int) // so many more rows were inserted
}

// RowConfig says which rows are rebuilt.
type RowConfig struct {
	Filter  manifest.Filter // days and shards
	Workers int             // slices at once; 0: 2
	Lease   bool            // hold each slice's lease meanwhile, so that nothing else works on it
	Owner   string          // names this process in leases
	DryRun  bool
}

// RowDeps are what a rebuild of rows works with.
type RowDeps struct {
	Manifest *manifest.Store
	Objects  RangeReader
	Rows     Rows
	Clock    func() time.Time // for durations alone
	Log      *slog.Logger
	Progress RowProgress
	// Step is called at each named point between two effects; crash tests kill the process in it.
	Step func(name string) error
}

// RowOutcome is what became of one generation.
type RowOutcome struct {
	Slice      manifest.SliceKey `json:"slice"`
	Generation uint32            `json:"generation"`
	Rows       uint64            `json:"rows"`
	Bytes      int64             `json:"bytes"` // of its objects
	Error      string            `json:"error,omitempty"`
	Err        error             `json:"-"`
}

// RowReport is what a rebuild of rows did.
type RowReport struct {
	DryRun  bool         `json:"dry_run"`
	Rebuilt []RowOutcome `json:"rebuilt"` // in a dry run: those that would be looked at
	Equal   int          `json:"equal"`   // generations that were there, and equal
	Left    []RowOutcome `json:"left"`    // another worker has the slice
	Failed  []RowOutcome `json:"failed"`
	Rows    uint64       `json:"rows"` // inserted and found equal
	Seconds float64      `json:"seconds"`
}

// Err says what was not done.
func (r *RowReport) Err() error {
	n := len(r.Left) + len(r.Failed)
	if n == 0 {
		return nil
	}
	first := append(slices.Clone(r.Failed), r.Left...)[0]
	err := fmt.Errorf("generations not rebuilt: %d, the first of slice %s: %w", n, first.Slice, first.Err)
	if len(r.Rebuilt)+r.Equal > 0 || len(r.Failed) == 0 && len(r.Left) < n {
		err = fmt.Errorf("%w: %w", ErrPartly, err)
	}
	return err
}

// ClickHouse inserts rows that ClickHouse lacks, or has otherwise, anew from the bucket:
// those of the generations that serve reads, and of those that wait for verification. It
// reads first what is there: what is equal is left alone, so the same call goes on where
// one was killed. Readers compare what ClickHouse gives with the manifest and take the
// bucket where it differs, so none of them is given half of a generation.
func ClickHouse(ctx context.Context, cfg RowConfig, d RowDeps) (*RowReport, error) {
	if cfg.Workers <= 0 {
		cfg.Workers = 2
	}
	r := &RowReport{DryRun: cfg.DryRun, Rebuilt: []RowOutcome{}, Left: []RowOutcome{}, Failed: []RowOutcome{}}
	begun := d.Clock()
	all, err := d.Manifest.Slices(ctx, cfg.Filter)
	if err != nil {
		return r, err
	}
	all = slices.DeleteFunc(all, func(s manifest.Slice) bool { return len(generations(s)) == 0 })
	d.Progress.Slices(len(all))
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(cfg.Workers)
	for _, s := range all {
		g.Go(func() error {
			b := &rowBuilder{RowDeps: d, cfg: cfg}
			out, equal := b.slice(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			r.Equal += equal
			rows := uint64(0)
			for _, o := range out {
				if o.Err != nil {
					o.Error = o.Err.Error()
				}
				switch {
				case o.Err == nil:
					rows += o.Rows
					r.Rebuilt = append(r.Rebuilt, o)
				case errors.Is(o.Err, manifest.ErrLeased), errors.Is(o.Err, manifest.ErrState):
					r.Left = append(r.Left, o)
				default:
					r.Failed = append(r.Failed, o)
				}
			}
			if !cfg.DryRun {
				r.Rows += rows
			}
			d.Progress.SliceDone(0)
			return nil
		})
	}
	_ = g.Wait() // its functions return no errors: each slice's is in the report
	for _, list := range [][]RowOutcome{r.Rebuilt, r.Left, r.Failed} {
		slices.SortFunc(list, func(x, y RowOutcome) int {
			return cmp.Or(x.Slice.Day.Compare(y.Slice.Day), cmp.Compare(x.Slice.Shard.String(), y.Slice.Shard.String()), cmp.Compare(x.Generation, y.Generation))
		})
	}
	r.Seconds = d.Clock().Sub(begun).Seconds()
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	return r, r.Err()
}

// generations are those of a slice whose rows belong in ClickHouse.
func generations(s manifest.Slice) (list []uint32) {
	if s.Live > 0 {
		list = append(list, s.Live)
	}
	if s.State == manifest.Committed && s.Generation != s.Live {
		list = append(list, s.Generation)
	}
	return list
}

// Slice does what ClickHouse does for one slice. equal are its generations that were there
// and equal, out what became of the others.
func Slice(ctx context.Context, cfg RowConfig, d RowDeps, s manifest.Slice) (out []RowOutcome, equal int) {
	out, equal = (&rowBuilder{RowDeps: d, cfg: cfg}).slice(ctx, s)
	for i := range out {
		if out[i].Err != nil {
			out[i].Error = out[i].Err.Error()
		}
	}
	return out, equal
}

type rowBuilder struct {
	RowDeps
	cfg RowConfig
}

func (b *rowBuilder) step(name string) error {
	if b.Step == nil {
		return nil
	}
	return b.Step(name)
}

// slice rebuilds the generations of a slice, under its lease.
func (b *rowBuilder) slice(ctx context.Context, s manifest.Slice) (out []RowOutcome, equal int) {
	mine := func(context.Context) error { return nil }
	if b.cfg.Lease && !b.cfg.DryRun {
		l, err := b.Manifest.Claim(ctx, s.ID, b.cfg.Owner, []manifest.State{s.State}, s.State)
		if err != nil {
			return []RowOutcome{{Slice: s.SliceKey, Generation: s.Live, Err: err}}, 0
		}
		s = l.Slice()
		mine = l.Renew
		held, stop := l.Keep(ctx)
		ctx = held
		defer func() {
			stop()
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
			defer cancel()
			if err := l.Release(clean, s.State); err != nil && !errors.Is(err, manifest.ErrLeaseLost) {
				out = append(out, RowOutcome{Slice: s.SliceKey, Generation: s.Live, Err: err})
			}
		}()
	}
	for _, g := range generations(s) {
		o := RowOutcome{Slice: s.SliceKey, Generation: g}
		var is bool
		is, o.Err = b.generation(ctx, s.ID, g, mine, &o)
		if is {
			equal++
			continue
		}
		if o.Err != nil && ctx.Err() != nil {
			o.Err = fmt.Errorf("%w (while: %w)", context.Cause(ctx), o.Err)
		}
		out = append(out, o)
	}
	return out, equal
}

const releaseTime = 10 * time.Second

// generation makes ClickHouse hold a generation; equal says that it did. mine is an error
// when the slice is another's by now.
func (b *rowBuilder) generation(ctx context.Context, id uint64, g uint32, mine func(context.Context) error, o *RowOutcome) (equal bool, err error) {
	c, err := b.Manifest.LoadCopy(ctx, id, g)
	if err != nil {
		return false, err
	}
	want := c.Fingerprint()
	o.Rows, o.Bytes = want.Rows, c.Bytes()
	if b.cfg.DryRun {
		return false, nil
	}
	if err := b.Rows.Fit(ctx, []*message.Schema{c.Schema}); err != nil {
		return false, err
	}
	have, err := b.fingerprint(ctx, c)
	if err == nil && have == want {
		return true, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err != nil || have.Rows > 0 {
		// What is there may be all that is left of an object that was lost.
		if err := b.whole(ctx, c, want); err != nil {
			return false, fmt.Errorf("ClickHouse has other rows of slice %s generation %d than were archived, and they are left as they are, since the bucket cannot give them all: %w", c.SliceKey, g, err)
		}
		b.Log.WarnContext(ctx, "ClickHouse has other rows of a generation than were archived; they are dropped", "slice", c.SliceKey.String(), "generation", g, "rows", want.Rows, "rows_there", have.Rows, "error", err)
	}
	if err := b.step("rebuild.rows.dropping"); err != nil {
		return false, err
	}
	// What was read of both stores holds only as long as the slice is this process's.
	if err := mine(ctx); err != nil {
		return false, err
	}
	if err := b.Rows.Drop(ctx, c.ID()); err != nil {
		return false, err
	}
	if err := b.step("rebuild.rows.dropped"); err != nil {
		return false, err
	}
	if err := b.insert(ctx, c); err != nil {
		return false, err
	}
	if err := b.step("rebuild.rows.inserted"); err != nil {
		return false, err
	}
	if have, err = b.fingerprint(ctx, c); err != nil {
		return false, err
	}
	if have != want {
		return false, fmt.Errorf("%w: slice %s generation %d: it has %s after the insert, the commit says %s", ErrUnequal, c.SliceKey, g, have, want)
	}
	return false, nil
}

func (b *rowBuilder) fingerprint(ctx context.Context, c *manifest.Copy) (f message.Fingerprint, err error) {
	var h message.Hasher
	err = b.Rows.ReadCopy(ctx, c.ID(), c.Schema, func(batch *message.Batch) error {
		f = f.Add(h.Batch(batch, 0, batch.Len()))
		return nil
	})
	return f, err
}

// whole reads all objects of a copy, and is an error unless they give what was committed.
func (b *rowBuilder) whole(ctx context.Context, c *manifest.Copy, want message.Fingerprint) error {
	var mu sync.Mutex
	var got message.Fingerprint
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(readAhead)
	for i := range c.Objects {
		g.Go(func() error {
			out := make(chan *message.Batch)
			var f message.Fingerprint
			read, rctx := errgroup.WithContext(gctx)
			read.Go(func() error {
				defer close(out)
				return b.object(rctx, c, &c.Objects[i], out)
			})
			var h message.Hasher
			for batch := range out {
				f = f.Add(h.Batch(batch, 0, batch.Len()))
			}
			mu.Lock()
			got = got.Add(f)
			mu.Unlock()
			return read.Wait()
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%w: its objects hold %s, its commit says %s", ErrUnequal, got, want)
	}
	return nil
}

// insert sends the rows of the objects, which are read ahead, in the order of their
// conversations.
func (b *rowBuilder) insert(ctx context.Context, c *manifest.Copy) error {
	objects := slices.DeleteFunc(slices.Clone(c.Objects), func(o manifest.Object) bool { return len(o.Segs) == 0 })
	slices.SortFunc(objects, func(x, y manifest.Object) int { return bytes.Compare(x.Segs[0].Conversation, y.Segs[0].Conversation) })
	w, err := b.Rows.Insert(ctx, c.ID(), c.Schema)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	queue := make(chan chan *message.Batch, readAhead) // as many objects are read ahead
	g.Go(func() error {
		defer close(queue)
		for i := range objects {
			out := make(chan *message.Batch, 1) // a row group ahead of the insert
			select {
			case queue <- out:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
			g.Go(func() error {
				defer close(out)
				return b.object(gctx, c, &objects[i], out)
			})
		}
		return nil
	})
	g.Go(func() error {
		for out := range queue {
			for batch := range out {
				if err := w.Write(gctx, batch, 0, batch.Len()); err != nil {
					return err
				}
				b.Progress.Rows(batch.Len())
			}
			if gctx.Err() != nil { // the object may have ended early
				return context.Cause(gctx)
			}
		}
		return nil
	})
	// Not by who writes: that an object ended early he may not see in time.
	err = g.Wait()
	if err == nil {
		err = w.Close(ctx)
	}
	if err != nil {
		w.Abort()
	}
	return err
}

const readAhead = 16

// object reads an object's row groups.
func (b *rowBuilder) object(ctx context.Context, c *manifest.Copy, o *manifest.Object, out chan<- *message.Batch) error {
	fail := func(err error) error { return fmt.Errorf("object %s: %w", o.Key, err) }
	get := func(off, n int64) ([]byte, error) { return b.Objects.ReadRange(ctx, o.Key, off, n) }
	if o.File.Size <= wholeObject {
		all, err := get(0, o.File.Size)
		if err != nil {
			return fail(err)
		}
		get = func(off, n int64) ([]byte, error) {
			if off < 0 || n < 0 || off+n > int64(len(all)) {
				return nil, fmt.Errorf("bytes [%d, %d) of %d", off, off+n, len(all))
			}
			return all[off : off+n], nil
		}
	}
	footer, err := get(o.File.Footer.Offset, o.File.Footer.Length)
	if err != nil {
		return fail(err)
	}
	r, err := segment.OpenFooter(o.File, footer)
	if err != nil {
		return fail(err)
	}
	if !r.Schema().Equal(c.Schema) {
		return fail(errors.New("it has other columns than its commit says"))
	}
	for i, rg := range o.File.RowGroups {
		data, err := get(rg.Offset, rg.Length)
		if err != nil {
			return fail(err)
		}
		batch, err := r.ReadGroup(i, data)
		if err != nil {
			return fail(err)
		}
		select {
		case out <- batch:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// wholeObject is the size up to which an object is read in one piece.
const wholeObject = 2 << 20
