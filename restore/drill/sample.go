package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
)

// Fraction is a part of all slices: N/Of, such as 1/8.
type Fraction struct {
	N, Of int
}

// ErrFraction says that a fraction is none.
var ErrFraction = errors.New("want a fraction from 1/1000000 to 1/1, such as 1/8")

// String is "1/8".
func (f Fraction) String() string { return fmt.Sprintf("%d/%d", f.N, f.Of) }

// of is so many of n, and of any at least one.
func (f Fraction) of(n int) int { return (n*f.N + f.Of - 1) / f.Of }

// year is what coverage is counted over.
const year = 365 * 24 * time.Hour

// drillsPerYear is the rhythm by which a report says what a year covers: once a quarter.
const drillsPerYear = 4

// Plan is what a drill would do. Making it writes nothing.
type Plan struct {
	Fraction string     `json:"sample"`
	Seed     uint64     `json:"seed,string"`
	Slices   []Chosen   `json:"slices"` // oldest day first
	All      int        `json:"all_slices"`
	Rows     uint64     `json:"rows"`
	Bytes    int64      `json:"bytes"` // of the sample's objects
	Reads    []Estimate `json:"reads"` // of the bucket
	Why      string     `json:"why"`
	Coverage string     `json:"coverage"`
	live     []manifest.Live
	since    time.Time                       // what coverage is counted from
	before   map[manifest.SliceKey]time.Time // restored by drills since then
}

// Chosen is a slice of the sample.
type Chosen struct {
	manifest.Live
	Why string `json:"why"`
}

// Estimate is what a step would ask of the bucket.
type Estimate struct {
	Step  string `json:"step"`
	Gets  int64  `json:"gets"`
	Lists int64  `json:"lists"`
	Bytes int64  `json:"bytes"`
}

// why says how slices are chosen.
const why = "Slices that no drill has restored in the last 365 days come first, in an order that the seed shuffles; then those that were restored longest ago."

// Plan chooses the sample.
func (d *Drill) Plan(ctx context.Context) (*Plan, error) {
	all, err := d.Manifest.LiveCopies(ctx, manifest.Filter{})
	if err != nil {
		return nil, err
	}
	now, err := d.Manifest.Now(ctx)
	if err != nil {
		return nil, err
	}
	since := now.Add(-year)
	last, err := d.covered(ctx, all, since)
	if err != nil {
		return nil, err
	}
	p := &Plan{Fraction: d.cfg.Fraction.String(), Seed: d.cfg.Seed, Why: why, Slices: []Chosen{}, Reads: []Estimate{}}
	for _, l := range all {
		if l.Rows > 0 {
			p.live = append(p.live, l)
		}
	}
	p.All = len(p.live)
	order := slices.Clone(p.live)
	random := rand.New(rand.NewPCG(d.cfg.Seed, 1)) //nolint:gosec // it is to be drawn again by the seed
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	slices.SortStableFunc(order, func(a, b manifest.Live) int { // the zero time is the oldest
		return last[a.SliceKey].Compare(last[b.SliceKey])
	})
	for _, l := range order[:d.cfg.Fraction.of(len(order))] {
		c := Chosen{Live: l, Why: "not restored in the last year"}
		if t := last[l.SliceKey]; !t.IsZero() {
			c.Why = "last restored " + t.UTC().Format(time.DateOnly)
		}
		p.Slices = append(p.Slices, c)
		p.Rows, p.Bytes = p.Rows+l.Rows, p.Bytes+l.Bytes
	}
	slices.SortFunc(p.Slices, func(a, b Chosen) int {
		return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(a.Shard.String(), b.Shard.String()))
	})
	p.Coverage = d.cfg.Fraction.coverage(p.All)
	p.since, p.before = since, last
	return p, d.estimate(ctx, p)
}

// covered says when a drill last restored a slice's live generation and found it equal.
func (d *Drill) covered(ctx context.Context, all []manifest.Live, since time.Time) (map[manifest.SliceKey]time.Time, error) {
	list, err := d.Manifest.Drilled(ctx, since)
	if err != nil {
		return nil, err
	}
	live := map[manifest.SliceKey]uint32{}
	for _, l := range all {
		live[l.SliceKey] = l.Live
	}
	last := map[manifest.SliceKey]time.Time{}
	for _, x := range list {
		k := manifest.SliceKey{Source: d.Manifest.Source(), Shard: x.Shard, Day: x.Day}
		if live[k] == x.Generation {
			last[k] = x.Last
		}
	}
	return last, nil
}

// coverage says what a year of drills at this fraction covers.
func (f Fraction) coverage(n int) string {
	one := f.of(n)
	if n == 0 {
		return "nothing is archived"
	}
	need := (n + one - 1) / one
	if need == 1 {
		return fmt.Sprintf("one drill at %s restores all of today's %d slices", f, n)
	}
	if need <= drillsPerYear {
		return fmt.Sprintf("%d drills at %s restore all of today's %d slices; %d a year do", need, f, n, drillsPerYear)
	}
	return fmt.Sprintf("%d drills a year at %s restore %d of today's %d slices (%d %%): full coverage within a year takes a sample of at least 1/%d, or %d drills a year",
		drillsPerYear, f, drillsPerYear*one, n, 100*drillsPerYear*one/n, drillsPerYear, need)
}

// pageBytes is what a page reads of the bucket, about: a part of a row group, or a few.
const pageBytes = 256 << 10

// recordBytes is the size of a commit record, about, for each row of the slice and at least.
const recordBytes = 4 << 10

// looked is of how many slices the objects are counted for an estimate.
const looked = 32

// estimate says what the steps would ask of the bucket.
func (d *Drill) estimate(ctx context.Context, p *Plan) error {
	n, s, pages := int64(p.All), int64(len(p.Slices)), int64(d.cfg.Pages)
	days := map[string]bool{}
	for _, l := range p.live {
		days[l.Day.String()] = true
	}
	var counted, rows, whole, parts int64
	for i := 0; i < len(p.Slices); i += len(p.Slices)/looked + 1 {
		c, err := d.Manifest.LoadCopy(ctx, p.Slices[i].ID, p.Slices[i].Live.Live)
		if err != nil {
			return err
		}
		counted, rows = counted+1, rows+int64(p.Slices[i].Rows) //nolint:gosec // a count
		for _, o := range c.Objects {
			whole, parts = whole+1+o.File.Size/window, parts+1+o.File.Size/runBytes
		}
	}
	all := int64(p.Rows) //nolint:gosec // a count
	whole, parts = whole*all/max(rows, 1), parts*all/max(rows, 1)
	minutes := int64(d.cfg.Minutes)
	p.Reads = append(p.Reads,
		Estimate{Step: report.StepManifest, Gets: n + 1, Lists: 2*n + 2*int64(len(days)) + 4, Bytes: n * recordBytes},
		Estimate{Step: report.StepRestore, Gets: parts, Bytes: p.Bytes},
		Estimate{Step: report.StepCompare, Gets: whole, Bytes: p.Bytes},
		Estimate{Step: report.StepPointInTime, Gets: minutes * parts / max(s, 1), Bytes: minutes * p.Bytes / max(s, 1)},
		Estimate{Step: report.StepRead, Gets: conversations*int64(len(days)) + pages, Bytes: (conversations + pages) * pageBytes})
	return nil
}

// runBytes is what a restore reads with one request.
const runBytes = 2 << 20
