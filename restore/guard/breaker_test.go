package guard_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coldtier/coldtier/restore/guard"
)

func call(t *testing.T, b *guard.Breaker, ok bool) {
	t.Helper()
	done, err := b.Allow()
	if err != nil {
		t.Fatal(err)
	}
	done(ok)
}

func wantState(t *testing.T, b *guard.Breaker, want guard.State) {
	t.Helper()
	if got := b.State(); got != want {
		t.Fatalf("the breaker is %v, want %v", got, want)
	}
}

// open opens a breaker of five failures.
func open(t *testing.T, b *guard.Breaker) {
	t.Helper()
	for range 5 {
		call(t, b, false)
	}
	wantState(t, b, guard.Open)
}

func TestBreakerOpensAfterFailuresInARow(t *testing.T) {
	b := guard.NewBreaker("s3", guard.BreakerConfig{}, newClock().Now)
	for range 3 { // 12 of 15: below MinCalls
		for range 4 {
			call(t, b, false)
		}
		call(t, b, true)
	}
	wantState(t, b, guard.Closed)
	open(t, b)
	done, err := b.Allow()
	if !errors.Is(err, guard.ErrOpen) || done != nil {
		t.Fatalf("an open breaker: %v", err)
	}
	if got := err.Error(); got != "s3: "+guard.ErrOpen.Error() {
		t.Errorf("the error does not name the store: %s", got)
	}
}

// TestBreakerWindow compares with a breaker that remembers every call.
func TestBreakerWindow(t *testing.T) {
	r := random(t)
	opened := 0
	for range 200 {
		c := newClock()
		cfg := guard.BreakerConfig{Consecutive: 1000, MinCalls: 20, FailureRatio: 0.5, Window: 10 * time.Second}
		b := guard.NewBreaker("", cfg, c.Now)
		type past struct {
			tenth int
			ok    bool
		}
		var calls []past
		var at time.Duration
		want, p := false, 0.3+0.4*r.Float64()
		for range 300 {
			var d time.Duration
			switch r.IntN(10) {
			case 0:
				d = time.Duration(r.IntN(15)) * time.Second
			case 1, 2, 3:
				d = time.Duration(r.IntN(800)) * time.Millisecond
			}
			at += d
			c.Add(d)
			ok := r.Float64() > p
			call(t, b, ok)
			now := int(at / time.Second)
			calls = append(calls, past{now, ok})
			n, failed := 0, 0
			for _, c := range calls {
				if c.tenth > now-10 {
					n++
					if !c.ok {
						failed++
					}
				}
			}
			want = n >= 20 && 2*failed >= n
			if got := b.State() == guard.Open; got != want {
				t.Fatalf("%d of %d failed within the window: open is %t", failed, n, got)
			}
			if want {
				opened++
				c.Add(time.Second)
				call(t, b, true)
				call(t, b, false) // nothing is left of the time before
				wantState(t, b, guard.Closed)
				break
			}
		}
	}
	if opened < 20 || opened > 199 {
		t.Fatalf("%d of 200 breakers opened: the test says nothing", opened)
	}
}

func TestBreakerLetsOneProbeThrough(t *testing.T) {
	c := newClock()
	b := guard.NewBreaker("", guard.BreakerConfig{}, c.Now)
	open(t, b)
	for i, want := range []time.Duration{1, 2, 4, 8, 15, 15} {
		c.Add(want*time.Second - 1)
		wantState(t, b, guard.Open)
		c.Add(1)
		wantState(t, b, guard.HalfOpen)
		var through atomic.Int32
		var probe atomic.Pointer[func(bool)]
		together(300, func(int) {
			if done, err := b.Allow(); err == nil {
				through.Add(1)
				probe.Store(&done)
			} else if !errors.Is(err, guard.ErrOpen) {
				t.Error(err)
			}
		})
		if through.Load() != 1 {
			t.Fatalf("%d probes at once", through.Load())
		}
		if i < 5 {
			(*probe.Load())(false)
			wantState(t, b, guard.Open)
			continue
		}
		(*probe.Load())(true)
		wantState(t, b, guard.Closed)
	}
	for range 4 { // nothing is left of the time before
		call(t, b, false)
	}
	wantState(t, b, guard.Closed)
	call(t, b, false)
	wantState(t, b, guard.Open)
	c.Add(time.Second)
	wantState(t, b, guard.HalfOpen)
}

func TestBreakerIsOpenForAsLongAsIsSaid(t *testing.T) {
	c := newClock()
	b := guard.NewBreaker("", guard.BreakerConfig{OpenFor: 40 * time.Second}, c.Now) // above the default of MaxOpenFor
	open(t, b)
	for range 3 {
		c.Add(40*time.Second - 1)
		wantState(t, b, guard.Open)
		c.Add(1)
		call(t, b, false)
	}
	wantState(t, b, guard.Open)
}

