package archive

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

// shareTable is a warm table of which only the name counts.
type shareTable struct {
	Table
	shard  manifest.Shard
	server string
	schema *message.Schema
}

func (t *shareTable) Shard() manifest.Shard                                { return t.shard }
func (t *shareTable) Schema() *message.Schema                              { return t.schema }
func (t *shareTable) EpochFits(context.Context) error                      { return nil }
func (t *shareTable) Server(context.Context) (string, error)               { return t.server, nil }
func (t *shareTable) NextID(context.Context, uint64) (uint64, bool, error) { return 0, false, nil }

// sharing is what workers that share slices did.
type sharing struct {
	mu       sync.Mutex
	done     map[manifest.SliceKey]int
	left     map[string][]int // slices not begun, by server and day
	now      map[string]int
	most     int // of a server at once
	apart    int // days from the oldest that was not begun
	claims   atomic.Int64
	began    time.Time // the first claim
	ended    time.Time // the last
	tables   []Table
	first    snowflake.Day
	days     int
	duration time.Duration // of a slice
}

func newSharing(t *testing.T, tables, days, servers int, duration time.Duration) *sharing {
	t.Helper()
	s := &sharing{done: map[manifest.SliceKey]int{}, left: map[string][]int{}, now: map[string]int{}, first: snowflake.MakeDay(2024, 1, 1), days: days, duration: duration}
	schema := foldSchema(t, message.Column{Kind: message.Text})
	for i := range tables {
		n := i * servers / tables
		server := fmt.Sprintf("server-%02d", n)
		s.tables = append(s.tables, &shareTable{shard: manifest.Shard{Database: fmt.Sprintf("im_%02d", n), Table: fmt.Sprintf("msg_%04d", i)}, server: server, schema: schema})
		if s.left[server] == nil {
			s.left[server] = make([]int, days)
		}
		for d := range days {
			s.left[server][d]++
		}
	}
	return s
}

// stand is the work on a slice: its claim, a while, and that it is verified.
func (s *sharing) stand(a *Archiver, db *sql.DB) func(context.Context, Work, *slot, *Outcome, Progress) error {
	return func(ctx context.Context, w Work, held *slot, o *Outcome, _ Progress) error {
		l, err := a.Manifest.Claim(ctx, w.ID, a.Owner, []manifest.State{manifest.Pending, manifest.Copying}, manifest.Copying)
		if err != nil {
			return elsewhere(err)
		}
		s.claims.Add(1)
		s.mu.Lock()
		s.done[w.SliceKey]++
		if s.ended = time.Now(); s.began.IsZero() {
			s.began = s.ended
		}
		s.now[held.server]++
		s.most = max(s.most, s.now[held.server])
		day := 0
		for d := s.first; d.Before(w.Day); d = d.Next() {
			day++
		}
		left := s.left[held.server]
		left[day]--
		for d, n := range left {
			if n > 0 {
				s.apart = max(s.apart, day-d)
				break
			}
		}
		took := s.duration
		if len(s.done)%2000 == 1000 {
			took = 2 * time.Second // a big one, which the others do not wait for
		}
		s.mu.Unlock()
		time.Sleep(took)
		s.mu.Lock()
		s.now[held.server]--
		s.mu.Unlock()
		held.release(ctx)
		o.State = manifest.Verified
		_, err = db.ExecContext(ctx, "UPDATE slices SET state = 'verified', lease_until = NULL WHERE id = ? AND lease_token = ?", w.ID, l.Token())
		return err
	}
}

