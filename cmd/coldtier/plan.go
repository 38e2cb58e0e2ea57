package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/manifest/mirror"
)

func (a *app) planCommand() *cobra.Command {
	both := &selection{}
	c := a.command(&cobra.Command{
		Use:   "plan",
		Short: "Say what archive and purge would do, and keep plans of purges for approval",
		Long: `Say what a run of archive and one of purge would do now: slices, rows, bytes, objects
and their sizes, requests, minutes as former runs took, money by the prices of the
configuration, and what purge would delete of each table. Each figure is exact or
estimated, and says which. Nothing is changed, and no table is scanned. docs/plan.md tells
how the estimates are made and how far off they were.

plan purge --save keeps the plan in the manifest, for a second person to approve
(coldtier approve); list, show and revoke are about such plans.`,
		Example: `  coldtier plan
  coldtier plan archive --from 2024-01-01 --to 2024-12-31
  coldtier plan purge --save --by ann@example.com
  coldtier plan list`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) { return a.plan(ctx, both, true, true, nil) })
	both.flags(c)
	c.AddCommand(a.planArchiveCommand(), a.planPurgeCommand(), a.planListCommand(), a.planShowCommand(), a.planRevokeCommand(), a.planPolicyCommand())
	return c
}

func (a *app) planArchiveCommand() *cobra.Command {
	s := &selection{}
	c := a.command(&cobra.Command{
		Use:     "archive",
		Short:   "Say what archive would do: archive --dry-run",
		Example: "  coldtier plan archive --to 2026-05-31",
		Args:    noArgs,
	}, func(ctx context.Context, _ []string) (result, error) { return a.plan(ctx, s, true, false, nil) })
	s.flags(c)
	return c
}

// saving is how a plan is kept.
type saving struct {
	by    manifest.Person
	valid time.Duration
}

func (a *app) planPurgeCommand() *cobra.Command {
	s := &selection{}
	var save bool
	var by, valid string
	c := a.command(&cobra.Command{
		Use:   "purge",
		Short: "Say what purge would do, and keep it for approval with --save",
		Long: `Say what purge would do: purge --dry-run. With --save the plan is kept in the manifest
under an ID: exactly these slices, each with its generation, rows and fingerprint. A second
person approves it (coldtier approve ID), and coldtier purge --plan ID does it.`,
		Example: `  coldtier plan purge
  coldtier plan purge --to 2026-05-31 --save --by ann@example.com --valid 24h`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if !save {
			return a.plan(ctx, s, false, true, nil)
		}
		d, err := config.ParseDuration(valid)
		if err != nil || d < time.Minute || d > maxValid {
			return nil, usage("--valid %q: want 1m to 30d", valid)
		}
		return a.plan(ctx, s, false, true, &saving{manifest.Person{User: orUser(""), By: by}, d})
	})
	s.flags(c)
	f := c.Flags()
	f.BoolVar(&save, "save", false, "keep the plan in the manifest, for approval")
	f.StringVar(&by, "by", "", "`WHO` makes it")
	f.StringVar(&valid, "valid", "72h", "for how `LONG` it may be approved and done")
	return c
}

const maxValid = 30 * 24 * time.Hour

type planResult struct {
	Archive *archivePlan        `json:"archive,omitempty"`
	Purge   *purgePlan          `json:"purge,omitempty"`
	Saved   *manifest.SavedPlan `json:"saved,omitempty"`
}

