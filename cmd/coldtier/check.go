package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/preflight"
	"github.com/coldtier/coldtier/manifest"
)

func (a *app) checkCommand() *cobra.Command {
	role := string(preflight.All)
	c := a.command(&cobra.Command{
		Use:   "check",
		Short: "Say whether everything is there and as it must be",
		Long: `Look at everything that the jobs rely on, before one of them meets it: the
configuration, whether every server can be reached, the rights of the accounts (too
few and too many), clocks, replicas, the tables, how each will be purged and why,
whether the snowflake epoch fits the tables' own timestamps, samples of conversations
and message IDs across the tables, the bucket with its versions, lock, lifecycle rules
and who may see it, ClickHouse and what could lose inserts there, and this machine's
room for temporary files.

Each finding has a code, a severity and a remedy; docs/check.md lists the codes. The
accounts are judged by what the role needs that --for names; without it nothing is
asked of them but that some role can work with each.

Nothing is changed, except that a probe object is put into the bucket and removed. A
few rows of each table are read by its keys, and every look has a time limit. The
exit code is 0 without errors, 4 when clocks or message IDs cannot be trusted or the
bucket belongs to another manifest, else 2.`,
		Example: `  coldtier check
  coldtier check --for purge
  coldtier --output json check | jq '.result.findings[] | select(.severity == "error")'`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		r, err := preflight.ParseRole(role)
		if err != nil {
			return nil, usage("%w", err)
		}
		return a.check(ctx, r)
	})
	c.Flags().StringVar(&role, "for", role, "`ROLE` that the accounts are judged for: archive, purge, fetch, restore, drill, patrol, canary, approve or all")
	return c
}

type checkResult struct {
	For      preflight.Role      `json:"for"`
	Findings []preflight.Finding `json:"findings"`
}

func (r *checkResult) text(w io.Writer) { preflight.Write(w, r.Findings, printable) }

func (a *app) check(ctx context.Context, role preflight.Role) (_ result, err error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	p := &parts{cfg: cfg}
	defer func() { err = joinClose(err, p) }()
	f := preflight.New(cfg, role, a.now)
	f.Config(a.configPath)
	f.Machine()
	f.Metrics(ctx)
	a.checkManifest(ctx, p, f)
	if role != preflight.Approve { // which asks the manifest alone
		a.checkWarm(ctx, p, f)
	}
	if role != preflight.Approve && role != preflight.Canary {
		a.checkBucket(ctx, p, f)
		a.checkRows(ctx, p, f)
	}
	f.Scratch(ctx)
	r := &checkResult{role, f.Findings(a.redactor.Text)}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	return r, checkVerdict(f, r.Findings)
}

// checkVerdict is the error of the findings that are errors.
func checkVerdict(f *preflight.Preflight, all []preflight.Finding) error {
	n := uint64(0)
	for _, x := range all {
		if x.Severity == preflight.Error {
			n++
		}
	}
	switch {
	case n == 0:
		return nil
	case f.Refuses():
		return mark(fmt.Errorf("check: %s", count(n, "error")), errUnsafe)
	}
	return mark(fmt.Errorf("check: %s", count(n, "error")), errSetup)
}

func (a *app) checkManifest(ctx context.Context, p *parts, f *preflight.Preflight) {
	subject := "manifest " + p.cfg.Manifest.DSN.String()
	if err := a.openManifest(ctx, p); err != nil {
		f.Fail("manifest", preflight.ManifestUnreachable, subject, err)
		return
	}
	if err := remedy(p.manifest.Check(ctx), "manifest.dsn"); err != nil {
		f.Fail("manifest", preflight.ManifestUnfit, subject, err)
	} else if err := refusal(p.manifest.Writable(ctx)); err != nil && f.Writes() {
		f.Fail("manifest", preflight.ManifestReadOnly, subject, err)
	} else {
		f.Addf("manifest", preflight.ManifestReady, subject, "%s can be reached and is up to date", subject)
	}
	f.Manifest(ctx, p.manifest)
}

