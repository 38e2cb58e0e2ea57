package drill

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// state is what all tables of the warm and the manifest database hold, but the histories of
// drills and runs, and leases of jobs.
func (r *rig) state() string {
	r.T.Helper()
	var b strings.Builder
	for _, dsn := range []string{r.WarmDSN, r.Manifest} {
		db := stack.OpenMySQL(r.T, dsn)
		rows, err := db.Query("SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name")
		if err != nil {
			r.T.Fatal(err)
		}
		var tables []string
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				r.T.Fatal(err)
			}
			tables = append(tables, s)
		}
		if err := rows.Close(); err != nil {
			r.T.Fatal(err)
		}
		for _, name := range tables {
			if strings.HasPrefix(name, "drill") || name == "runs" || name == "job_leases" {
				continue
			}
			var table, sum string
			if err := db.QueryRow("CHECKSUM TABLE `"+name+"`").Scan(&table, &sum); err != nil {
				r.T.Fatal(err)
			}
			fmt.Fprintf(&b, "%s %s\n", table, sum)
		}
	}
	for _, k := range r.Keys() {
		if !strings.HasPrefix(k, "im/drills/") {
			fmt.Fprintf(&b, "%s %d\n", k, len(r.Object(k)))
		}
	}
	return b.String()
}

// TestHarm tries to make a drill write what is not its own.
func TestHarm(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := r.state()
	full := stack.MySQL(t)
	db := stack.OpenMySQL(t, full)
	if _, err := db.Exec("CREATE TABLE kept (id INT)"); err != nil {
		t.Fatal(err)
	}
	name := func(dsn string) string { return dsn[strings.LastIndexByte(dsn, '/')+1:] }
	for _, c := range []struct{ what, database, word string }{
		{"warm", r.Database, "a warm database"},
		{"manifest", name(r.Manifest), "the manifest's database"},
		{"a database with tables", name(full), "has tables (kept)"},
	} {
		r.config(r.dsn(c.database))
		if o := r.drill(4); !strings.Contains(o.Stderr, c.word) {
			t.Errorf("scratch_dsn is %s: the refusal lacks %q: %s", c.what, c.word, o)
		}
	}
	// The address is another, the server the same.
	p := stack.NewProxy(t, addr(r.WarmDSN))
	r.config(strings.Replace(r.dsn(r.Database), addr(r.WarmDSN), p.Addr, 1))
	if o := r.drill(4); !strings.Contains(o.Stderr, "a warm database") {
		t.Errorf("a warm database by another address is not refused: %s", o)
	}
	r.config(r.dsn(strings.Repeat("x", 37)))
	r.drill(4)

	// What looks like a dead drill's and is none.
	alike := []string{r.base + "_drill_0123456789_r0", r.base + "_drill_0123456789_m", r.base + "_drill_mine"}
	for i, name := range alike {
		if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = db.Exec("DROP DATABASE IF EXISTS " + name) })
		if i == 0 {
			continue // no mark
		}
		for _, q := range []string{"CREATE TABLE %s.coldtier_drill_marker (drill VARCHAR(32), source VARCHAR(255), identity VARCHAR(64))",
			"INSERT INTO %s.coldtier_drill_marker VALUES ('0123456789', 'im', 'another manifest')"} {
			if _, err := db.Exec(fmt.Sprintf(q, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.config(r.dsn(r.base), "read_pages: 3")
	o := r.drill(0)
	if !strings.Contains(o.Stdout, "may write all databases") {
		t.Errorf("that the account is too mighty is not said: %s", o)
	}
	if got := r.left(); len(got) != len(alike) {
		t.Errorf("left are %v, want %v", got, alike)
	}
	for _, name := range alike {
		if !strings.Contains(o.Stdout, name) {
			t.Errorf("%s, which was left, is not named", name)
		}
		if _, err := db.Exec("DROP DATABASE " + name); err != nil {
			t.Fatal(err)
		}
	}
	if after := r.state(); after != before {
		t.Errorf("the drill changed something:\n%s\nwas\n%s", after, before)
	}
}

func addr(dsn string) string {
	_, rest, _ := strings.Cut(dsn, "tcp(")
	host, _, _ := strings.Cut(rest, ")")
	return host
}

// TestKilled ends drills in all ways, and looks for what they leave.
func TestKilled(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	r := newRig(t)
	r.config(r.dsn(r.base), "read_pages: 3")
	before := r.state()
	p := r.Start([]string{"COLDTIER_CRASH_AT=drill.compare"}, "drill")
	if res := p.Wait(); res.Exit != -1 {
		t.Fatalf("it was not killed: %s", res)
	}
	if len(r.left()) == 0 {
		t.Fatal("the killed drill has left nothing")
	}
	first := r.left()
	r.drill(5) // its lease lasts
	unlease := func() {
		t.Helper()
		if _, err := stack.OpenMySQL(t, r.Manifest).Exec("UPDATE job_leases SET until = NULL"); err != nil {
			t.Fatal(err)
		}
	}
	unlease()

	// A drill that is stopped in its middle: another one finds the lock taken, and drops nothing of it.
	p = r.Start([]string{"COLDTIER_STOP_AT=drill.compare"}, "drill")
	if !p.Stopped() {
		t.Fatalf("it did not stop: %s", p.Wait())
	}
	if slices.ContainsFunc(r.left(), func(s string) bool { return slices.Contains(first, s) }) {
		t.Errorf("what the killed drill has left is there still: %v", r.left())
	}
	running := len(r.left())
	if o := r.drill(5); !strings.Contains(o.Stderr, "job drill in the manifest: another worker holds the lease") {
		t.Errorf("two drills at once: %s", o)
	}
	unlease() // the scratch server has a lock of its own
	if o := r.drill(5); !strings.Contains(o.Stderr, "another drill runs") {
		t.Errorf("two drills at once: %s", o)
	}
	if got := len(r.left()); got != running {
		t.Errorf("the second drill dropped databases of the first: %d, were %d", got, running)
	}
	p.Signal(syscall.SIGTERM)
	p.Signal(syscall.SIGCONT)
	if res := p.Wait(); res.Exit != 1 || !strings.Contains(res.Stderr, "interrupted by SIG") {
		t.Errorf("ended by SIGTERM: %s", res)
	}
	if got := r.left(); len(got) > 0 {
		t.Errorf("after SIGTERM there are %v", got)
	}
	if after := r.state(); after != before {
		t.Errorf("a drill changed something:\n%s\nwas\n%s", after, before)
	}

	// Drills of a third each restore all in three, whatever their seeds; none that was killed counts.
	seen := map[string]bool{}
	for i := range 3 {
		o := r.drill(0, "--sample", "1/3")
		for _, s := range o.Report.Sample.Slices {
			seen[s.Day.String()+" "+s.Shard.String()] = true
		}
		if c := o.Report.Sample.Coverage; len(o.Report.Sample.Slices) != 2 || c.Covered != 2*(i+1) || c.Before != 2*i {
			t.Errorf("drill %d: %d slices, coverage %+v", i+1, len(o.Report.Sample.Slices), c)
		}
	}
	if len(seen) != 6 {
		t.Errorf("three drills of a third restored %v", seen)
	}
	// The same seed draws the same, and a dry run writes nothing.
	var a, b struct{ Plan json.RawMessage }
	r.Must("--output", "json", "drill", "--dry-run", "--seed", "9", "--sample", "1/3").Result(t, &a)
	r.Must("--output", "json", "drill", "--dry-run", "--seed", "9", "--sample", "1/3").Result(t, &b)
	if len(a.Plan) == 0 || string(a.Plan) != string(b.Plan) || !strings.Contains(string(a.Plan), "last restored ") {
		t.Errorf("two dry runs: %s, %s", a.Plan, b.Plan)
	}
}

// TestBusy goes on with the daily work in the middle of a drill: what changes meanwhile is
// no fault of the archive.
func TestBusy(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	r := newRig(t)
	r.config(r.dsn(r.base), "read_pages: 10")
	// One slice of a table has other columns than the others.
	r.SQL("ALTER TABLE " + r.Tables[0] + " ADD COLUMN extra INT NOT NULL DEFAULT 7")
	r.Expect(4, []string{"drift"}, "purge", "--day", r.Days[2].String(), "--shard", r.Tables[0])
	r.Must("archive", "--day", r.Days[2].String())
	p := r.Start([]string{"COLDTIER_STOP_AT=drill.rebuilt"}, "--output", "json", "drill")
	if !p.Stopped() {
		t.Fatalf("it did not stop: %s", p.Wait())
	}
	// A slice gets its next generation, another one is purged, a message is recalled.
	r.SQL("DELETE FROM " + r.Tables[0] + " ORDER BY msg_id LIMIT 1")
	r.SQL("UPDATE " + r.Tables[0] + " SET content = 'edited' ORDER BY msg_id LIMIT 1")
	r.Expect(4, []string{"drift"}, "purge", "--day", r.Days[0].String())
	r.Must("archive")
	r.Must("purge", "--day", r.Days[1].String(), "--shard", r.Tables[1])
	r.put(t)
	p.Signal(syscall.SIGCONT)
	o := &outcome{Result: p.Wait()}
	o.Result.Result(t, o)
	for _, c := range o.Report.Checks {
		if c.Verdict == report.Fail {
			t.Errorf("check %s is red: %v", c.Name, c.Failures)
		}
	}
	if o.Exit != 0 {
		t.Errorf("exit %d: %v", o.Exit, o.Why)
	}
	if c := o.check(t, equal); len(c.Compared) < 2 {
		t.Errorf("what changed meanwhile was not met: %v", c.Compared)
	}
}
