package selection

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/coldtier/coldtier/archive/segment"
)

// runBytes bounds a run: what is read with one request. A row group may be longer.
const runBytes = 2 << 20

// run is row groups [from, to) of an object.
type run struct {
	o        *object
	from, to int
	final    bool // the object's last
	weight   int64
	done     chan *result
}

// result is what a run gave.
type result struct {
	*run
	parts    []*part
	requests int
	bytes    int64
	err      error
}

// runs are the runs of all objects, in order.
func (src *source) runs(fn func(*run) bool) {
	for _, o := range src.objects {
		list := o.runs()
		for i, r := range list {
			r.final = i == len(list)-1
			if !fn(r) {
				return
			}
		}
	}
}

// runs cuts the row groups that the object's spans lie in.
func (o *object) runs() (all []*run) {
	var last *run
	length := int64(0)
	for _, s := range o.spans { // in the order of their rows
		for g := s.FirstGroup; g <= s.LastGroup && g < len(o.file.RowGroups); g++ {
			n := o.file.RowGroups[g].Length
			switch {
			case last != nil && g < last.to: // shared with the span before
			case last != nil && g == last.to && length+n <= runBytes:
				last.to, length = g+1, length+n
			default:
				last, length = &run{o: o, from: g, to: g + 1}, n
				all = append(all, last)
			}
		}
	}
	return all
}

// decoded is how many times its bytes in the bucket a row group takes when it is read,
// guessed well above what chat has.
const decoded = 8

// stream reads all runs, several at once, and gives their results to fn in order.
func (r *Reader) stream(ctx context.Context, src *source, fn func(*result) error) error {
	g, gctx := errgroup.WithContext(ctx)
	memory := semaphore.NewWeighted(r.cfg.Memory)
	work := make(chan *run)
	queue := make(chan *run, 4*r.cfg.Requests)
	// A goroutine reads one run after another: it has the stack and the memory for the next.
	workers := 0
	worker := func(x *run) func() error {
		return func() error {
			f := &fetcher{r: r, src: src}
			for ok := true; ok; x, ok = <-work {
				res := f.fetch(gctx, x)
				x.done <- res
				if res.err != nil {
					return res.err
				}
			}
			return nil
		}
	}
	g.Go(func() error {
		defer close(queue)
		defer close(work)
		var err error
		src.runs(func(x *run) bool {
			for i := x.from; i < x.to; i++ {
				x.weight += decoded * x.o.file.RowGroups[i].Length
			}
			x.weight = min(x.weight, r.cfg.Memory)
			x.done = make(chan *result, 1)
			// In the order in which they are given away, so that what is waited for has its memory.
			if err = memory.Acquire(gctx, x.weight); err != nil {
				return false
			}
			select {
			case work <- x: // one that waits takes it
			default:
				if workers < r.cfg.Requests {
					workers++
					g.Go(worker(x))
					break
				}
				select {
				case work <- x:
				case <-gctx.Done():
					err = gctx.Err()
					return false
				}
			}
			select {
			case queue <- x:
				return true
			case <-gctx.Done():
				err = gctx.Err()
				return false
			}
		})
		return err
	})
	g.Go(func() error {
		for x := range queue {
			var res *result
			select {
			case res = <-x.done:
			case <-gctx.Done():
				return gctx.Err()
			}
			if res.err != nil {
				return res.err
			}
			if err := fn(res); err != nil {
				return err
			}
			memory.Release(x.weight)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// fetcher reads one run after another.
type fetcher struct {
	r      *Reader
	src    *source
	reader *segment.Reader // nil before the first
}

// open makes the reader one of a file.
func (f *fetcher) open(file segment.File) (err error) {
	if f.reader == nil {
		f.reader, err = segment.Open(file, f.src.schema)
		return err
	}
	return f.reader.Reset(file)
}

// fetch reads a run. What is wrong with the object is in the parts; any other error
// is the result's.
func (f *fetcher) fetch(ctx context.Context, x *run) *result {
	r, src := f.r, f.src
	res := &result{run: x}
	if err := f.open(x.o.file); err != nil {
		for i := x.from; i < x.to; i++ {
			res.parts = append(res.parts, &part{group: i, err: err})
		}
		return res
	}
	groups := x.o.file.RowGroups
	begin := groups[x.from].Offset
	end := groups[x.to-1].Offset + groups[x.to-1].Length
	data, err := r.get(ctx, res, begin, end-begin)
	if err != nil && !ofObject(err) {
		res.err = fmt.Errorf("object %s: %w", x.o.key, err)
		return res
	}
	gone := errors.Is(err, ErrNotFound) || errors.Is(err, ErrArchived)
	for i := x.from; i < x.to; i++ {
		e := groups[i].Extent
		var own []byte
		var bad error
		switch {
		case err == nil:
			own = data[e.Offset-begin : e.Offset-begin+e.Length]
		case gone || x.to-x.from == 1:
			bad = err
		default: // only some of the run may be damaged
			if own, bad = r.get(ctx, res, e.Offset, e.Length); bad != nil && !ofObject(bad) {
				res.err = fmt.Errorf("object %s: %w", x.o.key, bad)
				return res
			}
		}
		if bad != nil {
			res.parts = append(res.parts, &part{group: i, err: bad})
			continue
		}
		b, err := f.reader.ReadGroup(i, own)
		if errors.Is(err, segment.ErrCorrupt) { // once more: the way may have damaged it
			if own, err = r.get(ctx, res, e.Offset, e.Length); err == nil {
				b, err = f.reader.ReadGroup(i, own)
			} else if !ofObject(err) {
				res.err = fmt.Errorf("object %s: %w", x.o.key, err)
				return res
			}
		}
		if err != nil {
			res.parts = append(res.parts, &part{group: i, err: err})
			continue
		}
		res.parts = append(res.parts, src.part(x.o, i, b))
	}
	return res
}

func (r *Reader) get(ctx context.Context, res *result, off, n int64) ([]byte, error) {
	res.requests++
	b, err := r.Objects.ReadRange(ctx, res.o.key, off, n)
	if err == nil && int64(len(b)) != n {
		err = fmt.Errorf("%w: %d bytes at %d, of which %d came", ErrDamaged, n, off, len(b))
	}
	res.bytes += int64(len(b))
	return b, err
}
