package chat

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/tests/stack"
)

func generator(t testing.TB, c Config) *Generator {
	t.Helper()
	if c.From == (snowflake.Day{}) {
		c.From = snowflake.MakeDay(2026, 5, 1)
	}
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func quantile(sorted []int, q float64) int { return sorted[int(q*float64(len(sorted)-1))] }

func between(t *testing.T, what string, got, lo, hi int) {
	t.Helper()
	if got < lo || got > hi {
		t.Errorf("%s is %d, want %d..%d", what, got, lo, hi)
	}
}

// The shape of a real platform, as doc.go says it.
func TestGeneratorHasTheShapeOfRealChat(t *testing.T) {
	t.Parallel()
	g := generator(t, Config{Seed: 1, Days: 7, Messages: 200_000})
	type convDay struct {
		conv int64
		day  snowflake.Day
	}
	perDay, ids, seqs := map[convDay]int{}, map[uint64]bool{}, map[string]bool{}
	var bodies []int
	var empty, nul, html, cjk, emoji, control, sameMs, backwards, big int
	machines, types := map[uint64]bool{}, map[int8]int{}
	last := map[int64]Message{}
	var first, previous time.Time
	err := g.Each(func(m *Message) error {
		day := Layout().DayOf(m.ID, time.UTC)
		perDay[convDay{m.Conversation, day}]++
		if ids[m.ID] {
			t.Fatalf("message ID %d comes twice", m.ID)
		}
		ids[m.ID] = true
		if k := fmt.Sprint(m.Conversation, "/", m.Seq); seqs[k] {
			t.Fatalf("conversation/sequence %s comes twice", k)
		} else {
			seqs[k] = true
		}
		if first.IsZero() {
			first = m.Created
		}
		if m.Created.Before(previous) || !m.Created.Equal(Layout().Time(m.ID)) {
			t.Fatalf("message %d of %s comes after %s", m.ID, m.Created, previous)
		}
		previous = m.Created
		if m.Conversation <= 1<<53 {
			big++
		}
		if l, ok := last[m.Conversation]; ok {
			if l.Created.Equal(m.Created) {
				sameMs++
			}
			if l.Seq > m.Seq {
				backwards++
			}
		}
		last[m.Conversation] = Message{Created: m.Created, Seq: m.Seq}
		machines[m.ID>>12&1023] = true
		types[m.Type]++
		bodies = append(bodies, len(m.Content))
		count := func(n *int, is bool) {
			if is {
				*n++
			}
		}
		count(&empty, len(m.Content) == 0)
		count(&nul, bytes.IndexByte(m.Content, 0) >= 0)
		count(&html, bytes.Contains(m.Content, []byte("</")))
		count(&cjk, bytes.ContainsAny(m.Content, "的中日語한"))
		count(&emoji, bytes.Contains(m.Content, []byte("😀")) || bytes.Contains(m.Content, []byte("👍")))
		count(&control, bytes.ContainsAny(m.Content, "\x1b\x1a\x7f"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var counts []int
	single := 0
	for _, n := range perDay {
		counts = append(counts, n)
		if n == 1 {
			single++
		}
	}
	slices.Sort(counts)
	slices.Sort(bodies)
	between(t, "number of messages", len(bodies), 200_000, 200_000)
	between(t, "single conversations in a thousand", single*1000/len(counts), 235, 265)
	between(t, "p50 of messages per conversation and day", quantile(counts, 0.5), 4, 4)
	between(t, "p90 of messages per conversation and day", quantile(counts, 0.9), 17, 19)
	between(t, "p99 of messages per conversation and day", quantile(counts, 0.99), 56, 68)
	between(t, "most messages per conversation and day", counts[len(counts)-1], 500, 830)
	between(t, "p50 of body bytes", quantile(bodies, 0.5), 150, 170)
	between(t, "p90 of body bytes", quantile(bodies, 0.9), 1240, 1360)
	between(t, "p99 of body bytes", quantile(bodies, 0.99), 9400, 10600)
	between(t, "largest body", bodies[len(bodies)-1], 150_000, 205_000)
	between(t, "machines", len(machines), 6, 6)
	between(t, "message types", len(types), 4, 4)
	between(t, "conversation IDs below 2^53", big, 0, 0)
	for what, n := range map[string]int{"empty": empty, "NUL": nul, "HTML": html, "CJK": cjk, "emoji": emoji, "control": control,
		"same millisecond": sameMs, "sequence against the IDs": backwards} {
		between(t, "messages with "+what, n, 500, 100_000)
	}
	if want := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC); !first.Equal(want) {
		t.Errorf("first message at %s, want %s", first, want)
	}
	if want := time.Date(2026, 5, 7, 23, 59, 59, 999e6, time.UTC); !previous.Equal(want) {
		t.Errorf("last message at %s, want %s", previous, want)
	}
}

func sum(t *testing.T, s Source) string {
	t.Helper()
	h := sha256.New()
	if err := s.Each(func(m *Message) error { _, err := fmt.Fprintf(h, "%+v\n", *m); return err }); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func TestGeneratorIsDeterministic(t *testing.T) {
	t.Parallel()
	c := Config{Seed: 7, Days: 2, Messages: 3000}
	a, b := sum(t, generator(t, c)), sum(t, generator(t, c))
	if a != b {
		t.Error("two runs of one seed differ")
	}
	if c.Seed = 8; sum(t, generator(t, c)) == a {
		t.Error("two seeds give the same")
	}
}

// One conversation may hold any number of messages, also beyond its usual day.
func TestGeneratorFillsOneConversation(t *testing.T) {
	t.Parallel()
	n, seq := 0, map[uint64]bool{}
	if err := generator(t, Config{Messages: 5000, Conversations: 1}).Each(func(m *Message) error {
		n++
		seq[m.Seq] = true
		return nil
	}); err != nil || n != 5000 || len(seq) != n {
		t.Errorf("%d messages with %d sequence numbers, %v; want 5000", n, len(seq), err)
	}
	if _, err := New(Config{Messages: 1, From: snowflake.MakeDay(2014, 12, 1)}); err == nil {
		t.Error("a day before the epoch is taken")
	}
}

const dump = "837851385029464064\t9045643046648866392\t10014\t1\t9045643046648866392\t1\ttab\\tnewline\\nnul\\0cr\\rbackslash\\\\\tce1f\t0\t2021-05-01 00:12:13.123\t24\n" +
	"837854202049859584\t3576796436754813772\t10014\t0\t10015\t1\t\tce20\t1\t2021-05-02 00:23:24.007\t4\n"

func TestTSVIsUnescapedAndCopied(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dump.tsv")
	if err := os.WriteFile(path, []byte(dump), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenTSV(path, 7)
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Days(); len(d) != 2 || d[0].String() != "2021-05-01" {
		t.Errorf("days %v", d)
	}
	ids, conversations, n := map[uint64]bool{}, map[int64]int{}, 0
	if err := s.Each(func(m *Message) error {
		if n == 0 && string(m.Content) != "tab\tnewline\nnul\x00cr\rbackslash\\" {
			t.Errorf("content %q", m.Content)
		}
		n++
		ids[m.ID] = true
		conversations[m.Conversation]++
		if !Layout().Time(m.ID).Equal(Layout().Time(m.ID &^ (1<<22 - 1))) {
			t.Errorf("copy %d has another time", m.ID)
		}
		return nil
	}); err != nil || n != 7 || len(ids) != 7 || len(conversations) != 7 {
		t.Errorf("%d rows, %d IDs, %d conversations, %v; want 7 of each", n, len(ids), len(conversations), err)
	}
	if _, err := OpenTSV(path, 2*maxCopies+1); err == nil {
		t.Error("more copies than machines are taken")
	}
}

// The real month, copied: IDs and conversations stay apart.
func TestRealMonthIsCopied(t *testing.T) {
	t.Parallel()
	s := RealMonth(t, 50_000)
	ids, conversations, copies := map[uint64]bool{}, map[string]bool{}, 0
	if err := s.Each(func(m *Message) error {
		ids[m.ID] = true
		conversations[fmt.Sprint(m.Conversation, m.Seq)] = true
		copies++
		return nil
	}); err != nil || len(ids) != 50_000 || len(conversations) != 50_000 || copies != 50_000 {
		t.Errorf("%d rows, %d IDs, %d places in conversations, %v; want 50,000 of each", copies, len(ids), len(conversations), err)
	}
}

// What is loaded is what was made, byte for byte, in a partitioned table and a plain one.
func TestLoadKeepsEveryByte(t *testing.T) {
	t.Parallel()
	db := stack.OpenMySQL(t, stack.MySQL(t))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	g := generator(t, Config{Seed: 3, Days: 3, Messages: 4000})
	if err := Create(ctx, db, "msg_content_00", g.Days()); err != nil {
		t.Fatal(err)
	}
	if err := Create(ctx, db, "msg_content_01", nil); err != nil {
		t.Fatal(err)
	}
	stats, err := Load(ctx, g, Target{db, "msg_content_00"}, Target{db, "msg_content_01"})
	if err != nil || stats.Messages != 4000 {
		t.Fatalf("loaded %+v, %v", stats, err)
	}
	want, got := map[uint64]uint64{}, map[uint64]uint64{}
	hash := func(m *Message) uint64 {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%+v", *m)
		return h.Sum64()
	}
	if err := g.Each(func(m *Message) error { want[m.ID] = hash(m); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"msg_content_00", "msg_content_01"} {
		n := 0
		for _, m := range readAll(ctx, t, db, table) {
			got[m.ID] = hash(&m)
			n++
		}
		if n < 1000 {
			t.Errorf("%s has %d rows", table, n)
		}
	}
	for id, h := range want {
		if got[id] != h {
			t.Errorf("message %d differs in the table or is missing", id)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d rows in the tables, want %d", len(got), len(want))
	}
	// Again: the first duplicate ends it, with the server's own words.
	if _, err := Load(ctx, g, Target{db, "msg_content_00"}); err == nil {
		t.Error("duplicates are loaded")
	}
}

func readAll(ctx context.Context, t *testing.T, db *sql.DB, table string) (all []Message) {
	t.Helper()
	rows, err := db.QueryContext(ctx, "SELECT "+columns+" FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var m Message
		var created string
		if err := rows.Scan(&m.ID, &m.Conversation, &m.Sender, &m.ReceiverType, &m.Receiver, &m.Type, &m.Content, &m.ClientID, &m.Status, &created, &m.Seq); err != nil {
			t.Fatal(err)
		}
		if m.Created, err = time.Parse("2006-01-02 15:04:05.000", created); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func BenchmarkGenerate(b *testing.B) {
	var bodies int64
	if err := generator(b, Config{Seed: 1, Messages: b.N}).Each(func(m *Message) error { bodies += int64(len(m.Content)); return nil }); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(bodies / int64(b.N))
}
