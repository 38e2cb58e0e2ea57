package restore_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
)

// Messages by their IDs: those that exist, each once; those that do not are absent; of
// what cannot be read it is unknown. Each row group is read once, however many messages
// it has, and of a big object only those that can have one.
func TestMessagesByID(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 12))
	c := newCold(t, rng, 6, 1200, 2048)
	noRows := func(_ *restore.Config, d *restore.Deps) { d.Rows = nil }
	for range 20 {
		f := c.fetcher(noRows)
		var q restore.MessagesQuery
		q.Conversation = []byte(conversation)
		want := map[uint64]bool{}
		for range 1 + rng.IntN(60) {
			id := c.all[rng.IntN(len(c.all))].id
			if rng.IntN(5) == 0 {
				id++ // most likely none
			}
			q.IDs = append(q.IDs, id)
		}
		for _, id := range q.IDs {
			want[id] = slices.ContainsFunc(c.all, func(r row) bool { return r.id == id })
		}
		m, err := f.Messages(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if m.State != restore.Complete || len(m.Unknown)+len(m.Missing) > 0 || len(m.Rows)+len(m.Absent) != len(want) {
			t.Fatalf("seed %d: %d given, %d absent, %d unknown of %d: %s", seed, len(m.Rows), len(m.Absent), len(m.Unknown), len(want), m.State)
		}
		for _, r := range m.Rows {
			if !want[r.MessageID()] {
				t.Errorf("message %d was not asked for, or twice given", r.MessageID())
			}
			delete(want, r.MessageID())
			if body := bytes.Repeat([]byte(idText(r.MessageID()*2654435761)), 10); !bytes.Equal(r.Value(3), body) {
				t.Errorf("message %d has another body", r.MessageID())
			}
		}
		for _, id := range m.Absent {
			if want[id] {
				t.Errorf("message %d is there, and said to be absent", id)
			}
		}
	}
	// One message costs a footer, and the row groups that its ID may be in.
	one := c.all[len(c.all)/2].id
	m, err := c.fetcher(noRows).Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: []uint64{one, one, one}})
	if err != nil || len(m.Rows) != 1 {
		t.Fatalf("%d rows: %v", len(m.Rows), err)
	}
	holding, all := c.holding(one)
	if all < 2 {
		t.Fatalf("the object has %d row group", all)
	}
	if m.Requests != 1+holding {
		t.Errorf("one message took %d requests: want the footer, and %d of the object's %d row groups", m.Requests, holding, all)
	}
	for _, bad := range []restore.MessagesQuery{{IDs: []uint64{1}}, {Conversation: []byte("1")}, {Conversation: []byte("1"), IDs: make([]uint64, 1000)}} {
		if _, err := c.fetcher().Messages(t.Context(), bad); !errors.Is(err, restore.ErrQuery) {
			t.Errorf("%d IDs: %v", len(bad.IDs), err)
		}
	}
}

// What lies in an object that cannot be read is unknown, not absent; the rest comes.
func TestMessagesOfADamagedObject(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(13, 13)), 4, 80, 1<<20)
	if err := c.bucket.Damage(c.keys[1], func(b []byte) []byte { b[len(b)/3] ^= 1; return b }); err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	for _, r := range c.all {
		ids = append(ids, r.id)
	}
	m, err := c.fetcher(func(_ *restore.Config, d *restore.Deps) { d.Rows = nil }).Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: ids})
	if err != nil || m.State != restore.Partial || len(m.Unknown) == 0 || len(m.Absent) != 0 || len(m.Rows)+len(m.Unknown) != len(ids) {
		t.Fatalf("%d rows, %d unknown, %d absent of %d, %s: %v", len(m.Rows), len(m.Unknown), len(m.Absent), len(ids), m.State, err)
	}
	if len(m.Missing) != 1 || m.Missing[0].Cause != restore.CauseDamaged || m.Missing[0].Key != c.keys[1] {
		t.Errorf("missing: %+v", m.Missing)
	}
	if m, err := c.fetcher().Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: ids}); err != nil || len(m.Rows) != len(ids) {
		t.Errorf("with ClickHouse %d of %d come: %v", len(m.Rows), len(ids), err)
	}
}

