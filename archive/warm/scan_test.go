package warm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/stack"
)

// M4: IDs up to 2^64-1, and chunks that tile the range whatever their size.
func TestChunksTileTheRange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 300)
	b.exec("INSERT INTO msg VALUES (18446744073709551614, 1, '', NULL), (9223372036854775808, 1, '', NULL), (18446744073709551615, 1, '', NULL)")
	for _, rows := range []int{1, 7, 100, 302, 5000} {
		b.cfg.ChunkRows = rows
		tab := b.table()
		ids, inGo, chunks := scanAll(t, tab, 0, math.MaxUint64)
		if len(ids) != 302 || ids[301] != math.MaxUint64-1 || ids[300] != 1<<63 {
			t.Errorf("chunks of %d: read %d rows", rows, len(ids))
		}
		for _, c := range chunks {
			if c.Fingerprint.Rows > uint64(rows) {
				t.Errorf("a chunk has %d rows, want at most %d", c.Fingerprint.Rows, rows)
			}
		}
		if inSQL, err := tab.Fingerprint(t.Context(), 0, math.MaxUint64); err != nil || inSQL != inGo {
			t.Errorf("chunks of %d: SQL's fingerprint %s, Go's %s: %v", rows, inSQL, inGo, err)
		}
		// An empty range is one chunk, so that rows which come later lie in it.
		ids, f, chunks := scanAll(t, tab, 1, 10)
		if len(ids) != 0 || len(chunks) != 1 || f != (message.Fingerprint{}) {
			t.Errorf("an empty range has %d chunks, %s", len(chunks), f)
		}
		for from, want := range map[uint64]uint64{0: 10, 11: 20, 3001: 1 << 63, math.MaxUint64: math.MaxUint64} {
			if id, ok, err := tab.NextID(t.Context(), from); err != nil || !ok || id != want {
				t.Errorf("next ID from %d is %d %v %v, want %d", from, id, ok, err, want)
			}
		}
	}
	b.exec("DELETE FROM msg")
	if _, ok, err := b.table().NextID(t.Context(), 0); ok || err != nil {
		t.Errorf("an empty table has a next ID (%v)", err)
	}
}

func TestChunksAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 0)
	for i := range 60 {
		b.exec(fmt.Sprintf("INSERT INTO msg VALUES (%d, 1, REPEAT('x', %d), NULL)", i+1, 100_000))
	}
	b.cfg.ChunkBytes = 1 << 20
	tab := b.table()
	biggest := 0
	n := 0
	err := tab.Scan(t.Context(), 0, 1000, func(c message.Chunk) error {
		biggest, n = max(biggest, c.Batch.Bytes()), n+c.Batch.Len()
		return nil
	})
	if err != nil || n != 60 || biggest > 1<<20+110_000 {
		t.Errorf("%d rows, biggest chunk %d bytes: %v", n, biggest, err)
	}
}

// A row whose texts are longer than max_allowed_packet together has a NULL hash in
// the server.
func TestRowsBeyondThePacketHaveAFingerprint(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE msg (id BIGINT PRIMARY KEY, conv BIGINT NOT NULL, x LONGBLOB NULL, y LONGTEXT CHARACTER SET latin1 NOT NULL, z LONGTEXT NULL)")
	packet := b.count("SELECT @@max_allowed_packet")
	b.exec("INSERT INTO msg VALUES (1, 1, 'a', 'b', NULL), (2, 1, REPEAT('x', ?), REPEAT('é', ?), REPEAT('z', 1000)), (3, 1, NULL, '', REPEAT('z', ?)), (4, 1, '', REPEAT('é', ?), NULL)",
		packet*2/3, packet/3+1000, packet-1, packet*2/3)
	tab := b.table()
	_, inGo, _ := scanAll(t, tab, 0, 10)
	inSQL, err := tab.Fingerprint(t.Context(), 0, 10)
	if err != nil || inSQL != inGo || inGo.Rows != 4 {
		t.Errorf("SQL's fingerprint is %s, Go's %s: %v", inSQL, inGo, err)
	}
}

