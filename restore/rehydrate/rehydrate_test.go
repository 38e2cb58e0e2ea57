package rehydrate_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/rehydrate"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/copies"
	"github.com/coldtier/coldtier/tests/stack"
)

const ddl = "CREATE TABLE `msg` (\n  `id` bigint unsigned NOT NULL,\n  `conv` varchar(64) COLLATE utf8mb4_bin NOT NULL,\n  `seq` bigint unsigned NOT NULL,\n  `st` tinyint DEFAULT NULL,\n  `body` blob,\n  PRIMARY KEY (`id`),\n  UNIQUE KEY `place` (`conv`,`seq`,`id`)\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"

func columns(more ...message.Column) []message.Column {
	return append([]message.Column{
		{Name: "id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"}, {Name: "conv", Kind: message.Text, SourceType: "varchar(64)", Charset: "utf8mb4"},
		{Name: "seq", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"}, {Name: "st", Kind: message.Int, Bits: 8, Nullable: true, SourceType: "tinyint"},
		{Name: "body", Kind: message.Bytes, Nullable: true, SourceType: "blob"},
	}, more...)
}

func schema(t testing.TB, more ...message.Column) *message.Schema {
	t.Helper()
	s, err := message.NewSchema(columns(more...), map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Sequence: "seq", message.Status: "st"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bench is a cold tier of two days, and a database to restore it into.
type bench struct {
	*copies.Tier
	t    *testing.T
	days []snowflake.Day
	rows [][][]byte // of both days
	dsn  string
	db   *sql.DB
	into *copies.IntoMySQL
	cfg  rehydrate.Config
	fall bool // rows that the bucket lacks are taken from ClickHouse

	mu    sync.Mutex
	slept []time.Duration
}

var shard = manifest.Shard{Database: "im_00", Table: "msg"}

func (b *bench) window(day int) (lo, hi uint64) {
	b.t.Helper()
	lo, hi, err := copies.Layout().Window(b.days[day], time.UTC)
	if err != nil {
		b.t.Fatal(err)
	}
	return lo, hi
}

// newBench archives messages a day, at random moments, in a few conversations.
func newBench(t *testing.T, messages int) *bench {
	t.Helper()
	b := &bench{t: t, Tier: copies.New(t), dsn: stack.MySQL(t), days: []snowflake.Day{snowflake.MakeDay(2024, 3, 1), snowflake.MakeDay(2024, 3, 2)}}
	b.db = stack.OpenMySQL(t, b.dsn)
	b.into = copies.Target(t, warm.TargetConfig{DSN: b.dsn})
	b.cfg = rehydrate.Config{Create: true, Now: time.Now, Sleep: func(ctx context.Context, d time.Duration) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.slept = append(b.slept, d)
		return ctx.Err()
	}}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for d, day := range b.days {
		lo, hi := b.window(d)
		var rows [][][]byte
		seen := map[uint64]bool{}
		for i := range messages {
			id := lo + r.Uint64N(hi-lo)
			if seen[id] {
				continue
			}
			seen[id] = true
			body := make([]byte, r.IntN(200))
			for k := range body {
				body[k] = byte(r.Uint32())
			}
			rows = append(rows, [][]byte{[]byte(message.FormatID(id)), fmt.Appendf(nil, "c%d", r.IntN(6)), []byte(message.FormatID(uint64(i))), []byte("0"), body})
		}
		b.Commit(copies.Copy{Shard: shard, Day: day, Schema: schema(t), ShowCreate: ddl, Rows: rows, Per: 2, GroupBytes: 4 << 10})
		b.rows = append(b.rows, rows...)
	}
	return b
}

func (b *bench) exec(query string, args ...any) {
	b.t.Helper()
	if _, err := b.db.ExecContext(b.t.Context(), query, args...); err != nil {
		b.t.Fatalf("%.200s: %v", query, err)
	}
}

func (b *bench) restorer() *rehydrate.Restorer {
	b.t.Helper()
	r, err := rehydrate.New(rehydrate.Deps{Reader: b.Reader(b.fall), Manifest: b.Store, Target: b.into, Server: b.into}, b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) restore(sel selection.Selection) (*rehydrate.Report, error) {
	b.t.Helper()
	r := b.restorer()
	p, err := r.Plan(b.t.Context(), sel)
	if err != nil {
		return nil, err
	}
	return r.Execute(b.t.Context(), p)
}

func (b *bench) must(sel selection.Selection) *rehydrate.Report {
	b.t.Helper()
	rep, err := b.restore(sel)
	if err != nil {
		b.t.Fatal(err)
	}
	return rep
}

// table reads a table, past the product, by message ID.
func (b *bench) table(name string) map[uint64]string {
	b.t.Helper()
	rows, err := b.db.QueryContext(b.t.Context(), "SELECT id, conv, seq, st, body FROM "+name)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	out := map[uint64]string{}
	for rows.Next() {
		var id uint64
		var v [4]sql.RawBytes
		if err := rows.Scan(&id, &v[0], &v[1], &v[2], &v[3]); err != nil {
			b.t.Fatal(err)
		}
		out[id] = fmt.Sprintf("%q", v)
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func id(row [][]byte) uint64 {
	n, _ := message.ParseUint(row[0])
	return n
}

// want are the archived rows that pass.
func (b *bench) want(pass func(row [][]byte) bool) map[uint64]string {
	out := map[uint64]string{}
	for _, r := range b.rows {
		if pass(r) {
			out[id(r)] = fmt.Sprintf("%q", [4]sql.RawBytes{r[1], r[2], r[3], r[4]})
		}
	}
	return out
}

func (b *bench) same(what string, got, want map[uint64]string) {
	b.t.Helper()
	for id, w := range want {
		if got[id] != w {
			b.t.Errorf("%s: message %d reads %.200s, want %.200s", what, id, got[id], w)
			return
		}
	}
	if len(got) != len(want) {
		b.t.Errorf("%s: %d rows, want %d", what, len(got), len(want))
	}
}

func all([][]byte) bool { return true }

// Parts are restored exactly, each beside the others, and what is said of them is so.
func TestPartsAreRestoredExactly(t *testing.T) {
	t.Parallel()
	b := newBench(t, 400)
	lo, hi := b.window(1)
	mid := lo + (hi-lo)/2
	until := copies.Layout().Time(mid)
	for name, c := range map[string]struct {
		sel  selection.Selection
		pass func(row [][]byte) bool
	}{
		"everything":    {selection.Selection{}, all},
		"one_day":       {selection.Selection{From: &b.days[1]}, func(r [][]byte) bool { return id(r) >= lo }},
		"ids":           {selection.Selection{IDs: &selection.IDs{First: lo - 1<<44, Last: mid}}, func(r [][]byte) bool { return id(r) >= lo-1<<44 && id(r) <= mid }},
		"until":         {selection.Selection{Until: &until}, func(r [][]byte) bool { return !copies.Layout().Time(id(r)).After(until) }},
		"conversations": {selection.Selection{Conversations: [][]byte{[]byte("c1"), []byte("c4")}}, func(r [][]byte) bool { return string(r[1]) == "c1" || string(r[1]) == "c4" }},
		"one_and_until": {selection.Selection{Conversations: [][]byte{[]byte("c2")}, Until: &until}, func(r [][]byte) bool { return string(r[1]) == "c2" && !copies.Layout().Time(id(r)).After(until) }},
	} {
		b.cfg.Names = rehydrate.Names("r_" + name)
		want := b.want(c.pass)
		rep := b.must(c.sel)
		b.same(name, b.table("r_"+name), want)
		if rep.Rows != uint64(len(want)) || rep.Inserted != rep.Rows || rep.Count(rehydrate.Restored) != len(rep.Slices) || len(rep.Tables) != 1 || !rep.Tables[0].Create {
			t.Errorf("%s: %+v", name, rep)
		}
		for _, s := range rep.Slices {
			if s.Found != s.Archived || s.Found.Rows != s.Rows || s.Extra != 0 {
				t.Errorf("%s: slice %s: found %s, archived %s, extra %d", name, s.SliceKey, s.Found, s.Archived, s.Extra)
			}
		}
		if rep = b.must(c.sel); rep.Inserted != 0 || rep.Present != uint64(len(want)) || rep.Count(rehydrate.There) != len(rep.Slices) {
			t.Errorf("%s again: %d inserted, %d there", name, rep.Inserted, rep.Present)
		}
	}
	// All of it over a part, beside rows of others.
	b.cfg.Names = "r_conversations"
	b.exec("INSERT INTO r_conversations (id, conv, seq) VALUES (?, 'nobody archived', 1)", mid)
	rep := b.must(selection.Selection{})
	want := b.want(all)
	part := len(b.want(func(r [][]byte) bool { return string(r[1]) == "c1" || string(r[1]) == "c4" }))
	extra := uint64(0)
	for _, s := range rep.Slices {
		extra += s.Extra
	}
	if rep.Present != uint64(part) || rep.Inserted != uint64(len(want)-part) || extra != 1 {
		t.Errorf("over a part: %d there, %d inserted, %d extra", rep.Present, rep.Inserted, extra)
	}
	got := b.table("r_conversations")
	delete(got, mid)
	b.same("over a part", got, want)
	if rep = b.must(selection.Selection{}); rep.Inserted != 0 || rep.Present != uint64(len(want)) {
		t.Errorf("over all: %d inserted, %d there", rep.Inserted, rep.Present)
	}
}

// Whatever ends a restore, what is in the table is right, nothing more is claimed, and the
// same restore goes on from there.
func TestRestoreGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t, 500)
	b.cfg.Memory, b.cfg.Slices, b.cfg.Writers = 100<<10, 1, 2
	stop := errors.New("no more")
	want := b.want(all)
	for n := 1; ; n++ {
		var mu sync.Mutex
		left := n
		b.cfg.Step = func(string) error {
			mu.Lock()
			defer mu.Unlock()
			if left--; left < 0 {
				return stop
			}
			return nil
		}
		rep, err := b.restore(selection.Selection{})
		if err == nil {
			if n < 4 {
				t.Fatalf("it had only %d steps", n)
			}
			b.same("at last", b.table("msg"), want)
			return
		}
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
		if rep == nil {
			continue // when the table had been made
		}
		if rep.Count(rehydrate.Failed) == 0 || !strings.Contains(err.Error(), "run the same command again") {
			t.Errorf("step %d: %v: %+v", n, err, rep)
		}
		for id, r := range b.table("msg") {
			if want[id] != r {
				t.Fatalf("step %d: message %d reads %s", n, id, r)
			}
		}
		if n%3 == 0 {
			b.exec("TRUNCATE TABLE msg")
		}
	}
}

// A step that is cut off is tried again, for a while; a lost answer writes no row twice.
func TestCutOffWritesAreTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, 300)
	b.cfg.Memory, b.cfg.Writers = 60<<10, 1
	rng := rand.New(rand.NewPCG(rand.Uint64(), 4))
	cut := 0
	b.into.Before = func(*message.Batch) error {
		if rng.IntN(3) == 0 {
			cut++
			return fmt.Errorf("%w: the line is cut", rehydrate.ErrAgain)
		}
		return nil
	}
	b.cfg.Slices = 1
	rep := b.must(selection.Selection{})
	b.same("after cuts", b.table("msg"), b.want(all))
	if rep.Rows != uint64(len(b.rows)) || len(b.slept) < cut {
		t.Errorf("%d cuts, %d pauses, %+v", cut, len(b.slept), rep)
	}
	b.exec("DROP TABLE msg")
	b.slept = nil
	b.into.Before = func(*message.Batch) error { return fmt.Errorf("%w: the line is cut", rehydrate.ErrAgain) }
	rep, err := b.restore(selection.Selection{})
	total := time.Duration(0)
	for _, d := range b.slept {
		total += d
	}
	if !errors.Is(err, rehydrate.ErrAgain) || rep.Inserted != 0 || rep.Count(rehydrate.Restored) != 0 || total < 10*time.Second || total > 5*time.Minute {
		t.Errorf("%v after pauses of %s: %+v", err, total, rep)
	}
}

// Conflicts are named and kept, the rest is restored, and it is not said to be all.
func TestConflictsEndInPart(t *testing.T) {
	t.Parallel()
	b := newBench(t, 300)
	b.exec(ddl)
	b.cfg.Create = false
	b.exec("INSERT INTO msg VALUES (?, 'cX', 1, NULL, 'another')", id(b.rows[3]))
	b.exec("INSERT INTO msg VALUES (?, ?, ?, 0, 'another body')", id(b.rows[4]), b.rows[4][1], b.rows[4][2])
	for n := range 2 {
		before := b.Reads()
		rep, err := b.restore(selection.Selection{})
		if reads := b.Reads() - before; rep != nil && reads != rep.Requests {
			t.Errorf("%d requests, %d of which are reported: conflicts need no second reading", reads, rep.Requests)
		}
		if !errors.Is(err, rehydrate.ErrPartly) || !strings.Contains(err.Error(), "rows in conflict: 2") || strings.Contains(err.Error(), "another") {
			t.Fatal(err)
		}
		if len(rep.Conflicts) != 2 || rep.Inserted != [2]uint64{uint64(len(b.rows) - 2), 0}[n] || rep.Count(rehydrate.Partly) != 1 {
			t.Errorf("%+v", rep)
		}
		for _, c := range rep.Conflicts {
			if c.MessageID == id(b.rows[3]) && !slices.Equal(c.Columns, []string{"conv", "seq", "st", "body"}) || c.MessageID == id(b.rows[4]) && !slices.Equal(c.Columns, []string{"body"}) {
				t.Errorf("%+v", c)
			}
		}
		got := b.table("msg")
		if !strings.Contains(got[id(b.rows[3])], "cX") || !strings.Contains(got[id(b.rows[4])], "another body") || len(got) != len(b.rows) {
			t.Errorf("%d rows, %s, %s", len(got), got[id(b.rows[3])], got[id(b.rows[4])])
		}
	}
	// Of chosen conversations, one of which the other row does not belong to.
	rep, err := b.restore(selection.Selection{Conversations: [][]byte{b.rows[3][1]}})
	if !errors.Is(err, rehydrate.ErrPartly) || rep.Inserted != 0 || rep.Count(rehydrate.Failed) != 0 {
		t.Errorf("%v: %+v", err, rep)
	}
}

// A table that changes while it is written into is seen: a row that was restored and is
// another at the end, or is gone, is no success.
func TestTheEndIsCompared(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{"changed": "UPDATE msg SET body = 'another' WHERE id = ?", "gone": "DELETE FROM msg WHERE id = ?"} {
		b := newBench(t, 50)
		b.cfg.Slices = 1
		done := false
		b.cfg.Step = func(step string) error {
			if step == "restore.written" && !done {
				done = true
				b.exec(query, id(b.rows[7]))
			}
			return nil
		}
		rep, err := b.restore(selection.Selection{})
		if !errors.Is(err, rehydrate.ErrDiffers) || errors.Is(err, rehydrate.ErrPartly) || !strings.Contains(err.Error(), message.FormatID(id(b.rows[7]))) {
			t.Errorf("%s: %v", name, err)
		}
		if rep.Count(rehydrate.Failed) != 1 || rep.Count(rehydrate.Restored) != 1 {
			t.Errorf("%s: %+v", name, rep)
		}
	}
}

// What would go wrong is refused before anything is written.
func TestPlansThatWouldGoWrongAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, 60)
	other := manifest.Shard{Database: "im_01", Table: "msg"}
	day := snowflake.MakeDay(2024, 3, 3)
	lo, _, err := copies.Layout().Window(day, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	added := message.Column{Name: "added", Kind: message.Text, Nullable: true, SourceType: "varchar(9)", Charset: "utf8mb4"}
	row := func(n uint64, value []byte) [][]byte {
		return [][]byte{[]byte(message.FormatID(lo + n)), []byte("c"), []byte("1"), nil, nil, value}
	}
	b.Commit(copies.Copy{Shard: other, Day: day, Schema: schema(t, added), ShowCreate: strings.Replace(ddl, "`body` blob", "`added` varchar(9), `body` blob", 1), Rows: [][][]byte{row(1, nil), row(2, nil)}})
	refuse := func(name string, sel selection.Selection, words ...string) {
		t.Helper()
		rep, err := b.restore(sel)
		if !errors.Is(err, rehydrate.ErrRefused) {
			t.Errorf("%s: %v", name, err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the error lacks %q: %v", name, w, err)
			}
		}
		if rep != nil {
			t.Errorf("%s: something was done: %+v", name, rep)
		}
	}
	refuse("two shards, one name", selection.Selection{}, "im_00.msg", "im_01.msg", "--table '{database}_{table}'")
	b.cfg.Names = "{database}_{table}"
	b.cfg.Create = false
	refuse("no table", selection.Selection{}, "im_00_msg", "im_01_msg")
	b.cfg.Names = ""
	one := selection.Selection{Shard: "im_01.*"}
	b.exec(ddl)
	if rep := b.must(one); rep.Inserted != 2 { // the missing column has no value in any row
		t.Errorf("%+v", rep)
	}
	b.Commit(copies.Copy{Shard: other, Day: day.Next(), Schema: schema(t, added), ShowCreate: ddl, Rows: [][][]byte{{[]byte(message.FormatID(lo + 1<<49)), []byte("c"), []byte("1"), nil, nil, []byte("value")}}})
	b.exec("DELETE FROM msg")
	refuse("a value in a column that is missing", one, "added", message.FormatID(lo+1<<49))
	b.exec("ALTER TABLE msg DROP body, ADD tenant INT NOT NULL, MODIFY seq DATE")
	refuse("columns", selection.Selection{Shard: "im_00.*"}, "column tenant", "column seq")
	if n := len(b.table("(SELECT id, conv, seq, st, 1 AS body FROM msg) AS x")); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	if _, err := b.restore(selection.Selection{Conversations: [][]byte{[]byte("nobody")}}); !errors.Is(err, rehydrate.ErrNothing) {
		t.Errorf("nothing: %v", err)
	}
	b.cfg.Names = rehydrate.Names(strings.Repeat("x", 65))
	refuse("a long name", one, "64")
}

