package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/clickhouse"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/rebuild"
)

func (a *app) rebuildCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "rebuild",
		Short: "Make the manifest or ClickHouse again out of the bucket alone",
		Long: `Make the manifest or ClickHouse again out of the bucket alone. Rebuild the manifest
first, then ClickHouse by it.`,
		Example: `  coldtier rebuild manifest --dry-run
  coldtier rebuild manifest && coldtier rebuild clickhouse && coldtier archive`,
	}, a.rebuildManifestCommand(), a.rebuildRowsCommand())
}

func (a *app) rebuildManifestCommand() *cobra.Command {
	var replace bool
	var beside string
	c := a.command(&cobra.Command{
		Use:   "manifest",
		Short: "Fill an empty or damaged manifest with what the bucket has",
		Long: `Fill the configured manifest database, which must be empty, with what the bucket
has: slices, generations, objects, segments, chunks, holds and statuses. It gets the
identity that the bucket's owner mark names. Slices whose purge ended are purged
again, others wait for the next archive, which verifies them, and for the whole lag.
What cannot be used is named, and the rest is done (exit code 3).

With --replace a damaged manifest is made what the bucket says; what the bucket lacks
is kept. With --beside another, empty database is filled and compared with the live
manifest; it gets an identity of its own, so that nothing can archive or purge by it.

Until it has ended no other verb works on that manifest. Killed at any moment, the same
command goes on where it was.`,
		Example: `  coldtier rebuild manifest --dry-run
  coldtier rebuild manifest
  coldtier rebuild manifest --beside 'root:${PASSWORD}@tcp(10.0.0.7:3306)/coldtier_again'`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) { return a.rebuildManifest(ctx, replace, beside) })
	f := c.Flags()
	f.BoolVar(&replace, "replace", false, "the manifest is not empty: replace what the bucket knows better")
	f.StringVar(&beside, "beside", "", "fill this database instead and compare, `DSN` USER:PASSWORD@tcp(HOST:PORT)/DATABASE; ${VARIABLE} and ${file:PATH} are put in")
	return a.graceful(a.changes(c))
}

// rebuiltObjects is the bucket for rebuild.
type rebuiltObjects struct{ objects }

func (o rebuiltObjects) List(ctx context.Context, prefix string, fn func(key string, size int64) error) error {
	return o.b.List(ctx, prefix, func(i bucket.Info) error { return fn(i.Key, i.Size) })
}

func (a *app) rebuildManifest(ctx context.Context, replace bool, beside string) (_ result, err error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	p := &parts{cfg: cfg, owner: owner()}
	defer func() { err = joinClose(err, p) }()
	if err := a.openBucket(ctx, p); err != nil {
		return nil, setup(err)
	}
	out := &rebuiltManifest{}
	if beside == "" {
		out.Into = cfg.Manifest.DSN.String()
		err = a.openManifest(ctx, p)
	} else {
		dsn, bad := a.flagDSN("--beside", beside)
		if bad != nil {
			return nil, bad
		}
		out.Into = dsn.String()
		p.manifest, err = manifest.Open(ctx, manifest.Config{DSN: dsn.Reveal(), Source: cfg.Source.Name, LeaseTTL: cfg.Manifest.Lease}, a.log)
		if err == nil {
			p.closers = append(p.closers, p.manifest)
		}
		err = remedy(err, "--beside")
	}
	if err != nil {
		return nil, setup(err)
	}
	var live *manifest.Store
	if beside != "" && !a.dryRun {
		other := &parts{cfg: cfg}
		if err := a.openManifest(ctx, other); err != nil {
			return nil, setup(err)
		}
		p.closers = append(p.closers, other)
		if live = other.manifest; live.Check(ctx) != nil {
			return nil, setup(live.Check(ctx))
		}
	}
	m := a.newMeter("rebuild manifest")
	m.bySlice = true
	defer m.end()
	out.Report, err = rebuild.Manifest(ctx, rebuild.Config{Bucket: cfg.Bucket.Name, Prefix: cfg.Bucket.Prefix, Replace: replace, Beside: beside != "", DryRun: a.dryRun, Workers: cfg.Archive.Workers},
		rebuild.Deps{Target: p.manifest, Objects: rebuiltObjects{objects{p.bucket}}, Clock: a.now, Log: a.log, Progress: m, Step: stepHook()})
	m.end()
	if err != nil && !isPartly(err) {
		return nil, err
	}
	if live == nil {
		return out, err
	}
	out.Compared = true
	found, bad := manifest.Compare(ctx, live, p.manifest)
	out.Differences = append([]manifest.Difference{}, found...)
	if bad != nil {
		return out, bad
	}
	n := 0
	for _, d := range found {
		if !d.InFlight {
			n++
		}
	}
	if n > 0 {
		bad = mark(fmt.Errorf("the rebuilt manifest and the live one differ: %s, besides what is in flight", count(n, "difference")), errUnsafe)
		if err != nil {
			bad = fmt.Errorf("%w; %w", bad, err)
		}
		return out, bad
	}
	return out, err
}

