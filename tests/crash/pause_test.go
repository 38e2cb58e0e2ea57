package crash

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
)

// pauses runs a test with leases that run out by themselves, and with leases that
// the database takes for ended while the paused worker's own timers do not: then
// the fence alone stops it.
func pauses(t *testing.T, fn func(t *testing.T, o harness.Options, over func(*lab))) {
	t.Helper()
	t.Run("by_time", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it waits for leases, which are the manifest's own doing: not again on another server")
		}
		t.Parallel()
		fn(t, harness.Options{Config: map[string]string{"manifest": "lease: 5s"}}, func(l *lab) {
			for end := time.Now().Add(time.Minute); l.leases() > 0; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("a lease of 5 s lasts longer than a minute")
				}
			}
			l.timed = true
		})
	})
	t.Run("by_the_fence", func(t *testing.T) {
		t.Parallel()
		fn(t, harness.Options{}, (*lab).expire)
	})
}

// stopAll starts a worker for each day that stops itself at that day's step.
func (l *lab) stopAll(steps []string, verb string) (all []*harness.Process) {
	l.T.Helper()
	for i, s := range steps {
		all = append(all, l.Start([]string{"COLDTIER_STOP_AT=" + s}, append([]string{verb}, l.day(i)...)...))
	}
	for i, p := range all {
		if !p.Stopped() {
			l.T.Fatalf("it never came to %s: %s", steps[i], p.Wait())
		}
	}
	return all
}

// wake lets the paused workers go on: each must fail, and nothing changes. Those
// whose lease ran out by time say so; else they may meet something missing first.
func (l *lab) wake(all []*harness.Process, steps []string) {
	l.T.Helper()
	words := []string{"lease"}
	if !l.timed {
		words = append(words, "doesn't exist")
	}
	before := l.state()
	for i, p := range all {
		p.Signal(syscall.SIGCONT)
		r := p.Wait()
		if r.Exit == 0 || r.Exit == -1 || !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(r.Stdout+r.Stderr, w) }) {
			l.T.Errorf("paused at %s beyond its lease, it does not say any of %q: %s", steps[i], words, r)
		}
		if after := l.state(); after != before {
			l.T.Errorf("paused at %s beyond its lease, it changed this\n%s\n%s", steps[i], diff(before, after), r)
			before = after
		}
	}
}

// diff lists the lines that only one of two texts has.
func diff(before, after string) string {
	var b strings.Builder
	for sign, texts := range map[string][2]string{"-": {before, after}, "+": {after, before}} {
		for _, line := range strings.Split(texts[0], "\n") {
			if !strings.Contains(texts[1]+"\n", line+"\n") {
				b.WriteString(sign + line + "\n")
			}
		}
	}
	return b.String()
}

// J3: an archiver that was paused beyond its lease changes nothing when it wakes up
// after another did its slice.
func TestPausedArchive(t *testing.T) {
	t.Parallel()
	pauses(t, func(t *testing.T, o harness.Options, over func(*lab)) {
		steps := archiveSteps[:len(archiveSteps)-1] // at the last one it has no lease any more, and is done
		o.Days, o.Seed = len(steps), 51
		l := setup(t, o)
		paused := l.stopAll(steps, "archive")
		over(l)
		l.verdict()
		l.until("archive")
		for _, s := range l.slices() {
			if s.State != manifest.Verified || s.Generation != 1 {
				t.Fatalf("slice %s is %s, generation %d: the second worker did not do it", s.SliceKey, s.State, s.Generation)
			}
		}
		l.wake(paused, steps)
		l.verdict()
		l.finish()
	})
}

// J3: a purge that was paused beyond its lease deletes nothing when it wakes up: not
// even equal rows, which were restored after another had purged the slice.
func TestPausedPurge(t *testing.T) {
	t.Parallel()
	for strategy, steps := range map[string][]string{"rows": rowsSteps, "partition": partitionSteps} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			pauses(t, func(t *testing.T, o harness.Options, over func(*lab)) {
				o.Days, o.Seed, o.Strategy, o.Partitioned = len(steps), 52, strategy, strategy == "partition"
				l := setup(t, o)
				l.until("archive")
				paused := l.stopAll(steps, "purge")
				over(l)
				l.verdict()
				l.until("purge")
				if n := l.Count(); n > 0 {
					t.Fatalf("%d rows are left: the second worker did not purge them", n)
				}
				l.SQL("INSERT INTO " + l.table + " SELECT * FROM " + l.shadow)
				l.wake(paused, steps)
				l.verdict()
				l.finish()
			})
		})
	}
}

