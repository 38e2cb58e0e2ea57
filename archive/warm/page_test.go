package warm

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

// pageTable is a way to make a table whose conversations can be paged.
type pageTable struct {
	name, ddl string
	bySeq     bool
	unique    bool   // no two rows of a conversation have the same sequence
	index     string // the one to walk
	reads     int    // of index entries for each row of a page
	mysql     bool   // not on MariaDB
}

const pageColumns = "id BIGINT UNSIGNED NOT NULL, conv BIGINT NOT NULL, seq BIGINT UNSIGNED NOT NULL, k INT NOT NULL, body MEDIUMBLOB NULL, "

func pageTables() []pageTable {
	ranges := " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (300), PARTITION p1 VALUES LESS THAN (1500), PARTITION p2 VALUES LESS THAN MAXVALUE)"
	return []pageTable{
		{name: "plain", ddl: pageColumns + "PRIMARY KEY (id), KEY other (conv, k), KEY cs (conv, seq))", bySeq: true, index: "cs", reads: 1},
		{name: "explicit", ddl: pageColumns + "PRIMARY KEY (id), KEY k (k), KEY `odd``name` (conv, seq, id, k))", bySeq: true, index: "odd`name", reads: 1},
		{name: "clustered", ddl: pageColumns + "PRIMARY KEY (conv, seq), UNIQUE KEY (id))", bySeq: true, unique: true, index: "PRIMARY", reads: 1},
		{name: "unique", ddl: pageColumns + "PRIMARY KEY (id), UNIQUE KEY cs (seq, conv), KEY sc (conv, seq, k))", bySeq: true, unique: true, index: "sc", reads: 1},
		{name: "clustered by ID", ddl: pageColumns + "PRIMARY KEY (conv, id), UNIQUE KEY (id), KEY cs (conv, seq))", bySeq: true, index: "cs", reads: 1},
		{name: "no primary key", ddl: pageColumns + "UNIQUE KEY (id), KEY cs (conv, seq))", bySeq: true, index: "cs", reads: 2},
		{name: "own primary key", ddl: "pk BIGINT AUTO_INCREMENT PRIMARY KEY, " + pageColumns + "UNIQUE KEY (id), KEY cs (conv, seq))", bySeq: true, index: "cs", reads: 2},
		{name: "another column", ddl: pageColumns + "PRIMARY KEY (id), KEY csk (conv, seq, k))", bySeq: true, index: "csk", reads: 2},
		{name: "partitioned", ddl: pageColumns + "PRIMARY KEY (id), KEY cs (conv, seq))" + ranges, bySeq: true, index: "cs", reads: 2},
		{name: "partitioned, explicit", ddl: pageColumns + "PRIMARY KEY (id), KEY csi (conv, seq, id))" + ranges, bySeq: true, index: "csi", reads: 1},
		{name: "by ID", ddl: pageColumns + "PRIMARY KEY (id), KEY c (conv))", index: "c", reads: 1},
		{name: "by ID, explicit", ddl: pageColumns + "PRIMARY KEY (id), KEY ci (conv, id))", index: "ci", reads: 1},
		{name: "by ID, clustered", ddl: pageColumns + "PRIMARY KEY (conv, id), UNIQUE KEY (id), KEY ck (conv, id, k))", index: "PRIMARY", reads: 1},
		{name: "by ID, partitioned, MySQL", ddl: pageColumns + "PRIMARY KEY (id), KEY c (conv))" + ranges, index: "c", reads: 1, mysql: true},
		{name: "by ID, partitioned", ddl: pageColumns + "PRIMARY KEY (id), KEY ci (conv, id))" + ranges, index: "ci", reads: 1},
	}
}

type pageRow struct{ id, cursor uint64 }

func pageRowsOf(b *message.Batch) (rows []pageRow) {
	for i := range b.Len() {
		rows = append(rows, pageRow{b.MessageID(i), b.Cursor(i)})
	}
	return rows
}

// page is what a page is to hold.
func (q PageQuery) page(all []pageRow) (want []pageRow) {
	for _, r := range all {
		if (q.After == nil || r.cursor > *q.After) && (q.Before == nil || r.cursor < *q.Before) {
			want = append(want, r)
		}
	}
	slices.SortFunc(want, func(a, b pageRow) int {
		return cmp.Or(cmp.Compare(a.cursor, b.cursor), cmp.Compare(a.id, b.id))
	})
	if cut := len(want) - q.Limit; cut > 0 && q.Newest {
		return want[cut:]
	} else if cut > 0 {
		return want[:q.Limit]
	}
	return want
}

func (q PageQuery) String() string {
	s := fmt.Sprintf("%d of %s", q.Limit, q.Conversation)
	if q.Before != nil {
		s += fmt.Sprintf(" before %d", *q.Before)
	}
	if q.After != nil {
		s += fmt.Sprintf(" after %d", *q.After)
	}
	if q.Newest {
		s += ", newest"
	}
	return s
}

