package guard

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	patience = 50 * time.Millisecond // with a run, before another one is begun beside it
	abreast  = 4                     // runs at once
)

// Turn shares a read between all who ask for it, and never gives anybody a value that was
// read before they asked: a Get that finds a run going on waits for the next one. So a cache
// can be validated by reading a version at each use, at the cost of one read at a time
// however many use it. It is the group commit of databases (DeWitt et al.,
// "Implementation Techniques for Main Memory Database Systems", SIGMOD 1984) for reads.
//
// A run that hangs does not hold up those who come later: when it is older than 50 ms the
// next one begins beside it, up to four at once. With four that hang, the next one begins
// when one of them ends, at the latest by the timeout. A value that a later run read is
// also good for those who wait for an earlier one: they get it, and the earlier run's
// context is ended, as nobody waits for it any more.
type Turn[V any] struct {
	base    context.Context
	timeout time.Duration
	run     func(ctx context.Context) (V, error)

	mu    sync.Mutex
	ended sync.Cond
	next  *turn[V]   // who asks now boards it; nil when nobody waits for it
	runs  []*turn[V] // begun and not ended, oldest first
	fresh *turn[V]   // the youngest of them, until it is older than patience
}

type turn[V any] struct {
	flight[V]
	waiting int // only of next: once it has begun it ends
	settled bool
	cancel  context.CancelFunc
}

// NewTurn makes turns of run, which must end soon after its context does. That ends with
// base, and after the timeout; 0 is none.
func NewTurn[V any](base context.Context, timeout time.Duration, run func(ctx context.Context) (V, error)) *Turn[V] {
	t := &Turn[V]{base: base, timeout: timeout, run: run}
	t.ended.L = &t.mu
	return t
}

// Get returns the result of a run that began after Get was called. If ctx ends before,
// its cause is returned; the run goes on for others. What it returns belongs to all
// callers, so none may change it.
func (t *Turn[V]) Get(ctx context.Context) (v V, err error) {
	if ctx.Err() != nil {
		return v, context.Cause(ctx)
	}
	n := t.board()
	v, err = n.wait(ctx)
	t.leave(n)
	return v, err
}

func (t *Turn[V]) board() *turn[V] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == nil {
		t.next = &turn[V]{flight: flight[V]{done: make(chan struct{})}}
	}
	n := t.next
	n.waiting++
	t.begin()
	return n
}

// leave forgets the next run when the last one who waited for it is gone.
func (t *Turn[V]) leave(n *turn[V]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.waiting--; n.waiting == 0 && t.next == n {
		t.next = nil
	}
}

// begin begins the next run if somebody waits for it and its time has come.
func (t *Turn[V]) begin() {
	n := t.next
	if n == nil || t.fresh != nil || len(t.runs) >= abreast {
		return
	}
	t.next = nil
	if t.base.Err() != nil {
		var none V
		n.settle(none, context.Cause(t.base))
		return
	}
	t.fresh = n
	t.runs = append(t.runs, n)
	ctx, cancel := within(t.base, t.timeout)
	n.cancel = cancel
	old := time.AfterFunc(patience, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.outgrow(n)
	})
	go guarded(ctx, t.run, func(v V, err error) {
		old.Stop()
		cancel()
		t.end(n, v, err)
	})
}

// outgrow lets the next run begin beside n, or after it.
func (t *Turn[V]) outgrow(n *turn[V]) {
	if t.fresh == n {
		t.fresh = nil
	}
	t.begin()
}

func (t *Turn[V]) end(n *turn[V], v V, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.runs, n)
	if err == nil {
		for _, earlier := range t.runs[:i] {
			earlier.settle(v, nil)
			earlier.cancel()
		}
	}
	n.settle(v, err)
	t.runs = slices.Delete(t.runs, i, i+1)
	t.outgrow(n)
	t.ended.Broadcast()
}

// settle sets the result, of which the first counts.
func (n *turn[V]) settle(v V, err error) {
	if !n.settled {
		n.settled = true
		n.v, n.err = v, err
		close(n.done)
	}
}

// Wait waits until no run goes on. It is for the end: after base has ended none begins.
func (t *Turn[V]) Wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.runs) > 0 {
		t.ended.Wait()
	}
}
