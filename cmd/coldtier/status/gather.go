package status

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Config is what of the configuration a report needs.
type Config struct {
	Source      string
	Zone        *time.Location // whose midnight cuts the days
	After, Lag  time.Duration  // archive.after and purge.lag
	DrillMaxAge time.Duration
	MaxAgeText  string
	Skew        float64                    // the multiple of a day's median from which on a shard stands out
	Quota       uint64                     // of the bucket, in bytes; 0: none
	Next        func(now time.Time) []Next // runs of the schedule, nil: there is none
}

// Gatherer makes reports. It is safe for concurrent use.
type Gatherer struct {
	m   *manifest.Store
	c   Config
	now func() time.Time // to measure with; what is judged asks the manifest's clock

	mu   sync.Mutex
	kept *Totals
	of   manifest.Filter // what kept was selected by
	at   time.Time
	cost time.Duration
}

// keepFactor: totals that took long are asked for again only after so many times as long,
// so that whoever watches costs the manifest a small part of one connection at most.
const keepFactor = 20

// atOnce is how many questions are asked at the same time.
const atOnce = 4

// New makes a gatherer.
func New(m *manifest.Store, c Config, now func() time.Time) *Gatherer {
	return &Gatherer{m: m, c: c, now: now}
}

// Query narrows a report.
type Query struct {
	Filter manifest.Filter // of days, of what is failed and of what is held
	Runs   int             // how many of the last
}

func (q Query) selected() bool {
	return q.Filter.From != nil || q.Filter.To != nil || q.Filter.Shard != ""
}

func (q Query) selection() *Selection {
	if !q.selected() {
		return nil
	}
	return &Selection{q.Filter.From, q.Filter.To, q.Filter.Shard}
}

// maxRunning is among how many of the last runs those are looked for that run.
const maxRunning = 200

// Gather makes a report.
func (g *Gatherer) Gather(ctx context.Context, q Query) (*Report, error) {
	now, err := g.m.Now(ctx)
	if err != nil {
		return nil, err
	}
	r := &Report{Source: g.c.Source, Now: now, Zone: g.c.Zone.String(), AfterText: g.c.After.String(), After: g.c.After, LagText: g.c.Lag.String(), Lag: g.c.Lag,
		Due: due(now, g.c.After, g.c.Zone), Runs: []Run{}, Running: []Run{}, Work: []Work{}, Next: []Next{}, Selected: q.selection()}
	if g.c.Next != nil {
		r.Next = append(r.Next, g.c.Next(now)...)
		slices.SortStableFunc(r.Next, func(a, b Next) int { return a.At.Compare(b.At) })
	}
	totals, err := g.totals(ctx, q, r)
	if err != nil {
		return nil, err
	}
	r.Totals = *totals
	if err := g.live(ctx, q, r); err != nil {
		return nil, err
	}
	r.Attend()
	return r, nil
}

// due is the youngest day whose end is so old.
func due(now time.Time, after time.Duration, zone *time.Location) snowflake.Day {
	limit := now.Add(-after)
	d := snowflake.DayAt(limit, zone)
	for d.Next().Start(zone).After(limit) {
		d = d.Add(-1)
	}
	return d
}

// live asks for what is asked for each time.
func (g *Gatherer) live(ctx context.Context, q Query, r *Report) error {
	last, err := g.m.LastRuns(ctx, "", max(q.Runs, maxRunning))
	if err != nil {
		return err
	}
	for i, l := range last {
		x := runOf(l, r.Now)
		if i < q.Runs {
			r.Runs = append(r.Runs, x)
		}
		if x.Outcome == Running {
			x.Report = nil
			r.Running = append(r.Running, x)
		}
	}
	holds, err := g.m.Holds(ctx, false)
	if err != nil {
		return err
	}
	r.Holds = len(holds)
	r.HoldList = slices.DeleteFunc(holds, func(h manifest.Hold) bool { return h.Kind != manifest.HoldSlice })
	if r.Drill, err = LastDrill(ctx, g.m, r.Now, g.c.DrillMaxAge, g.c.MaxAgeText); err != nil {
		return err
	}
	if r.Plans, err = g.plans(ctx, r.usedUp); err != nil {
		return err
	}
	if r.Stops, err = g.m.Stops(ctx, false); err != nil {
		return err
	}
	if r.Pauses, err = g.m.Pauses(ctx); err != nil {
		return err
	}
	r.Stops, r.Pauses = append([]manifest.Stop{}, r.Stops...), append([]manifest.Pause{}, r.Pauses...)
	if err := g.work(ctx, r); err != nil {
		return err
	}
	r.Canaries, err = canaries(ctx, g.m)
	return err
}

