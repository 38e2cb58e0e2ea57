package restore_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
)

var shard = manifest.Shard{Database: "im_00", Table: "msg"}

// table is a warm table in memory, and what lies in its staging table.
type table struct {
	c       *cold
	mu      sync.Mutex
	rows    []row
	staged  map[string][]row
	bodies  map[uint64]string
	reading func(staging string) (after func()) // called before rows are read
}

func (w *table) Holding(context.Context, []byte) ([]manifest.Shard, error) {
	return []manifest.Shard{shard}, nil
}

func (w *table) batch(staging string, want func(row) bool, limit int, newest bool) (*message.Batch, error) {
	if w.reading != nil {
		if after := w.reading(staging); after != nil {
			defer after() // when the lock is free again
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	from := w.rows
	if staging != "" {
		var ok bool
		if from, ok = w.staged[staging]; !ok {
			return nil, restore.ErrGone
		}
	}
	list := slices.DeleteFunc(slices.Clone(from), func(r row) bool { return !want(r) })
	slices.SortFunc(list, order)
	if n := len(list); n > limit && newest {
		list = list[n-limit:]
	}
	b := message.NewBatch(w.c.schema)
	for _, r := range list[:min(limit, len(list))] {
		body := w.bodies[r.id]
		if body == "" {
			body = "warm"
		}
		if err := b.Append([][]byte{[]byte(idText(r.id)), []byte(conversation), []byte(idText(r.seq)), []byte(body)}); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (w *table) Page(_ context.Context, _ manifest.Shard, q restore.WarmQuery) (*message.Batch, error) {
	return w.batch(q.Staging, func(r row) bool {
		return (q.Before == nil || r.seq < *q.Before) && (q.After == nil || r.seq > *q.After)
	}, q.Limit, q.Newest)
}

func (w *table) Messages(_ context.Context, _ manifest.Shard, _ []byte, ids []uint64, staging string) (*message.Batch, error) {
	return w.batch(staging, func(r row) bool { return slices.Contains(ids, r.id) }, len(ids), false)
}

// newSeam is a conversation whose every day is still in warm, too.
func newSeam(t *testing.T) (*cold, *table) {
	t.Helper()
	c := newCold(t, rand.New(rand.NewPCG(21, 21)), 3, 30, 1<<20)
	return c, &table{c: c, rows: slices.Clone(c.all), staged: map[string][]row{}, bodies: map[uint64]string{}}
}

func (c *cold) warmFetcher(w *table) *restore.Fetcher {
	return c.fetcher(func(_ *restore.Config, d *restore.Deps) { d.Warm = w })
}

// grant begins the purge of a day.
func (c *cold) grant(day int) (*manifest.Lease, *manifest.PurgeGrant) {
	c.t.Helper()
	d := snowflake.MakeDay(2026, 3, day)
	found, err := c.store.Slices(c.t.Context(), manifest.Filter{From: &d, To: &d})
	if err != nil || len(found) != 1 {
		c.t.Fatalf("%d slices: %v", len(found), err)
	}
	lease, err := c.store.Claim(c.t.Context(), found[0].ID, "purge", []manifest.State{manifest.Verified, manifest.Purging}, found[0].State)
	if err != nil {
		c.t.Fatal(err)
	}
	g, err := c.store.GrantPurge(c.t.Context(), lease, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	return lease, g
}

// exchange moves a day's rows into a staging table, or back.
func (w *table) exchange(day int, name string, out bool) {
	lo, hi, err := layout.Window(snowflake.MakeDay(2026, 3, day), time.UTC)
	if err != nil {
		w.c.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !out {
		w.rows = append(w.rows, w.staged[name]...)
		delete(w.staged, name)
		return
	}
	in := func(r row) bool { return r.id >= lo && r.id < hi }
	w.staged[name] = slices.DeleteFunc(slices.Clone(w.rows), func(r row) bool { return !in(r) })
	w.rows = slices.DeleteFunc(w.rows, in)
}

// late is a message that no copy has; a page that lacks it has a gap.
func (w *table) late(day int) row {
	lo, _, err := layout.Window(snowflake.MakeDay(2026, 3, day), time.UTC)
	if err != nil {
		w.c.t.Fatal(err)
	}
	r := row{lo + 7, 100}
	w.rows = append(w.rows, r)
	w.c.all = append(w.c.all, r)
	slices.SortFunc(w.c.all, order)
	return r
}

func (c *cold) wantWhole(f *restore.Fetcher, when string) {
	c.t.Helper()
	if got, p := c.pages(f, restore.FromAny, true, 200); !slices.Equal(got, c.want(true)) || p.State != restore.Complete {
		c.t.Errorf("%s: %d messages of %d, %s", when, len(got), len(c.all), p.State)
	}
	var ids []uint64
	for _, r := range c.all {
		ids = append(ids, r.id)
	}
	if m, err := f.Messages(c.t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: ids}); err != nil || len(m.Rows) != len(ids) {
		c.t.Errorf("%s: by their IDs %d of %d: %v", when, len(m.Rows), len(ids), err)
	}
}

// A partition is exchanged out just before the table is read, and back right after it:
// the rows are in neither reading, and only that the slice's lease is another tells.
func TestRowsThatWentAndCameBackWhileThePageWasRead(t *testing.T) {
	t.Parallel()
	c, w := newSeam(t)
	w.late(2)
	f := c.warmFetcher(w)
	c.wantWhole(f, "before")
	moved := 0
	w.reading = func(staging string) func() {
		if staging != "" || moved >= 2 { // once for the pages, once for the messages
			return nil
		}
		moved++
		lease, g := c.grant(2)
		if err := g.Staging(t.Context(), "coldtier_purge_x"); err != nil {
			t.Error(err)
		}
		w.exchange(2, "coldtier_purge_x", true)
		return func() {
			w.exchange(2, "coldtier_purge_x", false)
			if err := g.Staging(t.Context(), ""); err != nil {
				t.Error(err)
			}
			if err := lease.Release(t.Context(), manifest.Purging); err != nil {
				t.Error(err)
			}
		}
	}
	got, p := c.pages(f, restore.FromAny, true, 200)
	if !slices.Equal(got, c.want(true)) || p.State != restore.Complete {
		t.Errorf("%d messages of %d, %s", len(got), len(c.all), p.State)
	}
	var ids []uint64
	for _, r := range c.all {
		ids = append(ids, r.id)
	}
	if m, err := f.Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: ids}); err != nil || len(m.Rows) != len(ids) {
		t.Errorf("by their IDs %d of %d: %v", len(m.Rows), len(ids), err)
	}
	if moved != 2 {
		t.Errorf("rows were moved %d times", moved)
	}
}

// While a partition is out its rows come from the staging table, also those that come
// back between two readings of the same page.
func TestRowsInAStagingTable(t *testing.T) {
	t.Parallel()
	c, w := newSeam(t)
	w.late(2)
	f := c.warmFetcher(w)
	_, g := c.grant(2)
	if err := g.Staging(t.Context(), "coldtier_purge_x"); err != nil {
		t.Fatal(err)
	}
	c.wantWhole(f, "noted, not exchanged")
	w.exchange(2, "coldtier_purge_x", true)
	c.wantWhole(f, "exchanged")
	back := 0
	w.reading = func(staging string) func() {
		if staging == "coldtier_purge_x" && back == 0 { // the first reading of the table lacked them
			back++
			w.exchange(2, "coldtier_purge_x", false)
		}
		return nil
	}
	c.wantWhole(f, "back before the staging table was read")
	if back != 1 {
		t.Error("the staging table was not read")
	}
}

// Warm is newer: an edit shows, a message that was deleted there before any purge is
// gone, and what a purge has begun to take comes from cold.
func TestWarmIsNewer(t *testing.T) {
	t.Parallel()
	c, w := newSeam(t)
	f := c.warmFetcher(w)
	edited := c.all[5]
	w.bodies[edited.id] = "edited"
	body := func() string {
		t.Helper()
		m, err := f.Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: []uint64{edited.id}})
		if err != nil || len(m.Rows) != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Around: &edited.id})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(p.Rows, func(r restore.Row) bool { return r.MessageID() == edited.id })
		if i < 0 || string(p.Rows[i].Value(3)) != string(m.Rows[0].Value(3)) {
			t.Fatalf("the page around the message has it at %d, or with another body", i)
		}
		return string(p.Rows[i].Value(3))
	}
	if b := body(); b != "edited" {
		t.Errorf("the edited message reads %.20q", b)
	}
	for day := 1; day <= 3; day++ {
		c.grant(day)
	}
	if b := body(); b != "edited" {
		t.Errorf("after the purge began the edited message reads %.20q", b)
	}
	w.rows = nil
	if b := body(); b == "edited" || b == "warm" {
		t.Errorf("when warm is empty the message reads %.20q", b)
	}
	c.wantWhole(f, "all purged")

	c, w = newSeam(t)
	f = c.warmFetcher(w)
	gone := w.rows[7]
	w.rows = slices.Delete(w.rows, 7, 8)
	c.all = slices.DeleteFunc(c.all, func(r row) bool { return r == gone })
	if got, _ := c.pages(f, restore.FromAny, false, 50); !slices.Equal(got, c.want(false)) {
		t.Errorf("after a delete in warm %d messages come, want %d", len(got), len(c.all))
	}
}
