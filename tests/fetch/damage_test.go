package fetch

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
)

// segments are all segments of a conversation.
func (c *cold) segments(conversation string) []manifest.SegmentRef {
	c.T.Helper()
	refs, err := c.Store().Segments(c.T.Context(), manifest.SegmentQuery{Conversation: []byte(conversation), Limit: math.MaxInt32})
	if err != nil {
		c.T.Fatal(err)
	}
	return refs
}

// hit says which row group of an object a byte lies in; -1: none.
func hit(ref manifest.SegmentRef, at int) int {
	return slices.IndexFunc(ref.File.RowGroups, func(g segment.RowGroup) bool { return int64(at) >= g.Offset && int64(at) < g.Offset+g.Length })
}

// put changes an object and gives what brings it back.
func (c *cold) put(t *testing.T, key string, change func([]byte) []byte) (back func()) {
	t.Helper()
	full := "im/" + key
	was := c.Object(full)
	if now := change(bytes.Clone(was)); now != nil {
		c.PutObject(full, now)
	} else if _, err := c.S3.Client().DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &c.S3.Bucket, Key: &full}); err != nil {
		t.Fatal(err)
	}
	return func() { c.PutObject(full, was) }
}

// history reads a conversation to its end in one direction and passes what is missing by.
// What it gives of each part is exact, and it gives all but what was missing.
func (c *cold) history(t *testing.T, r *rig, q restore.Query) (rows int, missing []restore.Missing) {
	t.Helper()
	seen := map[uint64]bool{}
	for range 1000 {
		p, err := r.Fetch(t.Context(), q)
		if err == nil {
			err = c.truth.check(q, p)
		}
		if err != nil {
			t.Fatalf("%s: %v", describe(q), err)
		}
		for _, row := range p.Rows {
			seen[row.MessageID()] = true
		}
		next := p.Next
		switch {
		case p.State == restore.Complete && !p.HasMore:
			return len(seen), missing
		case p.State != restore.Complete:
			m := p.Missing[0]
			for _, other := range p.Missing[1:] { // the nearest
				if q.After != nil && other.MinCursor < m.MinCursor || q.After == nil && other.MaxCursor > m.MaxCursor {
					m = other
				}
			}
			if !slices.ContainsFunc(missing, func(x restore.Missing) bool { return x.Key == m.Key && x.MinCursor == m.MinCursor }) {
				missing = append(missing, m)
			}
			next = &m.MinCursor
			if q.After != nil {
				next = &m.MaxCursor
			}
		}
		if q.After != nil {
			q.After = next
		} else {
			q.Before = next
		}
	}
	t.Fatalf("%s: no end", describe(q))
	return 0, nil
}

// A flipped bit anywhere in an object never gives a wrong row and never a crash: the pages
// that need its place are short and say which object is damaged, all others are as ever.
func testBitFlips(t *testing.T, c *cold) {
	rng := random(t)
	r := c.rig(t, through{}, withoutRows)
	names := c.truth.names()
	damaged, harmless := 0, 0
	for range number(t, 200) {
		name := names[rng.IntN(len(names))]
		refs := c.segments(name)
		ref := refs[rng.IntN(len(refs))]
		var at int
		back := c.put(t, ref.Key, func(b []byte) []byte {
			at = rng.IntN(len(b))
			if rng.IntN(4) == 0 {
				at = len(b) - 1 - rng.IntN(min(len(b), 400)) // the footer
			}
			b[at] ^= 1 << rng.IntN(8)
			return b
		})
		r.start(t, withoutRows)
		if hit(ref, at) >= 0 {
			damaged++
			c.readDamaged(t, r, rng, name, ref)
		} else {
			harmless++
			c.readWhole(t, r, name)
			c.readByID(t, r, rng, name, "")
		}
		back()
	}
	t.Logf("%d bits of row groups, %d of other bytes", damaged, harmless)
}

