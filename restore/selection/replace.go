package selection

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
)

// replace takes the rows of gaps from ClickHouse. Rows cannot be taken back once they are
// given, so they are read twice: to see that each segment is then as its fingerprint
// says, and to give them.
func (src *source) replace(ctx context.Context, r *Reader, out *Read, give func(*part) error) error {
	if r.Rows == nil || len(out.Damaged) == 0 {
		return nil
	}
	m := newMissing(src)
	sums := make([]message.Fingerprint, len(m.spans))
	var h message.Hasher
	err := r.Rows.ReadCopy(ctx, src.id, src.schema, func(b *message.Batch) error {
		return m.each(b, func(span, row int) error {
			sums[span] = sums[span].Add(h.Batch(b, row, row+1))
			return nil
		}, nil)
	})
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		for _, d := range out.Damaged {
			d.Reason += "; ClickHouse does not give them either: " + err.Error()
		}
		return nil
	}
	good := map[string]bool{} // keys of objects of which every gap is filled
	for _, o := range src.objects {
		good[o.key] = true
	}
	for i, s := range m.spans {
		own := m.span(i)
		if s.good = s.o.got[s.at].Add(sums[i]) == own.Fingerprint; !s.good {
			good[s.o.key] = false
			for _, d := range out.Damaged {
				if d.Key == s.o.key {
					d.Reason += fmt.Sprintf("; ClickHouse does not have the rows of conversation %q as they were archived", own.Conversation)
				}
			}
		}
	}
	for _, d := range out.Damaged {
		d.Replaced = good[d.Key]
	}
	m.restart()
	err = r.Rows.ReadCopy(ctx, src.id, src.schema, func(b *message.Batch) error {
		kept := b.Clone() // fn may keep it
		x := newTaker(src, 0, kept)
		err := m.each(kept, func(span, row int) error {
			if !m.spans[span].good {
				return x.skip(row)
			}
			return x.take(span, row)
		}, x.skip)
		if err != nil {
			return err
		}
		p := x.done()
		for span, f := range p.spans {
			sums[span] = sums[span].Sub(f)
		}
		return give(p)
	})
	for i, s := range m.spans {
		if err == nil && s.good && sums[i] != (message.Fingerprint{}) {
			err = fmt.Errorf("ClickHouse: %w: the rows of conversation %q changed while they were read", ErrMismatch, m.span(i).Conversation)
		}
	}
	return err
}

// missing are the spans of conversations with gaps.
type missing struct {
	spans []*gapSpan
	by    map[string][]int // places in spans, in the order of their rows
	seen  map[string]int64 // rows of a conversation that went by
}

type gapSpan struct {
	o    *object
	at   int // in o.spans
	good bool
}

func newMissing(src *source) *missing {
	m := &missing{by: map[string][]int{}}
	for _, o := range src.objects {
		for _, s := range o.spans {
			if o.gapped(s) {
				m.by[string(s.Conversation)] = nil
			}
		}
	}
	for _, o := range src.objects {
		for i, s := range o.spans {
			if list, ok := m.by[string(s.Conversation)]; ok {
				m.by[string(s.Conversation)] = append(list, len(m.spans))
				m.spans = append(m.spans, &gapSpan{o: o, at: i})
			}
		}
	}
	for _, list := range m.by { // of one that lies in several objects
		slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(m.span(a).MinCursor, m.span(b).MinCursor) })
	}
	m.restart()
	return m
}

func (m *missing) span(i int) *segment.Span { return &m.spans[i].o.spans[m.spans[i].at] }

func (m *missing) restart() { m.seen = map[string]int64{} }

// each calls take for the rows of a batch that lie in gaps, and skip for the others.
// ClickHouse gives a conversation's rows in the order in which its object has them.
func (m *missing) each(b *message.Batch, take func(span, row int) error, skip func(row int) error) error {
	for i := range b.Len() {
		conv := string(b.Conversation(i))
		list := m.by[conv]
		at := -1
		if len(list) > 0 {
			n := m.seen[conv]
			m.seen[conv]++
			for _, k := range list {
				s := m.span(k)
				if n < s.Rows {
					if m.spans[k].o.gap(s.FirstRow + n) {
						at = k
					}
					break
				}
				n -= s.Rows
			}
		}
		switch {
		case at >= 0:
			if err := take(at, i); err != nil {
				return err
			}
		case skip != nil:
			if err := skip(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// gap says whether a row of the object lies in a row group that could not be read.
func (o *object) gap(row int64) bool {
	for _, g := range o.gaps {
		if row >= o.starts[g] && row < o.starts[g]+o.file.RowGroups[g].Rows {
			return true
		}
	}
	return false
}
