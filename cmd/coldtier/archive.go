package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/manifest"
)

func (a *app) archiveCommand() *cobra.Command {
	var s selection
	var b budget
	c := a.command(&cobra.Command{
		Use:   "archive",
		Short: "Copy and verify every slice that is old enough and not yet copied",
		Long: `Copy every slice (one table on one day) that is older than archive.after and not
yet copied, oldest day first, and verify each copy. Nothing is deleted. Any number
of processes may run at once, and share the work. A slice that fails is named and
tried again by the next run. With --max-duration or --until a run ends by itself: what
it has no time for is named (exit code 3), and the next run begins with it.`,
		Example: `  coldtier archive --dry-run
  coldtier archive
  coldtier archive --from 2024-01-01 --to 2024-12-31 --shard 'im_0?.*'   backfill
  coldtier archive --until 06:00`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := s.parse(); err != nil {
			return nil, err
		}
		if err := b.parse(); err != nil {
			return nil, err
		}
		return a.archive(ctx, archive.Selection{From: s.from, To: s.to, Shard: s.shard}, &b)
	})
	s.flags(c)
	b.flags(c)
	return a.shared(a.changes(c))
}

func (a *app) archive(ctx context.Context, sel archive.Selection, b *budget) (_ result, err error) {
	p, err := a.open(ctx, need{warm: true, bucket: true, rows: true, job: true, goAhead: manifest.StopArchive})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	if !a.dryRun {
		if err := a.recallStops(ctx, p, manifest.StopArchive); err != nil {
			return nil, err
		}
	}
	var end context.CancelFunc
	ctx, end = a.withBudget(ctx, p, b)
	defer end()
	ar, err := a.archiver(p)
	if err != nil {
		return nil, setup(err)
	}
	sel.Filled = a.dryRun
	plan, err := ar.Plan(ctx, sel)
	if err != nil {
		return nil, err
	}
	if p.unowned != nil && len(plan.Work) > 0 {
		if sum, err := p.manifest.Summary(ctx); err != nil {
			return nil, err
		} else if slices.ContainsFunc(sum.States, func(s manifest.StateSummary) bool { return s.Bytes > 0 }) {
			a.log.Warn("the manifest has copies that are not in this bucket", "error", p.unowned)
		}
	}
	if a.dryRun {
		f, err := a.forecastArchive(ctx, p, ar, plan)
		if err != nil {
			return nil, err
		}
		return &archivePlan{true, plan, f}, nil
	}
	m := a.newMeter("archive")
	defer m.end()
	var rep *archive.Report
	err = a.recorded(ctx, p, "archive", func(ctx context.Context) (any, error) {
		if err := p.claimOwner(ctx); err != nil {
			return nil, err
		}
		if rep, err = ar.Run(ctx, plan, m); err != nil {
			return nil, err
		}
		rep.Throttled = p.pace.seconds()
		if sel.From == nil && sel.To == nil && sel.Shard == "" {
			a.idleArchive(ctx, p, plan.Newest, rep)
		}
		err := archived(rep)
		if ctx.Err() == nil { // a run that is ended leaves it to the next one
			err = errors.Join(err, a.mirrorAll(ctx, p))
		}
		return briefly(rep), err
	})
	m.end()
	if rep == nil {
		return nil, err
	}
	return &archiveResult{Report: rep}, err
}

// archived says what a report means for the run as a whole.
func archived(r *archive.Report) error {
	err := r.Err()
	switch {
	case len(r.Failed)+len(r.Left) == 0:
		return nil
	case len(r.Done) == 0 && len(r.Left) == 0: // all failed: for the reasons they failed
		return err
	case len(r.Done) == 0 && len(r.Failed) == 0 && all(r.Left, leased):
		return fmt.Errorf("%s: %w", count(len(r.Left), "slice"), manifest.ErrLeased)
	case len(r.Failed) == 0 && all(r.Left, leased):
		return nil // others do the rest
	}
	if len(r.Left) > 0 {
		first := firstLeft(r.Left)
		err = errors.Join(err, fmt.Errorf("%s left, the first %s: %w", count(len(r.Left), "slice"), first.Slice, first.Err))
	}
	return mark(err, errPartial)
}

func leased(o archive.Outcome) bool { return others(o.Err) }

// others says that other runs have a slice, or had it and did what was to be done.
func others(err error) bool {
	return errors.Is(err, manifest.ErrLeased) || errors.Is(err, archive.ErrElsewhere)
}

func all[T any](list []T, is func(T) bool) bool {
	for _, x := range list {
		if !is(x) {
			return false
		}
	}
	return true
}

type archivePlan struct {
	DryRun bool `json:"dry_run"`
	*archive.Plan
	Forecast *archiveForecast `json:"forecast"`
}

func (r *archivePlan) text(w io.Writer) {
	fmt.Fprintf(w, "the youngest day that is old enough is %s\n", r.Newest)
	if len(r.Work) == 0 {
		fmt.Fprintln(w, "nothing to do")
		return
	}
	var rows []string
	for _, s := range r.Work[:min(len(r.Work), maxRows)] {
		state := string(s.State)
		if s.New {
			state = "new"
		}
		if s.Reason != "" {
			state += " (" + s.Reason + ")"
		}
		rows = append(rows, row(s.Day, s.Shard, state, s.Action))
	}
	table(w, "DAY\tSHARD\tSTATE\tWOULD", rows)
	andMore(w, len(r.Work))
	r.Forecast.text(w)
	fmt.Fprintf(w, "%s\n", count(len(r.Work), "slice"))
}

type archiveResult struct {
	*archive.Report
	partial
}

func (r *archiveResult) text(w io.Writer) {
	if len(r.Done) > 0 {
		var rows []string
		for _, o := range r.Done[:min(len(r.Done), maxRows)] {
			note := ""
			if o.Carried > 0 {
				note = fmt.Sprintf("%s carried over from the former copy", count(o.Carried, "row"))
			}
			if o.Adopted {
				note = "taken over from a run that died"
			}
			rows = append(rows, row(o.Slice.Day, o.Slice.Shard, o.Action, o.State, o.Generation, amount(o.Rows), amount(o.Objects), bytesText(o.Bytes), seconds(o.Seconds), note))
		}
		table(w, "DAY\tSHARD\tACTION\tSTATE\tGENERATION\tROWS\tOBJECTS\tBYTES\tTOOK\t", rows)
		andMore(w, len(r.Done))
	}
	for _, o := range r.Left[:min(len(r.Left), maxRows)] {
		fmt.Fprintf(w, "left    %s: %s\n", o.Slice, printable(o.Error))
	}
	for _, o := range r.Failed[:min(len(r.Failed), maxRows)] {
		fmt.Fprintf(w, "failed  %s: %s\n", o.Slice, printable(o.Error))
	}
	if len(r.Done)+len(r.Left)+len(r.Failed)+r.Elsewhere == 0 {
		if !r.cut {
			fmt.Fprintln(w, "nothing to do")
		}
		return
	}
	heldBackText(w, r.Throttled)
	others := ""
	if r.Elsewhere > 0 {
		others = fmt.Sprintf(", %d by other runs", r.Elsewhere)
	}
	fmt.Fprintf(w, "%s done%s, %d left, %d failed: %s in %s, %s, %s%s\n", count(len(r.Done), "slice"), others, len(r.Left), len(r.Failed),
		count(r.Rows, "row"), count(r.Objects, "object"), bytesText(r.Bytes), seconds(r.Seconds), rate(r.Rows, r.Seconds))
}
