package adversary

import (
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
)

// Rows that a purge left isolated when the manifest was lost come back into sight, also
// when the slice is held meanwhile.
func TestIsolatedRowsOfALostManifest(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"held", "lag"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Partitioned: true, Strategy: "partition", Seed: 103, Messages: 150})
			e.Must("archive")
			late(e, edge(e, "MIN")+1, edge(e, "MIN"))
			want := e.Truth()
			if r := e.Start([]string{"COLDTIER_CRASH_AT=purge.partition.exchanged-before-compared"}, "purge").Wait(); r.Exit != -1 {
				t.Fatal(r)
			}
			loseManifest(e)
			e.Expect(0, []string{"nobody sees them"}, "rebuild", "manifest")
			if how == "held" {
				e.Must("hold", "add", "--shard", e.Tables[0], "--day", e.Days[0].String(), "--reason", "a test", "--by", "t")
			} else {
				e.Change(func(o *harness.Options) { o.Lag = "100h" })
			}
			e.Must("archive")
			e.Expect(0, []string{"rows are put back", "0 rows would be deleted"}, "purge", "--dry-run")
			e.Expect(0, []string{"returned"}, "purge")
			e.Verdict(want)
			if e.Count() != len(want) {
				t.Errorf("%d of %d rows are in warm", e.Count(), len(want))
			}
			e.Expect(0, []string{"0 slices purged"}, "purge") // nothing more is to be put back
			if how == "held" {
				e.Must("hold", "release", "1", "--by", "t")
			}
			e.Change(func(o *harness.Options) { o.Lag = "" })
			e.Expect(4, []string{"drift"}, "purge")
			gone(e, want)
		})
	}
}
