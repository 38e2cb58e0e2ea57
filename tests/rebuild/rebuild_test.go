// Package rebuild loses the manifest, or ClickHouse, of an installation that works, and
// makes them again out of the bucket with the built program.
package rebuild

import (
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
	"github.com/coldtier/coldtier/tests/truth"
)

func TestMain(m *testing.M) { harness.Main(m) }

// store opens a manifest.
func store(t *testing.T, dsn string) *manifest.Store {
	t.Helper()
	s, err := manifest.Open(t.Context(), manifest.Config{DSN: dsn, Source: "im"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func query(t *testing.T, db *sql.DB, q string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), q, args...); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

// equal demands that two manifests say the same but for what the bucket cannot know.
func equal(t *testing.T, live, rebuilt *manifest.Store) {
	t.Helper()
	found, err := manifest.Compare(t.Context(), live, rebuilt)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range found {
		t.Errorf("differs: %s (in flight %t)", d, d.InFlight)
	}
}

// lose points the installation to an empty manifest database, and gives the lost one.
func lose(e *harness.Env) (lost *manifest.Store) {
	e.T.Helper()
	lost = store(e.T.(*testing.T), e.Manifest)
	e.Manifest = stack.MySQL(e.T)
	e.Change(func(*harness.Options) {})
	return lost
}

// lateRow puts a row into a slice: n tells rows apart.
func lateRow(e *harness.Env, like, id uint64, n int) {
	e.T.Helper()
	e.SQL("INSERT INTO "+e.Tables[0]+" SELECT ?, session_id, sender_id, receiver_type, receiver_id, msg_type, ?, client_msg_id, status, create_time, seq + ? FROM one WHERE msg_id = ?",
		id, fmt.Sprint("late ", n), 500000+n, like)
}

func edge(e *harness.Env, table, which string) (id uint64) {
	e.T.Helper()
	if err := e.Warm.QueryRowContext(e.T.Context(), "SELECT "+which+"(msg_id) FROM "+table).Scan(&id); err != nil {
		e.T.Fatal(err)
	}
	return id
}

// installation is one with slices in all places: purged, of two generations, late, stopped
// by drift, verified, with holds and statuses. Day by day.
func installation(t *testing.T, o harness.Options) (*harness.Env, truth.Rows) {
	t.Helper()
	o.Days, o.Messages, o.Seed, o.Strategy = 4, 600, 91, "rows"
	e := harness.New(t, o)
	e.SQL("CREATE TABLE one AS SELECT * FROM " + e.Tables[0])
	want := e.Truth()
	more := func() {
		for k, v := range e.Truth() {
			want[k] = v
		}
	}
	e.Must("archive")
	lo, hi := e.Window(e.Days[1])
	e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id >= ? AND msg_id < ? ORDER BY msg_id DESC LIMIT 1", lo, hi)
	more()
	e.Must("hold", "add", "--shard", e.Tables[0], "--day", e.Days[3].String(), "--reason", "a test", "--by", "t")
	e.Must("hold", "add", "--conversation", "17", "--reason", "another", "--by", "t")
	e.Must("hold", "release", "2", "--by", "u")
	e.Expect(4, []string{"drift"}, "purge") // days 0 and 2 are purged, 1 drifted, 3 is held
	first := edge(e, "one", "MIN")
	lateRow(e, first, first+1, 1)
	more()
	e.Must("archive") // day 0 gets its late row, day 1 is copied again
	ctx := t.Context()
	for i := range 5 {
		id := first + uint64(i)
		if _, err := e.Store().PutStatus(ctx, manifest.Status{Conversation: []byte("17"), MessageID: id, Kind: manifest.StatusRecalled, Value: new("9"), By: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	var conv string
	if err := e.Warm.QueryRowContext(ctx, "SELECT session_id FROM one WHERE msg_id = ?", first).Scan(&conv); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Store().PutStatus(ctx, manifest.Status{Conversation: []byte(conv), MessageID: first, Kind: manifest.StatusRecalled, By: "t"}); err != nil {
		t.Fatal(err)
	}
	e.Must("archive") // mirrors the statuses
	u, err := e.Store().Unmirrored(ctx)
	if err != nil || !u.None() {
		t.Fatalf("not mirrored: %+v, %v", u, err)
	}
	return e, want
}

// The manifest is lost; out of the bucket it comes back equal, through kills at each step,
// during which no other verb works. Then the work goes on with nothing lost, also where
// rows came late meanwhile.
func TestLostManifestIsRebuilt(t *testing.T) {
	t.Parallel()
	e, want := installation(t, harness.Options{})
	identity, err := e.Store().Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := lose(e)
	e.Expect(2, []string{"coldtier migrate"}, "archive")
	e.Expect(4, []string{"coldtier rebuild manifest"}, "migrate")
	e.Expect(0, []string{"4 slices", "would be rebuilt"}, "rebuild", "manifest", "--dry-run")
	for _, step := range []string{"rebuild.begun", "rebuild.slice:2", "rebuild.slices", "rebuild.holds", "rebuild.statuses", "rebuild.before-end"} {
		if r := e.Start([]string{"COLDTIER_CRASH_AT=" + step}, "rebuild", "manifest").Wait(); r.Exit != -1 {
			t.Fatalf("%s: %s", step, r)
		}
		if step != "rebuild.slice:2" {
			continue
		}
		for _, verb := range [][]string{{"archive"}, {"purge"}, {"verify"}, {"status"}, {"migrate"}, {"hold", "list"}, {"serve"}, {"fetch", "--conversation", "17"}} {
			e.Expect(2, []string{"half rebuilt", "rebuild manifest"}, verb...)
		}
	}
	e.Expect(0, []string{"went on with"}, "rebuild", "manifest")
	equal(t, lost, e.Store())
	if id, err := e.Store().Identity(t.Context()); err != nil || id != identity {
		t.Errorf("identity %s, was %s, %v", id, identity, err)
	}
	states := map[manifest.State]int{}
	for _, s := range e.Slices() {
		states[s.State]++
	}
	if states[manifest.Purged] != 1 || states[manifest.Committed] != 3 {
		t.Errorf("states %v", states)
	}
	e.Expect(4, []string{"not empty", "--replace"}, "rebuild", "manifest")
	last := edge(e, "one", "MIN")
	lateRow(e, last, last+2, 2) // where rows were deleted
	for k, v := range e.Truth() {
		want[k] = v
	}
	for range 4 {
		e.Must("archive")
		e.Must("verify")
		if r := e.Run("purge"); r.Exit != 0 && r.Exit != 4 {
			t.Fatal(r)
		}
		e.Verdict(want)
	}
	held := 0
	for _, s := range e.Slices() {
		if s.Held {
			held++
		} else if s.State != manifest.Purged {
			t.Errorf("slice %s is %s (%s)", s.SliceKey, s.State, s.Error)
		}
	}
	if held != 1 {
		t.Errorf("%d slices are held", held)
	}
}

// Rebuilds that are killed at random moments, again and again, end equal.
func TestRandomKillsOfARebuild(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	e, _ := installation(t, harness.Options{})
	e.Store() // of the manifest that is lost
	lost := lose(e)
	// The tables first: who is killed while it makes them leaves a lock that runs out after
	// half a minute.
	if _, err := store(t, e.Manifest).Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	killed := 0
	for range 6 {
		p := e.Start(nil, "rebuild", "manifest")
		time.AfterFunc(time.Duration(rng.IntN(100))*time.Millisecond, func() { p.Signal(syscall.SIGKILL) })
		r := p.Wait()
		if r.Exit == 0 || r.Exit == 4 && strings.Contains(r.Stderr, "not empty") { // or it had ended already
			break
		}
		if r.Exit != -1 {
			t.Fatal(r)
		}
		killed++
	}
	e.Must("rebuild", "manifest", "--replace") // goes on, or finds all as it is
	equal(t, lost, store(t, e.Manifest))
	if killed == 0 {
		t.Log("nothing was killed")
	}
}

// Beside the live manifest another is filled and compared, and nothing can work with it;
// what is no target is refused before anything is written.
func TestRebuildClickHouseAndBeside(t *testing.T) {
	t.Parallel()
	e, want := installation(t, harness.Options{})
	clickHouse(t, e, want)
	other := stack.MySQL(t)
	e.Expect(4, []string{"own manifest"}, "rebuild", "manifest", "--beside", e.Manifest, "--replace")
	e.Expect(4, []string{"none of them is a manifest's"}, "rebuild", "manifest", "--beside", e.WarmDSN)
	e.Expect(0, []string{"equal to the live manifest"}, "rebuild", "manifest", "--beside", other)
	db := stack.OpenMySQL(t, e.Manifest)
	type difference struct{ what, change string }
	all := []difference{
		{"its chunks differ", "UPDATE chunks SET warm_lo = warm_lo + 1 WHERE slice_id = 1 AND seq = 0"},
		{"its segments differ", "UPDATE segments SET max_cursor = max_cursor - 1 WHERE slice_id = 2 LIMIT 1"},
		{"its objects differ", "UPDATE objects SET name = CONCAT(name, 'x') WHERE slice_id = 3 AND seq = 0"},
		{"hold 1 on slice", "UPDATE holds SET reason = 'x' WHERE id = 1"},
		{"the live manifest lacks the", "DELETE FROM slices WHERE id = 4"},
		{"the rebuilt manifest lacks", "INSERT INTO statuses (source_id, conversation, message_id, kind, put_by, put_at, mirrored) VALUES (1, 'x', 1, 'recalled', 'x', UTC_TIMESTAMP(6), 1)"},
	}
	first := rand.IntN(len(all))
	all[0], all[first] = all[first], all[0]
	for _, some := range [][]difference{all[:1], all[1:]} { // one is enough, and none hides another
		words := []string{all[0].what}
		for _, d := range some {
			query(t, db, d.change)
			words = append(words, d.what)
		}
		e.Expect(4, words, "rebuild", "manifest", "--beside", stack.MySQL(t))
	}
	// The other one is nobody's.
	e.Manifest = other
	e.Change(func(*harness.Options) {})
	for _, verb := range []string{"archive", "purge", "verify"} {
		e.Expect(4, []string{"belongs to another manifest"}, verb)
	}
}

// What cannot be used is named; the rest is done, and nothing is copied over what was
// deleted on the word of a record that cannot be read.
func TestRebuildOfADamagedBucket(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	e, want := installation(t, harness.Options{})
	k := func(day, gen int, ext string) string {
		return fmt.Sprintf("im/%s%d.%s", manifest.RecordPrefix(manifest.SliceKey{Source: "im", Shard: shard(t, e.Tables[0]), Day: e.Days[day]}), gen, ext)
	}
	flipped := e.Object(k(1, 2, "parquet")) // of two generations: the former one serves
	flipped[len(flipped)/2] ^= 1
	e.PutObject(k(1, 2, "parquet"), flipped)
	record := e.Object(k(2, 1, "parquet")) // a purged one
	e.DeleteObject(k(2, 1, "parquet"))
	foreign := strings.Replace(k(0, 1, "parquet"), "msg_content_00", "msg_content_77", 1)
	e.PutObject(foreign, e.Object(k(0, 1, "parquet")))
	e.PutObject("im/manifest/day="+e.Days[0].String()+"/stray", []byte("x"))
	hold := "im/" + manifest.HoldKey("im", 2)
	e.PutObject(hold, e.Object(hold)[1:])
	other := "im/" + strings.Replace(manifest.HoldKey("im", 7), "source=im", "source=other", 1)
	e.PutObject(other, []byte("{}"))
	lost := lose(e)
	e.Expect(3, []string{k(1, 2, "parquet")[3:], k(2, 1, "parquet")[3:], "restore it from a backup", foreign[3:], "another key", "stray", hold[3:], "objects that could not be used: 5", "remedy    restore the objects"}, "rebuild", "manifest")
	found, err := manifest.Compare(t.Context(), lost, e.Store())
	if err != nil || len(found) != 3 {
		t.Errorf("differences %v, %v", found, err)
	}
	// Day 2 is purged. It must not be begun anew as if nothing had been there.
	e.SQL("INSERT INTO "+e.Tables[0]+" SELECT * FROM one WHERE msg_id = ?", edgeOf(e, 2))
	e.Expect(3, []string{k(2, 1, "parquet")[3:], "restore the object"}, "archive")
	e.SQL("DELETE FROM "+e.Tables[0]+" WHERE msg_id = ?", edgeOf(e, 2))
	e.PutObject(k(2, 1, "parquet"), record)
	e.Must("archive") // adopts it
	if r := e.Verdict(want); len(r.Lost) > 0 {
		t.Error(r)
	}
}

// A damaged manifest is made what the bucket says, and keeps what the bucket lacks.
func TestReplaceADamagedManifest(t *testing.T) {
	t.Parallel()
	e, want := installation(t, harness.Options{})
	backup := store(t, dump(e))
	db := stack.OpenMySQL(t, e.Manifest)
	query(t, db, "INSERT INTO holds (source_id, kind, subject, reason, placed_by, placed_at) VALUES (1, 'sender', '9', 'never mirrored', 'x', UTC_TIMESTAMP(6))")
	query(t, db, "DELETE FROM holds WHERE id = 1")
	query(t, db, "DELETE FROM segments WHERE slice_id = 1")
	query(t, db, "UPDATE chunks SET state = 'present', warm_rows = 1")
	query(t, db, "UPDATE slices SET lo = lo + 1 WHERE id = 3")
	query(t, db, "DELETE FROM statuses")
	e.Expect(4, []string{"--replace"}, "rebuild", "manifest")
	e.Must("rebuild", "manifest", "--replace")
	found, err := manifest.Compare(t.Context(), backup, e.Store())
	if err != nil || len(found) != 1 || !strings.Contains(found[0].What, "hold 3") {
		t.Errorf("differences %v, %v", found, err)
	}
	e.Must("archive")
	for range 3 {
		if r := e.Run("purge"); r.Exit != 0 && r.Exit != 4 {
			t.Fatal(r)
		}
		e.Must("archive")
	}
	e.Verdict(want)
	for i, s := range e.Slices() {
		if want := map[bool]manifest.State{false: manifest.Purged, true: manifest.Verified}[i == 3]; s.State != want {
			t.Errorf("slice %s is %s", s.SliceKey, s.State)
		}
	}
}

// A purge by rows is half done when the manifest is lost. It goes on with the rebuilt one,
// also where rows were edited and came late meanwhile.
func TestPurgeGoesOnAfterARebuild(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	for _, how := range []string{"untouched", "late and edited"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Seed: 92, Messages: 300, Strategy: "rows"})
			e.SQL("CREATE TABLE one AS SELECT * FROM " + e.Tables[0])
			want := e.Truth()
			e.Must("archive")
			if r := e.Start([]string{"COLDTIER_CRASH_AT=purge.chunk.recorded:2"}, "purge").Wait(); r.Exit != -1 {
				t.Fatal(r)
			}
			if n := e.Count(); n == 0 || n == len(want) {
				t.Fatalf("%d rows are in warm", n)
			}
			if how != "untouched" {
				first := edge(e, "one", "MIN")
				lateRow(e, first, first+1, 1)
				e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id = ?", edge(e, e.Tables[0], "MAX"))
				for k, v := range e.Truth() {
					want[k] = v
				}
			}
			lose(e)
			e.Must("rebuild", "manifest")
			e.Verdict(want)
			if how == "untouched" {
				e.Must("purge")
			} else {
				e.Expect(4, []string{"drift"}, "purge")
				e.Must("archive")
				e.Must("purge")
			}
			if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
				t.Errorf("%s, %d in warm", r, e.Count())
			}
		})
	}
}