// M12: the chunk's query walks the unique key whatever the statistics say.
func TestChunksWalkTheKey(t *testing.T) {
	t.Parallel()
	for _, ddl := range []string{
		"CREATE TABLE msg (id BIGINT NOT NULL, conv BIGINT NOT NULL, k INT NOT NULL, PRIMARY KEY (id), KEY a (conv, id), KEY b (k))",
		"CREATE TABLE msg (id BIGINT NOT NULL, conv BIGINT NOT NULL, k INT NOT NULL, PRIMARY KEY (conv, id), UNIQUE KEY `odd``name` (id), KEY b (k))",
	} {
		b := newBench(t)
		b.exec(ddl)
		var v []string
		for i := range 3000 {
			v = append(v, fmt.Sprintf("(%d,1,%d)", i+1, i%3))
		}
		b.exec("INSERT INTO msg VALUES " + strings.Join(v, ","))
		b.cfg.ChunkRows = 500
		tab := b.table()
		s, err := tab.d.session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.close(t.Context())
		read := handlerReads(t, func() (*session, func()) { return s, func() {} }, func() {
			r := newReader(tab, s, tab.name, tab.def.Load(), "")
			if _, err := r.chunk(t.Context(), 100, 3001); err != nil {
				t.Fatal(err)
			}
		})
		if read > 2*500 || read < 500 {
			t.Errorf("%s: a chunk of 500 rows examined %d", ddl, read)
		}
	}
}

// M1: after the time limit the result set just ends; what was read must not count.
func TestChunkThatEndsEarlyDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 3000)
	b.cfg.ChunkRows = 3000
	tab := b.table()
	s, err := tab.d.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close(t.Context())
	def := *tab.def.Load()
	r := newReader(tab, s, tab.name, &def, "")
	r.size = 3000
	if _, err := s.exec(t.Context(), "SET SESSION time_zone = '+00:00' /*!80000 , max_execution_time = 200 */ /*M!100100 , max_statement_time = 0.2 */"); err != nil {
		t.Fatal(err)
	}
	// The last column's text takes 1 ms a row.
	def.selects = "CAST(id AS CHAR), CAST(conv AS CHAR), body, CAST(SLEEP(0.001) AS CHAR)"
	if c, err := r.read(t.Context(), 0, 40000); !errors.Is(err, errSlow) {
		t.Errorf("a chunk that was cut off after %d rows counts: %v", r.batch.Len(), err)
		_ = c
	}
	// With fewer rows it fits.
	c, err := r.chunk(t.Context(), 0, 40000)
	if err != nil || c.Batch.Len() == 0 || c.To != c.Batch.MessageID(c.Batch.Len()-1)+1 {
		t.Errorf("smaller chunk: %d rows, ends at %d: %v", r.batch.Len(), c.To, err)
	}
}

// M2: a cancelled statement is killed in the server too.
func TestCancelledStatementsAreKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 10)
	tab := b.table()
	mark := stack.Unique("mark")
	running := func() int {
		return len(b.processes(func(p process) bool { return strings.Contains(p.info, mark) }))
	}
	def := *tab.def.Load()
	def.selects = "CAST(id AS CHAR), CAST(conv AS CHAR), body, CAST(SLEEP(300) AS CHAR) AS " + mark
	tab.def.Store(&def)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the lease is lost")
	done := make(chan error)
	go func() { done <- tab.Scan(ctx, 0, 1000, func(message.Chunk) error { return nil }) }()
	eventually(t, "the scan runs", func() bool { return running() > 0 })
	cancel(gone)
	if err := <-done; !errors.Is(err, gone) {
		t.Errorf("error does not say why: %v", err)
	}
	// The kill was waited for; it takes effect at once. By itself the statement goes on for the
	// statement limit, DefaultStatementLimit.
	ended := time.Now()
	eventually(t, "the statements end", func() bool { return running() == 0 })
	if took := time.Since(ended); took > DefaultStatementLimit/3 {
		t.Errorf("the statement ran on for %s", took)
	}
}

