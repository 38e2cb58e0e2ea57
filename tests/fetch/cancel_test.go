package fetch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/tests/late"
	"github.com/coldtier/coldtier/tests/stack"
)

// S5: a thousand calls, half of them cancelled at any time: those that are not are exact,
// and goroutines and connections are afterwards as many as before.
func testCancelled(t *testing.T, c *cold) {
	rng := random(t)
	labelled(t, func(goroutines func() int) {
		l := newLines(t, c)
		r := c.rig(t, l.through(), func(cfg *restore.Config, _ *restore.Deps) { cfg.Cache, cfg.Ahead = 1<<20, true })
		f := &faulty{rig: r, late: late.New(t), rng: rng, names: c.truth.names()}
		rest := func() (int, int) {
			t.Helper()
			f.quiet(t, l)
			_ = r.objects.b.Close() // what the bucket's client keeps depends on how many calls met
			return goroutines(), l.sockets(t)
		}
		f.judge(t, f.storm(t, 3*callers), 0.5)
		before, open := rest()
		for _, p := range l.all() {
			p.Latency(2 * time.Millisecond) // so that calls last long enough to be cancelled
		}
		cancelled := f.cancelHalf(t, number(t, 1000))
		for _, p := range l.all() {
			p.Heal()
		}
		f.healed(t)
		// Beyond what there was: the connections that pools keep, with a goroutine or two each.
		const most = 2 * (32 + 8)
		var after, left int
		if !until(closed, func() bool { after, left = rest(); return after <= before+most && left <= open+most }) {
			t.Errorf("%d goroutines, %d before; %d connections, %d before", after, before, left, open)
		}
		t.Logf("%d calls were cancelled; %d goroutines, %d before; %d connections, %d before", cancelled, after, before, left, open)
		r.close(t)
		if !until(closed, func() bool { return goroutines() <= 1 && l.sockets(t) == 0 }) {
			t.Errorf("after Close %d goroutines and %d connections are left", goroutines(), l.sockets(t))
		}
	})
}

// cancelHalf calls n times, several at once, and cancels every other call.
func (f *faulty) cancelHalf(t *testing.T, n int) (cancelled int) {
	t.Helper()
	type one struct {
		call
		after time.Duration // 0: never
	}
	calls := make(chan one, n)
	for c := range f.calls(n) {
		o := one{call: c}
		if len(calls)%2 == 0 {
			o.after = time.Duration(f.rng.IntN(20_000)) * time.Microsecond
		}
		calls <- o
	}
	close(calls)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range callers {
		wg.Go(func() {
			for c := range calls {
				ctx, cancel := context.WithCancel(t.Context())
				if c.after > 0 {
					time.AfterFunc(c.after, cancel)
				}
				_, err := c.run(ctx)
				mu.Lock()
				if ctx.Err() != nil {
					cancelled++
				}
				mu.Unlock()
				cancel()
				if err != nil {
					t.Errorf("%s, cancelled after %s: %v", c.text, c.after, err)
				}
			}
		})
	}
	wg.Wait()
	if cancelled == 0 {
		t.Error("no call was cancelled before its answer")
	}
	return cancelled
}

var errCancelled = errors.New("the call was cancelled")

// C3: 50 queries that are cancelled leave ClickHouse's pool of 5 connections as it was: the
// next one has its rows at once. (Where all connections are lost it waits ten seconds for
// one; how long the server takes for a query is not the pool's.)
func testCancelledQueries(t *testing.T, c *cold) {
	rng := random(t)
	watch := late.New(t)
	p := stack.NewProxy(t, c.ClickHouse.Addr)
	r := c.stores(t, through{clickhouse: p.Addr, maxConns: 5})
	name := c.truth.names()[0]
	ref := c.segments(name)[0]
	read := func(ctx context.Context) (int, error) {
		span := restore.Span{Copy: manifest.CopyID{Shard: ref.Slice.Shard, Day: ref.Slice.Day, Generation: ref.Generation, Attempt: ref.Attempt}, Min: ref.Span.MinCursor, Max: ref.Span.MaxCursor}
		b, err := r.rows.Spans(ctx, []restore.Span{span}, ref.Schema, []byte(name), 10_000)
		if err != nil {
			return 0, err
		}
		return b.Len(), nil
	}
	if n, err := read(t.Context()); err != nil || n != int(ref.Span.Rows) {
		t.Fatalf("%d rows, want %d; %v", n, ref.Span.Rows, err)
	}
	for range number(t, 2) {
		p.Latency(20 * time.Millisecond)
		cancelReads(t, rng, 50, read)
		p.Heal()
		begun := late.Now()
		n, err := read(t.Context())
		end := late.At(time.Now())
		if err != nil || n != int(ref.Span.Rows) {
			t.Errorf("%d rows, want %d; %v", n, ref.Span.Rows, err)
		}
		if took := end.Sub(begun.Time); took > 5*time.Second+watch.Between(begun, end) {
			t.Errorf("the next query took %s", took)
		}
		if !until(closed, func() bool { return sockets(t, p.Addr) <= 5 }) {
			t.Errorf("%d connections are open, the pool has 5", sockets(t, p.Addr))
		}
	}
}

// cancelReads reads n times at once and cancels each of them soon.
func cancelReads(t *testing.T, rng *rand.Rand, n int, read func(context.Context) (int, error)) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range errs {
		after := time.Duration(rng.IntN(60)) * time.Millisecond
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer time.AfterFunc(after, cancel).Stop()
			defer cancel()
			_, errs[i] = read(ctx)
			if ctx.Err() != nil && errs[i] != nil {
				errs[i] = errCancelled
			}
		})
	}
	wg.Wait()
	cancelled := 0
	for _, err := range errs {
		if errors.Is(err, errCancelled) {
			cancelled++
		} else if err != nil {
			t.Error(err)
		}
	}
	if cancelled < n/2 {
		t.Errorf("%d of %d queries were cancelled", cancelled, n)
	}
}
