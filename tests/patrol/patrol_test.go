// Package patrol damages an installation that works, store by store, and sees what the
// built program finds, mends, and leaves alone.
package patrol

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
	"github.com/coldtier/coldtier/tests/truth"
)

func TestMain(m *testing.M) { harness.Main(m) }

type finding struct {
	Code, Severity, What, Remedy, Healed, Left string
	Objects                                    []string
	Count                                      int
	Mendable                                   bool
}

type report struct {
	Slices, Generations, Objects, Records, Rows, Healed, Young int
	InFlight                                                   int `json:"in_flight"`
	Orphans                                                    struct{ Objects int }
	Findings                                                   []finding
	Codes                                                      map[string]int
	Unlooked                                                   []struct{ What, Error string }
}

type rig struct {
	*harness.Env
	t    *testing.T
	want truth.Rows
	db   clickhouse.Conn // ClickHouse
}

// now adds what warm has to what there must be.
func (e *rig) now() {
	e.t.Helper()
	for k, v := range e.Truth() {
		e.want[k] = v
	}
}

func set(t *testing.T, o harness.Options) *rig {
	t.Helper()
	e := &rig{Env: harness.New(t, o), t: t, want: truth.Rows{}}
	e.db = e.ClickHouse.Open(t)
	e.now()
	return e
}

// installation has a purged slice, one of two generations, and one that is verified; holds.
func installation(t *testing.T) *rig {
	t.Helper()
	e := set(t, harness.Options{Days: 3, Messages: 300, Seed: 71, Strategy: "rows"})
	e.SQL("CREATE TABLE one AS SELECT * FROM " + e.Tables[0])
	e.Must("archive")
	lo, hi := e.Window(e.Days[1])
	e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id >= ? AND msg_id < ? ORDER BY msg_id DESC LIMIT 1", lo, hi)
	e.now()
	e.Must("hold", "add", "--shard", e.Tables[0], "--day", e.day(2), "--reason", "a test", "--by", "t")
	e.Expect(4, []string{"drift"}, "purge")
	e.Must("archive")
	return e
}

// patrol runs one and demands an exit code and findings by code, notes of objects aside.
func (e *rig) patrol(exit int, codes map[string]int, args ...string) report {
	e.t.Helper()
	r := e.Run(append([]string{"--output", "json", "patrol"}, args...)...)
	var out report
	r.Result(e.t, &out)
	if r.Exit != exit {
		e.t.Fatalf("exit %d, want %d: %s", r.Exit, exit, r)
	}
	for code, n := range codes {
		if out.Codes[code] != n {
			e.t.Errorf("%d findings %s, want %d: %s", out.Codes[code], code, n, r)
		}
	}
	if len(out.Codes) > len(codes) {
		e.t.Errorf("findings %v, want %v: %s", out.Codes, codes, r)
	}
	return out
}

func (e *rig) key(day, gen int, ext string) string {
	s, err := manifest.ParseShard(e.Tables[0])
	if err != nil {
		e.t.Fatal(err)
	}
	return fmt.Sprintf("im/%s%d.%s", manifest.RecordPrefix(manifest.SliceKey{Source: "im", Shard: s, Day: e.Days[day]}), gen, ext)
}

// objectOf is an object of a day's generation.
func (e *rig) objectOf(day, gen int) string {
	e.t.Helper()
	for _, k := range e.Keys() {
		if strings.Contains(k, fmt.Sprintf("messages/day=%s/", e.Days[day])) && strings.Contains(k, fmt.Sprintf("/g%d-", gen)) {
			return k
		}
	}
	e.t.Fatal("no such object")
	return ""
}

func (e *rig) clickhouse(query string, args ...any) {
	e.t.Helper()
	if err := e.db.Exec(e.t.Context(), fmt.Sprintf(strings.ReplaceAll(query, "MESSAGES", e.ClickHouse.Database+".messages"), args...)); err != nil {
		e.t.Fatalf("%s: %v", query, err)
	}
}

