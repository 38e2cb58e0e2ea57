package manifest

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// expireJob lets a job's lease run out by the database's clock, as a process that is stopped
// that long would.
func expireJob(t *testing.T, s *Store, name string) {
	t.Helper()
	if n, err := exec(t.Context(), s.db, "UPDATE job_leases SET until = UTC_TIMESTAMP(6) - INTERVAL 1 MICROSECOND WHERE name = ? AND until IS NOT NULL", name); err != nil || n != 1 {
		t.Fatalf("%d leases, %v", n, err)
	}
}

func claimJob(t *testing.T, s *Store, c JobClaim) *JobLease {
	t.Helper()
	l, err := s.ClaimJob(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// One process has a job's lease at a time; the fence grows with every claim.
func TestJobLease(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	a := claimJob(t, s, JobClaim{Name: "patrol", Owner: "a"})
	if _, err := s.ClaimJob(ctx, JobClaim{Name: "patrol", Owner: "b"}); !errors.Is(err, ErrLeased) || !strings.Contains(err.Error(), "a until ") {
		t.Errorf("claimed twice: %v", err)
	}
	if err := a.Renew(ctx); err != nil {
		t.Error(err)
	}
	if err := a.Release(ctx, time.Time{}); err != nil {
		t.Error(err)
	}
	if err := a.Renew(ctx); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("renewed after its release: %v", err)
	}
	b := claimJob(t, s, JobClaim{Name: "patrol", Owner: "b"})
	if a.Fence() != 1 || b.Fence() != 2 {
		t.Errorf("fences %d and %d, want 1 and 2", a.Fence(), b.Fence())
	}
	// Another source's job of the same name is another job.
	other := &Store{db: s.db, log: s.log, source: "other", ttl: s.ttl}
	if l := claimJob(t, other, JobClaim{Name: "patrol", Owner: "c"}); l.Fence() != 1 {
		t.Errorf("fence %d of another source", l.Fence())
	}
	for _, name := range []string{"", strings.Repeat("x", 256)} {
		if _, err := s.ClaimJob(ctx, JobClaim{Name: name}); err == nil {
			t.Errorf("a name of %d bytes is taken", len(name))
		}
	}
}

// A lease runs out by the database's clock. Whoever was paused that long keeps it if nobody
// has claimed it meanwhile, and else can neither renew nor release it.
func TestPausedHolderOfAJobLease(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	a := claimJob(t, s, JobClaim{Name: "drill", Owner: "a"})
	expireJob(t, s, "drill")
	if err := a.Renew(ctx); err != nil {
		t.Fatalf("nobody has claimed it: %v", err)
	}
	if _, err := s.ClaimJob(ctx, JobClaim{Name: "drill", Owner: "b"}); !errors.Is(err, ErrLeased) {
		t.Fatalf("a revived lease was claimed: %v", err)
	}
	expireJob(t, s, "drill")
	b := claimJob(t, s, JobClaim{Name: "drill", Owner: "b"})
	if b.Fence() <= a.Fence() {
		t.Errorf("the fence went from %d to %d", a.Fence(), b.Fence())
	}
	if err := a.Renew(ctx); !errors.Is(err, ErrLeaseLost) || !strings.Contains(err.Error(), "(b) has fence 2, this one 1") {
		t.Errorf("renewed another's lease: %v", err)
	}
	if err := a.Release(ctx, time.Now()); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("released another's lease: %v", err)
	}
	if err := b.Renew(ctx); err != nil {
		t.Errorf("the second holder lost it: %v", err)
	}
}

