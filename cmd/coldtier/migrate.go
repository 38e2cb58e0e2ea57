package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

func (a *app) migrateCommand() *cobra.Command {
	return a.changes(a.command(&cobra.Command{
		Use:   "migrate",
		Short: "Create or upgrade the manifest's tables and ClickHouse's",
		Long: `Create or upgrade the manifest's tables, make ClickHouse's table fit the columns
of the warm tables, and mark the bucket as this manifest's where it has no owner yet.
A bucket that belongs to another manifest is refused (exit code 4). Nothing is ever
dropped. Run it before the first archive, after an upgrade of coldtier, and as often
as you like.`,
		Example: `  coldtier migrate --dry-run
  coldtier migrate`,
		Args: noArgs,
	}, a.migrate))
}

type migrateResult struct {
	DryRun     bool     `json:"dry_run"`
	Manifest   []string `json:"manifest"`   // migrations
	Bucket     []string `json:"bucket"`     // objects
	ClickHouse []string `json:"clickhouse"` // statements
	Warnings   []string `json:"warnings,omitempty"`
	partial
}

func (a *app) migrate(ctx context.Context, _ []string) (_ result, err error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	p := &parts{cfg: cfg, owner: owner()}
	defer func() { err = joinClose(err, p) }()
	// Everything is looked at before anything is changed.
	for _, open := range []func(context.Context, *parts) error{a.openManifest, a.openWarm, a.openBucket, a.openRows} {
		if err := open(ctx, p); err != nil {
			return nil, setup(err)
		}
	}
	var schemas []*message.Schema
	for _, t := range p.tables {
		schemas = append(schemas, t.Schema())
	}
	if _, err := p.rows.Migrate(ctx, schemas, true); err != nil {
		return nil, setup(err)
	}
	r := &migrateResult{DryRun: a.dryRun, Manifest: []string{}, Bucket: []string{}, ClickHouse: []string{}}
	if err := p.checkOwner(ctx); away(err) {
		r.warn(a.redactor.Text(err.Error()))
	} else if err != nil {
		return nil, setup(err)
	}
	done, err := p.manifest.Migrate(ctx, a.dryRun)
	r.Manifest = append(r.Manifest, done...)
	if err != nil {
		return r, err
	}
	if err := a.markBucket(ctx, p, r); err != nil {
		return r, err
	}
	if !a.dryRun {
		if err := p.manifest.Check(ctx); err != nil { // half rebuilt
			return r, setup(err)
		}
		if err := a.mirrorAll(ctx, p); away(err) {
			r.Warnings = append(r.Warnings, "what the manifest alone knows is put into the bucket by the next archive: "+a.redactor.Text(err.Error()))
		} else if err != nil {
			return r, err
		}
	}
	statements, err := p.rows.Migrate(ctx, schemas, a.dryRun)
	r.ClickHouse = append(r.ClickHouse, statements...)
	return r, err
}

// markBucket puts the owner mark where there is none.
func (a *app) markBucket(ctx context.Context, p *parts, r *migrateResult) error {
	if p.unowned == nil {
		return nil
	}
	if !a.dryRun {
		if err := p.claimOwner(ctx); away(err) {
			r.warn(a.redactor.Text(err.Error()))
			return nil
		} else if err != nil {
			return err
		}
	}
	r.Bucket = append(r.Bucket, manifest.OwnerKey(p.cfg.Source.Name))
	return nil
}

func (r *migrateResult) warn(why string) {
	r.Warnings = append(r.Warnings, "the bucket's owner mark is left to the next archive: "+why)
}

func (r *migrateResult) text(w io.Writer) {
	warningLines(w, r.Warnings)
	verb, put := "ran", "put"
	if r.DryRun {
		verb, put = "would run", "would put"
	}
	if !r.cut && len(r.Manifest)+len(r.Bucket)+len(r.ClickHouse) == 0 {
		fmt.Fprintln(w, "nothing to do: the manifest and ClickHouse are up to date")
		return
	}
	for _, m := range r.Manifest {
		fmt.Fprintf(w, "manifest    %s %s\n", verb, m)
	}
	for _, k := range r.Bucket {
		fmt.Fprintf(w, "bucket      %s %s\n", put, k)
	}
	for _, s := range r.ClickHouse {
		first, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
		if rest != "" {
			first += " ..."
		}
		fmt.Fprintf(w, "clickhouse  %s %s\n", verb, shortened(first, 150))
	}
}
