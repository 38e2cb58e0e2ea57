package guard_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coldtier/coldtier/restore/guard"
)

var (
	errGone  = errors.New("the caller has left")
	errStop  = errors.New("the server stops")
	errStore = errors.New("the store is down")
)

// until waits for the end of ctx, at most d.
func until(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func TestFlightsRunOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := guard.NewFlights[string, int](t.Context(), time.Minute, 0)
		var runs, first atomic.Int32
		run := func(ctx context.Context) (int, error) {
			n := runs.Add(1)
			return int(n), until(ctx, time.Second)
		}
		for round := 1; round <= 2; round++ { // what has ended is not kept
			first.Store(0)
			together(300, func(int) {
				v, shared, err := f.Do(t.Context(), "k", run)
				if v != round || err != nil {
					t.Errorf("round %d: %d, %v", round, v, err)
				}
				if !shared {
					first.Add(1)
				}
			})
			if runs.Load() != int32(round) || first.Load() != 1 {
				t.Fatalf("%d runs after round %d, %d callers began one", runs.Load(), round, first.Load())
			}
		}
	})
}

func TestFlightsOutliveTheirCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := guard.NewFlights[string, string](t.Context(), time.Minute, 0)
		begun := time.Now()
		run := func(ctx context.Context) (string, error) { return "read", until(ctx, 3*time.Second) }
		together(100, func(int) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errGone)
			defer cancel()
			if _, _, err := f.Do(ctx, "k", run); !errors.Is(err, errGone) {
				t.Errorf("a caller that left: %v", err)
			}
		})
		if d := time.Since(begun); d != time.Second {
			t.Fatalf("callers were kept for %v", d)
		}
		if f.Running() != 1 {
			t.Fatal("the run ended with its callers")
		}
		v, shared, err := f.Do(t.Context(), "k", nil)
		if v != "read" || !shared || err != nil || time.Since(begun) != 3*time.Second {
			t.Fatalf("the next caller got %q (shared %t, %v) after %v", v, shared, err, time.Since(begun))
		}
		if f.Running() != 0 {
			t.Fatal("the run has ended")
		}
	})
}

func TestFlightsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, stop := context.WithCancelCause(t.Context())
		f := guard.NewFlights[string, int](base, 2*time.Second, 0)
		hang := func(ctx context.Context) (int, error) { return 7, until(ctx, time.Hour) }
		begun := time.Now()
		v, _, err := f.Do(t.Context(), "k", hang)
		if v != 7 || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 2*time.Second {
			t.Fatalf("%d, %v after %v", v, err, time.Since(begun))
		}
		for k := range 100 {
			go func() {
				if _, _, err := f.Do(context.Background(), string(rune('a'+k)), hang); !errors.Is(err, errStop) {
					t.Errorf("base has ended: %v", err)
				}
			}()
		}
		synctest.Wait()
		if f.Running() != 100 {
			t.Fatalf("%d run, want 100", f.Running())
		}
		begun = time.Now()
		stop(errStop)
		f.Wait()
		if f.Running() != 0 || time.Since(begun) != 0 {
			t.Fatalf("%d run after Wait, which took %v", f.Running(), time.Since(begun))
		}
		_, _, err = f.Do(t.Context(), "k", func(context.Context) (int, error) {
			t.Error("a run was begun after the end")
			return 0, nil
		})
		if !errors.Is(err, errStop) {
			t.Fatalf("a call after the end: %v", err)
		}
	})
}

// TestFlightsWaitForTheLast: Wait is not content with fewer.
func TestFlightsWaitForTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := guard.NewFlights[int, int](t.Context(), 0, 0) // 0: no timeout
		f.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		for k := range 5 {
			go func() {
				_, _, err := f.Do(ctx, k, func(ctx context.Context) (int, error) {
					return k, until(ctx, time.Duration(k+1)*time.Hour)
				})
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		cancel()
		begun := time.Now()
		f.Wait()
		if d := time.Since(begun); d != 5*time.Hour {
			t.Fatalf("waited %v", d)
		}
	})
}

func TestFlightsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := guard.NewFlights[int, int](t.Context(), time.Minute, 3)
		begun := time.Now()
		var busy, got atomic.Int32
		together(200, func(i int) {
			k := i % 10
			v, _, err := f.Do(t.Context(), k, func(ctx context.Context) (int, error) { return k, until(ctx, time.Second) })
			switch {
			case errors.Is(err, guard.ErrBusy):
				busy.Add(1)
				if time.Since(begun) != 0 {
					t.Error("who finds no room has to wait")
				}
			case err != nil || v != k:
				t.Errorf("key %d: %d, %v", k, v, err)
			default:
				got.Add(1)
			}
		})
		// Who shares a run takes no place.
		if got.Load() != 60 || busy.Load() != 140 {
			t.Fatalf("%d got a result, %d were refused", got.Load(), busy.Load())
		}
		if _, _, err := f.Do(t.Context(), 99, func(context.Context) (int, error) { return 0, nil }); err != nil {
			t.Fatalf("there is room again: %v", err)
		}
	})
}

