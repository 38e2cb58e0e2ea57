package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var errWork = errors.New("the work went wrong")

// once runs a job in a bubble, where time passes by itself.
func once(t *testing.T, test func(t *testing.T, m *memory, d Deps)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(wallAt(instant(t, "2026-12-01T00:00:00Z")))
		test(t, m, deps(t, m, "pod-1"))
	})
}

func TestRunIsRecorded(t *testing.T) {
	once(t, func(t *testing.T, m *memory, d Deps) {
		scheduled := m.clock.Now()
		j := Job{Name: "job", Args: []string{"--day", "x"}, Lease: "job", Scheduled: scheduled, Done: func(error) time.Time { return scheduled },
			Do: func(context.Context) (any, error) { time.Sleep(90 * time.Second); return "report", nil }}
		r, err := RunOnce(t.Context(), j, d)
		if err != nil || r.Outcome != Done || r.Fence != 1 || r.Took != 90*time.Second || !r.Claimed || r.Run != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		got := m.runs[0]
		if got.Job != "job" || got.Owner != "pod-1" || got.Lease != "job" || got.Fence != 1 || strings.Join(got.Args, " ") != "--day x" || !got.Begin.Scheduled.Equal(scheduled) ||
			!got.ended || got.outcome != Done || got.why != "" || got.report != "report" {
			t.Errorf("%+v", got)
		}
		if l := m.leases["job"]; !l.until.IsZero() || !l.mark.Equal(scheduled) {
			t.Errorf("%+v", l)
		}
		if n := value(t, d.Metrics.runs, Done, "job"); n != 1 {
			t.Errorf("%v runs", n)
		}
		if at := value(t, d.Metrics.success, "job"); at != float64(m.clock.Now().Unix()) {
			t.Errorf("last success %v", at)
		}
		j.Scheduled = scheduled // it is done
		if r, err := RunOnce(t.Context(), j, d); !errors.Is(err, ErrDone) || r.Claimed || len(m.runs) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestFailureIsRecorded(t *testing.T) {
	once(t, func(t *testing.T, m *memory, d Deps) {
		d.Text = func(err error) string { return strings.ReplaceAll(err.Error(), "work", "***") }
		r, err := RunOnce(t.Context(), Job{Name: "job", Lease: "job", Do: func(context.Context) (any, error) { return "half", errWork }}, d)
		if !errors.Is(err, errWork) || r.Outcome != "failed" || m.runs[0].why != "the *** went wrong" || m.runs[0].report != "half" || !m.leases["job"].until.IsZero() {
			t.Errorf("%+v, %v, %+v", r, err, m.runs[0])
		}
	})
}

func TestPanicIsRecorded(t *testing.T) {
	once(t, func(t *testing.T, m *memory, d Deps) {
		r, err := RunOnce(t.Context(), Job{Name: "job", Lease: "job", Do: func(context.Context) (any, error) { panic("oh no") }}, d)
		if !errors.Is(err, ErrPanic) || r.Outcome != "panic" || !strings.HasPrefix(m.runs[0].why, "the job panicked: oh no\n") || !strings.Contains(m.runs[0].why, "run_test.go") {
			t.Errorf("%+v, %v, %+v", r, err, m.runs[0])
		}
		if !m.leases["job"].until.IsZero() {
			t.Error("the lease was not released")
		}
	})
}

func TestDeadline(t *testing.T) {
	once(t, func(t *testing.T, m *memory, d Deps) {
		scheduled := m.clock.Now()
		r, err := RunOnce(t.Context(), Job{Name: "job", Lease: "job", Deadline: time.Hour, Scheduled: scheduled, Done: func(error) time.Time { return scheduled }, Do: func(ctx context.Context) (any, error) {
			<-ctx.Done()
			if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), ErrDeadline) || !errors.Is(context.Cause(ctx), context.Canceled) {
				t.Errorf("%v, %v", ctx.Err(), context.Cause(ctx))
			}
			return "half", ctx.Err()
		}}, d)
		if !errors.Is(err, ErrDeadline) || r.Outcome != "deadline" || r.Took != time.Hour || !strings.Contains(m.runs[0].why, "job took longer than 1h0m0s") || m.runs[0].report != "half" {
			t.Errorf("%+v, %v, %+v", r, err, m.runs[0])
		}
		if !m.leases["job"].mark.Equal(scheduled) {
			t.Error("a run that took too long would be done again at once")
		}
	})
}

// A run that was told to end keeps its lease until it has ended, notes its end, and leaves its
// occurrence to be done again.
func TestCutOff(t *testing.T) {
	once(t, func(t *testing.T, m *memory, d Deps) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		r, err := RunOnce(ctx, Job{Name: "job", Lease: "job", Scheduled: m.clock.Now(), Done: func(error) time.Time { t.Error("asked"); return m.clock.Now() }, Do: func(ctx context.Context) (any, error) {
			<-ctx.Done()
			time.Sleep(10 * time.Minute)
			if _, err := m.Claim(ctx, Claim{Name: "job"}); !errors.Is(err, ErrHeld) {
				t.Errorf("while it ends: %v", err)
			}
			return nil, ctx.Err()
		}}, d)
		if !errors.Is(err, context.Canceled) || r.Outcome != "interrupted" || !m.runs[0].ended || !m.leases["job"].until.IsZero() || !m.leases["job"].mark.IsZero() {
			t.Errorf("%+v, %v, %+v", r, err, m.runs[0])
		}
	})
}

