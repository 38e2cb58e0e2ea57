package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/restore/rehydrate"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
	"github.com/coldtier/coldtier/tests/truth"
)

// restored reads what a restore wrote into a database, as truth that names the tables
// of the shards they came from.
func restored(e *harness.Env, dsn string) truth.Rows {
	e.T.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		e.T.Fatal(err)
	}
	db := stack.OpenMySQL(e.T, dsn+"?time_zone=%27%2B00%3A00%27")
	out := truth.Rows{}
	for _, t := range e.Tables {
		rows, err := truth.Warm(e.T.Context(), db, strings.Replace(t, e.Database, cfg.DBName, 1))
		if err != nil {
			e.T.Fatal(err)
		}
		for k, sum := range rows {
			out[truth.Key{Shard: t, ID: k.ID}] = sum
		}
	}
	return out
}

// equal fails the test for any row that is not in both as it should be.
func equal(t *testing.T, what string, got, want truth.Rows) {
	t.Helper()
	wrong := 0
	for k, sum := range want {
		if got[k] != sum {
			wrong++
		}
	}
	if wrong > 0 || len(got) != len(want) {
		t.Errorf("%s: %d rows, want %d, of which %d are missing or different", what, len(got), len(want), wrong)
	}
}

func report(t *testing.T, r harness.Result) (rep rehydrate.Report) {
	t.Helper()
	r.Result(t, &rep)
	return rep
}

// A restore brings every row back, in tables that it makes, and a second one nothing.
func TestRestoreBringsEverythingBack(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Tables: 2, Days: 3, Seed: 70, Partitioned: true})
	want := e.Truth()
	e.Must("archive")
	e.Must("purge")
	into := stack.MySQL(t)
	e.Expect(4, []string{"no such table"}, "restore", "--into", into)
	dry := e.Must("--output", "json", "restore", "--into", into, "--create", "--dry-run")
	var plan struct{ Plan rehydrate.Plan }
	dry.Result(t, &plan)
	if len(plan.Plan.Slices) != 6 || plan.Plan.Rows != uint64(len(want)) || len(plan.Plan.Tables) != 2 || !strings.Contains(plan.Plan.Tables[0].Define, "CREATE TABLE") {
		t.Errorf("plan: %+v", plan)
	}
	if n := len(restoredTables(t, into)); n != 0 {
		t.Errorf("the dry run made %d tables", n)
	}
	t.Log(e.Must("restore", "--into", into, "--create"))
	equal(t, "restored", restored(e, into), want)
	rep := report(t, e.Must("--output", "json", "restore", "--into", into))
	if rep.Inserted != 0 || rep.Present != uint64(len(want)) || rep.Count(rehydrate.There) != 6 || rep.Requests != 0 {
		t.Errorf("a second time: %d inserted, %d there, %d slices, %d requests", rep.Inserted, rep.Present, rep.Count(rehydrate.There), rep.Requests)
	}
	equal(t, "restored twice", restored(e, into), want)
	if n := e.Count(); n != 0 {
		t.Errorf("%d rows came into warm", n)
	}
}

func restoredTables(t *testing.T, dsn string) []string {
	t.Helper()
	return stack.Strings(t, stack.OpenMySQL(t, dsn), "SHOW TABLES")
}

// A5: a day that is restored into warm twice and archived again: N rows, the same IDs, one
// cold copy; and no purge takes the rows before their time.
func TestRestoredDaysAreKeptInWarm(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Tables: 2, Days: 2, Seed: 71, Config: map[string]string{"fetch": "warm: true"}})
	for _, table := range e.Tables {
		e.SQL("ALTER TABLE " + table + " ADD KEY page (session_id, seq)")
	}
	var conv string
	var messages int
	if err := e.Warm.QueryRowContext(t.Context(), "SELECT session_id, COUNT(*) AS n FROM "+e.Tables[0]+" GROUP BY session_id ORDER BY n DESC LIMIT 1").Scan(&conv, &messages); err != nil {
		t.Fatal(err)
	}
	pages := func() { // whose rows are in the cold tier, and some in warm again
		t.Helper()
		seen := map[string]bool{}
		ids := e.Pages(conv, "auto", "before", 50)
		for _, id := range ids {
			seen[id] = true
		}
		if len(ids) != messages || len(seen) != messages {
			t.Errorf("pages: %d messages, %d different ones, want %d", len(ids), len(seen), messages)
		}
	}
	want := e.Truth()
	gone(e, want)
	pages()
	day := e.Days[0].String()
	shard := e.Tables[0]
	e.Expect(4, []string{"live warm table"}, "restore", "--into", e.WarmDSN, "--day", day)
	if n := e.Count(); n != 0 {
		t.Fatalf("%d rows came into warm without leave", n)
	}
	args := []string{"restore", "--into", e.WarmDSN, "--into-warm", "--day", day, "--shard", shard}
	t.Log(e.Must(args...))
	pages()
	n := e.Count()
	for _, s := range e.Slices() {
		if want := s.Day == e.Days[0] && s.Shard.String() == shard; s.Held != want {
			t.Errorf("slice %s: held %t, want %t", s.SliceKey, s.Held, want)
		}
	}
	e.Must(args...)
	if again := e.Count(); again != n || n == 0 {
		t.Errorf("%d rows after the first time, %d after the second", n, again)
	}
	for range 2 {
		e.Must("archive")
		e.Expect(0, nil, "purge")
		if again := e.Count(); again != n {
			t.Errorf("%d rows are in warm after archive and purge, want %d", again, n)
		}
		r := e.Verdict(want)
		if r.InWarm != n || r.InCold != len(want) {
			t.Error(r)
		}
		pages()
	}
	holds, err := e.Store().Holds(t.Context(), false)
	if err != nil || len(holds) != 1 || holds[0].ExpiresAt == nil || time.Until(*holds[0].ExpiresAt).Round(time.Hour) != 720*time.Hour {
		t.Errorf("holds: %+v, %v", holds, err)
	}
	e.Must("hold", "list")
	e.Must("hold", "release", fmt.Sprint(holds[0].ID))
	e.Must("purge")
	if left := e.Count(); left != 0 {
		t.Errorf("%d rows are left in warm after the hold", left)
	}
	if r := e.Verdict(want); r.InCold != len(want) {
		t.Error(r)
	}
}
