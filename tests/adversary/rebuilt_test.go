package adversary

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// loseManifest empties the manifest's database under whoever works with it.
func loseManifest(e *harness.Env) {
	e.T.Helper()
	t := e.T.(*testing.T)
	db := stack.OpenMySQL(t, e.Manifest)
	for _, name := range tables(t, db) {
		if _, err := db.ExecContext(t.Context(), "DROP TABLE "+name); err != nil {
			t.Fatal(err)
		}
	}
}

// A worker that planned with a manifest that is lost and made anew under it has numbers of
// slices that are others' now, or nobody's: no slice gets another table's rows.
func TestArchiveOutlivesItsManifest(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"rebuilt", "with the same numbers"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Tables: 2, Messages: 200, Seed: 101, Strategy: "rows", Config: map[string]string{"archive": "workers: 1"}})
			e.SQL("CREATE TABLE one AS SELECT * FROM " + e.Tables[0])
			e.SQL("CREATE TABLE two AS SELECT * FROM " + e.Tables[1])
			want := e.Truth()
			e.Must("archive", "--shard", e.Tables[1]) // has number 1
			e.Must("archive")
			e.Must("purge")
			for i, from := range []string{"one", "two"} {
				e.SQL("UPDATE " + from + " SET msg_id = msg_id + 1, seq = seq + 500000, content = 'late'")
				e.SQL("INSERT INTO " + e.Tables[i] + " SELECT * FROM " + from + " ORDER BY msg_id LIMIT 5")
			}
			for k, v := range e.Truth() {
				want[k] = v
			}
			p := e.Start([]string{"COLDTIER_STOP_AT=archive.claimed"}, "archive") // of table 0
			if !p.Stopped() {
				t.Fatal(p.Wait())
			}
			loseManifest(e)
			e.Must("rebuild", "manifest")
			if how != "rebuilt" {
				db := stack.OpenMySQL(t, e.Manifest)
				for i, s := range e.Slices() { // the other way round
					for _, q := range []string{"UPDATE slices SET id = ? WHERE id = ?", "UPDATE copies SET slice_id = ? WHERE slice_id = ?", "UPDATE chunks SET slice_id = ? WHERE slice_id = ?",
						"UPDATE objects SET slice_id = ? WHERE slice_id = ?", "UPDATE segments SET slice_id = ? WHERE slice_id = ?"} {
						if _, err := db.ExecContext(t.Context(), q, i+1, s.ID); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			p.Signal(syscall.SIGCONT)
			if r := p.Wait(); r.Exit == 0 {
				t.Errorf("it did not see that the manifest was rebuilt: %s", r)
			}
			e.Verdict(want)
			gone(e, want)
		})
	}
}

// While the manifest is rebuilt under a server, no page is called complete that is not.
func TestServeWhileTheManifestIsRebuilt(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 200, Seed: 102, Strategy: "rows", Config: map[string]string{"fetch": "listen: 127.0.0.1:0\ndrain: 0s"}})
	conv := busiest(e)
	var n int
	if err := e.Warm.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+e.Tables[0]+" WHERE session_id = "+conv).Scan(&n); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint(edge(e, "MIN"))
	var of string
	if err := e.Warm.QueryRowContext(t.Context(), "SELECT session_id FROM "+e.Tables[0]+" WHERE msg_id = "+id).Scan(&of); err != nil {
		t.Fatal(err)
	}
	e.Must("archive")
	e.Must("purge")
	s := e.Serve()
	if ids := history(t, s.URL, conv); len(ids) != n {
		t.Fatalf("%d of %d messages", len(ids), n)
	}
	loseManifest(e)
	if r := e.Start([]string{"COLDTIER_CRASH_AT=rebuild.begun"}, "rebuild", "manifest").Wait(); r.Exit != -1 {
		t.Fatal(r)
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		a := ask(t, s.URL, "FetchRange", fmt.Sprintf(`{"conversation": %q, "limit": 200}`, conv))
		if a.State == "STATE_COMPLETE" && len(a.Messages) != n {
			t.Fatalf("a page of %d messages is complete, there are %d", len(a.Messages), n)
		}
		if a := ask(t, s.URL, "GetMessages", fmt.Sprintf(`{"conversation": %q, "message_ids": [%q]}`, of, id)); len(a.Absent) > 0 {
			t.Fatalf("message %s is called absent", id)
		}
		if a := ask(t, s.URL, "GetBoundary", fmt.Sprintf(`{"conversations": [%q]}`, conv)); a.status == http.StatusOK {
			t.Fatalf("the boundary is known: %s", a.raw)
		}
	}
	e.Must("rebuild", "manifest")
	if ids := history(t, s.URL, conv); len(ids) != n {
		t.Fatalf("after the rebuild: %d of %d messages", len(ids), n)
	}
}

