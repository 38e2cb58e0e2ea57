package main

import (
	"context"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

func (a *app) holdCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "hold",
		Short: "Place, release and list holds",
		Long: `A hold forbids deleting until it is released. On a slice (--shard and --day) it
stops the purge. On a conversation or a sender it stops whatever would take rows
out of the cold tier; the purge of the warm rows goes on, since their copies stay.`,
		Example: `  coldtier hold add --shard im_00.msg_content_00 --day 2026-05-01 --reason "ticket 4711"
  coldtier hold list
  coldtier hold release 3`,
	}, a.holdAddCommand(), a.holdReleaseCommand(), a.holdListCommand())
}

func (a *app) holdAddCommand() *cobra.Command {
	var shard, day, conversation, sender, reason, by string
	c := a.command(&cobra.Command{
		Use:   "add {--shard S --day D | --conversation ID | --sender ID} --reason TEXT",
		Short: "Place a hold",
		Example: `  coldtier hold add --shard im_00.msg_content_00 --day 2026-05-01 --reason "ticket 4711"
  coldtier hold add --conversation 9007199254740993 --reason "court order 12/26"
  coldtier hold add --sender 42 --reason "court order 12/26" --by legal@example.com`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if strings.TrimSpace(reason) == "" {
			return nil, usage("--reason: say why")
		}
		h := manifest.Hold{Reason: reason, By: orUser(by)}
		switch {
		case conversation != "":
			h.Kind, h.Subject = manifest.HoldConversation, conversation
		case sender != "":
			h.Kind, h.Subject = manifest.HoldSender, sender
		default:
			d, err := snowflake.ParseDay(day)
			if err != nil {
				return nil, usage("--day: %w", err)
			}
			s, err := manifest.ParseShard(shard)
			if err != nil {
				return nil, usage("--shard: %w", err)
			}
			h.Kind, h.Subject = manifest.HoldSlice, manifest.SliceKey{Shard: s, Day: d}.String()
		}
		return a.holdAdd(ctx, h)
	})
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&shard, "shard", "", "`DATABASE.TABLE` of a slice")
	f.StringVar(&day, "day", "", "`DAY` of a slice")
	f.StringVar(&conversation, "conversation", "", "`ID` of a conversation")
	f.StringVar(&sender, "sender", "", "`ID` of a sender")
	f.StringVar(&reason, "reason", "", "why; required")
	f.StringVar(&by, "by", "", "`WHO` places it (default: the current user)")
	c.MarkFlagsRequiredTogether("shard", "day")
	c.MarkFlagsMutuallyExclusive("shard", "conversation", "sender")
	c.MarkFlagsOneRequired("shard", "conversation", "sender")
	_ = c.MarkFlagRequired("reason") // it exists
	return a.changes(c)
}

// orUser is by, or who runs the program.
func orUser(by string) string {
	if by != "" {
		return by
	}
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return u.Username
}

type holdResult struct {
	DryRun bool            `json:"dry_run"`
	Hold   manifest.Hold   `json:"hold"`
	Slice  *manifest.Slice `json:"slice,omitempty"` // the slice it is on, when it is in the manifest
	did    string
}

func (a *app) holdAdd(ctx context.Context, h manifest.Hold) (_ result, err error) {
	p, err := a.open(ctx, need{})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	r := &holdResult{DryRun: a.dryRun, Hold: h, did: "added"}
	if h.Kind == manifest.HoldSlice {
		key, err := manifest.ParseSlice(p.cfg.Source.Name, h.Subject)
		if err != nil {
			return nil, usage("%w", err)
		}
		found, err := p.manifest.Slices(ctx, manifest.Filter{From: &key.Day, To: &key.Day})
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if s.Shard == key.Shard {
				r.Slice = &s
			}
		}
	}
	if a.dryRun {
		return r, nil
	}
	if r.Hold.ID, err = p.manifest.AddHold(ctx, h); err != nil {
		return nil, err
	}
	if r.Hold.At, err = p.manifest.Now(ctx); err != nil {
		return nil, err
	}
	if r.Slice != nil {
		r.Slice.Held = true
	}
	return r, a.mirrorHold(ctx, p)
}

