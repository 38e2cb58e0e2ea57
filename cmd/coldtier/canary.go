package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/cmd/coldtier/intomysql"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/canary"
	"github.com/coldtier/coldtier/restore/rehydrate"
)

func (a *app) canaryCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "canary",
		Short: "Plant known messages in warm, and look for them wherever they should be",
		Long: `A canary is a few known messages in a conversation that belongs to no user. They
travel the whole way as users' messages do, and are compared byte for byte wherever
they should be by then: in MySQL, in S3 and in ClickHouse. Their contents are made of
the canary's ID again, so no store is trusted to say what they were.

plant is the one verb beside restore --into-warm that writes warm tables, and needs an
account that may: see canary.sql in deploy/sql/warm and deploy/sql/manifest.`,
		Example: `  coldtier canary plant --conversation 9007199254740993 --shard im_00.msg_content_00 --dry-run
  coldtier canary plant
  coldtier canary check`,
	}, a.canaryPlantCommand(), a.canaryCheckCommand())
}

type canaryFlags struct {
	id, conversation, shard, at string
	set                         []string
}

func (a *app) canaryPlantCommand() *cobra.Command {
	var s canaryFlags
	c := a.command(&cobra.Command{
		Use:   "plant",
		Short: "Plant a canary in each conversation that is named for it",
		Long: fmt.Sprintf(`Plant a canary, %d messages, in the conversations that the configuration names
(canary.conversations), or in that of --conversation. Nothing is planted in a
conversation that has messages of others. A canary is planted once for each --id, by
default once a day; a planting that died is finished by the same command.

Columns that play a role get their values by it, others the table's defaults, or what
--set or canary.set says.`, canary.Messages),
		Example: `  coldtier canary plant --dry-run
  coldtier canary plant --conversation 9007199254740993 --shard im_00.msg_content_00 --set app_id=7`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) { return a.canaryPlant(ctx, &s) })
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&s.conversation, "conversation", "", "`ID` of a conversation that belongs to no user")
	f.StringVar(&s.shard, "shard", "", "its table, `DATABASE.TABLE` (default: the one that has its rows)")
	f.StringVar(&s.id, "id", "", "`ID` of the canary (default: the day)")
	f.StringVar(&s.at, "at", "", "the messages' `TIME`, such as 2026-05-01T12:34 (in source.timezone; default: now)")
	f.StringArrayVar(&s.set, "set", nil, "`COLUMN=VALUE` of each message; may be given again")
	return a.bounded(a.changes(c))
}

// plot is a warm table for canary.
type plot struct{ *warm.Table }

func (t plot) Newest(ctx context.Context, conversation []byte, limit int) (*message.Batch, error) {
	b, err := t.Page(ctx, warm.PageQuery{Conversation: conversation, Limit: limit, Newest: true})
	return b, also(err, [2]error{warm.ErrNoPageIndex, canary.ErrNoIndex})
}

// canaryWriter is a warm table that canaries are written into.
type canaryWriter struct{ *warm.TargetTable }

func (w canaryWriter) Sink(s *message.Schema) (rehydrate.Writer, error) {
	k, err := intomysql.Table(w).Sink(s)
	if err != nil {
		return nil, err
	}
	return k, nil
}

func (a *app) canaryPlant(ctx context.Context, s *canaryFlags) (_ result, err error) {
	p, err := a.open(ctx, need{warm: true, job: true, goAhead: jobPlant})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	for _, t := range p.tables {
		if err := t.EpochFits(ctx); err != nil {
			return nil, setup(err)
		}
	}
	seeds, err := a.seeds(ctx, p, s)
	if err != nil {
		return nil, err
	}
	pl := &canary.Planter{Manifest: p.manifest, Layout: p.cfg.Source.Layout, Zone: p.cfg.Source.Zone, Roles: p.cfg.Source.Columns}
	out := &canaryPlantResult{DryRun: a.dryRun, Canaries: []canary.Planted{}}
	plant := func(ctx context.Context) (any, error) {
		var errs []error
		for _, seed := range seeds {
			if ctx.Err() != nil {
				errs = append(errs, fmt.Errorf("canary %s in %s was not planted: %w", seed.ID, seed.Shard, context.Cause(ctx)))
				break
			}
			got, err := a.plantOne(ctx, p, pl, seed)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			out.Canaries = append(out.Canaries, got)
		}
		err := errors.Join(errs...)
		switch {
		case err != nil && len(out.Canaries) > 0:
			err = mark(err, errPartial)
		case errors.Is(err, canary.ErrColumns):
			err = mark(err, errUsage)
		}
		return out, err
	}
	if a.dryRun {
		_, err = plant(ctx)
	} else {
		err = a.recorded(ctx, p, "canary plant", a.stoppable(p, jobPlant, plant))
	}
	return out, err
}

