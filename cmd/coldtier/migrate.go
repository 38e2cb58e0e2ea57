package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/message"
)

func (a *app) migrateCommand() *cobra.Command {
	return a.changes(a.command(&cobra.Command{
		Use:   "migrate",
		Short: "Create or upgrade the manifest's tables and ClickHouse's",
		Long: `Create or upgrade the manifest's tables, and make ClickHouse's table fit the
columns of the warm tables. Nothing is ever dropped. Run it before the first
archive, after an upgrade of coldtier, and as often as you like.`,
		Example: `  coldtier migrate --dry-run
  coldtier migrate`,
		Args: cobra.NoArgs,
	}, a.migrate))
}

type migrateResult struct {
	DryRun     bool     `json:"dry_run"`
	Manifest   []string `json:"manifest"`   // migrations
	ClickHouse []string `json:"clickhouse"` // statements
}

func (a *app) migrate(ctx context.Context, _ []string) (_ result, err error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	p := &parts{cfg: cfg}
	defer func() { err = joinClose(err, p) }()
	// Everything is looked at before anything is changed.
	for _, open := range []func(context.Context, *parts) error{a.openManifest, a.openWarm, a.openRows} {
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
	r := &migrateResult{DryRun: a.dryRun, Manifest: []string{}, ClickHouse: []string{}}
	done, err := p.manifest.Migrate(ctx, a.dryRun)
	r.Manifest = append(r.Manifest, done...)
	if err != nil {
		return r, err
	}
	statements, err := p.rows.Migrate(ctx, schemas, a.dryRun)
	r.ClickHouse = append(r.ClickHouse, statements...)
	return r, err
}

func (r *migrateResult) text(w io.Writer) {
	verb := "ran"
	if r.DryRun {
		verb = "would run"
	}
	if len(r.Manifest)+len(r.ClickHouse) == 0 {
		fmt.Fprintln(w, "nothing to do: the manifest and ClickHouse are up to date")
		return
	}
	for _, m := range r.Manifest {
		fmt.Fprintf(w, "manifest    %s %s\n", verb, m)
	}
	for _, s := range r.ClickHouse {
		first, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
		if rest != "" {
			first += " ..."
		}
		fmt.Fprintf(w, "clickhouse  %s %s\n", verb, shortened(first, 150))
	}
}
