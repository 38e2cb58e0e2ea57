package restore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/manifest"
)

// walk reads one page in one direction.
type walk struct {
	f      *Fetcher
	q      Query
	limit  int
	newest bool

	parts    []part // not loaded yet, nearest first
	segments int    // looked up in the manifest
	more     bool   // it may have more, none of them nearer than reach
	reach    *uint64
	seen     map[string]bool
	rows     []Row // loaded and inside the anchor, in page order
	missing  []Missing
	requests atomic.Int64
	queries  int
}

// part is what is read at once: one row group of a segment.
type part struct {
	ref      manifest.SegmentRef
	group    int
	min, max uint64
	rows     int64
}

// near and far are the ends of a part in page order.
func (w *walk) near(p part) uint64 {
	if w.newest {
		return p.max
	}
	return p.min
}

// nearer says whether cursor a comes before b in page order.
func (w *walk) nearer(a, b uint64) bool {
	if w.newest {
		return a > b
	}
	return a < b
}

// inside says whether a cursor lies on the page's side of the anchor.
func (w *walk) inside(cursor uint64) bool {
	switch {
	case w.q.Before != nil:
		return cursor < *w.q.Before
	case w.q.After != nil:
		return cursor > *w.q.After
	}
	return true
}

// split cuts a segment into its parts on the page's side of the anchor.
func (w *walk) split(ref manifest.SegmentRef) []part {
	var out []part
	single := ref.Span.FirstGroup == ref.Span.LastGroup
	for g := ref.Span.FirstGroup; g <= ref.Span.LastGroup; g++ {
		rg := ref.File.RowGroups[g]
		p := part{ref: ref, group: g, min: max(rg.MinCursor, ref.Span.MinCursor), max: min(rg.MaxCursor, ref.Span.MaxCursor), rows: rg.Rows}
		if single {
			p.min, p.max, p.rows = ref.Span.MinCursor, ref.Span.MaxCursor, ref.Span.Rows
		}
		if w.inside(p.min) || w.inside(p.max) {
			out = append(out, p)
		}
	}
	return out
}

// look asks the manifest for the segments in page order, more of them each time.
func (w *walk) look(ctx context.Context) error {
	w.segments = max(segmentsAtOnce, 4*w.segments)
	refs, err := w.f.Manifest.Segments(ctx, manifest.SegmentQuery{Conversation: w.q.Conversation, Before: w.q.Before, After: w.q.After,
		Oldest: !w.newest && w.q.After == nil, Limit: w.segments})
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if w.seen[ref.Key] {
			continue
		}
		w.seen[ref.Key] = true
		w.parts = append(w.parts, w.split(ref)...)
		end := ref.Span.MaxCursor
		if !w.newest {
			end = ref.Span.MinCursor
		}
		if w.reach == nil || w.nearer(*w.reach, end) {
			w.reach = &end
		}
	}
	w.more = len(refs) == w.segments
	w.order()
	return nil
}

// order puts the parts that are not loaded in page order.
func (w *walk) order() {
	slices.SortStableFunc(w.parts, func(a, b part) int {
		x, y := w.near(a), w.near(b)
		if w.newest {
			return cmp.Compare(y, x)
		}
		return cmp.Compare(x, y)
	})
}

// edge is the nearest cursor that something not loaded may have; ok is false when
// all is loaded.
func (w *walk) edge() (cursor uint64, ok bool) {
	if len(w.parts) > 0 {
		cursor, ok = w.near(w.parts[0]), true
	}
	if w.more && w.reach != nil && (!ok || w.nearer(*w.reach, cursor)) {
		cursor, ok = *w.reach, true
	}
	return cursor, ok
}

// safe is how many of the loaded rows no row that is not loaded can precede.
func (w *walk) safe() int {
	edge, ok := w.edge()
	if !ok {
		return len(w.rows)
	}
	n, _ := slices.BinarySearchFunc(w.rows, edge, func(r Row, edge uint64) int {
		if w.nearer(r.Cursor(), edge) {
			return -1
		}
		return 1
	})
	return n
}

func (w *walk) page(ctx context.Context) (*Page, error) {
	w.seen = map[string]bool{}
	if err := w.look(ctx); err != nil {
		return nil, err
	}
	for w.safe() <= w.limit { // one more than asked for, to know whether there is more
		if len(w.parts) == 0 {
			if !w.more {
				break
			}
			if err := w.look(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if w.more && w.reach != nil && w.nearer(*w.reach, w.near(w.parts[0])) {
			if err := w.look(ctx); err != nil {
				return nil, err
			}
			continue
		}
		ok, err := w.load(ctx)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
	}
	return w.cut(), nil
}

// cut makes the page of what is loaded. Rows of one cursor are never parted: a
// page that ends inside of such a run takes all of it, since its next page begins
// behind that cursor.
func (w *walk) cut() *Page {
	n := w.safe()
	rows := w.rows[:n]
	p := &Page{State: Complete, Limit: w.limit, Missing: w.missing, Requests: int(w.requests.Load()), Queries: w.queries}
	end := min(w.limit, n)
	for end > 0 && end < n && rows[end].Cursor() == rows[end-1].Cursor() {
		end++
	}
	p.Rows = slices.Clone(rows[:end])
	_, unread := w.edge()
	p.HasMore = end < n || unread
	if len(w.missing) > 0 && end < w.limit {
		p.State = Partial
	} else {
		p.Missing = nil
	}
	p.bounds()
	if p.HasMore && end > 0 {
		last := p.Rows[end-1].Cursor()
		p.Next = &last
	}
	return p
}

// load reads the next parts: as many, at once, as are expected to fill the page.
// It is false when the nearest of them cannot be read.
func (w *walk) load(ctx context.Context) (bool, error) {
	want, n := int64(w.limit+1-w.safe()), 0
	for have := int64(0); n < len(w.parts) && n < 32 && (n == 0 || have < want); n++ {
		have += w.parts[n].rows
	}
	batch := slices.Clone(w.parts[:n])
	read, errs := make([][]Row, n), make([]error, n)
	if w.q.From != FromBucket {
		if done, err := w.clickhouse(ctx, batch); err == nil && done {
			return true, nil
		} else if err != nil && ctx.Err() != nil {
			return false, context.Cause(ctx)
		} else if w.q.From == FromClickHouse {
			if err == nil {
				err = errors.New("a segment's ClickHouse copy is not verified")
			}
			w.miss(batch[0], err)
			return false, nil
		} else if err != nil {
			w.f.Log.Warn("ClickHouse cannot give this page; reading the bucket", "error", err)
			w.q.From = FromBucket
		}
	}
	var g errgroup.Group
	for i, p := range batch {
		g.Go(func() error {
			read[i], errs[i] = w.read(ctx, p)
			return nil
		})
	}
	_ = g.Wait() // errors are kept by part
	for i := range batch {
		if errs[i] != nil {
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			w.miss(batch[i], errs[i])
			w.parts = w.parts[i:]
			return false, nil
		}
		w.merge(read[i])
	}
	w.parts = w.parts[n:]
	return true, nil
}