// plantOne opens the database of a canary's table and plants it there.
func (a *app) plantOne(ctx context.Context, p *parts, pl *canary.Planter, seed canary.Seed) (_ canary.Planted, err error) {
	table, ok := p.table(seed.Shard)
	if !ok {
		return canary.Planted{}, usage("%s is no warm table of this configuration: want DATABASE.TABLE", seed.Shard)
	}
	for _, d := range p.cfg.Source.Databases {
		if d.DSN.Database() != seed.Shard.Database {
			continue
		}
		t, err := warm.OpenTarget(ctx, warm.TargetConfig{DSN: d.DSN.Reveal(), Inserts: true, Now: a.now}, a.log)
		if err != nil {
			return canary.Planted{}, setup(remedy(err, "source.databases"))
		}
		defer func() { err = errors.Join(err, t.Close()) }()
		x, err := t.Table(ctx, seed.Shard.Table)
		if err != nil {
			return canary.Planted{}, also(err, [2]error{warm.ErrUnfit, canary.ErrRefused})
		}
		return pl.Plant(ctx, seed, plot{table}, canaryWriter{x}, a.dryRun)
	}
	return canary.Planted{}, usage("%s is in no database of source.databases", seed.Shard)
}

// table finds a warm table.
func (p *parts) table(s manifest.Shard) (*warm.Table, bool) {
	for _, t := range p.tables {
		if t.Shard() == s {
			return t, true
		}
	}
	return nil, false
}

// seeds says what is to be planted, and where.
func (a *app) seeds(ctx context.Context, p *parts, s *canaryFlags) ([]canary.Seed, error) {
	now, err := p.manifest.Now(ctx)
	if err != nil {
		return nil, err
	}
	zone := p.cfg.Source.Zone
	one := canary.Seed{ID: s.id, At: now, Set: map[string]string{}}
	if s.at != "" {
		if one.At, err = parseTime(s.at, zone); err != nil {
			return nil, usage("--at %q: want a time such as 2026-05-01T12:34 or 2026-05-01T12:34:56Z", s.at)
		}
		if one.At.After(now.Add(time.Minute)) {
			return nil, usage("--at %s: want a time that has come", stamp(one.At))
		}
	}
	if one.ID == "" {
		one.ID = one.At.In(zone).Format(time.DateOnly)
	}
	for _, text := range append(p.cfg.Canary.Set[:len(p.cfg.Canary.Set):len(p.cfg.Canary.Set)], s.set...) {
		if err := config.CheckAssignment(text); err != nil {
			return nil, usage("--set %q: %w", text, err)
		}
		name, value, _ := strings.Cut(text, "=")
		one.Set[name] = value
	}
	if s.conversation == "" {
		if s.shard != "" {
			return nil, usage("--shard without --conversation: name a conversation that belongs to no user")
		}
		var all []canary.Seed
		for _, c := range p.cfg.Canary.Conversations {
			seed := one
			seed.Conversation = c.ID
			if seed.Shard, err = manifest.ParseShard(c.Shard); err != nil {
				return nil, usage("canary.conversations: %w", err)
			}
			all = append(all, seed)
		}
		if len(all) == 0 {
			return nil, usage("no conversation is named: give --conversation, or canary.conversations in the configuration, one that belongs to no user")
		}
		return all, nil
	}
	one.Conversation = s.conversation
	if s.shard != "" {
		if one.Shard, err = manifest.ParseShard(s.shard); err != nil {
			return nil, usage("--shard: %w", err)
		}
		return []canary.Seed{one}, nil
	}
	found := p.tables
	if len(found) != 1 {
		if found, err = p.warm.Holding(ctx, p.tables, []byte(s.conversation)); errors.Is(err, warm.ErrNoPageIndex) {
			return nil, usage("which table has it is found by such an index alone: %w, or name it with --shard", err)
		} else if err != nil {
			return nil, err
		}
	}
	if len(found) != 1 {
		return nil, usage("conversation %s has rows in %s: name its table with --shard DATABASE.TABLE", s.conversation, count(len(found), "table"))
	}
	one.Shard = found[0].Shard()
	return []canary.Seed{one}, nil
}

