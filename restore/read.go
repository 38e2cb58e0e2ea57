package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/manifest"
)

// read gets one part from the bucket: its row group, with one ranged GET. The
// footer is not needed, since the manifest knows the schema and where everything
// lies. The rows come in page order, those inside the anchor alone.
func (w *walk) read(ctx context.Context, p part) ([]Row, error) {
	rg := p.ref.File.RowGroups[p.group]
	w.requests.Add(1)
	data, err := w.f.Objects.ReadRange(ctx, p.ref.Key, rg.Offset, rg.Length)
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
	return w.inPage(b, FromBucket), nil
}

// all reads a part whole, from ClickHouse where the bucket may not be asked or does
// not give it.
func (w *walk) all(ctx context.Context, p part) ([]Row, error) {
	var damage error
	if w.q.From != FromClickHouse {
		rows, err := w.read(ctx, p)
		if err == nil || w.q.From == FromBucket || ctx.Err() != nil {
			return rows, err
		}
		damage = err
	}
	var after, before *uint64
	if p.min > 0 {
		n := p.min - 1
		after = &n
	}
	if p.max < math.MaxUint64 {
		n := p.max + 1
		before = &n
	}
	w.queries++
	id := manifest.CopyID{Shard: p.ref.Slice.Shard, Day: p.ref.Slice.Day, Generation: p.ref.Generation, Attempt: p.ref.Attempt}
	b, err := w.f.Rows.Page(ctx, []manifest.CopyID{id}, p.ref.Schema, w.q.Conversation, after, before, int(p.rows)+1, w.newest)
	if err != nil {
		return nil, errors.Join(damage, err)
	}
	rows := w.inPage(b, FromClickHouse)
	if err := w.whole([]part{p}, rows, after, before); err != nil {
		return nil, errors.Join(damage, err)
	}
	return rows, nil
}

// inPage gives a batch's rows of the conversation inside the anchor, in page order.
func (w *walk) inPage(b *message.Batch, from Store) []Row {
	var rows []Row
	for i := range b.Len() {
		if bytes.Equal(b.Conversation(i), w.q.Conversation) && w.inside(b.Cursor(i)) {
			rows = append(rows, Row{b, i, from})
		}
	}
	if w.newest {
		slices.Reverse(rows)
	}
	return rows
}

// merge adds rows to those loaded, in page order; a row that is there already (by
// its cursor and message ID) is not added again.
func (w *walk) merge(rows []Row) {
	w.rows = append(w.rows, rows...)
	slices.SortStableFunc(w.rows, func(a, b Row) int {
		c := message.Compare(a.Batch, a.Index, b.Batch, b.Index)
		if w.newest {
			return -c
		}
		return c
	})
	w.rows = slices.CompactFunc(w.rows, func(a, b Row) bool { return a.MessageID() == b.MessageID() && a.Cursor() == b.Cursor() })
}

