package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/cmd/coldtier/intomysql"
	"github.com/coldtier/coldtier/restore/rehydrate"
	reading "github.com/coldtier/coldtier/restore/selection"
)

// chosen are the flags that choose archived rows.
type chosen struct {
	selection
	conversations []string
	ids, until    string
}

func (s *chosen) flags(c *cobra.Command) {
	s.selection.flags(c)
	f := c.Flags()
	f.StringArrayVar(&s.conversations, "conversation", nil, "`ID` of a conversation; may be given again")
	f.StringVar(&s.ids, "ids", "", "message IDs `LO-HI`, both inclusive")
	f.StringVar(&s.until, "until", "", "the state as of `TIME`, such as 2026-05-01T12:34 (in source.timezone) or with seconds and a zone")
}

// rows reads the flags' texts; a time without a zone is one of zone.
func (s *chosen) rows(zone *time.Location) (sel reading.Selection, err error) {
	sel = reading.Selection{From: s.from, To: s.to, Shard: s.shard}
	for _, c := range s.conversations {
		sel.Conversations = append(sel.Conversations, []byte(c))
	}
	if s.ids != "" {
		lo, hi, ok := strings.Cut(s.ids, "-")
		first, err1 := strconv.ParseUint(lo, 10, 64)
		last, err2 := strconv.ParseUint(hi, 10, 64)
		if !ok || err1 != nil || err2 != nil {
			return sel, usage("--ids %q: want two message IDs, such as 7000-7999", s.ids)
		}
		sel.IDs = &reading.IDs{First: first, Last: last}
	}
	if s.until != "" {
		at, err := parseTime(s.until, zone)
		if errors.Is(err, errWall) {
			return sel, usage("--until: %w", err)
		}
		if err != nil {
			return sel, usage("--until %q: want a time such as 2026-05-01T12:34, 2026-05-01T12:34:56 or 2026-05-01T12:34:56Z", s.until)
		}
		sel.Until = &at
	}
	return sel, nil
}

func parseTime(text string, zone *time.Location) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	if t, err := time.Parse("2006-01-02T15:04Z07:00", text); err == nil {
		return t, nil
	}
	for _, form := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04", "2006-01-02 15:04:05.999999999", time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, zone); err == nil {
			if form != time.DateOnly {
				err = once(t, text, form, zone)
			}
			return t, err
		}
	}
	return time.Time{}, errors.New("no time")
}

var errWall = errors.New("not one moment")

// once refuses a time of day that the zone has twice on that day, or not at all.
func once(t time.Time, text, form string, zone *time.Location) error {
	if same, err := time.ParseInLocation(form, t.Format(form), time.UTC); err != nil {
		return err
	} else if given, err := time.ParseInLocation(form, text, time.UTC); err != nil || !same.Equal(given) {
		return fmt.Errorf("%w: the clocks of %s leave %s out", errWall, zone, text)
	}
	const wall = "2006-01-02T15:04:05.999999999"
	for _, shift := range []time.Duration{-2 * time.Hour, -time.Hour, -30 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour} {
		if other := t.Add(shift); other.Format(wall) == t.Format(wall) {
			return fmt.Errorf("%w: %s is twice in %s: say which, %s or %s", errWall, text, zone, t.Format(time.RFC3339), other.Format(time.RFC3339))
		}
	}
	return nil
}

type restoreFlags struct {
	chosen
	into, table   string
	create, live  bool
	keepFor       string
	keep          time.Duration
	rowsPerSecond int
	limited       bool // rowsPerSecond is given
	inserts       bool
}

