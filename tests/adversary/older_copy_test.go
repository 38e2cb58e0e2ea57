package adversary

import (
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
)

// A manifest that is set back forgets a generation, and purges by the one before it what the
// forgotten one took from warm. When that is taken over again its rows are not what warm has:
// a late row among them must not make them look like rows that users deleted.
func TestPurgeAfterTheCopyThatIsAdopted(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"set back", "rebuilt"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Partitioned: true, Strategy: "partition", Seed: 307, Messages: 150})
			e.Must("archive")
			restore := backup(e)
			first := edge(e, "MIN")
			e.SQL("CREATE TABLE one AS SELECT * FROM "+e.Tables[0]+" WHERE msg_id = ?", first)
			e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id = ?", edge(e, "MAX"))
			want := e.Truth()
			e.Expect(4, []string{"drift"}, "purge") // as a whole: nothing is deleted
			e.Must("archive")
			restore()
			e.Change(func(o *harness.Options) { o.Strategy = "rows" })
			e.Expect(4, []string{"drift"}, "purge")
			if n := e.Count(); n == 0 || n == len(want) {
				t.Fatalf("%d of %d rows are left in warm: the test is none", n, len(want))
			}
			if how == "rebuilt" {
				loseManifest(e)
				e.Must("rebuild", "manifest")
			}
			e.Must("archive")
			e.SQL("UPDATE one SET msg_id = ?, seq = seq + 500000, content = 'late'", first+1)
			e.SQL("INSERT INTO " + e.Tables[0] + " SELECT * FROM one")
			e.SQL("DROP TABLE one")
			for k, v := range e.Truth() {
				want[k] = v
			}
			e.Verdict(want)
			e.Expect(4, []string{"drift"}, "purge")
			gone(e, want)
		})
	}
}
