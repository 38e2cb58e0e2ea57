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
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/manifest"
)

func (a *app) checkCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "check",
		Short: "Say whether everything is there and as it must be",
		Long: `Look at everything that archive and purge rely on, and print a line for each
finding with its remedy: the configuration, whether every server can be reached and
grants what is needed, clocks, columns, unique keys, partitions, whether the
snowflake epoch fits the tables' own timestamps, the bucket, whose it is and its
lifecycle rules, ClickHouse and its table.

Nothing is changed, except that a probe object is put into the bucket and removed.
The exit code is 0 without errors, 4 when clocks or message IDs cannot be trusted or
the bucket belongs to another manifest, else 2.`,
		Example: `  coldtier check
  coldtier --output json check | jq '.result.findings[] | select(.level == "error")'`,
		Args: cobra.NoArgs,
	}, a.check)
}

// level is how bad a finding is.
type level string

const (
	levelOK    level = "ok"
	levelInfo  level = "info"
	levelWarn  level = "warn"
	levelError level = "error"
)

type finding struct {
	Level level  `json:"level"`
	About string `json:"about"` // config, manifest, warm, bucket, clickhouse
	Text  string `json:"text"`
}

type checkResult struct {
	Findings []finding `json:"findings"`
	unsafe   bool      // an error is one of those that forbid to go on
}

func (r *checkResult) add(l level, about, format string, args ...any) {
	r.Findings = append(r.Findings, finding{Level: l, About: about, Text: fmt.Sprintf(format, args...)})
}

// fail adds an error, a finding for each of its lines.
func (r *checkResult) fail(about string, err error) {
	r.unsafe = r.unsafe || errors.Is(setup(err), errUnsafe)
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			r.add(levelError, about, "%s", line)
		}
	}
}

func (a *app) check(ctx context.Context, _ []string) (_ result, err error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	p := &parts{cfg: cfg}
	defer func() { err = joinClose(err, p) }()
	r := &checkResult{}
	s := cfg.Source
	r.add(levelOK, "config", "%s: source %s, days of %s, IDs from %s", a.configPath, s.Name, s.Zone, s.Layout.Epoch.Format("2006-01-02T15:04:05.999Z"))
	if s.Layout.Epoch.After(a.now()) {
		r.fail("config", mark(fmt.Errorf("source.snowflake.epoch %s lies in the future: correct it", stamp(s.Layout.Epoch)), errUnsafe))
	}
	if s := cfg.Purge.Lag; s < purge.ShortLag {
		r.add(levelWarn, "config", "purge.lag is %s: rows are deleted less than %s after their verification", s, purge.ShortLag)
	}
	a.checkManifest(ctx, p, r)
	a.checkWarm(ctx, p, r)
	a.checkBucket(ctx, p, r)
	a.checkRows(ctx, p, r)
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	for i := range r.Findings {
		r.Findings[i].Text = a.redactor.Text(r.Findings[i].Text)
	}
	return r, r.verdict()
}

func (a *app) checkManifest(ctx context.Context, p *parts, r *checkResult) {
	if err := a.openManifest(ctx, p); err != nil {
		r.fail("manifest", err)
		return
	}
	err := remedy(p.manifest.Check(ctx), "manifest.dsn")
	if err == nil {
		err = refusal(p.manifest.Writable(ctx))
	}
	if err = errors.Join(err, a.clockAgrees(ctx, "the manifest database", p.manifest.Now)); err != nil {
		r.fail("manifest", err)
		return
	}
	r.add(levelOK, "manifest", "%s can be reached and is up to date", p.cfg.Manifest.DSN)
}

func (a *app) checkWarm(ctx context.Context, p *parts, r *checkResult) {
	if err := a.warmOf(p); err != nil {
		r.fail("warm", err)
		return
	}
	p.tables, _ = p.warm.Discover(ctx) // what is wrong is among the findings, too
	for _, t := range p.tables {
		r.add(levelOK, "warm", "table %s: %s, which can be carried exactly", t.Shard(), count(t.Schema().Len(), "column"))
	}
	fatal := false
	for _, f := range p.warm.Check(ctx) {
		l := levelWarn
		if f.Fatal {
			l, fatal = levelError, true
		}
		r.add(l, "warm", "%s", f)
	}
	if err := strayStagings(ctx, p, r); err != nil && !fatal { // else the same is said already
		r.fail("warm", err)
	}
	if err := sameDays(ctx, p); err != nil {
		r.fail("warm", err)
	}
	// The findings name what is wrong; whether it forbids to go on is asked here.
	for _, t := range p.tables {
		for _, err := range []error{a.clockAgrees(ctx, "database "+t.Shard().Database, t.Now), t.EpochFits(ctx)} {
			r.unsafe = r.unsafe || errors.Is(setup(err), errUnsafe)
		}
	}
}