// A manifest that was purged by before there were purge marks is rebuilt over itself, and
// lost after that: the bucket must know of the purge by then.
func TestReplacedManifestStillMirrorsItsPurges(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 105, Messages: 150, Strategy: "rows"})
	want := e.Truth()
	first := edge(e, "MIN")
	e.SQL("CREATE TABLE one AS SELECT * FROM "+e.Tables[0]+" WHERE msg_id = ?", first)
	e.Must("archive")
	e.Must("purge")
	for _, k := range e.Keys() {
		if strings.HasSuffix(k, ".purging") || strings.HasSuffix(k, ".purged") {
			e.DeleteObject(k)
		}
	}
	if _, err := stack.OpenMySQL(t, e.Manifest).ExecContext(t.Context(), "UPDATE copies SET marks = 0"); err != nil {
		t.Fatal(err)
	}
	e.Must("rebuild", "manifest", "--replace")
	e.Must("archive")
	loseManifest(e)
	e.Must("rebuild", "manifest")
	e.SQL("INSERT INTO " + e.Tables[0] + " SELECT * FROM one")
	e.SQL("UPDATE "+e.Tables[0]+" SET msg_id = ?, seq = seq + 500000, content = 'late'", first+1)
	for k, v := range e.Truth() {
		want[k] = v
	}
	e.Must("archive")
	if r := e.Run("purge"); r.Exit != 0 && r.Exit != 4 {
		t.Fatal(r)
	}
	gone(e, want)
}

// A generation that carries some rows and was never purged follows warm as before, when the
// manifest was rebuilt over itself: what users delete there stays deleted.
func TestReplacedManifestFollowsWarm(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 106, Messages: 150, Strategy: "rows"})
	e.Must("archive")
	want := e.Truth()
	if r := e.Start([]string{"COLDTIER_CRASH_AT=purge.chunk.recorded"}, "purge").Wait(); r.Exit != -1 {
		t.Fatal(r)
	}
	last := edge(e, "MAX")
	e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id = ?", last)
	expire(e)
	e.Expect(4, []string{"drift"}, "purge")
	e.Must("archive") // the next generation carries what is gone
	e.Must("rebuild", "manifest", "--replace")
	e.Must("archive")
	e.SQL("DELETE FROM "+e.Tables[0]+" WHERE msg_id = ?", last)
	for k := range want {
		if k.ID == last {
			delete(want, k)
		}
	}
	e.Expect(4, []string{"drift"}, "purge")
	gone(e, want)
}

// A purge that is frozen while the manifest is lost, rebuilt and goes on without it deletes
// nothing any more when it wakes.
func TestFrozenPurgeOutlivesItsManifest(t *testing.T) {
	t.Parallel()
	for step, partitioned := range map[string]bool{"purge.chunk.marked-before-deleted": false, "purge.partition.compared-before-dropped": true} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			strategy := map[bool]string{false: "rows", true: "partition"}[partitioned]
			e := harness.New(t, harness.Options{Partitioned: partitioned, Strategy: strategy, Seed: 111, Messages: 150})
			want := e.Truth()
			e.Must("archive")
			p := e.Start([]string{"COLDTIER_STOP_AT=" + step}, "purge")
			if !p.Stopped() {
				t.Fatal(p.Wait())
			}
			n := e.Count()
			loseManifest(e)
			e.Must("rebuild", "manifest")
			if n > 0 { // else all rows are isolated
				late(e, edge(e, "MIN")+1, edge(e, "MIN"))
				for k, v := range e.Truth() {
					want[k] = v
				}
				n++
			}
			p.Signal(syscall.SIGCONT)
			if r := p.Wait(); r.Exit == 0 || r.Exit == -1 {
				t.Errorf("it went on: %s", r)
			}
			e.Verdict(want)
			if got := e.Count(); got < n {
				t.Errorf("%d of %d rows are in warm", got, n)
			}
			for range 3 {
				if r := e.Run("purge"); r.Exit != 0 && r.Exit != 4 {
					t.Fatal(r)
				}
				e.Must("archive")
			}
			if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
				t.Errorf("%s, %d in warm", r, e.Count())
			}
		})
	}
}
