package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/manifest"
)

func (a *app) approveCommand() *cobra.Command {
	var by, reason string
	var yes bool
	c := a.command(&cobra.Command{
		Use:   "approve PLAN",
		Short: "Approve a plan of a purge that another person made",
		Long: `Show what a plan of a purge (coldtier plan purge --save) would delete, ask, and approve
it. Who made the plan cannot approve it: the approval needs another account of the
manifest's database (deploy/sql/manifest/approve.sql), named in manifest.dsn of the
approver's own configuration, and another --by where both gave one. The plan is done
exactly: a slice that changes after it was planned is left out.

It asks on a terminal; elsewhere --yes is needed.`,
		Example: `  coldtier --config approver.yaml approve 4f1c0a9be277
  coldtier --config approver.yaml approve 4f1c0a9be277 --by bob@example.com --reason "ticket 4711" --yes`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) (result, error) {
		return a.approve(ctx, args[0], manifest.Person{User: orUser(""), By: by}, reason, yes)
	})
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&by, "by", "", "`WHO` approves it")
	f.StringVar(&reason, "reason", "", "why")
	f.BoolVar(&yes, "yes", false, "do not ask")
	return a.changes(c)
}

func (a *app) approve(ctx context.Context, id string, by manifest.Person, reason string, yes bool) (_ result, err error) {
	p, err := a.open(ctx, need{})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	r, list, err := a.savedPlan(ctx, p, id)
	if err != nil {
		return nil, err
	}
	account, err := p.manifest.Account(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Approved != nil:
		return r, mark(fmt.Errorf("plan %s: %s approved it at %s already", id, r.Approved.Account, stamp(r.Approved.At)), errUnsafe)
	case r.Revoked != nil || r.Expired:
		return r, r.Refused()
	case account == r.MadeBy.Account: // before a person is asked; Approve looks again
		return r, fmt.Errorf("plan %s: %w: the manifest's account %s made it; name another person's account in manifest.dsn (deploy/sql/manifest/approve.sql)", id, manifest.ErrUnapproved, account)
	}
	if a.dryRun {
		r.did = "would be approved by " + account
		return r, nil
	}
	if !yes {
		r.text(a.stderr)
		if err := confirm(ctx, a.stderr, fmt.Sprintf("Approve plan %s as %s? ", id, account)); err != nil {
			return nil, err
		}
	}
	if err := p.manifest.Approve(ctx, r.SavedPlan, list, by, reason); err != nil {
		return nil, err
	}
	if r, _, err = a.savedPlan(ctx, p, id); err != nil {
		return nil, err
	}
	r.did = "approved by " + account
	return r, nil
}

// confirm asks on the terminal.
func confirm(ctx context.Context, w io.Writer, question string) error {
	if !isTerminal(os.Stdin) {
		return usage("there is no terminal to ask on: look at the plan with coldtier plan show, then give --yes")
	}
	fmt.Fprint(w, question+"[yes/no] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // an end is no yes
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.TrimSpace(line) != "yes" {
			return mark(errors.New("not approved: the answer was not yes"), errUnsafe)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// approved finds the plan that a purge is to do: the one that is named, or, where an
// approval is required, the one in force that was approved first. nil: a purge needs none.
// Where there is none that may be done the error says so, and a purge may still put back
// what one that died left isolated.
func (a *app) approved(ctx context.Context, p *parts, id string) (*purge.Approved, error) {
	var plan *manifest.SavedPlan
	required, err := a.approvalRequired(ctx, p)
	switch {
	case err != nil:
		return nil, err
	case id != "":
		if plan, err = p.manifest.SavedPlan(ctx, id); errors.Is(err, manifest.ErrNotFound) {
			return nil, mark(fmt.Errorf("%w: see coldtier plan list", err), manifest.ErrUnapproved)
		} else if err != nil {
			return nil, err
		}
		if err := plan.Refused(); err != nil {
			return &purge.Approved{}, err
		}
		st, err := p.manifest.PlanStanding(ctx, plan)
		if err != nil {
			return nil, err
		}
		if st.Left == 0 {
			return &purge.Approved{}, fmt.Errorf("plan %s: %w: it is used up: %s purged, %d changed since: make a new one with coldtier plan purge --save",
				id, manifest.ErrUnapproved, count(st.Purged, "slice"), st.Changed)
		}
	case !required:
		return nil, nil
	default:
		if plan, err = p.manifest.NextPlan(ctx); err != nil {
			return nil, err
		}
		if plan == nil {
			return &purge.Approved{}, fmt.Errorf("%w: purge.approval is %s, and no plan in force has anything left: make one with coldtier plan purge --save, and let a second person run coldtier approve ID",
				manifest.ErrUnapproved, manifest.ApprovalRequired)
		}
	}
	list, err := p.manifest.PlanSlices(ctx, plan)
	if err != nil {
		return nil, err
	}
	return &purge.Approved{ID: plan.ID, Slices: list}, nil
}

// approvalRequired says whether a purge needs an approved plan: by this configuration or
// by the policy that manifest or bucket have. What only a configuration says another process may not know.
func (a *app) approvalRequired(ctx context.Context, p *parts) (bool, error) {
	policy, err := p.manifest.ApprovalPolicy(ctx)
	if err != nil {
		return false, err
	}
	if policy.Value == manifest.ApprovalRequired {
		return true, nil
	}
	if p.approval {
		a.log.Warn("the bucket has a policy that the manifest has forgotten: a purge needs an approved plan; the next coldtier archive enters it")
		return true, nil
	}
	if p.cfg.Purge.Approval != manifest.ApprovalRequired {
		return false, nil
	}
	a.log.Warn("purge.approval is required by this configuration alone; coldtier plan policy required makes it so for every process")
	return true, nil
}
