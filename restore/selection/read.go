package selection

import (
	"context"
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Read is what was read of a slice.
type Read struct {
	Slice       manifest.SliceKey   `json:"slice"`
	Generation  uint32              `json:"generation"`
	Rows        uint64              `json:"rows"`        // that were given
	Fingerprint message.Fingerprint `json:"fingerprint"` // of them, with their statuses
	Statuses    uint64              `json:"statuses,omitempty"`
	Requests    int                 `json:"requests"`
	Bytes       int64               `json:"bytes"`
	Damaged     []*Damage           `json:"damaged,omitempty"`
}

// Read gives the selected rows of a slice to fn, in batches of a row group at most,
// which are the callee's to keep. fn is called from one goroutine at a time, and an
// error of it ends the reading and is returned.
//
// Rows that the bucket does not give are taken from ClickHouse, where that has them as
// they were archived; where not, all other rows are given all the same and the error
// names each of those that are missing (Damage).
func (r *Reader) Read(ctx context.Context, sel Selection, s Slice, fn func(*message.Batch) error) (*Read, error) {
	out := &Read{Slice: s.SliceKey, Generation: s.Live.Live}
	src, err := r.source(ctx, s)
	if err != nil {
		return out, fmt.Errorf("slice %s: %w", s.SliceKey, err)
	}
	out.Generation = src.id.Generation
	if src.statuses, err = r.statuses(ctx, sel, s); err != nil {
		return out, fmt.Errorf("slice %s: %w", s.SliceKey, err)
	}
	if err := src.read(ctx, r, out, fn); err != nil {
		return out, fmt.Errorf("slice %s generation %d: %w", s.SliceKey, out.Generation, err)
	}
	return out, src.lost(out)
}

// source is what is to be read of one generation.
type source struct {
	slice    manifest.SliceKey
	id       manifest.CopyID
	schema   *message.Schema
	want     *message.Fingerprint // of all its rows; nil where not all are read
	from, to uint64               // message IDs that are given
	objects  []*object
	statuses *overlay
}

// object is an object and its segments that are read.
type object struct {
	key    string
	file   segment.File
	spans  []segment.Span
	starts []int64               // first row of each row group
	got    []message.Fingerprint // of each span, so far
	gaps   []int                 // row groups that could not be read
	last   *message.Batch        // the last one, to see the order
}

// source finds what is to be read of a slice.
func (r *Reader) source(ctx context.Context, s Slice) (*source, error) {
	src := &source{slice: s.SliceKey, from: s.From, to: s.To}
	if s.Conversations != nil {
		return src, r.segments(ctx, s, src)
	}
	c, err := r.Manifest.LoadCopy(ctx, s.ID, s.Live.Live)
	if err != nil {
		return nil, err
	}
	want := c.Fingerprint()
	src.id, src.schema, src.want = c.ID(), c.Schema, &want
	for i := range c.Objects {
		o := &c.Objects[i]
		src.objects = append(src.objects, &object{key: o.Key, file: o.File, spans: o.Segs})
	}
	return src, nil
}

// segments finds the segments of a slice's selected conversations. The slice may get
// its next generation meanwhile; all of them are of one.
func (r *Reader) segments(ctx context.Context, s Slice, src *source) error {
	for range 3 {
		src.objects = nil
		byKey := map[string]*object{}
		mixed := false
		for _, c := range s.Conversations {
			refs, err := r.Manifest.Segments(ctx, manifest.SegmentQuery{Conversation: c, Days: []snowflake.Day{s.Day}, Oldest: true, Limit: mostSegments})
			if err != nil {
				return err
			}
			for _, ref := range refs {
				if ref.SliceID != s.ID {
					continue
				}
				id := manifest.CopyID{Shard: ref.Slice.Shard, Day: ref.Slice.Day, Generation: ref.Generation, Attempt: ref.Attempt}
				if len(src.objects) == 0 {
					src.id, src.schema = id, ref.Schema
				}
				mixed = mixed || id != src.id
				o := byKey[ref.Key]
				if o == nil {
					o = &object{key: ref.Key, file: ref.File}
					byKey[ref.Key] = o
					src.objects = append(src.objects, o)
				}
				o.spans = append(o.spans, ref.Span)
			}
		}
		if !mixed {
			for _, o := range src.objects {
				sortSpans(o.spans)
			}
			return nil
		}
	}
	return errors.New("its copy is replaced again and again: look what runs")
}

// read reads all of it.
func (src *source) read(ctx context.Context, r *Reader, out *Read, fn func(*message.Batch) error) error {
	for _, o := range src.objects {
		o.prepare()
	}
	var read message.Fingerprint
	give := func(p *part) error {
		read = read.Add(p.read)
		if p.given == nil || p.given.Len() == 0 {
			return nil
		}
		out.Rows += uint64(p.given.Len()) //nolint:gosec // a count
		out.Fingerprint = out.Fingerprint.Add(p.sum)
		out.Statuses += p.statuses
		return fn(p.given)
	}
	err := r.stream(ctx, src, func(res *result) error {
		out.Requests, out.Bytes = out.Requests+res.requests, out.Bytes+res.bytes
		for _, p := range res.parts {
			if p.err != nil {
				res.o.gaps = append(res.o.gaps, p.group)
				out.damage(src, res.o, p)
				continue
			}
			if err := res.o.merge(p); err != nil {
				return fmt.Errorf("object %s: %w", res.o.key, err)
			}
			if err := give(p); err != nil {
				return err
			}
		}
		if res.final {
			return res.o.check()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := src.replace(ctx, r, out, give); err != nil {
		return err
	}
	for _, d := range out.Damaged {
		if !d.Replaced {
			return nil // lost says so
		}
	}
	if src.want != nil && read != *src.want {
		return fmt.Errorf("%w: its objects hold %s, its commit says %s", ErrMismatch, read, *src.want)
	}
	return nil
}

// damage notes a row group that could not be read, beside the one before where it can.
func (out *Read) damage(src *source, o *object, p *part) {
	first, rows := o.starts[p.group], o.file.RowGroups[p.group].Rows
	if n := len(out.Damaged); n > 0 {
		if d := out.Damaged[n-1]; d.Key == o.key && d.FirstRow+d.Rows == first && errors.Is(kind(d.err), kind(p.err)) {
			d.Rows += rows
			return
		}
	}
	out.Damaged = append(out.Damaged, &Damage{Slice: src.slice, Generation: src.id.Generation, Key: o.key, FirstRow: first, Rows: rows, Reason: p.err.Error(), err: p.err})
}

// lost joins the damages that nothing replaced.
func (src *source) lost(out *Read) error {
	var errs []error
	for _, d := range out.Damaged {
		if !d.Replaced {
			errs = append(errs, d)
		}
	}
	return errors.Join(errs...)
}

// Known is the fingerprint that the selected rows of a slice will have, where that is
// known without reading them: all rows of it are selected, and none has another status
// than it was archived with.
func (r *Reader) Known(ctx context.Context, sel Selection, s Slice) (f message.Fingerprint, ok bool, err error) {
	if !s.Whole() {
		return f, false, nil
	}
	o, err := r.statuses(ctx, sel, s)
	if err != nil || o != nil {
		return f, false, err
	}
	c, err := r.Manifest.LoadHead(ctx, s.ID, s.Live.Live)
	if err != nil {
		return f, false, err
	}
	return c.Fingerprint(), true, nil
}
