package warm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/late"
	"github.com/coldtier/coldtier/tests/stack"
)

// eventually waits for what happens by itself.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// paged makes a table of 100 messages of conversation 1, IDs and sequences 1 to 100.
func (b *bench) paged(partitions string) {
	b.t.Helper()
	b.cfg.Columns[message.Sequence] = "seq"
	b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, seq BIGINT UNSIGNED NOT NULL, note VARCHAR(50) NULL, KEY cs (conv, seq)) " + partitions)
	var v []string
	for i := 1; i <= 100; i++ {
		v = append(v, fmt.Sprintf("(%d, 1, %d, 'n%d')", i, i, i))
	}
	b.exec("INSERT INTO msg VALUES " + strings.Join(v, ", "))
}

func ids(b *message.Batch) (out []uint64) {
	for i := range b.Len() {
		out = append(out, b.MessageID(i))
	}
	return out
}

func TestPagesOfStagingTables(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.paged("PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (51), PARTITION p1 VALUES LESS THAN (101))")
	tab := b.table()
	const name = StagingPrefix + "x"
	page := func(staging string) ([]uint64, error) {
		got, err := tab.Page(t.Context(), PageQuery{Conversation: []byte("1"), Limit: 3, Staging: staging})
		if err != nil {
			return nil, err
		}
		same, err := tab.Messages(t.Context(), []byte("1"), ids(got), staging)
		if err != nil || !slices.Equal(ids(same), ids(got)) {
			t.Errorf("messages %v are %v: %v", ids(got), ids(same), err)
		}
		return ids(got), nil
	}
	want := func(staging string, want ...uint64) {
		t.Helper()
		if got, err := page(staging); err != nil || !slices.Equal(got, want) {
			t.Errorf("page of %q is %v, want %v: %v", staging, got, want, err)
		}
	}
	gone := func() {
		t.Helper()
		_, err := page(name)
		_, err2 := tab.Messages(t.Context(), []byte("1"), []uint64{1}, name)
		if !errors.Is(err, ErrGone) || !errors.Is(err2, ErrGone) {
			t.Errorf("pages of a staging table that is not there: %v; messages: %v", err, err2)
		}
	}
	gone()
	if err := tab.CreateStaging(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	want(name)
	p, ok, err := tab.Partition(t.Context(), 1, 51)
	if err != nil || !ok {
		t.Fatal(p, err)
	}
	if err := tab.Exchange(t.Context(), p, name); err != nil {
		t.Fatal(err)
	}
	want(name, 1, 2, 3)
	want("", 51, 52, 53)

	// The table gets other columns and keys than the staging table was made with.
	b.exec("ALTER TABLE msg ADD COLUMN late INT NULL, DROP KEY cs, ADD KEY other (conv, seq)")
	if err := tab.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(name, 1, 2, 3)
	want("", 51, 52, 53)
	b.exec("DROP TABLE " + name)
	gone()
	if _, err := tab.Page(t.Context(), PageQuery{Conversation: []byte("1"), Limit: 3, Staging: "msg"}); err == nil || !strings.Contains(err.Error(), StagingPrefix) {
		t.Errorf("a staging table of another name: %v", err)
	}
	if _, err := tab.Page(t.Context(), PageQuery{Conversation: []byte("1")}); err == nil {
		t.Error("a page of no rows is given")
	}
}

// Without an index nothing is read, and the error says which to add.
func TestPagesNeedAnIndex(t *testing.T) {
	t.Parallel()
	for _, keys := range []string{"", ", KEY c (conv)", ", KEY sc (seq, conv)", ", KEY cks (conv, k, seq)", ", KEY cs (conv, seq DESC)", ", KEY ct (conv, text(3), seq)"} {
		b := newBench(t)
		b.cfg.Columns[message.Sequence] = "seq"
		b.exec("CREATE TABLE msg (id BIGINT NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, seq BIGINT NOT NULL, k INT NOT NULL, text VARCHAR(50) NOT NULL" + keys + ")")
		w := b.open()
		tables, err := w.Discover(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err1 := tables[0].PageIndex()
		_, err2 := tables[0].Page(t.Context(), PageQuery{Conversation: []byte("1"), Limit: 3})
		_, err3 := w.Holding(t.Context(), tables, []byte("1"))
		for _, err := range []error{err1, err2, err3} {
			want := fmt.Sprintf("ALTER TABLE `%s`.`msg` ADD KEY (`conv`, `seq`)", tables[0].shard.Database)
			if !errors.Is(err, ErrNoPageIndex) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s: %v", keys, err)
			}
		}
		b.exec(err1.Error()[strings.Index(err1.Error(), "ALTER TABLE"):])
		if err := tables[0].Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := tables[0].Page(t.Context(), PageQuery{Conversation: []byte("1"), Limit: 3}); err != nil {
			t.Errorf("%s: after the index was added: %v", keys, err)
		}
	}
}

// A long-lived reader meets a table that changes.
func TestPagesOfAChangingTable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.paged("")
	var mu sync.Mutex
	now := time.Now()
	b.cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	later := func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	w := b.open()
	tables, err := w.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tab := tables[0]
	columns := func() (names []string) {
		t.Helper()
		got, err := tab.Page(t.Context(), PageQuery{Conversation: []byte("1"), Limit: 3, Newest: true})
		if err != nil || !slices.Equal(ids(got), []uint64{98, 99, 100}) {
			t.Fatalf("page is %v: %v", got, err)
		}
		for _, c := range got.Schema().Columns() {
			names = append(names, c.Name)
		}
		return names
	}
	want := func(want string) {
		t.Helper()
		if got := strings.Join(columns(), " "); got != want {
			t.Errorf("columns are %s, want %s", got, want)
		}
	}
	// What is gone is an error of the statement, so it is seen at once.
	b.exec("ALTER TABLE msg DROP COLUMN note")
	want("id conv seq")
	b.exec("ALTER TABLE msg DROP KEY cs, ADD KEY sc (conv, seq)")
	want("id conv seq")
	b.exec("ALTER TABLE msg RENAME COLUMN conv TO conv2, ADD COLUMN conv BIGINT NOT NULL FIRST, DROP KEY sc, ADD KEY cs (conv, seq)")
	b.exec("UPDATE msg SET conv = conv2")
	if held, err := w.Holding(t.Context(), tables, []byte("1")); err != nil || len(held) != 1 {
		t.Errorf("held by %d tables: %v", len(held), err)
	}
	want("conv id conv2 seq")

	// What was added is seen after a minute.
	b.exec("ALTER TABLE msg ADD COLUMN extra INT NULL")
	later(definitionAge - time.Second)
	want("conv id conv2 seq")
	later(time.Second)
	want("conv id conv2 seq extra")

	// The old definition does when it cannot be read anew: it is tried once in a minute.
	b.exec("ALTER TABLE msg ADD COLUMN place POINT NULL")
	later(definitionAge)
	old := tab.def.Load()
	want("conv id conv2 seq extra")
	b.exec("ALTER TABLE msg DROP COLUMN place, ADD COLUMN more INT NULL")
	want("conv id conv2 seq extra")
	later(definitionAge)
	want("conv id conv2 seq extra more")

	// Too many are being read anew already: the old one does.
	b.exec("ALTER TABLE msg ADD COLUMN busy INT NULL")
	later(definitionAge)
	for range refreshing {
		tab.d.refreshes <- struct{}{}
	}
	want("conv id conv2 seq extra more")
	for range refreshing {
		<-tab.d.refreshes
	}
	want("conv id conv2 seq extra more busy")

	// Somebody reads it anew already, and takes long: who comes does not wait.
	b.exec("ALTER TABLE msg DROP COLUMN more, DROP COLUMN busy, ADD COLUMN most INT NULL")
	if err := tab.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.exec("ALTER TABLE msg ADD COLUMN last INT NULL")
	later(definitionAge)
	busy := make(chan struct{})
	tab.refresher.done = busy
	want("conv id conv2 seq extra most")
	// But who must have a newer one waits, and takes that one.
	tab.def.Store(old)
	b.exec("ALTER TABLE msg DROP COLUMN extra")
	var wg sync.WaitGroup
	got := make([]*definition, 20)
	for i := range got {
		wg.Go(func() {
			s, err := tab.d.reader(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer s.release()
			if got[i], err = tab.renewed(t.Context(), s, old); err != nil {
				t.Error(err)
			}
		})
	}
	if err := tab.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	tab.refresher.mu.Lock()
	tab.refresher.done = nil
	tab.refresher.mu.Unlock()
	close(busy)
	wg.Wait()
	for _, def := range got {
		if def != tab.def.Load() {
			t.Error("a definition was read by more than one")
		}
	}
	want("conv id conv2 seq most last")
}

// hung is a table whose server hangs between stall and heal.
type hung struct {
	b           *bench
	stall, heal func()
}

// What a page has is its context's time, whatever the server does; and when the server is back, so are
// the connections and goroutines.
func TestPagesOfAHungServer(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) hung{
		"network": func(t *testing.T) hung {
			b := newBench(t)
			b.paged("")
			p := stack.NewProxy(t, b.addr())
			b.cfg.Databases[0].DSN = strings.Replace(b.dsn, b.addr(), p.Addr, 1)
			return hung{b, p.Stall, p.Heal}
		},
		"server": func(t *testing.T) hung {
			b := newBench(t)
			if !b.mariadb() {
				t.Skip("the server of one's own is a MariaDB: tried beside another")
			}
			server := stack.StartMariaDB(t)
			b.dsn = server.DSN() + "im"
			b.db = stack.OpenMySQL(t, server.DSN()+"mysql")
			b.exec("CREATE DATABASE im")
			b.db = stack.OpenMySQL(t, b.dsn)
			b.cfg.Databases[0].DSN = b.dsn
			b.paged("")
			return hung{b, server.Pause, server.Continue}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			goroutines := runtime.NumGoroutine()
			w := h.b.open()
			tables, err := w.Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tab, d := tables[0], w.databases[0]
			page := func(ctx context.Context) error {
				got, err := tab.Page(ctx, PageQuery{Conversation: []byte("1"), Limit: 20, Newest: true})
				if err == nil && got.Len() != 20 {
					t.Errorf("page has %d rows", got.Len())
				}
				return err
			}
			many := func(ctx context.Context, n int) (after []time.Duration, errs []error) {
				deadline, _ := ctx.Deadline()
				var wg sync.WaitGroup
				after, errs = make([]time.Duration, n), make([]error, n)
				for i := range n {
					wg.Go(func() { errs[i] = page(ctx); after[i] = time.Since(deadline) })
				}
				wg.Wait()
				return after, errs
			}
			calm, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, errs := many(calm, 30); errors.Join(errs...) != nil {
				t.Fatal(errors.Join(errs...))
			}
			h.stall()
			watch := late.New(t)
			for range 2 {
				begun := late.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
				after, errs := many(ctx, 100)
				cancel()
				for _, err := range errs {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("a hung server's page: %v", err)
					}
				}
				machine := watch.Between(begun, late.At(time.Now()))
				t.Logf("after the deadline: %s at most, of which the machine's share is %s", slices.Max(after), machine)
				if slices.Max(after) > killTime/2+machine { // the time of those who wait for a kill, or for the network
					t.Errorf("a page came %s after its deadline", slices.Max(after))
				}
			}
			h.heal()

			// It hangs in the middle of statements, some of which cannot be killed then.
			lock, err := h.b.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lock.Close() }()
			if _, err := lock.ExecContext(t.Context(), "LOCK TABLES msg WRITE"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 10)
			for range cap(done) {
				go func() { done <- page(ctx) }()
			}
			eventually(t, "the pages wait for the lock", func() bool { return h.b.reading() == cap(done) })
			h.stall()
			cancel()
			begun := late.Now()
			for range cap(done) {
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("a page that was given up: %v", err)
				}
			}
			if took := watch.Since(begun); took > killTime/2 {
				t.Errorf("pages came %s after they were given up", took)
			}
			h.heal()
			if _, err := lock.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, errs := many(ctx, 30); errors.Join(errs...) != nil {
				t.Error(errors.Join(errs...))
			}
			if n := len(d.gate); n != 0 {
				t.Errorf("%d readers hold a place", n)
			}
			if s := d.reads.Stats(); s.InUse != 0 || s.OpenConnections > h.b.cfg.withDefaults().Connections {
				t.Errorf("%d connections are in use, %d open", s.InUse, s.OpenConnections)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			const ofTest = 4 // connections at most, each with a goroutine
			eventually(t, "the goroutines are back", func() bool { return runtime.NumGoroutine() <= goroutines+ofTest })
			eventually(t, "the server's connections are back", func() bool {
				return len(h.b.processes(func(p process) bool { return p.database == h.b.database() })) <= ofTest
			})
		})
	}
}