func isPartly(err error) bool { code, _ := exit(err); return code == exitPartial }

// Close closes the parts: so that they can be closed with others.
func (p *parts) Close() error { return p.close() }

type rebuiltManifest struct {
	Into string `json:"into"`
	*rebuild.Report
	Compared    bool                  `json:"compared"`
	Differences []manifest.Difference `json:"differences,omitempty"`
}

func (r *rebuiltManifest) text(w io.Writer) {
	if r.Report == nil {
		return
	}
	warningLines(w, r.Warnings)
	for _, p := range r.Problems[:min(len(r.Problems), maxRows)] {
		fmt.Fprintf(w, "unusable  %s: %s\n", printable(p.Key), printable(p.Error))
	}
	if len(r.Problems) > 0 {
		fmt.Fprintln(w, "remedy    "+objectCure+", then run coldtier rebuild manifest --replace")
	}
	for _, k := range r.Kept[:min(len(r.Kept), maxRows)] {
		fmt.Fprintf(w, "kept      %s: %s\n", k.Slice, printable(k.Reason))
	}
	if n := max(len(r.Problems), len(r.Kept)); n > maxRows {
		andMore(w, n)
	}
	if r.DryRun {
		fmt.Fprintf(w, "%s with %s would be rebuilt into %s (%d purged, %d with a purge begun), %s and %s\n", count(r.Slices, "slice"), count(r.Generations, "generation"), r.Into, r.Purged, r.Purging,
			count(r.Holds, "hold"), statusCount(r.Statuses))
		fmt.Fprintln(w, "this is by the names in the bucket: whether each commit record can be read is seen by the rebuild itself")
		return
	}
	before := ""
	if r.Resumed {
		before = fmt.Sprintf(" (%d were there from the run that this one went on with)", r.Before)
	}
	fmt.Fprintf(w, "%s rebuilt into %s%s: %s, %s, %s, %s, %s; %s, %s; %s\n", count(r.Slices, "slice"), r.Into, before, count(r.Generations, "generation"), count(r.Objects, "object"),
		count(r.Segments, "segment"), count(r.Rows, "row"), bytesText(r.Bytes), count(r.Holds, "hold"), statusCount(r.Statuses), seconds(r.Seconds))
	fmt.Fprintf(w, "%d purged, %d with a purge begun, %d to be verified by the next coldtier archive\n", r.Purged, r.Purging, r.Slices-r.Purged-r.Purging)
	if !r.Compared {
		return
	}
	for _, d := range r.Differences[:min(len(r.Differences), maxRows)] {
		what := "differs   "
		if d.InFlight {
			what = "in flight "
		}
		fmt.Fprintf(w, "%s%s\n", what, printable(d.String()))
	}
	andMore(w, len(r.Differences))
	if !slices.ContainsFunc(r.Differences, func(d manifest.Difference) bool { return !d.InFlight }) {
		fmt.Fprintln(w, "equal to the live manifest")
	}
}

