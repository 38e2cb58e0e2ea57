package adversary

import (
	"strings"
	"testing"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
)

// The manifest is set back to before an exchange whose purge died: rows that were
// edited after the copy lie in a table that nobody knows of. check names it.
func TestStrayStagingTableIsNamed(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Partitioned: true, Strategy: "partition", Seed: 81, Messages: 100})
	e.Must("archive")
	restore := backup(e)
	p := e.Start([]string{"COLDTIER_CRASH_AT=purge.partition.exchanged-before-compared"}, "purge")
	if r := p.Wait(); r.Exit != -1 {
		t.Fatal(r)
	}
	name := only(e).Staging
	if r := e.Run("check"); name == "" || only(e).State != manifest.Purging || strings.Contains(r.Stdout+r.Stderr, name) {
		t.Fatalf("staging table %q, which its slice knows of: %s", name, r)
	}
	restore()
	e.Expect(0, []string{name, "no slice names it"}, "check")
}