// M5: the server's and the pool's zones don't matter.
func TestSessionIsPinned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE msg (id BIGINT PRIMARY KEY, conv BIGINT NOT NULL, ts TIMESTAMP(3) NULL, c CHAR(10) NOT NULL, n BIGINT NULL)")
	b.exec(`INSERT INTO msg VALUES (1, 1, '2026-05-01 00:00:00.500', 'a\\b', NULL)`)
	b.cfg.Databases[0].DSN += "?time_zone=%27-08:00%27&parseTime=true&loc=Asia%2FShanghai&sql_mode=%27PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,ANSI_QUOTES%27&charset=latin1&autocommit=0&interpolateParams=false&sql_select_limit=1"
	isolation := "transaction_isolation"
	if b.count("SELECT VERSION() LIKE '%MariaDB%'") == 1 {
		isolation = "tx_isolation"
	}
	b.cfg.Databases[0].DSN += "&" + isolation + "=%27READ-UNCOMMITTED%27"
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO msg VALUES (2, 1, NULL, 'unsure', NULL)"); err != nil {
		t.Fatal(err)
	}
	tab := b.table()
	if err := tab.Scan(t.Context(), 0, 10, func(c message.Chunk) error {
		if c.Batch.Len() != 1 {
			t.Errorf("%d rows, one of them not committed", c.Batch.Len())
		}
		if got := string(c.Batch.Value(2, 0)); got != "2026-05-01 00:00:00.500" {
			t.Errorf("timestamp reads %s", got)
		}
		if got := string(c.Batch.Value(3, 0)); got != `a\b` {
			t.Errorf("CHAR reads %q", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s, err := tab.d.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close(t.Context())
	var auto, limit, zone string
	if err := s.row(t.Context(), "SELECT @@autocommit, @@sql_select_limit, @@time_zone", &auto, &limit, &zone); err != nil || auto != "1" || limit != "18446744073709551615" || zone != "+00:00" {
		t.Errorf("autocommit %s, limit %s, zone %s: %v", auto, limit, zone, err)
	}
}

// M12: no transaction stays open while a caller is busy with a chunk.
func TestScanKeepsNoTransactionOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 1500)
	tab := b.table()
	s, err := tab.d.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close(t.Context())
	n := 0
	err = tab.Scan(t.Context(), 0, 1<<40, func(message.Chunk) error {
		n++
		if open := b.transactions(tab.shard.Database, false); open != 0 {
			t.Errorf("%d transactions are open", open)
		}
		return nil
	})
	if err != nil || n < 2 {
		t.Errorf("%d chunks: %v", n, err)
	}
}

func TestReloadSeesNewColumns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 3)
	tab := b.table()
	old := tab.Schema()
	b.exec("ALTER TABLE msg ADD COLUMN extra INT NULL AFTER conv")
	if err := tab.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tab.Schema().Equal(old) || tab.Schema().Index("extra") != 2 || !strings.Contains(tab.ShowCreate(), "extra") {
		t.Errorf("columns after the change: %v", tab.Schema().Columns())
	}
	b.exec("ALTER TABLE msg DROP PRIMARY KEY")
	if err := tab.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "no unique key") {
		t.Errorf("a table that lost its key: %v", err)
	}
}

// Connections that died in the pool are no error.
func TestDeadPooledConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 3)
	p := stack.NewProxy(t, b.addr())
	b.cfg.Databases[0].DSN = strings.Replace(b.dsn, b.addr(), p.Addr, 1)
	tab := b.table()
	p.Reset()
	if _, ok, err := tab.NextID(t.Context(), 0); err != nil || !ok {
		t.Errorf("after the connections were cut: %v", err)
	}
}

