package adversary

import (
	"strings"
	"testing"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
)

// A manifest that was set back takes over a generation of the bucket whose rows a purge has
// deleted. Where the stores lack a part of it, as when ClickHouse was set back too, the next
// generation must not be made of warm and of the one before it: what only this one has would
// be in neither.
func TestAdoptedGenerationThatDiffers(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"rows, ClickHouse", "rows, object", "partition, object"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			strategy, what, _ := strings.Cut(how, ", ")
			e := harness.New(t, harness.Options{Partitioned: strategy == "partition", Strategy: strategy, Seed: 301, Messages: 150})
			e.Must("archive")
			restore := backup(e)
			first := edge(e, "MIN")
			late(e, first+1, first)
			var conv string
			if err := e.Warm.QueryRowContext(t.Context(), "SELECT session_id FROM "+e.Tables[0]+" WHERE msg_id = ?", first).Scan(&conv); err != nil {
				t.Fatal(err)
			}
			want := e.Truth()
			e.Expect(4, []string{"drift"}, "purge")
			gone(e, want)
			restore()
			mend := func() {}
			if what == "object" {
				for _, key := range e.Keys() { // the late message's is another's
					if strings.Contains(key, "/g2-") && !strings.HasSuffix(key, "conv="+conv+".parquet") {
						was := e.Object(key)
						e.DeleteObject(key)
						mend = func() { e.PutObject(key, was) }
						break
					}
				}
			} else {
				forget(e, "_generation = 2")
			}
			for range 3 { // whatever the runs find wrong, nothing is forgotten
				e.Run("purge")
				e.Run("archive")
			}
			mend()
			for range 3 {
				e.Run("archive")
				e.Run("purge")
			}
			e.Must("verify")
			if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
				t.Error(r)
			}
			if s := only(e); s.State != manifest.Purged {
				t.Errorf("the slice is %s, generation %d", s.State, s.Live)
			}
		})
	}
}
