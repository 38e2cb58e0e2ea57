package drill

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/drill/report"
)

// round is pages that are read under one set of circumstances.
type round struct {
	name   string
	faulty bool
	away   bool // ClickHouse is
	part   int  // in per cent of all pages
}

func rounds() []round {
	return []round{
		{name: "healthy", part: 40},
		{name: "object store slow and cut", faulty: true, part: 30},
		{name: "object store slow and cut, ClickHouse away", faulty: true, away: true, part: 30},
	}
}

// coldCache is as good as no cache: each page reads what it shows.
const coldCache = 64 << 10

// pagesAtOnce is how many readers scroll at once.
const pagesAtOnce = 4

// pages is the step: what a reader is given is the restored truth, in time, and honest.
func (r *run) pages(ctx context.Context) error {
	c := r.check(report.StepRead, "conversations to read", "all that was archived of each")
	all, err := r.truths(ctx, c)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if c.failed() {
			c.end("")
		} else {
			c.skip("no slice was restored and found equal, so there is nothing to compare with")
		}
		return nil
	}
	c.end(fmt.Sprintf("%d conversations", len(all)))
	for i, x := range rounds() {
		if err := r.round(ctx, x, r.random(uint64(10+i)), all); err != nil {
			return err
		}
	}
	return nil
}

// asked is one page, and what came.
type asked struct {
	q    restore.Query
	t    *truth
	page *restore.Page
	took time.Duration
	err  error
}