func shard(t *testing.T, table string) manifest.Shard {
	t.Helper()
	sh, err := manifest.ParseShard(table)
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

// edgeOf is the lowest message ID that was loaded for a day.
func edgeOf(e *harness.Env, day int) (id uint64) {
	e.T.Helper()
	lo, hi := e.Window(e.Days[day])
	if err := e.Warm.QueryRowContext(e.T.Context(), "SELECT MIN(msg_id) FROM one WHERE msg_id >= ? AND msg_id < ?", lo, hi).Scan(&id); err != nil {
		e.T.Fatal(err)
	}
	return id
}

// dump copies the manifest into a database of its own and gives its DSN.
func dump(e *harness.Env) string {
	e.T.Helper()
	t := e.T.(*testing.T)
	to := stack.MySQL(t)
	from, err := mysql.ParseDSN(e.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	db := stack.OpenMySQL(t, to)
	rows, err := db.QueryContext(t.Context(), "SHOW TABLES FROM "+from.DBName)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	for _, name := range names {
		query(t, db, fmt.Sprintf("CREATE TABLE %[2]s LIKE %[1]s.%[2]s", from.DBName, name))
		query(t, db, fmt.Sprintf("INSERT INTO %[2]s SELECT * FROM %[1]s.%[2]s", from.DBName, name))
	}
	return to
}

// ClickHouse is emptied, or holds other rows; it gets them anew, through a kill.
func clickHouse(t *testing.T, e *harness.Env, want truth.Rows) {
	t.Helper()
	db := e.ClickHouse.Open(t)
	if err := db.Exec(t.Context(), "DROP DATABASE "+e.ClickHouse.Database); err != nil {
		t.Fatal(err)
	}
	e.Expect(0, []string{"4 generations would be compared"}, "rebuild", "clickhouse", "--dry-run")
	day := []string{"rebuild", "clickhouse", "--day", e.Days[1].String()}
	for _, step := range []string{"rebuild.rows.dropped", "rebuild.rows.inserted"} {
		if r := e.Start([]string{"COLDTIER_CRASH_AT=" + step}, day...).Wait(); r.Exit != -1 {
			t.Fatal(r)
		}
		e.Expect(5, []string{"lease"}, day...)
		query(t, stack.OpenMySQL(t, e.Manifest), "UPDATE job_leases SET until = NULL")
		e.Expect(5, []string{"lease"}, day...)
		query(t, stack.OpenMySQL(t, e.Manifest), "UPDATE slices SET lease_until = NULL")
	}
	e.Expect(0, []string{"0 generations rebuilt", "1 equal before"}, day...)
	e.Expect(0, []string{"3 generations rebuilt", "1 equal before"}, "rebuild", "clickhouse")
	e.Verdict(want)
	e.Expect(0, []string{"0 generations rebuilt", "4 equal before"}, "rebuild", "clickhouse")
	other := e.ClickHouse.Database + "_again"
	t.Cleanup(func() { _ = db.Exec(t.Context(), "DROP DATABASE IF EXISTS "+other) })
	e.Expect(0, []string{"4 generations rebuilt in database " + other}, "rebuild", "clickhouse", "--beside", other)
	if err := db.Exec(t.Context(), "DROP DATABASE "+other); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(e.Keys(), func(k string) bool { return strings.Contains(k, e.Days[3].String()) && strings.Contains(k, "/conv=") })
	key := e.Keys()[at]
	good := e.Object(key)
	bad := slices.Clone(good)
	bad[len(bad)/2] ^= 1
	e.PutObject(key, bad)
	e.Expect(3, []string{strings.TrimPrefix(key, "im/"), "1 failed"}, "rebuild", "clickhouse", "--beside", other)
	e.PutObject(key, good)
}
