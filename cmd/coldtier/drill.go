package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/restore/drill/scratch"
)

// errRed says that a drill found something wrong.
var errRed = errors.New("the drill is red")

type drillFlags struct {
	reportFlags
	sample, seed, dir string
}

func (a *app) drillCommand() *cobra.Command {
	var s drillFlags
	c := a.command(&cobra.Command{
		Use:   "drill [flags]",
		Short: "Restore a part of the archive beside production, and prove it",
		Long: `Restore a part of the archive beside production, and prove that what comes back is
what was archived. It is read-only on everything but scratch databases of its own,
which it makes beside the one that drill.scratch_dsn names (NAME_drill_ID_...), and
drops, and its report. It

  1. compares the bucket's listing with the manifest, rebuilds the manifest from the
     bucket alone, and compares that with the live one;
  2. restores a sample: slices that no drill restored in the last year come first;
  3. compares fingerprints, counts, order and uniqueness, and, byte for byte, the
     objects and ClickHouse;
  4. restores the state as of random minutes;
  5. reads random pages within fetch.budget, healthy, with a slow and broken object
     store, and with ClickHouse away as well;
  6. measures recovery, the recovery point, what it means for a shard and for all, and
     what it cost by drill.prices;
  7. writes a report, JSON and HTML, signed with drill.signing_key, to drill.report_dir
     in the bucket and to the manifest's history.

The exit code is 0 only if every check passed, and 1 if one did not; what is wrong is
named. The account of drill.scratch_dsn needs no right on warm or manifest databases:
see drill.sql in the folders of deploy/sql.`,
		Example: `  coldtier drill --dry-run                 what would be read, in bytes and money?
  coldtier drill
  coldtier drill --sample 1/2 --seed 4711 --report-dir ./drill
  coldtier drill --history
  coldtier drill --check drills/20260701T060000Z-5f3a9c1200/report.json
  coldtier drill --check ./report.html --trusted-key drill.pub     without a configuration`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if r, asked, err := s.asked(ctx, a); asked {
			return r, err
		}
		return a.drill(ctx, &s)
	})
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&s.sample, "sample", "", "`PART` of all slices, such as 1/8, or 1 for all (default: drill.sample)")
	f.StringVar(&s.seed, "seed", "", "`NUMBER` that everything random follows from (default: a new one, which is printed)")
	f.StringVar(&s.dir, "report-dir", "", "write the report into a local `FOLDER`, too")
	a.bounded(a.changes(c))
	s.flags(c)
	return c
}

