package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
)

// checking are the flags that narrow a verification to what is due.
type checking struct {
	sample, olderThan, budget string

	archive.Checking
}

func (s *checking) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.sample, "sample", "", "a part of the slices, such as `1/8`: those of a round, in random order, so that eight samples cover all")
	f.StringVar(&s.olderThan, "older-than", "", "only what was not read for so long, such as `30d`")
	f.StringVar(&s.budget, "budget", "", "read at most so many bytes from the bucket, such as `10GiB`; what was not read for longest comes first")
}

// parse reads the flags' texts.
func (s *checking) parse() (err error) {
	if s.sample != "" {
		of, all, ok := strings.Cut(s.sample, "/")
		n, err1 := strconv.Atoi(of)
		m, err2 := strconv.Atoi(all)
		if !ok || err1 != nil || err2 != nil || n < 1 || m < n || m > 1_000_000 {
			return usage("--sample %q: want a fraction such as 1/8", s.sample)
		}
		s.Sample = archive.Fraction{Of: n, All: m}
	}
	if s.olderThan != "" {
		if s.OlderThan, err = config.ParseDuration(s.olderThan); err != nil || s.OlderThan == 0 {
			return usage("--older-than %q: want a duration such as 30d or 12h", s.olderThan)
		}
	}
	if s.budget != "" {
		if s.Budget, err = config.ParseSize(s.budget); err != nil || s.Budget == 0 {
			return usage("--budget %q: want a size such as 10GiB or 500MiB", s.budget)
		}
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	s.Seed = binary.BigEndian.Uint64(b[:])
	return nil
}

// narrowed says that not everything is due.
func (s *checking) narrowed() bool { return s.Sample.All > 0 || s.OlderThan > 0 || s.Budget > 0 }

func (a *app) verifyCommand() *cobra.Command {
	var s selection
	var due checking
	var b budget
	c := a.command(&cobra.Command{
		Use:   "verify",
		Short: "Read copies back from S3 and ClickHouse and compare",
		Long: `Read every copy back, all of its objects and all of its rows in ClickHouse, and
compare both with what the scan of MySQL saw. A committed slice that is equal
becomes verified. A slice that differs is never purged; while its rows are still in
MySQL the next archive copies it again.

What was read when is remembered, for each object. --older-than leaves out what was
read lately; --sample and --budget go by rounds, in which everything is read once; any
of them may be killed and goes on where it ended. An object that differs is read again,
and named, by every run until it is right. coldtier status says what was not checked for
longest.`,
		Example: `  coldtier verify
  coldtier verify --day 2026-05-01 --shard 'im_00.*'
  coldtier verify --older-than 30d --budget 10GiB     every night: no more than this
  coldtier verify --sample 1/8                        every week: all within eight weeks`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := s.parse(); err != nil {
			return nil, err
		}
		if err := due.parse(); err != nil {
			return nil, err
		}
		if err := b.parse(); err != nil {
			return nil, err
		}
		return a.verify(ctx, s, &due, &b)
	})
	s.flags(c)
	due.flags(c)
	b.flags(c)
	return a.shared(a.changes(c))
}

func (a *app) verify(ctx context.Context, sel selection, due *checking, b *budget) (_ result, err error) {
	p, err := a.open(ctx, need{bucket: true, rows: true, job: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	var warnings []string
	if p.unowned != nil {
		warnings = append(warnings, a.redactor.Text(p.unowned.Error()))
	}
	if err := sel.matches(ctx, p); err != nil {
		return nil, err
	}
	var end context.CancelFunc
	ctx, end = a.withBudget(ctx, p, b)
	defer end()
	v := a.verifier(p)
	chosen := archive.Selection{From: sel.from, To: sel.to, Shard: sel.shard}
	var list []manifest.Slice
	var d *archive.Due
	if due.narrowed() {
		d, err = v.Due(ctx, chosen, due.Checking)
	} else {
		list, err = v.Plan(ctx, chosen)
	}
	if err != nil {
		return nil, err
	}
	if a.dryRun {
		return &verifyPlan{true, append([]manifest.Slice{}, list...), d, warnings}, nil
	}
	m := a.newMeter("verify")
	m.bySlice = true
	defer m.end()
	var rep *archive.VerifyReport
	err = a.recorded(ctx, p, "verify", func(ctx context.Context) (any, error) {
		if d != nil {
			rep, err = v.RunDue(ctx, d, m)
		} else {
			rep, err = v.Run(ctx, list, m)
		}
		if err != nil {
			return nil, err
		}
		return rep, verified(rep)
	})
	m.end()
	if rep == nil {
		return nil, err
	}
	if d != nil { // what was read is in the report
		d.Checks = nil
	}
	return &verifyResult{VerifyReport: rep, Due: d, Warnings: warnings}, err
}

// verified says what a report means for the run as a whole. A difference counts
// most: exit refuses for it.
func verified(r *archive.VerifyReport) error {
	err := r.Err()
	switch {
	case r.TimeUp != nil && len(r.Different) == 0:
		return mark(errors.Join(err, fmt.Errorf("%s left: %w", count(r.Left, "slice"), r.TimeUp)), errPartial)
	case r.Elsewhere > 0 && len(r.Equal)+len(r.Different)+len(r.Unknown) == 0:
		return fmt.Errorf("%w: all that is due is being read by others", manifest.ErrLeased)
	case len(r.Different) > 0 || len(r.Unknown) == 0:
		return err
	case all(r.Unknown, func(o archive.VerifyOutcome) bool { return others(o.Err) }):
		if len(r.Equal) > 0 {
			return mark(err, errPartial)
		}
		return mark(err, manifest.ErrLeased)
	case len(r.Equal) > 0:
		return mark(err, errPartial)
	}
	return err
}

type verifyPlan struct {
	DryRun   bool             `json:"dry_run"`
	Slices   []manifest.Slice `json:"slices"`
	Due      *archive.Due     `json:"due,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
}

func (r *verifyPlan) text(w io.Writer) {
	warningLines(w, r.Warnings)
	var rows []string
	if d := r.Due; d != nil {
		n := min(len(d.Checks), d.Most)
		for _, k := range d.Checks[:min(n, maxRows)] {
			rows = append(rows, row(k.Day, k.Shard, k.State, k.Generation, amount(k.Rows), bytesText(k.Bytes), since(k.ReadAt)))
		}
		if len(rows) > 0 {
			table(w, "DAY\tSHARD\tSTATE\tGENERATION\tROWS\tBYTES\tREAD LAST", rows)
		}
		andMore(w, n)
		roundLine(w, d)
		limit := ""
		if d.Budget > 0 {
			limit = ", at most " + bytesText(d.Budget)
		}
		fmt.Fprintf(w, "%s of %d are due with %s; %d would be read back%s\n", count(len(d.Checks), "slice"), d.Slices, bytesText(d.Bytes), n, limit)
		return
	}
	for _, s := range r.Slices[:min(len(r.Slices), maxRows)] {
		rows = append(rows, row(s.Day, s.Shard, s.State, s.Generation, amount(s.Rows), bytesText(s.Bytes)))
	}
	if len(rows) > 0 {
		table(w, "DAY\tSHARD\tSTATE\tGENERATION\tROWS\tBYTES", rows)
	}
	andMore(w, len(r.Slices))
	fmt.Fprintf(w, "%s would be read back\n", count(len(r.Slices), "slice"))
}

// since is when something was done last, for people.
func since(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return stamp(*t)
}

func roundLine(w io.Writer, d *archive.Due) {
	if d.Round != nil {
		fmt.Fprintf(w, "round begun %s, seed %d\n", stamp(d.Round.Begun), d.Round.Seed)
	}
}

type verifyResult struct {
	*archive.VerifyReport
	Due      *archive.Due `json:"due,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
	partial
}

// cureLines says what brings right what differs.
func cureLines(w io.Writer, different []archive.VerifyOutcome) {
	again, objects := false, false
	for _, o := range different {
		if o.State == manifest.Pending {
			again = true
			continue
		}
		objects = objects || len(o.Damaged) > 0
		if errors.Is(o.Err, archive.ErrRows) {
			fmt.Fprintf(w, "remedy     coldtier rebuild clickhouse --day %s --shard %s\n", o.Slice.Day, o.Slice.Shard)
		}
	}
	if objects {
		fmt.Fprintln(w, "remedy     "+objectCure+"; readers are given the rows by ClickHouse meanwhile, where it has them")
	}
	if again {
		fmt.Fprintln(w, "remedy     coldtier archive: slices whose rows are still in MySQL are copied again")
	}
}

// objectCure is what brings an object of the bucket back.
const objectCure = "restore the objects from former versions or a backup of the bucket"

func (r *verifyResult) text(w io.Writer) {
	warningLines(w, r.Warnings)
	for _, o := range r.Different {
		if len(o.Damaged) == 0 {
			fmt.Fprintf(w, "different  %s generation %d: %s\n", o.Slice, o.Generation, printable(o.Error))
			continue
		}
		fmt.Fprintf(w, "different  %s generation %d: %s of %d that were read\n", o.Slice, o.Generation, count(len(o.Damaged), "object"), o.Objects)
		for _, d := range o.Damaged[:min(len(o.Damaged), maxRows)] {
			fmt.Fprintf(w, "  %s rows [%d, %d): %s\n", printable(d.Key), d.FirstRow, d.FirstRow+d.Rows, printable(d.Reason))
		}
		andMore(w, len(o.Damaged))
	}
	cureLines(w, r.Different)
	for _, o := range r.Unknown {
		fmt.Fprintf(w, "unknown    %s generation %d: %s\n", o.Slice, o.Generation, printable(o.Error))
	}
	if r.Due != nil {
		roundLine(w, r.Due)
	}
	left := ""
	if r.Left > 0 {
		left = fmt.Sprintf("; %s left for the next run", count(r.Left, "slice"))
	}
	if r.Elsewhere > 0 {
		left += fmt.Sprintf("; %d being read by others", r.Elsewhere)
	}
	if d := r.Due; d != nil && !r.cut && len(r.Equal)+len(r.Different)+len(r.Unknown)+r.Left+r.Elsewhere == 0 {
		fmt.Fprintf(w, "nothing to do: none of %s is due\n", count(d.Slices, "slice"))
		return
	}
	fmt.Fprintf(w, "%s equal, %d different, %d unknown: %s and %s as archived; %s read from the bucket in %s%s\n", count(len(r.Equal), "slice"), len(r.Different), len(r.Unknown),
		count(r.Rows, "row"), bytesText(r.Bytes), bytesText(r.BytesRead), seconds(r.Seconds), left)
}