// keeper notes what is kept.
type keeper struct {
	mu   sync.Mutex
	kept []manifest.SliceKey
	err  error
}

func (k *keeper) Keep(_ context.Context, key manifest.SliceKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, key)
	return k.err
}

// Live tables are written with leave alone, only by rows of their own shard, and not
// before their slices are held.
func TestLiveTablesWantLeave(t *testing.T) {
	t.Parallel()
	b := newBench(t, 60)
	b.exec(ddl)
	live := &rehydrate.Live{Database: "im_00", Is: func(table string) bool { return table == "msg" }}
	b.cfg.Live = live
	if _, err := b.restore(selection.Selection{}); !errors.Is(err, rehydrate.ErrRefused) || !strings.Contains(err.Error(), "im_00.msg is a live warm table") {
		t.Errorf("without leave: %v", err)
	}
	b.cfg.Names = "elsewhere"
	b.must(selection.Selection{})
	b.cfg.Names = ""
	k := &keeper{err: errors.New("the manifest is away")}
	live.Keeper = k
	if rep, err := b.restore(selection.Selection{}); !errors.Is(err, k.err) || rep.Inserted != 0 || len(b.table("msg")) != 0 {
		t.Errorf("without a hold: %v, %+v", err, rep)
	}
	k.err, k.kept = nil, nil
	b.must(selection.Selection{})
	b.must(selection.Selection{})
	if len(k.kept) < 4 { // before and after, and again where all is there
		t.Errorf("kept %v", k.kept)
	}
	live.Database = "im_99"
	if _, err := b.restore(selection.Selection{}); !errors.Is(err, rehydrate.ErrRefused) || !strings.Contains(err.Error(), "another shard's") {
		t.Errorf("another shard: %v", err)
	}
}

