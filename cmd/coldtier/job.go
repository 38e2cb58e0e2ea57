package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/scheduler"
)

const (
	// envScheduled tells a verb for which occurrence of its schedule it runs.
	envScheduled = "COLDTIER_SCHEDULED_FOR"
	// envWorker is what Kubernetes calls the pods of an indexed Job.
	envWorker = "JOB_COMPLETION_INDEX"
)

// defaultGrace is below the 30 s that Kubernetes waits before SIGKILL.
const defaultGrace = 25 * time.Second

// limits bound a run.
type limits struct {
	deadline, grace timeFlag
	worker          string
	args            []string // what the command line asks for, beside the verb
}

// timeFlag is a duration on the command line. One may be read while flags are parsed.
type timeFlag struct{ atomic.Int64 }

var _ pflag.Value = (*timeFlag)(nil)

func (d *timeFlag) get() time.Duration { return time.Duration(d.Load()) }

// Set implements pflag.Value.
func (d *timeFlag) Set(s string) error {
	v, err := config.ParseDuration(s)
	d.Store(int64(v))
	return err
}

// String implements pflag.Value.
func (d *timeFlag) String() string { return d.get().String() }

// Type implements pflag.Value.
func (d *timeFlag) Type() string { return "duration" }

// graceful adds --grace to a verb that runs long.
func (a *app) graceful(c *cobra.Command) *cobra.Command {
	name := "grace"
	if c.Flags().Lookup(name) != nil { // patrol's is another
		name = "stop-grace"
	}
	a.limits.grace.Store(int64(defaultGrace))
	c.Flags().Var(&a.limits.grace, name, "how `LONG` a run may take to end after SIGTERM, before it ends at once")
	return c
}

// bounded adds what bounds a run to a verb whose runs are recorded.
func (a *app) bounded(c *cobra.Command) *cobra.Command {
	c.Flags().Var(&a.limits.deadline, "deadline", "end the run after so `LONG`, such as 6h; 0s: never")
	return a.graceful(c)
}

// shared is bounded for a verb of which any number may run at once.
func (a *app) shared(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&a.limits.worker, "worker", "", "`NAME` of this worker, of which one may run at once (default: $"+envWorker+", else one of its own)")
	return a.bounded(c)
}

// given are the flags of a command line that say what is to be done.
func given(c *cobra.Command) (all []string) {
	c.Flags().Visit(func(f *pflag.Flag) {
		if c.Root().PersistentFlags().Lookup(f.Name) == nil {
			all = append(all, "--"+f.Name+"="+f.Value.String())
		}
	})
	return all
}

// leaseOf is the name of a job's lease. One of patrols, drills and rebuilds runs at a time. Of
// others one for each worker, since what they work on has leases of its own.
func (a *app) leaseOf(job, owner string) (name string, own bool, err error) {
	switch job {
	case "patrol", "drill":
		return job, false, nil
	case "rebuild clickhouse":
		return "rebuild", false, nil
	}
	worker := a.limits.worker
	if worker == "" {
		worker, _ = a.lookup.Env(envWorker)
	}
	if worker == "" {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		return job + "/" + owner + "-" + hex.EncodeToString(b[:]), true, nil
	}
	if err := config.CheckWorker(worker); err != nil {
		return "", false, usage("--worker %q: %w", worker, err)
	}
	return job + "/" + worker, false, nil
}

// scheduledFor is the occurrence that this run is for, if a scheduler says so.
func (a *app) scheduledFor() (at time.Time, err error) {
	text, ok := a.lookup.Env(envScheduled)
	if !ok || text == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, usage("%s=%q: want a time such as 2026-05-01T02:00:00Z", envScheduled, text)
	}
	return at, nil
}

