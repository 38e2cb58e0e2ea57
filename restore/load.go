package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// part is what is read at once: one row group of a segment.
type part struct {
	ref      manifest.SegmentRef
	group    int
	min, max uint64
	rows     int64 // of its conversation
	run      run
}

// run is one or several row groups that lie side by side and share cursors at their
// ends. Which rows of such a cursor are in which of the groups the manifest does not say,
// so from ClickHouse all of a run is read, and counted as a whole.
type run struct {
	min, max uint64
	rows     int64
	whole    bool // it is the whole segment
}

// partKey names what a part reads. An object is never overwritten and a generation's
// copy never changes, so what is kept under it stays true.
type partKey struct {
	object       string
	group        int
	conversation string
	from         Store
}

func (p part) key(from Store) partKey {
	return partKey{p.ref.Key, p.group, string(p.ref.Span.Conversation), from}
}

// copyID names the part's copy in ClickHouse.
func (p part) copyID() manifest.CopyID {
	return manifest.CopyID{Shard: p.ref.Slice.Shard, Day: p.ref.Slice.Day, Generation: p.ref.Generation, Attempt: p.ref.Attempt}
}

// flight is a part that is being read, for whoever waits for it. It goes on when they
// have left: what comes too late for one page is there for the next.
type flight struct {
	part  part
	ended atomic.Bool
	done  chan struct{}
	got   *loaded
	err   error
}

func (fl *flight) finished() bool {
	select {
	case <-fl.done:
		return true
	default:
		return false
	}
}

// errBusy says that the process reads as much as it may.
var errBusy = errors.New("too many reads are under way")

// reads counts what a request began.
type reads struct{ bucket, rows atomic.Int64 }

// load begins to read parts, all at once: of each it gives what was kept, or the flight
// of another request, or a new one. Only parts of one conversation.
func (f *Fetcher) load(request context.Context, parts []part, from Store, count *reads) []*flight {
	out, mine := f.board(parts, from)
	if len(mine) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeoutCause(f.asked(request), f.cfg.FillAfter, errFill)
	j := &job{f: f, from: from, legs: mine, count: count}
	j.begin(ctx)
	go func() {
		defer f.wg.Done()
		defer cancel()
		j.run(ctx)
	}()
	return out
}

// board gives the flights of parts. Those that are new are mine to begin; for them
// f.wg counts one more, which is mine to end.
func (f *Fetcher) board(parts []part, from Store) (out []*flight, mine []*leg) {
	out = make([]*flight, len(parts))
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, p := range parts {
		key := p.key(from)
		if from == FromAny {
			if l, ok := f.caches.groups.GetIfPresent(key); ok {
				f.m.hit(cacheGroups)
				out[i] = landed(p, l, nil)
				continue
			}
			f.m.miss(cacheGroups)
		}
		if fl := f.flights[key]; fl != nil {
			out[i] = fl
			continue
		}
		if len(f.flights) >= fills || f.base.Err() != nil {
			out[i] = landed(p, nil, errBusy)
			continue
		}
		fl := &flight{part: p, done: make(chan struct{})}
		f.flights[key] = fl
		out[i], mine = fl, append(mine, &leg{flight: fl})
	}
	if len(mine) > 0 {
		f.wg.Add(1)
	}
	return out, mine
}

// errFill is the cause with which a read in the background ends.
var errFill = errors.New("no answer within fetch.fill_timeout")

func landed(p part, l *loaded, err error) *flight {
	fl := &flight{part: p, done: make(chan struct{}), got: l, err: err}
	close(fl.done)
	return fl
}

// land ends a flight, once. What was read is kept before the flight is forgotten, so that
// nobody reads it again in between.
func (f *Fetcher) land(fl *flight, from Store, got *loaded, err error) {
	if !fl.ended.CompareAndSwap(false, true) {
		return
	}
	fl.got, fl.err = got, err
	key := fl.part.key(from)
	f.mu.Lock()
	if err == nil && from == FromAny {
		f.caches.groups.Set(key, got)
	}
	delete(f.flights, key)
	f.mu.Unlock()
	close(fl.done)
}

// readGroup gets one part from the bucket: its row group, with one ranged GET. The
// footer is not needed, since the manifest knows the schema and where everything lies,
// and the checksum by which the bytes are known to be undamaged before they are parsed.
func (f *Fetcher) readGroup(ctx context.Context, p part) (*message.Batch, error) {
	rg := p.ref.File.RowGroups[p.group]
	data, err := f.Objects.ReadRange(ctx, p.ref.Key, rg.Offset, rg.Length)
	if err != nil {
		return nil, err
	}
	r, err := segment.Open(p.ref.File, p.ref.Schema)
	if err != nil {
		return nil, err
	}
	b, err := r.ReadGroup(p.group, data)
	if err != nil {
		return nil, err
	}
	conv := p.ref.Span.Conversation
	if b.Len() > 0 && bytes.Equal(b.Conversation(0), conv) && bytes.Equal(b.Conversation(b.Len()-1), conv) {
		return b, nil // in order: all are of the conversation
	}
	own := message.NewBatch(b.Schema())
	for i := range b.Len() {
		if bytes.Equal(b.Conversation(i), conv) {
			if err := own.AppendFrom(b, i); err != nil {
				return nil, err
			}
		}
	}
	return own, nil
}

// query is what one statement of ClickHouse reads: parts of one schema, each day from
// one segment alone, so that a row's message ID tells its part.
type query struct {
	legs []*leg
	key  map[snowflake.Day]string // object by day
}

