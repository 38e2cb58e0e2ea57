package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/restore/drill/scratch"
	"github.com/coldtier/coldtier/restore/rehydrate"
	"github.com/coldtier/coldtier/restore/selection"
)

// truth is what pages of a conversation must show.
type truth struct {
	conversation []byte
	days         map[snowflake.Day]bool // of which all its rows are restored; nil: all days
	rows         []spot                 // in order
	at           map[uint64]int         // message ID -> its place in rows
}

// spot is a restored row.
type spot struct {
	scratch.Place
	table *restored
}

// restored is a table of a scratch database.
type restored struct {
	p     *place
	table string
	mu    sync.Mutex
	sinks map[string]rehydrate.Sink // by schema
}

// What the read drill takes: conversations, and what a whole one may have.
const (
	conversations   = 24
	wholeSegments   = 2000
	wholeRows       = 20_000
	allRows         = 200_000
	triesToChoose   = 8
	segmentsOfASlot = 1 << 20
)

// truths chooses conversations of the sample, restores those that are small enough whole,
// and gives what pages of them must show; of the others that is what the sample has.
func (r *run) truths(ctx context.Context, c *check) (all []*truth, err error) {
	chosen, err := r.choose(ctx)
	if err != nil {
		return nil, err
	}
	refs := map[string][]manifest.SegmentRef{}
	var whole [][]byte
	left := uint64(allRows)
	for _, conv := range chosen {
		list, err := r.Deps.Manifest.Segments(ctx, manifest.SegmentQuery{Conversation: conv, Oldest: true, Limit: segmentsOfASlot})
		if err != nil {
			return nil, err
		}
		refs[string(conv)] = list
		rows := uint64(0)
		for _, x := range list {
			rows += uint64(x.Span.Rows) //nolint:gosec // a count
		}
		if len(list) <= wholeSegments && rows <= min(wholeRows, left) {
			left -= rows
			whole = append(whole, conv)
		}
	}
	tables, isWhole, err := r.bringWhole(ctx, whole, refs, c)
	if err != nil {
		return nil, err
	}
	for _, conv := range chosen {
		t := &truth{conversation: conv, at: map[uint64]int{}}
		if isWhole[string(conv)] {
			err = r.fromTables(ctx, t, refs[string(conv)], tables)
		} else {
			err = r.fromSample(ctx, t, refs[string(conv)])
		}
		if err != nil {
			return nil, err
		}
		slices.SortFunc(t.rows, func(a, b spot) int { return cmp.Or(cmp.Compare(a.Cursor, b.Cursor), cmp.Compare(a.ID, b.ID)) })
		for i, s := range t.rows {
			t.at[s.ID] = i
		}
		c.count("rows of the truth", int64(len(t.rows)))
		if len(t.rows) > 0 {
			all = append(all, t)
		}
	}
	c.count("conversations", int64(len(all)))
	c.count("of them restored whole", int64(len(isWhole)))
	return all, nil
}

// choose draws conversations out of slices that were restored and found equal.
func (r *run) choose(ctx context.Context) (chosen [][]byte, err error) {
	var from []*sampled
	for _, s := range r.sample {
		if s.equal {
			from = append(from, s)
		}
	}
	if len(from) == 0 {
		return nil, nil
	}
	random := r.random(3)
	loaded := map[*sampled][]manifest.Object{}
	seen := map[string]bool{}
	for try := range triesToChoose * conversations {
		if len(chosen) == conversations {
			break
		}
		s := from[random.IntN(len(from))]
		if loaded[s] == nil {
			copied, err := r.Deps.Manifest.LoadCopy(ctx, s.ID, s.Live.Live)
			if err != nil {
				return nil, err
			}
			loaded[s] = copied.Objects
		}
		o := loaded[s][random.IntN(len(loaded[s]))]
		conv := o.Segs[random.IntN(len(o.Segs))].Conversation
		if try%2 == 0 { // where most rows are, and not only where most conversations are
			conv = ofRow(loaded[s], random.Int64N(int64(s.Rows))) //nolint:gosec // a count
		}
		if !seen[string(conv)] {
			seen[string(conv)] = true
			chosen = append(chosen, conv)
		}
	}
	return chosen, nil
}

// ofRow is the conversation that the n-th row belongs to.
func ofRow(objects []manifest.Object, n int64) []byte {
	for i := range objects {
		for _, x := range objects[i].Segs {
			if n -= x.Rows; n < 0 {
				return x.Conversation
			}
		}
	}
	return objects[0].Segs[0].Conversation // the slice says more rows than its segments, which is found elsewhere
}