// A statement that nobody waits for any more does not go on in the server: it is killed,
// or ends by itself soon after its deadline.
func TestPagesThatAreCutOffEndInTheServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.paged("")
	tab := b.table()
	// That a client has gone the servers notice in most waits, but not in a computation.
	def := *tab.def.Load()
	def.selects = "CAST(id AS CHAR), CAST(conv AS CHAR), CAST(seq AS CHAR), CAST(BENCHMARK(4000000000, 1 + 1) AS CHAR)"
	tab.def.Store(&def)
	for _, way := range []string{"kill", "deadline"} {
		ctx, cancel := context.WithCancel(t.Context())
		if way == "deadline" {
			ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
			if err := tab.d.killer.Close(); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan error, 2)
		for range cap(done) {
			go func() {
				_, err := tab.Page(ctx, PageQuery{Conversation: []byte("1"), Limit: 20})
				done <- err
			}()
		}
		if way == "kill" {
			eventually(t, "the pages are read", func() bool { return b.reading() == cap(done) })
			cancel()
		}
		for range cap(done) {
			if err := <-done; !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: %v", way, err)
			}
		}
		begun := time.Now()
		eventually(t, "the statements end: "+way, func() bool { return b.reading() == 0 })
		if took := time.Since(begun); took > DefaultStatementLimit/2 {
			t.Errorf("%s: the statements went on for %s", way, took)
		}
		cancel()
	}
}

// reading is how many pages the server is reading.
func (b *bench) reading() int {
	b.t.Helper()
	return len(b.processes(func(p process) bool { return p.database == b.database() && strings.Contains(p.info, "FORCE INDEX") }))
}
