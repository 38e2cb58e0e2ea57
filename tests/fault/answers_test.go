package fault

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// after is the fate of the first statement with a prefix on a connection that has
// sent one with another prefix before; any, when that is empty.
func after(before, prefix string, f fate, met *atomic.Int32) func(int, string) fate {
	var mu sync.Mutex
	ready := map[int]bool{}
	return func(conn int, text string) fate {
		mu.Lock()
		defer mu.Unlock()
		if before != "" && strings.HasPrefix(text, before) {
			ready[conn] = true
		}
		if strings.HasPrefix(text, prefix) && (before == "" || ready[conn]) && met.Add(1) == 1 {
			return f
		}
		return fate{}
	}
}

// one demands that each slice has one copy, the first.
func (e *env) one() {
	e.T.Helper()
	for _, s := range e.Slices() {
		if s.Generation != 1 || s.Live != 1 {
			e.T.Errorf("slice %s has generation %d, live %d: want 1", s.SliceKey, s.Generation, s.Live)
		}
	}
}

// The manifest takes the COMMIT of a copy, and its answer is lost: the run sees that
// it is there; and where the manifest is away then, the next run does.
func TestLostAnswerOfTheManifestsCommit(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("away=%v", away), func(t *testing.T) {
			t.Parallel()
			e := setup(t, manifestServer, "rows", 60)
			var met atomic.Int32
			lose := after("INSERT INTO copies", "COMMIT", fate{lose: true}, &met)
			e.onQuery(func(conn int, text string) fate {
				if met.Load() > 0 && away {
					return fate{cut: true}
				}
				return lose(conn, text)
			})
			r := e.Run("archive")
			if met.Load() == 0 {
				t.Fatalf("no COMMIT was met: %s", r)
			}
			e.onQuery(nil)
			e.ended(r)
			if (r.Exit == 0) == away {
				t.Errorf("away %v: %s", away, r)
			}
			for _, s := range e.Slices() {
				if s.State != manifest.Verified && s.State != manifest.Committed {
					t.Errorf("slice %s is %s: its COMMIT was taken", s.SliceKey, s.State)
				}
			}
			e.cold()
			e.one()
		})
	}
}

// The manifest goes away between the commit record and the transaction: the record is
// adopted by the next run, and nothing is copied twice.
func TestManifestAwayBetweenRecordAndCommit(t *testing.T) {
	t.Parallel()
	e := setup(t, manifestServer, "rows", 60)
	p := e.Start([]string{"COLDTIER_STOP_AT=archive.record-put"}, "archive")
	if !p.Stopped() {
		t.Fatal(p.Wait())
	}
	keys := len(e.Keys())
	e.Cut()
	p.Signal(syscall.SIGCONT)
	r := p.Wait()
	if r.Exit == 0 {
		t.Errorf("the manifest is away: %s", r)
	}
	e.ended(r)
	e.Heal()
	if r := e.finish("archive"); !strings.Contains(r.Stdout, "taken over from a run that died") {
		t.Errorf("the commit record was not adopted: %s", r)
	}
	e.one()
	if n := len(e.Keys()); n != keys {
		t.Errorf("the bucket has %d objects, had %d: the slice was copied again", n, keys)
	}
	e.cold()
}

// M3: a statement that deletes arrives, and its answer is lost; or it does not arrive.
// Either way the run, or the next one, ends with exactly what was there in the cold
// tier and nothing in warm.
func TestLostAnswerOfADelete(t *testing.T) {
	t.Parallel()
	cases := []struct{ strategy, before, statement string }{
		{"rows", "", "DELETE FROM"},
		{"rows", "DELETE FROM", "COMMIT"},
		{"partition", "", "CREATE TABLE"},
		{"partition", "", "ALTER TABLE"},
		{"partition", "", "DROP TABLE"},
	}
	for _, c := range cases {
		for _, f := range []fate{{lose: true}, {cut: true}} {
			for _, away := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/arrives=%v/away=%v", c.strategy, strings.Fields(c.statement)[0], f.lose, away), func(t *testing.T) {
					t.Parallel()
					e := setup(t, warmServer, c.strategy, 60)
					e.Must("archive")
					var met atomic.Int32
					lose := after(c.before, c.statement, f, &met)
					e.onQuery(func(conn int, text string) fate {
						if met.Load() > 0 && away {
							return fate{cut: true}
						}
						return lose(conn, text)
					})
					r := e.Run("purge")
					if met.Load() == 0 {
						t.Fatalf("no %s was met: %s", c.statement, r)
					}
					e.onQuery(nil)
					t.Logf("exit %d", r.Exit)
					e.ended(r)
					if away && r.Exit == 0 {
						t.Errorf("MySQL is away: %s", r)
					}
					e.cold()
					e.one()
				})
			}
		}
	}
}

// M2, M3: the connection ends while the COMMIT of a delete is under way, and it
// arrives only when the run has looked and is at the same rows again.
func TestCommitArrivesLate(t *testing.T) {
	t.Parallel()
	e := setup(t, warmServer, "rows", 60)
	e.Must("archive")
	var met atomic.Int32
	held, go_ := -1, make(chan struct{})
	free := sync.OnceFunc(func() { close(go_) })
	t.Cleanup(free)
	hold := after("DELETE FROM", "COMMIT", fate{late: go_}, &met)
	e.onQuery(func(conn int, text string) fate {
		if f := hold(conn, text); f.late != nil {
			held = conn
			return f
		}
		if held >= 0 && conn != held && strings.Contains(text, "FOR UPDATE") {
			time.AfterFunc(200*time.Millisecond, free) // it waits for the rows by then, or comes first; both must be right
		}
		return fate{}
	})
	r := e.Run("purge")
	if met.Load() == 0 {
		t.Fatalf("no COMMIT was met: %s", r)
	}
	t.Logf("exit %d", r.Exit)
	e.ended(r)
	free()
	e.cold()
	e.one()
}

// Each statement in turn, to warm and to the manifest: its answer is lost, or it does
// not arrive.
func TestEveryStatement(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, server, strategy string) {
		if server != warmServer && server != manifestServer {
			t.Skip("it speaks no SQL")
		}
		for _, verb := range []string{"archive", "purge"} {
			if verb == "archive" && strategy == "partition" {
				continue // it makes no difference
			}
			e := setup(t, server, strategy, 40)
			if verb == "purge" {
				e.Must("archive")
			}
			rounds := 4
			if heavy() {
				rounds = 200
			}
			for round := range rounds {
				var n atomic.Int64
				var text atomic.Pointer[string]
				at := int64(round)
				if !heavy() {
					at = e.rng.Int64N(60)
				}
				f := fate{lose: round%2 == 0, cut: round%2 == 1}
				e.onQuery(func(_ int, s string) fate {
					if n.Add(1) == at+1 {
						text.Store(&s)
						return f
					}
					return fate{}
				})
				r := e.Run(verb)
				e.onQuery(nil)
				hit := "none"
				if s := text.Load(); s != nil {
					hit = (*s)[:min(len(*s), 60)]
				}
				t.Logf("%s: statement %d lost %v, %q: exit %d", verb, at, f.lose, hit, r.Exit)
				e.ended(r)
				if hit == "none" && heavy() || e.all(verb) {
					break
				}
			}
			e.cold()
		}
	})
}
