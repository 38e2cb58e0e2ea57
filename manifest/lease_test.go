package manifest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/stack"
)

// J3: of two processes that claim one slice at once, and of twenty, exactly one
// has it, and the others are told so.
func TestManyClaimOneSliceOneHasIt(t *testing.T) {
	t.Parallel()
	dsn := stack.MySQL(t)
	a, b := openAt(t, dsn, testSource, time.Minute), openAt(t, dsn, testSource, time.Minute)
	if _, err := a.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for day := 1; day <= 5; day++ {
		sl := testSlice(t, a, day)
		var won atomic.Int32
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range 20 {
			wg.Go(func() {
				<-start
				l, err := []*Store{a, b}[i%2].Claim(t.Context(), sl.ID, "w", []State{Pending, Copying}, Copying)
				switch {
				case err == nil:
					won.Add(1)
					if l.Token() != 1 {
						t.Errorf("token %d", l.Token())
					}
				case !errors.Is(err, ErrLeased):
					t.Errorf("claim: %v", err)
				}
			})
		}
		close(start)
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("day %d: %d have the slice", day, won.Load())
		}
	}
}

// The same step by twenty goroutines with one lease has its effect once.
func TestStepsRacedTwentyfold(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	sl := testSlice(t, s, 1)
	l := claim(t, s, sl.ID, Pending, Copying)
	c := testCopy(t, l.Slice(), 1, l.Attempt(), 20)
	race := func(name string, step func() error, allowed ...error) (won int) {
		t.Helper()
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				err := step()
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
					return
				}
				for _, a := range allowed {
					if errors.Is(err, a) {
						return
					}
				}
				t.Errorf("%s: %v", name, err)
			})
		}
		wg.Wait()
		return won
	}
	// The others insert the same keys and wait for the first; then they find it done.
	if won := race("commit", func() error { return s.Commit(t.Context(), l, c, "k", [32]byte{}) }); won != 20 {
		t.Errorf("%d commits of one attempt say it is there", won)
	}
	if back, err := s.LoadCopy(t.Context(), sl.ID, 1); err != nil || diff(c, back) != "" {
		t.Errorf("the copy came to be %s, %v", diff(c, back), err)
	}
	race("verified", func() error { return s.Verified(t.Context(), l, 1) })
	if err := l.Release(t.Context(), Verified); err != nil {
		t.Fatal(err)
	}
	pl := claim(t, s, sl.ID, Verified, "")
	g, err := s.GrantPurge(t.Context(), pl, 0)
	if err != nil {
		t.Fatal(err)
	}
	race("delete chunks", func() error {
		for i := range 4 {
			if err := errors.Join(g.ChunkState(t.Context(), i, ChunkDeleting), g.ChunkState(t.Context(), i, ChunkDeleted)); err != nil {
				return err
			}
		}
		return nil
	}, ErrState) // deleted -> deleting is refused
	if won := race("purged", func() error { return g.Purged(t.Context()) }, ErrLeaseLost); won < 1 {
		t.Error("no purge ended")
	}
	for range 3 {
		if err := s.ReopenLate(t.Context(), sl.ID); err != nil {
			t.Errorf("reopen: %v", err)
		}
	}
}

// pause lets a lease run out, as a worker that is stopped that long would.
func pause(t *testing.T, s *Store, l *Lease) {
	t.Helper()
	id, ttl := l.id, s.ttl
	s.ttl = 200 * time.Millisecond
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ttl = ttl
	for {
		var over bool
		if err := s.db.QueryRowContext(ctxIn(t, time.Minute), "SELECT lease_until <= UTC_TIMESTAMP(6) FROM slices WHERE id = ?", id).Scan(&over); err != nil {
			t.Fatal(err)
		}
		if over {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A worker that was paused beyond its lease can change nothing, whether another
// has the slice meanwhile or not.
func TestPausedBeyondItsLeaseAWorkerCanDoNothing(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		s := open(t, time.Minute)
		ctx := t.Context()
		check := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, ErrLeaseLost) {
				t.Errorf("taken %t, %s: %v", taken, what, err)
			}
		}
		next := func(l *Lease, from State, to State) {
			pause(t, s, l)
			if taken {
				claim(t, s, l.id, from, to)
			}
		}
		// While copying.
		sl := testSlice(t, s, 1)
		l := claim(t, s, sl.ID, Pending, Copying)
		c := testCopy(t, l.Slice(), 1, l.Attempt(), 3)
		next(l, Copying, Copying)
		before, _ := s.Slice(ctx, sl.ID)
		check("commit", s.Commit(ctx, l, c, "k", [32]byte{}))
		check("renew", l.Renew(ctx))
		check("release", l.Release(ctx, Pending))
		check("fail", s.Fail(ctx, l, errors.New("x")))
		check("reopen", s.Reopen(ctx, l, ReasonMismatch))
		if after, _ := s.Slice(ctx, sl.ID); after.State != before.State || after.Generation != 0 || after.Failed {
			t.Errorf("taken %t: the slice changed to %+v", taken, after)
		}
		var rows int
		if err := s.db.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM chunks) + (SELECT COUNT(*) FROM objects) + (SELECT COUNT(*) FROM segments) + (SELECT COUNT(*) FROM copies)").Scan(&rows); err != nil || rows != 0 {
			t.Errorf("taken %t: the refused commit left %d rows, %v", taken, rows, err)
		}
		// While committed.
		sl = testSlice(t, s, 2)
		l, _ = commitCopy(t, s, sl, 3)
		next(l, Committed, Committed)
		check("verified", s.Verified(ctx, l, 1))
		// While purging.
		sl = testSlice(t, s, 3)
		verified(t, s, sl, 3)
		l = claim(t, s, sl.ID, Verified, "")
		g, err := s.GrantPurge(ctx, l, 0)
		if err != nil {
			t.Fatal(err)
		}
		next(l, Purging, Purging)
		check("check", g.Check(ctx))
		check("chunk", g.ChunkState(ctx, 0, ChunkDeleting))
		check("staging", g.Staging(ctx, "x"))
		check("staging returned", g.Staging(ctx, ""))
		check("purged", g.Purged(ctx))
		check("drifted", g.Drifted(ctx, "x"))
		check("give back", g.GiveBack(ctx))
		_, err = s.GrantPurge(ctx, l, 0)
		check("grant", err)
		if cp, err := s.LoadCopy(ctx, sl.ID, 1); err != nil || cp.Chunks[0].State != ChunkPresent {
			t.Errorf("taken %t: chunk is %v, %v", taken, cp.Chunks[0].State, err)
		}
	}
}