// once does a job once: under its lease, within its deadline, recorded in the manifest.
func (a *app) once(ctx context.Context, p *parts, job string, reg prometheus.Registerer, do func(ctx context.Context, run uint64) (report any, err error)) error {
	lease, own, err := a.leaseOf(job, p.owner)
	if err != nil {
		return err
	}
	at, err := a.scheduledFor()
	if err != nil {
		return err
	}
	var args []string
	for _, s := range a.limits.args {
		args = append(args, a.redactor.Text(s))
	}
	d := a.jobDeps(p)
	runs := &jobRuns{m: p.manifest}
	d.Runs = runs
	if reg != nil {
		if d.Metrics, err = scheduler.NewMetrics(reg, []string{job}, outcomes()); err != nil {
			return err
		}
	}
	step := stepHook()
	_, err = scheduler.RunOnce(ctx, scheduler.Job{Name: job, Args: args, Lease: lease, Own: own, Deadline: a.limits.deadline.get(), Scheduled: at,
		Do: func(ctx context.Context) (any, error) {
			if step != nil {
				if err := step("run.begun"); err != nil {
					return nil, err
				}
			}
			return do(ctx, runs.id)
		}}, d)
	return err
}

// jobDeps are what jobs run with.
func (a *app) jobDeps(p *parts) scheduler.Deps {
	return scheduler.Deps{
		Owner: p.owner, Leases: jobLeases{p.manifest}, TTL: p.manifest.LeaseTTL(), Clock: jobClock{a.now}, Log: a.log,
		Outcome: func(err error) string {
			if err == nil {
				return scheduler.Done
			}
			_, kind := exit(err)
			return kind
		},
		Text: func(err error) string { return a.redactor.Text(err.Error()) },
	}
}

// jobClock is a clock that waits.
type jobClock struct{ now func() time.Time }

// Now implements scheduler.Clock.
func (c jobClock) Now() time.Time { return c.now() }

// After implements scheduler.Clock.
func (c jobClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// jobLeases are the manifest's leases of jobs.
type jobLeases struct{ m *manifest.Store }

func jobError(err error) error {
	return also(err, [2]error{manifest.ErrLeased, scheduler.ErrHeld}, [2]error{manifest.ErrWorkedOff, scheduler.ErrDone}, [2]error{manifest.ErrLeaseLost, scheduler.ErrLost})
}

// Claim implements scheduler.Leases.
func (l jobLeases) Claim(ctx context.Context, c scheduler.Claim) (scheduler.Lease, error) {
	lease, err := l.m.ClaimJob(ctx, manifest.JobClaim(c))
	if err != nil {
		return nil, jobError(err)
	}
	return jobLease{lease}, nil
}

// Mark implements scheduler.Marks.
func (l jobLeases) Mark(ctx context.Context, lease string) (time.Time, error) {
	return l.m.JobMark(ctx, lease)
}

type jobLease struct{ *manifest.JobLease }

func (l jobLease) Renew(ctx context.Context) error { return jobError(l.JobLease.Renew(ctx)) }

func (l jobLease) Release(ctx context.Context, done time.Time) error {
	return jobError(l.JobLease.Release(ctx, done))
}

// jobRuns records a run in the manifest.
type jobRuns struct {
	m  *manifest.Store
	id uint64
}

// Begin implements scheduler.Runs.
func (r *jobRuns) Begin(ctx context.Context, b scheduler.Begin) (id uint64, err error) {
	r.id, err = r.m.BeginRun(ctx, manifest.RunStart{Job: b.Job, Host: b.Owner, Args: b.Args, Lease: b.Lease, Fence: b.Fence, Scheduled: b.Scheduled})
	return r.id, err
}

// End implements scheduler.Runs.
func (r *jobRuns) End(ctx context.Context, id uint64, outcome, why string, report any) error {
	err := r.m.EndRun(ctx, id, outcome, why, report)
	if outcome != scheduler.Done && errors.Is(err, manifest.ErrState) { // its record went with a manifest that was rebuilt
		return nil
	}
	if err != nil {
		return fmt.Errorf("the run has ended: %w", err)
	}
	return nil
}
