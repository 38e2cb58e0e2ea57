package warm

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/tests/stack"
)

// bench is one test's database and the Warm that reads it.
type bench struct {
	t   testing.TB
	dsn string
	db  *sql.DB // past the product
	cfg Config
}

func layout() snowflake.Layout {
	return snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, dsn: stack.MySQL(t)}
	b.db = stack.OpenMySQL(t, b.dsn+"?time_zone=%27%2B00:00%27&sql_mode=%27ALLOW_INVALID_DATES%27&charset=utf8mb4&interpolateParams=true")
	b.cfg = Config{
		Databases: []Database{{DSN: b.dsn}},
		Tables:    []string{"msg*"},
		Columns:   map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv"},
		Layout:    layout(),
		Now:       time.Now,
	}
	return b
}

func (b *bench) exec(q string, args ...any) {
	b.t.Helper()
	if _, err := b.db.ExecContext(b.t.Context(), q, args...); err != nil {
		b.t.Fatalf("%.200s: %v", q, err)
	}
}

func (b *bench) count(q string, args ...any) (n int) {
	b.t.Helper()
	if err := b.db.QueryRowContext(b.t.Context(), q, args...).Scan(&n); err != nil {
		b.t.Fatalf("%.200s: %v", q, err)
	}
	return n
}

// process is a connection to the server.
type process struct{ id, database, info string }

// database is the name of the bench's database.
func (b *bench) database() string { return b.dsn[strings.LastIndexByte(b.dsn, '/')+1:] }

// processes are the connections that are so. SHOW tells them: on MySQL a SELECT of
// information_schema.PROCESSLIST fails while anybody's statement has a character of four bytes.
func (b *bench) processes(is func(process) bool) (all []process) {
	b.t.Helper()
	rows, err := b.db.QueryContext(b.t.Context(), "SHOW FULL PROCESSLIST")
	if err != nil {
		b.t.Fatal(err)
	}
	list, err := namedRows(rows)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range list {
		if p := (process{string(r["id"]), string(r["db"]), string(r["info"])}); is(p) && p.info != "SHOW FULL PROCESSLIST" {
			all = append(all, p)
		}
	}
	return all
}

// transactions is how many are open in a database; waiting: for a lock.
func (b *bench) transactions(database string, waiting bool) (n int) {
	b.t.Helper()
	in := map[string]bool{}
	for _, p := range b.processes(func(p process) bool { return p.database == database }) {
		in[p.id] = true
	}
	for _, x := range stack.Transactions(b.t, b.db) {
		if in[x.Thread] && (x.Waiting || !waiting) {
			n++
		}
	}
	return n
}

func (b *bench) mariadb() bool {
	b.t.Helper()
	var v string
	if err := b.db.QueryRowContext(b.t.Context(), "SELECT VERSION()").Scan(&v); err != nil {
		b.t.Fatal(err)
	}
	return strings.Contains(v, "MariaDB")
}

func (b *bench) open() *Warm {
	b.t.Helper()
	w, err := Open(b.cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = w.Close() })
	return w
}

// table gives the one table there is.
func (b *bench) table() *Table {
	b.t.Helper()
	ts, err := b.open().Discover(b.t.Context())
	if err != nil || len(ts) != 1 {
		b.t.Fatalf("found %d tables: %v", len(ts), err)
	}
	return ts[0]
}

// addr is the server's host:port.
func (b *bench) addr() string {
	b.t.Helper()
	c, err := mysql.ParseDSN(b.dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	return c.Addr
}

// scanAll reads a range and checks that the chunks tile it.
func scanAll(t testing.TB, tab *Table, from, to uint64) (ids []uint64, f message.Fingerprint, chunks []message.Chunk) {
	t.Helper()
	at := from
	err := tab.Scan(t.Context(), from, to, func(c message.Chunk) error {
		if c.From != at || c.To <= c.From || c.To > to {
			t.Errorf("chunk [%d, %d) follows %d", c.From, c.To, at)
		}
		at = c.To
		for i := range c.Batch.Len() {
			id := c.Batch.MessageID(i)
			if id < c.From || id >= c.To {
				t.Errorf("message %d lies outside its chunk [%d, %d)", id, c.From, c.To)
			}
			ids = append(ids, id)
		}
		f = f.Add(c.Fingerprint)
		c.Batch = nil
		chunks = append(chunks, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if at != to {
		t.Errorf("chunks end at %d, want %d", at, to)
	}
	return ids, f, chunks
}

// simple makes a table with n rows of IDs 10, 20, 30, ...
func (b *bench) simple(partitions string, n int) {
	b.t.Helper()
	b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, body MEDIUMBLOB NOT NULL, note VARCHAR(100) NULL, KEY (conv)) " + partitions)
	b.fill("msg", 0, n)
}

// fill adds n rows of IDs (from+1)*10, ...
func (b *bench) fill(table string, from, n int) {
	b.t.Helper()
	for n > 0 {
		k := min(n, 1000)
		var v []string
		for i := range k {
			id := (from + i + 1) * 10
			v = append(v, fmt.Sprintf("(%d, %d, REPEAT('x', %d), %s)", id, id%7, id%300, [...]string{"NULL", "''", "'é~:'"}[id/10%3]))
		}
		b.exec("INSERT INTO " + table + " VALUES " + strings.Join(v, ","))
		from, n = from+k, n-k
	}
}

func background(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
