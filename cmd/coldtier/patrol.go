package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/canary"
	"github.com/coldtier/coldtier/restore/patrol"
	"github.com/coldtier/coldtier/restore/rebuild"
)

type patrolFlags struct {
	selection
	grace   string
	heal    bool
	workers int
}

func (a *app) patrolCommand() *cobra.Command {
	var s patrolFlags
	c := a.command(&cobra.Command{
		Use:   "patrol",
		Short: "Compare manifest, bucket and ClickHouse with each other; --heal mends",
		Long: `Compare the manifest, the bucket and ClickHouse with each other: every object of
every generation is listed with its size; every commit record has the manifest's
checksum, and the purge marks say what the manifest says; ClickHouse has as many rows
of each live generation; holds and statuses are in the bucket; canaries are what was
planted. What no generation names is summed up. No messages are read but canaries: for
what is inside the objects there is coldtier verify.

--heal mends what can be mended without risk, each under its slice's lease: rows that
ClickHouse lacks or has otherwise come anew from the bucket; rows in ClickHouse that no
generation names are dropped; a lost commit record is put again if it gets the very
checksum it had; marks, holds, stops, statuses and the owner mark are put. Objects are never
overwritten or deleted. One that is lost is named with what to do.

Exit codes: 0 all right, or mended; 4 something is lost or different; 3 left, since
another worker has the slice; 1 something could not be looked at.

It is for the archive or the patrol role (archive.sql or patrol.sql in deploy/sql/warm and
deploy/sql/manifest).`,
		Example: `  coldtier patrol
  coldtier patrol --from 2026-05-01 --to 2026-05-31 --shard 'im_00.*'
  coldtier patrol --heal --dry-run
  coldtier --output json patrol | jq '.result.findings[] | select(.severity == "lost")'`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := s.parse(); err != nil {
			return nil, err
		}
		if s.workers < 1 {
			return nil, usage("--workers %d: want 1 or more", s.workers)
		}
		return a.patrol(ctx, &s)
	})
	s.flags(c)
	f := c.Flags()
	f.StringVar(&s.grace, "grace", "24h", "what is younger is no orphan, and need not be in the bucket, such as `12h` or 2d")
	f.BoolVar(&s.heal, "heal", false, "mend what can be mended without risk")
	f.IntVar(&s.workers, "workers", 4, "`N` days at once")
	return a.bounded(a.changes(c))
}

// patrolBucket is the bucket for patrol.
type patrolBucket struct{ b *bucket.Bucket }

func listedInfo(i bucket.Info) patrol.Listed {
	return patrol.Listed{Key: i.Key, Size: i.Size, Modified: i.Modified}
}

func (p patrolBucket) List(ctx context.Context, prefix string, fn func(patrol.Listed) error) error {
	return p.b.List(ctx, prefix, func(i bucket.Info) error { return fn(listedInfo(i)) })
}

func (p patrolBucket) Folders(ctx context.Context, prefix string, fn func(string) error) error {
	return p.b.Folders(ctx, prefix, fn)
}

func (p patrolBucket) Head(ctx context.Context, key string) (patrol.Listed, error) {
	i, err := p.b.Head(ctx, key)
	return listedInfo(i), objectError(err)
}

// patrolRows is ClickHouse for patrol: one that is not there is for the patrol to find.
type patrolRows struct{ *drillRows }

func (r patrolRows) Days(ctx context.Context) ([]snowflake.Day, error) {
	db, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	return db.db.Days(ctx)
}

func (r patrolRows) Counts(ctx context.Context, first, last snowflake.Day, fn func(manifest.CopyID, uint64) error) error {
	db, err := r.open(ctx)
	if err != nil {
		return err
	}
	return db.db.Counts(ctx, first, last, fn)
}

func (r patrolRows) Messages(ctx context.Context, id manifest.CopyID, s *message.Schema) (uint64, error) {
	db, err := r.open(ctx)
	if err != nil {
		return 0, err
	}
	return db.db.Messages(ctx, id, s)
}