func (a *app) plan(ctx context.Context, sel *selection, archives, purges bool, save *saving) (_ result, err error) {
	if err := sel.parse(); err != nil {
		return nil, err
	}
	p, err := a.open(ctx, need{warm: true, bucket: true, rows: true, job: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	out := &planResult{}
	if archives {
		if out.Archive, err = a.planArchive(ctx, p, archive.Selection{From: sel.from, To: sel.to, Shard: sel.shard}); err != nil {
			return nil, err
		}
	}
	if !purges {
		return out.Archive, nil
	}
	if !archives {
		if err := sel.matches(ctx, p); err != nil {
			return nil, err
		}
	}
	if p.unowned != nil {
		if archives { // nothing was ever copied into this bucket
			out.Purge = nothingToPurge(p.unowned)
			return out, nil
		}
		return nil, p.unowned
	}
	pu, err := a.purger(p, &meter{})
	if err != nil {
		return nil, setup(err)
	}
	if out.Purge, err = a.planPurge(ctx, p, pu, purge.Selection{From: sel.from, To: sel.to, Shard: sel.shard}, nil); err != nil {
		return nil, err
	}
	if save == nil {
		if !archives {
			return out.Purge, nil
		}
		return out, nil
	}
	return a.savePlan(ctx, p, out, save)
}

func nothingToPurge(why error) *purgePlan {
	return &purgePlan{true, &purge.Plan{Warnings: []string{why.Error()}, Jobs: []purge.Job{}, Left: []purge.Left{}},
		&purgeForecast{Basis: archive.Exact, Deletes: &purge.Totals{Tables: []purge.TableTotals{}}, Requests: requests{exactly(0), exactly(0), exactly(0), exactly(0)}, Time: took(0, 0, 0, 0, "purge")}}
}

// planArchive is what archive would do.
func (a *app) planArchive(ctx context.Context, p *parts, sel archive.Selection) (*archivePlan, error) {
	ar, err := a.archiver(p)
	if err != nil {
		return nil, setup(err)
	}
	sel.Filled = true
	plan, err := ar.Plan(ctx, sel)
	if err != nil {
		return nil, err
	}
	f, err := a.forecastArchive(ctx, p, ar, plan)
	if err != nil {
		return nil, err
	}
	return &archivePlan{true, plan, f}, nil
}

// planPurge is what purge would do; refused is why it would do nothing of it.
func (a *app) planPurge(ctx context.Context, p *parts, pu *purge.Purger, sel purge.Selection, refused error) (*purgePlan, error) {
	plan, err := pu.Plan(ctx, sel)
	if err != nil {
		return nil, err
	}
	f, err := a.forecastPurge(ctx, p, pu, plan)
	if err != nil {
		return nil, err
	}
	if refused != nil {
		plan.Warnings = append(plan.Warnings, "nothing of this would be deleted now: "+refused.Error())
	}
	return &purgePlan{true, plan, f}, nil
}

func (a *app) savePlan(ctx context.Context, p *parts, out *planResult, save *saving) (result, error) {
	generations := map[uint64]uint32{}
	for _, j := range out.Purge.Jobs {
		if j.Return != "" {
			continue
		}
		for _, s := range j.Slices {
			generations[s.ID] = s.Generation
		}
	}
	if len(generations) == 0 {
		return out, nil
	}
	var err error
	out.Saved, err = p.manifest.SavePlan(ctx, save.by, save.valid, generations)
	return out, err
}

func (r *planResult) text(w io.Writer) {
	if r.Archive != nil {
		fmt.Fprintln(w, "ARCHIVE")
		r.Archive.text(w)
		fmt.Fprintln(w, "\nPURGE")
	}
	if r.Purge != nil {
		r.Purge.text(w)
	}
	switch {
	case r.Saved != nil:
		fmt.Fprintf(w, "plan %s saved, valid until %s: a second person approves it with coldtier approve %s\n", r.Saved.ID, stamp(r.Saved.Expires), r.Saved.ID)
	case r.Archive == nil:
		fmt.Fprintln(w, "nothing is due: no plan was saved")
	}
}

// savedPlan is a plan of the manifest.
type savedPlan struct {
	*manifest.SavedPlan
	Standing manifest.PlanStanding `json:"standing"`
	List     []manifest.PlanSlice  `json:"list"`
	Warning  string                `json:"warning,omitempty"`

	did string
}

func (a *app) savedPlan(ctx context.Context, p *parts, id string) (*savedPlan, []manifest.PlanSlice, error) {
	plan, err := p.manifest.SavedPlan(ctx, id)
	if errors.Is(err, manifest.ErrNotFound) {
		return nil, nil, usage("%w: see coldtier plan list", err)
	}
	if err != nil {
		return nil, nil, err
	}
	r := &savedPlan{SavedPlan: plan}
	if r.List, err = p.manifest.PlanSlices(ctx, plan); err != nil {
		return nil, nil, mark(err, errUnsafe)
	}
	if r.Standing, err = p.manifest.PlanStanding(ctx, plan); err != nil {
		return nil, nil, err
	}
	return r, r.List, nil
}

func (r *savedPlan) text(w io.Writer) {
	var rows []string
	var bytes int64
	for _, s := range r.List {
		rows = append(rows, row(s.Day, s.Shard, s.Generation, amount(s.Rows), bytesText(s.Bytes), s.Fingerprint.Sum()))
		bytes += s.Bytes
	}
	table(w, "DAY\tSHARD\tGENERATION\tROWS\tCOPY\tFINGERPRINT", rows[:min(len(rows), maxRows)])
	andMore(w, len(rows))
	fmt.Fprintf(w, "plan       %s: deletes from MySQL what is there of %s, whose copies have %s and %s\n", r.ID, count(r.Slices, "slice"), count(r.Rows, "row"), bytesText(bytes))
	if n := len(r.List); n > 0 {
		fmt.Fprintf(w, "days       %s to %s\n", r.List[0].Day, r.List[n-1].Day)
	}
	fmt.Fprintf(w, "hash       %s\n", r.Hash)
	fmt.Fprintf(w, "made       %s by %s\n", stamp(r.Made), personText(r.MadeBy))
	fmt.Fprintf(w, "expires    %s\n", stamp(r.Expires))
	approvalLine(w, "approved", r.Approved)
	approvalLine(w, "revoked", r.Revoked)
	fmt.Fprintf(w, "standing   %s: %d to purge, of which %d held; %d purged, %d changed since\n", standing(r.SavedPlan, r.Standing), r.Standing.Left, r.Standing.Held, r.Standing.Purged, r.Standing.Changed)
	if r.did != "" {
		fmt.Fprintf(w, "plan %s %s\n", r.ID, r.did)
	}
	if r.Warning != "" {
		warningLines(w, []string{r.Warning})
	}
}

func approvalLine(w io.Writer, what string, a *manifest.Approval) {
	if a == nil {
		return
	}
	text := fmt.Sprintf("%-9s  %s by %s", what, stamp(a.At), personText(a.Person))
	if a.Reason != "" {
		text += ": " + printable(a.Reason)
	}
	fmt.Fprintln(w, text)
}

func personText(p manifest.Person) string {
	who := fmt.Sprintf("account %s (user %s", printable(p.Account), printable(p.User))
	if p.By != "" {
		who += ", " + printable(p.By)
	}
	return who + ")"
}

// standing is one word for where a plan stands.
func standing(p *manifest.SavedPlan, st manifest.PlanStanding) string {
	switch {
	case p.Revoked != nil:
		return "revoked"
	case st.Left == 0:
		return "used up"
	case p.Expired:
		return "expired"
	case p.Approved == nil:
		return "waits for approval"
	}
	return "approved"
}

func (a *app) planShowCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:     "show PLAN",
		Short:   "Show a saved plan with all its slices, and what became of them",
		Example: "  coldtier plan show 4f1c0a9be277",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) (_ result, err error) {
		p, err := a.open(ctx, need{})
		if err != nil {
			return nil, err
		}
		defer func() { err = joinClose(err, p) }()
		r, _, err := a.savedPlan(ctx, p, args[0])
		if err != nil {
			return nil, err
		}
		return r, nil
	})
}

