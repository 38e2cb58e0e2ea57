package drill

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

func TestMain(m *testing.M) { harness.Main(m) }

// rig is a set-up with archived and verified slices, and a scratch server to drill on.
type rig struct {
	*harness.Env
	base string // of the scratch databases
}

// newRig archives a few small slices.
func newRig(t *testing.T) *rig {
	t.Helper()
	e := harness.New(t, harness.Options{Tables: 2, Days: 3, Messages: 900, Seed: 7, Config: map[string]string{"fetch": "budget: 400ms"}})
	r := &rig{Env: e, base: stack.Unique("scratch")}
	e.SQL("ALTER TABLE " + e.Tables[0] + " ADD KEY page (session_id, seq)") // by which a canary's place is found
	e.Must("canary", "plant", "--conversation", "42", "--shard", e.Tables[0], "--at", e.Days[0].String()+"T12:00", "--set", "receiver_id=1", "--set", "client_msg_id=canary")
	e.Must("archive")
	e.Store() // opened for all of the test, not for a part of it
	r.config(r.dsn(r.base))
	t.Cleanup(func() {
		if left := r.left(); len(left) > 0 {
			t.Errorf("scratch databases are left: %v", left)
		}
	})
	return r
}

// dsn is the test server's with another database.
func (r *rig) dsn(database string) string {
	r.T.Helper()
	c, err := mysql.ParseDSN(r.WarmDSN)
	if err != nil {
		r.T.Fatal(err)
	}
	c.DBName = database
	return c.FormatDSN()
}

// config writes the drill's section anew.
func (r *rig) config(dsn string, more ...string) {
	r.T.Helper()
	r.Change(func(*harness.Options) {})
	text, err := os.ReadFile(r.Config)
	if err != nil {
		r.T.Fatal(err)
	}
	text = fmt.Appendf(text, "drill:\n  scratch_dsn: %q\n  sample: 1/1\n", dsn)
	for _, line := range more {
		text = fmt.Appendf(text, "  %s\n", line)
	}
	if err := os.WriteFile(r.Config, text, 0o600); err != nil {
		r.T.Fatal(err)
	}
}

// left are the scratch databases that are there.
func (r *rig) left() (names []string) {
	r.T.Helper()
	return r.texts("SELECT schema_name AS name FROM information_schema.schemata WHERE LEFT(schema_name, ?) = ?", len(r.base)+7, r.base+"_drill_")
}

func (r *rig) texts(query string, args ...any) (all []string) {
	r.T.Helper()
	db := stack.OpenMySQL(r.T, r.WarmDSN)
	rows, err := db.Query(query, args...)
	if err != nil {
		r.T.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			r.T.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		r.T.Fatal(err)
	}
	return all
}

// outcome is what a drill printed as JSON.
type outcome struct {
	harness.Result
	Drill    string
	Seed     string
	Why      []string
	Warnings []string
	Report   *report.Report
}

func (r *rig) drill(exit int, args ...string) *outcome {
	r.T.Helper()
	o := &outcome{Result: r.Run(append([]string{"--output", "json", "drill"}, args...)...)}
	if o.Exit != exit {
		r.T.Fatalf("exit %d, want %d: %s", o.Exit, exit, o)
	}
	if strings.HasPrefix(o.Stdout, "{") {
		o.Result.Result(r.T, o)
	}
	return o
}

// check finds a check of the report.
func (o *outcome) check(t *testing.T, name string) report.Check {
	t.Helper()
	if o.Report == nil {
		t.Fatalf("there is no report: %s", o)
	}
	for _, c := range o.Report.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("the report has no check %q: %s", name, o)
	return report.Check{}
}

// role makes the account of deploy/sql, of the drill, with this rig's names, and lets the
// program be it.
func (r *rig) role() {
	r.T.Helper()
	var file []byte
	for _, server := range []string{"warm", "target", "manifest"} {
		part, err := os.ReadFile("../../deploy/sql/" + server + "/drill.sql")
		if err != nil {
			r.T.Fatal(err)
		}
		file = append(file, part...)
	}
	admin, user := stack.OpenMySQL(r.T, r.WarmDSN), stack.Unique("d")
	database := func(dsn string) string { return dsn[strings.LastIndexByte(dsn, '/')+1:] }
	escaped := strings.ReplaceAll(r.base, "_", `\_`)
	text := strings.NewReplacer("`coldtier`", "`"+database(r.Manifest)+"`", `coldtier\_scratch`, escaped, "coldtier_drill@", user+"@", "change-this-password", "Pass-word-1").Replace(string(file))
	text = regexp.MustCompile(`(?m)^--.*$`).ReplaceAllString(text, "")
	for q := range strings.SplitSeq(text, ";") {
		if q = strings.TrimSpace(q); q != "" {
			if _, err := admin.Exec(q); err != nil {
				r.T.Fatalf("%s: %v", q, err)
			}
		}
	}
	r.T.Cleanup(func() { _, _ = admin.Exec("DROP USER " + user + "@'%'") })
	r.WarmDSN, r.Manifest = as(r.WarmDSN, user), as(r.Manifest, user)
}