func (a *app) checkWarm(ctx context.Context, p *parts, f *preflight.Preflight) {
	if err := a.warmOf(p); err != nil {
		f.Fail("warm", preflight.WarmSettings, "source", err)
		return
	}
	p.tables = f.Warm(ctx, p.warm)
	f.PauseQueries(ctx, p.warm)
	if p.manifest == nil || p.manifest.Check(ctx) != nil {
		return // which is said already
	}
	if err := strayStagings(ctx, p, f); err != nil && !f.Has(preflight.Code(warm.CodeUnreachable)) && !f.Has(preflight.WarmNotNeeded) {
		f.Fail("warm", preflight.ProbeFailed, "staging tables", err)
	}
	sameDays(ctx, p, f)
}

// sameDays tells when the days are cut otherwise than when the slices were made.
func sameDays(ctx context.Context, p *parts, f *preflight.Preflight) {
	list, err := p.manifest.SliceOfEachDay(ctx)
	if err != nil {
		f.Fail("manifest", preflight.ProbeFailed, "slices", err)
		return
	}
	for _, s := range list {
		if err := archive.SameWindow(p.cfg.Source.Layout, p.cfg.Source.Zone, s); err != nil {
			f.Fail("config", preflight.DaysCutOtherwise, "source.timezone", err)
			return // one is enough: all have the same zone
		}
	}
}

// strayStagings names the staging tables of partition exchanges that no slice knows of,
// as after a manifest that was set back: they may hold rows that are nowhere else. A
// slice names its table before it is made and until it is gone, so that those of a
// purge that runs now are not among them.
func strayStagings(ctx context.Context, p *parts, f *preflight.Preflight) error {
	before, err := p.warm.Stagings(ctx)
	if err != nil || len(before) == 0 {
		return err
	}
	list, err := p.manifest.Slices(ctx, manifest.Filter{States: []manifest.State{manifest.Purging}})
	if err != nil {
		return err
	}
	still, err := p.warm.Stagings(ctx)
	if err != nil {
		return err
	}
	for _, t := range before {
		named := slices.ContainsFunc(list, func(s manifest.Slice) bool { return s.Shard.Database == t.Database && s.Staging == t.Table })
		if !named && slices.Contains(still, t) {
			f.Addf("warm", preflight.WarmStaging, t.String(), "staging table %s holds a partition that a purge took out of a table, and no slice names it", t)
		}
	}
	return nil
}

func (a *app) checkBucket(ctx context.Context, p *parts, f *preflight.Preflight) {
	subject := "bucket " + p.cfg.Bucket.Name
	fail := func(err error) {
		code := preflight.BucketUnusable
		if errors.Is(err, bucket.ErrClockSkew) {
			code = preflight.ClockSkew
		}
		f.Fail("bucket", code, subject, err)
	}
	if err := a.openBucket(ctx, p); err != nil {
		fail(err)
		return
	}
	look := p.bucket.Check
	if !f.Puts() {
		look = p.bucket.CheckReading
	}
	found, err := look(ctx)
	if err != nil {
		fail(err)
		return
	}
	done := "a probe object was put, read, listed and removed"
	if !f.Puts() {
		done = "it can be asked for objects"
	}
	f.Addf("bucket", preflight.BucketReady, subject, "%s: %s under %q", subject, done, p.cfg.Bucket.Prefix)
	for _, x := range found {
		f.Add("bucket", preflight.Code(x.Code), subject, x.What, x.Remedy)
	}
	f.Bucket(ctx, p.bucket)
	if p.manifest == nil {
		return
	}
	switch err := p.checkOwner(ctx); {
	case errors.Is(err, archive.ErrForeign):
		f.Fail("bucket", preflight.BucketForeign, subject, err)
	case err != nil:
		f.Fail("bucket", preflight.BucketDamaged, subject, err)
	case p.unowned != nil:
		f.Addf("bucket", preflight.BucketUnowned, subject, "%s", p.unowned)
	}
}

func (a *app) checkRows(ctx context.Context, p *parts, f *preflight.Preflight) {
	subject := "ClickHouse at " + strings.Join(p.cfg.ClickHouse.Addrs, ", ")
	if err := a.openRows(ctx, p); err != nil {
		f.Fail("clickhouse", preflight.RowsUnreachable, subject, err)
		return
	}
	if err := p.rows.Check(ctx); err != nil {
		f.Fail("clickhouse", preflight.RowsUnfit, subject, err)
	} else {
		f.Addf("clickhouse", preflight.RowsReady, subject, "version %s, database %s", p.rows.Version(), p.cfg.ClickHouse.Database)
		f.Columns(ctx, p.rows, p.tables)
	}
	f.Rows(ctx, p.rows)
}
