package restore_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/guard"
)

// A purge that has its grant already exchanges and gives back within one page.
func TestRowsThatWentAndCameBackUnderOneLease(t *testing.T) {
	t.Parallel()
	c, w := newSeam(t)
	w.late(2)
	f := c.warmFetcher(w)
	c.wantWhole(f, "before")
	_, g := c.grant(2)
	moved := 0
	w.reading = func(staging string) func() {
		if staging != "" || moved >= 2 {
			return nil
		}
		moved++
		if err := g.Staging(t.Context(), "coldtier_purge_x"); err != nil {
			t.Error(err)
		}
		w.exchange(2, "coldtier_purge_x", true)
		return func() {
			w.exchange(2, "coldtier_purge_x", false)
			if err := g.Staging(t.Context(), ""); err != nil {
				t.Error(err)
			}
		}
	}
	c.wantWhole(f, "went and came back under one lease")
}

// holder says which tables hold a conversation as a real one does.
type holder struct{ *table }

func (h holder) Holding(context.Context, []byte) ([]manifest.Shard, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.rows) == 0 {
		return nil, nil
	}
	return []manifest.Shard{shard}, nil
}

// A conversation may have nothing but late rows, and those may lie in a staging table
// until tomorrow, since its worker died.
func TestConversationInAStagingTableAlone(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(21, 21)), 1, 0, 1<<20) // one slice, no row of the conversation
	w := &table{c: c, staged: map[string][]row{}, bodies: map[uint64]string{}}
	r := w.late(1)
	f := c.fetcher(func(_ *restore.Config, d *restore.Deps) { d.Warm = holder{w} })
	if got, _ := c.pages(f, restore.FromAny, true, 20); len(got) != 1 {
		t.Fatal(got)
	}
	_ = f.Close()
	f = c.fetcher(func(_ *restore.Config, d *restore.Deps) { d.Warm = holder{w} }) // a server that was just started
	_, g := c.grant(1)
	if err := g.Staging(t.Context(), "coldtier_purge_x"); err != nil {
		t.Fatal(err)
	}
	w.exchange(1, "coldtier_purge_x", true) // here the worker dies: the next run is tomorrow's
	got, p := c.pages(f, restore.FromAny, true, 20)
	if p.State == restore.Complete && len(got) != 1 {
		t.Errorf("page: %d messages of 1, %s, has_more %v", len(got), p.State, p.HasMore)
	}
	m, err := f.Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: []uint64{r.id}})
	if err != nil || len(m.Rows) != 1 && len(m.Unknown) == 0 {
		t.Errorf("by ID: %d, absent %v, %v, %s", len(m.Rows), m.Absent, err, m.State)
	}
}

// That a conversation is nowhere is not kept: its first message is seen at once.
func TestFirstMessageOfAConversation(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(21, 21)), 1, 0, 1<<20)
	w := &table{c: c, staged: map[string][]row{}, bodies: map[uint64]string{}}
	f := c.fetcher(func(_ *restore.Config, d *restore.Deps) { d.Warm = holder{w} })
	if got, _ := c.pages(f, restore.FromAny, true, 20); len(got) != 0 {
		t.Fatal(got)
	}
	w.late(1)
	got, p := c.pages(f, restore.FromAny, true, 20)
	if len(got) != 1 && p.State == restore.Complete {
		t.Errorf("%d of 1, %s", len(got), p.State)
	}
}