func (r *holdResult) text(w io.Writer) {
	would := ""
	if r.DryRun {
		would = "would be "
	}
	id := ""
	if r.Hold.ID != 0 {
		id = fmt.Sprintf(" %d", r.Hold.ID)
	}
	fmt.Fprintf(w, "hold%s on %s %s %s%s (%s)\n", id, r.Hold.Kind, printable(r.Hold.Subject), would, r.did, printable(r.Hold.Reason))
	if r.Hold.Kind != manifest.HoldSlice || r.did != "added" {
		return
	}
	switch {
	case r.Slice == nil:
		fmt.Fprintln(w, "the slice is not in the manifest yet; the hold will count when it is")
	case r.Slice.State == manifest.Purged:
		fmt.Fprintln(w, "the slice was purged before: its rows are in the cold tier only")
	default:
		fmt.Fprintf(w, "the slice is %s\n", r.Slice.State)
	}
}

func (a *app) holdReleaseCommand() *cobra.Command {
	var by string
	c := a.command(&cobra.Command{
		Use:     "release HOLD",
		Short:   "Release a hold by its number",
		Example: `  coldtier hold release 3 --by legal@example.com`,
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) (_ result, err error) {
		id, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil {
			return nil, usage("hold %q: want its number, see coldtier hold list", args[0])
		}
		p, err := a.open(ctx, need{})
		if err != nil {
			return nil, err
		}
		defer func() { err = joinClose(err, p) }()
		all, err := p.manifest.Holds(ctx, false)
		if err != nil {
			return nil, err
		}
		for _, h := range all {
			if h.ID != id {
				continue
			}
			r := &holdResult{DryRun: a.dryRun, Hold: h, did: "released"}
			if a.dryRun {
				return r, nil
			}
			if err := p.manifest.ReleaseHold(ctx, id, orUser(by)); err != nil {
				return nil, err
			}
			return r, a.mirrorHold(ctx, p)
		}
		return nil, usage("hold %d is not in force: see coldtier hold list", id)
	})
	c.Flags().StringVar(&by, "by", "", "`WHO` releases it (default: the current user)")
	return a.changes(c)
}

func (a *app) holdListCommand() *cobra.Command {
	var all bool
	c := a.command(&cobra.Command{
		Use:   "list",
		Short: "List the holds in force",
		Example: `  coldtier hold list
  coldtier hold list --all`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (_ result, err error) {
		p, err := a.open(ctx, need{})
		if err != nil {
			return nil, err
		}
		defer func() { err = joinClose(err, p) }()
		holds, err := p.manifest.Holds(ctx, all)
		if err != nil {
			return nil, err
		}
		return &holdsResult{Holds: append([]manifest.Hold{}, holds...)}, nil
	})
	c.Flags().BoolVar(&all, "all", false, "also those that were released or have expired")
	return c
}

type holdsResult struct {
	Holds []manifest.Hold `json:"holds"`
}

func (r *holdsResult) text(w io.Writer) {
	if len(r.Holds) == 0 {
		fmt.Fprintln(w, "no holds")
		return
	}
	var rows []string
	for _, h := range r.Holds {
		rows = append(rows, row(h.ID, h.Kind, printable(h.Subject), printable(h.By), stamp(h.At), until(h.ExpiresAt, h.ReleasedAt, "released", h.ReleasedBy), shortened(h.Reason, 60)))
	}
	table(w, "HOLD\tON\tSUBJECT\tBY\tSINCE\tUNTIL\tREASON", rows)
}

// until is when a hold or a stop ends by itself, or when and by whom it was ended; "": neither.
func until(ends, ended *time.Time, how, by string) string {
	switch {
	case ended != nil:
		return stamp(*ended) + ", " + how + " by " + printable(by)
	case ends != nil:
		return stamp(*ends)
	}
	return ""
}
