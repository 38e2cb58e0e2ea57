package drill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/restore/rehydrate"
	"github.com/coldtier/coldtier/restore/selection"
)

// Drill makes one drill.
type Drill struct {
	Deps
	cfg Config
}

// New makes a drill.
func New(d Deps, c Config) (*Drill, error) {
	if c.Now == nil || c.Sleep == nil {
		return nil, errors.New("drill: no clock is given")
	}
	if c.Fraction.N < 1 || c.Fraction.Of < c.Fraction.N {
		return nil, fmt.Errorf("drill: sample: %w", ErrFraction)
	}
	if c.Minutes <= 0 {
		c.Minutes = DefaultMinutes
	}
	if c.Pages <= 0 {
		c.Pages = DefaultPages
	}
	if c.Memory <= 0 {
		c.Memory = rehydrate.DefaultMemory
	}
	if d.Progress == nil {
		d.Progress = NoProgress{}
	}
	return &Drill{Deps: d, cfg: c}, nil
}

// run is one Run.
type run struct {
	*Drill
	plan   *Plan
	rep    *report.Report
	began  time.Time
	bucket *countedBucket
	rows   *countedRows
	reader *selection.Reader
	places *places
	sample []*sampled

	mu     sync.Mutex
	stages []report.Stage
}

// sampled is a slice of the sample, and what became of it.
type sampled struct {
	Chosen
	at    *place // where its rows are; nil: nowhere
	sink  rehydrate.Sink
	table string
	equal bool // restored, and found equal
	first uint64
	last  uint64          // message IDs of its rows, as the objects have them
	puts  map[uint64]bool // messages with a status that was put after they were archived
}

// Run does the drill. The report tells what was found; who and where the drill is, what it
// cost and its verdict are the caller's to enter. With an error the report is what was known
// until then.
func (d *Drill) Run(ctx context.Context, p *Plan) (*report.Report, error) {
	r := &run{Drill: d, plan: p, began: d.cfg.Now(), bucket: &countedBucket{of: d.Bucket}, rows: &countedRows{of: d.Rows}}
	r.rep = &report.Report{FormatVersion: report.FormatVersion, Seed: d.cfg.Seed, Source: d.Manifest.Source(), Checks: []report.Check{}, Findings: []report.Finding{}}
	r.reader = selection.New(selection.Deps{Manifest: d.Manifest, Objects: r.bucket, Layout: d.cfg.Layout}, selection.Config{Memory: d.cfg.Memory / 2})
	r.places = &places{r: r, by: map[string]*place{}}
	for _, c := range p.Slices {
		r.sample = append(r.sample, &sampled{Chosen: c})
	}
	var err error
	if r.rep.Began, err = d.Manifest.Now(ctx); err != nil {
		return r.rep, err
	}
	err = r.steps(ctx)
	err = errors.Join(err, r.places.close())
	r.enter()
	if e := r.measure(ctx); err == nil {
		err = e
	}
	if err != nil {
		r.rep.Error = err.Error()
	}
	return r.rep, err
}

func (r *run) steps(ctx context.Context) error {
	for _, s := range []struct {
		name string
		do   func(context.Context) error
	}{
		{report.StepManifest, r.manifest},
		{report.StepRestore, r.restore},
		{report.StepCompare, r.compare},
		{report.StepPointInTime, r.moments},
		{report.StepRead, r.pages},
		{report.StepCanary, r.canaries},
	} {
		r.Progress.Step(s.name)
		if err := r.step(ctx, "drill."+s.name); err != nil {
			return err
		}
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("step %s: %w", s.name, err)
		}
	}
	return nil
}

