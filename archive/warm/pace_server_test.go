package warm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

// realPace is a pace on the bench's server.
func (b *bench) realPace(w *Warm, l Limits) *Pace {
	b.t.Helper()
	p, err := w.Pace(PaceConfig{Job: "purge", Limits: l, Now: time.Now, Sleep: func(ctx context.Context, d time.Duration) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	}}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = p.Close() })
	return p
}

// looks are the real questions to the bench's server.
func (b *bench) looks(t *Table) *serverLook {
	b.t.Helper()
	l, err := newServerLook(t.d, *t.d.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = l.close() })
	return l
}

func TestQuestionsToAServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 3)
	tab := b.table()
	l := b.looks(tab)
	ctx := t.Context()
	if n, err := l.threads(ctx); err != nil || n < 1 {
		t.Errorf("%d threads run: %v", n, err)
	}
	if n, err := l.rowBytes(ctx, tab); err != nil || n < 1 {
		t.Errorf("a row has %d bytes: %v", n, err)
	}
	for range 2 { // with and without reading the newest ID
		if d, err := l.probe(ctx, tab); err != nil || d <= 0 || d > lookTime {
			t.Errorf("a probe takes %s: %v", d, err)
		}
	}
	if at := l.newest[tab.name]; at.id != 30 {
		t.Errorf("the newest message is %d", at.id)
	}
	for query, want := range map[string]string{"SELECT 1": "1", "SELECT 0": "0", "SELECT NULL": "", "SELECT ''": "", "SELECT 1, 2": "1", "SELECT id FROM msg WHERE id = 99": "", "SELECT 'yes' UNION SELECT 'no'": "yes"} {
		if v, err := l.ask(ctx, query); err != nil || v != want {
			t.Errorf("%s gives %q, %v", query, v, err)
		}
	}
	for _, query := range []string{"SELECT nope", "DELETE FROM msg", "SELECT 1; SELECT 2", "SET @x = 1"} {
		if v, err := l.ask(ctx, query); err == nil {
			t.Errorf("%s gives %q and no error", query, v)
		}
	}
	if n := b.count("SELECT COUNT(*) FROM msg"); n != 3 {
		t.Errorf("%d rows are left: the user's statement may write", n)
	}
	begun := time.Now()
	// MySQL's limit ends the sleep alone, which then gives 1: also a pause.
	if v, err := l.ask(ctx, "SELECT SLEEP(30)"); v != "1" && err == nil || time.Since(begun) > 5*lookTime { // half of what it asks for
		t.Errorf("a slow statement gives %q, %v after %s", v, err, time.Since(begun))
	}
	b.exec("CREATE TABLE msg2 (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN MAXVALUE)")
	w := b.open()
	all, err := w.Discover(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if _, err := l.probe(ctx, x); err != nil {
			t.Errorf("probe of %s: %v", x.Shard(), err)
		}
	}
}

// Old row versions that somebody's open transaction still needs are counted, by the counter
// and by the text.
func TestHistoryGrowsBehindAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 1)
	l := b.looks(b.table())
	ctx := t.Context()
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM msg").Scan(&n); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		b.exec("UPDATE msg SET conv = ?", i)
	}
	after, counted, err := l.counter(ctx)
	const least = 290 // of ours; others' transactions come and go
	if err != nil || !counted || after < least {
		t.Errorf("after 300 updates the list has %d entries: %t, %v", after, counted, err)
	}
	var kind, name, text string
	if err := l.row(ctx, "SHOW ENGINE INNODB STATUS", &kind, &name, &text); err != nil {
		t.Fatal(err)
	}
	if told, err := historyOf(text); err != nil || told < least {
		t.Errorf("the text tells %d, %v", told, err)
	}
	if _, err := historyOf("no such line"); err == nil {
		t.Error("a text without it is taken")
	}
	p := b.realPace(b.open(), Limits{MaxHistoryLength: 200, MaxPause: time.Second})
	if err := p.Wait(ctx, b.table()); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "max_history_length") {
		t.Errorf("%v", err)
	}
}

// The guard notices that a server answers more slowly, slows the job down, pauses it, and
// lets it go on when that is over.
func TestImpactOfASlowServer(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes as long as the guard, whose formula no server has a part in")
	}
	t.Parallel()
	b := newBench(t)
	b.simple("", 3)
	c, err := mysql.ParseDSN(b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy := stack.NewProxy(t, c.Addr)
	c.Addr = proxy.Addr
	b.cfg.Databases[0].DSN = c.FormatDSN()
	tab := b.table()
	p := b.realPace(b.open(), Limits{MaxImpact: 3})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	wait := func() {
		t.Helper()
		if err := p.Wait(ctx, tab); err != nil {
			t.Fatal(err)
		}
	}
	wait()
	if base := p.servers[c.Addr].impact.baseline; base <= 0 || base > 100*time.Millisecond {
		t.Skipf("the machine is too busy to measure on: a read takes %s", base)
	}
	proxy.Latency(300 * time.Millisecond)
	paused := make(chan error, 1)
	go func() {
		for p.Throttled()[CauseImpact] == 0 || len(p.Pauses()) == 0 {
			if ctx.Err() != nil {
				paused <- fmt.Errorf("it does not pause: throttled %v", p.Throttled())
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		paused <- nil
		proxy.Heal()
	}()
	for len(paused) == 0 {
		wait()
		time.Sleep(20 * time.Millisecond) // a step
	}
	if err := <-paused; err != nil {
		t.Fatal(err)
	}
	if all := p.Pauses(); len(all) != 0 {
		t.Errorf("after the wait there are pauses: %+v", all)
	}
}

// A scan that is held back for longer than a server keeps idle connections goes on.
func TestScanOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 4)
	now := time.Now()
	b.cfg.ChunkRows = 2
	b.cfg.Now = func() time.Time { return now }
	tab := b.table()
	rows := 0
	err := tab.Scan(t.Context(), 0, 100, func(c message.Chunk) error {
		if rows += c.Batch.Len(); rows == 2 {
			now = now.Add(2 * idleTime)
			if n := b.killOthers(); n < 1 {
				t.Error("the scan has no connection to kill")
			}
		}
		return nil
	})
	if err != nil || rows != 4 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// killOthers ends the connections to the bench's database but the bench's own, on which it
// asks for them.
func (b *bench) killOthers() (n int) {
	b.t.Helper()
	for _, p := range b.processes(func(p process) bool { return p.database == b.database() }) {
		b.exec("KILL " + p.id)
		n++
	}
	return n
}