func (e *rig) rows(where string) (n uint64) {
	e.t.Helper()
	if err := e.db.QueryRow(e.t.Context(), "SELECT count() FROM "+e.ClickHouse.Database+".messages WHERE "+where).Scan(&n); err != nil {
		e.t.Fatal(err)
	}
	return n
}

// lose deletes rows of ClickHouse and waits for it.
func (e *rig) lose(where string) {
	e.t.Helper()
	if e.rows(where) == 0 {
		e.t.Fatal("there are no such rows")
	}
	e.clickhouse("ALTER TABLE MESSAGES DELETE WHERE " + where)
	for end := time.Now().Add(time.Minute); e.rows(where) > 0; time.Sleep(10 * time.Millisecond) { // the server tells nobody
		if time.Now().After(end) {
			e.t.Fatal("the rows are still there")
		}
	}
}

func (e *rig) manifestSQL(query string, args ...any) {
	e.t.Helper()
	if _, err := stack.OpenMySQL(e.t, e.Manifest).ExecContext(e.t.Context(), query, args...); err != nil {
		e.t.Fatalf("%s: %v", query, err)
	}
}

// unlease lets the leases of a killed process run out.
func (e *rig) unlease() {
	e.manifestSQL("UPDATE slices SET lease_until = NULL")
	e.unleaseJobs()
}

func (e *rig) unleaseJobs() { e.manifestSQL("UPDATE job_leases SET until = NULL") }

func (e *rig) day(i int) string { return e.Days[i].String() }

