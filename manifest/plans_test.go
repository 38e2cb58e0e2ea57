package manifest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/stack"
)

// second is the same manifest by the account of another person, who may do all.
func second(t testing.TB, s *Store) *Store {
	t.Helper()
	var db, host string
	if err := s.db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&db); err != nil {
		t.Fatal(err)
	}
	cfg, err := mysql.ParseDSN(stack.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	host = cfg.Addr
	user := stack.Unique("p")
	for _, q := range []string{"CREATE USER " + user + "@'%' IDENTIFIED BY 'Pass-word-1'", "GRANT ALL ON `" + db + "`.* TO " + user + "@'%'"} {
		if _, err := s.db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	admin := stack.OpenMySQL(t, cfg.FormatDSN())
	t.Cleanup(func() { _, _ = admin.Exec("DROP USER " + user + "@'%'") })
	return openAt(t, user+":Pass-word-1@tcp("+host+")/"+db, testSource, s.ttl)
}

func savePlan(t testing.TB, s *Store, valid time.Duration, sl ...Slice) *SavedPlan {
	t.Helper()
	generations := map[uint64]uint32{}
	for _, x := range sl {
		generations[x.ID] = slice(t, s, x.ID).Live
	}
	p, err := s.SavePlan(t.Context(), Person{User: "maker", By: "Ann"}, valid, generations)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func approve(t testing.TB, s *Store, p *SavedPlan) {
	t.Helper()
	list, err := s.PlanSlices(t.Context(), p)
	if err == nil {
		err = s.Approve(t.Context(), p, list, Person{User: "checker", By: "Bob"}, "looked at it")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// approval is a manifest that requires approvals, with three verified slices and the
// same as another person sees it.
func approval(t testing.TB) (s, other *Store, sl []Slice) {
	t.Helper()
	s = open(t, time.Minute)
	for day := 1; day <= 3; day++ {
		x := testSlice(t, s, day)
		verified(t, s, x, 2)
		sl = append(sl, x)
	}
	if err := s.SetApprovalPolicy(t.Context(), ApprovalRequired, Person{User: "admin"}); err != nil {
		t.Fatal(err)
	}
	return s, second(t, s), sl
}

// ungranted wants no leave for a slice, and that nothing has changed by asking.
func ungranted(t testing.TB, s *Store, id uint64, plan, why string) {
	t.Helper()
	l := claim(t, s, id, Verified, "")
	ask := func() (*PurgeGrant, error) {
		if plan == "" {
			return s.GrantPurge(t.Context(), l, 0)
		}
		return s.GrantPlanned(t.Context(), l, 0, plan)
	}
	if g, err := ask(); !errors.Is(err, ErrUnapproved) || g != nil || !strings.Contains(err.Error(), why) {
		t.Errorf("grant by plan %q: %v; want ErrUnapproved with %q", plan, err, why)
	}
	if err := l.Release(t.Context(), Verified); err != nil {
		t.Fatalf("the refusal left it %s: %v", slice(t, s, id).State, err)
	}
	var begun bool
	if err := s.db.QueryRowContext(t.Context(), "SELECT purge_begun FROM slices WHERE id = ?", id).Scan(&begun); err != nil || begun {
		t.Errorf("the refusal left purge_begun %v, %v", begun, err)
	}
}

// Where an approval is required the manifest itself gives no leave without one.
func TestNoGrantWithoutApproval(t *testing.T) {
	t.Parallel()
	s, other, sl := approval(t)
	ctx := t.Context()
	a, b, c := sl[0], sl[1], sl[2]
	ungranted(t, s, a.ID, "", "policy")
	ungranted(t, s, a.ID, "0123456789ab", "not in the manifest")
	p := savePlan(t, s, time.Hour, a, b)
	ungranted(t, s, a.ID, p.ID, "waits for")
	if n, err := s.NextPlan(ctx); err != nil || n != nil {
		t.Errorf("the next plan is %+v, %v", n, err)
	}
	// The maker cannot approve it, nor one who gives the maker's name.
	list, err := s.PlanSlices(ctx, p)
	if err != nil || len(list) != 2 || list[0].Rows != 6 || list[0].Fingerprint.Rows != 6 || list[0].RecordSum == [32]byte{} && list[0].Generation != 1 {
		t.Fatalf("slices %+v, %v", list, err)
	}
	if err := s.Approve(ctx, p, list, Person{User: "x", By: "Bob"}, ""); !errors.Is(err, ErrUnapproved) || !strings.Contains(err.Error(), "second person") {
		t.Errorf("the maker approves: %v", err)
	}
	if err := other.Approve(ctx, p, list, Person{User: "x", By: " ann "}, ""); !errors.Is(err, ErrUnapproved) {
		t.Errorf("the maker's name approves: %v", err)
	}
	// What is approved is what was shown.
	forged := slices.Clone(list)
	forged[0].Generation = 2
	if err := other.Approve(ctx, p, forged, Person{User: "x"}, ""); !errors.Is(err, ErrCorrupt) {
		t.Errorf("other slices than the plan's: %v", err)
	}
	approve(t, other, p)
	if err := other.Approve(ctx, p, list, Person{User: "x"}, ""); !errors.Is(err, ErrState) {
		t.Errorf("approved twice: %v", err)
	}
	got, err := s.SavedPlan(ctx, p.ID)
	if err != nil || got.Approved == nil || got.Approved.Account == got.MadeBy.Account || got.Approved.By != "Bob" || got.Refused() != nil {
		t.Fatalf("approved to %+v, %v", got, err)
	}
	if n, err := s.NextPlan(ctx); err != nil || n == nil || n.ID != p.ID {
		t.Errorf("the next plan is %+v, %v", n, err)
	}
	ungranted(t, s, a.ID, "", "policy") // it must be named
	ungranted(t, s, c.ID, p.ID, "not in plan")
	// Nothing that is not in the approver's own table counts.
	if _, err := s.db.ExecContext(ctx, "INSERT INTO plan_slices SELECT source_id, ?, id, day, db_name, table_name, lo, hi, 1, 6, 1, 0, 0, REPEAT('x', 32) FROM slices WHERE id = ?", p.ID, c.ID); err != nil {
		t.Fatal(err)
	}
	ungranted(t, s, c.ID, p.ID, "not in plan")

	g, err := s.GrantPlanned(ctx, claim(t, s, a.ID, Verified, ""), 0, p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Check(ctx), g.Staging(ctx, "st"), g.Purged(ctx)); err != nil {
		t.Fatal(err)
	}
	if st, err := s.PlanStanding(ctx, got); err != nil || st != (PlanStanding{Left: 1, Purged: 1}) {
		t.Errorf("standing %+v, %v", st, err)
	}
	// A hold stops it as ever.
	h, err := s.AddHold(ctx, Hold{Kind: HoldSlice, Subject: b.String(), Reason: "r", By: "b"})
	if err != nil {
		t.Fatal(err)
	}
	l := claim(t, s, b.ID, Verified, "")
	if _, err := s.GrantPlanned(ctx, l, 0, p.ID); !errors.Is(err, ErrHeld) {
		t.Errorf("held: %v", err)
	}
	if _, err := s.GrantPlanned(ctx, l, time.Hour, p.ID); !errors.Is(err, ErrHeld) {
		t.Errorf("held: %v", err)
	}
	if n, err := s.NextPlan(ctx); err != nil || n != nil {
		t.Errorf("with all it has left held the next plan is %+v, %v", n, err)
	}
	if err := s.ReleaseHold(ctx, h, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GrantPlanned(ctx, l, time.Hour, p.ID); !errors.Is(err, ErrLag) {
		t.Errorf("before the lag: %v", err)
	}
	// Revoked while it is at work: the next chunk is refused, and so is every other step.
	g, err = s.GrantPlanned(ctx, l, 0, p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Revoke(ctx, p.ID, Person{User: "x"}, "a doubt"); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"check": g.Check(ctx), "staging": g.Staging(ctx, "st")} {
		if !errors.Is(err, ErrUnapproved) || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("%s after the revocation: %v", name, err)
		}
	}
	if err := g.GiveBack(ctx); err != nil {
		t.Fatal(err)
	}
	ungranted(t, s, b.ID, p.ID, "revoked")
	if err := s.Revoke(ctx, p.ID, Person{}, ""); !errors.Is(err, ErrState) {
		t.Errorf("revoked twice: %v", err)
	}
	if n, err := s.NextPlan(ctx); err != nil || n != nil {
		t.Errorf("the next plan is %+v, %v", n, err)
	}
}

// An approval is of one copy: any other is refused, whatever made it another.
func TestApprovalIsOfOneCopy(t *testing.T) {
	t.Parallel()
	s, other, sl := approval(t)
	ctx := t.Context()
	a := sl[0]
	p := savePlan(t, s, time.Hour, a)
	approve(t, other, p)
	was := func(q string) {
		t.Helper()
		if _, err := s.db.ExecContext(ctx, q, a.ID); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ change, back, why string }{
		{"UPDATE copies SET record_sum = REPEAT('y', 32) WHERE slice_id = ?", "UPDATE copies SET record_sum = (SELECT record_sum FROM approved_slices WHERE slice_id = copies.slice_id) WHERE slice_id = ?", "no longer"},
		{"UPDATE copies SET row_count = row_count + 1 WHERE slice_id = ?", "UPDATE copies SET row_count = row_count - 1 WHERE slice_id = ?", "no longer"},
		{"UPDATE slices SET hi = hi + 1 WHERE id = ?", "UPDATE slices SET hi = hi - 1 WHERE id = ?", "no longer"},
		{"UPDATE chunks SET warm_lo = warm_lo - 1 WHERE slice_id = ? AND warm_rows > 0", "UPDATE chunks SET warm_lo = warm_lo + 1 WHERE slice_id = ? AND warm_rows > 0", "fingerprint"},
	} {
		was(c.change)
		ungranted(t, s, a.ID, p.ID, c.why)
		was(c.back)
	}
	// The next generation.
	if err := s.Reopen(ctx, claim(t, s, a.ID, Verified, ""), ReasonDrifted); err != nil {
		t.Fatal(err)
	}
	l, _ := commitCopy(t, s, slice(t, s, a.ID), 2)
	if err := errors.Join(s.Verified(ctx, l, 2), l.Release(ctx, Verified)); err != nil {
		t.Fatal(err)
	}
	ungranted(t, s, a.ID, p.ID, "no longer")
	got, err := s.SavedPlan(ctx, p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := s.PlanStanding(ctx, got); err != nil || st != (PlanStanding{Changed: 1}) {
		t.Errorf("standing %+v, %v", st, err)
	}
	if _, err := s.SavePlan(ctx, Person{}, time.Hour, map[uint64]uint32{a.ID: 1}); !errors.Is(err, ErrState) {
		t.Errorf("a plan of a former generation: %v", err)
	}
	// A plan that was changed after it was saved cannot be approved.
	p = savePlan(t, s, time.Hour, a, sl[1])
	if _, err := s.db.ExecContext(ctx, "UPDATE plan_slices SET generation = 1 WHERE plan = ?", p.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := other.PlanSlices(ctx, p); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a changed plan: %v", err)
	}
}

// Plans expire by the database's clock, for the approval and for the grant.
func TestPlansExpire(t *testing.T) {
	t.Parallel()
	s, other, sl := approval(t)
	ctx := t.Context()
	p, late := savePlan(t, s, time.Hour, sl[0]), savePlan(t, s, time.Hour, sl[1])
	approve(t, other, p)
	g, err := s.GrantPlanned(ctx, claim(t, s, sl[0].ID, Verified, ""), 0, p.ID)
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.PlanSlices(ctx, late)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"UPDATE plans SET expires_at = UTC_TIMESTAMP(6)", "UPDATE approvals SET expires_at = UTC_TIMESTAMP(6)"} {
		if _, err := s.db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Approve(ctx, late, list, Person{}, ""); !errors.Is(err, ErrUnapproved) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("approve an expired plan: %v", err)
	}
	if err := g.Check(ctx); !errors.Is(err, ErrUnapproved) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("check: %v", err)
	}
	if err := g.GiveBack(ctx); err != nil {
		t.Fatal(err)
	}
	ungranted(t, s, sl[0].ID, p.ID, "expired")
	if n, err := s.NextPlan(ctx); err != nil || n != nil {
		t.Errorf("the next plan is %+v, %v", n, err)
	}
	if _, err := s.SavePlan(ctx, Person{}, 0, map[uint64]uint32{sl[0].ID: 1}); err == nil {
		t.Error("a plan that is never valid is taken")
	}
}

// Without the policy a purge needs no plan; one that names a plan must have its leave all
// the same, and the policy holds from the next chunk on.
func TestPolicyOfApproval(t *testing.T) {
	t.Parallel()
	s, _, sl := approval(t)
	ctx := t.Context()
	set := func(value string) {
		t.Helper()
		if err := s.SetApprovalPolicy(ctx, value, Person{User: "admin", By: "Eve"}); err != nil {
			t.Fatal(err)
		}
		if p, err := s.ApprovalPolicy(ctx); err != nil || p.Value != value || p.SetBy == nil || p.SetBy.By != "Eve" || p.At == nil {
			t.Errorf("policy %+v, %v", p, err)
		}
	}
	set(ApprovalNone)
	p := savePlan(t, s, time.Hour, sl[0])
	ungranted(t, s, sl[0].ID, p.ID, "waits for")
	g, err := s.GrantPurge(ctx, claim(t, s, sl[0].ID, Verified, ""), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(ctx); err != nil {
		t.Fatal(err)
	}
	set(ApprovalRequired)
	if err := g.Check(ctx); !errors.Is(err, ErrUnapproved) {
		t.Errorf("after the policy was set: %v", err)
	}
	if err := s.SetApprovalPolicy(ctx, "maybe", Person{}); err == nil {
		t.Error("an unknown policy is taken")
	}
	if p, err := openAt(t, stackDSN(t, s), "other", time.Minute).ApprovalPolicy(ctx); err != nil || p.Value != ApprovalNone || p.SetBy != nil {
		t.Errorf("another source's policy %+v, %v", p, err)
	}
}

func stackDSN(t testing.TB, s *Store) string {
	t.Helper()
	var db string
	if err := s.db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&db); err != nil {
		t.Fatal(err)
	}
	cfg, err := mysql.ParseDSN(stack.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.DBName = db
	return cfg.FormatDSN()
}

// Plans are found by whoever made them, by each of his names.
func TestPlansByAuthor(t *testing.T) {
	t.Parallel()
	s, other, sl := approval(t)
	one := savePlan(t, s, time.Hour, sl[0])
	two, err := other.SavePlan(t.Context(), Person{User: "root", By: "bob@example.com"}, time.Hour, map[uint64]uint32{sl[1].ID: slice(t, s, sl[1].ID).Live})
	if err != nil {
		t.Fatal(err)
	}
	user, _, _ := strings.Cut(two.MadeBy.Account, "@")
	for by, want := range map[string][]string{"": {two.ID, one.ID}, "Ann": {one.ID}, "maker": {one.ID}, one.MadeBy.Account: {one.ID},
		"bob@example.com": {two.ID}, "root": {two.ID}, two.MadeBy.Account: {two.ID}, user: {two.ID}, "bob": nil, "%": nil} {
		all, err := s.SavedPlans(t.Context(), by, 50)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range all {
			got = append(got, p.ID)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("plans of %q: %v, want %v", by, got, want)
		}
	}
}
