package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/manifest"
)

func (a *app) purgeCommand() *cobra.Command {
	var s selection
	var b budget
	c := a.command(&cobra.Command{
		Use:   "purge",
		Short: "Delete from MySQL what is verified, past its lag and not held",
		Long: `Delete the rows of slices that are verified, past purge.lag by the manifest
database's clock, and not held. Every row is compared once more, under a lock,
with what was archived; a slice that differs is left and copied again by the next
archive. One whose objects or ClickHouse rows are no longer all there is left, too.
Only what the dry run lists is touched.

With purge.approval: required, or where the manifest's policy says so (coldtier plan
policy), a purge does a plan that a second person approved, and exactly that: the one of
--plan, else the one that was approved first of those that have something left. Without
one nothing is deleted (exit code 4).`,
		Example: `  coldtier purge --dry-run
  coldtier purge
  coldtier purge --to 2026-05-31 --shard 'im_00.*'
  coldtier purge --plan 4f1c0a9be277`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := s.parse(); err != nil {
			return nil, err
		}
		if err := b.parse(); err != nil {
			return nil, err
		}
		return a.purge(ctx, s, &b)
	})
	s.flags(c)
	b.flags(c)
	c.Flags().StringVar(&s.plan, "plan", "", "do the approved plan of this `ID`, and nothing else")
	for _, f := range []string{"day", "from", "to", "shard"} {
		c.MarkFlagsMutuallyExclusive("plan", f)
	}
	return a.shared(a.changes(c))
}

func (a *app) purge(ctx context.Context, sel selection, b *budget) (_ result, err error) {
	p, err := a.open(ctx, need{warm: true, bucket: true, rows: true, job: true, goAhead: manifest.StopPurge})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	if p.unowned != nil {
		return nil, p.unowned
	}
	if err := sel.matches(ctx, p); err != nil {
		return nil, err
	}
	m := &meter{}
	if !a.dryRun {
		if err := a.recallStops(ctx, p, manifest.StopPurge); err != nil {
			return nil, err
		}
		if err := a.recallHolds(ctx, p); err != nil {
			return nil, err
		}
		if err := a.recallRules(ctx, p); err != nil {
			return nil, err
		}
		m = a.newMeter("purge")
		defer m.end()
	}
	var end context.CancelFunc
	ctx, end = a.withBudget(ctx, p, b)
	defer end()
	pu, err := a.purger(p, m)
	if err != nil {
		return nil, setup(err)
	}
	approved, refused := a.approved(ctx, p, sel.plan)
	if refused != nil && (approved == nil || a.dryRun && sel.plan != "") {
		return nil, refused
	}
	if a.dryRun {
		if refused != nil { // what could be planned and approved
			approved = nil
		}
		r, err := a.planPurge(ctx, p, pu, purge.Selection{From: sel.from, To: sel.to, Shard: sel.shard, Approved: approved}, refused)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	plan, err := pu.Plan(ctx, purge.Selection{From: sel.from, To: sel.to, Shard: sel.shard, Approved: approved})
	if err == nil && refused != nil && sel.plan == "" && len(plan.Jobs) == 0 {
		// Where nothing is due there is nothing to approve, and nothing to refuse.
		due, err := pu.Plan(ctx, purge.Selection{From: sel.from, To: sel.to, Shard: sel.shard})
		if err != nil {
			return nil, errors.Join(refused, err)
		}
		if len(due.Jobs) == 0 && !slices.ContainsFunc(due.Left, func(l purge.Left) bool { return l.Outcome != purge.Held && l.Outcome != purge.Early }) {
			plan, refused = due, nil
		}
	}
	if err != nil || refused != nil && len(plan.Jobs) == 0 {
		return nil, errors.Join(refused, err)
	}
	var rep *purge.Report
	err = a.recorded(ctx, p, "purge", func(ctx context.Context) (any, error) {
		rep, err = pu.Execute(ctx, plan)
		rep.Throttled = p.pace.seconds()
		a.idlePurge(ctx, plan, rep)
		if rep.Count(purge.Stopped) > 0 {
			err = mark(err, errStopped)
		}
		return rep, err
	})
	m.end()
	err = errors.Join(refused, err)
	if rep == nil {
		return nil, err
	}
	return &purgeResult{rep}, err
}

type purgePlan struct {
	DryRun bool `json:"dry_run"`
	*purge.Plan
	Forecast *purgeForecast `json:"forecast"`
}

func (r *purgePlan) text(w io.Writer) {
	warningLines(w, r.Warnings)
	if r.Approved != "" {
		fmt.Fprintf(w, "approved plan %s\n", r.Approved)
	}
	var rows []string
	for _, j := range r.Jobs {
		how := string(j.Strategy)
		if j.Partition != nil {
			how += " " + j.Partition.Name
		}
		if j.Staging != "" {
			how += ", left in " + j.Staging
		}
		if j.Return != "" {
			how = "nothing: rows are put back from " + j.Return
		}
		for _, s := range j.Slices {
			rows = append(rows, row(s.Day, s.Shard, s.Generation, amount(s.Rows), how))
		}
	}
	if n := len(rows); n > 0 {
		table(w, "DAY\tSHARD\tGENERATION\tROWS\tBY", rows[:min(n, maxRows)])
		andMore(w, n)
	}
	leftLines(w, r.Left)
	r.Forecast.text(w)
	fmt.Fprintf(w, "%s with %s would be deleted, %d left\n", count(r.Slices(), "slice"), count(r.Forecast.Deletes.Rows, "row"), len(r.Left))
}

// maxLeft is how many slices left for the same cause are listed one by one.
const maxLeft = 10

func leftLines(w io.Writer, left []purge.Left) {
	n := map[purge.Outcome]int{}
	for _, l := range left {
		if n[l.Outcome]++; n[l.Outcome] <= maxLeft {
			fmt.Fprintf(w, "%-9s  %s: %s\n", l.Outcome, l.SliceKey, printable(l.Reason))
		}
	}
	for _, o := range slices.Sorted(maps.Keys(n)) {
		if n[o] > maxLeft {
			fmt.Fprintf(w, "%-9s  and %d more (--output json lists all)\n", o, n[o]-maxLeft)
		}
	}
}

type purgeResult struct{ *purge.Report }

func (r *purgeResult) text(w io.Writer) {
	var rows []string
	for _, s := range r.Slices {
		rows = append(rows, row(s.Day, s.Shard, s.Outcome, amount(s.Rows), s.Strategy, seconds(s.Seconds), printable(s.Reason)))
	}
	if n := len(rows); n > 0 {
		table(w, "DAY\tSHARD\tOUTCOME\tROWS\tBY\tTOOK\t", rows[:min(n, maxRows)])
		andMore(w, n)
	}
	leftLines(w, r.Left)
	if r.Count(purge.Drifted) > 0 {
		fmt.Fprintln(w, "remedy     coldtier archive: what drifted is copied again, and its lag begins anew")
	}
	heldBackText(w, r.Throttled)
	fmt.Fprintf(w, "%s purged, %d not: %s deleted, %s\n", count(r.Count(purge.Purged), "slice"), len(r.Slices)-r.Count(purge.Purged)+len(r.Left),
		count(r.Rows, "row"), seconds(r.Seconds))
}