func (a *app) rebuildRowsCommand() *cobra.Command {
	var s selection
	var beside string
	var workers int
	c := a.command(&cobra.Command{
		Use:   "clickhouse",
		Short: "Insert what ClickHouse lacks anew from the bucket",
		Long: `Insert the rows of generations that ClickHouse lacks, or has otherwise than they were
archived, anew from the bucket, and compare them. What is there and equal is left
alone, so the same command goes on where one was killed. Readers take the bucket
meanwhile. With --beside another ClickHouse database is filled, for comparing.`,
		Example: `  coldtier rebuild clickhouse --dry-run
  coldtier rebuild clickhouse --from 2026-05-01 --to 2026-05-31 --shard 'im_00.*'
  coldtier rebuild clickhouse --beside cold_again`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := s.parse(); err != nil {
			return nil, err
		}
		if workers < 1 {
			return nil, usage("--workers %d: want 1 or more", workers)
		}
		return a.rebuildRows(ctx, s, beside, workers)
	})
	s.flags(c)
	c.Flags().StringVar(&beside, "beside", "", "fill this `DATABASE` of ClickHouse instead")
	c.Flags().IntVar(&workers, "workers", 2, "`N` slices at once")
	return a.bounded(a.changes(c))
}

// rebuiltRows is ClickHouse for rebuild.
type rebuiltRows struct{ rows }

func (r rebuiltRows) Drop(ctx context.Context, id manifest.CopyID) error { return r.db.Drop(ctx, id) }

func (a *app) rebuildRows(ctx context.Context, s selection, beside string, workers int) (_ result, err error) {
	p, err := a.open(ctx, need{bucket: true, job: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	if p.unowned != nil {
		return nil, p.unowned
	}
	if err := s.matches(ctx, p); err != nil {
		return nil, err
	}
	c := clickhouseConfig(p.cfg.ClickHouse)
	if beside != "" {
		if beside == c.Database {
			return nil, usage("--beside %s: it is clickhouse.database itself", beside)
		}
		c.Database = beside
	}
	if p.rows, err = clickhouse.Open(ctx, c, a.log); err != nil {
		return nil, setup(err)
	}
	p.closers = append(p.closers, p.rows)
	m := a.newMeter("rebuild clickhouse")
	defer m.end()
	out := &rebuiltClickHouse{Database: c.Database}
	do := func(ctx context.Context) (any, error) {
		out.RowReport, err = rebuild.ClickHouse(ctx, rebuild.RowConfig{Filter: manifest.Filter{From: s.from, To: s.to, Shard: s.shard}, Workers: workers, Lease: beside == "", Owner: p.owner, DryRun: a.dryRun},
			rebuild.RowDeps{Manifest: p.manifest, Objects: objects{p.bucket}, Rows: rebuiltRows{rows{p.rows}}, Clock: a.now, Log: a.log, Progress: m, Step: stepHook()})
		return out, err
	}
	if a.dryRun {
		_, err = do(ctx)
	} else {
		err = a.recorded(ctx, p, "rebuild clickhouse", do)
	}
	m.end()
	return out, err
}

type rebuiltClickHouse struct {
	Database string `json:"database"`
	*rebuild.RowReport
}

func (r *rebuiltClickHouse) text(w io.Writer) {
	if r.RowReport == nil {
		return
	}
	var rows []string
	for _, o := range r.Rebuilt[:min(len(r.Rebuilt), maxRows)] {
		rows = append(rows, row(o.Slice.Day, o.Slice.Shard, o.Generation, amount(o.Rows), bytesText(o.Bytes)))
	}
	if len(rows) > 0 {
		table(w, "DAY\tSHARD\tGENERATION\tROWS\tBYTES", rows)
		andMore(w, len(r.Rebuilt))
	}
	for _, o := range r.Left[:min(len(r.Left), maxRows)] {
		fmt.Fprintf(w, "left    %s: %s\n", o.Slice, printable(o.Error))
	}
	for _, o := range r.Failed[:min(len(r.Failed), maxRows)] {
		fmt.Fprintf(w, "failed  %s generation %d: %s\n", o.Slice, o.Generation, printable(o.Error))
	}
	if len(r.Failed) > 0 {
		fmt.Fprintln(w, "remedy  where an object is lost or damaged, "+objectCure+", then run the same command again")
	}
	if r.DryRun {
		fmt.Fprintf(w, "%s would be compared, and inserted where they differ, in database %s\n", count(len(r.Rebuilt), "generation"), r.Database)
		return
	}
	fmt.Fprintf(w, "%s rebuilt in database %s, %d equal before, %d left, %d failed: %s, %s%s\n", count(len(r.Rebuilt), "generation"), r.Database, r.Equal, len(r.Left), len(r.Failed),
		count(r.Rows, "row"), seconds(r.Seconds), rate(r.Rows, r.Seconds))
}