// sameDays is an error when the days are cut otherwise than when the slices were made.
func sameDays(ctx context.Context, p *parts) error {
	if p.manifest == nil || p.manifest.Check(ctx) != nil {
		return nil // which is said already
	}
	for _, t := range p.tables {
		list, err := p.manifest.Slices(ctx, manifest.Filter{Shard: t.Shard().String()})
		if err != nil {
			return err
		}
		for _, s := range list {
			if err := archive.SameWindow(p.cfg.Source.Layout, p.cfg.Source.Zone, s); err != nil {
				return mark(err, errUnsafe) // one is enough: all have the same zone
			}
		}
	}
	return nil
}

// strayStagings names the staging tables of partition exchanges that no slice knows of,
// as after a manifest that was set back: they may hold rows that are nowhere else. A
// slice names its table before it is made and until it is gone, so that those of a
// purge that runs now are not among them.
func strayStagings(ctx context.Context, p *parts, r *checkResult) error {
	if p.manifest == nil {
		return nil
	}
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
			r.add(levelWarn, "warm", "staging table %s holds a partition that a purge took out of a table, and no slice names it: compare its rows with the table's, put back those that it lacks, then drop it", t)
		}
	}
	return nil
}

func (a *app) checkBucket(ctx context.Context, p *parts, r *checkResult) {
	if err := a.openBucket(ctx, p); err != nil {
		r.fail("bucket", err)
		return
	}
	found, err := p.bucket.Check(ctx)
	if err != nil {
		r.fail("bucket", err)
		return
	}
	r.add(levelOK, "bucket", "%s: a probe object was put, read, listed and removed under %q", p.cfg.Bucket.Name, p.cfg.Bucket.Prefix)
	for _, f := range found {
		l := levelWarn
		if f.Fatal {
			l = levelError
		}
		r.add(l, "bucket", "%s", f)
	}
	if p.manifest == nil {
		return
	}
	if err := p.checkOwner(ctx); err != nil {
		r.fail("bucket", err)
	} else if p.unowned != nil {
		r.add(levelWarn, "bucket", "%s", p.unowned)
	}
}

func (a *app) checkRows(ctx context.Context, p *parts, r *checkResult) {
	if err := a.openRows(ctx, p); err != nil {
		r.fail("clickhouse", err)
		return
	}
	if err := p.rows.Check(ctx); err != nil {
		r.fail("clickhouse", err)
		return
	}
	r.add(levelOK, "clickhouse", "version %s, database %s", p.rows.Version(), p.cfg.ClickHouse.Database)
	var schemas []*message.Schema
	for _, t := range p.tables {
		schemas = append(schemas, t.Schema())
	}
	if len(schemas) == 0 {
		return
	}
	switch todo, err := p.rows.Migrate(ctx, schemas, true); {
	case err != nil:
		r.fail("clickhouse", err)
	case len(todo) > 0:
		r.add(levelWarn, "clickhouse", "the table lacks columns of the warm tables; the next archive adds them, or run coldtier migrate")
	}
}

// verdict is the error of the findings that are errors.
func (r *checkResult) verdict() error {
	n := uint64(0)
	for _, f := range r.Findings {
		if f.Level == levelError {
			n++
		}
	}
	switch {
	case n == 0:
		return nil
	case r.unsafe:
		return mark(fmt.Errorf("check: %s", count(n, "error")), errUnsafe)
	}
	return mark(fmt.Errorf("check: %s", count(n, "error")), errSetup)
}

func (r *checkResult) text(w io.Writer) {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%-5s  %-10s  %s\n", f.Level, f.About, printable(f.Text))
	}
}
