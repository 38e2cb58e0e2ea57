package purge_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// J3: two workers with the same plan: each slice is purged once.
func TestTwoWorkers(t *testing.T) {
	t.Parallel()
	strategies(t, func(t *testing.T, partitioned bool) {
		l := newLab(t, partitioned, 4, 150)
		l.archiveAll()
		reps, errs := make([]*purge.Report, 2), make([]error, 2)
		var wg sync.WaitGroup
		for i := range reps {
			p := l.purger(now, l.openTable())
			plan, err := p.Plan(t.Context(), purge.Selection{})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { reps[i], errs[i] = p.Execute(t.Context(), plan) })
		}
		wg.Wait()
		if n := reps[0].Rows + reps[1].Rows; n != 600 {
			t.Errorf("%d rows were deleted in all: %+v %v, %+v %v", n, reps[0], errs[0], reps[1], errs[1])
		}
		for i := range l.days {
			l.want(i, manifest.Purged, 0)
		}
		l.safe()
	})
}

// A lock that is gone a little later costs no second run: locked slices are tried once more.
func TestLockedIsTriedOnceMore(t *testing.T) {
	t.Parallel()
	strategies(t, func(t *testing.T, partitioned bool) {
		l := newLab(t, partitioned, 2, 250)
		l.archiveAll()
		tx, err := l.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		var id uint64
		if err := tx.QueryRowContext(t.Context(), "SELECT msg_id FROM "+tableName+" WHERE msg_id = ? FOR UPDATE", l.id(0, 249)).Scan(&id); err != nil {
			t.Fatal(err)
		}
		slept := 0
		rep, err := l.purge(func(c *purge.Config) {
			now(c)
			c.Sleep = func(context.Context, time.Duration) error { slept++; return tx.Rollback() }
		})
		if err != nil || slept != 1 || rep.Count(purge.Purged) != 2 || rep.Rows != 500 {
			t.Fatalf("report %+v, %v, slept %d times", rep, err, slept)
		}
		l.safe()
	})
}

// Another run holds everything that is due.
func TestAllLeased(t *testing.T) {
	t.Parallel()
	l := newLab(t, byRows, 1, 50)
	s := l.archive(0)
	if _, err := l.store.Claim(t.Context(), s.ID, "other", []manifest.State{manifest.Verified}, manifest.Verified); err != nil {
		t.Fatal(err)
	}
	if rep, err := l.purge(now); !errors.Is(err, purge.ErrLeased) {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.want(0, manifest.Verified, 50)
}

// held is a pace that ends a run after some chunks, by an error of its own.
type held struct {
	after   int
	err     error
	waited  int
	deleted uint64
	stopped func() error
}

func (h *held) Wait(context.Context, manifest.Shard) error {
	if h.waited++; h.waited > h.after {
		return h.err
	}
	return nil
}
func (h *held) Ready(ctx context.Context, s manifest.Shard) (time.Duration, error) {
	return 0, h.Wait(ctx, s)
}
func (h *held) Deleted(_ manifest.Shard, rows uint64) { h.deleted += rows }
func (h *held) Stopped(context.Context) error {
	if h.stopped == nil {
		return nil
	}
	return h.stopped()
}

// shortly is a pace that lets nothing begin until it was asked some times.
type shortly struct {
	held
	asks int
}

func (s *shortly) Ready(context.Context, manifest.Shard) (time.Duration, error) {
	if s.asks--; s.asks >= 0 {
		return 7 * time.Millisecond, nil
	}
	return 0, nil
}

// A server that pauses for a while is waited for before its slices are claimed, oldest first.
func TestPausedServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	l := newLab(t, byRows, 2, 50)
	l.archiveAll()
	slept := 0
	rep, err := l.purge(func(c *purge.Config) {
		now(c)
		c.Pace = &shortly{held: held{after: 1000}, asks: 3}
		c.Sleep = func(_ context.Context, d time.Duration) error {
			if s := l.slice(0); d != 7*time.Millisecond || s.State != manifest.Verified || s.LeaseUntil != nil {
				t.Errorf("a wait of %s while the slice is %+v", d, s)
			}
			slept++
			return nil
		}
	})
	if err != nil || slept != 3 || rep.Count(purge.Purged) != 2 || rep.Slices[1].Day.Before(rep.Slices[0].Day) {
		t.Fatalf("report %+v, %v, slept %d times", rep, err, slept)
	}
	l.safe()
}

// M14: whatever holds a purge back, it ends between chunks and the next run goes on.
func TestHeldBackPurgeGoesOn(t *testing.T) {
	t.Parallel()
	for cause, outcome := range map[error]purge.Outcome{purge.ErrThrottled: purge.Throttled, purge.ErrHours: purge.Throttled, purge.ErrStopped: purge.Stopped} {
		t.Run(string(outcome)+" "+cause.Error(), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, byRows, 2, 450)
			l.archiveAll()
			pace := &held{after: 3, err: cause} // before the slice, and before two of its chunks
			rep, err := l.purge(func(c *purge.Config) {
				now(c)
				c.Pace = pace
			})
			if !errors.Is(err, purge.ErrPartly) || rep.Count(outcome) != 2 || rep.Rows == 0 || rep.Rows != pace.deleted {
				t.Fatalf("report %+v, %v", rep, err)
			}
			if s := l.slice(0); s.State != manifest.Verified {
				t.Errorf("slice %+v", s)
			}
			l.safe()
			if again, err := l.purge(now); err != nil || again.Rows+rep.Rows != 900 {
				t.Fatalf("report %+v, %v", again, err)
			}
			l.want(0, manifest.Purged, 0)
			l.safe()
		})
	}
}