func (a *app) restoreCommand() *cobra.Command {
	var s restoreFlags
	var c *cobra.Command
	c = a.command(&cobra.Command{
		Use:   "restore --into DSN [flags]",
		Short: "Write archived rows back into a MySQL or MariaDB database",
		Long: `Write archived rows back into a MySQL or MariaDB database: all of them, or those of
conversations, days, shards, message IDs, or up to an instant. Each shard's rows go
into the table of its name (see --table), by the columns' names; with --create a
table that is not there is made of the archived definition.

A row that is there is never changed: one that differs is named as a conflict (exit
code 3), and both are kept. So the command may be repeated, and after a crash it goes
on where it ended. It ends by comparing the fingerprint of what the table holds with
the archive's. Rows whose status was put after they were archived have it in their
status column.

A warm table of this configuration is written only with --into-warm. Its slices are
then held, so that no purge takes the rows before --keep-for is over.`,
		Example: `  coldtier restore --into 'root:${RESTORE_PASSWORD}@tcp(10.0.0.7:3306)/rescue' --create --dry-run
  coldtier restore --into ... --create --day 2026-05-01 --shard 'im_00.*'
  coldtier restore --into ... --conversation 9007199254740993 --until 2026-05-01T12:34
  coldtier restore --into ... --create --table '{database}_{table}'    several databases into one
  coldtier restore --into ... --into-warm --keep-for 90d --day 2026-05-01 --shard 'im_00.*'`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := s.parse(); err != nil {
			return nil, err
		}
		var err error
		if s.keep, err = config.ParseDuration(s.keepFor); err != nil || s.keep == 0 {
			return nil, usage("--keep-for %q: want a duration such as 30d or 12h", s.keepFor)
		}
		if s.rowsPerSecond < 0 {
			return nil, usage("--rows-per-second %d: want a number of rows, or 0 for no limit", s.rowsPerSecond)
		}
		s.limited = c.Flags().Changed("rows-per-second")
		return a.restore(ctx, &s)
	})
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&s.into, "into", "", "the database that is written, `DSN` USER:PASSWORD@tcp(HOST:PORT)/DATABASE; ${VARIABLE} and ${file:PATH} are put in; required")
	s.flags(c)
	f.BoolVar(&s.create, "create", false, "make tables that are not there")
	f.StringVar(&s.table, "table", "{table}", "`NAME` of the tables that are written, with {database} and {table} of the shard")
	f.BoolVar(&s.live, "into-warm", false, "the target is a warm database of this configuration")
	f.StringVar(&s.keepFor, "keep-for", "30d", "with --into-warm, how `LONG` no purge takes the rows again, such as 30d or 12h")
	f.IntVar(&s.rowsPerSecond, "rows-per-second", 0, "at most so many rows a second, 0 for no limit (default: purge.rows_per_second)")
	f.BoolVar(&s.inserts, "inserts", false, "write by INSERT also where the server takes LOAD DATA LOCAL")
	_ = c.MarkFlagRequired("into") // it exists
	onlyWith(c, "into-warm", "keep-for")
	return a.bounded(a.changes(c))
}

// targetDSN puts the variables into --into, and keeps its password out of all output.
func (a *app) targetDSN(text string) (config.DSN, error) { return a.flagDSN("--into", text) }

func (a *app) flagDSN(flag, text string) (config.DSN, error) {
	plain, gave, err := a.lookup.Expand(text)
	if err != nil {
		return config.DSN{}, usage("%s: %w", flag, err)
	}
	for _, secret := range gave {
		a.redactor.Add(secret)
	}
	dsn, err := config.ParseDSN(plain)
	if err != nil {
		return dsn, usage("%s: %w", flag, err)
	}
	a.redactor.AddDSN(dsn)
	return dsn, nil
}