// A page holds what a model says, whatever the table's keys, and walks the index that is meant.
func TestPages(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, c := range pageTables() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 1))
			b := newBench(t)
			if c.mysql && b.mariadb() {
				t.Skip("MariaDB does not know that such an index ends with the message ID")
			}
			if c.bySeq {
				b.cfg.Columns[message.Sequence] = "seq"
			}
			b.exec("CREATE TABLE msg (" + c.ddl)
			rows, used := map[int][]pageRow{}, map[string]bool{}
			var v []string
			for id := range uint64(400) {
				if id = id*7 + 1; id > 2500 {
					id += math.MaxUint64 - 3000
				}
				conv := rnd.IntN(4) - 1
				few := uint64(4) // and so many rows with each, more than a page may have
				if c.unique {
					few = 100
				}
				seq := []uint64{rnd.Uint64N(few), 100 + id/70, math.MaxUint64 - id%17}[rnd.IntN(3)]
				key := fmt.Sprint(conv, seq)
				if c.unique && used[key] {
					continue
				}
				used[key] = true
				cursor := id
				if c.bySeq {
					cursor = seq
				}
				rows[conv] = append(rows[conv], pageRow{id, cursor})
				v = append(v, fmt.Sprintf("(%d, %d, %d, %d, 'b%d')", id, conv, seq, rnd.IntN(5), id))
			}
			rnd.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
			b.exec("INSERT INTO msg (id, conv, seq, k, body) VALUES " + strings.Join(v, ", "))
			tab := b.table()
			if name, err := tab.PageIndex(); err != nil || name != c.index {
				t.Errorf("pages walk %s, want %s: %v", name, c.index, err)
			}
			for range 60 {
				conv := rnd.IntN(5) - 1
				all := rows[conv]
				anchor := func() *uint64 {
					a := rnd.Uint64N(3000)
					switch rnd.IntN(5) {
					case 0, 1:
						if len(all) > 0 {
							a = all[rnd.IntN(len(all))].cursor
						}
					case 2:
						a = []uint64{0, math.MaxUint64, math.MaxInt64, 1 << 63}[rnd.IntN(4)]
					}
					return &a
				}
				q := PageQuery{Conversation: fmt.Appendf(nil, "%d", conv), Limit: 1 + rnd.IntN([]int{4, 30}[rnd.IntN(2)]), Newest: rnd.IntN(2) == 0}
				if rnd.IntN(3) > 0 {
					q.Before = anchor()
				}
				if rnd.IntN(3) > 0 {
					q.After = anchor()
				}
				got, err := tab.Page(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				if want := q.page(all); !slices.Equal(pageRowsOf(got), want) {
					t.Fatalf("%s: got %v, want %v", q, pageRowsOf(got), want)
				}
				for i := range got.Len() {
					if body := string(got.Value(got.Schema().Index("body"), i)); body != fmt.Sprintf("b%d", got.MessageID(i)) {
						t.Errorf("message %d has body %s", got.MessageID(i), body)
					}
				}
			}
		})
	}
}

// handlerReads counts the rows and index entries that the server reads for what fn does by
// the connection that get gives before and after it. The counts are compared, since
// FLUSH STATUS ends those of all connections on MySQL 9.
func handlerReads(t *testing.T, get func() (s *session, release func()), fn func()) int {
	t.Helper()
	var ids [3]uint64
	var counts [3]int
	for i := range counts {
		if i == 2 {
			fn()
		}
		s, release := get()
		status, err := s.named(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range status {
			counts[i] += atoi(row["value"])
		}
		ids[i] = s.id
		release()
	}
	if ids[0] != ids[2] {
		t.Fatalf("connection %d was to be used, not %d", ids[0], ids[2])
	}
	ofCounting := counts[1] - counts[0]
	return counts[2] - counts[1] - ofCounting
}

// readers gives the connection by which a table is read next.
func readers(t *testing.T, tab *Table) func() (*session, func()) {
	return func() (*session, func()) {
		s, err := tab.d.reader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s, s.release
	}
}

// What a page costs depends on neither the conversation's length nor the table's.
func TestPagesAreFlat(t *testing.T) {
	t.Parallel()
	for _, c := range pageTables() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if c.mysql && b.mariadb() {
				t.Skip("MariaDB does not know that such an index ends with the message ID")
			}
			divide := 1
			if c.bySeq {
				b.cfg.Columns[message.Sequence] = "seq"
			}
			if !c.unique {
				divide = 2
			}
			b.exec("CREATE TABLE msg (" + c.ddl)
			var v []string
			for i := range 2000 {
				v = append(v, fmt.Sprintf("(%d, %d, %d, %d, 'x')", i+1, i%2, i/2/divide, i%3))
			}
			b.exec("INSERT INTO msg (id, conv, seq, k, body) VALUES " + strings.Join(v, ","))
			tab := b.table()
			const limit = 20
			middle := uint64(500 / divide)
			most := c.reads*limit + 15 // and some for each partition and each end of a range
			for _, statistics := range []string{"old", "new"} {
				for _, q := range []PageQuery{{}, {Newest: true}, {Before: &middle, Newest: true}, {After: &middle}, {Before: &middle}, {After: &middle, Newest: true}} {
					q.Conversation, q.Limit = []byte("1"), limit
					read := handlerReads(t, readers(t, tab), func() {
						if got, err := tab.Page(t.Context(), q); err != nil || got.Len() != limit {
							t.Errorf("%s: %d rows: %v", q, got.Len(), err)
						}
					})
					if read > most || read < limit {
						t.Errorf("%s, %s statistics: read %d rows, want at most %d", q, statistics, read, most)
					}
				}
				ids := []uint64{2, 4, 5, 1000, 1999, 2001}
				read := handlerReads(t, readers(t, tab), func() {
					if got, err := tab.Messages(t.Context(), []byte("1"), ids, ""); err != nil || got.Len() != 3 {
						t.Errorf("%d messages: %v", got.Len(), err)
					}
				})
				if read > 3*len(ids) {
					t.Errorf("%d messages, %s statistics: read %d rows", len(ids), statistics, read)
				}
				read = handlerReads(t, readers(t, tab), func() {
					if got, err := tab.d.holding(t.Context(), []*Table{tab}, []byte("1")); err != nil || len(got) != 1 {
						t.Errorf("held by %d tables: %v", len(got), err)
					}
				})
				if read > 5 {
					t.Errorf("whether it holds a conversation, %s statistics: read %d rows", statistics, read)
				}
				b.exec("ANALYZE TABLE msg")
			}
		})
	}
}