func (r *run) round(ctx context.Context, x round, random *rand.Rand, all []*truth) error {
	cfg := r.cfg.Fetch
	cfg.Cache, cfg.Ahead, cfg.Layout, cfg.Zone = coldCache, false, r.cfg.Layout, r.cfg.Zone
	if cfg.Clock == nil {
		cfg.Clock = r.cfg.Now
	}
	if cfg.Budget <= 0 {
		cfg.Budget = restore.DefaultBudget
	}
	d := restore.Deps{Manifest: r.Deps.Manifest, Objects: r.bucket, Rows: r.rows, Log: slog.New(slog.DiscardHandler)}
	if x.faulty {
		d.Objects = newFaulty(r.bucket, r.cfg.Seed, cfg.Budget, r.cfg.Sleep)
	}
	if x.away {
		d.Rows = &away{}
	}
	f, err := restore.New(cfg, d)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it never fails
	list := make([]*asked, max(r.cfg.Pages*x.part/100, 1))
	for i := range list {
		t := all[random.IntN(len(all))]
		list[i] = &asked{t: t, q: query(random, t, x)}
		if i == 0 { // an anchor may lie at an end, and a page beyond it proves nothing
			q := &list[i].q
			q.Before, q.After, q.Around, q.Oldest = nil, nil, nil, false
		}
	}
	truthful := r.check(report.StepRead, x.name+": pages are the restored truth", "contiguous from the anchor, byte for byte, and what is missing is said")
	timely := r.check(report.StepRead, x.name+": pages come within the budget", fmt.Sprintf("%s, of a machine that is busy %s more; one in a hundred may take longer", cfg.Budget, slack(cfg.Budget)))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(pagesAtOnce)
	var mu sync.Mutex
	wrong := 0
	for _, a := range list {
		g.Go(func() error {
			begun := r.cfg.Now()
			a.page, a.err = f.Fetch(gctx, a.q)
			a.took = r.cfg.Now().Sub(begun)
			bad, err := r.judge(gctx, a, x)
			if gctx.Err() != nil {
				return context.Cause(gctx)
			}
			if err != nil {
				return err
			}
			for _, p := range bad {
				truthful.fail(p)
			}
			if len(bad) > 0 {
				mu.Lock()
				wrong++
				mu.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	r.roundEnded(x, cfg.Budget, list, wrong, truthful, timely)
	return nil
}

// slack is what a page may take longer where the machine is busy.
func slack(budget time.Duration) time.Duration { return max(budget/4, 250*time.Millisecond) }

// roundEnded enters what a round has measured.
func (r *run) roundEnded(x round, budget time.Duration, list []*asked, wrong int, truthful, timely *check) {
	out := report.Reads{Name: x.name, Faulty: x.faulty, Faults: []string{}, BudgetMS: float64(budget) / float64(time.Millisecond), Pages: len(list), Wrong: wrong}
	if x.faulty {
		out.Faults = append(out.Faults, faults(budget)...)
	}
	if x.away {
		out.Faults = append(out.Faults, "ClickHouse refuses every second statement, and answers no other")
	}
	var all []time.Duration
	states := map[string][]time.Duration{}
	incomplete, late := 0, 0
	for _, a := range list {
		state := "ERROR"
		if a.page != nil {
			state = string(a.page.State)
			out.Rows += uint64(len(a.page.Rows))
		}
		if state != string(restore.Complete) {
			incomplete++
		}
		all, states[state] = append(all, a.took), append(states[state], a.took)
		if a.took > budget {
			out.OverBudget++
		}
		if a.took > budget+slack(budget) {
			late++
		}
	}
	out.Latency = report.NewLatency(all, budget)
	names := make([]string, 0, len(states))
	for name := range states {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out.States = append(out.States, report.ReadState{State: name, Pages: len(states[name]), Latency: report.NewLatency(states[name], budget)})
	}
	if !x.faulty && (out.Rows == 0 || incomplete > len(list)/2) { // what did not come proves nothing
		truthful.fail(report.Place{What: fmt.Sprintf("%d of %d pages were not complete although no fault was injected, and all of them have %d rows: so little was compared that it proves nothing: look at the stores, and at fetch.budget", incomplete, len(list), out.Rows)})
	}
	truthful.count("pages", int64(len(list)))
	truthful.count("rows", int64(out.Rows)) //nolint:gosec // a count
	truthful.end(fmt.Sprintf("%d pages, %d wrong, %d in part", len(list), wrong, incomplete))
	timely.count("pages", int64(len(list)))
	most := slices.Max(all)
	if late > (len(list)+99)/100 || most > 3*budget+slack(budget) {
		timely.fail(report.Place{What: fmt.Sprintf("%d of %d pages took longer than the budget of %s, %d of them by more than %s, the longest %s", out.OverBudget, len(list), budget, late, slack(budget), most.Round(time.Millisecond))})
	}
	timely.end(fmt.Sprintf("%d of %d took longer, the longest %s", out.OverBudget, len(list), most.Round(time.Millisecond)))
	if out.OverBudget > 0 {
		r.note(report.Warning, report.StepRead, fmt.Sprintf("%s: %d of %d pages took longer than the budget of %s, the longest %s: the machine of the drill was busy, or the stores are too slow for the budget", x.name, out.OverBudget, len(list), budget, most.Round(time.Millisecond)))
	}
	if !x.faulty && incomplete > 0 {
		r.note(report.Warning, report.StepRead, fmt.Sprintf("%d of %d pages were not complete although no fault was injected: the stores are too slow for the budget, or damaged", incomplete, len(list)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rep.Measures.Reads = append(r.rep.Measures.Reads, out)
}

// query draws a page: in one of the directions, from one of the ends or near a message.
func query(random *rand.Rand, t *truth, x round) restore.Query {
	q := restore.Query{Conversation: t.conversation, Limit: 1 + random.IntN(restore.DefaultMax), From: restore.FromAny}
	if random.IntN(2) == 0 {
		q.Limit = 1 + random.IntN(30)
	}
	if !x.away && random.IntN(2) == 0 {
		q.From = restore.FromBucket
	}
	at := t.rows[random.IntN(len(t.rows))]
	cursor := at.Cursor
	switch random.IntN(3) { // the anchor need not exist
	case 0:
		cursor++
	case 1:
		cursor = max(cursor, 1) - 1
	}
	switch random.IntN(8) {
	case 0:
	case 1:
		q.Oldest = true
	case 2, 3, 4:
		q.Before = &cursor
	case 5, 6:
		q.After = &cursor
	default:
		id := at.ID
		q.Around = &id
	}
	return q
}

// judge compares a page with the truth.
func (r *run) judge(ctx context.Context, a *asked, x round) (bad []report.Place, err error) {
	name := "page of " + asText(&a.q)
	wrong := func(format string, args ...any) {
		bad = append(bad, report.Place{What: name + ": " + fmt.Sprintf(format, args...), Conversation: string(a.t.conversation)})
	}
	if a.err != nil {
		wrong("an error instead of a page: %v", a.err)
		return bad, nil
	}
	p := a.page
	for _, m := range p.Missing {
		if !x.faulty && (m.Cause == restore.CauseLost || m.Cause == restore.CauseDamaged || m.Cause == restore.CauseStores) {
			bad = append(bad, report.Place{What: name + ": " + m.Reason, Object: m.Key, Slice: m.Slice.String()})
		}
	}
	if p.State != restore.Complete && (len(p.Missing) == 0 || !p.HasMore && !p.HasOlder) {
		wrong("it is %s and does not say what is missing, or that there is more", p.State)
	}
	if p.State == restore.Complete && len(p.Missing) > 0 {
		wrong("it is complete and names what is missing")
	}
	descending := a.q.After == nil && a.q.Around == nil && !a.q.Oldest
	for i, row := range p.Rows {
		if string(row.Batch.Conversation(row.Index)) != string(a.t.conversation) {
			wrong("message %d is of another conversation", row.MessageID())
		}
		if i == 0 {
			continue
		}
		prev := p.Rows[i-1]
		c := compareRows(prev, row)
		if descending && c <= 0 || !descending && c >= 0 {
			wrong("messages %d and %d are out of order, or one is twice", prev.MessageID(), row.MessageID())
		}
	}
	for _, what := range r.gaps(a, descending) {
		wrong("%s", what)
	}
	values, err := r.values(ctx, a)
	for _, what := range values {
		wrong("%s", what)
	}
	return bad, err
}

func compareRows(a, b restore.Row) int {
	switch {
	case a.Cursor() != b.Cursor():
		if a.Cursor() < b.Cursor() {
			return -1
		}
		return 1
	case a.MessageID() < b.MessageID():
		return -1
	case a.MessageID() > b.MessageID():
		return 1
	}
	return 0
}

func asText(q *restore.Query) string {
	where := "the newest"
	switch {
	case q.Before != nil:
		where = "before cursor " + message.FormatID(*q.Before)
	case q.After != nil:
		where = "after cursor " + message.FormatID(*q.After)
	case q.Around != nil:
		where = "around message " + message.FormatID(*q.Around)
	case q.Oldest:
		where = "the oldest"
	}
	return fmt.Sprintf("%d messages %s, from %s", q.Limit, where, q.From)
}
