package purge

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// pollEvery is how often a server's state is looked at: once a second while it is
// well, so that small chunks don't cost a look each, and once a second while waiting.
const pollEvery = time.Second

// throttle holds deletes back. It is not safe for concurrent use.
type throttle struct {
	hours      hours
	limiter    *rate.Limiter // nil: no limit
	burst      int
	maxLag     time.Duration
	maxThreads int
	maxWait    time.Duration
	now        func() time.Time
	sleep      func(ctx context.Context, d time.Duration) error
	seen       map[Server]time.Time // when a server was last found well
}

func newThrottle(c *Config) (*throttle, error) {
	h, err := parseHours(c.Hours, c.Zone)
	if err != nil {
		return nil, err
	}
	t := &throttle{hours: h, maxLag: c.MaxReplicaLag, maxThreads: c.MaxThreadsRunning, maxWait: c.MaxWait, now: c.Now, sleep: c.Sleep,
		seen: map[Server]time.Time{}}
	if c.RowsPerSecond > 0 {
		t.burst = c.RowsPerSecond // what one second may delete at once
		t.limiter = rate.NewLimiter(rate.Limit(c.RowsPerSecond), t.burst)
	}
	return t, nil
}

// wait returns when rows more may be deleted on the server: ErrHours when the
// allowed hours are over, ErrThrottled when the server is not well for too long.
func (t *throttle) wait(ctx context.Context, s Server, rows uint64) error {
	if err := t.tokens(ctx, rows); err != nil {
		return err
	}
	if err := t.well(ctx, s); err != nil {
		return err
	}
	return t.open() // last, since the waits above may have lasted
}

func (t *throttle) open() error {
	if now := t.now(); !t.hours.open(now) {
		return fmt.Errorf("%w: it is %s", ErrHours, now.In(t.hours.zone).Format("15:04 MST"))
	}
	return nil
}

// tokens takes one for each row. A chunk may be bigger than the bucket, so it takes
// them a bucket at a time.
func (t *throttle) tokens(ctx context.Context, rows uint64) error {
	if t.limiter == nil {
		return nil
	}
	for rows > 0 {
		if err := t.open(); err != nil {
			return err
		}
		n := min(rows, uint64(t.burst)) //nolint:gosec // positive
		now := t.now()
		r := t.limiter.ReserveN(now, int(n)) //nolint:gosec // at most the burst
		if d := r.DelayFrom(now); d > 0 {
			if err := t.sleep(ctx, d); err != nil {
				r.CancelAt(t.now())
				return err
			}
		}
		rows -= n
	}
	return nil
}

// well waits until the replicas' lag and the running threads are below their limits.
// A lag that can't be read counts as bad: a replica that doesn't answer may be far
// behind. A primary that doesn't answer is not waited for.
func (t *throttle) well(ctx context.Context, s Server) error {
	if t.maxLag == 0 && t.maxThreads == 0 {
		return nil
	}
	begun := t.now()
	if at, ok := t.seen[s]; ok && begun.Sub(at) < pollEvery {
		return nil
	}
	for {
		why, err := t.look(ctx, s)
		if err != nil {
			return err
		}
		if why == nil {
			t.seen[s] = t.now()
			return nil
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if waited := t.now().Sub(begun); waited >= t.maxWait {
			return fmt.Errorf("%w after waiting %s: %w", ErrThrottled, waited.Round(time.Second), why)
		}
		if err := t.open(); err != nil {
			return err
		}
		if err := t.sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// look says why the server is not well, or that it can't be asked.
func (t *throttle) look(ctx context.Context, s Server) (why, err error) {
	if t.maxLag > 0 {
		lag, err := s.Lag(ctx)
		if err != nil {
			return fmt.Errorf("replica lag: %w", err), nil
		}
		if lag > t.maxLag {
			return fmt.Errorf("a replica lags %s, more than purge.max_replica_lag %s", lag.Round(time.Second), t.maxLag), nil
		}
	}
	if t.maxThreads > 0 {
		n, err := s.ThreadsRunning(ctx)
		if err != nil {
			return nil, fmt.Errorf("running threads: %w", err)
		}
		if n > t.maxThreads {
			return fmt.Errorf("%d threads run, more than purge.max_threads_running %d", n, t.maxThreads), nil
		}
	}
	return nil, nil //nolint:nilnil // well, and asked
}