// A newer slice gets live while a stream runs that needs a second look-up.
func TestStreamWhileASliceGetsLive(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(5, 5)), 100, 100, 1<<20) // one message a day, about
	f := c.fetcher()
	var got []row
	var states []restore.State
	n := 0
	err := f.Stream(t.Context(), restore.Query{Conversation: []byte(conversation), Limit: 90}, func(p *restore.Page) error {
		for _, r := range p.Rows {
			got = append(got, row{r.MessageID(), r.Cursor()})
		}
		states = append(states, p.State)
		if n++; n == 1 {
			for i := range 3 {
				day := snowflake.MakeDay(2026, 3, 1).Add(110 + i)
				lo, _, _ := layout.Window(day, time.UTC)
				c.commit(day, []row{{lo + 5, 1000 + uint64(i)}}, 1<<20)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[row]int{}
	for _, r := range got {
		seen[r]++
	}
	for r, n := range seen {
		if n > 1 {
			t.Errorf("row %v was given %d times", r, n)
		}
	}
	want := c.want(true)
	if !slices.Equal(got[:min(90, len(got))], want[:min(90, len(got))]) && !slices.Equal(got, want[3:3+len(got)]) {
		t.Errorf("not the history: %d rows, states %v", len(got), states)
	}
}

// A stream that was stopped after it gave rows goes on behind them.
func TestStreamWhileASliceIsCopiedAnew(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(5, 5)), 100, 100, 1<<20)
	f := c.fetcher()
	q := restore.Query{Conversation: []byte(conversation), Limit: 90}
	var got []row
	var last *restore.Page
	n := 0
	if err := f.Stream(t.Context(), q, func(p *restore.Page) error {
		for _, r := range p.Rows {
			got = append(got, row{r.MessageID(), r.Cursor()})
		}
		last = p
		if n++; n == 1 {
			return c.recopy(got[0])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows given, last: %s next %v has_more %v rows %d missing %+v", len(got), last.State, last.Next, last.HasMore, len(last.Rows), last.Missing)
	if len(got) > 0 && last.State != restore.Complete && (last.Next == nil || *last.Next > got[len(got)-1].seq) {
		t.Errorf("after %d rows down to %d the stream says to go on before %v", len(got), got[len(got)-1].seq, last.Next)
	}
}

// recopy makes the next generation of the slice of a row.
func (c *cold) recopy(r row) error {
	ctx := c.t.Context()
	day := layout.DayOf(r.id, time.UTC)
	found, err := c.store.Slices(ctx, manifest.Filter{From: &day, To: &day})
	if err != nil {
		return err
	}
	l, err := c.store.Claim(ctx, found[0].ID, "t", []manifest.State{manifest.Verified}, manifest.Verified)
	if err != nil {
		return err
	}
	if err := c.store.Reopen(ctx, l, manifest.ReasonDrifted); err != nil {
		return err
	}
	l, err = c.store.Claim(ctx, found[0].ID, "t", []manifest.State{manifest.Pending}, manifest.Copying)
	if err != nil {
		return err
	}
	return c.copyRow(l, found[0], 2, r)
}

func (c *cold) copyRow(l *manifest.Lease, s manifest.Slice, gen uint32, rs ...row) error {
	b := message.NewBatch(c.schema)
	for _, r := range rs {
		if err := b.Append([][]byte{[]byte(idText(r.id)), []byte(conversation), []byte(idText(r.seq)), []byte("generation 2")}); err != nil {
			return err
		}
	}
	var h message.Hasher
	cp := &manifest.Copy{SliceKey: s.SliceKey, Lo: s.Lo, Hi: s.Hi, Generation: gen, Attempt: l.Attempt(), Schema: c.schema, CopiedAt: time.Unix(0, 0).UTC(),
		Chunks: []manifest.Chunk{{From: s.Lo, To: s.Hi, Warm: h.Batch(b, 0, b.Len()), State: manifest.ChunkPresent}}}
	var buf bytes.Buffer
	w, err := segment.NewWriter(&buf, c.schema, segment.Meta{Source: "im", Shard: s.Shard.String(), Day: s.Day.String(), Generation: gen, Attempt: cp.Attempt}, segment.Options{RowGroupBytes: 1 << 20})
	if err != nil {
		return err
	}
	if err := w.Write(b, 0, b.Len()); err != nil {
		return err
	}
	file, spans, err := w.Close()
	if err != nil {
		return err
	}
	name := manifest.ConversationKey(s.SliceKey, gen, cp.Attempt, []byte(conversation))
	if err := c.bucket.Put(c.t.Context(), name, bytes.NewReader(buf.Bytes()), int64(buf.Len()), bucket.PutOptions{}); err != nil {
		return err
	}
	cp.Objects = []manifest.Object{{Key: name, File: file, Segs: spans}}
	c.rows.copies[cp.ID()] = b
	if err := c.store.Commit(c.t.Context(), l, cp, manifest.RecordKey(s.SliceKey, gen), [32]byte{}); err != nil {
		return err
	}
	if err := c.store.Verified(c.t.Context(), l, gen); err != nil {
		return err
	}
	return l.Release(c.t.Context(), manifest.Verified)
}

// deadObjects is a bucket that gives nothing.
type deadObjects struct{}

func (deadObjects) ReadRange(ctx context.Context, _ string, _, _ int64) ([]byte, error) {
	return nil, errors.New("no bucket")
}

// A page around a message that is pending does not send the caller on behind it.
func TestAroundAPendingMessage(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(5, 5)), 3, 60, 1<<20)
	// the first lookup (cursorOf) works, from ClickHouse; then all stores are gone
	fails := 0
	c.rows.hook = func(context.Context) error {
		if fails++; fails > 1 {
			return errors.New("away")
		}
		return nil
	}
	mid := c.all[30]
	id := mid.id
	f := c.fetcher(func(cfg *restore.Config, d *restore.Deps) { d.Objects = deadObjects{}; cfg.Cache = 1 })
	p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Around: &id, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if p.State != restore.Pending || len(p.Rows) > 0 {
		t.Fatalf("%s, %d rows", p.State, len(p.Rows))
	}
	if p.MaxCursor != nil && *p.MaxCursor >= mid.seq {
		t.Errorf("message %d at cursor %d was not given, and the page says to go on after %d", id, mid.seq, *p.MaxCursor)
	}
}

// ClickHouse lost a row of a row group that shares a cursor with the next one.
func TestSharedCursorHidesNoLostRow(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(5, 5)), 1, 0, 1<<20)
	day := snowflake.MakeDay(2026, 4, 1)
	lo, _, _ := layout.Window(day, time.UTC)
	var list []row
	for i := range 200 {
		list = append(list, row{lo + uint64(i)*10, uint64(i / 9)})
	}
	c.commit(day, list, 1024)
	c.all = slices.Clone(list)
	slices.SortFunc(c.all, order)
	refs, err := c.store.Segments(t.Context(), manifest.SegmentQuery{Conversation: []byte(conversation), Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	ref := refs[0]
	at := -1
	for g := range ref.File.RowGroups[:len(ref.File.RowGroups)-1] {
		if ref.File.RowGroups[g].MaxCursor == ref.File.RowGroups[g+1].MinCursor {
			at = g
		}
	}
	if at < 0 {
		t.Fatal("no two row groups share a cursor")
	}
	for id, b := range c.rows.copies {
		if b.Len() == 0 {
			continue
		}
		nb := message.NewBatch(b.Schema())
		lost := false
		for i := range b.Len() {
			g := ref.File.RowGroups[at]
			if !lost && b.Cursor(i) > g.MinCursor && b.Cursor(i) < g.MaxCursor {
				lost = true
				t.Logf("lose row %d of cursor %d", b.MessageID(i), b.Cursor(i))
				continue
			}
			if err := nb.AppendFrom(b, i); err != nil {
				t.Fatal(err)
			}
		}
		c.rows.copies[id] = nb
	}
	for _, newest := range []bool{true, false} {
		got, p := c.pages(c.fetcher(), restore.FromAny, newest, 7)
		if !slices.Equal(got, c.want(newest)) {
			t.Errorf("newest %v: %d of %d, %s", newest, len(got), len(c.want(newest)), p.State)
		}
	}
}

// Who is limited to a tenant learns nothing of a conversation that no row has shown to be
// the tenant's.
func TestMissingTellsNothingOfOtherTenants(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(5, 5)), 3, 60, 1<<20)
	c.rows.err = errors.New("away")
	f := c.fetcher(func(_ *restore.Config, d *restore.Deps) { d.Objects = deadObjects{} })
	only := "other"
	p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Only: &only})
	if err == nil && len(p.Missing) > 0 && p.Missing[0].MaxCursor > 0 {
		t.Errorf("told without a row that is the tenant's: day %s, cursors %d to %d", p.Missing[0].Slice.Day, p.Missing[0].MinCursor, p.Missing[0].MaxCursor)
	}
}