// readDamaged reads a conversation of which one object is damaged.
func (c *cold) readDamaged(t *testing.T, r *rig, rng *rand.Rand, name string, ref manifest.SegmentRef) {
	t.Helper()
	q := restore.Query{Conversation: []byte(name), Limit: 1 + rng.IntN(80)}
	if rng.IntN(2) == 0 {
		q.After = new(uint64) // no sequence is 0
	}
	rows, missing := c.history(t, r, q)
	if len(missing) != 1 || missing[0].Cause != restore.CauseDamaged || missing[0].Key != ref.Key || missing[0].Slice != ref.Slice {
		t.Fatalf("%s: missing is %+v, want object %s, damaged", describe(q), missing, ref.Key)
	}
	if least := c.least(name, ref); rows < least || rows > len(c.truth[name])-int(ref.Span.Rows) {
		t.Fatalf("%s: %d messages, want at least %d of %d", describe(q), rows, least, len(c.truth[name]))
	}
	if n := r.metric(t, "damaged_total"); n == 0 {
		t.Error("the alarm is silent")
	}
	c.readByID(t, r, rng, name, ref.Key)
}

// least is how many messages are there when an object is not: behind it all is there again,
// but for rows of other objects whose cursors lie within.
func (c *cold) least(name string, ref manifest.SegmentRef) (n int) {
	for _, m := range c.truth[name] {
		if m.seq < ref.Span.MinCursor || m.seq > ref.Span.MaxCursor {
			n++
		}
	}
	return n
}

// readWhole demands a conversation as a whole.
func (c *cold) readWhole(t *testing.T, r *rig, name string) {
	t.Helper()
	for _, q := range []restore.Query{{Conversation: []byte(name)}, {Conversation: []byte(name), After: new(uint64)}} {
		if rows, missing := c.history(t, r, q); rows != len(c.truth[name]) || len(missing) > 0 {
			t.Fatalf("%s: %d messages of %d, missing %+v", describe(q), rows, len(c.truth[name]), missing)
		}
	}
}

// readByID asks for some messages by their IDs: those of the damaged object are unknown, and
// all others are there.
func (c *cold) readByID(t *testing.T, r *rig, rng *rand.Rand, name, damaged string) {
	t.Helper()
	q := restore.MessagesQuery{Conversation: []byte(name)}
	want := map[uint64]msg{}
	for range 10 {
		m := c.truth[name][rng.IntN(len(c.truth[name]))]
		q.IDs, want[m.id] = append(q.IDs, m.id), m
	}
	absent := q.IDs[0] ^ 1<<21 ^ 1<<13
	q.IDs = append(q.IDs, absent)
	delete(want, absent)
	a, err := r.Messages(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range a.Rows {
		if err := want[row.MessageID()].same(rowOf(row)); err != nil {
			t.Fatal(err)
		}
		delete(want, row.MessageID())
	}
	left := slices.Sorted(maps.Keys(want))
	unknown := slices.DeleteFunc(slices.Clone(a.Unknown), func(id uint64) bool { return id == absent })
	if !slices.Equal(left, unknown) || (len(a.Unknown) > 0) != (a.State != restore.Complete) || damaged == "" && a.State != restore.Complete {
		t.Fatalf("%s of %v: unknown %v, not given %v", a.State, q.IDs, a.Unknown, left)
	}
	for _, m := range a.Missing {
		if m.Key != damaged || m.Cause != restore.CauseDamaged && m.Cause != restore.CauseLost {
			t.Fatalf("missing %+v, want %s", m, damaged)
		}
	}
}

// slowRows is a ClickHouse that answers only after the bucket has.
type slowRows struct {
	restore.Rows
	first <-chan struct{}
}

func (r slowRows) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	select {
	case <-r.first:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return r.Rows.Spans(ctx, spans, s, conversation, limit)
}

// tellingObjects closes done after its first answer.
type tellingObjects struct {
	restore.Objects
	once *sync.Once
	done chan struct{}
}

func (o tellingObjects) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	defer o.once.Do(func() { close(o.done) })
	return o.Objects.ReadRange(ctx, key, off, n)
}

