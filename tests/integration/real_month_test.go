package integration

import (
	"testing"

	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/harness"
)

// The whole main job on a month of real chat, where COLDTIER_TEST_CHAT_TSV names one.
func TestRealMonth(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, strategy string) {
		e := harness.New(t, harness.Options{Source: chat.RealMonth(t, 0), Tables: 2, Partitioned: strategy == "partition", Strategy: strategy})
		want := e.Truth()
		e.Must("check")
		e.Must("archive")
		e.Verdict(want)
		e.Must("purge")
		r := e.Verdict(want)
		if r.InCold != len(want) || e.Count() != 0 {
			t.Error(r)
		}
		t.Log(r, len(e.Keys()), "objects")
	})
}
