package adversary

import (
	"strings"
	"syscall"
	"testing"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
)

// A put of a purge mark whose first try was stuck on its way arrives when a later purge of the
// generation has put its own. With where the earlier one stopped it must not say that nothing
// was taken: the manifest may be lost, and rows that came late make what was taken look like
// what users deleted.
func TestPurgeMarkThatArrivesLate(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Strategy: "rows", Seed: 306, Messages: 150})
	want := e.Truth()
	first := edge(e, "MIN")
	e.SQL("CREATE TABLE one AS SELECT * FROM "+e.Tables[0]+" WHERE msg_id = ?", first)
	e.Must("archive")
	p := e.Start([]string{"COLDTIER_STOP_AT=purge.granted"}, "purge")
	if !p.Stopped() {
		t.Fatal(p.Wait())
	}
	e.Must("hold", "add", "--shard", e.Tables[0], "--day", e.Days[0].String(), "--reason", "a test", "--by", "t")
	p.Signal(syscall.SIGCONT)
	if r := p.Wait(); r.Exit != 4 || !strings.Contains(r.Stdout, "held") {
		t.Fatalf("the first purge is not stopped by the hold: %s", r)
	}
	key := "im/" + manifest.MarkKey(only(e).SliceKey, 1, manifest.MarkPurging)
	stuck := e.Object(key)
	e.Must("hold", "release", "1", "--by", "t")
	if r := e.Start([]string{"COLDTIER_CRASH_AT=purge.deleted-before-purged"}, "purge").Wait(); r.Exit != -1 {
		t.Fatal(r)
	}
	if n := e.Count(); n != 0 {
		t.Fatalf("%d rows are left in warm", n)
	}
	e.PutObject(key, stuck)
	e.SQL("UPDATE one SET msg_id = ?, seq = seq + 500000, content = 'late'", first+1)
	e.SQL("INSERT INTO " + e.Tables[0] + " SELECT * FROM one")
	e.SQL("DROP TABLE one")
	for k, v := range e.Truth() {
		want[k] = v
	}
	loseManifest(e)
	e.Must("rebuild", "manifest")
	e.Expect(4, []string{"drift"}, "purge")
	gone(e, want)
}

// Of the two marks of a purge by partition the first is tried twice, and arrives over the second,
// which names the staging table: rows that lie there must come back all the same when the
// manifest is lost.
func TestStagingMarkThatIsOverwritten(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Partitioned: true, Strategy: "partition", Seed: 309, Messages: 150})
	e.Must("archive")
	late(e, edge(e, "MIN")+1, edge(e, "MIN"))
	want := e.Truth()
	p := e.Start([]string{"COLDTIER_STOP_AT=purge.granted", "COLDTIER_CRASH_AT=purge.partition.exchanged-before-compared"}, "purge")
	if !p.Stopped() {
		t.Fatal(p.Wait())
	}
	key := "im/" + manifest.MarkKey(only(e).SliceKey, 1, manifest.MarkPurging)
	stuck := e.Object(key)
	p.Signal(syscall.SIGCONT)
	if r := p.Wait(); r.Exit != -1 || e.Count() != 0 {
		t.Fatalf("%d rows are in the table: %s", e.Count(), r)
	}
	e.PutObject(key, stuck)
	loseManifest(e)
	e.Must("rebuild", "manifest")
	if r := e.Run("purge"); r.Exit != 4 || !strings.Contains(r.Stdout+r.Stderr, "drift") {
		t.Errorf("the purge does not see the late row: %s", r)
	}
	e.Verdict(want)
	gone(e, want)
}