func (a *app) restore(ctx context.Context, s *restoreFlags) (_ result, err error) {
	n := need{bucket: true}
	if s.live {
		n.goAhead = jobRestore
	}
	p, err := a.open(ctx, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	sel, err := s.rows(p.cfg.Source.Zone)
	if err != nil {
		return nil, err
	}
	dsn, err := a.targetDSN(s.into)
	if err != nil {
		return nil, err
	}
	out := &restoreResult{DryRun: a.dryRun, Into: dsn.String()}
	if err := p.checkOwner(ctx); err != nil {
		return nil, setup(err)
	}
	if p.unowned != nil {
		out.Warnings = append(out.Warnings, a.redactor.Text(p.unowned.Error()))
	}
	t, err := warm.OpenTarget(ctx, warm.TargetConfig{DSN: dsn.Reveal(), Inserts: s.inserts, Now: a.now}, a.log)
	if err != nil {
		return nil, setup(remedy(err, "--into"))
	}
	p.closers = append(p.closers, t)
	if is, err := holdsManifest(ctx, t); err != nil {
		return nil, setup(remedy(err, "--into"))
	} else if is {
		return nil, mark(fmt.Errorf("--into %s: restore refused: the database holds a manifest: name one for messages", dsn), errUnsafe)
	}
	r, err := a.restorer(ctx, p, t, s, out)
	if err != nil {
		return nil, err
	}
	plan, err := r.Plan(ctx, sel)
	if err != nil {
		return nil, err
	}
	out.Plan = plan
	if a.dryRun {
		return out, nil
	}
	m := a.newRowMeter("restore", plan.Rows, len(plan.Slices))
	defer m.end()
	r.Progress = m
	do := func(ctx context.Context) (any, error) {
		out.Report, err = r.Execute(ctx, plan)
		return out.Report, err
	}
	if s.live {
		do = a.stoppable(p, jobRestore, do)
	}
	err = a.recorded(ctx, p, "restore", do)
	m.end()
	if out.Report == nil {
		return nil, err
	}
	out.Plan = nil
	return out, err
}

// holdsManifest says whether a database has the tables of a manifest, this one's or another's.
func holdsManifest(ctx context.Context, t *warm.Target) (bool, error) {
	for _, name := range []string{"slices", "copies", "segments"} {
		switch _, err := t.Table(ctx, name); {
		case errors.Is(err, warm.ErrNoTable):
			return false, nil
		case err != nil && !errors.Is(err, warm.ErrUnfit):
			return false, err
		}
	}
	return true, nil
}

// restorer makes the restorer for a target.
func (a *app) restorer(ctx context.Context, p *parts, t *warm.Target, s *restoreFlags, out *restoreResult) (*rehydrate.Restorer, error) {
	live, replicas, warnings, err := a.live(ctx, p, t)
	if err != nil {
		return nil, setup(err)
	}
	out.Warnings = append(out.Warnings, warnings...)
	switch {
	case s.live && live == nil:
		return nil, usage("--into-warm: %s is no warm database of this configuration", out.Into)
	case s.live:
		live.Keeper = keeper{p.manifest, s.keep, "restored by coldtier restore --into-warm", orUser(""), a.mirror(p), a.log}
		out.KeepFor = s.keep.String()
		if err := t.Watch(replicas); err != nil {
			return nil, setup(err)
		}
	}
	c := p.cfg.Purge
	rows := c.RowsPerSecond
	if s.limited {
		rows = s.rowsPerSecond
	}
	boundMemory(p.cfg)
	return rehydrate.New(rehydrate.Deps{Reader: a.selected(p, true), Manifest: p.manifest, Target: intomysql.Target{Target: t}, Server: t}, rehydrate.Config{
		Names: rehydrate.Names(s.table), Create: s.create, Live: live, RowsPerSecond: rows, MaxReplicaLag: c.MaxReplicaLag, MaxThreadsRunning: c.MaxThreadsRunning,
		Memory: p.cfg.Archive.Memory / 2, Now: a.now, Sleep: sleep, Step: stepHook(),
	})
}

type restoreResult struct {
	DryRun            bool            `json:"dry_run"`
	Into              string          `json:"into"`
	KeepFor           string          `json:"keep_for,omitempty"`
	Warnings          []string        `json:"warnings,omitempty"`
	Plan              *rehydrate.Plan `json:"plan,omitempty"`
	*rehydrate.Report                 // nil in a dry run
}

func (r *restoreResult) text(w io.Writer) {
	warningLines(w, r.Warnings)
	if r.Report == nil {
		r.planText(w)
		return
	}
	tableLines(w, r.Tables, "")
	var rows []string
	for _, s := range r.Slices[:min(len(r.Slices), maxRows)] {
		note := ""
		if s.Conflicts > 0 {
			note += count(s.Conflicts, "conflict") + " "
		}
		if s.Refused > 0 {
			note += fmt.Sprintf("%s cannot be written ", count(s.Refused, "row"))
		}
		if s.Extra > 0 {
			note += fmt.Sprintf("%s of the table are not archived ", count(s.Extra, "row"))
		}
		rows = append(rows, row(s.Day, s.Shard, s.Generation, s.Table, s.Outcome, amount(s.Rows), amount(s.Inserted), amount(s.Present), seconds(s.Seconds), strings.TrimSpace(note)))
	}
	table(w, "DAY\tSHARD\tGENERATION\tTABLE\tOUTCOME\tROWS\tINSERTED\tPRESENT\tTOOK\t", rows)
	andMore(w, len(r.Slices))
	for _, c := range r.Conflicts[:min(len(r.Conflicts), maxLeft)] {
		what := "differs in " + strings.Join(c.Columns, ", ")
		if c.Key != "" {
			what = "another row has its place in the unique key " + c.Key
		}
		fmt.Fprintf(w, "conflict  message %d of %s: %s\n", c.MessageID, printable(c.Table), printable(what))
	}
	for _, c := range r.Refused[:min(len(r.Refused), maxLeft)] {
		fmt.Fprintf(w, "refused   message %d of %s: %s\n", c.MessageID, printable(c.Table), printable(c.Reason))
	}
	lost := false
	for i := range r.Slices {
		for _, d := range r.Slices[i].Damaged {
			what := "lost"
			lost = lost || !d.Replaced
			if d.Replaced {
				what = "taken from ClickHouse, for a damaged object"
			}
			fmt.Fprintf(w, "damaged   %s: %s\n", printable(d.Error()), what)
		}
	}
	if lost {
		fmt.Fprintln(w, "remedy    "+objectCure+", then run the same command again")
	}
	fmt.Fprintf(w, "%s restored, %d there before, %d in part, %d failed, %d left: %s inserted, %s there and equal, in %s%s\n", count(r.Count(rehydrate.Restored), "slice"),
		r.Count(rehydrate.There), r.Count(rehydrate.Partly), r.Count(rehydrate.Failed), r.Count(rehydrate.Left), count(r.Inserted, "row"), count(r.Present, "row"), seconds(r.Seconds), rate(r.Inserted, r.Seconds))
}

func (r *restoreResult) planText(w io.Writer) {
	tableLines(w, r.Plan.Tables, "would be ")
	var rows []string
	for _, s := range r.Plan.Slices[:min(len(r.Plan.Slices), maxRows)] {
		part := "all"
		if !s.Whole() {
			part = "a part of"
		}
		rows = append(rows, row(s.Day, s.Shard, s.Live.Live, s.Table, part, amount(s.Rows), bytesText(s.Bytes)))
	}
	table(w, "DAY\tSHARD\tGENERATION\tTABLE\tOF\tROWS\tBYTES", rows)
	andMore(w, len(r.Plan.Slices))
	fmt.Fprintf(w, "%s with %s (%s) would be restored into %s\n", count(len(r.Plan.Slices), "slice"), count(r.Plan.Rows, "row"), bytesText(r.Plan.Bytes), r.Into)
}

func tableLines(w io.Writer, tables []rehydrate.Made, would string) {
	for _, m := range tables {
		if m.Create {
			fmt.Fprintf(w, "table %s %smade of the definition of %s\n", printable(m.Table), would, m.Shard)
		}
		for _, n := range m.Notes {
			fmt.Fprintf(w, "table %s: %s\n", printable(m.Table), printable(n))
		}
	}
}