// Of many that claim at once one gets the lease.
func TestManyClaimAJob(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	for round := range 3 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []*JobLease
		for range 8 {
			wg.Go(func() {
				l, err := s.ClaimJob(t.Context(), JobClaim{Name: "patrol", Owner: "x"})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won = append(won, l)
				case !errors.Is(err, ErrLeased):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 || won[0].Fence() != uint64(round+1) {
			t.Fatalf("round %d: %d got it: %+v", round, len(won), won)
		}
		if err := won[0].Release(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
}

// A lease that is one process's own leaves nothing behind.
func TestOwnJobLease(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	l := claimJob(t, s, JobClaim{Name: "archive/pod-1/7-abc", Owner: "pod-1/7", Own: true})
	if err := l.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.Release(t.Context(), time.Time{}); err != nil {
		t.Error(err)
	}
	var n int
	if err := s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM job_leases").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows are left, %v", n, err)
	}
	if err := l.Release(t.Context(), time.Time{}); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("released twice: %v", err)
	}
}

// An occurrence of a job is done once, and counts as done only with the release.
func TestJobOccurrence(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	began, err := s.JobMark(ctx, "schedule/archive")
	if err != nil || time.Since(began).Abs() > time.Minute {
		t.Fatalf("a schedule that was never asked for is done up to %s, %v", began, err)
	}
	if again, err := s.JobMark(ctx, "schedule/archive"); err != nil || !again.Equal(began) {
		t.Errorf("the mark went from %s to %s, %v", began, again, err)
	}
	first := began.Add(time.Second)
	claim := func(at time.Time) (*JobLease, error) {
		return s.ClaimJob(ctx, JobClaim{Name: "schedule/archive", Owner: "a", Scheduled: at})
	}
	l, err := claim(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(ctx, time.Time{}); err != nil { // it was cut off
		t.Fatal(err)
	}
	if l, err = claim(first); err != nil {
		t.Fatalf("an occurrence that was not done is refused: %v", err)
	}
	if _, err := claim(first); !errors.Is(err, ErrLeased) {
		t.Errorf("claimed twice: %v", err)
	}
	if err := l.Release(ctx, first); err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{first, began} {
		if _, err := claim(at); !errors.Is(err, ErrWorkedOff) {
			t.Errorf("%s was done: %v", at, err)
		}
	}
	if mark, err := s.JobMark(ctx, "schedule/archive"); err != nil || !mark.Equal(first) {
		t.Errorf("the mark is %s, want %s; %v", mark, first, err)
	}
	// A machine whose clock is ahead does not use up what is to come.
	if _, err := claim(time.Now().Add(time.Hour)); !errors.Is(err, ErrEarly) {
		t.Errorf("an hour early: %v", err)
	}
	// A mark that such a clock has set all the same does not stop the job until then.
	if _, err := s.db.ExecContext(ctx, "UPDATE job_leases SET mark = UTC_TIMESTAMP(6) + INTERVAL 400 DAY"); err != nil {
		t.Fatal(err)
	}
	if mark, err := s.JobMark(ctx, "schedule/archive"); err != nil || time.Since(mark).Abs() > time.Minute {
		t.Errorf("the mark is %s, %v", mark, err)
	}
	if l, err = claim(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(ctx, time.Now()); err != nil {
		t.Error(err)
	}
}

// The leases of processes that were killed, each under a name of its own, do not add up for
// ever; the others stay, whatever their age.
func TestLeasesOfTheDeadAreForgotten(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	for _, c := range []JobClaim{{Name: "archive/dead", Owner: "a", Own: true}, {Name: "archive/old", Owner: "a", Own: true}, {Name: "archive/lives", Owner: "a", Own: true}, {Name: "patrol", Owner: "a"}} {
		claimJob(t, s, c)
	}
	if _, err := s.db.ExecContext(ctx, "UPDATE job_leases SET until = UTC_TIMESTAMP(6) - INTERVAL CASE name WHEN 'archive/old' THEN 29 ELSE 31 END DAY WHERE name <> 'archive/lives'"); err != nil {
		t.Fatal(err)
	}
	claimJob(t, s, JobClaim{Name: "drill", Owner: "b"}) // whose account may delete no lease
	names := func() (all string) {
		t.Helper()
		if err := s.db.QueryRowContext(ctx, "SELECT GROUP_CONCAT(name ORDER BY name) FROM job_leases").Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := names(); got != "archive/dead,archive/lives,archive/old,drill,patrol" {
		t.Errorf("there are %s", got)
	}
	claimJob(t, s, JobClaim{Name: "archive/new", Owner: "b", Own: true})
	if got := names(); got != "archive/lives,archive/new,archive/old,drill,patrol" {
		t.Errorf("there are %s", got)
	}
}

// A run that has not ended is alive while its lease lasts.
func TestRunIsAlive(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	last := func() Run {
		t.Helper()
		all, err := s.LastRuns(ctx, "patrol", 1)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	l := claimJob(t, s, JobClaim{Name: "patrol", Owner: "a"})
	id, err := s.BeginRun(ctx, RunStart{Job: "patrol", Host: "a", Lease: "patrol", Fence: l.Fence(), Args: []string{strings.Repeat("é\x00", 50_000)}})
	if err != nil {
		t.Fatal(err)
	}
	if r := last(); !r.Alive || r.Fence != l.Fence() || r.Lease != "patrol" || len(r.Args) != 2 {
		t.Errorf("%+v", r)
	}
	expireJob(t, s, "patrol")
	if last().Alive {
		t.Error("it is alive without a lease")
	}
	claimJob(t, s, JobClaim{Name: "patrol", Owner: "b"})
	if last().Alive {
		t.Error("it is alive by another's lease")
	}
	if err := s.EndRun(ctx, id, "panic", strings.Repeat("漢", 50_000), nil); err != nil {
		t.Fatal(err)
	}
	if r := last(); r.Alive || len(r.Why) < 50_000 || !strings.HasPrefix(r.Why, "漢漢") {
		t.Errorf("%t, %d bytes", r.Alive, len(r.Why))
	}
}