// What is damaged in the bucket is found and named; what can be put again is, byte for
// byte; what cannot be is left as it is.
func TestBucketIsDamaged(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	e := installation(t)
	all := e.patrol(0, nil)
	if all.Slices != 3 || all.Generations != 4 || all.Records != 4 || all.Rows != 300 || all.Objects == 0 || all.Orphans.Objects+all.Young+all.InFlight > 0 {
		t.Fatalf("%+v", all)
	}
	if one := e.patrol(0, nil, "--day", e.day(0), "--shard", e.Tables[0]); one.Slices != 1 || one.Rows == 0 || one.Orphans.Objects > 0 {
		t.Errorf("%+v", one)
	}
	lost := func(key, code string, with []byte) {
		t.Helper()
		was := e.Object(key)
		if with == nil {
			e.DeleteObject(key)
		} else {
			e.PutObject(key, with)
		}
		for _, args := range [][]string{{"--heal", "--grace", "0s"}, nil} {
			r := e.patrol(4, map[string]int{code: 1}, args...)
			if f := r.Findings[0]; f.Severity != "lost" || !strings.Contains(strings.Join(f.Objects, " "), strings.TrimPrefix(key, "im/")) || f.Remedy == "" || f.Mendable {
				t.Errorf("%+v", f)
			}
		}
		if i := slices.Index(e.Keys(), key); with == nil && i >= 0 || with != nil && !bytes.Equal(e.Object(key), with) {
			t.Errorf("%s was papered over", key)
		}
		e.PutObject(key, was)
	}
	for day, gen := range map[int]int{0: 1, 1: 2, 2: 1} {
		lost(e.objectOf(day, gen), "object-missing", nil)
	}
	lost(e.objectOf(2, 1), "object-size", []byte("short"))
	flipped := e.Object(e.key(2, 1, "parquet"))
	flipped[len(flipped)/2] ^= 1
	lost(e.key(2, 1, "parquet"), "record-different", flipped)
	lost(e.key(2, 1, "parquet"), "record-different", e.Object(e.key(1, 1, "parquet")))
	// A former generation serves nobody.
	former := e.objectOf(1, 1)
	was := e.Object(former)
	e.DeleteObject(former)
	e.patrol(0, map[string]int{"object-missing": 1})
	e.PutObject(former, was)

	again := func(key, code string) {
		t.Helper()
		was := e.Object(key)
		e.DeleteObject(key)
		e.patrol(4, map[string]int{code: 1})
		if r := e.patrol(4, map[string]int{code: 1}, "--heal", "--dry-run"); !r.Findings[0].Mendable || r.Healed != 0 || slices.Contains(e.Keys(), key) {
			t.Errorf("a dry run: %+v", r)
		}
		if r := e.patrol(0, map[string]int{code: 1}, "--heal"); r.Healed != 1 || r.Findings[0].Healed == "" {
			t.Errorf("%+v", r)
		}
		if now := e.Object(key); strings.HasSuffix(key, "parquet") && !bytes.Equal(now, was) {
			t.Errorf("%s is another", key)
		}
		e.patrol(0, nil)
	}
	again(e.key(0, 1, "parquet"), "record-missing")
	again(e.key(1, 2, "parquet"), "record-missing")
	again(e.key(0, 1, "purged"), "mark-missing")
	again("im/"+manifest.HoldKey("im", 1), "hold-missing")
	again("im/"+manifest.OwnerKey("im"), "owner-missing")
	// A hold as it was before it was released, whose put arrived late; and one that the manifest knows less of.
	hold := "im/" + manifest.HoldKey("im", 1)
	held := e.Object(hold)
	e.Must("hold", "release", "1", "--by", "t")
	released := e.Object(hold)
	e.PutObject(hold, held)
	if r := e.patrol(4, map[string]int{"hold-different": 1}); !r.Findings[0].Mendable {
		t.Errorf("%+v", r)
	}
	if r := e.patrol(0, map[string]int{"hold-different": 1}, "--heal"); r.Healed != 1 || !bytes.Equal(e.Object(hold), held) {
		t.Errorf("%+v", r)
	}
	e.patrol(0, nil)
	e.Must("archive")
	if now := e.Object(hold); !bytes.Equal(now, released) {
		t.Errorf("after the next archive the hold in the bucket is %s", now)
	}
	e.manifestSQL("UPDATE holds SET released_at = NULL")
	if r := e.patrol(4, map[string]int{"hold-different": 1}, "--heal"); r.Findings[0].Mendable {
		t.Errorf("%+v", r)
	}
	h, err := manifest.DecodeHold(released)
	if err != nil {
		t.Fatal(err)
	}
	e.manifestSQL("UPDATE holds SET released_at = ?", *h.ReleasedAt)
	e.PutObject(e.key(0, 1, "purged"), []byte("{}"))
	e.patrol(4, map[string]int{"mark-damaged": 1}, "--heal")
	e.DeleteObject(e.key(0, 1, "purged"))
	e.patrol(0, map[string]int{"mark-missing": 1}, "--heal")
	// The record of a generation whose statuses were put again is no longer known whole.
	e.manifestSQL("UPDATE copies SET show_create = CONCAT(show_create, ' ')")
	record := e.Object(e.key(2, 1, "parquet"))
	e.DeleteObject(e.key(2, 1, "parquet"))
	if r := e.patrol(4, map[string]int{"record-missing": 1}, "--heal"); r.Findings[0].Mendable {
		t.Errorf("%+v", r)
	}
	e.PutObject(e.key(2, 1, "parquet"), record)
	e.patrol(0, nil)
}