// maxPlans is how many plans are listed.
const maxPlans = 50

type listedPlan struct {
	*manifest.SavedPlan
	Standing manifest.PlanStanding `json:"standing"`
}

type plansResult struct {
	Plans []listedPlan `json:"plans"`
	by    string       // whose alone; "": all
}

func (a *app) planListCommand() *cobra.Command {
	var by string
	c := a.command(&cobra.Command{
		Use:   "list",
		Short: fmt.Sprintf("List the newest %d saved plans", maxPlans),
		Long: fmt.Sprintf(`List the newest %d saved plans. MADE BY is the account of the manifest's database, and in
brackets the user of the operating system or who he said he is (--by of plan purge --save).
--by lists those alone that one of these made.`, maxPlans),
		Example: `  coldtier plan list
  coldtier plan list --by ann@example.com`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (_ result, err error) {
		p, err := a.open(ctx, need{})
		if err != nil {
			return nil, err
		}
		defer func() { err = joinClose(err, p) }()
		all, err := p.manifest.SavedPlans(ctx, by, maxPlans)
		if err != nil {
			return nil, err
		}
		r := &plansResult{Plans: []listedPlan{}, by: by}
		for _, x := range all {
			st, err := p.manifest.PlanStanding(ctx, x)
			if err != nil {
				return nil, err
			}
			r.Plans = append(r.Plans, listedPlan{x, st})
		}
		return r, nil
	})
	c.Flags().StringVar(&by, "by", "", "list the plans alone that `WHO` made: an account, a user, or --by of plan purge --save")
	return c
}

func (r *plansResult) text(w io.Writer) {
	if len(r.Plans) == 0 && r.by != "" {
		fmt.Fprintf(w, "no plans made by %s: coldtier plan list has all\n", printable(r.by))
		return
	}
	if len(r.Plans) == 0 {
		fmt.Fprintln(w, "no plans: coldtier plan purge --save makes one")
		return
	}
	var rows []string
	for _, p := range r.Plans {
		rows = append(rows, row(p.ID, standing(p.SavedPlan, p.Standing), p.Slices, amount(p.Rows), p.Standing.Left, printable(p.MadeBy.Account)+" ("+printable(cmp.Or(p.MadeBy.By, p.MadeBy.User))+")", stamp(p.Made), stamp(p.Expires)))
	}
	table(w, "PLAN\tSTANDING\tSLICES\tROWS\tLEFT\tMADE BY\tAT\tEXPIRES", rows)
}

func (a *app) planRevokeCommand() *cobra.Command {
	var by, reason string
	c := a.command(&cobra.Command{
		Use:   "revoke PLAN",
		Short: "Revoke a plan: nothing more is deleted by it",
		Long: `Revoke a plan, approved or not. A purge that is at it stops before its next chunk, and
rows that it has isolated are put back. What it has deleted stays in the cold tier.`,
		Example: `  coldtier plan revoke 4f1c0a9be277 --reason "the table is still needed"`,
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) (_ result, err error) {
		p, err := a.open(ctx, need{})
		if err != nil {
			return nil, err
		}
		defer func() { err = joinClose(err, p) }()
		r, _, err := a.savedPlan(ctx, p, args[0])
		if err != nil {
			return nil, err
		}
		if r.did = "would be revoked"; a.dryRun {
			return r, nil
		}
		if err := p.manifest.Revoke(ctx, args[0], manifest.Person{User: orUser(""), By: by}, reason); err != nil {
			return nil, err
		}
		if r, _, err = a.savedPlan(ctx, p, args[0]); err != nil {
			return nil, err
		}
		r.did = "revoked"
		r.Warning = a.mirrorRule(ctx, p, func(ctx context.Context, m *mirror.Mirror) error {
			return m.PutRevocation(ctx, manifest.Revocation{Plan: r.ID, Approval: *r.Revoked})
		})
		return r, nil
	})
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&by, "by", "", "`WHO` revokes it")
	f.StringVar(&reason, "reason", "", "why")
	return a.changes(c)
}

