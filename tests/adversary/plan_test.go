package adversary

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// approver gives the configuration of a second person, whose account deploy/sql/manifest/approve.sql makes.
func approver(e *harness.Env) (config string) {
	e.T.Helper()
	cfg, err := mysql.ParseDSN(e.Manifest)
	if err != nil {
		e.T.Fatal(err)
	}
	file, err := os.ReadFile("../../deploy/sql/manifest/approve.sql")
	if err != nil {
		e.T.Fatal(err)
	}
	user := stack.Unique("a")
	text := strings.NewReplacer("`coldtier`", "`"+cfg.DBName+"`", "coldtier_approve@", user+"@", "change-this-password", "Pass-word-1").Replace(regexp.MustCompile(`(?m)^--.*$`).ReplaceAllString(string(file), ""))
	admin := stack.OpenMySQL(e.T, e.Manifest)
	for q := range strings.SplitSeq(text, ";") {
		if q = strings.TrimSpace(q); q != "" {
			if _, err := admin.ExecContext(e.T.Context(), q); err != nil {
				e.T.Fatalf("%s: %v", q, err)
			}
		}
	}
	e.T.Cleanup(func() { _, _ = admin.Exec("DROP USER " + user + "@'%'") })
	own := cfg.Clone()
	own.User, own.Passwd = user, "Pass-word-1"
	b, err := os.ReadFile(e.Config)
	if err != nil {
		e.T.Fatal(err)
	}
	head, tail, ok := strings.Cut(string(b), "manifest:\n  dsn: ")
	_, tail, ok2 := strings.Cut(tail, "\n")
	if !ok || !ok2 {
		e.T.Fatalf("no manifest.dsn in %s", b)
	}
	config = filepath.Join(e.T.TempDir(), "approver.yaml")
	if err := os.WriteFile(config, []byte(head+"manifest:\n  dsn: \""+own.FormatDSN()+"\"\n"+tail), 0o600); err != nil {
		e.T.Fatal(err)
	}
	return config
}

// saved makes a plan and gives its ID.
func saved(e *harness.Env, args ...string) string {
	e.T.Helper()
	var out struct{ Saved struct{ ID string } }
	e.Must(append([]string{"--output", "json", "plan", "purge", "--save", "--by", "ann"}, args...)...).Result(e.T, &out)
	if out.Saved.ID == "" {
		e.T.Fatal("no plan was saved")
	}
	return out.Saved.ID
}

// approved makes a plan that the second person approves.
func approved(e *harness.Env, config string, args ...string) string {
	e.T.Helper()
	id := saved(e, args...)
	e.Expect(0, []string{id, "approved by"}, "--config", config, "approve", id, "--by", "bob", "--yes")
	return id
}

func rowsOf(e *harness.Env, s manifest.Slice) (n int) {
	e.T.Helper()
	if err := e.Warm.QueryRowContext(e.T.Context(), "SELECT COUNT(*) FROM "+s.Shard.String()+" WHERE msg_id >= ? AND msg_id < ?", s.Lo, s.Hi).Scan(&n); err != nil {
		e.T.Fatal(err)
	}
	return n
}