// bringWhole restores conversations with all their history, by warm database.
func (r *run) bringWhole(ctx context.Context, list [][]byte, refs map[string][]manifest.SegmentRef, c *check) (tables map[manifest.Shard]*restored, whole map[string]bool, err error) {
	tables, whole = map[manifest.Shard]*restored{}, map[string]bool{}
	in := map[string]bool{}
	for _, conv := range list {
		whole[string(conv)] = true
		for _, x := range refs[string(conv)] {
			in[x.Slice.Shard.Database] = true
		}
	}
	for database := range in {
		p, err := r.places.get(ctx, "c", database, 0)
		if err != nil {
			return nil, nil, err
		}
		rep, err := r.bring(ctx, p, selection.Selection{Conversations: list, Shard: exactly(database+".") + "*"}, rehydrate.NoProgress{})
		switch {
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case errors.Is(err, rehydrate.ErrRefused): // columns came and went: the sample's days have to do
			r.note(report.Info, report.StepRead, "no conversation of "+database+" was restored whole: "+err.Error())
			return tables, map[string]bool{}, nil
		case rep == nil && err != nil:
			return nil, nil, err
		}
		if err != nil {
			named := false
			for i := range rep.Slices {
				for _, d := range rep.Slices[i].Damaged {
					named = true
					c.fail(damaged(d))
				}
			}
			if !named {
				c.fail(report.Place{What: "restore whole conversations: " + err.Error()})
			}
			return tables, map[string]bool{}, nil
		}
		for _, m := range rep.Tables {
			tables[m.Shard] = &restored{p: p, table: m.Table, sinks: map[string]rehydrate.Sink{}}
		}
	}
	return tables, whole, nil
}

// fromTables reads the truth of a conversation that was restored whole.
func (r *run) fromTables(ctx context.Context, t *truth, refs []manifest.SegmentRef, tables map[manifest.Shard]*restored) error {
	seen := map[manifest.Shard]bool{}
	for i := len(refs) - 1; i >= 0; i-- {
		shard := refs[i].Slice.Shard
		x := tables[shard]
		if seen[shard] || x == nil {
			continue
		}
		seen[shard] = true
		list, err := r.Scratch.Places(ctx, x.p.database, x.table, refs[i].Schema, t.conversation, 0, maxID)
		if err != nil {
			return err
		}
		t.add(list, x)
	}
	return nil
}

const maxID = ^uint64(0)

// fromSample reads the truth of a conversation out of the sampled slices: of those days of
// which all its slices are restored.
func (r *run) fromSample(ctx context.Context, t *truth, refs []manifest.SegmentRef) error {
	by := map[manifest.SliceKey]*sampled{}
	for _, s := range r.sample {
		if s.equal {
			by[s.SliceKey] = s
		}
	}
	t.days = map[snowflake.Day]bool{}
	for _, x := range refs {
		if _, seen := t.days[x.Slice.Day]; !seen {
			t.days[x.Slice.Day] = true
		}
		if by[x.Slice] == nil {
			t.days[x.Slice.Day] = false
		}
	}
	seen := map[manifest.SliceKey]bool{}
	for _, x := range refs {
		s := by[x.Slice]
		if s == nil || seen[x.Slice] || !t.days[x.Slice.Day] {
			continue
		}
		seen[x.Slice] = true
		list, err := r.Scratch.Places(ctx, s.at.database, s.table, s.Schema, t.conversation, s.Lo, s.Hi)
		if err != nil {
			return err
		}
		t.add(list, &restored{p: s.at, table: s.table, sinks: map[string]rehydrate.Sink{s.Schema.Hash(): s.sink}})
	}
	return nil
}

func (t *truth) add(list []scratch.Place, x *restored) {
	for _, p := range list {
		t.rows = append(t.rows, spot{p, x})
	}
}

// covers says whether the truth speaks of a message's day.
func (t *truth) covers(r *run, id uint64) bool {
	return t.days == nil || t.days[r.cfg.Layout.DayOf(id, r.cfg.Zone)]
}

// sink looks at the table as rows of a schema see it.
func (x *restored) sink(ctx context.Context, s *message.Schema) (rehydrate.Sink, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := x.sinks[s.Hash()]; k != nil {
		return k, nil
	}
	k, err := x.p.sinkOf(ctx, x.table, s)
	if err != nil {
		return nil, fmt.Errorf("scratch table %s: %w", x.table, err)
	}
	x.sinks[s.Hash()] = k
	return k, nil
}
