package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/tests/harness"
)

// number reads a number from the environment.
func number(t *testing.T, name string, or uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return or
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// Archive and purge are killed again and again, at random moments and at random
// steps, by changing strategies, now and then beside another run that is not killed,
// while rows are edited and inserted. COLDTIER_CRASH_ROUNDS
// sets how often, COLDTIER_CRASH_SEED repeats the choices (not the timing).
func TestRandomKills(t *testing.T) {
	t.Parallel()
	usual := uint64(20)
	if testing.Short() {
		usual = 8
	}
	rounds := number(t, "COLDTIER_CRASH_ROUNDS", usual)
	seed := number(t, "COLDTIER_CRASH_SEED", rand.Uint64())
	t.Logf("COLDTIER_CRASH_SEED=%d, %d rounds", seed, rounds)
	rnd := rand.New(rand.NewPCG(seed, 1))
	l := setup(t, harness.Options{Days: 3, Messages: 150, Seed: seed, Partitioned: true})
	steps := map[string][]string{"archive": archiveSteps, "purge": purge.StepNames()}
	took := 500 * time.Millisecond // how long a run lasts, about
	killed, ended := 0, 0
	for round := range rounds {
		verb := []string{"archive", "archive", "purge", "purge", "purge"}[rnd.IntN(5)]
		strategy := []string{"auto", "rows", "partition"}[rnd.IntN(3)]
		l.Change(func(o *harness.Options) { o.Strategy = strategy })
		var environ []string
		how := "at a random moment"
		delay := time.Duration(rnd.Int64N(int64(took) * 5 / 4))
		if rnd.IntN(2) == 0 {
			how = fmt.Sprintf("%s:%d", steps[verb][rnd.IntN(len(steps[verb]))], 1+rnd.IntN(3))
			environ, delay = []string{"COLDTIER_CRASH_AT=" + how}, 0
		}
		begun := time.Now()
		p := l.Start(environ, verb)
		timer := time.AfterFunc(time.Hour, func() {}) // of no effect
		if delay > 0 {
			timer = time.AfterFunc(delay, func() { p.Signal(syscall.SIGKILL) })
		}
		var other *harness.Process
		if rnd.IntN(3) == 0 {
			other = l.Start(nil, []string{"archive", "purge"}[rnd.IntN(2)])
		}
		if rnd.IntN(2) == 0 {
			l.writeLate(rnd)
		}
		r := p.Wait()
		timer.Stop()
		switch r.Exit {
		case -1:
			killed++
		case 0, 3, 4, 5:
			ended++
			took = (took + time.Since(begun)) / 2
		default:
			t.Errorf("round %d: %s", round, r)
		}
		beside := "nothing"
		if other != nil {
			o := other.Wait()
			if beside = o.String(); o.Exit != 0 && (o.Exit < 3 || o.Exit > 5) {
				t.Errorf("round %d: %s", round, o)
			}
		}
		l.expire()
		l.verdict()
		if t.Failed() {
			t.Fatalf("round %d: %s by %s, killed %s: %s\nbeside %s", round, verb, strategy, how, r, beside)
		}
	}
	t.Logf("%d runs were killed, %d ended before", killed, ended)
	l.Change(func(o *harness.Options) { o.Strategy = "auto" })
	l.finish()
	l.leftovers()
}

// writeLate edits and inserts a few rows, of days that are old enough.
func (l *lab) writeLate(rnd *rand.Rand) {
	l.T.Helper()
	for range 1 + rnd.IntN(3) {
		time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond) // so that they come at different moments of the run
		ids := l.ids(rnd.IntN(len(l.Days)))
		id := ids[rnd.IntN(len(ids))]
		if rnd.IntN(2) == 0 {
			l.edit(id) // nothing happens where it is purged or isolated
		} else {
			l.late(id)
		}
	}
}
