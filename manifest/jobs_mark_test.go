package manifest

import (
	"errors"
	"testing"
	"time"
)

// A machine whose clock jumps ahead while it does a job leaves a mark in the future. The job
// misses one occurrence at most for it, also in a scheduler that knows the mark of before.
func TestMarkOfAClockThatJumped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		ahead  func(*testing.T, *Store, *JobLease) error
		missed int // occurrences
	}{
		{"released by it", func(t *testing.T, _ *Store, l *JobLease) error {
			return l.Release(t.Context(), time.Now().Add(400*24*time.Hour))
		}, 0},
		{"found in the database", func(t *testing.T, s *Store, l *JobLease) error {
			_, err := s.db.ExecContext(t.Context(), "UPDATE job_leases SET mark = UTC_TIMESTAMP(6) + INTERVAL 400 DAY")
			return errors.Join(err, l.Release(t.Context(), time.Time{}))
		}, 1},
	} {
		for _, learns := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s := open(t, time.Minute)
				ctx := t.Context()
				const name = "schedule/archive"
				due := func() time.Time { // just now
					t.Helper()
					at, err := s.Now(ctx)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(10 * time.Millisecond)
					return at.Add(time.Millisecond)
				}
				if _, err := s.JobMark(ctx, name); err != nil {
					t.Fatal(err)
				}
				l := claimJob(t, s, JobClaim{Name: name, Owner: "a", Scheduled: due()})
				if err := c.ahead(t, s, l); err != nil {
					t.Fatal(err)
				}
				missed := c.missed
				if learns {
					if mark, err := s.JobMark(ctx, name); err != nil || time.Since(mark).Abs() > time.Minute {
						t.Fatalf("the mark is %s, %v", mark, err)
					}
					missed = 0
				}
				for range missed {
					if _, err := s.ClaimJob(ctx, JobClaim{Name: name, Owner: "b", Scheduled: due()}); !errors.Is(err, ErrWorkedOff) {
						t.Errorf("the first occurrence after it: %v", err)
					}
				}
				at := due()
				l = claimJob(t, s, JobClaim{Name: name, Owner: "b", Scheduled: at})
				if err := l.Release(ctx, at); err != nil {
					t.Error(err)
				}
				if mark, err := s.JobMark(ctx, name); err != nil || mark.Sub(at).Abs() > time.Microsecond {
					t.Errorf("the mark is %s, want %s; %v", mark, at, err)
				}
			})
		}
	}
}
