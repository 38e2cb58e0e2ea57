package rehydrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore/selection"
)

// writing is a slice that is being written.
type writing struct {
	x     *execution
	s     *Slice
	sink  Sink
	out   *SliceReport
	fresh bool // none of its rows was there

	gathered []*message.Batch
	bytes    int64
	sets     chan []*message.Batch
	used     sync.Pool // of *message.Batch

	mu sync.Mutex // of out's counts
}

// run reads the slice and writes its rows: while one set of them, sorted by message ID, is
// written, the next is gathered.
func (w *writing) run(ctx context.Context) (read *selection.Read, err error) {
	r := w.x.r
	w.out.named = map[uint64]bool{}
	w.sets = make(chan []*message.Batch)
	// Each slice has a set that is gathered and one that is written, and copies of parts of
	// it. A small slice is cut in a few sets all the same, so that reading and writing overlap.
	limit := min(r.cfg.Memory/int64(r.cfg.Slices)/3, max(smallestSet, unpacked*w.s.Bytes/4))
	var lost error
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for set := range w.sets {
			if err := w.write(ctx, set); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() (err error) {
		defer close(w.sets)
		read, err = r.Reader.Read(ctx, w.x.sel, w.s.Slice, func(b *message.Batch) error {
			if !b.Schema().Equal(w.s.Schema) {
				return fmt.Errorf("slice %s: %w: its copy was replaced by one with other columns meanwhile: run the same again", w.s.SliceKey, ErrRefused)
			}
			w.gathered = append(w.gathered, b)
			if w.bytes += int64(b.Memory()); w.bytes < limit {
				return nil
			}
			return w.hand(ctx)
		})
		if errors.Is(err, selection.ErrLost) {
			lost, err = err, nil
		}
		if err != nil {
			return err
		}
		return w.hand(ctx)
	})
	if err := g.Wait(); err != nil {
		return read, err
	}
	return read, lost
}

// hand gives away what was gathered.
func (w *writing) hand(ctx context.Context) error {
	if len(w.gathered) == 0 {
		return nil
	}
	select {
	case w.sets <- w.gathered:
		w.gathered, w.bytes = nil, 0
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// What a set has at least, and how many times their bytes in the bucket rows take, about.
const (
	smallestSet = 32 << 20
	unpacked    = 4
)

// batchBytes is what is written at once: throttled, and in a statement or a few.
const batchBytes = 4 << 20

// write writes a set in the order of message IDs, several batches at once.
func (w *writing) write(ctx context.Context, set []*message.Batch) error {
	type ref struct {
		id       uint64
		set, row int32
	}
	n := 0
	for _, b := range set {
		n += b.Len()
	}
	refs := make([]ref, 0, n)
	for i, b := range set {
		for j := range b.Len() {
			refs = append(refs, ref{b.MessageID(j), int32(i), int32(j)})
		}
	}
	slices.SortFunc(refs, func(a, b ref) int { return cmp.Compare(a.id, b.id) })
	most := math.MaxInt
	if limit := w.x.r.cfg.RowsPerSecond; limit > 0 { // not what takes seconds at once
		most = max(limit/4, 1)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(w.x.r.cfg.Writers)
	for len(refs) > 0 && gctx.Err() == nil {
		b, ok := w.used.Get().(*message.Batch)
		if !ok {
			b = message.NewBatch(w.s.Schema)
		}
		for len(refs) > 0 && b.Len() < most && (b.Len() == 0 || b.Bytes() < batchBytes) {
			x := refs[0]
			refs = refs[1:]
			if err := b.AppendFrom(set[x.set], int(x.row)); err != nil {
				return errors.Join(err, g.Wait())
			}
		}
		g.Go(func() error {
			err := w.batch(gctx, b)
			b.Reset()
			w.used.Put(b)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// batch writes one batch, and counts what became of it.
func (w *writing) batch(ctx context.Context, b *message.Batch) error {
	r := w.x.r
	if err := r.throttle.wait(ctx, b.Len()); err != nil {
		return err
	}
	fresh := w.fresh
	got, err := again(ctx, r, func() (Written, error) {
		defer func() { fresh = false }() // a try may have left rows
		return w.sink.Write(ctx, b, fresh)
	})
	if err != nil {
		return err
	}
	w.count(got)
	w.x.name(w.s, got)
	r.Progress.Rows(b.Len())
	return r.step(ctx, "restore.batch")
}

func (w *writing) count(got Written) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.out
	o.Inserted, o.Present = o.Inserted+got.Inserted, o.Present+got.Present
	o.Conflicts, o.Refused = o.Conflicts+uint64(len(got.Conflicts)), o.Refused+uint64(len(got.Refused))
	conv := w.s.Schema.Columns()[w.s.Schema.Role(message.ConversationID)].Name
	for _, c := range got.Conflicts {
		o.named[c.MessageID] = true
		o.less = o.less.Sub(c.Archived)
		// A row of another conversation is not looked at where conversations are selected.
		if w.s.Conversations == nil || !slices.Contains(c.Columns, conv) {
			o.less = o.less.Add(c.Found)
		}
	}
	for _, c := range got.Refused {
		o.named[c.MessageID] = true
		o.less = o.less.Sub(c.Archived)
	}
}
