package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/restore/export"
	reading "github.com/coldtier/coldtier/restore/selection"
)

// exportFlags are what an export is told.
type exportFlags struct {
	chosen
	format, out string
	force, all  bool
}

// toStdout is the file name that means the standard output.
const toStdout = "-"

func (a *app) exportCommand() *cobra.Command {
	var e exportFlags
	c := a.command(&cobra.Command{
		Use:   "export --format {ndjson|csv|parquet}",
		Short: "Write selected archived rows as NDJSON, CSV or Parquet",
		Long: `Write selected archived rows, oldest day first, as NDJSON, CSV or Parquet, with the
statuses that were put since. They are read from the bucket, and from ClickHouse
where the bucket lacks them. Rows are selected by their message IDs: --until gives
those that were made up to an instant, with the statuses of then.

A file gets its name when it is whole; until then it lies beside it as .NAME.*.part.
Rows that are lost are named and left out, and the exit code is 3, or 1 when there are
no others. After any other error there is no file, and what went to the standard output
is not to be used.

The body of a recalled or deleted message is withheld, as from readers: its content
column, or all columns without a role. --with-withheld gives it.

ndjson   values are strings, NULL is null. What is not UTF-8 is in base64 and its column
         in "_base64"; "_status" has kind and time, "_withheld" the withheld columns.
csv      RFC 4180 with a header. NULL is \N; a text \N has one backslash more, as has
         \\N. A column of bytes is in base64, its header NAME:base64. Behind them are
         _status, _status_at and _withheld.
parquet  typed columns, then those of csv. "_exact" has the texts that a typed column
         cannot hold, such as 0000-00-00.`,
		Example: `  coldtier export --format ndjson --conversation 9007199254740993 | jq -c .content
  coldtier export --format parquet --from 2026-05-01 --to 2026-05-31 --out may.parquet
  coldtier export --format csv --shard 'im_00.*' --until 2026-05-01T12:34 --out before.csv`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := e.check(a.output); err != nil {
			return nil, err
		}
		return a.export(ctx, &e)
	})
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&e.format, "format", "", "ndjson, csv or parquet; required")
	f.StringVar(&e.out, "out", toStdout, "`FILE` to write, or - for the standard output")
	f.BoolVar(&e.force, "force", false, "take the place of a file that is there")
	e.flags(c)
	f.BoolVar(&e.all, "with-withheld", false, "also the bodies of recalled and deleted messages")
	_ = c.MarkFlagRequired("format") // it exists
	return a.graceful(c)
}

// check refuses what cannot be meant.
func (e *exportFlags) check(output string) error {
	switch export.Format(e.format) {
	case export.NDJSON, export.CSV, export.Parquet:
	default:
		return usage("--format %q: want ndjson, csv or parquet", e.format)
	}
	switch {
	case e.out == toStdout && output == formatJSON:
		return usage("--output json and the export cannot both go to the standard output: name a file with --out")
	case e.out == "":
		return usage("--out: want a file, or - for the standard output")
	}
	return e.parse()
}

func (a *app) export(ctx context.Context, e *exportFlags) (_ result, err error) {
	p, err := a.open(ctx, need{bucket: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	sel, err := e.rows(p.cfg.Source.Zone)
	if err != nil {
		return nil, err
	}
	if err := e.matches(ctx, p); err != nil {
		return nil, err
	}
	out := a.stdout
	var file *export.File
	if e.out != toStdout {
		if file, err = export.Create(e.out, e.force); errors.Is(err, export.ErrExists) {
			return nil, mark(err, errUsage)
		} else if err != nil {
			return nil, setup(fmt.Errorf("--out: %w: name a file in a folder that is there and may be written", err))
		}
		defer func() { err = errors.Join(err, file.Discard()) }()
		out = file
	}
	boundMemory(p.cfg)
	begun := a.now()
	m := a.newMeter("export")
	defer m.end()
	rep, err := export.Run(ctx, a.selected(p, true), sel, out, export.Options{Format: export.Format(e.format), Withheld: e.all, Progress: m})
	m.end()
	r := &exportResult{Report: rep, Out: e.out, Seconds: a.now().Sub(begun).Seconds()}
	lost := errors.Is(err, reading.ErrLost)
	switch {
	case errors.Is(err, reading.ErrSelection):
		return nil, mark(err, errUsage)
	case err != nil && (!lost || rep.Rows == 0):
		return nil, err
	case file != nil:
		if err := file.Commit(); err != nil {
			return nil, err
		}
	}
	if lost {
		err = mark(fmt.Errorf("%w\nup to %s left out: %s", err, count(rep.Left(), "row"), objectCure), errPartial)
	}
	if file == nil {
		r.text(a.stderr)
		return nil, err
	}
	return r, err
}

type exportResult struct {
	*export.Report
	Out     string  `json:"out"`
	Seconds float64 `json:"seconds"`
}

func (r *exportResult) text(w io.Writer) {
	for _, d := range r.Damaged {
		if d.Replaced { // those that are lost are in the error
			fmt.Fprintf(w, "from ClickHouse: %s\n", printable(d.Error()))
		}
	}
	where := r.Out
	if where == toStdout {
		where = "the standard output"
	}
	fmt.Fprintf(w, "%s of %s written to %s: %s, %s withheld, %s, %s\n", count(r.Rows, "row"), count(r.Slices, "slice"), printable(where),
		many(r.Statuses, "status", "statuses"), many(r.Withheld, "body", "bodies"), bytesText(r.Bytes), seconds(r.Seconds))
}

// many is count for words that do not just take an s.
func many(n uint64, one, more string) string {
	if n == 1 {
		return count(n, one)
	}
	return strings.TrimSuffix(count(n, more), "s") // the one that count adds
}
