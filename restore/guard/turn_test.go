package guard_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coldtier/coldtier/restore/guard"
)

// version is a store with a number that only grows.
type version struct {
	now           atomic.Int64
	runs, abreast atomic.Int32
	most          atomic.Int32
	took          func() time.Duration // of a read; 0 is none
}

// read takes the number at its beginning: the oldest it may give.
func (s *version) read(ctx context.Context) (int64, error) {
	v := s.now.Load()
	s.runs.Add(1)
	n := s.abreast.Add(1)
	for m := s.most.Load(); n > m && !s.most.CompareAndSwap(m, n); m = s.most.Load() {
	}
	defer s.abreast.Add(-1)
	return v, until(ctx, s.took())
}

// TestTurnIsNeverOlderThanTheQuestion changes what is read all the time.
func TestTurnIsNeverOlderThanTheQuestion(t *testing.T) {
	for name, most := range map[string]time.Duration{"quick": 49 * time.Millisecond, "sometimes slow": 400 * time.Millisecond} {
		r := random(t)
		seed := r.Uint64()
		synctest.Test(t, func(t *testing.T) {
			var s version
			s.took = func() time.Duration { return 1 + rand.N(most) }
			turn := guard.NewTurn(t.Context(), time.Minute, s.read)
			together(300, func(i int) {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				for range 10 {
					time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
					asked := s.now.Add(1)
					v, err := turn.Get(t.Context())
					if err != nil || v < asked {
						t.Errorf("%s: asked at %d, got what was read at %d (%v)", name, asked, v, err)
					}
				}
			})
			turn.Wait()
			limit := int32(1)
			if most > 50*time.Millisecond {
				limit = 4
			}
			if s.most.Load() != limit || s.runs.Load() > 300 {
				t.Errorf("%s: %d runs for 3,000 calls, up to %d at once", name, s.runs.Load(), s.most.Load())
			}
			t.Logf("%s: %d runs for 3,000 calls", name, s.runs.Load())
		})
	}
}

// TestTurnAtOnce is the same in the scheduler's real order.
func TestTurnAtOnce(t *testing.T) {
	var now, runs atomic.Int64
	turn := guard.NewTurn(t.Context(), time.Minute, func(context.Context) (int64, error) {
		v := now.Load()
		runs.Add(1)
		for range 10 {
			runtime.Gosched()
		}
		return v, nil
	})
	var got atomic.Int64
	together(300, func(int) {
		for range 30 {
			ctx, cancel := context.WithCancelCause(t.Context())
			if rand.IntN(4) == 0 {
				go cancel(errGone)
			}
			asked := now.Add(1)
			v, err := turn.Get(ctx)
			cancel(nil)
			switch {
			case errors.Is(err, errGone):
			case err != nil || v < asked:
				t.Errorf("asked at %d, got what was read at %d (%v)", asked, v, err)
			default:
				got.Add(1)
			}
		}
	})
	turn.Wait()
	if got.Load() < 2*runs.Load() {
		t.Errorf("%d runs for %d answers", runs.Load(), got.Load())
	}
}

// TestTurnGoesRoundARunThatHangs: the first read hangs. Those who come later wait 50 ms
// of its age at most, and who waits for it gets what the next one read.
func TestTurnGoesRoundARunThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		var cause atomic.Value
		turn := guard.NewTurn(t.Context(), 10*time.Second, func(ctx context.Context) (int32, error) {
			n := runs.Add(1)
			if n > 1 {
				return n, until(ctx, 5*time.Millisecond)
			}
			err := until(ctx, time.Hour)
			cause.Store(err)
			return n, err
		})
		begun := time.Now()
		for _, after := range []time.Duration{0, 0, 10, 20, 49} {
			go func() {
				time.Sleep(after * time.Millisecond)
				v, err := turn.Get(t.Context())
				if d := time.Since(begun); v != 2 || err != nil || d != 55*time.Millisecond {
					t.Errorf("asked after %d ms: %d, %v after %v", after, v, err, d)
				}
			}()
		}
		time.Sleep(54 * time.Millisecond)
		if runs.Load() != 2 {
			t.Fatalf("%d runs after 54 ms", runs.Load())
		}
		turn.Wait()
		if d := time.Since(begun); d != 55*time.Millisecond || !errors.Is(cause.Load().(error), context.Canceled) {
			t.Fatalf("the run that hangs ended with %v after %v", cause.Load(), d)
		}
	})
}

// TestTurnKeepsOneYoungRun: that an old run ends is no reason to begin another one
// beside a young one.
func TestTurnKeepsOneYoungRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var mu sync.Mutex
		var runs []time.Duration // when they began
		turn := guard.NewTurn(t.Context(), time.Minute, func(ctx context.Context) (int, error) {
			mu.Lock()
			n := len(runs)
			runs = append(runs, time.Since(begun))
			mu.Unlock()
			return n, until(ctx, []time.Duration{60, 30, 10}[n]*time.Millisecond)
		})
		for _, after := range []time.Duration{0, 1, 55} {
			go func() {
				time.Sleep(after * time.Millisecond)
				if _, err := turn.Get(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(time.Second)
		turn.Wait()
		want := []time.Duration{0, 50 * time.Millisecond, 80 * time.Millisecond}
		if !slices.Equal(runs, want) {
			t.Fatalf("runs began at %v, want %v", runs, want)
		}
	})
}

