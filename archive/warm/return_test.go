package warm

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

// state reads all rows of a table past the product, by ID.
func (b *bench) state(table string) map[string]string {
	b.t.Helper()
	rows, err := b.db.QueryContext(b.t.Context(), "SELECT id, CONCAT_WS('|', conv, SHA2(body, 256), COALESCE(note, 'NULL'), len) AS v FROM "+table)
	if err != nil {
		b.t.Fatal(err)
	}
	named, err := namedRows(rows)
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[string]string{}
	for _, r := range named {
		out[string(r["id"])] = string(r["v"])
	}
	return out
}

// What ReturnStaging may meet: each state that a crash or late writers can leave.
func TestStagingIsReturnedFromEveryState(t *testing.T) {
	t.Parallel()
	late := func(b *bench, id int) {
		b.exec("INSERT INTO msg (id, conv, body) VALUES (?, 1, 'late')", id)
	}
	for name, reach := range map[string]func(*testing.T, *bench, *Table){
		"nothing made":            func(*testing.T, *bench, *Table) {},
		"made, still partitioned": func(t *testing.T, b *bench, _ *Table) { b.exec("CREATE TABLE " + staging + " LIKE msg") },
		"made": func(t *testing.T, _ *bench, tab *Table) {
			if err := tab.CreateStaging(t.Context(), staging); err != nil {
				t.Fatal(err)
			}
		},
		"exchanged": func(t *testing.T, _ *bench, tab *Table) { exchanged(t, tab, 2000, 4000) },
		"exchanged, one late row": func(t *testing.T, b *bench, tab *Table) {
			exchanged(t, tab, 2000, 4000)
			late(b, 2005)
		},
		"exchanged, more late rows than were there": func(t *testing.T, b *bench, tab *Table) {
			exchanged(t, tab, 2000, 4000)
			for id := 2001; id < 2900; id++ {
				if id%10 != 0 {
					late(b, id)
				}
			}
		},
		"exchanged twice": func(t *testing.T, b *bench, tab *Table) {
			exchanged(t, tab, 2000, 4000)
			late(b, 2005)
			late(b, 3995)
			p, _, err := tab.Partition(t.Context(), 2000, 4000)
			if err != nil {
				t.Fatal(err)
			}
			s, err := tab.d.ddl(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer s.close(t.Context())
			if err := tab.swap(t.Context(), s, p, staging); err != nil {
				t.Fatal(err)
			}
		},
		"half moved": func(t *testing.T, b *bench, tab *Table) {
			exchanged(t, tab, 2000, 4000)
			b.exec("INSERT INTO msg (id, conv, body, note) SELECT id, conv, body, note FROM " + staging + " WHERE id < 3000")
			b.exec("DELETE FROM " + staging + " WHERE id < 2500") // those from 2500 to 3000 are in both
		},
		"partition gone": func(t *testing.T, b *bench, tab *Table) {
			exchanged(t, tab, 2000, 4000)
			b.exec("ALTER TABLE msg REMOVE PARTITIONING")
		},
	} {
		b, tab := parted(t)
		want := b.state("msg")
		reach(t, b, tab)
		now := b.state("msg")
		for id, v := range now {
			if _, ours := want[id]; !ours {
				want[id] = v // late
			}
		}
		if b.exists(staging) {
			for id, v := range b.state(staging) {
				want[id] = v
			}
		}
		for range 2 { // the second time there is nothing to do
			if err := tab.ReturnStaging(t.Context(), staging); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := b.state("msg"); !maps.Equal(got, want) {
			t.Errorf("%s: %d rows came back, want %d", name, len(got), len(want))
		}
		if b.exists(staging) {
			t.Errorf("%s: the staging table is still there", name)
		}
	}
}

// A message that came again with other values is kept in both places.
func TestConflictKeepsBoth(t *testing.T) {
	t.Parallel()
	b, tab := parted(t)
	exchanged(t, tab, 2000, 4000)
	was := b.state(staging)
	b.exec("INSERT INTO msg (id, conv, body) VALUES (2500, 1, 'again'), (3000, 1, 'again'), (2005, 1, 'late')")
	// A row of the staging table may be equal to one in the table, too.
	b.exec("INSERT INTO msg (id, conv, body, note) SELECT id, conv, body, note FROM " + staging + " WHERE id = 2600")
	for range 2 {
		err := tab.ReturnStaging(t.Context(), staging)
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "2500") || !strings.Contains(err.Error(), "3000") {
			t.Fatalf("conflict: %v", err)
		}
	}
	left, now := b.state(staging), b.state("msg")
	// The exchange back may leave either version in either place.
	for _, id := range []string{"2500", "3000"} {
		if len(left) != 2 || left[id] == now[id] || left[id] == "" || (left[id] != was[id] && now[id] != was[id]) {
			t.Errorf("message %s: %q and %q, was %q", id, left[id], now[id], was[id])
		}
		delete(was, id)
	}
	for id, v := range was {
		if now[id] != v {
			t.Errorf("message %s is %q, was %q", id, now[id], v)
		}
	}
	if _, ok := now["2005"]; !ok {
		t.Error("the late row is gone")
	}
}

// together reads the table and the staging table in one snapshot; a row that is in
// both must be equal.
func (b *bench) together() map[string]string {
	b.t.Helper()
	read := func() (map[string]string, error) {
		tx, err := b.db.BeginTx(b.t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			return nil, err
		}
		defer func() { _ = tx.Rollback() }()
		all := map[string]string{}
		for _, table := range []string{"msg", staging} {
			rows, err := tx.QueryContext(b.t.Context(), "SELECT id, CONCAT_WS('|', conv, SHA2(body, 256), COALESCE(note, 'NULL'), len) AS v FROM "+table)
			if err != nil {
				if number(err) == 1146 && table == staging { // gone since: all is in the table
					return b.state("msg"), nil
				}
				return nil, err
			}
			named, err := namedRows(rows)
			if err != nil {
				return nil, err
			}
			for _, r := range named {
				id, v := string(r["id"]), string(r["v"])
				if both, ok := all[id]; ok && both != v {
					b.t.Errorf("message %s has two values", id)
				}
				all[id] = v
			}
		}
		return all, nil
	}
	for {
		all, err := read()
		if err == nil {
			return all
		}
		if number(err) != 1412 { // definition changed since the snapshot
			b.t.Fatal(err)
		}
	}
}

// A crash at a random moment of ReturnStaging, again and again, loses and doubles nothing.
func TestReturnSurvivesCrashes(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	b, tab := parted(t)
	want := b.state("msg")
	exchanged(t, tab, 2000, 4000)
	for id := 2001; id < 2900; id++ { // so many that rows are moved one by one
		if id%10 != 0 {
			b.exec("INSERT INTO msg (id, conv, body) VALUES (?, 1, 'late')", id)
		}
	}
	maps.Copy(want, b.state("msg"))
	p := stack.NewProxy(t, b.addr())
	b.cfg.Databases[0].DSN = strings.Replace(b.dsn, b.addr(), p.Addr, 1) + "?timeout=10s&readTimeout=10s"
	shaky := b.open()
	ts, err := shaky.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ends := 0
	for range 6 {
		cut := time.AfterFunc(time.Duration(r.IntN(60))*time.Millisecond, p.Reset)
		if err := ts[0].ReturnStaging(t.Context(), staging); err != nil {
			ends++
		}
		cut.Stop()
		together := b.together()
		if !maps.Equal(together, want) {
			t.Fatalf("after crash %d %d messages are there, want %d", ends, len(together), len(want))
		}
	}
	t.Logf("%d of 6 runs were cut off", ends)
	var last error
	for range 20 { // a cut-off transaction may hold its locks for a moment
		if last = tab.ReturnStaging(t.Context(), staging); last == nil {
			break
		}
	}
	if last != nil || !maps.Equal(b.state("msg"), want) || b.exists(staging) {
		t.Errorf("at the end: %v", last)
	}
}

func TestSomeIDs(t *testing.T) {
	t.Parallel()
	for want, ids := range map[string][]uint64{"1": {1}, "1, 2": {1, 2}, "1, 2, 3, 4, 5 and 2 more": {1, 2, 3, 4, 5, 6, 7}} {
		if got := some(ids); got != want {
			t.Errorf("%v reads %q", ids, got)
		}
	}
	d := definition{id: "id"}
	if got := d.without(map[uint64]message.Fingerprint{7: {}}); got != "id NOT IN (7)" {
		t.Error(got)
	}
	if got := fmt.Sprint(d.without(nil)); got != "TRUE" {
		t.Error(got)
	}
}

// Rows that ReturnStaging cannot move are never dropped: here one whose ID is below zero.
func TestUnmovableRowsKeepTheirTable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE msg (id BIGINT NOT NULL PRIMARY KEY, conv BIGINT NOT NULL)")
	tab := b.table()
	if err := tab.CreateStaging(t.Context(), staging); err != nil {
		t.Fatal(err)
	}
	b.exec("INSERT INTO " + staging + " VALUES (-5, 1), (7, 1)")
	if err := tab.ReturnStaging(t.Context(), staging); err == nil || !strings.Contains(err.Error(), "it is kept") {
		t.Errorf("returned: %v", err)
	}
	if b.count("SELECT COUNT(*) FROM msg WHERE id = 7") != 1 || b.count("SELECT COUNT(*) FROM "+staging) != 1 {
		t.Error("a row is gone")
	}
}
