package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// ErrBusy says that as many runs as are allowed are going on.
var ErrBusy = errors.New("too much is being read already: try again later")

// PanicError is a panic in a run.
type PanicError struct {
	Value any    // nil when the run ended its goroutine by runtime.Goexit
	Stack []byte // where
}

// Error leaves out the stack, and the value unless it is the runtime's own: others may
// hold what was being read, which is not to be logged.
func (e *PanicError) Error() string {
	switch v := e.Value.(type) {
	case nil:
		return "run ended its goroutine"
	case runtime.Error:
		return "run panicked: " + v.Error()
	}
	return fmt.Sprintf("run panicked with a %T", e.Value)
}

// Unwrap is the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// guarded is run and then, to which it gives a panic as an error. That then is deferred
// is for runtime.Goexit, which nothing stops.
func guarded[V any](ctx context.Context, run func(ctx context.Context) (V, error), then func(V, error)) {
	var v V
	var err error
	returned := false
	defer func() {
		if !returned {
			err = &PanicError{Value: recover(), Stack: debug.Stack()}
		}
		then(v, err)
	}()
	v, err = run(ctx)
	returned = true
}

func within(base context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(base)
	}
	return context.WithTimeout(base, timeout)
}

// Flights runs work once for all who ask for it at the same time, and goes on with it
// when they have left, so that the next one finds it done. golang.org/x/sync/singleflight
// has no limit, and leaves the contexts to its callers.
type Flights[K comparable, V any] struct {
	base    context.Context
	timeout time.Duration
	limit   int

	mu      sync.Mutex
	ended   sync.Cond
	flights map[K]*flight[V]
}

type flight[V any] struct {
	done chan struct{} // closed when v and err are set
	v    V
	err  error
}

// NewFlights makes flights of which at most limit are in the air at once; 0 is no limit.
// Each has a context that ends with base, and after the timeout; 0 is none.
func NewFlights[K comparable, V any](base context.Context, timeout time.Duration, limit int) *Flights[K, V] {
	f := &Flights[K, V]{base: base, timeout: timeout, limit: limit, flights: map[K]*flight[V]{}}
	f.ended.L = &f.mu
	return f
}

// Do waits for the result of the run of a key, and begins it if there is none; shared
// says that another caller had begun it. If ctx ends before, its cause is returned and
// the run goes on. Nothing is begun when ctx or base has ended, nor above the limit,
// where ErrBusy is returned at once.
//
// The run must end soon after its context does: until then it holds its key and its
// place. What it returns belongs to all callers, so none may change it.
func (f *Flights[K, V]) Do(ctx context.Context, key K, run func(ctx context.Context) (V, error)) (v V, shared bool, err error) {
	if ctx.Err() != nil {
		return v, false, context.Cause(ctx)
	}
	fl, shared, err := f.board(key, run)
	if err != nil {
		return v, false, err
	}
	v, err = fl.wait(ctx)
	return v, shared, err
}

func (f *Flights[K, V]) board(key K, run func(ctx context.Context) (V, error)) (fl *flight[V], shared bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl, ok := f.flights[key]; ok {
		return fl, true, nil
	}
	if f.base.Err() != nil {
		return nil, false, context.Cause(f.base)
	}
	if f.limit > 0 && len(f.flights) >= f.limit {
		return nil, false, ErrBusy
	}
	fl = &flight[V]{done: make(chan struct{})}
	f.flights[key] = fl
	go func() {
		ctx, cancel := within(f.base, f.timeout)
		defer cancel()
		guarded(ctx, run, func(v V, err error) { f.land(key, fl, v, err) })
	}()
	return fl, false, nil
}

func (f *Flights[K, V]) land(key K, fl *flight[V], v V, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.flights, key)
	fl.v, fl.err = v, err
	close(fl.done)
	f.ended.Broadcast()
}

// wait prefers the result to the end of ctx when both are there.
func (fl *flight[V]) wait(ctx context.Context) (v V, err error) {
	select {
	case <-fl.done:
		return fl.v, fl.err
	case <-ctx.Done():
	}
	select {
	case <-fl.done:
		return fl.v, fl.err
	default:
		return v, context.Cause(ctx)
	}
}

// Running is the number of runs going on.
func (f *Flights[K, V]) Running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.flights)
}

// Wait waits until no run goes on. It is for the end: after base has ended none begins.
func (f *Flights[K, V]) Wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.flights) > 0 {
		f.ended.Wait()
	}
}