// A status is on every read that begins after it was put, on every server, whatever is
// cached; a recalled message comes without its body, and taken back with it.
func TestStatuses(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(14, 14)), 3, 30, 1<<20)
	servers := []*restore.Fetcher{c.fetcher(), c.fetcher()}
	at := c.all[20]
	read := func(f *restore.Fetcher) (r restore.Row) {
		t.Helper()
		for range 10 { // until the conversation is hot, and beyond
			p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Limit: 30})
			if err != nil || p.State != restore.Complete {
				t.Fatalf("%+v, %v", p, err)
			}
			for _, x := range p.Rows {
				if x.MessageID() == at.id {
					r = x
				}
			}
		}
		return r
	}
	body := read(servers[0]).Value(3)
	if body == nil {
		t.Fatal("the message has no body")
	}
	read(servers[1])
	for _, kind := range []manifest.StatusKind{manifest.StatusRecalled, manifest.StatusEdited, manifest.StatusDeleted, manifest.StatusNone} {
		if _, err := servers[0].PutStatus(t.Context(), manifest.Status{Conversation: []byte(conversation), MessageID: at.id, Kind: kind, By: "test"}); err != nil {
			t.Fatal(err)
		}
		for i, f := range servers {
			r := read(f)
			switch {
			case kind == manifest.StatusNone && r.Status != nil, kind != manifest.StatusNone && (r.Status == nil || r.Status.Kind != kind):
				t.Errorf("server %d: after %s the status is %+v", i, kind, r.Status)
			case kind.Hides() != (r.Value(3) == nil) || kind.Hides() != r.Withheld(3) || r.Withheld(0):
				t.Errorf("server %d: after %s the body is %q", i, kind, r.Value(3))
			case !kind.Hides() && !bytes.Equal(r.Value(3), body):
				t.Errorf("server %d: after %s the body is another", i, kind)
			}
			m, err := f.Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: []uint64{at.id}})
			if err != nil || len(m.Rows) != 1 || kind.Hides() != (m.Rows[0].Value(3) == nil) {
				t.Errorf("server %d: after %s by its ID: %+v, %v", i, kind, m, err)
			}
		}
	}
	if _, err := servers[0].PutStatus(t.Context(), manifest.Status{Conversation: []byte(conversation), MessageID: at.id, Kind: "lost"}); !errors.Is(err, restore.ErrQuery) {
		t.Errorf("a status that is none: %v", err)
	}
}

// A page of big messages ends before it is too big, and the next goes on behind it.
func TestPagesOfBigMessages(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(16, 16)), 1, 1, 1<<20)
	c.long = 100_000 // 2 MB
	lo, _, err := layout.Window(snowflake.MakeDay(2026, 3, 2), time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	var big []row
	for i := range uint64(14) {
		big = append(big, row{lo + i<<8, 50 + i})
	}
	c.all = append(c.all, big...)
	c.commit(snowflake.MakeDay(2026, 3, 2), big, 1<<20)
	for _, rows := range []bool{true, false} {
		f := c.fetcher(func(_ *restore.Config, d *restore.Deps) {
			if !rows {
				d.Rows = nil
			}
		})
		p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Limit: 100})
		if err != nil || p.State != restore.Complete || !p.Cut || !p.HasMore || len(p.Rows) > 6 {
			t.Errorf("a page of 2 MB messages has %d of them, %s, cut %v: %v", len(p.Rows), p.State, p.Cut, err)
		}
		if got, _ := c.pages(f, restore.FromAny, true, 100); !slices.Equal(got, c.want(true)) {
			t.Errorf("all pages have %d messages of %d", len(got), len(c.all))
		}
	}
}