func (s *sharing) run(t *testing.T, m *manifest.Store, db *sql.DB, source string, workers, perServer int) (least, most, elsewhere, left int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	least = len(s.tables) * s.days
	start := make(chan struct{})
	for i := range workers {
		a, err := New(Deps{Manifest: m, Tables: s.tables, Rows: &copiedRows{}, Layout: snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}, Zone: time.UTC,
			Source: source, Owner: fmt.Sprintf("pod-%02d/1", i), Clock: time.Now, Log: slog.New(slog.DiscardHandler)}, Config{After: time.Hour, Workers: 1, PerServer: perServer})
		if err != nil {
			t.Fatal(err)
		}
		a.do = s.stand(a, db)
		wg.Go(func() {
			<-start
			from, to := s.first, s.first.Add(s.days-1)
			t0 := time.Now()
			p, err := a.Plan(context.Background(), Selection{From: &from, To: &to})
			if err != nil {
				t.Errorf("worker %d: %v", i, err)
				return
			}
			planned := time.Since(t0)
			r, err := a.Run(context.Background(), p, NoProgress{})
			if err != nil || len(r.Failed) > 0 {
				t.Errorf("worker %d: %v, %v", i, err, r.Err())
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if least, most = min(least, len(r.Done)), max(most, len(r.Done)); i == 0 {
				t.Logf("worker 0: %d slices planned in %s", len(p.Work), planned.Round(time.Millisecond))
			}
			elsewhere, left = elsewhere+r.Elsewhere, left+len(r.Left)
		})
	}
	close(start)
	wg.Wait()
	return least, most, elsewhere, left
}

// The whole size of a fleet (COLDTIER_FLEET=1024x400; a small one without), with nothing but
// the sharing of slices: each is done once, servers have no more of them than they may, days
// are done in order; and, of the whole, the workers do as much each, and many are not slower
// than one.
func TestSharing(t *testing.T) {
	t.Parallel()
	tables, days := 64, 12
	if testing.Short() {
		tables, days = 32, 6
	}
	if text := os.Getenv("COLDTIER_FLEET"); text != "" {
		if _, err := fmt.Sscanf(text, "%dx%d", &tables, &days); err != nil {
			t.Fatalf("COLDTIER_FLEET=%q: want TABLESxDAYS, such as 1024x400", text)
		}
	}
	const workers, servers, perServer = 32, 16, 3
	dsn := stack.MySQL(t)
	open := func(source string) *manifest.Store {
		m, err := manifest.Open(t.Context(), manifest.Config{DSN: dsn, Source: source, Idle: 32}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	m, one := open("im"), open("alone")
	if _, err := m.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	db := stack.OpenMySQL(t, dsn+"?interpolateParams=true")
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	rate := func(s *sharing, do func()) float64 {
		do()
		return float64(s.claims.Load()) / s.ended.Sub(s.began).Seconds()
	}
	alone := newSharing(t, 64, min(days, 8), servers, 0)
	rate1 := rate(alone, func() { alone.run(t, one, db, "alone", 1, perServer) })

	all := newSharing(t, tables, days, servers, 5*time.Millisecond)
	var least, most, elsewhere, left int
	rateN := rate(all, func() { least, most, elsewhere, left = all.run(t, m, db, "im", workers, perServer) })
	if t.Failed() {
		return
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	t.Logf("%d slices, %d workers: %.0f claims/s, one alone %.0f/s; %d to %d by each; %d times done by others, %d with others; at most %d on a server, %d days apart; %d deadlocks; %d MiB from the system",
		tables*days, workers, rateN, rate1, least, most, elsewhere, left, all.most, all.apart, m.Deadlocks(), mem.Sys>>20)
	if len(all.done) != tables*days || int(all.claims.Load()) != tables*days {
		t.Errorf("%d slices were done, with %d claims, of %d", len(all.done), all.claims.Load(), tables*days)
	}
	if all.most > perServer || all.most < 2 {
		t.Errorf("at most %d of a server at once, want %d", all.most, perServer)
	}
	if all.apart > 3 {
		t.Errorf("a slice was begun %d days after the oldest of its server that was not", all.apart)
	}
	if os.Getenv("COLDTIER_FLEET") != "" { // how fast who is says nothing on a machine that does other things, too
		if fair := tables * days / workers; least < fair/3 || most > 3*fair {
			t.Errorf("workers did from %d to %d slices, of %d each", least, most, fair)
		}
		if rateN < rate1/5 {
			t.Errorf("%d workers claim %.0f slices/s, one alone %.0f", workers, rateN, rate1)
		}
	}
	if d := m.Deadlocks(); d > int64(tables*days/50) {
		t.Errorf("%d deadlocks", d)
	}
}