// queries spreads legs over as few statements as can be.
func queries(legs []*leg) (all []*query) {
next:
	for _, l := range legs {
		ref := &l.part.ref
		for _, q := range all {
			if key, taken := q.key[ref.Slice.Day]; q.legs[0].part.ref.Schema.Equal(ref.Schema) && (!taken || key == ref.Key) {
				q.key[ref.Slice.Day] = ref.Key
				q.legs = append(q.legs, l)
				continue next
			}
		}
		all = append(all, &query{legs: []*leg{l}, key: map[snowflake.Day]string{ref.Slice.Day: ref.Key}})
	}
	return all
}

// errLacks says that ClickHouse has other rows of a copy than were verified.
var errLacks = errors.New("ClickHouse does not have the rows of a verified copy (was it emptied, replaced or set back?): see coldtier verify")

// answer is what a statement gave of one part.
type answer struct {
	batch *message.Batch
	err   error
}

// readRows reads parts from ClickHouse with one statement. An answer without rows
// proves nothing by itself, and taken for complete it would be a gap: so each part's
// rows are compared with what the manifest knows of them.
func (f *Fetcher) readRows(ctx context.Context, q *query) ([]answer, error) {
	first := q.legs[0].part
	conv, schema := first.ref.Span.Conversation, first.ref.Schema
	spans := make([]Span, len(q.legs))
	limit := int64(64)
	for i, l := range q.legs {
		spans[i] = Span{l.part.copyID(), l.part.run.min, l.part.run.max}
		limit += 2 * l.part.run.rows // a row may be there twice
	}
	b, err := f.Rows.Spans(ctx, spans, schema, conv, int(limit))
	if err != nil {
		return nil, err
	}
	out := make([]answer, len(q.legs))
	if len(q.legs) == 1 {
		out[0].batch = b
	} else if err := f.deal(q, b, out); err != nil {
		return nil, err
	}
	for i, l := range q.legs {
		if out[i].batch, err = l.part.check(out[i].batch); err != nil {
			out[i] = answer{err: fmt.Errorf("%w: slice %s, conversation %q: %w", errLacks, l.part.ref.Slice, conv, err)}
		}
	}
	return out, nil
}

// deal gives each row to the parts whose runs it lies in.
func (f *Fetcher) deal(q *query, b *message.Batch, out []answer) error {
	byDay := map[snowflake.Day][]int{}
	for i, l := range q.legs {
		out[i].batch = message.NewBatch(b.Schema())
		day := l.part.ref.Slice.Day
		byDay[day] = append(byDay[day], i)
	}
	for row := range b.Len() {
		c := b.Cursor(row)
		for _, i := range byDay[f.cfg.Layout.DayOf(b.MessageID(row), f.cfg.Zone)] {
			if r := q.legs[i].part.run; c >= r.min && c <= r.max {
				if err := out[i].batch.AppendFrom(b, row); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// check compares what ClickHouse gave of a part's run with the manifest: a whole segment
// by its fingerprint, row groups by their number of rows. Then it cuts the part out.
func (p part) check(b *message.Batch) (*message.Batch, error) {
	if p.run.whole {
		var h message.Hasher
		if got, want := h.Batch(b, 0, b.Len()), p.ref.Span.Fingerprint; got != want {
			return nil, fmt.Errorf("it reads %s, the manifest says %s", got, want)
		}
	}
	if n := int64(b.Len()); n != p.run.rows {
		return nil, fmt.Errorf("%d rows of %d to %d, the manifest says %d", n, p.run.min, p.run.max, p.run.rows)
	}
	if p.run.min == p.min && p.run.max == p.max {
		return b, nil
	}
	own := message.NewBatch(b.Schema())
	for i := range b.Len() {
		if c := b.Cursor(i); c >= p.min && c <= p.max {
			if err := own.AppendFrom(b, i); err != nil {
				return nil, err
			}
		}
	}
	return own, nil
}

// split cuts a segment into its parts.
func split(ref manifest.SegmentRef) []part {
	single := ref.Span.FirstGroup == ref.Span.LastGroup
	out := make([]part, 0, ref.Span.LastGroup-ref.Span.FirstGroup+1)
	first, end := int64(0), ref.Span.FirstRow+ref.Span.Rows
	for g, rg := range ref.File.RowGroups[:ref.Span.LastGroup+1] {
		if g >= ref.Span.FirstGroup {
			out = append(out, part{ref: ref, group: g, min: max(rg.MinCursor, ref.Span.MinCursor), max: min(rg.MaxCursor, ref.Span.MaxCursor),
				rows: min(first+rg.Rows, end) - max(first, ref.Span.FirstRow)})
		}
		first += rg.Rows
	}
	if single {
		out[0].min, out[0].max = ref.Span.MinCursor, ref.Span.MaxCursor
	}
	for i := 0; i < len(out); {
		r := run{min: out[i].min, max: out[i].max, rows: out[i].rows}
		j := i + 1
		for ; j < len(out) && out[j].min <= r.max; j++ {
			r.max = max(r.max, out[j].max)
			r.rows += out[j].rows
		}
		r.whole = i == 0 && j == len(out)
		for ; i < j; i++ {
			out[i].run = r
		}
	}
	return out
}

// bucketError says whether an error speaks of the bucket's health, not of an object.
func bucketError(err error) bool {
	for _, of := range []error{ErrNotFound, ErrDamaged, ErrArchived, segment.ErrCorrupt} {
		if errors.Is(err, of) {
			return false
		}
	}
	return true
}
