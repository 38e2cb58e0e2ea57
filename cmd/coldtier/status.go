package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/cmd/coldtier/status"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/scheduler"
)

func (a *app) statusCommand() *cobra.Command {
	var s selection
	var o statusOptions
	c := a.command(&cobra.Command{
		Use:   "status",
		Short: "Show what is where",
		Long: `Show what needs somebody, the slices by state, a calendar of days, what is behind, what
runs, what a purge may delete, holds, how much was read back when, and the last runs.
Only the manifest is asked.

The calendar has a column for each week. A day shows the least advanced state of its
slices, or that one of them failed or is held; a small letter says that other slices of
the day are further. Without a selection it is of the last 53 weeks.

--day, --from, --to and --shard narrow the calendar, the days and what is failed or held,
which then come first; all else is of all slices, below a line that says so. A line for each day is printed for them, and with --days. ROWS and BYTES are
those of the newest copies; PURGE is when the last verified slice of the day may go.

--watch draws it anew on a terminal until Ctrl-C, and goes on while the manifest is away.
Where the output is no terminal it prints a line when it begins and after each change.`,
		Example: `  coldtier status
  coldtier status --watch
  coldtier status --from 2026-05-01 --to 2026-05-31
  coldtier --output json status | jq '.result.days[] | select(.failed > 0)'`,
		Args: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("watch") && len(args) == 1 { // --watch 5s, which is no value of the flag since that may be left out
				d, err := config.ParseDuration(args[0])
				if err != nil {
					return usage("--watch %q: %w", args[0], err)
				}
				o.watch = d
				return nil
			}
			return noArgs(c, args)
		},
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := s.parse(); err != nil {
			return nil, err
		}
		if err := o.check(a.output); err != nil {
			return nil, err
		}
		return a.status(ctx, s, o)
	})
	s.flags(c)
	f := c.Flags()
	f.BoolVar(&o.days, "days", false, "print a line for each day, and all that failed or is held")
	f.IntVar(&o.runs, "runs", 5, "show the last `N` runs")
	f.DurationVar(&o.watch, "watch", 0, "go on, and look again each `INTERVAL`, 2s without one")
	f.Lookup("watch").NoOptDefVal = "2s"
	return c
}

// statusOptions are the flags beside the selection.
type statusOptions struct {
	days  bool
	runs  int
	watch time.Duration // 0: once
}

func (o statusOptions) check(output string) error {
	switch {
	case o.runs < 0:
		return usage("--runs %d: want 0 or more", o.runs)
	case o.watch != 0 && o.watch < time.Second:
		return usage("--watch %s: want at least 1s", o.watch)
	case o.watch != 0 && output == formatJSON:
		return usage("--watch: not with --output json, which prints one document")
	}
	return nil
}

func (a *app) status(ctx context.Context, sel selection, o statusOptions) (_ result, err error) {
	p, err := a.open(ctx, need{})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	q := status.Query{Filter: manifest.Filter{From: sel.from, To: sel.to, Shard: sel.shard}, Runs: o.runs}
	if sel.shard != "" {
		if err := knownShard(ctx, p, sel.shard); err != nil {
			return nil, err
		}
	}
	g := a.gatherer(p)
	look := a.look()
	look.days = o.days || sel != (selection{})
	if o.watch > 0 {
		return nil, a.watchStatus(ctx, g, q, look, o.watch)
	}
	r, err := g.Gather(ctx, q)
	if err != nil {
		return nil, err
	}
	return &statusResult{r, look}, nil
}

// gatherer makes reports of an open manifest.
func (a *app) gatherer(p *parts) *status.Gatherer {
	c := p.cfg
	return status.New(p.manifest, status.Config{Source: c.Source.Name, Zone: c.Source.Zone, After: c.Archive.After, Lag: c.Purge.Lag,
		DrillMaxAge: c.Drill.MaxAge, MaxAgeText: days(c.Drill.MaxAge), Skew: c.Metrics.Skew, Quota: uint64(c.Bucket.Quota), Next: func(now time.Time) []status.Next { return nextRuns(c.Schedule, now) }}, a.now) //nolint:gosec // a size
}

// nextRuns says when which job is due next by the schedule.
func nextRuns(s config.Schedule, now time.Time) (all []status.Next) {
	for _, j := range []struct {
		job  string
		spec *scheduler.Spec
	}{{manifest.StopArchive, s.Archive}, {manifest.StopPurge, s.Purge}, {"verify", s.Verify}, {"patrol", s.Patrol}, {"drill", s.Drill}} {
		if j.spec != nil {
			all = append(all, status.Next{Job: j.job, At: j.spec.Next(now)})
		}
	}
	return all
}

// statusLook is how a status is drawn.
type statusLook struct {
	width  int  // of lines; 0: as long as they are
	colour bool // by the terminal's codes
	days   bool // a line for each day, and all that failed or is held
}

// calendarWidth is that of a calendar whose lines may be as long as they are.
const calendarWidth = 80

// look is how the standard output can be drawn on: colours only on a terminal that has
// them, and not where NO_COLOR is set (no-color.org).
func (a *app) look() statusLook {
	f, ok := a.stdout.(*os.File)
	if !ok || !isTerminal(f) {
		return statusLook{}
	}
	var l statusLook
	if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
		l.width = w
	}
	no, _ := a.lookup.Env("NO_COLOR")
	kind, _ := a.lookup.Env("TERM")
	l.colour = no == "" && kind != "dumb"
	return l
}

// statusResult is a report and how to draw it.
type statusResult struct {
	*status.Report
	look statusLook
}

func (r *statusResult) text(w io.Writer) { drawStatus(w, r.Report, r.look) }
