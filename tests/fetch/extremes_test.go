package fetch

import (
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/harness"
)

// The conversations of the set-up with extremes.
const (
	highest = "18446744073709551615"
	thin    = "9007199254740993"
	big     = "42"
)

// extremeDays is over how many days the thin conversation has two messages each.
const extremeDays = 40

// bigRows is how many messages of 1 kB the big day has: 60,000 where there is time.
func bigRows() int {
	if os.Getenv("COLDTIER_TEST_HEAVY") != "" {
		return 60_000
	}
	return 6_000
}

// late makes IDs above 2^63 of this year's days.
func highLayout() snowflake.Layout {
	return snowflake.Layout{Epoch: time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 24}
}

// silence has days and no messages.
type silence []snowflake.Day

func (s silence) Days() []snowflake.Day              { return s }
func (silence) Each(func(*chat.Message) error) error { return nil }

// newExtremes archives a table of unsigned IDs.
func newExtremes(t *testing.T) *cold {
	rng := random(t)
	var days silence
	for i := range extremeDays {
		days = append(days, harness.First(extremeDays).Add(i))
	}
	e := harness.New(t, harness.Options{Source: days})
	e.SQL("ALTER TABLE " + e.Tables[0] + " MODIFY msg_id BIGINT UNSIGNED NOT NULL, MODIFY session_id BIGINT UNSIGNED NOT NULL")
	text, err := os.ReadFile(e.Config)
	if err != nil {
		t.Fatal(err)
	}
	usual := "{epoch: 2015-01-01T00:00:00Z, time_shift: 22}"
	if !strings.Contains(string(text), usual) {
		t.Fatalf("the configuration lacks %s", usual)
	}
	if err := os.WriteFile(e.Config, []byte(strings.Replace(string(text), usual, "{epoch: 2005-01-01T00:00:00Z, time_shift: 24}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.ClickHouse.Open(t).Exec(t.Context(), "DROP TABLE "+e.ClickHouse.Database+".messages"); err != nil {
		t.Fatal(err)
	}
	e.Must("migrate") // with the columns as they are now
	w := &loader{e: e, rng: rng, used: map[uint64]bool{}}
	for i, seq := range []uint64{0, 1, 2, math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxInt64 + 2, math.MaxUint64 - 2, math.MaxUint64 - 1, math.MaxUint64, math.MaxUint64} {
		w.add(days[i%7], highest, seq, "body")
	}
	for range 60 {
		w.add(days[rng.IntN(7)], highest, rng.Uint64()|1<<63, "body")
	}
	for i, d := range days {
		w.add(d, thin, uint64(2*i+1), "one")
		w.add(d, thin, uint64(2*i+2), "two")
	}
	body := make([]byte, 700)
	for i := range bigRows() {
		for j := range body {
			body[j] = byte(rng.Uint32()) // nothing compresses it
		}
		w.add(days[3], big, uint64(1000+i), string(body))
	}
	w.flush()
	return archived(e, highLayout())
}

// loader inserts messages.
type loader struct {
	e    *harness.Env
	rng  *rand.Rand
	used map[uint64]bool
	args []any
}

func (l *loader) add(d snowflake.Day, conversation string, seq uint64, body string) {
	l.e.T.Helper()
	lo, hi, err := highLayout().Window(d, time.UTC)
	if err != nil {
		l.e.T.Fatal(err)
	}
	id := lo + l.rng.Uint64N(hi-lo)
	if conversation == big { // whose IDs rise with their sequences, as is usual
		id = lo + seq<<30
	}
	for l.used[id] {
		id++
	}
	l.used[id] = true
	if id < 1<<63 {
		l.e.T.Fatalf("message ID %d is no high one", id)
	}
	l.args = append(l.args, id, conversation, body, highLayout().Time(id), seq)
	if len(l.args) >= 5*500 {
		l.flush()
	}
}

func (l *loader) flush() {
	l.e.T.Helper()
	rows := len(l.args) / 5
	l.e.SQL("INSERT INTO "+l.e.Tables[0]+" (msg_id, session_id, sender_id, receiver_id, client_msg_id, content, create_time, seq) VALUES "+
		strings.TrimSuffix(strings.Repeat("(?, ?, 1, 1, 'c', ?, ?, ?), ", rows), ", "), l.args...)
	l.args = l.args[:0]
}

// M4: message IDs above 2^63 and sequences up to 2^64-1 are the same numbers on all ways.
func testHighestNumbers(t *testing.T, c *cold) {
	list := c.truth[highest]
	for name, change := range map[string]func(*restore.Config, *restore.Deps){"clickhouse": func(cfg *restore.Config, _ *restore.Deps) { cfg.Budget, cfg.HedgeAfter = time.Minute, time.Minute }, "bucket": withoutRows} {
		r := c.rig(t, through{}, change)
		for _, limit := range []int{1, 7, 200} {
			anchors := []*uint64{nil}
			for _, m := range list {
				anchors = append(anchors, new(m.seq), new(m.seq+1), new(m.seq-1))
			}
			for _, a := range anchors {
				c.complete(t, r, restore.Query{Conversation: []byte(highest), Before: a, Limit: limit})
				c.complete(t, r, restore.Query{Conversation: []byte(highest), After: a, Oldest: a == nil, Limit: limit})
			}
			for _, m := range list {
				p := c.complete(t, r, restore.Query{Conversation: []byte(highest), Around: &m.id, Limit: limit})
				if !slices.ContainsFunc(p.Rows, func(row restore.Row) bool { return row.MessageID() == m.id }) && list[len(list)-1].seq != m.seq && limit > 2 {
					t.Errorf("from %s: the page around message %d is without it", name, m.id)
				}
			}
		}
		var ids []uint64
		for _, m := range list {
			ids = append(ids, m.id)
		}
		a, err := r.Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(highest), IDs: ids})
		if err != nil || a.State != restore.Complete || len(a.Absent) > 0 {
			t.Fatalf("from %s: %+v, %v", name, a, err)
		}
		if err := exact(list, rowsOf(a.Rows)); err != nil || len(a.Rows) != len(list) {
			t.Errorf("from %s: %d of %d messages: %v", name, len(a.Rows), len(list), err)
		}
		if n := r.metric(t, "fallbacks_total"); n != 0 {
			t.Errorf("from %s: ClickHouse could not give %v parts", name, n)
		}
	}
}