// A purge that needs an approval does exactly what a second person approved: nothing before,
// nothing beside, and nothing that changed since.
func TestPurgeDoesTheApprovedPlanAlone(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 131, Tables: 2, Days: 3, Messages: 600, Partitioned: true, Config: map[string]string{"purge": "approval: required"}})
	e.Must("archive")
	n := e.Count()
	second := approver(e)
	e.Expect(4, []string{"approval is required", "plan purge --save"}, "purge")
	e.Expect(0, []string{"nothing of this would be deleted now"}, "purge", "--dry-run")
	id := saved(e, "--to", e.Days[1].String())
	e.Expect(4, []string{"waits for"}, "purge", "--plan", id)
	e.Expect(4, nil, "purge")
	e.Expect(4, []string{"made it", "approve.sql"}, "approve", id, "--yes")
	e.Expect(4, []string{"Ann made it"}, "--config", second, "approve", id, "--by", "Ann", "--yes")
	e.Expect(2, []string{"no terminal", "--yes"}, "--config", second, "approve", id)
	e.Expect(0, []string{"would be approved"}, "--config", second, "approve", id, "--dry-run")
	e.Expect(4, nil, "purge")
	if e.Count() != n {
		t.Fatalf("%d of %d rows are left before any approval", e.Count(), n)
	}
	e.Expect(0, []string{"approved by"}, "--config", second, "approve", id, "--by", "bob", "--reason", "looked at it", "--yes")
	e.Expect(4, []string{"already"}, "--config", second, "approve", id, "--yes")
	e.Expect(2, nil, "purge", "--plan", id, "--to", e.Days[0].String())
	e.Expect(4, []string{"not in the manifest"}, "purge", "--plan", "0123456789ab")

	// Since then: one slice is of a new generation, one is held, and of one a row has changed.
	at := map[string]manifest.Slice{}
	for _, s := range e.Slices() {
		at[s.SliceKey.String()] = s
	}
	slice := func(table, day int) manifest.Slice { return at[e.Days[day].String()+" "+e.Tables[table]] }
	anew, held, drifted, plain := slice(0, 0), slice(1, 0), slice(0, 1), slice(1, 1)
	l, err := e.Store().Claim(t.Context(), anew.ID, "t", []manifest.State{manifest.Verified}, "")
	if err == nil {
		err = e.Store().Reopen(t.Context(), l, manifest.ReasonDrifted)
	}
	if err != nil {
		t.Fatal(err)
	}
	e.Must("archive")
	e.Must("hold", "add", "--shard", e.Tables[1], "--day", e.Days[0].String(), "--reason", "a court's", "--by", "t")
	e.SQL("UPDATE "+drifted.Shard.String()+" SET status = status + 1 WHERE msg_id >= ? AND msg_id < ? LIMIT 1", drifted.Lo, drifted.Hi)
	want, before := e.Truth(), map[uint64]int{}
	for _, s := range e.Slices() {
		before[s.ID] = rowsOf(e, s)
	}
	e.Expect(3, []string{"changed", anew.SliceKey.String(), "held", held.SliceKey.String(), "drifted"}, "purge") // as a CronJob calls it
	for _, s := range e.Slices() {
		left := before[s.ID]
		if s.ID == plain.ID {
			left = 0
		}
		if got := rowsOf(e, s); got != left {
			t.Errorf("slice %s has %d rows, want %d", s.SliceKey, got, left)
		}
	}
	e.Expect(0, []string{id, "approved", "1 held; 1 purged, 2 changed"}, "plan", "show", id)
	e.Expect(4, []string{"no plan in force"}, "purge") // all that is left of it is held
	e.Must("hold", "release", "1", "--by", "t")
	e.Expect(3, []string{"slices left: 2", anew.SliceKey.String()}, "purge", "--plan", id)
	if got := rowsOf(e, held); got != 0 {
		t.Errorf("%d rows of the slice whose hold was released", got)
	}
	e.Expect(4, []string{"used up"}, "purge", "--plan", id)
	// What is left goes by a plan of its own.
	e.Must("archive")
	e.Verdict(want)
	approved(e, second)
	e.Must("purge")
	if e.Count() != 0 {
		t.Errorf("%d rows are left", e.Count())
	}
	if r := e.Verdict(want); r.InCold != len(want) {
		t.Error(r)
	}
}

// The manifest's policy holds whatever the configuration says, and an expired plan is none.
func TestPolicyAndExpiry(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 132, Messages: 100})
	e.Must("archive")
	n := e.Count()
	e.Must("plan", "policy", "required", "--dry-run")
	e.Expect(0, []string{"purge.approval none"}, "plan", "policy")
	e.Must("plan", "policy", "required")
	e.Expect(4, []string{"approval is required"}, "purge")
	id := approved(e, approver(e))
	if _, err := stack.OpenMySQL(t, e.Manifest).ExecContext(t.Context(), "UPDATE approvals SET expires_at = UTC_TIMESTAMP(6)"); err != nil {
		t.Fatal(err)
	}
	e.Expect(4, []string{"expired"}, "purge", "--plan", id)
	e.Expect(4, []string{"no plan in force"}, "purge")
	if e.Count() != n {
		t.Errorf("%d of %d rows are left", e.Count(), n)
	}
	e.Must("plan", "policy", "none")
	e.Must("purge")
	if e.Count() != 0 {
		t.Errorf("%d rows are left", e.Count())
	}
}

