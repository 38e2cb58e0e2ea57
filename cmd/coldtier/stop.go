package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
)

// errStopped says that somebody has stopped the job.
var errStopped = errors.New("stopped")

// The jobs that a stop of all forbids beside archive and purge.
const (
	jobPatrol  = "patrol --heal"
	jobPlant   = "canary plant"
	jobRestore = "restore --into-warm"
)

func (a *app) stopCommand() *cobra.Command {
	var reason, last, by string
	c := a.command(&cobra.Command{
		Use:   "stop {purge|archive|all} --reason TEXT",
		Short: "Stop all purges, archive runs, or both, on every machine",
		Long: `Forbid purges, archive runs, or all: then also patrol --heal, canary plant and
restore --into-warm. Runs that are under way end within seconds, between two steps,
with exit code 3; others do not begin. Reading goes on, as do dry runs, verify,
restores into other databases, drills and rebuilds.

Nothing but the manifest is needed. The stop counts until coldtier resume, or for as
long as --for says.`,
		Example: `  coldtier stop purge --reason "ticket 4711: replicas are being rebuilt"
  coldtier stop all --reason "failover drill" --for 2h
  coldtier stop list`,
		Args: stopJob,
	}, func(ctx context.Context, args []string) (result, error) {
		if strings.TrimSpace(reason) == "" {
			return nil, usage("--reason: say why")
		}
		var d time.Duration
		if last != "" {
			var err error
			if d, err = config.ParseDuration(last); err != nil || d < time.Second {
				return nil, usage("--for %q: want a duration such as 2h or 1d", last)
			}
		}
		return a.stop(ctx, manifest.Stop{Jobs: args[0], Reason: reason, By: orUser(by)}, d)
	})
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&reason, "reason", "", "why; required")
	f.StringVar(&last, "for", "", "end by itself after `DURATION`, such as 2h (default: when it is lifted)")
	f.StringVar(&by, "by", "", "`WHO` stops (default: the current user)")
	_ = c.MarkFlagRequired("reason") // it exists
	a.changes(c)
	c.AddCommand(a.stopListCommand())
	return c
}

// stopJob wants one of the jobs that can be stopped.
func stopJob(_ *cobra.Command, args []string) error {
	if len(args) != 1 || !slices.Contains(manifest.StopJobs(), args[0]) {
		return fmt.Errorf("want one of %s", strings.Join(manifest.StopJobs(), ", "))
	}
	return nil
}

type stopResult struct {
	DryRun bool            `json:"dry_run"`
	Stops  []manifest.Stop `json:"stops"`
	// Mirrored says that the bucket knows of it, so that a manifest that is rebuilt or set
	// back does, too.
	Mirrored bool   `json:"mirrored"`
	Warning  string `json:"warning,omitempty"`
	jobs     string
	resumed  bool
}

func (a *app) stop(ctx context.Context, st manifest.Stop, last time.Duration) (_ result, err error) {
	p, err := a.open(ctx, need{})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	r := &stopResult{DryRun: a.dryRun, Stops: []manifest.Stop{st}, jobs: st.Jobs}
	if a.dryRun {
		return r, nil
	}
	if r.Stops[0], err = p.manifest.AddStop(ctx, st, last); err != nil {
		return nil, err
	}
	a.mirrorStop(ctx, p, r)
	return r, nil
}

// mirrorTime is how long putting a stop into the bucket may take: it counts without.
const mirrorTime = 10 * time.Second

// mirrorStop puts stops into the bucket. That it cannot be done is no failure: a stop is
// placed when something is broken, and it counts already.
func (a *app) mirrorStop(ctx context.Context, p *parts, r *stopResult) {
	ctx, cancel := context.WithTimeout(ctx, mirrorTime)
	defer cancel()
	err := a.openBucket(ctx, p)
	if err == nil {
		_, err = a.mirror(p).Stops(ctx)
	}
	if err != nil {
		r.Warning = a.redactor.Text(fmt.Sprintf("it counts, but it is not in the bucket yet, and would be forgotten with the manifest; the next coldtier stop, resume or archive puts it there: %v", err))
		return
	}
	r.Mirrored = true
}

func (r *stopResult) text(w io.Writer) {
	would := ""
	if r.DryRun {
		would = "would be "
	}
	if r.resumed && len(r.Stops) == 0 {
		fmt.Fprintf(w, "%s was not stopped\n", r.jobs)
	}
	for _, st := range r.Stops {
		switch {
		case r.resumed:
			fmt.Fprintf(w, "%slifted: %s\n", would, printable(st.String()))
		case r.DryRun:
			fmt.Fprintf(w, "%s would be stopped: %s\n", st.Jobs, printable(st.Reason))
		default:
			fmt.Fprintln(w, printable(st.String()))
		}
	}
	if r.Warning != "" {
		warningLines(w, []string{r.Warning})
	}
}