// What a scan allocates does not grow with the rows beyond the driver's boxing of values.
func TestScanAllocatesLittle(t *testing.T) {
	b := newBench(t)
	b.simple("", 20000)
	tab := b.table()
	scan := func() {
		if err := tab.Scan(t.Context(), 0, 1<<40, func(message.Chunk) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	scan()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	scan()
	runtime.ReadMemStats(&after)
	perRow := float64(after.Mallocs-before.Mallocs) / 20000
	if columns := float64(tab.Schema().Len()); perRow > columns+1 {
		t.Errorf("%.1f allocations for a row of %v columns", perRow, columns)
	}
}

func TestOpenRefusesNonsense(t *testing.T) {
	t.Parallel()
	good := func() Config {
		return Config{Databases: []Database{{DSN: "u:geheim@tcp(127.0.0.1:1)/d"}}, Tables: []string{"*"}, Layout: layout(), Now: time.Now,
			Columns: map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv"}}
	}
	for want, spoil := range map[string]func(*Config){
		"source.databases is empty": func(c *Config) { c.Databases = nil },
		"names no database":         func(c *Config) { c.Databases[0].DSN = "u:geheim@tcp(127.0.0.1:1)/" },
		"malformed":                 func(c *Config) { c.Databases[0].DSN = "u:geheim@tcp(127.0.0.1:1" },
		"source.tables is empty":    func(c *Config) { c.Tables = nil },
		"glob":                      func(c *Config) { c.Tables = []string{"["} },
		"message_id is not set":     func(c *Config) { delete(c.Columns, message.MessageID) },
		"epoch":                     func(c *Config) { c.Layout.Epoch = time.Time{} },
		"replica":                   func(c *Config) { c.Databases[0].Replicas = []string{"x"} },
	} {
		c := good()
		spoil(&c)
		_, err := Open(c, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", want, err)
		}
	}
	w, err := Open(good(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// benchRows fills the table: with a million rows copied from the dump of real chat
// that COLDTIER_TEST_CHAT_TSV names, else with 131,072 alike.
func benchRows(bn *bench) int {
	bn.t.Helper()
	if path := os.Getenv("COLDTIER_TEST_CHAT_TSV"); path != "" {
		const rows = 1_000_000
		src, err := chat.OpenTSV(path, rows)
		if err == nil {
			err = chat.Create(bn.t.Context(), bn.db, "chat", nil)
		}
		if err == nil {
			_, err = chat.Load(bn.t.Context(), src, chat.Target{DB: bn.db, Table: "chat"})
		}
		if err != nil {
			bn.t.Fatal(err)
		}
		bn.exec("INSERT INTO msg SELECT * FROM chat")
		bn.exec("DROP TABLE chat")
		return rows
	}
	bn.exec("INSERT INTO msg VALUES (1, 9007199254740993, 4611686018427387904, 1, 4611686018427387904, 3, REPEAT('x', 500), 'd2b8a1f0-0000-4000-8000-0123456789ab', 0, '2026-05-01 10:00:00.123', 4711)")
	rows := 1
	for ; rows < 1<<17; rows *= 2 {
		bn.exec(fmt.Sprintf("INSERT INTO msg SELECT id + %d, conv, sender, rt, rid, mt, content, cid, st, ct, seq FROM msg", rows))
	}
	return rows
}

// BenchmarkScan compares the scan, fingerprint included, with a bare read of the
// same rows by the driver.
func BenchmarkScan(b *testing.B) {
	bn := newBench(b)
	bn.exec(`CREATE TABLE msg (id BIGINT NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, sender BIGINT NOT NULL, rt TINYINT NOT NULL, rid BIGINT NOT NULL, mt TINYINT NOT NULL,
		content MEDIUMBLOB NOT NULL, cid VARCHAR(64) NOT NULL, st TINYINT NOT NULL, ct DATETIME(3) NOT NULL, seq BIGINT UNSIGNED NOT NULL)`)
	rows := benchRows(bn)
	tab := bn.table()
	var bare, scan []time.Duration
	for b.Loop() {
		begun := time.Now()
		r, err := bn.db.QueryContext(b.Context(), "SELECT * FROM msg")
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		if fnErr, err := eachRow(r, func([][]byte) error { n++; return nil }); err != nil || fnErr != nil || n != rows {
			b.Fatal(n, fnErr, err)
		}
		middle := time.Now()
		var f message.Fingerprint
		if err := tab.Scan(b.Context(), 0, 1<<62, func(c message.Chunk) error { f = f.Add(c.Fingerprint); return nil }); err != nil || f.Rows != uint64(rows) {
			b.Fatal(f, err)
		}
		bare, scan = append(bare, middle.Sub(begun)), append(scan, time.Since(middle))
	}
	slices.Sort(bare)
	slices.Sort(scan)
	b.ReportMetric(float64(rows)/scan[len(scan)/2].Seconds(), "rows/s")
	b.ReportMetric(float64(rows)/bare[len(bare)/2].Seconds(), "bare-rows/s")
	b.ReportMetric(bare[len(bare)/2].Seconds()/scan[len(scan)/2].Seconds(), "of-bare")
}