// drill makes a drill and stores its report.
func (a *app) drill(ctx context.Context, s *drillFlags) (_ result, err error) {
	p, err := a.open(ctx, need{bucket: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	c := p.cfg.Drill
	if s.sample != "" {
		if c.Sample, err = config.ParseFraction(s.sample); err != nil {
			return nil, usage("--sample %q: %w", s.sample, err)
		}
	}
	seed, err := seedOf(s.seed)
	if err != nil {
		return nil, err
	}
	var signer *report.Signer
	if key := c.SigningKey.Reveal(); key != "" {
		if signer, err = report.ParseSigner(key); err != nil {
			return nil, setup(err)
		}
	}
	if c.Scratch.Database() == "" && !a.dryRun {
		return nil, setup(errors.New("drill.scratch_dsn: name a server for scratch databases, such as drill:PASSWORD@tcp(10.0.0.7:3306)/coldtier_scratch"))
	}
	meter := a.newDrillMeter()
	defer meter.end()
	deps := a.drillDeps(p)
	deps.Progress = meter
	cfg := a.drillConfig(p, c, seed)
	id := newDrillID(a.now())
	out := &drillResult{Drill: id.long, Seed: strconv.FormatUint(seed, 10)}
	if a.dryRun {
		d, err := drill.New(deps, cfg)
		if err != nil {
			return nil, err
		}
		if out.Plan, err = d.Plan(ctx); err != nil {
			return nil, err
		}
		out.Cost, err = estimate(cfg.Prices, out.Plan)
		return out, err
	}
	err = a.recorded(ctx, p, "drill", func(ctx context.Context) (any, error) {
		err := a.drillOnce(ctx, p, s, deps, cfg, id, signer, meter, out)
		return drillRecord{out.Drill, out.Seed, out.Why, out.Keys}, err
	})
	if out.Report == nil {
		return nil, err
	}
	return out, err
}

// drillRecord is what the record of a run keeps of a drill: the history of drills has the rest.
type drillRecord struct {
	Drill string       `json:"drill"`
	Seed  string       `json:"seed"`
	Why   []string     `json:"why,omitempty"`
	Keys  *report.Keys `json:"keys,omitempty"`
}

// drillOnce makes a drill into out.
func (a *app) drillOnce(ctx context.Context, p *parts, s *drillFlags, deps drill.Deps, cfg drill.Config, id drillName, signer *report.Signer, meter *drillMeter, out *drillResult) (err error) {
	sc, err := a.openScratch(ctx, p, id.short, out)
	if err != nil {
		return err
	}
	// First dropped, then unlocked: whoever gets the lock takes what is left for a dead drill's.
	defer func() { err = errors.Join(err, a.cleared(ctx, sc)) }()
	ctx, stop := sc.Watch(ctx, sleep)
	defer stop()
	deps.Scratch = sc
	d, err := drill.New(deps, cfg)
	if err != nil {
		return err
	}
	plan, err := d.Plan(ctx)
	if err != nil {
		return err
	}
	a.log.Info("drill", "id", id.long, "seed", out.Seed, "slices", len(plan.Slices), "of_slices", plan.All, "rows", plan.Rows)
	meter.begin(plan)
	rep, err := d.Run(ctx, plan)
	meter.end()
	if cause := context.Cause(ctx); cause != nil { // half a drill says nothing
		return errors.Join(cause, sc.DropAll(context.WithoutCancel(ctx)))
	}
	if dropped := sc.DropAll(ctx); dropped != nil { // before the report, which is to tell it
		rep.Findings = append(rep.Findings, report.Finding{Level: report.Warning, Step: report.StepMeasure, Text: dropped.Error()})
	}
	if err != nil {
		rep.Error = refusal(err).Error()
	}
	a.describe(p, rep, id.long, sc)
	for _, w := range out.Warnings {
		rep.Findings = append(rep.Findings, report.Finding{Level: report.Warning, Step: report.StepRestore, Text: w})
	}
	return a.concluded(ctx, p, rep, signer, s.dir, out)
}

// drillName names a drill: long in reports, short in names of databases.
type drillName struct{ long, short string }

func newDrillID(now time.Time) drillName {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	short := hex.EncodeToString(b[:])
	return drillName{now.UTC().Format("20060102T150405Z") + "-" + short, short}
}

func seedOf(text string) (uint64, error) {
	if text == "" {
		var b [8]byte
		_, _ = rand.Read(b[:])                            // never fails
		return binary.LittleEndian.Uint64(b[:]) >> 1, nil // any client reads it
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, usage("--seed %q: want a number of 0..18446744073709551615", text)
	}
	return n, nil
}

// openScratch takes the right to drill, and sees that the scratch server is one that may be
// written.
func (a *app) openScratch(ctx context.Context, p *parts, id string, out *drillResult) (_ *scratch.Server, err error) {
	identity, err := p.manifest.Identity(ctx)
	if err != nil {
		return nil, setup(err)
	}
	if identity == "" {
		return nil, setup(fmt.Errorf("the manifest knows no source %q: correct source.name, or run coldtier migrate first", p.manifest.Source()))
	}
	sc, err := scratch.Open(ctx, scratch.Config{DSN: p.cfg.Drill.Scratch.Reveal(), Drill: id, Source: p.cfg.Source.Name, Identity: identity, Host: p.owner})
	if err != nil {
		return nil, scratchError(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, sc.Close())
		}
	}()
	if err := sc.Lock(ctx); err != nil {
		return nil, scratchError(err)
	}
	kept := []scratch.Database{scratch.Kept(p.cfg.Manifest.DSN.Reveal(), "the manifest's database")}
	for _, d := range p.cfg.Source.Databases {
		kept = append(kept, scratch.Kept(d.DSN.Reveal(), "a warm database"))
	}
	unknown, err := sc.Guard(ctx, kept)
	if err != nil {
		return nil, scratchError(err)
	}
	for _, e := range unknown {
		out.Warnings = append(out.Warnings, a.redactor.Text(e.Error()))
	}
	mighty, err := sc.Mighty(ctx)
	if err != nil {
		return nil, scratchError(err)
	}
	out.Warnings = append(out.Warnings, mighty...)
	dropped, left, err := sc.Clear(ctx)
	if err != nil {
		return nil, scratchError(err)
	}
	for _, name := range dropped {
		a.log.Info("dropped what a drill has left that did not end", "database", name)
	}
	for _, name := range left {
		out.Warnings = append(out.Warnings, fmt.Sprintf("database %s has the name of a scratch database and no mark of a drill of this manifest: it was left as it is", name))
	}
	return sc, nil
}

func scratchError(err error) error {
	switch {
	case errors.Is(err, scratch.ErrBusy):
		return mark(err, manifest.ErrLeased)
	case errors.Is(err, scratch.ErrRefused):
		return mark(err, errUnsafe)
	}
	return setup(remedy(refusal(err), "drill.scratch_dsn"))
}

// cleared drops what the drill made, also after a signal, and unlocks.
func (a *app) cleared(ctx context.Context, sc *scratch.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(a.limits.grace.get()-endTime, 20*time.Second))
	defer cancel()
	return errors.Join(sc.DropAll(ctx), sc.Close())
}