type canaryPlantResult struct {
	DryRun   bool             `json:"dry_run"`
	Canaries []canary.Planted `json:"canaries"`
}

func (r *canaryPlantResult) text(w io.Writer) {
	for _, c := range r.Canaries {
		if c.Warning != "" {
			warningLines(w, []string{c.Warning})
		}
		fmt.Fprintf(w, "canary %s of %s, conversation %s: %s, messages %s to %s\n", printable(c.ID), c.Shard, printable(c.Conversation), c.Outcome, c.Messages[0], c.Messages[len(c.Messages)-1])
	}
}

func (a *app) canaryCheckCommand() *cobra.Command {
	return a.bounded(a.command(&cobra.Command{
		Use:   "check",
		Short: "Look for all canaries wherever they should be now, byte for byte",
		Long: `Look for every canary that was planted, wherever it should be now: in MySQL until a
purge of its slice has begun; in S3 and ClickHouse since its slice was copied and
verified; in all of them during the lag. One that is lost or changed is named, with its
messages and columns (exit code 4). Nothing is changed.`,
		Example: `  coldtier canary check
  coldtier --output json canary check | jq '.result.findings[] | select(.problem)'`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) { return a.canaryCheck(ctx) }))
}

// canaryDeps are what looking for canaries needs.
func (a *app) canaryDeps(p *parts) canary.Deps {
	return canary.Deps{Manifest: p.manifest, Reader: a.selected(p, false), Rows: rows{p.rows}, Layout: p.cfg.Source.Layout, Zone: p.cfg.Source.Zone,
		Tables: func(s manifest.Shard) (canary.Table, bool) { return p.table(s) }}
}

func (a *app) canaryCheck(ctx context.Context) (_ result, err error) {
	p, err := a.open(ctx, need{warm: true, bucket: true, rows: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	out := &canaryCheckResult{Findings: []canary.Finding{}}
	err = a.recorded(ctx, p, "canary check", func(ctx context.Context) (any, error) {
		found, err := canary.Check(ctx, a.canaryDeps(p))
		out.Findings = append(out.Findings, found...)
		return out, errors.Join(err, canary.Err(found))
	})
	return out, err
}

type canaryCheckResult struct {
	Findings []canary.Finding `json:"findings"`
}

func (r *canaryCheckResult) text(w io.Writer) {
	found, bad := map[canary.Place]int{}, 0
	canaries := map[string]bool{}
	for i := range r.Findings {
		f := &r.Findings[i]
		found[f.Place] += f.Found
		canaries[f.Canary+" "+f.Shard.String()] = true
		if f.Problem != "" {
			bad++
			fmt.Fprintf(w, "%-10s %s\n", f.Problem, printable(f.String()))
		}
	}
	if len(canaries) == 0 {
		fmt.Fprintln(w, "no canary was planted: see coldtier canary plant --help")
		return
	}
	fmt.Fprintf(w, "%s: as planted in warm %s, in the bucket %d, in ClickHouse %d; %d wrong\n", strings.Replace(count(len(canaries), "canary"), "canarys", "canaries", 1),
		count(found[canary.Warm], "message"), found[canary.Bucket], found[canary.ClickHouse], bad)
}
