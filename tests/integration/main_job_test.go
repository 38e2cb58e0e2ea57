package integration

import (
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The main job, on both kinds of tables: everything is copied, verified and purged,
// and every message is in the cold tier once, byte for byte.
func TestMainJob(t *testing.T) {
	for name, partitioned := range map[string]bool{"rows": false, "partition": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Tables: 2, Days: 2, Partitioned: partitioned, Seed: 11})
			want := e.Truth()
			e.Must("check")
			t.Log(e.Must("archive"))
			if got := e.Count(); got != len(want) {
				t.Errorf("archive changed warm: %d rows of %d are left", got, len(want))
			}
			e.Verdict(want)
			t.Log(e.Must("purge"))
			if n := e.Count(); n != 0 {
				t.Errorf("%d rows are left in warm", n)
			}
			if r := e.Verdict(want); r.InCold != len(want) {
				t.Error(r)
			}
		})
	}
}