// describe enters who drilled, and what.
func (a *app) describe(p *parts, rep *report.Report, id string, sc *scratch.Server) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	b := p.cfg.Bucket
	owner := rep.Bucket.Owner
	rep.Drill, rep.Scratch = id, sc.Where()
	rep.Bucket = report.Bucket{Name: b.Name, Prefix: b.Prefix, Endpoint: b.Endpoint, Owner: owner}
	rep.Manifest.Database = p.cfg.Manifest.DSN.Database()
	rep.By = report.By{User: orUser(""), Host: host, Version: version()}
	rep.Environment = append(rep.Environment, report.Server{Role: "coldtier", Kind: "go", Version: runtime.Version()})
	if kind, v := sc.Version(); v != "" {
		rep.Environment = append(rep.Environment, report.Server{Role: "scratch", Kind: kind, Version: v, Where: sc.Where()})
	}
	if p.rows != nil {
		rep.Environment = append(rep.Environment, report.Server{Role: "clickhouse", Kind: "ClickHouse", Version: p.rows.Version()})
	}
}

// pastDrills is how many drills the trend shows.
const pastDrills = 40

// concluded judges, signs and stores a report.
func (a *app) concluded(ctx context.Context, p *parts, rep *report.Report, signer *report.Signer, dir string, out *drillResult) error {
	var err error
	if rep.Manifest.Identity, err = p.manifest.Identity(ctx); err != nil {
		return err
	}
	past, err := p.manifest.Drills(ctx, pastDrills)
	if err != nil {
		return err
	}
	for i := len(past) - 1; i >= 0; i-- {
		x := report.Past{Drill: past[i].ID, Began: past[i].Began, Verdict: report.Verdict(past[i].Verdict)}
		if err := json.Unmarshal(past[i].Measures, &x.Key); err != nil {
			return fmt.Errorf("measures of drill %s: %w", past[i].ID, err)
		}
		rep.Trend = append(rep.Trend, x)
	}
	rep.Error = a.redactor.Text(rep.Error)
	files, err := report.Seal(rep, signer)
	if err != nil {
		return err
	}
	out.Report = rep
	var why []string
	_, why = rep.Judge()
	out.Why = why
	keys, stored := files.Put(ctx, reports{p.bucket}, p.cfg.Drill.ReportDir, rep.Drill)
	if stored == nil {
		out.Keys = &keys
	}
	var written error
	if dir != "" {
		out.File, written = files.Write(dir)
	}
	measures, err := json.Marshal(rep.Key())
	if err != nil {
		return err
	}
	x := &manifest.Drill{ID: rep.Drill, Began: rep.Began, Ended: rep.Ended, Verdict: manifest.DrillVerdict(rep.Verdict), Sample: rep.Sample.Fraction, Seed: rep.Seed, Measures: measures, ReportJSON: keys.JSON, ReportHTML: keys.HTML}
	if signer != nil {
		x.SignedBy = signer.ID()
	}
	for _, s := range rep.Sample.Slices {
		x.Slices = append(x.Slices, manifest.DrillSlice{Day: s.Day, Shard: s.Shard, Generation: s.Generation, Rows: s.Rows, Equal: s.Verdict == report.Pass})
	}
	err = errors.Join(stored, written, p.manifest.PutDrill(ctx, x))
	if len(why) > 0 {
		err = errors.Join(fmt.Errorf("%w: %s", errRed, why[0]), err)
	}
	return err
}

// reports puts reports into the bucket.
type reports struct{ b *bucket.Bucket }
