// Package late measures how late this machine lets run whoever could. What a test holds
// against a bound is the time that passed less the machine's share of it: a test must not
// fail because others use its processors, and need not be lax on a machine that has time.
// It speaks of this process: bounds on what another one does, a server or a program that
// was started, are not for it.
package late

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Watch measures until its test's end.
type Watch struct {
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

// New begins to measure.
func New(t testing.TB) *Watch {
	w := &Watch{ended: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			begun := time.Now()
			select {
			case <-w.ended:
				return
			case <-time.After(nod):
			}
			now := time.Now()
			if over := now.Sub(begun) - nod; over > usual {
				w.mu.Lock()
				w.naps = append(w.naps, nap{now, over})
				w.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		close(w.ended)
		wg.Wait()
	})
	return w
}

// Moment is a time, and how long threads of this process have until then waited for a
// processor.
type Moment struct {
	time.Time
	waited time.Duration
}

// Now reads the clock last, so that a call that begins then has it all.
func Now() (m Moment) {
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

// At is a moment whose time was read just before.
func At(t time.Time) Moment { return Moment{t, Now().waited} }

// Between is the machine's share of the time between two moments: by how much sleepers were
// later than usual, and how long threads waited.
func (w *Watch) Between(from, to Moment) (sum time.Duration) {
	time.Sleep(2 * nod) // so that the sleep that goes on at its end counts
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.naps) - 1; i >= 0 && w.naps[i].end.After(from.Time); i-- {
		if n := w.naps[i]; n.end.Add(-nod - n.over).Before(to.Time) {
			sum += n.over
		}
	}
	return sum + max(to.waited-from.waited, 0)
}

// Since is what has passed since a moment, less the machine's share.
func (w *Watch) Since(from Moment) time.Duration {
	to := At(time.Now())
	return to.Sub(from.Time) - w.Between(from, to)
}