// A stream whose reader is slow keeps no place from others.
func TestSlowReaderKeepsNoPlace(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(5, 5)), 3, 60, 1<<20)
	f := c.fetcher(func(cfg *restore.Config, d *restore.Deps) {
		cfg.Budget = 200 * time.Millisecond
		cfg.Limits = guard.LimitsConfig{Process: 1}
	})
	in := make(chan struct{})
	out := make(chan struct{})
	go func() {
		once := false
		_ = f.Stream(context.Background(), restore.Query{Conversation: []byte(conversation)}, func(*restore.Page) error {
			if !once {
				once = true
				close(in)
			}
			<-out
			return nil
		})
	}()
	<-in
	p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte("1")})
	if err != nil || p.State != restore.Complete {
		t.Errorf("meanwhile another conversation's page is %s %+v", p.State, p.Missing)
	}
	close(out)
}

// A message that was deleted in warm does not come back when a purge finds that out.
func TestDeletedInWarmStaysDeleted(t *testing.T) {
	t.Parallel()
	c, w := newSeam(t)
	f := c.warmFetcher(w)
	gone := w.rows[len(w.rows)/2]
	w.rows = slices.DeleteFunc(w.rows, func(r row) bool { return r == gone })
	shown := func(when string) bool {
		t.Helper()
		got, p := c.pages(f, restore.FromAny, true, 200)
		t.Logf("%s: %d rows %s", when, len(got), p.State)
		return slices.Contains(got, gone)
	}
	if shown("deleted") {
		t.Fatal("shown at once")
	}
	_, g := c.grant(layout.DayOf(gone.id, time.UTC).Sub(snowflake.MakeDay(2026, 3, 1)) + 1)
	if err := g.Drifted(t.Context(), "one row less"); err != nil {
		t.Fatal(err)
	}
	if shown("drifted") {
		t.Error("the message that was deleted in warm is given out again, although warm has the whole day")
	}
	if b, err := f.Boundaries(t.Context(), [][]byte{[]byte(conversation)}, 0); err != nil || !b[0].WarmAll {
		t.Errorf("the boundary is %+v, %v", b, err)
	}
}

