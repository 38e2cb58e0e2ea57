package fetch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	truths "github.com/coldtier/coldtier/tests/truth"
)

// with is how a reader sees the message under a status.
func (m msg) with(st manifest.Status) msg {
	m.values = slices.Clone(m.values)
	if st.Value != nil {
		m.values[slices.Index(truths.Columns, "status")] = []byte(*st.Value)
	}
	if st.Kind.Hides() {
		m.values[slices.Index(truths.Columns, "content")] = nil
	}
	return m
}

// A4: a status that was put is seen by the next read of every server, whatever its caches
// know, and one that was taken back no more.
func testStatuses(t *testing.T, c *cold) {
	rng := random(t)
	ahead := func(cfg *restore.Config, _ *restore.Deps) { cfg.Ahead, cfg.Budget = true, enough }
	servers := []*rig{c.rig(t, through{}, ahead), c.rig(t, through{}, ahead)}
	name := c.truth.names()[2]
	as := truth{name: slices.Clone(c.truth[name])} // as readers are to see it
	put := map[uint64]manifest.StatusKind{}
	pages := func(what string) {
		t.Helper()
		for i, r := range servers {
			m := as[name][rng.IntN(len(as[name]))]
			for _, q := range []restore.Query{{}, {Limit: 5}, {Before: new(m.seq + 1), Limit: 20}, {Oldest: true}, {After: new(m.seq - 1)}, {Around: &m.id}} {
				q.Conversation = []byte(name)
				p, err := r.Fetch(t.Context(), q)
				if err == nil {
					err = as.check(q, p)
				}
				if err != nil || p.State != restore.Complete {
					t.Fatalf("%s, server %d: %s: %v %+v", what, i, describe(q), err, p)
				}
				if err := shown(p.Rows, put); err != nil {
					t.Fatalf("%s, server %d: %s: %v", what, i, describe(q), err)
				}
			}
			a, err := r.Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(name), IDs: []uint64{m.id}})
			if err != nil || len(a.Rows) != 1 {
				t.Fatalf("%s, server %d: message %d: %+v, %v", what, i, m.id, a, err)
			}
			if err := m.same(rowOf(a.Rows[0])); err != nil {
				t.Fatalf("%s, server %d: %v", what, i, err)
			}
		}
	}
	for range 6 { // until the conversation is hot
		pages("warm")
	}
	for range 60 {
		i := rng.IntN(len(as[name]))
		was := c.truth[name][i]
		st := manifest.Status{Conversation: []byte(name), MessageID: was.id, By: "test",
			Kind: []manifest.StatusKind{manifest.StatusRecalled, manifest.StatusDeleted, manifest.StatusEdited, manifest.StatusNone, manifest.StatusNone}[rng.IntN(5)]}
		if st.Kind != manifest.StatusNone && rng.IntN(2) == 0 {
			st.Value = new(fmt.Sprint(rng.IntN(100)))
		}
		by := rng.IntN(len(servers))
		if _, err := servers[by].PutStatus(t.Context(), st); err != nil {
			t.Fatal(err)
		}
		as[name][i] = was.with(st)
		put[was.id] = st.Kind
		pages(fmt.Sprintf("%s put on message %d at server %d", st.Kind, was.id, by))
	}
	for id := range put {
		if _, err := servers[0].PutStatus(t.Context(), manifest.Status{Conversation: []byte(name), MessageID: id, Kind: manifest.StatusNone, By: "test"}); err != nil {
			t.Fatal(err)
		}
		put[id] = manifest.StatusNone
	}
	as[name] = c.truth[name]
	pages("all taken back")
	if servers[1].metric(t, "cache_hits_total") == 0 {
		t.Error("no cache was of use: the test says nothing")
	}
}

// shown demands the statuses on rows, and no body where it is withheld.
func shown(rows []restore.Row, put map[uint64]manifest.StatusKind) error {
	for _, row := range rows {
		want := put[row.MessageID()]
		if want == manifest.StatusNone {
			want = ""
		}
		var got manifest.StatusKind
		if row.Status != nil && row.Status.Kind != manifest.StatusNone {
			got = row.Status.Kind
		}
		if got != want {
			return fmt.Errorf("message %d has the status %q, want %q", row.MessageID(), got, want)
		}
	}
	return nil
}

// A status that is folded into the next generation reads the same, and when it is taken back
// its column reads what it did before, also where that was NULL.
func testFoldedStatus(t *testing.T, c *cold) {
	const name = "77"
	day := c.Days[5]
	w := &loader{e: c.Env, rng: random(t), used: map[uint64]bool{}}
	for seq := range uint64(4) {
		w.add(day, name, 1+seq, "body")
	}
	w.flush()
	c.SQL("ALTER TABLE " + c.Tables[0] + " MODIFY status TINYINT NULL")
	c.SQL("UPDATE "+c.Tables[0]+" SET status = IF(seq < 3, NULL, 3) WHERE session_id = ?", name)
	c.Run("purge") // which finds the drift of all that was there
	c.Must("archive")
	c.truth = readTruth(c.Env)
	as := truth{name: slices.Clone(c.truth[name])}
	r := c.rig(t, through{}, func(cfg *restore.Config, _ *restore.Deps) { cfg.Budget = enough })
	put := map[uint64]manifest.StatusKind{}
	change := func(kind manifest.StatusKind, value *string) {
		t.Helper()
		for i, m := range c.truth[name] {
			if i == 0 {
				continue // one that is never touched
			}
			st := manifest.Status{Conversation: []byte(name), MessageID: m.id, Kind: kind, Value: value, By: "test"}
			if _, err := r.PutStatus(t.Context(), st); err != nil {
				t.Fatal(err)
			}
			as[name][i], put[m.id] = m.with(st), kind
		}
	}
	read := func(what string) {
		t.Helper()
		for _, from := range []restore.Store{restore.FromBucket, restore.FromClickHouse, restore.FromAny} {
			q := restore.Query{Conversation: []byte(name), From: from, Oldest: true}
			p, err := r.Fetch(t.Context(), q)
			if err == nil {
				err = as.check(q, p)
			}
			if err == nil {
				err = shown(p.Rows, put)
			}
			if err != nil || p.State != restore.Complete {
				t.Errorf("%s, from %s: %v, %+v", what, from, err, p.Missing)
			}
		}
	}
	read("archived")
	change(manifest.StatusRecalled, new("9"))
	read("recalled")
	before := len(as[name])
	c.Must("purge")
	if n := c.Count(); n != 0 {
		t.Fatalf("%d rows are left in warm", n)
	}
	w.add(day, name, 9, "late") // for which the slice is copied anew
	w.flush()
	late := readTruth(c.Env)[name][0]
	c.Must("archive")
	as[name] = append(as[name], late)
	read("folded")
	change(manifest.StatusNone, nil)
	as[name] = append(as[name][:before], late)
	read("taken back")
}
