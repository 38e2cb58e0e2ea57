package status

import (
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

const (
	testLag   = 168 * time.Hour
	testAfter = 30 * 24 * time.Hour
)

// opened gives a migrated manifest, and its database.
func opened(t testing.TB) (*manifest.Store, *sql.DB) {
	t.Helper()
	dsn := stack.MySQL(t)
	m, err := manifest.Open(t.Context(), manifest.Config{DSN: dsn, Source: "im", LeaseTTL: time.Minute}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return m, stack.OpenMySQL(t, dsn)
}

func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%v in %.300s", err, query)
	}
}

// fill makes slices of so many tables on so many days, the youngest of which is due today:
// that one pending, the 14 before it verified, one a day after the other, older ones purged.
// All but the pending ones have a copy, and were read back at some time of a year.
func fill(t testing.TB, db *sql.DB, tables, days int) {
	t.Helper()
	digits := "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	numbers := "(SELECT a.d+10*b.d+100*c.d+1000*e.d n FROM " + digits + " a, " + digits + " b, " + digits + " c, " + digits + " e)"
	exec(t, db, fmt.Sprintf("INSERT INTO slices (source_id, day, db_name, table_name, lo, hi, state, generation, live_generation, row_count, bytes, verified_at, lease_token) "+
		"SELECT 1, DATE(UTC_TIMESTAMP()) - INTERVAL 30 + d.n DAY, CONCAT('im_', LPAD(t.n DIV 64, 2, '0')), CONCAT('msg_', LPAD(t.n MOD 64, 2, '0')), 0, 1, "+
		"CASE WHEN d.n = 1 THEN 'pending' WHEN d.n < 16 THEN 'verified' ELSE 'purged' END, d.n > 1, d.n > 1, (d.n > 1) * (2000 + t.n), (d.n > 1) * 5000000, IF(d.n > 1, UTC_TIMESTAMP(6) - INTERVAL d.n * 24 - 36 HOUR, NULL), 1 "+
		"FROM %s d, %s t WHERE d.n BETWEEN 1 AND %d AND t.n < %d ORDER BY d.n DESC, t.n", numbers, numbers, days, tables))
	exec(t, db, "INSERT INTO copies (slice_id, generation, token, attempt, schema_hash, show_create, copied_at, row_count, bytes, record_key, record_sum, committed_at, marks) "+
		"SELECT id, 1, 1, '1-abc', 'x', 'CREATE TABLE', verified_at, row_count, bytes, '', '', verified_at, IF(state = 'purged', 3, 0) FROM slices WHERE generation = 1")
	exec(t, db, "INSERT INTO checks (slice_id, generation, objects_at, rows_at, rows_good_at, read_at, good_at) SELECT id, 1, x.t, x.t, x.t, x.t, x.t FROM "+
		"(SELECT id, UTC_TIMESTAMP(6) - INTERVAL id MOD 360 DAY AS t FROM slices WHERE generation = 1) x")
	for _, table := range []string{"slices", "copies", "checks"} {
		exec(t, db, "ANALYZE TABLE "+table)
	}
}

func gatherer(m *manifest.Store) *Gatherer {
	return New(m, Config{Source: "im", Zone: time.UTC, After: testAfter, Lag: testLag, DrillMaxAge: 100 * 24 * time.Hour, MaxAgeText: "100 days", Skew: 3, Quota: 1 << 40,
		Next: func(now time.Time) []Next {
			return []Next{{"archive", now.Add(20 * time.Hour)}, {manifest.StopPurge, now.Add(13 * time.Hour)}}
		}}, time.Now)
}