// A plan that is revoked while a purge is at it stops the purge before the next step that
// cannot be undone. Isolated rows are put back.
func TestRevokedWhileItIsDone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ strategy, step string }{
		{"rows", "purge.granted:2"}, {"partition", "purge.partition.exchanged-before-compared:2"}, {"partition", "purge.partition.compared-before-dropped:2"},
	} {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Seed: 133, Days: 3, Messages: 300, Partitioned: true, Strategy: c.strategy, Config: map[string]string{"purge": "approval: required"}})
			e.Must("archive")
			want := e.Truth()
			second := approver(e)
			id := approved(e, second)
			p := e.Start([]string{"COLDTIER_STOP_AT=" + c.step}, "purge")
			if !p.Stopped() {
				t.Fatal(p.Wait())
			}
			e.Must("--config", second, "plan", "revoke", id, "--reason", "a doubt")
			p.Signal(syscall.SIGCONT)
			if r := p.Wait(); r.Exit != 4 || !strings.Contains(r.Stdout, "revoked") {
				t.Errorf("after the revocation: %s", r)
			}
			for i, s := range e.Slices() {
				state, left := manifest.Verified, 100
				if i == 0 {
					state, left = manifest.Purged, 0
				}
				if got := rowsOf(e, s); s.State != state || s.Staging != "" || got != left {
					t.Errorf("slice %s is %s with %d rows, staging %q; want %s with %d", s.SliceKey, s.State, got, s.Staging, state, left)
				}
			}
			e.Expect(4, []string{"revoked"}, "purge", "--plan", id)
			e.Verdict(want)
			approved(e, second)
			e.Must("purge")
			if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
				t.Errorf("%s, %d rows in warm", r, e.Count())
			}
		})
	}
}

// Rows that a purge which died left isolated are put back also where no plan allows to go on.
func TestIsolatedRowsComeBackWithoutAPlan(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 134, Messages: 100, Partitioned: true, Config: map[string]string{"purge": "approval: required", "manifest": "lease: 5s"}})
	e.Must("archive")
	want, n := e.Truth(), e.Count()
	second := approver(e)
	id := approved(e, second)
	if r := e.Start([]string{"COLDTIER_CRASH_AT=purge.partition.exchanged-before-compared"}, "purge").Wait(); r.Exit != -1 {
		t.Fatal(r)
	}
	if e.Count() != 0 {
		t.Fatalf("%d rows are in the table", e.Count())
	}
	e.Must("plan", "revoke", id)
	for end := time.Now().Add(time.Minute); e.Count() != n; { // the lease runs out
		r := e.Run("purge")
		if r.Exit != 4 || time.Now().After(end) {
			t.Fatal(r)
		}
	}
	e.Verdict(want)
	approved(e, second)
	e.Must("purge")
	if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
		t.Errorf("%s, %d rows in warm", r, e.Count())
	}
}

// Two purges that do one plan at once delete each row once.
func TestTwoPurgesOfOnePlan(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 135, Tables: 2, Days: 4, Messages: 800, Strategy: "rows", Config: map[string]string{"purge": "approval: required"}})
	e.Must("archive")
	want := e.Truth()
	id := approved(e, approver(e))
	a, b := e.Start(nil, "purge", "--plan", id), e.Start(nil, "purge", "--plan", id)
	ra, rb := a.Wait(), b.Wait()
	for _, r := range []harness.Result{ra, rb} {
		if r.Exit != 0 && r.Exit != 5 && r.Exit != 4 { // 4: the other had used it up
			t.Error(r)
		}
	}
	if ra.Exit != 0 && rb.Exit != 0 {
		t.Errorf("%s%s", ra, rb)
	}
	if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
		t.Errorf("%s, %d rows in warm", r, e.Count())
	}
}

// Where nothing is due a purge that needs an approval has nothing to refuse: night after
// night that would be an alert. As soon as something is, it refuses.
func TestPurgeWithoutApprovalRefusesWhatIsDueAlone(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 137, Days: 2, Messages: 100, Config: map[string]string{"purge": "approval: required"}})
	e.Must("archive")
	id := approved(e, approver(e), "--to", e.Days[0].String())
	e.Must("purge", "--plan", id)
	n := e.Count()
	e.Expect(4, []string{"plan purge --save"}, "purge")
	e.Expect(0, []string{"0 slices purged, 0 not"}, "purge", "--to", e.Days[0].String())
	e.Expect(4, []string{"used up"}, "purge", "--plan", id)
	b, err := os.ReadFile(e.Config)
	if err != nil || !strings.Contains(string(b), "lag: 0s") {
		t.Fatalf("%v, or no lag in %s", err, b)
	}
	early := filepath.Join(t.TempDir(), "early.yaml")
	if err := os.WriteFile(early, []byte(strings.Replace(string(b), "lag: 0s", "lag: 168h", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	e.Expect(0, []string{"early", "0 slices purged, 1 not"}, "--config", early, "purge")
	if e.Count() != n {
		t.Errorf("%d of %d rows are left", e.Count(), n)
	}
	e.Must("hold", "add", "--shard", e.Tables[0], "--day", e.Days[1].String(), "--reason", "a court's", "--by", "t")
	e.Expect(0, []string{"a hold forbids deleting it"}, "purge")
	if e.Count() != n {
		t.Errorf("%d of %d rows are left", e.Count(), n)
	}
}
