// Package adversary attacks the built program where its guards meet: workers that
// wake up late, stores that were swapped, configurations that changed.
package adversary

import (
	"testing"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/truth"
)

func TestMain(m *testing.M) { harness.Main(m) }

// edge is the lowest (MIN) or highest (MAX) message ID of the first table.
func edge(e *harness.Env, which string) (id uint64) {
	e.T.Helper()
	if err := e.Warm.QueryRowContext(e.T.Context(), "SELECT "+which+"(msg_id) FROM "+e.Tables[0]).Scan(&id); err != nil {
		e.T.Fatal(err)
	}
	return id
}

// gone archives and purges until warm is empty, and demands every message in the
// cold tier, equal.
func gone(e *harness.Env, want truth.Rows) {
	e.T.Helper()
	e.Must("archive")
	e.Verdict(want)
	e.Must("purge")
	if n := e.Count(); n != 0 {
		e.T.Errorf("%d rows are left in warm", n)
	}
	if r := e.Verdict(want); r.InCold != len(want) {
		e.T.Error(r)
	}
}

func only(e *harness.Env) manifest.Slice {
	e.T.Helper()
	s := e.Slices()
	if len(s) != 1 {
		e.T.Fatalf("%d slices, want one", len(s))
	}
	return s[0]
}