// What the bucket has lost is named and all else restored; ClickHouse gives it where it
// has it. A2.
func TestLostRowsAreNamedAndTheRestIsRestored(t *testing.T) {
	t.Parallel()
	b := newBench(t, 300)
	found, err := b.Store.Slices(t.Context(), manifest.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Store.LoadCopy(t.Context(), found[0].ID, found[0].Live)
	if err != nil {
		t.Fatal(err)
	}
	o := c.Objects[0]
	if err := b.Bucket.Damage(o.Key, func(p []byte) []byte { return p[:len(p)/2] }); err != nil {
		t.Fatal(err)
	}
	rep, err := b.restore(selection.Selection{})
	if !errors.Is(err, rehydrate.ErrPartly) || !errors.Is(err, selection.ErrLost) || !strings.Contains(err.Error(), o.Key) {
		t.Fatal(err)
	}
	lost := int64(0)
	for _, d := range rep.Slices[0].Damaged {
		lost += d.Rows
	}
	got := b.table("msg")
	if lost == 0 || len(got) != len(b.rows)-int(lost) || rep.Count(rehydrate.Failed) != 1 || rep.Count(rehydrate.Restored) != 1 {
		t.Errorf("%d rows of %d, %d lost, %+v", len(got), len(b.rows), lost, rep)
	}
	b.fall = true
	rep = b.must(selection.Selection{})
	b.same("with ClickHouse", b.table("msg"), b.want(all))
	if rep.Inserted != uint64(lost) || len(rep.Slices[0].Damaged) == 0 || !rep.Slices[0].Damaged[0].Replaced {
		t.Errorf("%+v", rep)
	}
	// A bucket that does not have it at all.
	b.fall = false
	b.exec("DROP TABLE msg")
	for _, o := range c.Objects {
		if err := b.Bucket.Delete(t.Context(), o.Key); err != nil {
			t.Fatal(err)
		}
	}
	rep, err = b.restore(selection.Selection{To: &b.days[0]})
	if !errors.Is(err, selection.ErrLost) || errors.Is(err, rehydrate.ErrPartly) || rep.Inserted != 0 {
		t.Errorf("nothing is left: %v, %+v", err, rep)
	}
}

// Statuses are in the status column, in the first restore and in one that goes on.
func TestStatusesAreRestored(t *testing.T) {
	t.Parallel()
	b := newBench(t, 60)
	b.must(selection.Selection{})
	value := "2"
	changed := b.rows[5]
	if _, err := b.Store.PutStatus(t.Context(), manifest.Status{Conversation: changed[1], MessageID: id(changed), Kind: manifest.StatusRecalled, Value: &value, By: "test"}); err != nil {
		t.Fatal(err)
	}
	// What was restored before is another now: a conflict, not an update.
	if rep, err := b.restore(selection.Selection{}); !errors.Is(err, rehydrate.ErrPartly) || len(rep.Conflicts) != 1 || !slices.Equal(rep.Conflicts[0].Columns, []string{"st"}) {
		t.Errorf("%v", err)
	}
	b.exec("DROP TABLE msg")
	rep := b.must(selection.Selection{})
	changed[3] = []byte(value)
	b.same("with the status", b.table("msg"), b.want(all))
	statuses := uint64(0)
	for _, s := range rep.Slices {
		statuses += s.Statuses
	}
	if statuses != 1 {
		t.Errorf("%d statuses", statuses)
	}
	if rep = b.must(selection.Selection{}); rep.Inserted != 0 || !bytes.Equal(changed[3], []byte("2")) {
		t.Errorf("again: %+v", rep)
	}
}

// server is a target's server that is not well for a while.
type server struct {
	lag     []time.Duration
	threads []int
	asked   int
}

func (s *server) Lag(context.Context) (time.Duration, error) {
	i := min(s.asked, len(s.lag)-1)
	return s.lag[i], nil
}

func (s *server) ThreadsRunning(context.Context) (int, error) {
	i := min(s.asked, len(s.threads)-1)
	s.asked++
	return s.threads[i], nil
}

// Rows are written no faster than is allowed, and not while the server or its replicas
// are not well.
func TestRestoreIsThrottled(t *testing.T) {
	t.Parallel()
	b := newBench(t, 400)
	now := time.Unix(1e9, 0)
	b.cfg.Now = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return now }
	b.cfg.Sleep = func(_ context.Context, d time.Duration) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		now = now.Add(d)
		return nil
	}
	b.cfg.RowsPerSecond, b.cfg.Memory, b.cfg.Slices = 100, 60<<10, 1
	b.must(selection.Selection{})
	if took := now.Sub(time.Unix(1e9, 0)); took < time.Duration(len(b.rows)-200)*time.Second/100 {
		t.Errorf("%d rows took %s at 100 a second", len(b.rows), took)
	}
	b.exec("DROP TABLE msg")
	b.cfg.RowsPerSecond, b.cfg.MaxReplicaLag, b.cfg.MaxThreadsRunning, b.cfg.MaxWait = 0, 5*time.Second, 10, time.Minute
	busy := &server{lag: []time.Duration{0}, threads: []int{99, 99, 3}}
	run := func() (*rehydrate.Report, error) {
		r := b.restorer()
		d := r.Deps
		d.Server = busy
		r, err := rehydrate.New(d, b.cfg)
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.Plan(t.Context(), selection.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Execute(t.Context(), p)
	}
	begun := now
	busy.asked = 0
	busy.lag = []time.Duration{0}
	if _, err := run(); err != nil || now.Sub(begun) < 2*time.Second {
		t.Errorf("busy for a while: %v after %s", err, now.Sub(begun))
	}
	b.exec("DROP TABLE msg")
	busy.lag = []time.Duration{9 * time.Second}
	rep, err := run()
	if !errors.Is(err, rehydrate.ErrThrottled) || rep.Inserted != 0 {
		t.Errorf("busy for ever: %v", err)
	}
}