// The same while rows that differ are put back.
func TestPausedReturnOfAPartition(t *testing.T) {
	t.Parallel()
	pauses(t, func(t *testing.T, o harness.Options, over func(*lab)) {
		steps := []string{purge.StepDiffers, purge.StepReturned}
		o.Days, o.Seed, o.Strategy, o.Partitioned = len(steps), 53, "partition", true
		l := setup(t, o)
		l.until("archive")
		for i := range steps {
			l.edit(l.last(i))
		}
		paused := l.stopAll(steps, "purge")
		over(l)
		l.verdict()
		if r := l.Run("purge"); r.Exit != 4 && r.Exit != 3 {
			t.Fatalf("want drift: %s", r)
		}
		l.wake(paused, steps)
		l.verdict()
		l.finish()
	})
}

// J3: two workers take the same slice at the same moment: one does it, the other
// is told so.
func TestTwoWorkersOneSlice(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"rows", "partition"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			l := setup(t, harness.Options{Seed: 54, Messages: 100, Strategy: strategy, Partitioned: strategy == "partition"})
			for _, step := range []string{"archive.claimed", purge.StepClaimed} {
				verb, _, _ := strings.Cut(step, ".")
				first := l.Start([]string{"COLDTIER_STOP_AT=" + step}, verb)
				if !first.Stopped() {
					t.Fatal(first.Wait())
				}
				l.Expect(5, nil, verb) // while the first surely has it
				first.Signal(syscall.SIGCONT)
				if r := first.Wait(); r.Exit != 0 {
					t.Error(r)
				}
				l.verdict()
			}
			if s := l.slices()[0]; s.State != manifest.Purged || s.Generation != 1 {
				t.Errorf("the slice is %+v", s)
			}
			// And again with late rows, started together.
			l.late(l.last(0))
			for _, verb := range []string{"archive", "purge"} {
				one, two := l.Start(nil, verb), l.Start(nil, verb)
				a, b := one.Wait(), two.Wait()
				if a.Exit != 0 && b.Exit != 0 {
					t.Errorf("none of two was done: %s\n%s", a, b)
				}
				for _, r := range []harness.Result{a, b} {
					if r.Exit != 0 && r.Exit != 3 && r.Exit != 5 {
						t.Error(r)
					}
				}
				l.verdict()
			}
			if s := l.slices()[0]; s.State != manifest.Purged || s.Generation != 2 {
				t.Errorf("the slice is %+v", s)
			}
			l.finish()
		})
	}
}

// graceTime is what Kubernetes waits before SIGKILL.
const graceTime = 30 * time.Second

// J4: SIGTERM in the middle ends a run within its grace time, gives the slices back
// at once, and is no failure of theirs; the further run finishes.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	for strategy, steps := range map[string][]string{"rows": rowsSteps, "partition": partitionSteps} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			middle := archiveSteps[:5] // later it may be done before it hears of the signal
			l := setup(t, harness.Options{Days: max(len(steps), len(middle)), Seed: 55, Strategy: strategy, Partitioned: strategy == "partition"})
			l.terminate(middle, "archive")
			l.Must("archive") // the leases were given back
			l.verdict()
			l.terminate(steps, "purge")
			l.verdict()
			l.finish()
		})
	}
}

func (l *lab) terminate(steps []string, verb string) {
	l.T.Helper()
	interrupted := 0
	for i, p := range l.stopAll(steps, verb) {
		p.Signal(syscall.SIGTERM)
		begun := time.Now()
		p.Signal(syscall.SIGCONT)
		r := p.Wait()
		if r.Exit != 0 {
			interrupted++
		}
		if took := time.Since(begun); took > graceTime {
			l.T.Errorf("SIGTERM at %s: it took %s", steps[i], took)
		}
		if r.Exit == -1 {
			l.T.Errorf("SIGTERM at %s: the signal killed it: %s", steps[i], r)
		}
		if r.Exit != 0 && !strings.Contains(r.Stderr, "interrupted") {
			l.T.Errorf("SIGTERM at %s: it does not say that it was interrupted: %s", steps[i], r)
		}
	}
	if interrupted < 2 {
		l.T.Errorf("%d of %d runs of %s were interrupted: the signals come too late", interrupted, len(steps), verb)
	}
	for i, s := range l.slices() {
		if s.Failed || s.Tries > 0 {
			l.T.Errorf("SIGTERM at %s counts as a failed try: slice %s: %d tries, %s", steps[min(i, len(steps)-1)], s.SliceKey, s.Tries, s.Error)
		}
	}
	var status struct{ Failed []any }
	l.Must("--output", "json", "status").Result(l.T, &status)
	if len(status.Failed) > 0 {
		l.T.Errorf("status lists %v", status.Failed)
	}
}
