package guard

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrOpen says that a breaker lets no call through.
var ErrOpen = errors.New("circuit breaker is open: too many calls have not been answered, it is tried again within seconds")

// State is the state of a Breaker.
type State int

// The states.
const (
	Closed   State = iota // every call is let through
	HalfOpen              // one call at a time, to see whether the store is back
	Open                  // no call
)

// String is the state in words.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case HalfOpen:
		return "half-open"
	case Open:
		return "open"
	}
	return fmt.Sprintf("state %d", int(s))
}

// BreakerConfig says when a Breaker opens and for how long. A field that is not
// above zero has its default.
type BreakerConfig struct {
	Consecutive  int           // failures in a row that open it; 5
	Window       time.Duration // sliding; 10 s. It moves on by tenths
	MinCalls     int           // in the window, below which the ratio opens nothing; 20
	FailureRatio float64       // of the calls in the window; 0.5. Above 1: only Consecutive opens it
	OpenFor      time.Duration // at first; 1 s. Doubled by each probe that fails
	MaxOpenFor   time.Duration // to which it grows; 15 s
	ProbeTimeout time.Duration // after which a probe without a result no longer keeps others from trying; 5 s

	// OnChange is told of every change, one at a time and in their order. It may use
	// the breaker, and must not panic. Optional.
	OnChange func(name string, from, to State)
}

func (c BreakerConfig) withDefaults() BreakerConfig {
	orElse(&c.Consecutive, 5)
	orElse(&c.Window, 10*time.Second)
	orElse(&c.MinCalls, 20)
	orElse(&c.FailureRatio, 0.5)
	orElse(&c.OpenFor, time.Second)
	orElse(&c.MaxOpenFor, 15*time.Second)
	orElse(&c.ProbeTimeout, 5*time.Second)
	c.MaxOpenFor = max(c.MaxOpenFor, c.OpenFor)
	return c
}

func orElse[N int | float64 | time.Duration](field *N, value N) {
	if !(*field > 0) { // a NaN too
		*field = value
	}
}

// Breaker keeps calls from a store that does not answer (M. Nygard, "Release It!",
// 2007, chapter 5.2). Time moves it on only when it is used: there is no timer.
//
// It is not github.com/sony/gobreaker/v2, which lacks four things needed here: a clock
// that is passed in, an open time that grows, an end to waiting for a probe whose
// result is never told (there it rejects calls for ever), and a callback that may ask
// for the state (there it is called under the lock).
type Breaker struct {
	name    string
	cfg     BreakerConfig
	clock   func() time.Time
	refusal error

	mu         sync.Mutex
	state      State
	generation uint64 // of the state; a result counts only in the generation its call was let through
	inARow     int    // failures
	window     window
	openFor    time.Duration
	until      time.Time // Open: when a probe may be made. HalfOpen: when another one may
	changes    []change  // not yet told
	telling    bool
}

type change struct{ from, to State }

// NewBreaker makes a closed breaker. The name is for OnChange and for errors.
func NewBreaker(name string, cfg BreakerConfig, clock func() time.Time) *Breaker {
	cfg = cfg.withDefaults()
	return &Breaker{
		name: name, cfg: cfg, clock: clock,
		refusal: fmt.Errorf("%s: %w", name, ErrOpen),
		window:  newWindow(clock(), cfg.Window),
		openFor: cfg.OpenFor,
	}
}

// Allow lets a call through or returns ErrOpen. The result of the call is told by
// done; only the first one counts. Results of calls that were let through before the
// last change of state say nothing of the present and are dropped.
//
// A call whose end says nothing of the store, as one that its caller gave up, need not
// be told. If it was a probe, another one is let through after cfg.ProbeTimeout, and
// whichever of them ends first decides.
func (b *Breaker) Allow() (done func(ok bool), err error) {
	b.mu.Lock()
	defer b.unlock()
	now := b.clock()
	b.advance(now)
	switch b.state {
	case Open:
		return nil, b.refusal
	case HalfOpen:
		if now.Before(b.until) {
			return nil, b.refusal
		}
		b.until = now.Add(b.cfg.ProbeTimeout)
	}
	generation := b.generation
	var told atomic.Bool
	return func(ok bool) {
		if told.CompareAndSwap(false, true) {
			b.result(generation, ok)
		}
	}, nil
}

// State is the present state. HalfOpen also while no probe is being made.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.unlock()
	b.advance(b.clock())
	return b.state
}

func (b *Breaker) advance(now time.Time) {
	if b.state == Open && !now.Before(b.until) {
		b.enter(HalfOpen)
		b.until = now
	}
}

func (b *Breaker) result(generation uint64, ok bool) {
	b.mu.Lock()
	defer b.unlock()
	now := b.clock()
	b.advance(now)
	if generation != b.generation {
		return
	}
	switch {
	case b.state == HalfOpen && ok:
		b.inARow, b.openFor = 0, b.cfg.OpenFor
		b.window = newWindow(now, b.cfg.Window)
		b.enter(Closed)
	case b.state == HalfOpen:
		b.openFor = min(2*b.openFor, b.cfg.MaxOpenFor)
		b.until = now.Add(b.openFor)
		b.enter(Open)
	case b.state == Closed:
		b.inARow++
		if ok {
			b.inARow = 0
		}
		calls, failed := b.window.add(now, ok)
		if b.inARow >= b.cfg.Consecutive ||
			calls >= b.cfg.MinCalls && float64(failed) >= b.cfg.FailureRatio*float64(calls) {
			b.until = now.Add(b.openFor)
			b.enter(Open)
		}
	}
}

func (b *Breaker) enter(to State) {
	if b.cfg.OnChange != nil {
		b.changes = append(b.changes, change{b.state, to})
	}
	b.state = to
	b.generation++
}

// unlock tells what has changed. Whoever tells goes on until nothing is left, also of
// what others changed meanwhile, so that the changes stay in order although the lock is
// not held.
func (b *Breaker) unlock() {
	for !b.telling && len(b.changes) > 0 {
		c := b.changes[0]
		b.changes = b.changes[1:]
		b.telling = true
		b.mu.Unlock()
		b.cfg.OnChange(b.name, c.from, c.to)
		b.mu.Lock()
		b.telling = false
	}
	b.mu.Unlock()
}

// window counts the calls of the last cfg.Window, in tenths of it.
type window struct {
	start time.Time
	width time.Duration
	slots [10]slot
}

type slot struct {
	number        int64
	calls, failed int
}

func newWindow(now time.Time, length time.Duration) window {
	w := window{start: now}
	w.width = max(length/time.Duration(len(w.slots)), 1)
	return w
}

func (w *window) add(now time.Time, ok bool) (calls, failed int) {
	number := max(int64(now.Sub(w.start)/w.width), 0)
	s := &w.slots[number%int64(len(w.slots))]
	if s.number != number {
		*s = slot{number: number}
	}
	s.calls++
	if !ok {
		s.failed++
	}
	for _, s := range w.slots {
		if s.number > number-int64(len(w.slots)) {
			calls += s.calls
			failed += s.failed
		}
	}
	return calls, failed
}
