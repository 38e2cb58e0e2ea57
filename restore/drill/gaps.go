package drill

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore"
)

// reach is the cursors that a page speaks of: all rows of them must be on it.
type reach struct {
	lo, hi uint64 // inclusive
	none   bool
}

// reached works out, from a page's own words, which cursors it speaks of: from its anchor
// to its last row; to the end where it says that there is no more, or is complete and not
// full.
func reached(a *asked, descending bool) (out reach) {
	q, p := &a.q, a.page
	out.hi = math.MaxUint64
	full := p.State != restore.Complete || p.HasMore || len(p.Rows) >= p.Limit
	if p.State == restore.Complete && !p.Cut && len(p.Rows) < p.Limit {
		full = false // it would have had room
	}
	switch {
	case q.Around != nil:
		if len(p.Rows) == 0 {
			out.none = p.State != restore.Complete
			return out
		}
		if p.HasOlder || p.State != restore.Complete {
			out.lo = p.Rows[0].Cursor()
		}
		if p.HasMore || p.State != restore.Complete {
			out.hi = p.Rows[len(p.Rows)-1].Cursor()
		}
		return out
	case q.Before != nil:
		if *q.Before == 0 {
			return reach{none: true}
		}
		out.hi = *q.Before - 1
	case q.After != nil:
		if *q.After == math.MaxUint64 {
			return reach{none: true}
		}
		out.lo = *q.After + 1
	}
	if !full {
		return out
	}
	if len(p.Rows) == 0 {
		return reach{none: true}
	}
	if last := p.Rows[len(p.Rows)-1].Cursor(); descending {
		out.lo = last
	} else {
		out.hi = last
	}
	return out
}

// gaps names rows that the page lacks, or has beside what there is.
func (r *run) gaps(a *asked, descending bool) (bad []string) {
	t := a.t
	x := reached(a, descending)
	on := map[uint64]bool{}
	for _, row := range a.page.Rows {
		id := row.MessageID()
		on[id] = true
		if _, is := t.at[id]; !is && t.covers(r, id) {
			bad = append(bad, fmt.Sprintf("message %d was not restored", id))
		}
		if x.none || row.Cursor() < x.lo || row.Cursor() > x.hi {
			bad = append(bad, fmt.Sprintf("message %d lies on the wrong side of the anchor", id))
		}
	}
	if x.none {
		return bad
	}
	i := sort.Search(len(t.rows), func(i int) bool { return t.rows[i].Cursor >= x.lo })
	for ; i < len(t.rows) && t.rows[i].Cursor <= x.hi; i++ {
		if s := t.rows[i]; !on[s.ID] {
			bad = append(bad, fmt.Sprintf("message %d, which was restored, is missing between those that it has", s.ID))
			if len(bad) > 3 {
				break
			}
		}
	}
	return bad
}

// values compares the page's rows with the restored ones, byte for byte.
func (r *run) values(ctx context.Context, a *asked) (bad []string, err error) {
	batches := map[*restored][]*message.Batch{}
	put := map[uint64]bool{}
	for _, row := range a.page.Rows {
		i, is := a.t.at[row.MessageID()]
		if !is {
			continue
		}
		x, s := a.t.rows[i].table, row.Batch.Schema()
		list := batches[x]
		at := slices.IndexFunc(list, func(b *message.Batch) bool { return b.Schema().Equal(s) })
		if at < 0 {
			at = len(list)
			list = append(list, message.NewBatch(s))
			batches[x] = list
		}
		if err := list[at].AppendFrom(row.Batch, row.Index); err != nil {
			return nil, err
		}
		put[row.MessageID()] = row.Status != nil
	}
	for x, list := range batches {
		for _, b := range list {
			sink, err := x.sink(ctx, b.Schema())
			if err != nil {
				return nil, err
			}
			conflicts, err := patiently(ctx, r, func() (out []conflict, err error) {
				w, absent, err := sink.Compare(ctx, b)
				for _, c := range w.Conflicts {
					out = append(out, conflict{c.MessageID, c.Columns, c.Key})
				}
				for _, id := range absent {
					out = append(out, conflict{id: id})
				}
				return out, err
			})
			if err != nil {
				return nil, err
			}
			for _, c := range conflicts {
				col := b.Schema().StatusColumn()
				if put[c.id] && col >= 0 && len(c.columns) == 1 && c.columns[0] == b.Schema().Columns()[col].Name {
					continue // which is given beside the row
				}
				bad = append(bad, fmt.Sprintf("message %d has other bytes than were restored, in %v", c.id, c.columns))
			}
		}
	}
	return bad, nil
}