// A stop that comes while a partition is isolated puts its rows back: they would be out
// of their users' sight for as long as it lasts.
func TestStopBeforeTheDropPutsRowsBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, byPartition, 1, 50)
	l.archiveAll()
	exchanged := false
	rep, err := l.purge(func(c *purge.Config) {
		now(c)
		c.Pace = &held{after: 100, stopped: func() error {
			if exchanged {
				return purge.ErrStopped
			}
			return nil
		}}
		c.Steps = func(s string) error {
			exchanged = exchanged || s == purge.StepExchanged
			return nil
		}
	})
	if !errors.Is(err, purge.ErrPartly) || rep.Count(purge.Stopped) != 1 || rep.Rows != 0 || !exchanged {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.want(0, manifest.Verified, 50)
	if again, err := l.purge(now); err != nil || again.Rows != 50 {
		t.Fatalf("report %+v, %v", again, err)
	}
	l.safe()
}

func TestConfigRefuses(t *testing.T) {
	good := purge.Config{Owner: "w", Now: time.Now, Sleep: sleep}
	for name, spoil := range map[string]func(*purge.Config){
		"strategy": func(c *purge.Config) { c.Strategy = "truncate" },
		"owner":    func(c *purge.Config) { c.Owner = "" },
		"lag":      func(c *purge.Config) { c.Lag = -1 },
		"clock":    func(c *purge.Config) { c.Now = nil },
		"sleep":    func(c *purge.Config) { c.Sleep = nil },
	} {
		c := good
		spoil(&c)
		if _, err := purge.New(c, nil, nil, nil, nil, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("a bad %s is taken", name)
		}
	}
	if _, err := purge.New(good, nil, nil, nil, nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("the least configuration: %v", err)
	}
}

// J6: 500 deletes that fail end with an error, not a hang.
func TestFailingDeletesEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t, byRows, 8, 50)
	l.archiveAll()
	broken := errors.New("disk is full")
	tab := &failing{l.tab, broken}
	p := l.purger(now, tab)
	plan, err := p.Plan(t.Context(), purge.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	for len(plan.Jobs) < 500 {
		plan.Jobs = append(plan.Jobs, plan.Jobs[len(plan.Jobs)%8])
	}
	rep, err := p.Execute(t.Context(), plan)
	if !errors.Is(err, broken) || errors.Is(err, purge.ErrPartly) || len(rep.Slices) != 500 || rep.Count(purge.Failed) != 5 || rep.Count(purge.LeftOver) != 495 {
		t.Fatalf("%d failed, %d left, %v", rep.Count(purge.Failed), rep.Count(purge.LeftOver), err)
	}
	l.want(0, manifest.Verified, 50)
	if rep, err := l.purge(now); err != nil {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.safe()
}

type failing struct {
	*table
	err error
}

func (f *failing) DeleteChunk(context.Context, *manifest.PurgeGrant, manifest.Chunk) error {
	return f.err
}

// A stopped run gives its slice back and names what it left.
func TestStop(t *testing.T) {
	t.Parallel()
	l := newLab(t, byRows, 3, 330)
	l.archiveAll()
	ctx, cancel := context.WithCancel(t.Context())
	p := l.purger(func(c *purge.Config) {
		now(c)
		c.Steps = func(s string) error {
			if s == purge.StepChunkRecorded {
				cancel()
			}
			return nil
		}
	})
	plan, err := p.Plan(t.Context(), purge.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := p.Execute(ctx, plan)
	if err == nil || len(rep.Slices) != 3 || rep.Count(purge.Purged) != 0 {
		t.Fatalf("report %+v, %v", rep, err)
	}
	if s := l.slice(0); s.State != manifest.Verified {
		t.Errorf("slice %+v", s)
	}
	l.safe()
	if _, err := l.purge(now); err != nil { // at once: no lease is left
		t.Fatal(err)
	}
	l.want(0, manifest.Purged, 0)
}

// Selection narrows the plan.
func TestSelection(t *testing.T) {
	t.Parallel()
	l := newLab(t, byRows, 3, 20)
	l.archiveAll()
	p := l.purger(now)
	for _, c := range []struct {
		sel  purge.Selection
		want []snowflake.Day
	}{
		{purge.Selection{From: &l.days[1]}, l.days[1:]},
		{purge.Selection{To: &l.days[0]}, l.days[:1]},
		{purge.Selection{Shard: "nothing.*"}, nil},
	} {
		plan, err := p.Plan(t.Context(), c.sel)
		if err != nil {
			t.Fatal(err)
		}
		var got []snowflake.Day
		for _, j := range plan.Jobs {
			got = append(got, j.Slices[0].Day)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v selects %v, want %v", c.sel, got, c.want)
		}
	}
}

func TestUnknownTableIsNamed(t *testing.T) {
	t.Parallel()
	l := newLab(t, byRows, 1, 20)
	l.archiveAll()
	p, err := purge.New(purge.Config{Owner: "w", Now: time.Now, Sleep: sleep}, l.store, nil, l.stores, l.stores, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(t.Context(), purge.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	if rep, err := p.Execute(t.Context(), plan); !errors.Is(err, purge.ErrPartly) || !strings.Contains(err.Error(), tableName) {
		t.Errorf("report %+v, %v", rep, err)
	}
}