// A lease that another takes, or that cannot be renewed for as long as it lasts, ends the work.
func TestLostLease(t *testing.T) {
	for name, lose := range map[string]func(m *memory){
		"taken":        func(m *memory) { m.leases["job"].fence++ },
		"out of reach": func(m *memory) { m.down = errors.New("no manifest") },
	} {
		t.Run(name, func(t *testing.T) {
			once(t, func(t *testing.T, m *memory, d Deps) {
				d.Runs = nil
				began := time.Now()
				time.AfterFunc(5*time.Minute+time.Second, func() {
					m.mu.Lock()
					defer m.mu.Unlock()
					lose(m)
				})
				_, err := RunOnce(t.Context(), Job{Name: "job", Lease: "job", Do: func(ctx context.Context) (any, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}}, d)
				// Its last renewal was after five minutes, by which it lasts for one more.
				if took := time.Since(began); !errors.Is(err, ErrLost) || took > 6*time.Minute+time.Second {
					t.Errorf("%v after %s", err, took)
				}
			})
		})
	}
}

// One whose lease is its own goes on while the manifest is out of reach: nobody can take it.
func TestOwnLeaseOutlastsAnOutage(t *testing.T) {
	once(t, func(t *testing.T, m *memory, d Deps) {
		time.AfterFunc(time.Minute, func() { m.broken(errors.New("no manifest")) })
		time.AfterFunc(11*time.Minute, func() { m.broken(nil) })
		if r, err := RunOnce(t.Context(), Job{Name: "job", Lease: "job/1", Own: true, Do: func(ctx context.Context) (any, error) {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(20 * time.Minute):
				return nil, nil
			}
		}}, d); err != nil || r.Outcome != Done {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestNoBeginNoWork(t *testing.T) {
	once(t, func(t *testing.T, m *memory, d Deps) {
		work := func(context.Context) (any, error) { t.Error("it works"); return nil, nil }
		d.Runs = noRuns{}
		if _, err := RunOnce(t.Context(), Job{Name: "job", Lease: "job", Do: work}, d); !errors.Is(err, errWork) || !m.leases["job"].until.IsZero() {
			t.Errorf("%v, %+v", err, m.leases["job"])
		}
		m.leases["job"].until = m.clock.Now().Add(time.Hour)
		if r, err := RunOnce(t.Context(), Job{Name: "job", Lease: "job", Do: work}, d); !errors.Is(err, ErrHeld) || r.Claimed {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

type noRuns struct{}

func (noRuns) Begin(context.Context, Begin) (uint64, error) { return 0, errWork }

func (noRuns) End(context.Context, uint64, string, string, any) error { return errWork }

// value is that of the metric with these label values.
func value(t *testing.T, c prometheus.Collector, labels ...string) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	for _, m := range families[0].GetMetric() {
		var got []string
		for _, l := range m.GetLabel() {
			got = append(got, l.GetValue())
		}
		if slices.Equal(got, labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric of %v", labels)
	return 0
}