// ClickHouse gets back what it lost, unless the bucket cannot give it: then what it still
// has stays.
func TestClickHouseIsDamaged(t *testing.T) {
	t.Parallel()
	e := installation(t)
	day := func(i int) string { return "_day = '" + e.day(i) + "'" }
	one := func(i int) string {
		var id int64
		if err := e.db.QueryRow(t.Context(), "SELECT min(msg_id) FROM "+e.ClickHouse.Database+".messages WHERE "+day(i)).Scan(&id); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s AND msg_id = %d", day(i), id)
	}
	e.lose(day(0))
	e.lose(one(2))
	e.patrol(4, map[string]int{"rows-missing": 1, "rows-different": 1})
	e.patrol(4, map[string]int{"rows-missing": 1}, "--day", e.day(0))
	for _, step := range []string{"rebuild.rows.dropped", "rebuild.rows.inserted"} {
		if r := e.Start([]string{"COLDTIER_CRASH_AT=" + step}, "patrol", "--heal", "--day", e.day(2)).Wait(); r.Exit != -1 {
			t.Fatal(r)
		}
		e.unlease()
	}
	if r := e.patrol(0, map[string]int{"rows-missing": 1}, "--heal"); r.Healed != 1 {
		t.Errorf("%+v", r)
	}
	if r := e.patrol(0, nil); r.Rows != 300 {
		t.Errorf("%+v", r)
	}
	// An object is lost and a row in ClickHouse is: the others are all that is left of it.
	key := e.objectOf(0, 1)
	object := e.Object(key)
	e.DeleteObject(key)
	e.lose(one(0))
	left := e.rows(day(0))
	if r := e.patrol(4, map[string]int{"object-missing": 1, "rows-different": 1}, "--heal"); r.Findings[0].Mendable || r.Findings[1].Mendable {
		t.Errorf("%+v", r)
	}
	e.PutObject(key, append(bytes.Clone(object[:len(object)-1]), object[len(object)-1]^1)) // which no listing tells
	e.patrol(4, map[string]int{"rows-different": 1}, "--heal")
	e.Expect(1, []string{"left as they are"}, "rebuild", "clickhouse", "--day", e.day(0))
	if n := e.rows(day(0)); n != left {
		t.Errorf("%d rows of %d are left", n, left)
	}
	e.PutObject(key, object)
	e.patrol(0, map[string]int{"rows-different": 1}, "--heal")
	// ClickHouse is away: the rest is compared, and it is no success.
	e.DeleteObject(key)
	e.Change(func(o *harness.Options) { o.ClickHouseAddr = "127.0.0.1:1" })
	e.patrol(4, map[string]int{"object-missing": 1}, "--heal")
	e.PutObject(key, object)
	if r := e.patrol(1, nil); len(r.Unlooked) != 1 || r.Unlooked[0].What != "ClickHouse" {
		t.Errorf("%+v", r)
	}
}

// Rows that nothing names go, and nothing else: not while a worker may commit them, not
// what a commit record names, not what another installation may have put there.
func TestOrphanRows(t *testing.T) {
	t.Parallel()
	e := set(t, harness.Options{Days: 2, Messages: 200, Seed: 72, Strategy: "rows"})
	crash := func(step string) {
		t.Helper()
		if r := e.Start([]string{"COLDTIER_CRASH_AT=" + step}, "archive", "--day", e.day(0)).Wait(); r.Exit != -1 {
			t.Fatal(r)
		}
	}
	heal := []string{"--heal", "--grace", "0s"}
	crash("archive.stored")
	first := e.rows("1")
	if r := e.patrol(0, nil, heal...); r.InFlight == 0 || r.Young == 0 { // leased
		t.Errorf("%+v", r)
	}
	e.unlease()
	if r := e.patrol(0, nil, heal...); r.InFlight == 0 { // copying
		t.Errorf("%+v", r)
	}
	crash("archive.record-put")
	e.unlease()
	second := e.rows("1")
	e.manifestSQL("UPDATE slices SET state = 'pending'")
	if first == 0 || second != 2*first {
		t.Fatalf("%d rows of one attempt, %d of two", first, second)
	}
	// One attempt is nobody's, the other's record is to be taken over.
	if r := e.patrol(4, map[string]int{"rows-orphans": 1, "object-orphans": 1, "record-unknown": 1}, "--heal", "--dry-run", "--grace", "0s"); r.Healed != 0 || e.rows("1") != second {
		t.Errorf("%+v", r)
	}
	e.patrol(0, map[string]int{"record-unknown": 1}) // all is young
	for _, step := range []string{"patrol.claimed", "patrol.dropped"} {
		if r := e.Start([]string{"COLDTIER_CRASH_AT=" + step}, append([]string{"patrol"}, heal...)...).Wait(); r.Exit != -1 {
			t.Fatal(step, r)
		}
		if step == "patrol.claimed" {
			if e.rows("1") != second {
				t.Error("rows went")
			}
			e.unleaseJobs()                                      // of patrol, which is another than the slice's
			if r := e.patrol(0, nil, heal...); r.InFlight == 0 { // the dead one's lease
				t.Errorf("%+v", r)
			}
		}
		e.unlease()
	}
	if n := e.rows("1"); n != first {
		t.Fatalf("%d rows are left, want %d", n, first)
	}
	e.Must("archive")
	e.Verdict(e.want)
	// Nobody knows whose these are.
	const columns = "msg_id, session_id, seq, content"
	e.clickhouse("INSERT INTO MESSAGES (_day, _shard, _generation, _attempt, %[2]s) SELECT _day, _shard, _generation, 'other', %[2]s FROM MESSAGES WHERE _day = '%[1]s'", e.day(1), columns)
	e.clickhouse("INSERT INTO MESSAGES (_day, _shard, _generation, _attempt, %[2]s) SELECT _day, 'other.table', _generation, _attempt, %[2]s FROM MESSAGES WHERE _day = '%[1]s' AND _attempt <> 'other'", e.day(1), columns)
	n := e.rows("1")
	e.patrol(0, map[string]int{"rows-orphans": 2, "object-orphans": 1}, heal...)
	if now := e.rows("1"); now != n {
		t.Errorf("%d rows, were %d", now, n)
	}
}