func (a *app) patrol(ctx context.Context, s *patrolFlags) (_ result, err error) {
	grace, err := config.ParseDuration(s.grace)
	if err != nil {
		return nil, usage("--grace %q: want a duration such as 24h, 2d or 0s", s.grace)
	}
	n := need{bucket: true}
	if s.heal {
		n.goAhead = jobPatrol
	}
	p, err := a.open(ctx, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	if err := s.matches(ctx, p); err != nil {
		return nil, err
	}
	if s.heal {
		if err := a.clockAgrees(ctx, "the manifest database", p.manifest.Now); err != nil {
			return nil, setup(err)
		}
	}
	m := a.newMeter("patrol")
	m.bySlice = true
	defer m.end()
	deps := a.patrolDeps(ctx, p, s.heal && !a.dryRun)
	deps.Progress = m
	owner, err := p.bucketOwner(ctx)
	if err != nil {
		return nil, err
	}
	if owner.Identity == "" { // it would find nothing of anything
		return nil, mark(fmt.Errorf("the manifest knows no source %q: correct source.name, or run coldtier migrate first", p.manifest.Source()), errSetup)
	}
	out := &patrolResult{}
	do := func(ctx context.Context) (any, error) {
		out.Report, err = patrol.Run(ctx, patrol.Config{Filter: manifest.Filter{From: s.from, To: s.to, Shard: s.shard}, Grace: grace, Workers: s.workers, Heal: s.heal, DryRun: a.dryRun,
			Owner: owner, Worker: p.owner}, deps)
		return out, err
	}
	switch {
	case a.dryRun:
		_, err = do(ctx)
	case s.heal:
		err = a.recorded(ctx, p, "patrol", a.stoppable(p, jobPatrol, do))
	default:
		err = a.recorded(ctx, p, "patrol", do)
	}
	m.end()
	return out, err
}

func (a *app) patrolDeps(ctx context.Context, p *parts, heal bool) patrol.Deps {
	boundMemory(p.cfg)
	lazy := &drillRows{a: a, p: p}
	d := patrol.Deps{
		Manifest: p.manifest, Bucket: patrolBucket{p.bucket}, Objects: objects{p.bucket}, Rows: patrolRows{lazy}, Clock: a.now, Log: a.log,
		Canaries: func(ctx context.Context) ([]canary.Finding, error) {
			if err := a.openWarm(ctx, p); err != nil {
				return nil, err
			}
			c := a.canaryDeps(p)
			c.Rows = lazy
			return canary.Check(ctx, c)
		},
		Healer: &patrol.Healer{Objects: objects{p.bucket}, Mirror: a.mirror(p), Puts: mirrored{p.bucket}, Lister: mirrored{p.bucket}, Step: stepHook()},
	}
	if !heal { // what can be mended is known without it
		return d
	}
	db, err := lazy.open(ctx)
	if err != nil { // what can be mended elsewhere is
		a.log.Warn("ClickHouse cannot be mended", "error", err)
		db = rows{}
	}
	d.Healer.Rows = rebuild.RowDeps{Manifest: p.manifest, Objects: objects{p.bucket}, Rows: rebuiltRows{db}, Clock: a.now, Log: a.log, Progress: noRows{}, Step: stepHook()}
	return d
}

// noRows is the progress of one slice, which nobody watches.
type noRows struct{ rebuild.NoProgress }

func (noRows) Rows(int) {}

type patrolResult struct {
	*patrol.Report
	partial
}

func (r *patrolResult) text(w io.Writer) {
	if r.Report == nil {
		return
	}
	for _, f := range r.Findings[:min(len(r.Findings), maxRows)] {
		fmt.Fprintf(w, "%-9s  %s\n", f.Severity, printable(f.String()))
		if len(f.Objects) > 1 {
			for _, key := range f.Objects {
				fmt.Fprintf(w, "           %s\n", printable(key))
			}
			if f.Count > len(f.Objects) {
				fmt.Fprintf(w, "           ... and %d more\n", f.Count-len(f.Objects))
			}
		}
		switch {
		case f.Healed != "":
			fmt.Fprintf(w, "           mended: %s\n", printable(f.Healed))
		case f.Left != "":
			fmt.Fprintf(w, "           left: %s\n", printable(f.Left))
		case r.DryRun && r.Heal && f.Mendable:
			fmt.Fprintf(w, "           would be mended\n")
		default:
			fmt.Fprintf(w, "           to do: %s\n", printable(f.Remedy))
		}
	}
	total := 0
	for _, n := range r.Codes {
		total += n
	}
	if total > maxRows {
		fmt.Fprintf(w, "... and more, %d in all (--output json lists %d)\n", total, len(r.Findings))
	}
	for _, u := range r.Unlooked[:min(len(r.Unlooked), maxRows)] {
		fmt.Fprintf(w, "not looked at: %s: %s\n", printable(u.What), printable(u.Error))
	}
	fmt.Fprintf(w, "%s, %s, %s: %s named with %s, %s listed, %s equal, %s counted in ClickHouse; %s\n", count(r.Days, "day"), count(r.Slices, "slice"), count(r.Generations, "generation"),
		count(r.Objects, "object"), bytesText(r.Bytes), count(r.Listed, "object"), count(r.Records, "commit record"), count(r.Rows, "row"), seconds(r.Seconds))
	var codes []string
	for _, c := range slices.Sorted(maps.Keys(r.Codes)) {
		codes = append(codes, fmt.Sprintf("%d %s", r.Codes[c], c))
	}
	found := "nothing found"
	if r.cut {
		found += " as far as it came"
	}
	if len(codes) > 0 {
		found = "found: " + strings.Join(codes, ", ")
	}
	fmt.Fprintf(w, "%s; %d mended, %d in flight; %s nobody's with %s", found, r.Healed, r.InFlight, count(r.Orphans.Objects, "object"), bytesText(r.Orphans.Bytes))
	if r.Orphans.Oldest != nil {
		fmt.Fprintf(w, ", the oldest of %s", stamp(*r.Orphans.Oldest))
	}
	fmt.Fprintf(w, ", %d younger than %s or in work\n", r.Young, r.Grace)
}