// S14: a page of a conversation that has two messages a day takes at most two reads after
// another.
func testThinDays(t *testing.T, c *cold) {
	s3 := newCounter(t, c.S3.Endpoint)
	r := c.rig(t, through{s3: s3.addr}, withoutRows)
	for _, limit := range []int{1, 20, 50, 79} {
		for _, q := range []restore.Query{
			{Before: new(uint64(61))}, {}, {Oldest: true}, {After: new(uint64(11))},
		} {
			q.Conversation, q.Limit = []byte(thin), limit
			r.start(t, withoutRows)
			c.complete(t, r, q)
			all := s3.take()
			if most := limit/2 + 2; len(all) > most {
				t.Errorf("%s: %d requests, want at most %d", describe(q), len(all), most)
			}
			if err := c.ranged(thin, all); err != nil {
				t.Errorf("%s: %v", describe(q), err)
			}
			w := &waves{total: len(all)}
			r.start(t, func(cfg *restore.Config, d *restore.Deps) {
				cfg.Budget, w.Objects = time.Minute, d.Objects
				d.Objects, d.Rows = w, nil
			})
			c.complete(t, r, q)
			if n := w.number(); n > 2 {
				t.Errorf("%s: %d requests, of which %d after another", describe(q), len(all), n)
			}
			s3.take()
		}
	}
}

// P12: a page out of the middle of a big day costs one ranged GET of a part of it, and no
// more memory than that part needs.
func testBigDay(t *testing.T, c *cold) {
	rng := random(t)
	s3 := newCounter(t, c.S3.Endpoint)
	r := c.rig(t, through{s3: s3.addr}, withoutRows)
	ref := c.segments(big)[0]
	groups := ref.File.RowGroups
	if len(groups) < 10 {
		t.Fatalf("%d row groups", len(groups))
	}
	most := int64(0)
	for _, g := range groups {
		most = max(most, g.Length)
	}
	if most > 1<<20 {
		t.Fatalf("the largest row group has %d bytes", most)
	}
	list := c.truth[big]
	id := func(seq uint64) uint64 { return list[seq-list[0].seq].id }
	for range 30 {
		g := groups[rng.IntN(len(groups)-1)]
		middle := (g.MinCursor + g.MaxCursor) / 2
		for _, one := range []struct {
			q        restore.Query
			requests int
		}{
			{restore.Query{Before: &middle, Limit: 20}, 1},
			{restore.Query{After: &middle, Limit: 20}, 1},
			{restore.Query{Around: new(id(middle)), Limit: 20}, 2}, // one of them for the footer
			{restore.Query{Before: new(middle + rng.Uint64N(300)), Limit: 20}, 2},
		} {
			q := one.q
			q.Conversation = []byte(big)
			r.start(t, withoutRows)
			s3.take()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p := c.complete(t, r, q)
			runtime.ReadMemStats(&after)
			all := s3.take()
			if len(all) > one.requests || len(all) == 0 || len(all) != p.Requests {
				t.Errorf("%s: %d requests, it says %d; want %d", describe(q), len(all), p.Requests, one.requests)
			}
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 16<<20 {
				t.Errorf("%s: %d bytes were allocated", describe(q), spent)
			}
		}
	}
	c.manyMessages(t, r, s3, rng)
}

// manyMessages: no more than one request for each row group, however many messages of it
// are wanted.
func (c *cold) manyMessages(t *testing.T, r *rig, s3 *counter, rng *rand.Rand) {
	t.Helper()
	list := c.truth[big]
	from := rng.IntN(len(list) - 150)
	var ids []uint64
	for _, m := range list[from : from+150] { // at most three row groups
		ids = append(ids, m.id)
	}
	for i, most := range []int{3, 0} {
		s3.take()
		a, err := r.Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(big), IDs: ids})
		if err != nil || a.State != restore.Complete {
			t.Fatalf("%+v, %v", a, err)
		}
		if err := exact(list[from:], rowsOf(a.Rows)); err != nil || len(a.Rows) != len(ids) {
			t.Errorf("%d of %d messages: %v", len(a.Rows), len(ids), err)
		}
		if n := len(s3.take()); n > most {
			t.Errorf("%d requests for %d messages at time %d, want at most %d", n, len(ids), i+1, most)
		}
	}
}