func TestBreakerForgetsALostProbe(t *testing.T) {
	for _, ok := range []bool{true, false} {
		c := newClock()
		b := guard.NewBreaker("", guard.BreakerConfig{ProbeTimeout: 3 * time.Second}, c.Now)
		open(t, b)
		c.Add(time.Second)
		first, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		c.Add(3*time.Second - 1)
		if _, err := b.Allow(); err == nil {
			t.Fatal("a second probe before the first is overdue")
		}
		c.Add(1)
		if _, err := b.Allow(); err != nil {
			t.Fatal("no second probe when the first is overdue")
		}
		if _, err := b.Allow(); err == nil {
			t.Fatal("a third probe beside the second")
		}
		first(ok) // late, and yet the first that is known
		want := guard.Closed
		if !ok {
			want = guard.Open
		}
		wantState(t, b, want)
	}
}

func TestBreakerCountsACallOnce(t *testing.T) {
	b := guard.NewBreaker("", guard.BreakerConfig{}, newClock().Now)
	done, err := b.Allow()
	if err != nil {
		t.Fatal(err)
	}
	together(300, func(int) { done(false) })
	wantState(t, b, guard.Closed)
	for range 3 {
		call(t, b, false)
	}
	done(true) // does not interrupt the failures
	wantState(t, b, guard.Closed)
	call(t, b, false)
	wantState(t, b, guard.Open)
}

func TestBreakerDropsResultsOfThePast(t *testing.T) {
	c := newClock()
	b := guard.NewBreaker("", guard.BreakerConfig{}, c.Now)
	var old []func(bool)
	for range 20 {
		done, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, done)
	}
	open(t, b)
	old[0](true)
	wantState(t, b, guard.Open)
	c.Add(time.Second)
	old[1](true)
	old[2](false)
	wantState(t, b, guard.HalfOpen)
	call(t, b, true)
	for _, done := range old[3:] {
		done(false)
	}
	wantState(t, b, guard.Closed)
}

// TestBreakerTellsChangesInOrder has many use a breaker while its changes are told to
// one who uses it too.
func TestBreakerTellsChangesInOrder(t *testing.T) {
	c := newClock()
	type change struct{ from, to guard.State }
	var mu sync.Mutex
	var changes []change
	var inside atomic.Int32
	var b *guard.Breaker
	b = guard.NewBreaker("ch", guard.BreakerConfig{OnChange: func(name string, from, to guard.State) {
		if inside.Add(1) != 1 || name != "ch" {
			t.Error("two changes are told at once")
		}
		b.State()
		mu.Lock()
		changes = append(changes, change{from, to})
		mu.Unlock()
		inside.Add(-1)
	}}, c.Now)
	together(200, func(i int) {
		for j := range 50 {
			if done, err := b.Allow(); err == nil {
				done((i+j)%7 == 0)
			}
			if j%10 == 0 {
				c.Add(300 * time.Millisecond)
			}
		}
	})
	last := b.State()
	mu.Lock()
	defer mu.Unlock()
	if len(changes) < 10 {
		t.Fatalf("%d changes: the test says nothing", len(changes))
	}
	at := guard.Closed
	for i, ch := range changes {
		if ch.from != at || ch.from == ch.to || ch.from == guard.Closed && ch.to == guard.HalfOpen || ch.from == guard.Open && ch.to == guard.Closed {
			t.Fatalf("change %d from %v to %v, when it was %v", i, ch.from, ch.to, at)
		}
		at = ch.to
	}
	if at != last {
		t.Fatalf("the last change is to %v, and the breaker is %v", at, last)
	}
}

// TestBreakerTellsAChangeAtATime: a change that is caused while one is told waits.
func TestBreakerTellsAChangeAtATime(t *testing.T) {
	c := newClock()
	var told []guard.State
	inside := 0
	var b *guard.Breaker
	b = guard.NewBreaker("", guard.BreakerConfig{OnChange: func(_ string, _, to guard.State) {
		if inside++; inside != 1 {
			t.Error("a change is told while another one is")
		}
		told = append(told, to)
		if len(told) < 5 {
			c.Add(time.Minute)
			if done, err := b.Allow(); err == nil {
				done(false)
			}
		}
		inside--
	}}, c.Now)
	for range 5 {
		call(t, b, false)
	}
	for i, to := range told {
		if want := []guard.State{guard.Open, guard.HalfOpen}[i%2]; to != want {
			t.Fatalf("changes to %v", told)
		}
	}
	if len(told) < 5 {
		t.Fatalf("changes to %v: some were not told", told)
	}
}

func TestStateInWords(t *testing.T) {
	for s, want := range map[guard.State]string{guard.Closed: "closed", guard.HalfOpen: "half-open", guard.Open: "open", 7: "state 7"} {
		if s.String() != want {
			t.Errorf("state %d is %q", int(s), s)
		}
	}
}

func BenchmarkBreaker(b *testing.B) {
	br := guard.NewBreaker("", guard.BreakerConfig{}, time.Now)
	b.ReportAllocs()
	for b.Loop() {
		done, err := br.Allow()
		if err != nil {
			b.Fatal(err)
		}
		done(true)
	}
}
