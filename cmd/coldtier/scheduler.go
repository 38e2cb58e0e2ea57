package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/scheduler"
)

type schedulerFlags struct {
	jobs   []string
	listen string
}

func (a *app) schedulerCommand() *cobra.Command {
	var s schedulerFlags
	c := a.command(&cobra.Command{
		Use:   "scheduler",
		Short: "Run archive, purge, verify, patrol and drill by the clock, in one process",
		Long: `Run archive, purge, verify, patrol and drill when the keys of schedule say so, where
there is no Kubernetes. Each run is a process of its own, by this very program, that
reads the configuration anew; the schedule itself is read at the start.

Any number of schedulers may run at once: each occurrence is done by one of them, and
one that ends or dies leaves what it had begun to another. A job never runs twice at
once; what passes while it runs is skipped. What was missed while no scheduler ran is
caught up by one run of each job, in the order archive, purge, verify, patrol, drill.

SIGTERM ends the jobs that run, and then the scheduler. What was cut off so is done
again by the next one.`,
		Example: `  coldtier scheduler --dry-run                    what would run when?
  coldtier scheduler --listen 127.0.0.1:9090      with /metrics and /healthz
  coldtier scheduler --jobs purge                 the purge alone, by an account of its own`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) { return a.scheduler(ctx, &s) })
	f := c.Flags()
	f.SortFlags = false
	f.StringSliceVar(&s.jobs, "jobs", nil, "only these `JOBS`, such as archive,verify (default: all that have a schedule)")
	f.StringVar(&s.listen, "listen", "", "serve /metrics and /healthz on `HOST:PORT` (default: nowhere)")
	f.Var(&a.limits.deadline, "deadline", "end each run after so `LONG`, such as 6h; 0s: never")
	return a.graceful(a.changes(c))
}

// scheduled is a job that a scheduler runs.
type scheduled struct {
	job  string
	spec *scheduler.Spec
	args []string
}

// schedule is what is to run, in the order in which it is caught up.
func schedule(c *config.Config, only []string) ([]scheduled, error) {
	s := c.Schedule
	sample := []string{"verify"}
	if s.VerifySample.N != s.VerifySample.Of {
		sample = append(sample, "--sample", s.VerifySample.String())
	}
	all := []scheduled{
		{"archive", s.Archive, []string{"archive"}}, {"purge", s.Purge, []string{"purge"}}, {"verify", s.Verify, sample},
		{"patrol", s.Patrol, []string{"patrol"}}, {"drill", s.Drill, []string{"drill"}},
	}
	for _, name := range only {
		switch i := slices.IndexFunc(all, func(j scheduled) bool { return j.job == name }); {
		case i < 0:
			return nil, usage("--jobs %q: want of archive, purge, verify, patrol, drill", name)
		case all[i].spec == nil:
			return nil, usage("--jobs %s: it has no schedule: set schedule.%s", name, name)
		}
	}
	all = slices.DeleteFunc(all, func(j scheduled) bool { return j.spec == nil || len(only) > 0 && !slices.Contains(only, j.job) })
	if len(all) == 0 {
		return nil, usage("no job has a schedule: set schedule.archive or another key of schedule")
	}
	return all, nil
}

