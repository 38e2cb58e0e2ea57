package manifest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/stack"
)

// recorder is a connector that notes each statement that is sent.
type recorder struct {
	driver.Connector
	mu   sync.Mutex
	on   bool
	seen map[string][]driver.NamedValue
}

func (r *recorder) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	all, ok := c.(fullConn)
	if !ok {
		return nil, errors.New("the driver's connection lacks a method")
	}
	return &recorded{all, r}, nil
}

// fullConn is what the driver's connections can do.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type recorded struct {
	fullConn
	r *recorder
}

func (c *recorded) note(query string, args []driver.NamedValue) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.r.on {
		c.r.seen[query] = args
	}
}

func (c *recorded) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.note(query, args)
	return c.fullConn.ExecContext(ctx, query, args)
}

func (c *recorded) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.note(query, args)
	return c.fullConn.QueryContext(ctx, query, args)
}

// recording opens a store whose statements are noted.
func recording(t *testing.T, dsn string) (*Store, *recorder) {
	t.Helper()
	s := openAt(t, dsn, testSource, time.Minute)
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ParseTime, cfg.Loc, cfg.ClientFoundRows, cfg.InterpolateParams, cfg.Collation = true, time.UTC, true, true, "utf8mb4_bin"
	cfg.Params = map[string]string{"time_zone": "'+00:00'", "sql_mode": "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{Connector: c, seen: map[string][]driver.NamedValue{}}
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	s.db.DB = sql.OpenDB(r)
	return s, r
}

// manyTables has the slices of tables over days: the older half of the days purged, a
// quarter verified, the rest pending.
func manyTables(t *testing.T, s *Store, tables, days int) {
	t.Helper()
	ctx := t.Context()
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	do := func(query string, args ...any) {
		t.Helper()
		if _, err := s.db.ExecContext(ctx, query, args...); err != nil {
			t.Fatalf("%v in %.200s", err, query)
		}
	}
	do("CREATE TABLE numbers (n INT UNSIGNED NOT NULL PRIMARY KEY)")
	digits := "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	do("INSERT INTO numbers SELECT a.d+10*b.d+100*c.d+1000*e.d FROM " + digits + " a, " + digits + " b, " + digits + " c, " + digits + " e")
	for from := 0; from < days; from += 50 {
		do("INSERT INTO slices (source_id, day, db_name, table_name, lo, hi, state, generation, copy_token, live_generation, live_token, lease_token, row_count, bytes, purge_begun, verified_at) "+
			"SELECT ?, DATE('2026-05-01') + INTERVAL d.n DAY, CONCAT('im_', LPAD(t.n DIV 64, 2, '0')), CONCAT('msg_', LPAD(t.n MOD 64, 2, '0')), 1000*d.n+1000, 1000*d.n+2000, "+
			"CASE WHEN d.n*2 < ? THEN 'purged' WHEN d.n*4 < ?*3 THEN 'verified' ELSE 'pending' END, 1, 1, 1, 1, 1, 5, 4096, d.n*2 < ?, UTC_TIMESTAMP(6) - INTERVAL 30 DAY "+
			"FROM numbers t, numbers d WHERE t.n < ? AND d.n >= ? AND d.n < ?", src, days, days, days, tables, from, min(days, from+50))
	}
	do("ANALYZE TABLE slices")
}

// Every statement of a fleet's workers, and of those who look at them, finds its rows by an
// index among the slices of 1,024 tables.
func TestFleetWalksIndexes(t *testing.T) {
	t.Parallel()
	tables, days := 1024, 40
	if n, err := strconv.Atoi(os.Getenv("COLDTIER_FLEET_DAYS")); err == nil { // 400 for the whole size
		days = n
	}
	dsn := stack.MySQL(t)
	s, r := recording(t, dsn)
	t.Cleanup(func() { _ = s.db.Close() })
	if _, err := s.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	manyTables(t, s, tables, days)
	ctx := t.Context()
	last := testKey(1).Day.Add(days - 1)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	standings, err := s.Standings(ctx, last)
	must(err)
	if len(standings) != tables {
		t.Fatalf("%d slices of the last day are open, want %d", len(standings), tables)
	}
	r.mu.Lock()
	r.on = true
	r.mu.Unlock()

	// A worker: its plan, a slot, a slice from its claim to its verification.
	_, err = s.Standings(ctx, last)
	must(err)
	_, err = s.Standing(ctx, standings[Shard{"im_03", "msg_07"}].ID)
	must(err)
	of, err := s.SlicesOf(ctx, Shard{"im_03", "msg_07"}, last)
	must(err)
	if len(of) != days {
		t.Errorf("%d slices of a table", len(of))
	}
	var fresh, thin []Slice
	for i := range 1000 {
		fresh = append(fresh, Slice{SliceKey: SliceKey{testSource, Shard{"im_new", fmt.Sprintf("msg_%d", i)}, last}, Lo: 1, Hi: 2})
	}
	for i := range 100 {
		thin = append(thin, Slice{SliceKey: SliceKey{testSource, Shard{"im_old", "msg"}, last.Add(-i)}, Lo: 1, Hi: 2})
	}
	for _, list := range [][]Slice{fresh, thin} {
		_, err = s.Ensure(ctx, list)
		must(err)
	}
	slot, err := s.TakeSlot(ctx, "server", 4, "w")
	must(err)
	must(slot.Renew(ctx))
	must(slot.Release(ctx))
	id := standings[Shard{"im_03", "msg_07"}].ID
	l, err := s.Claim(ctx, id, "w", []State{Pending}, Copying)
	must(err)
	must(l.Renew(ctx))
	must(l.NoteWork(ctx, Work{Stage: StageScan, Rows: 1}))
	if p, err := s.Progress(ctx); err != nil || len(p) != 1 {
		t.Errorf("progress %v, %v", p, err)
	}
	must(l.EndWork(ctx))
	must(s.Interrupted(ctx, l, time.Minute))
	l, err = s.Claim(ctx, id, "w", []State{Pending}, Copying)
	must(err)
	c := testCopy(t, l.Slice(), l.Slice().NextGeneration(), l.Attempt(), 3)
	must(s.Commit(ctx, l, c, RecordKey(c.SliceKey, c.Generation), [32]byte{1}))
	_, err = s.LoadCopy(ctx, id, c.Generation)
	must(err)
	must(s.NoteChecked(ctx, id, c.Generation))
	must(s.Verified(ctx, l, c.Generation))
	must(l.Release(ctx, Verified))

	// A purge of it.
	l, err = s.Claim(ctx, id, "w", []State{Verified}, "")
	must(err)
	g, err := s.GrantPurge(ctx, l, 0)
	must(err)
	must(g.Check(ctx))
	must(g.ChunkState(ctx, 0, ChunkDeleting))
	must(g.ChunkState(ctx, 0, ChunkDeleted))
	must(g.GiveBack(ctx))

	// Who looks at them.
	_, err = s.Summary(ctx)
	must(err)
	_, err = s.InterruptedSlices(ctx, 1)
	must(err)
	for _, f := range []Filter{{From: &last, To: &last}, {States: []State{Pending}, From: &last, To: &last}, {States: []State{Purging}}} {
		_, err = s.Slices(ctx, f)
		must(err)
	}
	r.mu.Lock()
	r.on = false
	seen := maps.Clone(r.seen)
	r.mu.Unlock()

	// Small by nature: a row for each source, slot, hold, stop or policy.
	small := []string{"sources", "o", "server_slots", "holds", "h", "st", "policies"}
	explained := 0
	for _, query := range slices.Sorted(maps.Keys(seen)) {
		verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
		if !slices.Contains([]string{"SELECT", "UPDATE", "DELETE"}, verb) || !strings.Contains(query, "slice") {
			continue
		}
		args := make([]any, 0, len(seen[query]))
		for _, a := range seen[query] {
			args = append(args, a.Value)
		}
		explained++
		for _, p := range plan(t, s, query, args...) {
			if p.table == "" || p.table[0] == '<' || p.key != "" || slices.Contains(small, p.table) || strings.Contains(p.extra, "Impossible") || strings.Contains(p.extra, "no matching row") {
				continue
			}
			t.Errorf("no index for table %s (%s) in %.300s", p.table, p.extra, query)
		}
	}
	t.Logf("%d statements among %d slices", explained, tables*days)
	if explained < 25 {
		t.Errorf("only %d statements were looked at", explained)
	}

	// And they read no more than they give.
	for name, c := range map[string]struct {
		run  func() error
		most int
	}{
		"standings of a day": {func() error { _, err := s.Standings(ctx, last); return err }, 3 * tables},
		"slices of a table":  {func() error { _, err := s.SlicesOf(ctx, Shard{"im_03", "msg_07"}, last); return err }, 8 * days},
		"claim": {func() error {
			l, err := s.Claim(ctx, id, "w", []State{Verified}, "")
			if err == nil {
				err = l.Release(ctx, Verified)
			}
			return err
		}, 60},
		"slot": {func() error {
			l, err := s.TakeSlot(ctx, "server", 4, "w")
			if err == nil {
				err = l.Release(ctx)
			}
			return err
		}, 30},
		"progress":    {func() error { _, err := s.Progress(ctx); return err }, 10},
		"interrupted": {func() error { _, err := s.InterruptedSlices(ctx, 1); return err }, 10},
	} {
		must(c.run())
		n := reads(t, s, func() { must(c.run()) })
		t.Logf("%s: %d read", name, n)
		if n > c.most {
			t.Errorf("%s: %d read, want at most %d", name, n, c.most)
		}
	}
}