// step is between two steps.
func (r *run) step(ctx context.Context, name string) error {
	if r.cfg.Step != nil {
		if err := r.cfg.Step(name); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// random is a source of its own for each use, so that what one draws does not change what
// another does.
func (r *run) random(use uint64) *rand.Rand {
	return rand.New(rand.NewPCG(r.cfg.Seed, use)) //nolint:gosec // it is to be drawn again by the seed
}

// enter enters the sample into the report.
func (r *run) enter() {
	p := r.plan
	r.rep.Sample = report.Sample{Fraction: p.Fraction, Why: p.Why, Slices: []report.Slice{}, Rows: p.Rows, Bytes: p.Bytes}
	equal := map[manifest.SliceKey]bool{}
	for _, s := range r.sample {
		v := report.Fail
		if s.equal {
			v, equal[s.SliceKey] = report.Pass, true
		}
		r.rep.Sample.Slices = append(r.rep.Sample.Slices, report.Slice{Day: s.Day, Shard: s.Shard, Generation: s.Live.Live, Rows: s.Rows, Bytes: s.Bytes, Why: s.Why, Verdict: v})
	}
	var cover []report.Covered
	for _, l := range p.live { // what was chosen and not proven is not covered
		cover = append(cover, report.Covered{Day: l.Day, Rows: l.Rows, Before: !p.before[l.SliceKey].IsZero(), Now: equal[l.SliceKey]})
	}
	r.rep.Sample.Coverage = report.Cover(p.since, cover, p.Coverage)
}

// some is "1 slice" or "3 slices".
func some[N int | int64 | uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// maxNamed bounds the places that a check names; the count goes on.
const maxNamed = 20

// check is a check that is being made. It is safe for concurrent use.
type check struct {
	r     *run
	began time.Time
	mu    sync.Mutex
	c     report.Check
	order []string
	n     map[string]int64
	of    map[string]int // failures by slice
}

func (r *run) check(step, name, expected string) *check {
	return &check{r: r, began: r.cfg.Now(), n: map[string]int64{}, of: map[string]int{}, c: report.Check{Step: step, Name: name, Expected: expected}}
}

// count adds to what was compared.
func (c *check) count(what string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, seen := c.n[what]; !seen {
		c.order = append(c.order, what)
	}
	c.n[what] += n
}

// fail names a place where it failed.
func (c *check) fail(p report.Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[p.Slice]++
	if c.c.Failed++; c.c.Failed <= maxNamed {
		c.c.Failures = append(c.c.Failures, p)
	}
}

func (c *check) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.c.Failed > 0
}

// end enters the check into the report.
func (c *check) end(found string) {
	c.c.Verdict, c.c.Found = report.Pass, found
	if c.c.Failed > 0 {
		c.c.Verdict, c.c.Reason = report.Fail, Described(c.c.Failures[0])
		if c.c.Failed > 1 {
			c.c.Reason += fmt.Sprintf(" (and %d more)", c.c.Failed-1)
		}
	}
	c.enter()
}

// skip enters it as one that was not made.
func (c *check) skip(reason string) {
	c.c.Verdict, c.c.Reason = report.Skipped, reason
	c.enter()
}

func (c *check) enter() {
	for _, what := range c.order {
		c.c.Compared = append(c.c.Compared, report.Count{What: what, Count: c.n[what]})
	}
	c.c.Seconds = c.r.cfg.Now().Sub(c.began).Seconds()
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.rep.Checks = append(c.r.rep.Checks, c.c)
}

// Described is a place in one sentence.
func Described(p report.Place) string {
	text := ""
	for _, s := range []string{p.Slice, generation(p.Generation), p.Object} {
		if s != "" {
			text += s + " "
		}
	}
	if p.ToID > p.FromID {
		text += "messages [" + message.FormatID(p.FromID) + ", " + message.FormatID(p.ToID) + ") "
	}
	if text == "" {
		return p.What
	}
	return text[:len(text)-1] + ": " + p.What
}

func generation(n uint32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("generation %d", n)
}

// note enters a finding.
func (r *run) note(level report.Level, step, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rep.Findings = append(r.rep.Findings, report.Finding{Level: level, Step: step, Text: text})
}

// of is a place in a slice's live generation.
func of(l *manifest.Live, what string) report.Place {
	return report.Place{What: what, Slice: l.SliceKey.String(), Generation: l.Live}
}

// one names one message.
func one(l *manifest.Live, id uint64, what string) report.Place {
	p := of(l, what)
	p.FromID, p.ToID = id, id+1
	return p
}