// two is the conversation's old table, which the cold tier knows, and the one to which the platform moved it.
type two struct {
	*table
	other *table
	probe func() error
}

var shardB = manifest.Shard{Database: "im_01", Table: "msg"}

func (w two) Holding(context.Context, []byte) ([]manifest.Shard, error) {
	if w.probe != nil {
		if err := w.probe(); err != nil {
			return nil, err
		}
	}
	return []manifest.Shard{shardB}, nil
}

func (w two) Page(ctx context.Context, s manifest.Shard, q restore.WarmQuery) (*message.Batch, error) {
	if s == shardB {
		return w.other.Page(ctx, s, q)
	}
	return w.table.Page(ctx, s, q)
}

func (w two) Messages(ctx context.Context, s manifest.Shard, c []byte, ids []uint64, staging string) (*message.Batch, error) {
	if s == shardB {
		return w.other.Messages(ctx, s, c, ids, staging)
	}
	return w.table.Messages(ctx, s, c, ids, staging)
}

// A conversation has its cold rows from one table and its warm ones in another.
func TestConversationInTwoTables(t *testing.T) {
	t.Parallel()
	for name, probe := range map[string]func() error{"first page": nil, "a database is away": func() error { return errors.New("away") }} {
		t.Run(name, func(t *testing.T) {
			c, w := newSeam(t)
			w.rows = nil // all purged
			for day := 1; day <= 3; day++ {
				c.grant(day)
			}
			lo, _, _ := layout.Window(snowflake.MakeDay(2026, 3, 9), time.UTC)
			b := &table{c: c, bodies: map[uint64]string{}}
			for i := range uint64(5) {
				r := row{lo + i, 1000 + i}
				b.rows, c.all = append(b.rows, r), append(c.all, r)
			}
			f := c.fetcher(func(_ *restore.Config, d *restore.Deps) { d.Warm = two{w, b, probe} })
			for range 3 {
				got, p := c.pages(f, restore.FromAny, true, 200)
				if len(got) != len(c.all) && p.State == restore.Complete {
					t.Errorf("%d messages of %d, %s, has_more %v", len(got), len(c.all), p.State, p.HasMore)
				}
				m, err := f.Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: []uint64{lo}})
				if err != nil || len(m.Absent) > 0 {
					t.Errorf("by ID: absent %v, %s, %v", m.Absent, m.State, err)
				}
			}
		})
	}
}

