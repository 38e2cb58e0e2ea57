package manifest

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
)

// rowsCopy is a copy of rows of one conversation in the chunks of testCopy; the
// carried ones are those that warm does not have.
func rowsCopy(t *testing.T, sl Slice, generation uint32, attempt string, conv string, warm, carried []uint64) *Copy {
	t.Helper()
	rows := slices.Concat(warm, carried)
	slices.Sort(rows)
	var sp segment.Span
	of := func(id uint64) message.Fingerprint { return message.Fingerprint{Hi: id, Lo: 3 * id, Rows: 1} }
	for _, id := range rows {
		sp.Fingerprint = sp.Fingerprint.Add(of(id))
	}
	sp.Conversation, sp.Rows, sp.MinCursor, sp.MaxCursor = []byte(conv), int64(len(rows)), rows[0], rows[len(rows)-1]
	c := spanCopy(t, sl, generation, attempt, []segment.Span{sp})
	step := (sl.Hi - sl.Lo) / 4
	c.Chunks = nil
	for i := range 4 {
		ch := Chunk{Seq: i, From: sl.Lo + uint64(i)*step, To: sl.Lo + uint64(i+1)*step, State: ChunkPresent}
		if i == 3 {
			ch.To = sl.Hi
		}
		for _, id := range warm {
			if id >= ch.From && id < ch.To {
				ch.Warm = ch.Warm.Add(of(id))
			}
		}
		for _, id := range carried {
			if id >= ch.From && id < ch.To {
				ch.Carried = ch.Carried.Add(of(id))
			}
		}
		c.Chunks = append(c.Chunks, ch)
	}
	return c
}

// boundaryModel is a conversation's rows as they really are in warm and in the live
// generations of its slices.
type boundaryModel struct {
	t    *testing.T
	s    *Store
	conv string
	warm map[uint64]bool
	cold map[uint64][]uint64 // by slice
	gone map[uint64]bool     // slices of which rows may be gone from warm
	lost map[uint64]bool     // rows that someone else took out of warm, which nobody has seen yet
}