// work says how far the slices in work are, and the archive with all of them.
func (g *Gatherer) work(ctx context.Context, r *Report) error {
	at, err := g.m.Progress(ctx)
	if err != nil {
		return err
	}
	for _, p := range at {
		w := Work{SliceProgress: p, Share: p.Share()}
		if left, ok := p.Left(); ok {
			w.ETA = new(left.Seconds())
		}
		r.Work = append(r.Work, w)
	}
	left := 0
	for _, b := range r.Behind.Archive {
		left += b.Slices
	}
	for i := range r.Running {
		x := &r.Running[i]
		if x.Job != manifest.StopArchive {
			continue
		}
		done, err := g.m.VerifiedSince(ctx, x.Started)
		if err != nil {
			return err
		}
		x.Progress = &Progress{Done: done, Left: left}
		if done > 0 {
			x.Progress.ETA = new(max(r.Now.Sub(x.Started), 0).Seconds() / float64(done) * float64(left))
		}
	}
	return nil
}

// deadAfter is how long a run may take that has no lease to tell that it lives.
const deadAfter = 24 * time.Hour

func runOf(l manifest.Run, now time.Time) Run {
	r := Run{ID: l.ID, Job: l.Job, Args: l.Args, Host: l.Host, Scheduled: l.Scheduled, Started: l.Started, Ended: l.Ended, Outcome: l.Outcome, Why: l.Why, Report: l.Report}
	if r.Ended == nil {
		r.Outcome = Running
		if l.Lease != "" && !l.Alive || l.Lease == "" && now.Sub(l.Started) > deadAfter {
			r.Outcome = Died
		}
	}
	return r
}

// maxPlans is how many plans are looked at.
const maxPlans = 50

func (g *Gatherer) plans(ctx context.Context, usedUp map[string]bool) (p Plans, err error) {
	policy, err := g.m.ApprovalPolicy(ctx)
	if err != nil {
		return p, err
	}
	p.Required, p.Open = policy.Value == manifest.ApprovalRequired, []*manifest.SavedPlan{}
	all, err := g.m.SavedPlans(ctx, "", maxPlans)
	for _, s := range all {
		if !s.Expired && s.Revoked == nil && !usedUp[s.ID] {
			p.Open = append(p.Open, s)
		}
	}
	return p, err
}

// usedUp tells the plans of which nothing is left: all was purged, or has changed.
func (g *Gatherer) usedUp(ctx context.Context) (map[string]bool, error) {
	plans, err := g.plans(ctx, nil)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, s := range plans.Open {
		st, err := g.m.PlanStanding(ctx, s)
		if err != nil {
			return nil, err
		}
		used[s.ID] = st.Left == 0
	}
	return used, nil
}

// totals gives those that are kept, or new ones where they are too old.
func (g *Gatherer) totals(ctx context.Context, q Query, r *Report) (*Totals, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	begun := g.now()
	if g.kept != nil && g.of.From == q.Filter.From && g.of.To == q.Filter.To && g.of.Shard == q.Filter.Shard && begun.Sub(g.at) < keepFactor*g.cost && !begun.Before(g.at) {
		return g.kept, nil
	}
	t, err := g.sumUp(ctx, q, r)
	if err != nil {
		return nil, err
	}
	g.kept, g.of, g.at = t, q.Filter, g.now()
	g.cost = g.at.Sub(begun)
	return t, nil
}