// A generation is committed, and another worker takes over, while a patrol that is to drop
// rows is stopped: it drops nothing that a generation names.
func TestCommittedMeanwhile(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	for _, lease := range []bool{true, false} { // does its lease last?
		t.Run(fmt.Sprint(lease), func(t *testing.T) {
			t.Parallel()
			e := set(t, harness.Options{Messages: 100, Seed: 73, Strategy: "rows"})
			if r := e.Start([]string{"COLDTIER_CRASH_AT=archive.record-put"}, "archive").Wait(); r.Exit != -1 {
				t.Fatal(r)
			}
			// The record is hidden while the patrol lists, so that its rows seem to be nobody's.
			record := e.Object(e.key(0, 1, "parquet"))
			e.DeleteObject(e.key(0, 1, "parquet"))
			e.manifestSQL("UPDATE slices SET state = 'pending', lease_until = NULL")
			p := e.Start([]string{"COLDTIER_STOP_AT=patrol.claimed"}, "patrol", "--heal", "--grace", "0s")
			if !p.Stopped() {
				t.Fatal(p.Wait())
			}
			e.PutObject(e.key(0, 1, "parquet"), record)
			if lease {
				e.Expect(5, nil, "archive")
			} else {
				e.unlease()
				e.Must("archive")
			}
			p.Signal(syscall.SIGCONT)
			if r := p.Wait(); r.Exit != 3 {
				t.Fatal(r)
			}
			e.Must("archive")
			e.Verdict(e.want)
			e.patrol(0, nil)
		})
	}
}

// Two mend at once while a worker copies, verifies and purges; nothing is lost, and all is
// mended in the end.
func TestTwoPatrolsAndAWorker(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	e := installation(t)
	lo, hi := e.Window(e.Days[1])
	e.SQL("INSERT INTO "+e.Tables[0]+" SELECT msg_id + 1, session_id, sender_id, receiver_type, receiver_id, msg_type, 'late', client_msg_id, status, create_time, seq + 500000 FROM one WHERE msg_id >= ? AND msg_id < ? LIMIT 1", lo, hi)
	e.now()
	e.lose("_day <= '" + e.day(1) + "'")
	e.DeleteObject(e.key(0, 1, "parquet"))
	heal := []string{"patrol", "--heal", "--grace", "0s"}
	for range 2 {
		all := []*harness.Process{e.Start(nil, heal...), e.Start(nil, "purge"), e.Start(nil, heal...), e.Start(nil, "archive"), e.Start(nil, "verify")}
		for i, p := range all {
			if r := p.Wait(); r.Exit < 0 || r.Exit == 1 && i%2 == 0 && i < 4 || r.Exit == 2 {
				t.Fatal(r)
			}
		}
	}
	e.Must("archive")
	e.Must(heal...)
	e.Verdict(e.want)
	if r := e.patrol(0, nil); r.Slices != 3 {
		t.Errorf("%+v", r)
	}
}

