package rehydrate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// pollEvery is how often the server's state is looked at, at most.
const pollEvery = time.Second

// throttle holds writes back, all writers together.
type throttle struct {
	limiter *rate.Limiter // nil: no limit
	burst   int
	cfg     *Config
	server  Server

	mu   sync.Mutex
	seen time.Time // when the server was last found well
}

func newThrottle(c *Config, s Server) *throttle {
	t := &throttle{cfg: c, server: s}
	if c.RowsPerSecond > 0 {
		t.burst = c.RowsPerSecond // what one second may write at once
		t.limiter = rate.NewLimiter(rate.Limit(c.RowsPerSecond), t.burst)
	}
	return t
}

// wait returns when rows more may be written.
func (t *throttle) wait(ctx context.Context, rows int) error {
	for t.limiter != nil && rows > 0 { // a batch may be bigger than the bucket
		n := min(rows, t.burst)
		now := t.cfg.Now()
		r := t.limiter.ReserveN(now, n)
		if d := r.DelayFrom(now); d > 0 {
			if err := t.cfg.Sleep(ctx, d); err != nil {
				r.CancelAt(t.cfg.Now())
				return err
			}
		}
		rows -= n
	}
	return t.well(ctx)
}

// well waits until the replicas' lag and the running threads are below their limits. A
// lag that can't be read counts as bad: the replica may be far behind.
func (t *throttle) well(ctx context.Context) error {
	if t.server == nil || t.cfg.MaxReplicaLag == 0 && t.cfg.MaxThreadsRunning == 0 {
		return nil
	}
	t.mu.Lock() // while one waits, all do
	defer t.mu.Unlock()
	begun := t.cfg.Now()
	if !t.seen.IsZero() && begun.Sub(t.seen) < pollEvery {
		return nil
	}
	for {
		why := t.look(ctx)
		if why == nil {
			t.seen = t.cfg.Now()
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if waited := t.cfg.Now().Sub(begun); waited >= t.cfg.MaxWait {
			return fmt.Errorf("%w, %s: %w", ErrThrottled, waited.Round(time.Second), why)
		}
		if err := t.cfg.Sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// look says why the server is not well.
func (t *throttle) look(ctx context.Context) error {
	if limit := t.cfg.MaxReplicaLag; limit > 0 {
		lag, err := t.server.Lag(ctx)
		if err != nil {
			return fmt.Errorf("replica lag: %w", err)
		}
		if lag > limit {
			return fmt.Errorf("a replica lags %s, more than %s", lag.Round(time.Second), limit)
		}
	}
	if limit := t.cfg.MaxThreadsRunning; limit > 0 {
		n, err := t.server.ThreadsRunning(ctx)
		if err != nil {
			return fmt.Errorf("running threads: %w", err)
		}
		if n > limit {
			return fmt.Errorf("%d threads run, more than %d", n, limit)
		}
	}
	return nil
}