// TestTurnWhenAllHang: four at once, then the next as soon as one has ended.
func TestTurnWhenAllHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s version
		s.took = func() time.Duration { return time.Hour }
		turn := guard.NewTurn(t.Context(), time.Second, s.read)
		begun := time.Now()
		type end struct {
			after time.Duration
			err   error
		}
		ends := make(chan end, 100)
		for range 50 {
			go func() {
				_, err := turn.Get(t.Context())
				ends <- end{time.Since(begun), err}
			}()
			time.Sleep(10 * time.Millisecond)
		}
		if s.runs.Load() != 4 {
			t.Fatalf("%d runs after half a second", s.runs.Load())
		}
		turn.Wait()
		if s.most.Load() != 4 || s.runs.Load() != 5 {
			t.Fatalf("%d runs, up to %d at once", s.runs.Load(), s.most.Load())
		}
		synctest.Wait()
		close(ends)
		n, last := 0, 0
		for e := range ends {
			n++
			if !errors.Is(e.err, context.DeadlineExceeded) || e.after > 2*time.Second {
				t.Errorf("%v after %v", e.err, e.after)
			}
			if e.after == 2*time.Second {
				last++ // began when the first ended
			}
		}
		if n != 50 || last < 30 {
			t.Errorf("%d ends, %d of the last run", n, last)
		}
	})
}

func TestTurnLeavesOutWhatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s version
		s.took = func() time.Duration { return 30 * time.Millisecond }
		turn := guard.NewTurn(t.Context(), time.Minute, s.read)
		go func() {
			if _, err := turn.Get(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		together(100, func(int) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errGone)
			defer cancel()
			begun := time.Now()
			if _, err := turn.Get(ctx); !errors.Is(err, errGone) || time.Since(begun) != 10*time.Millisecond {
				t.Errorf("a caller that left: %v after %v", err, time.Since(begun))
			}
		})
		turn.Wait()
		if s.runs.Load() != 1 {
			t.Fatalf("%d runs: nobody waited for another one", s.runs.Load())
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errGone)
		defer cancel()
		if _, err := turn.Get(ctx); !errors.Is(err, errGone) {
			t.Fatal(err)
		}
		if _, err := turn.Get(ctx); !errors.Is(err, errGone) {
			t.Fatal(err)
		}
		begun := time.Now()
		turn.Wait()
		if d := time.Since(begun); d != 20*time.Millisecond || s.runs.Load() != 2 {
			t.Fatalf("the run of a caller that left ended after %v", d)
		}
		_, err := turn.Get(ctx)
		turn.Wait()
		if !errors.Is(err, errGone) || s.runs.Load() != 2 {
			t.Fatalf("%d runs for a caller that had left (%v)", s.runs.Load(), err)
		}
	})
}

func TestTurnTellsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		turn := guard.NewTurn(t.Context(), time.Minute, func(ctx context.Context) (int32, error) {
			n := runs.Add(1)
			_ = until(ctx, time.Duration(n)*20*time.Millisecond)
			switch n {
			case 1:
				return 0, errStore
			case 2:
				panic("a message's body")
			case 3:
				runtime.Goexit()
			}
			return n, nil
		})
		get := func(n int32, check func(v int32, err error)) {
			go func() { check(turn.Get(t.Context())) }()
			synctest.Wait()
			if runs.Load() != n {
				t.Errorf("%d runs, want %d", runs.Load(), n)
			}
		}
		get(1, func(_ int32, err error) {
			if !errors.Is(err, errStore) {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		get(2, func(_ int32, err error) { wantPanic(t, "value", err) })
		time.Sleep(time.Second)
		get(3, func(_ int32, err error) { wantPanic(t, "goexit", err) })
		time.Sleep(51 * time.Millisecond)
		get(4, func(v int32, err error) {
			if v != 4 || err != nil {
				t.Error(v, err)
			}
		})
		turn.Wait()
	})
}

// TestTurnLaterErrorsAreNotForEarlierCallers: a read that is slow may yet succeed.
func TestTurnLaterErrorsAreNotForEarlierCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		turn := guard.NewTurn(t.Context(), time.Minute, func(ctx context.Context) (int32, error) {
			if n := runs.Add(1); n > 1 {
				return n, errStore
			}
			return 1, until(ctx, time.Second)
		})
		go func() {
			if v, err := turn.Get(t.Context()); v != 1 || err != nil {
				t.Errorf("%d, %v", v, err)
			}
		}()
		synctest.Wait()
		if _, err := turn.Get(t.Context()); !errors.Is(err, errStore) {
			t.Error(err)
		}
		turn.Wait()
	})
}

func TestTurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, stop := context.WithCancelCause(t.Context())
		var s version
		s.took = func() time.Duration { return time.Hour }
		turn := guard.NewTurn(base, 0, s.read)
		for range 100 {
			go func() {
				if _, err := turn.Get(context.Background()); !errors.Is(err, errStop) {
					t.Error(err)
				}
			}()
			time.Sleep(7 * time.Millisecond)
		}
		begun := time.Now()
		stop(errStop)
		turn.Wait()
		synctest.Wait()
		if time.Since(begun) != 0 || s.runs.Load() != 4 {
			t.Errorf("%d runs; the end took %v", s.runs.Load(), time.Since(begun))
		}
		if _, err := turn.Get(context.Background()); !errors.Is(err, errStop) {
			t.Errorf("a call after the end: %v", err)
		}
	})
}

func BenchmarkTurn(b *testing.B) {
	turn := guard.NewTurn(b.Context(), time.Minute, func(context.Context) (int, error) { return 1, nil })
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := turn.Get(b.Context()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