func TestFlightsCatchPanics(t *testing.T) {
	nothing := []int{}
	for name, end := range map[string]func(){
		"value":   func() { panic("a message's body") },
		"error":   func() { panic(errStore) },
		"runtime": func() { nothing[len(nothing)]++ },
		"goexit":  runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := guard.NewFlights[string, int](t.Context(), time.Minute, 1)
			together(50, func(int) {
				_, _, err := f.Do(t.Context(), "k", func(ctx context.Context) (int, error) {
					_ = until(ctx, time.Second)
					end()
					return 1, nil
				})
				wantPanic(t, name, err)
			})
			if _, _, err := f.Do(t.Context(), "k", func(context.Context) (int, error) { return 0, nil }); err != nil {
				t.Errorf("%s: the key or the place is still taken: %v", name, err)
			}
		})
	}
}

func wantPanic(t *testing.T, name string, err error) {
	t.Helper()
	var p *guard.PanicError
	if !errors.As(err, &p) || !strings.Contains(string(p.Stack), "guard_test.") {
		t.Errorf("%s: the error is %v, want one with the stack", name, err)
		return
	}
	if strings.Contains(err.Error(), "body") {
		t.Errorf("%s: the error shows what was read: %v", name, err)
	}
	var r runtime.Error
	if errors.Is(err, errStore) != (name == "error") || errors.As(err, &r) != (name == "runtime") {
		t.Errorf("%s: the error is not what was thrown: %v", name, err)
	}
}

func TestFlightsBeginNothingForWhoHasLeft(t *testing.T) {
	f := guard.NewFlights[string, int](t.Context(), time.Minute, 0)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	_, _, err := f.Do(ctx, "k", func(context.Context) (int, error) {
		t.Error("a run was begun")
		return 0, nil
	})
	if !errors.Is(err, errGone) {
		t.Fatal(err)
	}
	f.Wait()
}

// TestFlightsAtOnce is about the scheduler's real order: one run a key, no more than the
// limit, everybody gets what belongs to the key.
func TestFlightsAtOnce(t *testing.T) {
	f := guard.NewFlights[int, int](t.Context(), time.Minute, 8)
	var running [16]atomic.Int32
	var all, runs, shares, left atomic.Int32
	together(300, func(int) {
		for range 30 {
			k := rand.IntN(len(running))
			ctx, cancel := context.WithCancelCause(t.Context())
			if rand.IntN(4) == 0 {
				go cancel(errGone)
			}
			v, shared, err := f.Do(ctx, k, func(ctx context.Context) (int, error) {
				if running[k].Add(1) != 1 || all.Add(1) > 8 {
					t.Error("too many runs at once")
				}
				runs.Add(1)
				for range rand.IntN(20) {
					runtime.Gosched()
				}
				all.Add(-1)
				running[k].Add(-1)
				if ctx.Err() != nil {
					t.Error("the run's context was ended by a caller's")
				}
				return k * k, nil
			})
			cancel(nil)
			switch {
			case err == nil && v != k*k:
				t.Errorf("key %d: %d", k, v)
			case errors.Is(err, errGone):
				left.Add(1)
			case err != nil && !errors.Is(err, guard.ErrBusy):
				t.Error(err)
			case shared:
				shares.Add(1)
			}
		}
	})
	f.Wait()
	if f.Running() != 0 || runs.Load() == 0 || shares.Load() == 0 || left.Load() == 0 {
		t.Fatalf("%d runs, of which %d go on; %d calls shared one, %d left", runs.Load(), f.Running(), shares.Load(), left.Load())
	}
}

// late is a context that ends just after all runs have.
type late struct {
	context.Context
	f     *guard.Flights[int, int]
	ended atomic.Bool
}

func (c *late) Done() <-chan struct{} {
	c.f.Wait()
	c.ended.Store(true)
	done := make(chan struct{})
	close(done)
	return done
}

func (c *late) Err() error {
	if c.ended.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

// TestFlightsPreferTheResult to the end of the caller's time, when both are there.
func TestFlightsPreferTheResult(t *testing.T) {
	f := guard.NewFlights[int, int](t.Context(), time.Minute, 0)
	for range 100 {
		v, _, err := f.Do(&late{Context: t.Context(), f: f}, 1, func(context.Context) (int, error) { return 7, nil })
		if v != 7 || err != nil {
			t.Fatalf("%d, %v", v, err)
		}
	}
}
