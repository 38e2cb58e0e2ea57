package warm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

func TestHolding(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	second := stack.MySQL(t)
	b.cfg.Databases = append(b.cfg.Databases, Database{DSN: second})
	for _, dsn := range []string{b.dsn, second} {
		db := stack.OpenMySQL(t, dsn)
		for i := range 3 {
			for _, q := range []string{
				fmt.Sprintf("CREATE TABLE msg_%d (id BIGINT NOT NULL PRIMARY KEY, conv VARCHAR(20) NOT NULL, KEY (conv))", i),
				fmt.Sprintf("INSERT INTO msg_%d VALUES (1, 'all'), (2, 'all'), (3, 'ALL'), (4, 'in %d')", i, i),
			} {
				if _, err := db.ExecContext(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	w := b.open()
	tables, err := w.Discover(t.Context())
	if err != nil || len(tables) != 6 {
		t.Fatal(len(tables), err)
	}
	names := func(tables []*Table) (out []string) {
		for _, t := range tables {
			out = append(out, t.Shard().String())
		}
		slices.Sort(out)
		return out
	}
	for conversation, want := range map[string][]*Table{
		"all": tables, "in 1": {tables[1], tables[4]}, "IN 1": nil, "": nil, "\xff": nil,
	} {
		if got, err := w.Holding(t.Context(), tables, []byte(conversation)); err != nil || !slices.Equal(names(got), names(want)) {
			t.Errorf("%q is held by %v: %v", conversation, names(got), err)
		}
		some := []*Table{tables[5], tables[1]}
		kept := slices.DeleteFunc(slices.Clone(want), func(t *Table) bool { return !slices.Contains(some, t) })
		if got, err := w.Holding(t.Context(), some, []byte(conversation)); err != nil || !slices.Equal(names(got), names(kept)) {
			t.Errorf("of two tables %q is held by %v: %v", conversation, names(got), err)
		}
	}
	if got, err := w.Holding(t.Context(), nil, []byte("all")); err != nil || got != nil {
		t.Errorf("of no tables: %v %v", got, err)
	}
	// A database that does not answer is named, and the others' tables are given.
	if _, err := stack.OpenMySQL(t, second).ExecContext(t.Context(), "DROP TABLE msg_1"); err != nil {
		t.Fatal(err)
	}
	bad := w.databases[1]
	got, err := w.Holding(t.Context(), tables, []byte("all"))
	if err == nil || !strings.Contains(err.Error(), bad.where) || strings.Contains(err.Error(), w.databases[0].where) {
		t.Errorf("a database without one of the tables: %v", err)
	}
	if want := names(tables[:3]); !slices.Equal(names(got), want) {
		t.Errorf("held by %v, want %v", names(got), want)
	}
}

// BenchmarkHolding asks 256 tables, in ten partitions and not, for a conversation that they all
// have, and for one that none has.
func BenchmarkHolding(b *testing.B) {
	for name, parts := range map[string]int{"plain": 0, "partitions": 10} {
		bn := newBench(b)
		bn.cfg.Columns[message.Sequence] = "seq"
		bn.cfg.Databases = nil
		var ranges []string
		for i := range parts {
			ranges = append(ranges, fmt.Sprintf("PARTITION p%d VALUES LESS THAN (%d)", i, (i+1)*100))
		}
		ddl := ""
		if parts > 0 {
			ddl = " PARTITION BY RANGE (id) (" + strings.Join(ranges, ", ") + ")"
		}
		for range 4 {
			dsn := stack.MySQL(b)
			bn.cfg.Databases = append(bn.cfg.Databases, Database{DSN: dsn})
			db := stack.OpenMySQL(b, dsn)
			for i := range 64 {
				for _, q := range []string{
					fmt.Sprintf("CREATE TABLE msg_%d (id BIGINT NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, seq BIGINT NOT NULL, KEY (conv, seq)) %s", i, ddl),
					fmt.Sprintf("INSERT INTO msg_%d VALUES (1, 1, 1), (2, 3, 1)", i),
				} {
					if _, err := db.ExecContext(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		w := bn.open()
		tables, err := w.Discover(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for conversation, n := range map[string]int{"1": 256, "2": 0} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					if got, err := w.Holding(b.Context(), tables, []byte(conversation)); err != nil || len(got) != n {
						b.Fatal(len(got), err)
					}
				}
			})
		}
	}
}

// BenchmarkPage compares a page of 20 with the same SQL by the bare driver.
func BenchmarkPage(b *testing.B) {
	bn := newBench(b)
	bn.cfg.Columns[message.Sequence] = "seq"
	bn.exec("CREATE TABLE msg (id BIGINT NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, seq BIGINT NOT NULL, sender BIGINT NOT NULL, body BLOB NOT NULL, KEY cs (conv, seq))")
	const rows = 20_000
	for from := 0; from < rows; from += 1000 {
		var v []string
		for i := from; i < from+1000; i++ {
			v = append(v, fmt.Sprintf("(%d, %d, %d, 7, REPEAT('x', 200))", i+1, i%2, i/2))
		}
		bn.exec("INSERT INTO msg VALUES " + strings.Join(v, ","))
	}
	tab := bn.table()
	var page, bare []time.Duration
	for b.Loop() {
		before := 100 + rand.Uint64N(rows/2-100)
		begun := time.Now()
		if got, err := tab.Page(b.Context(), PageQuery{Conversation: []byte("1"), Before: &before, Limit: 20, Newest: true}); err != nil || got.Len() != 20 {
			b.Fatal(got.Len(), err)
		}
		middle := time.Now()
		r, err := bn.db.QueryContext(b.Context(), fmt.Sprintf("SELECT id, conv, seq, sender, body FROM msg FORCE INDEX (cs) WHERE conv = 1 AND seq < %d ORDER BY seq DESC, id DESC LIMIT 20", before))
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		if fnErr, err := eachRow(r, func([][]byte) error { n++; return nil }); err != nil || fnErr != nil || n != 20 {
			b.Fatal(n, fnErr, err)
		}
		page, bare = append(page, middle.Sub(begun)), append(bare, time.Since(middle))
	}
	slices.Sort(page)
	slices.Sort(bare)
	b.ReportMetric(float64(page[len(page)/2].Microseconds()), "page-us")
	b.ReportMetric(float64(bare[len(bare)/2].Microseconds()), "bare-us")
}