func (g *Gatherer) sumUp(ctx context.Context, q Query, r *Report) (*Totals, error) {
	t := &Totals{TotalsAt: r.Now, States: []manifest.StateSummary{}, Days: []Day{}, Failed: []Slice{}, Held: []Slice{}, Interrupted: []Slice{}, Skew: []manifest.DaySkew{}}
	held, err := g.m.HeldSlices(ctx, manifest.Filter{})
	if err != nil {
		return nil, err
	}
	var all, some []manifest.DayState
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	group.Go(func() (err error) {
		if all, err = g.m.DayStates(gctx, manifest.Filter{}); err != nil {
			return err
		}
		some = all
		if q.selected() {
			some, err = g.m.DayStates(gctx, q.Filter)
		}
		return err
	})
	group.Go(func() (err error) { t.Checks, err = coverage(gctx, g.m); return err })
	group.Go(func() (err error) { t.Unmirrored, err = g.m.Unmirrored(gctx); return err })
	group.Go(func() (err error) { t.Behind.Archive, err = g.m.BehindArchive(gctx, r.Due); return err })
	group.Go(func() (err error) { t.Behind.Purge, err = g.m.BehindPurge(gctx, g.c.Lag, held); return err })
	group.Go(func() error {
		t.Purge.Run = r.next(manifest.StopPurge)
		then := r.Now
		if t.Purge.Run != nil {
			then = *t.Purge.Run
		}
		d, err := g.m.Deletable(gctx, g.c.Lag, then, held)
		t.Purge.Deletable, t.Purge.AtRun, t.Purge.Next = d.Now, d.Then, d.Next
		return err
	})
	group.Go(func() error {
		list, err := g.m.InterruptedSlices(gctx, interruptedTimes)
		for _, s := range list {
			t.Interrupted = append(t.Interrupted, Slice{SliceKey: s.SliceKey, State: s.State, Tries: s.Interrupted})
		}
		return err
	})
	group.Go(func() error { return g.grown(gctx, t) })
	group.Go(func() (err error) { t.usedUp, err = g.usedUp(gctx); return err })
	group.Go(func() error {
		failed, err := g.m.FailedSlices(gctx, q.Filter, MaxListed)
		for _, s := range failed {
			t.Failed = append(t.Failed, Slice{s.SliceKey, s.State, s.Tries, s.Error})
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	t.Behind.Archive, t.Behind.Purge = append([]manifest.ShardBehind{}, t.Behind.Archive...), append([]manifest.ShardBehind{}, t.Behind.Purge...)
	if q.selected() {
		if held, err = g.m.HeldSlices(ctx, q.Filter); err != nil {
			return nil, err
		}
	}
	for _, s := range held[:min(len(held), MaxListed)] {
		t.Held = append(t.Held, Slice{SliceKey: s.SliceKey, State: s.State})
	}
	t.byState(all)
	t.byDay(some, held, g.c.Lag, r.Now)
	if n := len(all); n > 0 && all[n-1].Day.Before(r.Due) {
		t.Missing = &Range{all[n-1].Day.Next(), r.Due, r.Due.Sub(all[n-1].Day)}
	}
	return t, nil
}

// interruptedTimes is how often in a row a slice's copy was ended for time before a report
// names it.
const interruptedTimes = 2

// grown says how the cold tier grows, and how evenly.
func (g *Gatherer) grown(ctx context.Context, t *Totals) error {
	f, err := g.m.Forecast(ctx, g.c.Quota)
	if err != nil {
		return err
	}
	t.Growth = &f
	if f.Days == 0 {
		return nil
	}
	days, err := g.m.Skew(ctx, f.Last.Add(1-SkewDays), f.Last, g.c.Skew)
	t.Skew = append(t.Skew, days...)
	return err
}

// next is a job's next run by the schedule; nil: it has none.
func (r *Report) next(job string) *time.Time {
	for _, n := range r.Next {
		if n.Job == job {
			return &n.At
		}
	}
	return nil
}

// byState sums up by state.
func (t *Totals) byState(all []manifest.DayState) {
	for _, s := range manifest.States() {
		sum := manifest.StateSummary{State: s}
		for _, d := range all {
			if d.State != s {
				continue
			}
			if sum.Slices == 0 {
				sum.First = d.Day
			}
			sum.Last = d.Day
			sum.Slices += d.Slices
			sum.Rows += d.Rows
			sum.Bytes += d.Bytes
		}
		if sum.Slices > 0 {
			t.States = append(t.States, sum)
		}
	}
}

// byDay sums up by day.
func (t *Totals) byDay(all []manifest.DayState, held []manifest.Slice, lag time.Duration, now time.Time) {
	heldOn := map[snowflake.Day]int{}
	for _, s := range held {
		heldOn[s.Day]++
	}
	for _, s := range all {
		if n := len(t.Days); n == 0 || t.Days[n-1].Day != s.Day {
			t.Days = append(t.Days, Day{Day: s.Day, States: map[manifest.State]int{}, Held: heldOn[s.Day]})
		}
		d := &t.Days[len(t.Days)-1]
		d.Slices += s.Slices
		d.States[s.State] += s.Slices
		d.Rows += s.Rows
		d.Bytes += int64(s.Bytes) //nolint:gosec // sizes of objects
		d.Failed += s.Failed
		if s.Last != nil {
			at := s.Last.Add(lag)
			d.PurgeFrom, d.Remaining = &at, max(at.Sub(now), 0).Round(time.Second).String()
		}
	}
	for i := range t.Days {
		t.Days[i].SetMark()
	}
}

// LastDrill says when the last good drill was.
func LastDrill(ctx context.Context, m *manifest.Store, now time.Time, limit time.Duration, limitText string) (*Drill, error) {
	d := &Drill{MaxAge: limitText, Overdue: true}
	var err error
	if d.LastGood, err = m.LastGoodDrill(ctx); err != nil || d.LastGood == nil {
		return d, err
	}
	age := max(now.Sub(d.LastGood.Ended), 0)
	d.Age, d.Overdue = age.Seconds(), age > limit
	return d, nil
}

// coverage sums up what was read back when, for the times that a status names.
func coverage(ctx context.Context, m *manifest.Store) (*manifest.Coverage, error) {
	const day = 24 * time.Hour
	within := []time.Duration{30 * day, 90 * day, 365 * day}
	c, err := m.Coverage(ctx, within...)
	if err != nil {
		return nil, err
	}
	for i, d := range within {
		c.Older[i].For = fmt.Sprintf("%dd", d/day)
	}
	return &c, nil
}

func canaries(ctx context.Context, m *manifest.Store) (*Canaries, error) {
	all, err := m.Canaries(ctx)
	if err != nil {
		return nil, err
	}
	s := &Canaries{}
	for i, c := range all {
		if c.PlantedAt == nil {
			s.Unfinished++
			continue
		}
		if s.Planted++; s.Last == nil || c.PlantedAt.After(*s.Last.PlantedAt) {
			s.Last = &all[i]
		}
	}
	return s, nil
}