// What is damaged in the bucket ClickHouse gives, also when the bucket is asked beside it
// and is first.
func testDamageIsHealedByClickHouse(t *testing.T, c *cold) {
	rng := random(t)
	r := c.stores(t, through{})
	names := c.truth.names()
	for range number(t, 24) {
		name := names[rng.IntN(len(names))]
		var backs []func()
		for _, ref := range c.segments(name) {
			backs = append(backs, c.put(t, ref.Key, func(b []byte) []byte { return flipEach(ref, rng, b) }))
		}
		asked := make(chan struct{})
		r.start(t, func(cfg *restore.Config, d *restore.Deps) {
			cfg.HedgeAfter, cfg.Budget = time.Millisecond, time.Minute
			d.Objects, d.Rows = tellingObjects{d.Objects, new(sync.Once), asked}, slowRows{d.Rows, asked}
		})
		c.readWhole(t, r, name)
		if n := r.metric(t, "damaged_total"); n == 0 {
			t.Fatal("the bucket was not asked, or its damage not seen")
		}
		for _, back := range backs {
			back()
		}
	}
}

// flipEach flips a bit in each row group.
func flipEach(ref manifest.SegmentRef, rng *rand.Rand, b []byte) []byte {
	for _, g := range ref.File.RowGroups {
		b[g.Offset+rng.Int64N(g.Length)] ^= 1 << rng.IntN(8)
	}
	return b
}

// A2, S8: an object that is cut short, empty, another's or gone: the other objects of its
// conversation still answer, and the page says what is missing and how.
func testLostObjects(t *testing.T, c *cold) {
	rng := random(t)
	r := c.rig(t, through{}, withoutRows)
	name := c.truth.names()[0]
	refs := c.segments(name)
	other := c.Object("im/" + c.segments(c.truth.names()[1])[0].Key)
	for how, d := range map[string]struct {
		change func(b []byte, half int64) []byte // half: the middle of the first row group
		cause  restore.Cause
	}{
		"gone":      {func([]byte, int64) []byte { return nil }, restore.CauseLost},
		"cut":       {func(b []byte, half int64) []byte { return b[:half] }, restore.CauseDamaged},
		"empty":     {func([]byte, int64) []byte { return []byte{} }, restore.CauseDamaged},
		"another's": {func([]byte, int64) []byte { return other }, restore.CauseDamaged},
	} {
		ref := refs[rng.IntN(len(refs))]
		first := ref.File.RowGroups[0]
		back := c.put(t, ref.Key, func(b []byte) []byte { return d.change(b, first.Offset+first.Length/2) })
		r.start(t, withoutRows)
		for _, q := range []restore.Query{{Conversation: []byte(name), Limit: 30}, {Conversation: []byte(name), After: new(uint64), Limit: 30}} {
			rows, missing := c.history(t, r, q)
			if len(missing) == 0 || rows < c.least(name, ref) {
				t.Errorf("%s: %d of %d messages, missing %+v", how, rows, len(c.truth[name]), missing)
			}
			for _, m := range missing {
				if m.Key != ref.Key || m.Cause != d.cause {
					t.Errorf("%s: missing %+v, want object %s, %s", how, m, ref.Key, d.cause)
				}
			}
		}
		c.readByID(t, r, rng, name, ref.Key)
		back()
	}
	r.start(t, withoutRows)
	c.readWhole(t, r, name)
}

// S8: no bucket at all, or no right to it, is neither damage nor an empty page.
func testNoBucket(t *testing.T, c *cold) {
	r := c.rig(t, through{bucket: "t-there-is-none"}, withoutRows)
	q := restore.Query{Conversation: []byte(c.truth.names()[0])}
	p, err := r.Fetch(t.Context(), q)
	if err = errors.Join(err, c.truth.check(q, p)); err != nil {
		t.Fatal(err)
	}
	if len(p.Rows) > 0 || len(p.Missing) == 0 || p.Missing[0].Cause != restore.CauseStores || r.metric(t, "damaged_total") > 0 {
		t.Errorf("state %s, missing %+v", p.State, p.Missing)
	}
}
