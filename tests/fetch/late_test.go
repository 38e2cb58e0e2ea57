package fetch

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// lateness measures how late this machine lets run whoever could. A call's time is held
// against its budget only as far as the machine itself was on time: a test must not fail
// because others use its processors.
type lateness struct {
	mu    sync.Mutex
	naps  []nap
	ended chan struct{}
}

// nap is a sleep that took longer than it should.
type nap struct {
	end  time.Time
	over time.Duration
}

const (
	nod   = time.Millisecond     // how long the loop sleeps each time
	usual = 5 * time.Millisecond // how late a sleeper may be on a machine that has time
)

func newLateness(t testing.TB) *lateness {
	l := &lateness{ended: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			begun := time.Now()
			select {
			case <-l.ended:
				return
			case <-time.After(nod):
			}
			now := time.Now()
			if over := now.Sub(begun) - nod; over > usual {
				l.mu.Lock()
				l.naps = append(l.naps, nap{now, over})
				l.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		close(l.ended)
		wg.Wait()
	})
	return l
}

// moment is a time, and how long threads of this process have until then waited for a
// processor.
type moment struct {
	time.Time
	waited time.Duration
}

// now reads the clock last, so that a call that begins then has it all.
func now() (m moment) {
	tasks, _ := filepath.Glob("/proc/self/task/*/schedstat") // none where there is no such thing
	for _, name := range tasks {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // a thread that has ended
		}
		var ran, waited time.Duration
		if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
			m.waited += waited
		}
	}
	m.Time = time.Now()
	return m
}

// ended is a moment whose time was read before.
func ended(at time.Time) moment { return moment{at, now().waited} }

// between is the machine's share of the time between two moments: by how much sleepers were
// later than usual, and how long threads waited.
func (l *lateness) between(from, to moment) (sum time.Duration) {
	time.Sleep(2 * nod) // so that the sleep that goes on at its end counts
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.naps) - 1; i >= 0 && l.naps[i].end.After(from.Time); i-- {
		if n := l.naps[i]; n.end.Add(-nod - n.over).Before(to.Time) {
			sum += n.over
		}
	}
	return sum + max(to.waited-from.waited, 0)
}