func (a *app) resumeCommand() *cobra.Command {
	var by string
	c := a.command(&cobra.Command{
		Use:   "resume {purge|archive|all}",
		Short: "Lift the stops of purge, archive, or all",
		Long: `Lift the stops that were placed by coldtier stop with the same word: resume purge does
not lift a stop of all.`,
		Example: `  coldtier resume purge`,
		Args:    stopJob,
	}, func(ctx context.Context, args []string) (_ result, err error) {
		p, err := a.open(ctx, need{})
		if err != nil {
			return nil, err
		}
		defer func() { err = joinClose(err, p) }()
		r := &stopResult{DryRun: a.dryRun, Stops: []manifest.Stop{}, jobs: args[0], resumed: true}
		if a.dryRun {
			in, err := p.manifest.Stops(ctx, false)
			if err != nil {
				return nil, err
			}
			for _, st := range in {
				if st.Jobs == args[0] {
					r.Stops = append(r.Stops, st)
				}
			}
			return r, nil
		}
		lifted, err := p.manifest.LiftStops(ctx, args[0], orUser(by))
		if err != nil {
			return nil, err
		}
		if r.Stops = append(r.Stops, lifted...); len(lifted) > 0 {
			a.mirrorStop(ctx, p, r)
		}
		return r, nil
	})
	c.Flags().StringVar(&by, "by", "", "`WHO` resumes (default: the current user)")
	return a.changes(c)
}

func (a *app) stopListCommand() *cobra.Command {
	var all bool
	c := a.command(&cobra.Command{
		Use:   "list",
		Short: "List the stops in force",
		Example: `  coldtier stop list
  coldtier stop list --all`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (_ result, err error) {
		p, err := a.open(ctx, need{})
		if err != nil {
			return nil, err
		}
		defer func() { err = joinClose(err, p) }()
		stops, err := p.manifest.Stops(ctx, all)
		if err != nil {
			return nil, err
		}
		return &stopsResult{Stops: append([]manifest.Stop{}, stops...)}, nil
	})
	c.Flags().BoolVar(&all, "all", false, "also those that were lifted or have ended")
	return c
}

type stopsResult struct {
	Stops []manifest.Stop `json:"stops"`
}

func (r *stopsResult) text(w io.Writer) {
	if len(r.Stops) == 0 {
		fmt.Fprintln(w, "nothing is stopped")
		return
	}
	var rows []string
	for _, st := range r.Stops {
		rows = append(rows, row(st.ID, st.Jobs, printable(st.By), stamp(st.At), until(st.EndsAt, st.LiftedAt, "lifted", st.LiftedBy), shortened(st.Reason, 60)))
	}
	table(w, "STOP\tOF\tBY\tSINCE\tUNTIL\tREASON", rows)
}

// goAhead refuses a job that somebody has stopped. A dry run changes nothing and goes on.
func (a *app) goAhead(ctx context.Context, p *parts, job string) error {
	if a.dryRun {
		return nil
	}
	stops, err := p.manifest.Stops(ctx, false)
	if err != nil {
		return err
	}
	return stoppedBy(stops, job)
}

func stoppedBy(stops []manifest.Stop, job string) error {
	for _, st := range stops {
		if st.Of(job) {
			return mark(fmt.Errorf("%s: coldtier resume %s lets it go on", st, st.Jobs), errStopped)
		}
	}
	return nil
}

// recallStops makes the manifest know of stops that only the bucket has, since it was set
// back to before them, and refuses the job if one is of it.
func (a *app) recallStops(ctx context.Context, p *parts, job string) error {
	n, unreadable, err := a.mirror(p).RecallStops(ctx, mirrored{p.bucket})
	if err == nil && len(unreadable) > 0 {
		err = mark(fmt.Errorf("%s in the bucket cannot be read, the first %s: what they stop is not known: restore them from a former version, or delete them if they are known to be lifted", count(len(unreadable), "stop"), unreadable[0]), errUnsafe)
	}
	if err != nil || n == 0 {
		return err
	}
	return a.goAhead(ctx, p, job)
}

// How often the manifest is asked for stops, and for how long it may not answer.
const (
	stopsKept    = time.Second
	stopsUnknown = 15 * time.Second
)

// stopWatch looks for stops of a job. It asks the manifest at most once in stopsKept,
// however many workers ask it. While the manifest does not answer nobody goes on.
type stopWatch struct {
	store *manifest.Store
	job   string
	now   func() time.Time
	sleep func(context.Context, time.Duration) error
	turn  chan struct{}
	asked time.Time
	found error
}

func newStopWatch(store *manifest.Store, job string, now func() time.Time, sleep func(context.Context, time.Duration) error) *stopWatch {
	return &stopWatch{store: store, job: job, now: now, sleep: sleep, turn: make(chan struct{}, 1)}
}

func (w *stopWatch) check(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	begun := w.now()
	if !w.asked.IsZero() && begun.Sub(w.asked) < stopsKept && !begun.Before(w.asked) {
		return w.found
	}
	for {
		stops, err := w.store.Stops(ctx, false)
		if err == nil {
			w.asked, w.found = w.now(), stoppedBy(stops, w.job)
			return w.found
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if w.now().Sub(begun) > stopsUnknown {
			return fmt.Errorf("whether somebody has stopped %s is not known: %w", w.job, err)
		}
		if err := w.sleep(ctx, stopsKept); err != nil {
			return err
		}
	}
}

// stoppable is work that ends within seconds once somebody stops the job. What it leaves is
// what it would leave after SIGTERM.
func (a *app) stoppable(p *parts, job string, do func(context.Context) (any, error)) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		watching, over := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w := newStopWatch(p.manifest, job, a.now, sleep)
			for {
				err := w.check(watching)
				if watching.Err() != nil {
					return
				}
				if err != nil {
					cancel(mark(err, context.Canceled))
					return
				}
				if sleep(watching, stopsKept) != nil {
					return
				}
			}
		}()
		report, err := do(ctx)
		cause := context.Cause(ctx)
		over()
		<-ended
		cancel(nil)
		if err != nil && cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return report, err
	}
}
