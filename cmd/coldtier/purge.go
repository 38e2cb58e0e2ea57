package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/purge"
)

func (a *app) purgeCommand() *cobra.Command {
	var s selection
	c := a.command(&cobra.Command{
		Use:   "purge",
		Short: "Delete from MySQL what is verified, past its lag and not held",
		Long: `Delete the rows of slices that are verified, past purge.lag by the manifest
database's clock, and not held. Every row is compared once more, under a lock,
with what was archived; a slice that differs is left and copied again by the next
archive. One whose objects or ClickHouse rows are no longer all there is left, too. Only what the dry run lists is touched.`,
		Example: `  coldtier purge --dry-run
  coldtier purge
  coldtier purge --to 2026-05-31 --shard 'im_00.*'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := s.parse(); err != nil {
			return nil, err
		}
		return a.purge(ctx, s)
	})
	s.flags(c)
	return a.changes(c)
}

func (a *app) purge(ctx context.Context, sel selection) (_ result, err error) {
	p, err := a.open(ctx, need{warm: true, bucket: true, rows: true, job: true})
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
		m = a.newMeter("purge")
		defer m.end()
	}
	pu, err := a.purger(p, m)
	if err != nil {
		return nil, setup(err)
	}
	plan, err := pu.Plan(ctx, purge.Selection{From: sel.from, To: sel.to, Shard: sel.shard})
	if err != nil {
		return nil, err
	}
	if a.dryRun {
		return &purgePlan{true, plan}, nil
	}
	var rep *purge.Report
	err = a.recorded(ctx, p, "purge", func() (any, error) {
		rep, err = pu.Execute(ctx, plan)
		return rep, err
	})
	m.end()
	if rep == nil {
		return nil, err
	}
	return &purgeResult{rep}, err
}

type purgePlan struct {
	DryRun bool `json:"dry_run"`
	*purge.Plan
}

func (r *purgePlan) text(w io.Writer) {
	warningLines(w, r.Warnings)
	var rows []string
	for _, j := range r.Jobs {
		how := string(j.Strategy)
		if j.Partition != nil {
			how += " " + j.Partition.Name
		}
		if j.Staging != "" {
			how += ", left in " + j.Staging
		}
		for _, s := range j.Slices {
			rows = append(rows, row(s.Day, s.Shard, s.Generation, s.Rows, how))
		}
	}
	if n := len(rows); n > 0 {
		table(w, "DAY\tSHARD\tGENERATION\tROWS\tBY", rows[:min(n, maxRows)])
		andMore(w, n)
	}
	leftLines(w, r.Left)
	fmt.Fprintf(w, "%s with %s would be deleted, %d left\n", count(r.Slices(), "slice"), count(r.Rows(), "row"), len(r.Left))
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
		rows = append(rows, row(s.Day, s.Shard, s.Outcome, s.Rows, s.Strategy, seconds(s.Seconds), printable(s.Reason)))
	}
	if n := len(rows); n > 0 {
		table(w, "DAY\tSHARD\tOUTCOME\tROWS\tBY\tTOOK\t", rows[:min(n, maxRows)])
		andMore(w, n)
	}
	leftLines(w, r.Left)
	fmt.Fprintf(w, "%s purged, %d not: %s deleted, %s\n", count(r.Count(purge.Purged), "slice"), len(r.Slices)-r.Count(purge.Purged)+len(r.Left),
		count(r.Rows, "row"), seconds(r.Seconds))
}
