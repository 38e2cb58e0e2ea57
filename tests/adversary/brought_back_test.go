package adversary

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// A restore into warm while a purge has the slice's partition out: what was archived must not
// take the place of rows that were edited since and lie in the staging table, where nobody
// could bring them back from any more.
func TestRestoreWhileAPartitionIsOut(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"left", "at work"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Partitioned: true, Strategy: "partition", Seed: 304, Messages: 150})
			e.Must("archive")
			e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id = ?", edge(e, "MAX"))
			want := e.Truth()
			p := e.Start([]string{"COLDTIER_STOP_AT=purge.partition.exchanged-before-compared"}, "purge")
			if !p.Stopped() {
				t.Fatal(p.Wait())
			}
			restore := []string{"restore", "--into", e.WarmDSN, "--into-warm"}
			if how == "left" {
				expire(e)
				e.Expect(4, []string{"let coldtier purge put them back"}, restore...)
				if n := e.Count(); n != 0 {
					t.Errorf("%d rows were written beside those that are out", n)
				}
				p.Signal(syscall.SIGCONT)
				p.Wait()
				e.Run("purge")
			} else {
				r := e.Start(nil, restore...)
				for end := time.Now().Add(time.Minute); len(holds(e)) == 0; time.Sleep(10 * time.Millisecond) { // nobody announces a hold
					if time.Now().After(end) {
						t.Fatal("no hold is placed")
					}
				}
				p.Signal(syscall.SIGCONT)
				if r := p.Wait(); r.Exit != 4 {
					t.Errorf("the purge of a held slice: %s", r)
				}
				if r := r.Wait(); r.Exit != 3 || !strings.Contains(r.Stdout+r.Stderr, "content") {
					t.Errorf("the edited row is not named: %s", r)
				}
			}
			if n := e.Count(); n != len(want) || len(staged(e)) > 0 {
				t.Errorf("%d of %d rows are in warm, staging tables %v", n, len(want), staged(e))
			}
			e.Verdict(want)
			for _, h := range holds(e) {
				if err := e.Store().ReleaseHold(t.Context(), h.ID, "t"); err != nil {
					t.Fatal(err)
				}
			}
			if r := e.Run("purge"); r.Exit != 0 && r.Exit != 4 {
				t.Error(r)
			}
			gone(e, want)
		})
	}
}

func holds(e *harness.Env) []manifest.Hold {
	e.T.Helper()
	list, err := e.Store().Holds(e.T.Context(), false)
	if err != nil {
		e.T.Fatal(err)
	}
	return list
}

// A purge that was frozen before its COMMIT holds rows that all others still see. A restore
// into warm must not take them for there: they are gone when the purge wakes.
func TestRestoreWhileADeleteIsInFlight(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Strategy: "rows", Seed: 305, Messages: 150})
	want := e.Truth()
	e.Must("archive")
	tx, err := e.Warm.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if _, err := tx.ExecContext(t.Context(), "DELETE FROM "+e.Tables[0]); err != nil {
		t.Fatal(err)
	}
	p := e.Start(nil, "restore", "--into", e.WarmDSN, "--into-warm")
	for end, ended := time.Now().Add(time.Minute), false; !ended; {
		select {
		case <-p.Done():
			ended = true
		default: // that it waits for the lock is told by nobody
			ended = slices.ContainsFunc(stack.Transactions(t, e.Warm), func(x stack.Transaction) bool { return x.Waiting && strings.Contains(x.Query, e.Database) })
		}
		if time.Now().After(end) {
			t.Fatal("it neither waits nor ends")
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(); r.Exit != 0 {
		t.Error(r)
	}
	if n := e.Count(); n != len(want) {
		t.Errorf("%d of %d rows are in warm after the restore", n, len(want))
	}
	e.Verdict(want)
}