// clickhouse reads the nearest of the parts from ClickHouse with one query: of the
// segments that share the first one's schema. It is false when a copy there is not
// verified.
func (w *walk) clickhouse(ctx context.Context, batch []part) (bool, error) {
	schema := batch[0].ref.Schema
	n := 0
	var ids []manifest.CopyID
	for n < len(batch) && batch[n].ref.Schema.Equal(schema) {
		ref := batch[n].ref
		if !ref.ClickHouse {
			break
		}
		id := manifest.CopyID{Shard: ref.Slice.Shard, Day: ref.Slice.Day, Generation: ref.Generation, Attempt: ref.Attempt}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		n++
	}
	if n == 0 {
		return false, nil
	}
	chosen := batch[:n]
	// All parts of the same copies are asked in one, whichever of them are in the batch.
	of := func(p part) bool {
		return slices.ContainsFunc(chosen, func(c part) bool { return c.ref.Key == p.ref.Key })
	}
	after, before := w.q.After, w.q.Before
	switch near := w.near(chosen[0]); { // what is nearer was read before
	case w.newest && near < math.MaxUint64 && (before == nil || near+1 < *before):
		near++
		before = &near
	case !w.newest && near > 0 && (after == nil || near-1 > *after):
		near--
		after = &near
	}
	for limit := w.limit + 1 - w.safe() + 8; ; limit *= 2 {
		w.queries++
		b, err := w.f.Rows.Page(ctx, ids, schema, w.q.Conversation, after, before, limit, w.newest)
		if err != nil {
			return false, err
		}
		rows := w.inPage(b, FromClickHouse)
		if len(rows) < limit { // all there is
			if err := w.whole(chosen, rows, after, before); err != nil {
				return false, err
			}
			w.merge(rows)
			w.parts = slices.DeleteFunc(w.parts, of)
			return true, nil
		}
		far := rows[len(rows)-1].Cursor()
		if far == rows[0].Cursor() {
			continue // one cursor fills the answer: ask for more, or the page would never end
		}
		read := [2]*uint64{after, before} // rows beyond far were not read, and of those at it perhaps not all
		if w.newest {
			read[0] = &far
		} else {
			read[1] = &far
		}
		if err := w.whole(chosen, rows, read[0], read[1]); err != nil {
			return false, err
		}
		w.merge(rows)
		// What is left of these parts lies at or behind the far end. The first part may
		// be behind others now, so they are put in order again.
		w.parts = slices.DeleteFunc(w.parts, func(p part) bool {
			if !of(p) {
				return false
			}
			if w.newest {
				return p.min > far
			}
			return p.max < far
		})
		for i := range w.parts {
			if of(w.parts[i]) {
				if w.newest {
					w.parts[i].max = min(w.parts[i].max, far)
				} else {
					w.parts[i].min = max(w.parts[i].min, far)
				}
			}
		}
		w.order()
		return true, nil
	}
}

// errLacks says that ClickHouse has fewer rows of a copy than were verified.
var errLacks = errors.New("ClickHouse lacks rows of a verified copy (was it emptied, replaced or set back?): see coldtier verify")

// whole compares what ClickHouse gave of the parts' segments between two cursors,
// both exclusive, with what the manifest knows of them: the number of rows of a
// segment that lies between them as a whole, and the ends of one that does in part.
// An answer without rows proves nothing by itself, and taken for complete it would
// be a gap.
func (w *walk) whole(parts []part, rows []Row, after, before *uint64) error {
	between := func(c uint64) bool { return (after == nil || c > *after) && (before == nil || c < *before) }
	got, want := int64(0), int64(0)
	have := map[uint64]bool{}
	for _, r := range rows {
		if between(r.Cursor()) {
			got++
			have[r.Cursor()] = true
		}
	}
	seen := map[string]bool{}
	for _, p := range parts {
		if seen[p.ref.Key] {
			continue
		}
		seen[p.ref.Key] = true
		sp := p.ref.Span
		low, high := between(sp.MinCursor), between(sp.MaxCursor)
		if low && high {
			want += sp.Rows
		}
		if low && !have[sp.MinCursor] || high && !have[sp.MaxCursor] {
			return fmt.Errorf("%w: slice %s, conversation %s", errLacks, p.ref.Slice, w.q.Conversation)
		}
	}
	if got < want {
		return fmt.Errorf("%w: %d of %d rows from slice %s on", errLacks, got, want, parts[0].ref.Slice)
	}
	return nil
}

func (w *walk) miss(p part, err error) {
	reason := "it cannot be read: " + err.Error()
	switch {
	case errors.Is(err, ErrNotFound):
		reason = "the object is missing from the bucket: " + err.Error()
	case errors.Is(err, segment.ErrCorrupt):
		reason = "the object is damaged: " + err.Error()
	}
	w.f.Log.Error("part of the history cannot be read", "slice", p.ref.Slice.String(), "key", p.ref.Key, "error", err)
	w.missing = append(w.missing, Missing{Slice: p.ref.Slice, Key: p.ref.Key, MinCursor: p.ref.Span.MinCursor, MaxCursor: p.ref.Span.MaxCursor, Reason: reason})
}
