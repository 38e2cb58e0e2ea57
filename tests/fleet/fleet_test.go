// Package fleet_test lets many workers share the slices of many tables by a real manifest,
// with everything else in memory.
package fleet_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

// size is how big a fleet is.
type size struct {
	tables, days, servers, workers, perServer int
	scan                                      time.Duration // of a slice
}

// cut is what is tested always. COLDTIER_FLEET=TABLESxDAYS, such as 1024x400, is another.
func cut() size {
	return size{tables: 48, days: 8, servers: 8, workers: 32, perServer: 3, scan: 20 * time.Millisecond}
}

func wanted(t *testing.T) size {
	t.Helper()
	s := cut()
	text := os.Getenv("COLDTIER_FLEET")
	if text == "" {
		return s
	}
	if _, err := fmt.Sscanf(text, "%dx%d", &s.tables, &s.days); err != nil || s.tables < 1 || s.days < 1 {
		t.Fatalf("COLDTIER_FLEET=%q: want TABLESxDAYS, such as 1024x400", text)
	}
	s.servers = max(8, s.tables/32)
	return s
}

// first is the day on which the history begins.
func first() snowflake.Day { return snowflake.MakeDay(2024, 1, 1) }

// store opens a manifest for a source.
func store(t *testing.T, dsn, source string) *manifest.Store {
	t.Helper()
	s, err := manifest.Open(t.Context(), manifest.Config{DSN: dsn, Source: source}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// run lets workers do all of a fleet's slices, and gives what each reports.
func run(t *testing.T, f *fleet, s *manifest.Store, workers int) []*archive.Report {
	t.Helper()
	reports := make([]*archive.Report, workers)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range workers {
		a, err := archive.New(f.deps(s, fmt.Sprintf("pod-%02d/%d", i, 1+i%3)),
			archive.Config{After: 24 * time.Hour, Workers: 1, PerServer: f.size.perServer, TempDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			<-start
			ctx := context.Background()
			from, to := first(), first().Add(f.size.days-1)
			p, err := a.Plan(ctx, archive.Selection{From: &from, To: &to})
			if err != nil {
				t.Errorf("worker %d: %v", i, err)
				return
			}
			f.planned(i)
			if reports[i], err = a.Run(ctx, p, archive.NoProgress{}); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	close(start)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return reports
}

// 32 workers that begin at the same moment do all slices, each once; none of them is left
// behind; no server is scanned by more than archive.per_server of them; the oldest days
// come first; and together they are faster than one.
func TestFleet(t *testing.T) {
	t.Parallel()
	sz := wanted(t)
	dsn := stack.MySQL(t)
	im := store(t, dsn, "im") // of all workers: its connections are bounded
	if _, err := im.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	alone := newFleet(size{tables: min(sz.tables, 64), days: 2, servers: 8, workers: 1, perServer: sz.perServer, scan: sz.scan}, "alone")
	single := store(t, dsn, "alone")
	t0 := time.Now()
	run(t, alone, single, 1)
	rate1 := float64(alone.slices()) / time.Since(t0).Seconds()

	f := newFleet(sz, "im")
	t0 = time.Now()
	reports := run(t, f, im, sz.workers)
	took := time.Since(t0)
	rate := float64(f.slices()) / took.Seconds()

	var done, left, elsewhere, failed int
	least, most := f.slices(), 0
	for i, r := range reports {
		done, left, elsewhere, failed = done+len(r.Done), left+len(r.Left), elsewhere+r.Elsewhere, failed+len(r.Failed)
		least, most = min(least, len(r.Done)), max(most, len(r.Done))
		if err := r.Err(); err != nil {
			t.Errorf("worker %d: %v", i, err)
		}
	}
	if done != f.slices() || failed != 0 {
		t.Errorf("%d slices were done and %d failed, of %d", done, failed, f.slices())
	}
	for day, n := range f.copies() {
		if n != sz.tables {
			t.Errorf("day %s: %d copies of %d tables", day, n, sz.tables)
		}
	}
	var verified, generations, tokens int
	q := stack.OpenMySQL(t, dsn)
	if err := q.QueryRow("SELECT COUNT(*), CAST(SUM(s.generation) AS SIGNED), CAST(SUM(s.lease_token) AS SIGNED) FROM slices s JOIN sources o ON o.id = s.source_id WHERE o.name = 'im' AND s.state = 'verified' AND s.lease_until IS NULL").
		Scan(&verified, &generations, &tokens); err != nil {
		t.Fatal(err)
	}
	if verified != f.slices() || generations != f.slices() || tokens != f.slices() {
		t.Errorf("%d slices are verified, with %d generations and %d claims; want %d of each", verified, generations, tokens, f.slices())
	}
	if slots := held(t, q); slots != 0 {
		t.Errorf("%d slots of servers are held after the end", slots)
	}
	f.look(t)
	deadlocks := im.Deadlocks()
	t.Logf("%d slices by %d workers in %s (plans: %s): %.0f/s, one alone %.0f/s; done by a worker: %d to %d; left to others %d times and leased %d; at most %d on a server, %d days apart; %d deadlocks",
		f.slices(), sz.workers, took.Round(time.Millisecond), f.plans().Round(time.Millisecond), rate, rate1, least, most, elsewhere, left, f.most(), f.apart(), deadlocks)
	if share := f.slices() / sz.workers; least < share/3 || most > share*3 {
		t.Errorf("not fair: of %d slices workers did from %d to %d", f.slices(), least, most)
	}
	if rate < rate1/5 { // on two cores, beside other tests
		t.Errorf("%d workers together do %.0f slices/s, one alone %.0f: they stand in each other's way", sz.workers, rate, rate1)
	}
	if deadlocks > int64(f.slices())/50 {
		t.Errorf("%d deadlocks for %d slices", deadlocks, f.slices())
	}
}

func held(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT COUNT(*) FROM server_slots WHERE held_until > UTC_TIMESTAMP(6)").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// look says how the scans went.
func (f *fleet) look(t *testing.T) {
	t.Helper()
	if f.most() != f.size.perServer {
		t.Errorf("at most %d slices of a server were scanned at once, want %d", f.most(), f.size.perServer)
	}
	// The last slices of a day are with others while one goes on, and a big one holds up its
	// own day alone.
	if d := f.apart(); d > 3 {
		t.Errorf("a slice was begun %d days after the oldest of its server that was not", d)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	twice := slices.SortedFunc(func(yield func(string) bool) {
		for k, n := range f.scans {
			if n != 1 && !yield(k+": "+strconv.Itoa(n)) {
				return
			}
		}
	}, cmp.Compare)
	if len(twice) > 0 {
		t.Errorf("%d slices were scanned more than once, the first %s times", len(twice), twice[0])
	}
}
