package adversary

import (
	"strings"
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
)

// A manifest that is set back to before a purge takes every chunk for untouched. Rows
// that came late to where rows were deleted make such a chunk look like one from which
// users took some: what the purge took must not be taken for deleted by them.
func TestForgottenPurgeAndLateRows(t *testing.T) {
	t.Parallel()
	for strategy, partitioned := range map[string]bool{"rows": false, "partition": true} {
		for _, how := range []string{"ended", "killed", "mark damaged", "ended, no purge again"} {
			if partitioned && how == "mark damaged" { // as by rows
				continue
			}
			t.Run(strategy+" "+how, func(t *testing.T) {
				t.Parallel()
				e := harness.New(t, harness.Options{Partitioned: partitioned, Strategy: strategy, Seed: 79, Messages: 150})
				want := e.Truth()
				late := edge(e, "MIN") + 1
				e.SQL("CREATE TABLE one AS SELECT * FROM "+e.Tables[0]+" WHERE msg_id = ?", edge(e, "MIN"))
				e.Must("archive")
				restore := backup(e)
				if strings.HasPrefix(how, "ended") {
					e.Must("purge")
				} else {
					step := "purge.deleted-before-purged"
					if partitioned {
						step = "purge.partition.dropped-before-recorded"
					}
					if r := e.Start([]string{"COLDTIER_CRASH_AT=" + step}, "purge").Wait(); r.Exit != -1 {
						t.Fatal(r)
					}
				}
				if n := e.Count(); n != 0 {
					t.Fatalf("%d rows are in warm", n)
				}
				for _, k := range e.Keys() {
					if how == "mark damaged" && strings.HasSuffix(k, ".purging") {
						b := e.Object(k)
						b[len(b)/2] ^= 4
						e.PutObject(k, b)
					}
				}
				e.SQL("UPDATE one SET msg_id = ?, seq = seq + 500000, content = 'late'", late)
				e.SQL("INSERT INTO " + e.Tables[0] + " SELECT * FROM one")
				e.SQL("DROP TABLE one")
				for k, v := range e.Truth() {
					want[k] = v
				}
				restore()
				if how == "mark damaged" {
					e.Expect(4, []string{".purging", "restore the object"}, "purge")
					e.SQL("UPDATE " + e.Tables[0] + " SET status = 3") // no purge ever says that it drifted
					for k, v := range e.Truth() {
						want[k] = v
					}
					e.Verdict(want)
					return
				}
				if how == "ended, no purge again" { // verify sends it back, so that the archiver alone has to know
					if err := e.ClickHouse.Open(t).Exec(t.Context(), "TRUNCATE TABLE "+e.ClickHouse.Database+".messages"); err != nil {
						t.Fatal(err)
					}
					e.Expect(4, []string{"ClickHouse"}, "verify")
				} else {
					e.Expect(4, []string{"drift"}, "purge")
				}
				e.Must("archive")
				if r := e.Verdict(want); r.InCold != len(want) {
					t.Error(r)
				}
				gone(e, want)
			})
		}
	}
}

// What a purge that stopped has not touched still follows warm, where its users delete.
func TestStoppedPurgeKeepsNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 80, Messages: 150, Strategy: "rows"})
	e.Must("archive")
	id := edge(e, "MAX")
	e.SQL("DELETE FROM "+e.Tables[0]+" WHERE msg_id = ?", id)
	want := e.Truth()
	e.Expect(4, []string{"drift"}, "purge")
	e.Must("archive")
	if r := e.Verdict(want); r.InCold != len(want) {
		t.Error(r)
	}
	gone(e, want)
}