// A report has everything that the manifest has.
func TestGather(t *testing.T) {
	t.Parallel()
	m, db := opened(t)
	const tables, days = 6, 40
	fill(t, db, tables, days)
	ctx := t.Context()
	today, err := m.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	day := func(ago int) snowflake.Day { return snowflake.DayAt(today, time.UTC).Add(-ago) }
	exec(t, db, "UPDATE slices SET failed = 1, error = 'no', tries = 3 WHERE day = ? AND table_name = 'msg_02'", day(31))
	exec(t, db, "UPDATE slices SET row_count = 900000 WHERE day = ? AND table_name = 'msg_05'", day(32))
	exec(t, db, "UPDATE slices SET interrupted = 2 WHERE day = ? AND table_name = 'msg_03'", day(31))
	if _, err := m.AddHold(ctx, manifest.Hold{Kind: manifest.HoldSlice, Subject: manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "im_00", Table: "msg_01"}, Day: day(40)}.String(), Reason: "why", By: "me"}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.AddHold(ctx, manifest.Hold{Kind: manifest.HoldConversation, Subject: "17", Reason: "why", By: "me"}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.AddStop(ctx, manifest.Stop{Jobs: manifest.StopPurge, Reason: "why not", By: "me"}, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.NotePause(ctx, manifest.Pause{Owner: "w/1", Job: "archive", Server: "db:3306", Cause: "lag", Why: "12s behind"}, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	for _, job := range []string{"drill", "archive", "verify"} {
		id, err := m.BeginRun(ctx, manifest.RunStart{Job: job, Host: "h/1", Args: []string{"--x"}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := m.EndRun(ctx, ids[2], "partial", "its time was up", nil); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "UPDATE runs SET started_at = UTC_TIMESTAMP(6) - INTERVAL 61 HOUR WHERE job = 'archive'")
	exec(t, db, "UPDATE runs SET started_at = started_at - INTERVAL 60 HOUR WHERE job = 'drill'")
	lease, err := m.ClaimJob(ctx, manifest.JobClaim{Name: "archive", Owner: "h/1"})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, "UPDATE runs SET lease = 'archive', fence = ? WHERE job = 'archive'", lease.Fence())

	r, err := gatherer(m).Gather(ctx, Query{Runs: 2})
	if err != nil {
		t.Fatal(err)
	}
	if r.Due != day(31) || len(r.Days) != days || r.Days[0].Day != day(30+days) || r.Missing != nil {
		t.Errorf("due %s, %d days from %s, missing %v", r.Due, len(r.Days), r.Days[0].Day, r.Missing)
	}
	marks := map[snowflake.Day]Day{}
	for _, d := range r.Days {
		marks[d.Day] = d
	}
	for ago, want := range map[int]struct {
		mark Mark
		part bool
	}{31: {Failed, true}, 32: {Mark(manifest.Verified), false}, 40: {Held, true}, 46: {Mark(manifest.Purged), false}} {
		if d := marks[day(ago)]; d.Mark != want.mark || d.Part != want.part || d.Slices != tables {
			t.Errorf("%d days ago: %+v", ago, d)
		}
	}
	if len(r.Failed) != 1 || r.Failed[0].Tries != 3 || r.Failed[0].Error != "no" || len(r.Held) != 1 || r.Held[0].Shard.Table != "msg_01" || r.Holds != 2 || len(r.HoldList) != 1 || len(r.Interrupted) != 1 {
		t.Errorf("failed %v, held %v of %d, interrupted %v", r.Failed, r.Held, r.Holds, r.Interrupted)
	}
	if len(r.Stops) != 1 || r.Stops[0].Reason != "why not" || len(r.Pauses) != 1 || r.Pauses[0].Why != "12s behind" {
		t.Errorf("stops %v, pauses %v", r.Stops, r.Pauses)
	}
	// 9 to 15 days were verified more than the lag ago, but for the one that is held.
	if p := r.Purge; p.Deletable.Slices != 7*tables-1 || p.AtRun.Slices != 8*tables-1 || p.Next == nil || p.Run == nil || p.Next.Sub(r.Now) > 12*time.Hour+time.Minute || p.Next.Before(r.Now) {
		t.Errorf("purge %+v next in %s", p, p.Next.Sub(r.Now))
	}
	if b := r.Behind; len(b.Archive) != tables || b.Archive[0].Slices != 1 || len(b.Purge) != tables || b.Purge[0].Since == nil || b.Purge[0].Slices != 7 {
		t.Errorf("behind %+v", b)
	}
	if len(r.Runs) != 2 || r.Runs[0].Why != "its time was up" || r.Runs[0].Outcome != "partial" || r.Runs[1].Outcome != Running || r.Runs[1].Args[0] != "--x" {
		t.Errorf("runs %+v", r.Runs)
	}
	// The drill says nothing of being alive, and began before its limit; the archive holds its lease.
	if len(r.Running) != 1 || r.Running[0].Job != "archive" || r.Running[0].Progress == nil || r.Running[0].Progress.Done != 3*tables || r.Running[0].Progress.Left != tables || *r.Running[0].Progress.ETA < 50_000 {
		t.Errorf("running %+v", r.Running)
	}
	if r.Checks.Slices != tables*(days-1) || r.Growth.Days == 0 || r.Growth.QuotaDays == nil || len(r.Skew) == 0 || len(r.Skew[len(r.Skew)-1].Over) != 1 {
		t.Errorf("checks %+v growth %+v skew %+v", r.Checks, r.Growth, r.Skew)
	}
	if len(r.Next) != 2 || r.Next[0].Job != manifest.StopPurge {
		t.Errorf("next %+v", r.Next)
	}
	var words []string
	for _, a := range r.Attention {
		words = append(words, string(a.Level)+" "+a.What)
	}
	all := strings.Join(words, "\n")
	for _, w := range []string{"problem 1 slice failed", "warning me stopped purge", "warning 1 slice is too big", "im_00.msg_05 has ", "no drill"} {
		if !strings.Contains(all, w) {
			t.Errorf("attention lacks %q:\n%s", w, all)
		}
	}
	if err := lease.Release(ctx, time.Time{}); err != nil {
		t.Fatal(err)
	}

	// Chosen days and tables narrow the days, what failed and what is held, and nothing else.
	from, to := day(40), day(31)
	some, err := gatherer(m).Gather(ctx, Query{Filter: manifest.Filter{From: &from, To: &to, Shard: "*.msg_0[0-1]"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(some.Days) != 10 || some.Days[0].Slices != 2 || len(some.Failed) != 0 || len(some.Held) != 1 || some.Checks.Slices != r.Checks.Slices || !slices.Equal(some.States, r.States) || some.Purge.Deletable != r.Purge.Deletable {
		t.Errorf("%d days of %d slices, failed %v, held %v", len(some.Days), some.Days[0].Slices, some.Failed, some.Held)
	}
	// Days that are due and not there are named.
	exec(t, db, "DELETE FROM slices WHERE day >= ?", day(33))
	late, err := gatherer(m).Gather(ctx, Query{})
	if err != nil || late.Missing == nil || *late.Missing != (Range{day(33), day(31), 3}) {
		t.Errorf("missing %+v, %v", late.Missing, err)
	}
}

// Totals that take long are asked for again only after many times as long; those of another
// selection are.
func TestTotalsAreKept(t *testing.T) {
	t.Parallel()
	m, db := opened(t)
	fill(t, db, 2, 20)
	now := time.Now()
	g := gatherer(m)
	g.now = func() time.Time { now = now.Add(time.Second); return now } // each look at it takes a second
	count := func(q Query) int {
		t.Helper()
		r, err := g.Gather(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, d := range r.Days {
			n += d.Slices
		}
		return n
	}
	if n := count(Query{}); n != 40 {
		t.Fatalf("%d slices", n)
	}
	exec(t, db, "DELETE FROM slices WHERE table_name = 'msg_01'")
	if n := count(Query{}); n != 40 {
		t.Errorf("they were summed up again at once: %d", n)
	}
	if n := count(Query{Filter: manifest.Filter{Shard: "*"}}); n != 20 {
		t.Errorf("of another selection there are %d", n)
	}
	exec(t, db, "DELETE FROM slices WHERE state = 'pending'")
	now = now.Add(keepFactor * time.Second)
	if n := count(Query{Filter: manifest.Filter{Shard: "*"}}); n != 19 {
		t.Errorf("they are kept for ever: %d", n)
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		now   string
		after time.Duration
		zone  *time.Location
		want  string
	}{
		{"2026-12-01T00:00:00Z", 0, time.UTC, "2026-11-30"}, {"2026-11-30T23:59:59Z", 0, time.UTC, "2026-11-29"}, {"2026-12-01T12:00:00Z", 180 * 24 * time.Hour, time.UTC, "2026-06-03"},
		{"2026-11-30T23:00:00Z", 0, berlin, "2026-11-30"}, {"2026-11-30T22:59:59Z", 0, berlin, "2026-11-29"}, {"2026-03-29T22:00:00Z", 0, berlin, "2026-03-29"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := due(now, c.after, c.zone); got.String() != c.want {
			t.Errorf("at %s the youngest day that is due is %s, want %s", c.now, got, c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0s", 45 * time.Second: "45s", 60 * time.Second: "1m", 59*time.Minute + 59*time.Second + 800*time.Millisecond: "1h", 3*time.Hour + 12*time.Minute: "3h12m",
		24 * time.Hour: "1d", 23*time.Hour + 59*time.Minute + 40*time.Second: "1d", 167 * time.Hour: "6d23h", 168 * time.Hour: "7d", -time.Hour: "0s"} {
		if got := Span(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
}

// BenchmarkGather makes a report of 400 days of 1,024 tables.
func BenchmarkGather(b *testing.B) {
	tables, days := 1024, 400
	if testing.Short() {
		tables, days = 16, 40
	}
	m, db := opened(b)
	fill(b, db, tables, days)
	for b.Loop() {
		if _, err := gatherer(m).Gather(b.Context(), Query{Runs: 5}); err != nil {
			b.Fatal(err)
		}
	}
}

// A plan that was done, or whose slices have all changed, is no longer open.
func TestPlansThatAreUsedUpAreNotOpen(t *testing.T) {
	t.Parallel()
	m, db := opened(t)
	fill(t, db, 2, 20)
	exec(t, db, "UPDATE copies SET record_sum = UNHEX(REPEAT('00', 32))")
	exec(t, db, "UPDATE slices SET live_token = 1")
	exec(t, db, "INSERT INTO chunks (slice_id, token, seq, from_id, to_id, warm_hi, warm_lo, warm_rows, carried_hi, carried_lo, carried_rows, state) SELECT id, 1, 0, 0, 1, 0, 0, row_count, 0, 0, 0, 'warm' FROM slices")
	saved := func(where string) string {
		t.Helper()
		generations := map[uint64]uint32{}
		rows, err := db.QueryContext(t.Context(), "SELECT id, generation FROM slices WHERE state = 'verified' AND "+where)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var id uint64
			var generation uint32
			if err := rows.Scan(&id, &generation); err != nil {
				t.Fatal(err)
			}
			generations[id] = generation
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		p, err := m.SavePlan(t.Context(), manifest.Person{User: "maker"}, time.Hour, generations)
		if err != nil {
			t.Fatal(err)
		}
		return p.ID
	}
	done, left := saved("table_name = 'msg_00'"), saved("table_name = 'msg_01'")
	exec(t, db, "UPDATE slices SET state = 'purged' WHERE table_name = 'msg_00' AND state = 'verified'")
	r, err := gatherer(m).Gather(t.Context(), Query{Runs: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Plans.Open) != 1 || r.Plans.Open[0].ID != left {
		t.Errorf("open: %+v, want %s alone, not %s", r.Plans.Open, left, done)
	}
}