// Statuses that are put on two servers, read on both: what was put last shows in whatever
// begins afterwards.
func TestStatusesInARace(t *testing.T) {
	t.Parallel()
	for _, many := range []bool{false, true} {
		c := newCold(t, rand.New(rand.NewPCG(5, 5)), 3, 60, 1<<20)
		if many {
			for i := range 520 {
				if _, err := c.store.PutStatus(t.Context(), manifest.Status{Conversation: []byte(conversation), MessageID: uint64(i + 1), Kind: manifest.StatusEdited, By: "x"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		fs := []*restore.Fetcher{}
		for range 2 {
			fs = append(fs, c.fetcher(func(cfg *restore.Config, _ *restore.Deps) { cfg.Ahead = true }))
		}
		var wg sync.WaitGroup
		end := time.Now().Add(time.Second)
		for g := range 6 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 9))
				for time.Now().Before(end) {
					m := c.all[g*10+5]
					kind := []manifest.StatusKind{manifest.StatusRecalled, manifest.StatusNone, manifest.StatusDeleted, manifest.StatusEdited}[rng.IntN(4)]
					if _, err := fs[rng.IntN(2)].PutStatus(t.Context(), manifest.Status{Conversation: []byte(conversation), MessageID: m.id, Kind: kind, By: "t"}); err != nil {
						t.Error(err)
						return
					}
					for range 2 {
						f := fs[rng.IntN(2)]
						var rows []restore.Row
						var p *restore.Page
						var err error
						what := rng.IntN(4)
						switch what {
						case 0:
							var a *restore.Messages
							a, err = f.Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: []uint64{m.id}})
							if err == nil {
								rows = a.Rows
							}
						case 1:
							p, err = f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Around: &m.id, Limit: 9})
						case 2:
							p, err = f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Limit: 200})
						case 3:
							err = f.Stream(t.Context(), restore.Query{Conversation: []byte(conversation), Limit: 60}, func(p *restore.Page) error { rows = append(rows, p.Rows...); return nil })
						}
						if p != nil {
							rows = p.Rows
						}
						if err != nil {
							t.Error(err)
							return
						}
						ok := false
						for _, r := range rows {
							if r.MessageID() == m.id {
								ok = true
								got := manifest.StatusNone
								if r.Status != nil {
									got = r.Status.Kind
								}
								if got != kind {
									t.Errorf("many %v: what %d: %s instead of %s", many, what, got, kind)
								}
							}
						}
						if !ok {
							t.Errorf("many %v: what %d: not there, %d rows %+v", many, what, len(rows), p)
						}
					}
				}
			})
		}
		wg.Wait()
	}
}