type policyResult struct {
	DryRun bool `json:"dry_run,omitempty"`
	manifest.Policy
	Configured string `json:"configured"` // purge.approval of this configuration
	Warning    string `json:"warning,omitempty"`
}

func (a *app) planPolicyCommand() *cobra.Command {
	var by string
	c := a.command(&cobra.Command{
		Use:   "policy [required|none]",
		Short: "Show or set whether purges need an approved plan, for every process",
		Long: `Show or set in the manifest whether a purge needs a plan that a second person approved.
Set to required it holds for every process at once, whatever its configuration says: one
with an older file cannot pass it by. purge.approval: required in a configuration holds
beside it, for the processes that read that file. The purge's own account cannot set it
(deploy/sql/manifest/purge.sql).`,
		Example: `  coldtier plan policy
  coldtier plan policy required --by ops@example.com`,
		Args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) (_ result, err error) {
		if len(args) == 1 && args[0] != manifest.ApprovalRequired && args[0] != manifest.ApprovalNone {
			return nil, usage("policy %q: want %s or %s", args[0], manifest.ApprovalRequired, manifest.ApprovalNone)
		}
		p, err := a.open(ctx, need{})
		if err != nil {
			return nil, err
		}
		defer func() { err = joinClose(err, p) }()
		r := &policyResult{DryRun: a.dryRun, Configured: p.cfg.Purge.Approval}
		if len(args) == 1 && !a.dryRun {
			if err := p.manifest.SetApprovalPolicy(ctx, args[0], manifest.Person{User: orUser(""), By: by}); err != nil {
				return nil, err
			}
		}
		if r.Policy, err = p.manifest.ApprovalPolicy(ctx); err != nil {
			return nil, err
		}
		if len(args) == 1 && !a.dryRun {
			r.Warning = a.mirrorRule(ctx, p, func(ctx context.Context, m *mirror.Mirror) error { return m.PutPolicy(ctx, r.Policy) })
		}
		if len(args) == 1 {
			r.Value = args[0]
		}
		return r, nil
	})
	c.Flags().StringVar(&by, "by", "", "`WHO` sets it")
	return a.changes(c)
}

func (r *policyResult) text(w io.Writer) {
	would := ""
	if r.DryRun {
		would = "would be "
	}
	fmt.Fprintf(w, "policy %s %s%s", r.Name, would, r.Value)
	if r.SetBy != nil && !r.DryRun {
		fmt.Fprintf(w, ", set at %s by %s", stamp(*r.At), personText(*r.SetBy))
	}
	fmt.Fprintf(w, "; this configuration says %s\n", r.Configured)
	if r.Warning != "" {
		warningLines(w, []string{r.Warning})
	}
}