// A server or a DSN with autocommit off would keep each lease and state to the
// connection that wrote it.
func TestWritesAreCommittedWithoutAutocommit(t *testing.T) {
	t.Parallel()
	dsn := stack.MySQL(t)
	s := openAt(t, dsn+"?autocommit=0", testSource, time.Minute)
	if _, err := s.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	sl := testSlice(t, s, 1)
	l := claim(t, s, sl.ID, Pending, Copying)
	other := openAt(t, dsn, testSource, time.Minute)
	if err := l.Release(t.Context(), Pending); err != nil {
		t.Fatal(err)
	}
	if got, err := other.Slice(t.Context(), sl.ID); err != nil || got.State != Pending || got.LeaseUntil != nil {
		t.Errorf("another connection sees %+v, %v", got, err)
	}
}

func TestTokensOnlyGrow(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	sl := testSlice(t, s, 1)
	seen := map[string]bool{}
	for want := uint64(1); want <= 4; want++ {
		from := Copying
		if want == 1 {
			from = Pending
		}
		l := claim(t, s, sl.ID, from, Copying)
		if l.Token() != want || seen[l.Attempt()] {
			t.Errorf("token %d, attempt %s, want token %d", l.Token(), l.Attempt(), want)
		}
		seen[l.Attempt()] = true
		if _, err := s.Claim(t.Context(), sl.ID, "other", []State{Copying}, Copying); !errors.Is(err, ErrLeased) {
			t.Errorf("claim of a leased slice: %v", err)
		}
		if want%2 == 0 {
			pause(t, s, l)
		} else if err := l.Release(t.Context(), Copying); err != nil {
			t.Fatal(err)
		}
	}
}

// Keep moves a lease's end on and on, and ends its context with ErrLeaseLost when
// the lease is gone.
func TestKeep(t *testing.T) {
	t.Parallel()
	s := open(t, 6*time.Second)
	sl := testSlice(t, s, 1)
	l := claim(t, s, sl.ID, Pending, Copying)
	ctx, stop := l.Keep(t.Context())
	defer stop()
	limit := ctxIn(t, time.Minute)
	for last, moved := *l.Slice().LeaseUntil, 0; moved < 3; time.Sleep(50 * time.Millisecond) {
		if until := slice(t, s, sl.ID).LeaseUntil; until.After(last) {
			last = *until
			moved++
		}
		if limit.Err() != nil {
			t.Fatalf("the lease's end moved %d times in a minute", moved)
		}
	}
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	if _, err := s.db.ExecContext(t.Context(), "UPDATE slices SET lease_token = lease_token + 1"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-ctxIn(t, time.Minute).Done():
		t.Fatal("the context outlives its lease")
	}
	// Told by the server, not by the time that has passed without a renewal.
	if err := context.Cause(ctx); !errors.Is(err, ErrLeaseLost) || !strings.Contains(err.Error(), "another worker") {
		t.Errorf("cause: %v", err)
	}
}

// Keep ends its context when the database cannot be reached for as long as the
// lease lasts.
func TestKeepEndsWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	dsn := stack.MySQL(t)
	p := proxyTo(t, dsn)
	s := openAt(t, p.dsn, testSource, time.Second)
	if _, err := s.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	l := claim(t, s, testSlice(t, s, 1).ID, Pending, Copying)
	ctx, stop := l.Keep(t.Context())
	defer stop()
	p.stall()
	select {
	case <-ctx.Done():
	case <-ctxIn(t, 30*time.Second).Done(): // the driver's own limit is a minute
		t.Fatal("the context outlives its lease")
	}
	if err := context.Cause(ctx); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("cause: %v", err)
	}
}

// A lease that the work itself has ended is not lost.
func TestKeepAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	l := claim(t, s, testSlice(t, s, 1).ID, Pending, Copying)
	if err := s.Fail(t.Context(), l, errors.New("no bucket")); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context(), Pending); err != nil {
		t.Errorf("release after the end: %v", err)
	}
	ctx, stop := l.Keep(t.Context())
	time.Sleep(300 * time.Millisecond) // it renews at once
	stop()
	if err := context.Cause(ctx); errors.Is(err, ErrLeaseLost) {
		t.Errorf("cause: %v", err)
	}
}
