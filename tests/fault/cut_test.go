package fault

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/harness"
)

// moments are points, in bytes, within about what a verb sends to a server.
func (e *env) moments(n int) (at []int64) {
	for range n {
		at = append(at, 500+e.rng.Int64N(60_000))
	}
	slices.Sort(at)
	return at
}

// Connections are reset in the middle, several times in each run: what had begun is
// finished by this run or by the next one.
func TestConnectionsCutInTheMiddle(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, server, strategy string) {
		e := setup(t, server, strategy, 120)
		rounds := 1
		if heavy() {
			rounds = 10
		}
		for _, verb := range e.verbs() {
			for range rounds {
				var steps []step
				moments := e.moments(3)
				for _, at := range moments {
					steps = append(steps, step{at, e.Reset})
				}
				e.at(steps...)
				r := e.Run(verb)
				t.Logf("reset at %v: exit %d", moments, r.Exit)
				e.at()
				e.ended(r)
			}
			e.finish(map[bool]string{true: "archive", false: verb}[verb == "verify"])
		}
		e.cold()
	})
}

// The server goes away in the middle and stays away until the command has ended,
// which it does by itself.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, server, strategy string) {
		e := setup(t, server, strategy, 80)
		for _, verb := range e.verbs() {
			moments := e.moments(1)
			if verb == "purge" {
				moments[0] /= 3
			}
			e.at(step{moments[0], e.Cut})
			began := time.Now()
			r := e.Run(verb)
			t.Logf("%s: away from %v: exit %d after %s", verb, moments, r.Exit, time.Since(began))
			e.at()
			e.Heal()
			e.ended(r)
			e.finish(map[bool]string{true: "archive", false: verb}[verb == "verify"])
		}
		e.cold()
	})
}

// No byte passes for a while, from some moment on; then everything goes on.
func TestStalledForAWhile(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, server, strategy string) {
		e := setup(t, server, strategy, 80)
		for _, verb := range e.verbs() {
			stalled := make(chan struct{})
			moments := e.moments(1)
			e.at(step{moments[0] / 4, func() { e.Stall(); close(stalled) }})
			p := e.Start(nil, verb)
			ended := p.Done()
			select {
			case <-stalled:
				select { // longer than a lease, so that one may be lost
				case <-ended:
				case <-time.After(lease + time.Second/2):
				}
			case <-ended:
			}
			e.at()
			e.Heal()
			r := p.Wait()
			t.Logf("%s: stalled at %v: exit %d", verb, moments, r.Exit)
			e.ended(r)
			e.finish(map[bool]string{true: "archive", false: verb}[verb == "verify"])
		}
		e.cold()
	})
}

// A command that waits for a stalled server ends soon after SIGTERM, J4: well within
// the 25 s after which it would end itself the hard way.
func TestTerminatedWhileStalled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, server, strategy string) {
		e := setup(t, server, strategy, 60)
		for _, verb := range e.verbs() {
			stalled := make(chan struct{})
			e.at(step{500 + e.rng.Int64N(8000), func() { e.Stall(); close(stalled) }})
			p := e.Start(nil, verb)
			ended := p.Done()
			select {
			case <-stalled:
			case <-ended:
			}
			began := time.Now()
			p.Signal(syscall.SIGTERM)
			select {
			case <-ended:
			case <-time.After(50 * time.Second):
				t.Errorf("%s hangs after SIGTERM", verb)
			}
			took := time.Since(began)
			r := p.Wait()
			t.Logf("%s: exit %d, %s after the signal", verb, r.Exit, took)
			if r.Exit > 1 && r.Exit != 3 {
				t.Log(r)
			}
			if took > 23*time.Second {
				t.Errorf("%s took %s to end: %s", verb, took, r)
			}
			e.at()
			e.Heal()
			e.ended(r)
			e.finish(map[bool]string{true: "archive", false: verb}[verb == "verify"])
		}
		e.cold()
	})
}

// Cut off from the manifest by a line that stalls for ever, a worker gives its slice
// up and ends by itself. The other servers' limits are minutes: with
// COLDTIER_TEST_HEAVY they are tried too.
func TestStalledForEver(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for time-outs, which are the client's: not again on another server")
	}
	t.Parallel()
	each(t, func(t *testing.T, server, strategy string) {
		bound := time.Minute
		switch {
		case server == rowsServer:
			t.Skip("ClickHouse's limit of five minutes a try has a test in its package")
		case server != manifestServer && !heavy():
			t.Skip("takes minutes; COLDTIER_TEST_HEAVY=1 runs it")
		case heavy():
			bound = 6 * time.Minute
		}
		e := setup(t, server, strategy, 60)
		for _, verb := range e.verbs() {
			var p *harness.Process
			if claimed := []string{"COLDTIER_STOP_AT=" + verb + ".claimed"}; server == manifestServer && !heavy() {
				p = e.Start(claimed, verb)
				if !p.Stopped() {
					t.Fatal(p.Wait())
				}
				e.Stall()
				p.Signal(syscall.SIGCONT)
			} else {
				e.at(step{3000 + e.rng.Int64N(9000), e.Stall})
				p = e.Start(nil, verb)
			}
			began := time.Now()
			select {
			case <-p.Done():
			case <-time.After(bound):
				t.Errorf("%s still waits after %s", verb, bound)
				p.Signal(syscall.SIGQUIT)
			}
			r := p.Wait()
			t.Logf("%s: exit %d after %s", verb, r.Exit, time.Since(began))
			e.at()
			e.Heal()
			e.ended(r)
			e.finish(map[bool]string{true: "archive", false: verb}[verb == "verify"])
		}
		e.cold()
	})
}

// A slow way is no fault: the job is done by the first run.
func TestSlowServer(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for time-outs, which are the client's: not again on another server")
	}
	t.Parallel()
	each(t, func(t *testing.T, server, strategy string) {
		if strategy == "partition" && !heavy() {
			t.Skip("COLDTIER_TEST_HEAVY=1 runs it")
		}
		e := setup(t, server, strategy, 60)
		e.Latency(20 * time.Millisecond)
		e.Bandwidth(200_000)
		for _, verb := range e.verbs() {
			if r := e.Must(verb); strings.Contains(r.Stderr, "level=ERROR") {
				t.Error(r)
			}
			e.Verdict(e.want)
		}
		e.Heal()
		e.cold()
	})
}
