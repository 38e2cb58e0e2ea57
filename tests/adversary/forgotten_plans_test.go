package adversary

import (
	"strings"
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// A manifest that is set back to a backup has approvals that were revoked since, and does not
// know that approvals are required by now. The bucket does.
func TestRevocationAndPolicyOutliveABackup(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 141, Messages: 100})
	e.Must("archive")
	want, n := e.Truth(), e.Count()
	second := approver(e)
	id := approved(e, second)
	restore := backup(e)
	e.Must("plan", "policy", "required", "--by", "ops")
	e.Must("--config", second, "plan", "revoke", id, "--reason", "still needed")
	restore()
	left := func(when string, exit int, words []string, args ...string) {
		t.Helper()
		e.Expect(exit, words, args...)
		if e.Count() != n {
			t.Fatalf("%s %d of %d rows are left", when, e.Count(), n)
		}
	}
	left("after a purge by the revoked plan", 4, []string{"revoked", id}, "purge", "--plan", id)
	left("after a purge without a plan", 4, []string{"approval is required"}, "purge")
	e.Expect(0, []string{"still needed"}, "plan", "show", id)
	e.Must("archive") // which may write the policy
	e.Expect(0, []string{"purge.approval required", "ops"}, "plan", "policy")

	// So it is with one that is rebuilt into an empty database.
	old := e.Manifest
	e.Manifest = stack.MySQL(t)
	e.Change(func(*harness.Options) {})
	e.Must("rebuild", "manifest")
	e.Must("verify") // before, nothing is due
	left("after a rebuild", 4, []string{"approval is required"}, "purge")
	e.Manifest = old
	e.Change(func(*harness.Options) {})

	// A rule that cannot be read may be any.
	e.PutObject("im/manifest/rules/source=im/policy=purge.approval.json", []byte("{"))
	left("with a damaged policy", 4, []string{"cannot be read", "policy"}, "purge")
	e.Must("plan", "policy", "none") // and is put anew
	e.Must("purge")
	if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
		t.Errorf("%s, %d rows in warm", r, e.Count())
	}
	keys := strings.Join(e.Keys(), "\n")
	if !strings.Contains(keys, "revoked="+id) || !strings.Contains(keys, "policy=purge.approval") {
		t.Errorf("the bucket has\n%s", keys)
	}
}