// check compares the boundary with the rows.
func (m *boundaryModel) check(at string) {
	m.t.Helper()
	all, err := m.s.Boundaries(m.t.Context(), [][]byte{[]byte("nobody"), []byte(m.conv)})
	if err != nil {
		m.t.Fatal(err)
	}
	if n := all[0]; string(n.Conversation) != "nobody" || n.WarmFrom != 0 || !n.WarmAll || n.WarmNone || n.ColdMin != nil || n.ColdMax != nil {
		m.t.Errorf("%s: an unknown conversation is %+v", at, n)
	}
	b := all[1]
	want := Boundary{Conversation: []byte(m.conv), WarmAll: true}
	for id, rows := range m.cold {
		for _, c := range rows {
			if want.ColdMin == nil || c < *want.ColdMin {
				want.ColdMin = &c
			}
			if want.ColdMax == nil || c > *want.ColdMax {
				want.ColdMax = &c
			}
			// What a reader relies on.
			if !m.warm[c] && c >= b.WarmFrom && !m.lost[c] {
				m.t.Errorf("%s: warm lacks cursor %d and is said to be complete from %d on", at, c, b.WarmFrom)
			}
			if m.gone[id] && c >= want.WarmFrom {
				want.WarmAll, want.WarmFrom = false, c+1
			}
		}
	}
	same := func(a, b *uint64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	if b.WarmFrom != want.WarmFrom || b.WarmAll != want.WarmAll || b.WarmNone || !same(b.ColdMin, want.ColdMin) || !same(b.ColdMax, want.ColdMax) {
		m.t.Errorf("%s: %+v, want %+v", at, b, want)
	}
	refs, err := m.s.Segments(m.t.Context(), SegmentQuery{Conversation: []byte(m.conv), Limit: 9})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, r := range refs {
		if r.PurgeBegun != m.gone[r.SliceID] {
			m.t.Errorf("%s: the segment of slice %s says that a purge was begun: %t", at, r.Slice, r.PurgeBegun)
		}
	}
}

// commit copies what warm has of a slice, and what only its live generation has.
func (m *boundaryModel) commit(sl Slice) (*Lease, []uint64) {
	m.t.Helper()
	l := claim(m.t, m.s, sl.ID, Pending, Copying)
	m.check("copying")
	var warm, carried []uint64
	for id := range m.warm {
		if id >= sl.Lo && id < sl.Hi {
			warm = append(warm, id)
		}
	}
	for _, id := range m.cold[sl.ID] {
		if !m.warm[id] {
			carried = append(carried, id)
		}
	}
	slices.Sort(warm)
	c := rowsCopy(m.t, sl, l.Slice().NextGeneration(), l.Attempt(), m.conv, warm, carried)
	before := versions(m.t, m.s)
	if err := m.s.Commit(m.t.Context(), l, c, RecordKey(c.SliceKey, c.Generation), [32]byte{1}); err != nil {
		m.t.Fatal(err)
	}
	if v := versions(m.t, m.s); (v.Live != before.Live) != (len(carried) > 0 && !m.gone[sl.ID]) {
		m.t.Errorf("versions %+v, %+v around a commit that carries %d rows", before, v, len(carried))
	}
	m.gone[sl.ID] = m.gone[sl.ID] || len(carried) > 0
	for _, id := range carried {
		delete(m.lost, id)
	}
	m.check("committed")
	return l, slices.Concat(warm, carried)
}

func (m *boundaryModel) verify(sl Slice, l *Lease, rows []uint64) {
	m.t.Helper()
	if err := m.s.Verified(m.t.Context(), l, slice(m.t, m.s, sl.ID).Generation); err != nil {
		m.t.Fatal(err)
	}
	m.cold[sl.ID] = rows
	m.check("verified")
}

func (m *boundaryModel) grant(l *Lease) *PurgeGrant {
	m.t.Helper()
	g, err := m.s.GrantPurge(m.t.Context(), l, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	m.gone[l.Slice().ID] = true
	m.check("granted")
	return g
}

func (m *boundaryModel) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// deletes purges one chunk of a slice.
func (m *boundaryModel) deletes(g *PurgeGrant, seq int) {
	m.t.Helper()
	m.must(g.ChunkState(m.t.Context(), seq, ChunkDeleting))
	m.check("deleting")
	ch := g.Copy().Chunks[seq]
	for id := range m.warm {
		if id >= ch.From && id < ch.To {
			delete(m.warm, id)
		}
	}
	m.check("rows deleted")
	m.must(g.ChunkState(m.t.Context(), seq, ChunkDeleted))
	m.check("deleted")
}

func newBoundaryModel(t *testing.T, conv string, rows ...uint64) *boundaryModel {
	m := &boundaryModel{t: t, s: open(t, time.Minute), conv: conv, warm: map[uint64]bool{}, cold: map[uint64][]uint64{}, gone: map[uint64]bool{}, lost: map[uint64]bool{}}
	for _, id := range rows {
		m.warm[id] = true
	}
	return m
}

// The boundary is exact at each step of a slice's life, beside slices that are in
// other states.
func TestBoundaryAtEachStep(t *testing.T) {
	t.Parallel()
	m := newBoundaryModel(t, "c", 1010, 1300, 1600, 1990, 2100, 2900, 3500)
	ctx := t.Context()
	one, two := testSlice(t, m.s, 1), testSlice(t, m.s, 2)
	m.check("at first")
	l, rows := m.commit(two)
	m.verify(two, l, rows)
	m.must(l.Release(ctx, Verified))
	l, rows = m.commit(one)
	m.verify(one, l, rows)
	g := m.grant(l)
	m.deletes(g, 0)
	m.deletes(g, 1)
	m.warm[1700] = true // someone writes into the day, the purge sees it
	m.must(g.Drifted(ctx, "chunk 2"))
	m.check("drifted")
	l, rows = m.commit(one)
	m.verify(one, l, rows)
	g = m.grant(l)
	for seq := range 4 {
		m.deletes(g, seq)
	}
	m.must(g.Purged(ctx))
	m.check("purged")
	m.warm[1005], m.warm[1995] = true, true // outside of what there was
	m.must(m.s.ReopenLate(ctx, one.ID))
	m.check("late")
	l, rows = m.commit(one)
	m.verify(one, l, rows)
	m.must(m.s.Reopen(ctx, l, ReasonDrifted))
	m.check("reopened")
	// A partition exchange of the other slice: out, back, out, dropped.
	l = claim(t, m.s, two.ID, Verified, "")
	g = m.grant(l)
	m.must(g.Staging(ctx, "st"))
	delete(m.warm, 2100)
	delete(m.warm, 2900)
	m.check("exchanged out")
	m.warm[2100], m.warm[2900] = true, true
	m.must(g.Staging(ctx, ""))
	m.check("exchanged back")
	m.must(g.GiveBack(ctx))
	m.gone[two.ID] = false // it took nothing
	m.check("given back")
	g = m.grant(claim(t, m.s, two.ID, Verified, ""))
	m.must(g.Staging(ctx, "st"))
	delete(m.warm, 2100)
	delete(m.warm, 2900)
	m.must(g.Purged(ctx))
	m.check("dropped")
}

// Rows that have vanished from warm without any purge are carried by the next
// generation, which says so.
func TestBoundaryOfRowsThatVanished(t *testing.T) {
	t.Parallel()
	m := newBoundaryModel(t, "c", 1010, 1300, 2900)
	two, one := testSlice(t, m.s, 2), testSlice(t, m.s, 1)
	for _, sl := range []Slice{one, two} {
		l, rows := m.commit(sl)
		m.verify(sl, l, rows)
		m.must(m.s.Reopen(t.Context(), l, ReasonDrifted))
	}
	delete(m.warm, 1300)
	m.lost[1300] = true
	l, rows := m.commit(one)
	m.verify(one, l, rows)
	l, rows = m.commit(two)
	m.verify(two, l, rows)
	if len(m.gone) != 2 || m.gone[two.ID] || !m.gone[one.ID] {
		t.Errorf("the model is wrong: %v", m.gone)
	}
}

// The highest cursor there is has none above it. The conversation's ID is empty.
func TestBoundaryAtTheHighestCursor(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	for day, high := range []uint64{math.MaxUint64 - 1, math.MaxUint64} {
		sl := testSlice(t, s, day+1)
		l := claim(t, s, sl.ID, Pending, Copying)
		c := rowsCopy(t, sl, 1, l.Attempt(), "", []uint64{sl.Lo}, nil)
		c.Objects[0].Segs[0].MaxCursor = high // a sequence
		if err := errors.Join(s.Commit(t.Context(), l, c, "k", [32]byte{}), s.Verified(t.Context(), l, 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.GrantPurge(t.Context(), l, 0); err != nil {
			t.Fatal(err)
		}
		all, err := s.Boundaries(t.Context(), [][]byte{nil, {}})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			if b.WarmFrom != math.MaxUint64 || b.WarmAll || b.WarmNone != (high == math.MaxUint64) || *b.ColdMin != 1000 || *b.ColdMax != high {
				t.Errorf("cursors up to %d: %+v", high, b)
			}
		}
	}
}

func TestBoundariesRefusesLongConversations(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	if _, err := s.Boundaries(t.Context(), [][]byte{nil, bytes.Repeat([]byte("x"), 256)}); !errors.Is(err, ErrConversation) {
		t.Errorf("a long conversation: %v", err)
	}
	if b, err := s.Boundaries(t.Context(), nil); err != nil || len(b) > 0 {
		t.Errorf("no conversations: %+v, %v", b, err)
	}
}
