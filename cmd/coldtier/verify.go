package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/manifest"
)

func (a *app) verifyCommand() *cobra.Command {
	var s selection
	c := a.command(&cobra.Command{
		Use:   "verify",
		Short: "Read copies back from S3 and ClickHouse and compare",
		Long: `Read every copy back, all of its objects and all of its rows in ClickHouse, and
compare both with what the scan of MySQL saw. A committed slice that is equal
becomes verified. A slice that differs is never purged; while its rows are still in
MySQL the next archive copies it again.`,
		Example: `  coldtier verify
  coldtier verify --day 2026-05-01 --shard 'im_00.*'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := s.parse(); err != nil {
			return nil, err
		}
		return a.verify(ctx, s)
	})
	s.flags(c)
	return a.changes(c)
}

func (a *app) verify(ctx context.Context, sel selection) (_ result, err error) {
	p, err := a.open(ctx, need{bucket: true, rows: true, job: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	var warnings []string
	if p.unowned != nil {
		warnings = append(warnings, a.redactor.Text(p.unowned.Error()))
	}
	if err := sel.matches(ctx, p); err != nil {
		return nil, err
	}
	v := a.verifier(p)
	list, err := v.Plan(ctx, archive.Selection{From: sel.from, To: sel.to, Shard: sel.shard})
	if err != nil {
		return nil, err
	}
	if a.dryRun {
		return &verifyPlan{true, append([]manifest.Slice{}, list...), warnings}, nil
	}
	m := a.newMeter("verify")
	m.bySlice = true
	defer m.end()
	var rep *archive.VerifyReport
	err = a.recorded(ctx, p, "verify", func() (any, error) {
		if rep, err = v.Run(ctx, list, m); err != nil {
			return nil, err
		}
		return rep, verified(rep)
	})
	m.end()
	if rep == nil {
		return nil, err
	}
	return &verifyResult{rep, warnings}, err
}

// verified says what a report means for the run as a whole. A difference counts
// most: exit refuses for it.
func verified(r *archive.VerifyReport) error {
	err := r.Err()
	switch {
	case len(r.Different) > 0 || len(r.Unknown) == 0:
		return err
	case all(r.Unknown, func(o archive.VerifyOutcome) bool { return others(o.Err) }):
		if len(r.Equal) > 0 {
			return mark(err, errPartial)
		}
		return mark(err, manifest.ErrLeased)
	case len(r.Equal) > 0:
		return mark(err, errPartial)
	}
	return err
}

type verifyPlan struct {
	DryRun   bool             `json:"dry_run"`
	Slices   []manifest.Slice `json:"slices"`
	Warnings []string         `json:"warnings,omitempty"`
}

func (r *verifyPlan) text(w io.Writer) {
	warningLines(w, r.Warnings)
	var rows []string
	for _, s := range r.Slices[:min(len(r.Slices), maxRows)] {
		rows = append(rows, row(s.Day, s.Shard, s.State, s.Generation, s.Rows, bytesText(s.Bytes)))
	}
	if len(rows) > 0 {
		table(w, "DAY\tSHARD\tSTATE\tGENERATION\tROWS\tBYTES", rows)
	}
	andMore(w, len(r.Slices))
	fmt.Fprintf(w, "%s would be read back\n", count(len(r.Slices), "slice"))
}

type verifyResult struct {
	*archive.VerifyReport
	Warnings []string `json:"warnings,omitempty"`
}

func (r *verifyResult) text(w io.Writer) {
	warningLines(w, r.Warnings)
	for _, o := range r.Different {
		fmt.Fprintf(w, "different  %s generation %d: %s\n", o.Slice, o.Generation, printable(o.Error))
	}
	for _, o := range r.Unknown {
		fmt.Fprintf(w, "unknown    %s generation %d: %s\n", o.Slice, o.Generation, printable(o.Error))
	}
	fmt.Fprintf(w, "%s equal, %d different, %d unknown: %s, %s, %s\n", count(len(r.Equal), "slice"), len(r.Different), len(r.Unknown),
		count(r.Rows, "row"), bytesText(r.Bytes), seconds(r.Seconds))
}