func (a *app) scheduler(ctx context.Context, s *schedulerFlags) (_ result, err error) {
	if s.listen != "" {
		if err := config.CheckListen(s.listen); err != nil {
			return nil, usage("--listen %q: %w", s.listen, err)
		}
	}
	if a.dryRun {
		cfg, err := a.load()
		if err != nil {
			return nil, err
		}
		jobs, err := schedule(cfg, s.jobs)
		if err != nil {
			return nil, err
		}
		return a.occurrences(cfg, jobs), nil
	}
	p, err := a.open(ctx, need{job: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	jobs, err := schedule(p.cfg, s.jobs)
	if err != nil {
		return nil, err
	}
	self, err := a.program()
	if err != nil {
		return nil, setup(err)
	}
	d := a.jobDeps(p)
	var names []string
	var entries []scheduler.Entry
	for _, j := range jobs {
		names = append(names, j.job)
		e := scheduler.Entry{Name: j.job, Spec: j.spec, Do: func(ctx context.Context, at time.Time) error { return a.child(ctx, self, j, at) }}
		if j.job == "drill" { // hours of work
			e.Tries = 2
		}
		entries = append(entries, e)
		if j.job == "drill" && p.cfg.Drill.Scratch.Database() == "" {
			a.log.Warn("the drill will fail: it has no drill.scratch_dsn; set that, or schedule.drill to \"\"")
		}
	}
	if d.Metrics, err = scheduler.NewMetrics(a.telemetry.source, names, outcomes()); err != nil {
		return nil, err
	}
	for _, name := range names {
		a.succeeded(ctx, p, d.Metrics, name)
	}
	cron := scheduler.NewCron(entries, jobLeases{p.manifest}, d)
	stop, err := a.tell(s.listen, cron)
	if err != nil {
		return nil, err
	}
	defer stop()
	cron.Run(ctx)
	a.log.Info("the scheduler has ended")
	return nil, nil
}

// lookBack is how many runs of a job are looked through for one that did all.
const lookBack = 100

// succeeded tells the metrics of a job when it last did all, as its records say.
func (a *app) succeeded(ctx context.Context, p *parts, m *scheduler.Metrics, job string) {
	runs, err := p.manifest.LastRuns(ctx, job, lookBack)
	if err != nil {
		a.log.Warn("when a job last did all is not known", "job", job, "error", err)
	}
	for _, r := range runs {
		if r.Outcome == scheduler.Done && r.Ended != nil {
			m.Succeeded(job, *r.Ended)
			return
		}
	}
}

// tell serves metrics and health on an address, until stop is called.
func (a *app) tell(listen string, cron *scheduler.Cron) (stop func(), err error) {
	if listen == "" {
		return func() {}, nil
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, mark(fmt.Errorf("--listen: %w", err), errSetup)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.telemetry.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "coldtier scheduler\n\n/healthz  it goes on looking at the clock\n/metrics  for Prometheus")
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := cron.Alive(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	a.log.Info("telling metrics and health", "address", ln.Addr().String())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("metrics and health are told no more", "error", err)
		}
	})
	return func() {
		_ = srv.Close() // what is asked just now can be asked of the next scheduler
		wg.Wait()
	}, nil
}

// occurrencesShown is how many occurrences of a job a dry run shows.
const occurrencesShown = 3

type scheduleResult struct {
	DryRun   bool           `json:"dry_run"`
	Now      time.Time      `json:"now"`
	Timezone string         `json:"timezone"`
	Jobs     []scheduleItem `json:"jobs"`
}

type scheduleItem struct {
	Job     string      `json:"job"`
	Spec    string      `json:"spec"`
	Command []string    `json:"command"`
	Next    []time.Time `json:"next"`
}

func (a *app) occurrences(cfg *config.Config, jobs []scheduled) result {
	r := &scheduleResult{DryRun: true, Now: a.now().UTC(), Timezone: cfg.Schedule.Zone.String()}
	for _, j := range jobs {
		item := scheduleItem{Job: j.job, Spec: j.spec.String(), Command: append([]string{"coldtier"}, j.args...)}
		for at := j.spec.Next(r.Now); len(item.Next) < occurrencesShown && !at.IsZero(); at = j.spec.Next(at) {
			item.Next = append(item.Next, at.In(cfg.Schedule.Zone))
		}
		r.Jobs = append(r.Jobs, item)
	}
	return r
}

func (r *scheduleResult) text(w io.Writer) {
	var rows []string
	for _, j := range r.Jobs {
		var next []string
		for _, at := range j.Next {
			next = append(next, at.Format("Mon 2006-01-02 15:04 MST"))
		}
		rows = append(rows, row(j.Job, j.Spec, strings.Join(next, ", "), strings.Join(j.Command, " ")))
	}
	table(w, "JOB\tSCHEDULE\tNEXT RUNS\tCOMMAND", rows)
}
