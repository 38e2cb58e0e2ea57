package selection

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
)

func sortSpans(spans []segment.Span) {
	slices.SortFunc(spans, func(a, b segment.Span) int { return cmp.Compare(a.FirstRow, b.FirstRow) })
}

func (o *object) prepare() {
	o.got = make([]message.Fingerprint, len(o.spans))
	o.starts = make([]int64, len(o.file.RowGroups))
	at := int64(0)
	for i, g := range o.file.RowGroups {
		o.starts[i] = at
		at += g.Rows
	}
}

// part is a row group's rows, or why there are none.
type part struct {
	group    int
	err      error
	all      *message.Batch
	read     message.Fingerprint         // of those in spans that are read
	spans    map[int]message.Fingerprint // the same, by span
	given    *message.Batch              // those of them that are selected
	sum      message.Fingerprint         // of the given ones, as they are given
	statuses uint64                      // given ones that are not as they were archived
}

// part looks at the rows of a row group: which spans they belong to, which of them
// are selected, and how they read now.
func (src *source) part(o *object, group int, b *message.Batch) *part {
	x := newTaker(src, group, b)
	fail := func(err error) *part { return &part{group: group, err: err} }
	first := o.starts[group]
	at := 0
	for i := range b.Len() {
		if i > 0 && message.Compare(b, i-1, b, i) >= 0 {
			return fail(fmt.Errorf("%w: message %d is out of order or twice", ErrMismatch, b.MessageID(i)))
		}
		row := first + int64(i)
		for at < len(o.spans) && row >= o.spans[at].FirstRow+o.spans[at].Rows {
			at++
		}
		if at == len(o.spans) || row < o.spans[at].FirstRow {
			if err := x.skip(i); err != nil {
				return fail(err)
			}
			continue
		}
		if !bytes.Equal(o.spans[at].Conversation, b.Conversation(i)) {
			return fail(fmt.Errorf("%w: message %d is of another conversation", ErrMismatch, b.MessageID(i)))
		}
		if err := x.take(at, i); err != nil {
			return fail(err)
		}
	}
	return x.done()
}

// taker makes a part of a batch's rows, which are skipped or taken in order. While all
// of them are given as they are it copies none.
type taker struct {
	src    *source
	p      *part
	b      *message.Batch
	own    bool // p.given is a copy
	h      message.Hasher
	values [][]byte
	span   int // that rows are taken for
	sum    message.Fingerprint
}

func newTaker(src *source, group int, b *message.Batch) *taker {
	return &taker{src: src, b: b, p: &part{group: group, all: b, given: b, spans: map[int]message.Fingerprint{}}}
}

// copied goes over to a copy of the rows before i, of which all were given.
func (x *taker) copied(i int) error {
	if x.own {
		return nil
	}
	x.own, x.p.given = true, message.NewBatch(x.b.Schema())
	for j := range i {
		if err := x.p.given.AppendFrom(x.b, j); err != nil {
			return err
		}
	}
	return nil
}

func (x *taker) skip(i int) error { return x.copied(i) }

// take counts row i for a span, and gives it if it is selected.
func (x *taker) take(span, i int) error {
	f := x.h.Batch(x.b, i, i+1)
	if span != x.span {
		x.turn(span)
	}
	x.sum = x.sum.Add(f)
	if id := x.b.MessageID(i); id < x.src.from || id >= x.src.to {
		return x.skip(i)
	}
	col, text, changed := x.src.statuses.of(x.b, i)
	if !changed {
		x.p.sum = x.p.sum.Add(f)
		if x.own {
			return x.p.given.AppendFrom(x.b, i)
		}
		return nil
	}
	if err := x.copied(i); err != nil {
		return err
	}
	x.values = x.b.Row(x.values[:0], i)
	x.values[col] = text
	x.p.sum = x.p.sum.Add(x.h.Row(x.values))
	x.p.statuses++
	return x.p.given.Append(x.values)
}

// turn enters what was taken for a span, and goes over to another one.
func (x *taker) turn(span int) {
	if x.sum.Rows > 0 {
		x.p.read = x.p.read.Add(x.sum)
		x.p.spans[x.span] = x.p.spans[x.span].Add(x.sum)
	}
	x.span, x.sum = span, message.Fingerprint{}
}

func (x *taker) done() *part {
	x.turn(x.span)
	return x.p
}

// merge adds a row group to what is known of its object. They come in order.
func (o *object) merge(p *part) error {
	for at, f := range p.spans {
		o.got[at] = o.got[at].Add(f)
	}
	if p.all.Len() == 0 {
		return nil
	}
	if o.last != nil && message.Compare(o.last, o.last.Len()-1, p.all, 0) >= 0 {
		return fmt.Errorf("%w: message %d is out of order or twice", ErrMismatch, p.all.MessageID(0))
	}
	o.last = p.all
	return nil
}

// check compares the spans that were read whole, when all of the object was read.
func (o *object) check() error {
	o.last = nil
	for i, s := range o.spans {
		if !o.gapped(s) && o.got[i] != s.Fingerprint {
			return fmt.Errorf("object %s, rows [%d, %d): %w: they are %s, the manifest says %s", o.key, s.FirstRow, s.FirstRow+s.Rows, ErrMismatch, o.got[i], s.Fingerprint)
		}
	}
	return nil
}

// gapped says whether rows of a span could not be read.
func (o *object) gapped(s segment.Span) bool {
	return slices.ContainsFunc(o.gaps, func(g int) bool { return g >= s.FirstGroup && g <= s.LastGroup })
}