func as(dsn, user string) string {
	return user + ":Pass-word-1" + dsn[strings.LastIndexByte(dsn, '@'):]
}

// put recalls or edits a message of each slice, after it was archived: that is no fault.
func (r *rig) put(t *testing.T) {
	t.Helper()
	for i, s := range r.Slices() {
		c, err := r.Store().LoadCopy(t.Context(), s.ID, s.Live)
		if err != nil {
			t.Fatal(err)
		}
		var id uint64
		span := c.Objects[0].Segs[0]
		if _, err := segment.ReadAll(c.Objects[0].File, bytes.NewReader(r.Object("im/"+c.Objects[0].Key)), func(b *message.Batch) error {
			id = b.MessageID(0)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		value := "7"
		st := manifest.Status{Conversation: span.Conversation, MessageID: id, Kind: manifest.StatusRecalled, Value: &value, By: "test"}
		if i%2 == 0 {
			st.Kind = manifest.StatusEdited
		}
		if _, err := r.Store().PutStatus(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGreen drills where all is well, with no more rights than the role's.
func TestGreen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Must("purge", "--day", r.Days[0].String())
	before := r.Truth()
	r.put(t)
	admin := r.WarmDSN
	r.role()
	r.config(r.dsn(r.base), "read_pages: 40")
	warm := stack.OpenMySQL(t, strings.TrimSuffix(r.WarmDSN, r.Database))
	if _, err := warm.Exec("SELECT * FROM " + r.Tables[0] + " LIMIT 1"); err == nil {
		t.Error("the role may read warm")
	}
	var dry struct {
		Plan struct{ Reads []struct{ Gets, Bytes int64 } }
	}
	r.Must("--output", "json", "drill", "--dry-run").Result(t, &dry)
	o := r.drill(0)
	r.WarmDSN = admin
	var gets, bytes int64
	for _, x := range dry.Plan.Reads {
		gets, bytes = gets+x.Gets, bytes+x.Bytes
	}
	if got := o.Report.Measures.Traffic[0]; got.Operation != report.OpGet || gets < got.Requests/3 || gets > got.Requests*3 || bytes < got.Bytes/3 {
		t.Errorf("the dry run says %d GETs and %d bytes, the drill made %+v", gets, bytes, got)
	}
	for _, c := range o.Report.Checks {
		if c.Verdict != report.Pass {
			t.Errorf("check %s is %s: %s", c.Name, c.Verdict, c.Reason)
		}
	}
	if o.Report.Verdict != report.Pass || len(o.Report.Sample.Slices) != 6 || len(o.Warnings) > 0 {
		t.Errorf("the drill is %s with %d slices, findings %v, warnings %v", o.Report.Verdict, len(o.Report.Sample.Slices), o.Report.Findings, o.Warnings)
	}
	for _, f := range o.Report.Findings {
		// A busy machine makes pages late, or not complete: a check fails where they are many.
		busy := strings.Contains(f.Text, "the machine of the drill was busy") || strings.Contains(f.Text, "were not complete although no fault was injected")
		if f.Level != report.Info && !busy {
			t.Errorf("finding %+v", f)
		}
	}
	if c := o.check(t, "fingerprints"); !slices.Contains(c.Compared, report.Count{What: "slices with statuses that were put later, compared row by row", Count: 6}) {
		t.Errorf("the statuses were not met: %v", c.Compared)
	}
	if got := r.Truth(); !maps.Equal(got, before) {
		t.Errorf("warm has %d rows, had %d, or others", len(got), len(before))
	}
	for _, x := range o.Report.Measures.Reads {
		if x.Pages == 0 || x.Rows == 0 && !x.Faulty || x.Wrong != 0 {
			t.Errorf("%s: %+v", x.Name, x)
		}
	}
}