// A manifest that was set back to a backup is not what the bucket says; nothing is mended
// by it that would hide that.
func TestManifestIsSetBack(t *testing.T) {
	t.Parallel()
	e := set(t, harness.Options{Days: 2, Messages: 200, Seed: 74, Strategy: "rows"})
	e.Must("archive")
	old := backup(e)
	lo, hi := e.Window(e.Days[1])
	e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id >= ? AND msg_id < ? LIMIT 1", lo, hi)
	e.now()
	e.Expect(4, []string{"drift"}, "purge")
	e.Must("archive")
	e.Must("hold", "add", "--conversation", "17", "--reason", "a test", "--by", "t")
	now := e.Manifest
	e.Manifest = old
	e.Change(func(*harness.Options) {})
	n := e.rows("1")
	r := e.patrol(4, map[string]int{"purge-forgotten": 1, "record-unknown": 1, "hold-unknown": 1}, "--heal", "--grace", "0s")
	if e.rows("1") != n || r.Healed != 1 || r.Orphans.Objects > 0 {
		t.Errorf("%d rows of %d, %+v", e.rows("1"), n, r)
	}
	e.Manifest = now
	e.Change(func(*harness.Options) {})
	e.patrol(0, nil)
	e.Verdict(e.want)
	// Another installation's manifest.
	e.manifestSQL("UPDATE sources SET identity = REVERSE(identity)")
	e.patrol(4, map[string]int{"owner-foreign": 1}, "--heal")
}

// What the remedies say works: an object is lost, and its rows come back from MySQL, or,
// where they were purged, from ClickHouse.
func TestRemedies(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	e := installation(t)
	e.DeleteObject(e.objectOf(0, 1)) // purged
	e.DeleteObject(e.objectOf(2, 1)) // verified
	e.patrol(4, map[string]int{"object-missing": 2}, "--heal")
	e.Expect(4, nil, "verify", "--day", e.day(2), "--shard", e.Tables[0])
	e.Must("restore", "--day", e.day(0), "--shard", e.Tables[0], "--into", e.WarmDSN, "--into-warm")
	e.Must("archive")
	if r := e.patrol(0, map[string]int{"object-missing": 2}); r.Findings[0].Severity != "note" || r.Findings[1].Severity != "note" {
		t.Errorf("%+v", r)
	}
	e.Verdict(e.want)
}

// backup copies the manifest into a database of its own and gives its DSN.
func backup(e *rig) string {
	e.t.Helper()
	to := stack.MySQL(e.t)
	from, err := mysql.ParseDSN(e.Manifest)
	if err != nil {
		e.t.Fatal(err)
	}
	db := stack.OpenMySQL(e.t, to)
	rows, err := db.QueryContext(e.t.Context(), "SHOW TABLES FROM "+from.DBName)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			e.t.Fatal(err)
		}
		names = append(names, name)
	}
	if rows.Err() != nil {
		e.t.Fatal(rows.Err())
	}
	for _, name := range names {
		for _, s := range []string{"CREATE TABLE %[2]s LIKE %[1]s.%[2]s", "INSERT INTO %[2]s SELECT * FROM %[1]s.%[2]s"} {
			if _, err := db.ExecContext(e.t.Context(), fmt.Sprintf(s, from.DBName, name)); err != nil {
				e.t.Fatal(err)
			}
		}
	}
	return to
}
