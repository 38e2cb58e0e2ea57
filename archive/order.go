package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// queue is the work of a plan that a run has not begun yet. Other runs take from the same
// slices meanwhile; what they did is seen a day at a time, shortly before it would be begun.
//
// The oldest day comes first. Each server has a line of its own, so that one on which
// enough workers are does not keep the others waiting; of servers that are at the same
// day the one with the fewest slices of this run comes first. The slices of a day are in
// an order that differs from run to run, so that runs that begin together seldom want the
// same slice. What was interrupted for time before is first of all.
type queue struct {
	a       *Archiver
	servers map[string]string // of each database
	mu      sync.Mutex
	lines   []*line
	busy    []*Work       // another run was at them; they are looked at once more at the end
	last    bool          // it is the end
	away    time.Time     // since when the manifest does not answer; zero: it does
	change  chan struct{} // closed when a line may have become free
}

// line is the work on one server's tables.
type line struct {
	server string
	days   []*dayWork
	active int       // slices of this run that have a slot here
	full   time.Time // no slot is asked for before
	pause  time.Duration
	place  uint64 // among lines that are otherwise equal
}

// dayWork is what a line has of a day.
type dayWork struct {
	day    snowflake.Day
	first  bool    // it was interrupted for time
	work   []*Work // of the plan
	seen   bool    // it was looked where its slices stand
	missed int     // slices that were another's, since then
}

// mostMissed is after how many slices that were another's it is looked again where the
// day's slices stand.
const mostMissed = 4

// A server's slot is asked for again after a pause that grows.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = 10 * time.Second
)

// newQueue sorts work; servers says on which server each database is.
func newQueue(a *Archiver, work []Work, servers map[string]string) *queue {
	q := &queue{a: a, servers: servers, change: make(chan struct{})}
	all := make([]*Work, len(work))
	for i := range work {
		all[i] = &work[i]
	}
	q.fill(all)
	return q
}

// fill puts work into the lines.
func (q *queue) fill(work []*Work) {
	type place struct {
		l     *line
		day   snowflake.Day
		first bool
	}
	lines, days := map[string]*line{}, map[place]*dayWork{}
	for _, l := range q.lines {
		lines[l.server] = l
	}
	for _, w := range work {
		name := q.servers[w.Shard.Database]
		l := lines[name]
		if l == nil {
			l = &line{server: name, place: q.draw(name)}
			lines[name], q.lines = l, append(q.lines, l)
		}
		at := place{l, w.Day, w.Interrupted > 0}
		d := days[at]
		if d == nil {
			d = &dayWork{day: at.day, first: at.first}
			days[at], l.days = d, append(l.days, d)
		}
		d.work = append(d.work, w)
	}
	for _, l := range q.lines {
		slices.SortFunc(l.days, (*dayWork).compare)
		for _, d := range l.days {
			for _, w := range d.work {
				w.lot = q.draw(w.Shard.String())
			}
			slices.SortFunc(d.work, func(x, y *Work) int { return cmp.Compare(x.lot, y.lot) })
		}
	}
}

// compare puts what was interrupted for time before all else, and then the oldest.
func (d *dayWork) compare(o *dayWork) int {
	switch {
	case d.first == o.first:
		return d.day.Compare(o.day)
	case d.first:
		return -1
	}
	return 1
}

// compare says which line's turn it is.
func (l *line) compare(o *line) int {
	return cmp.Or(l.days[0].compare(o.days[0]), cmp.Compare(l.active, o.active), cmp.Compare(l.place, o.place))
}

// draw is this run's lot for a name.
func (q *queue) draw(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(q.a.Owner)) // a hash takes everything
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(name))
	x := h.Sum64() // whose upper bits hardly depend on the last bytes
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// next gives the slice to try next, with a slot of its server where one is needed. It
// waits while all servers that have work are full or pause; nothing is held meanwhile. What others
// have done, and what cannot be begun, is told to left. False: nothing is left, or the run
// is to end, and then rest gives what it was.
func (q *queue) next(ctx context.Context, left func(*Work, error)) (*Work, *slot, bool) {
	for ctx.Err() == nil && q.a.timeUp() == nil {
		w, l, wait, ok := q.pick(ctx, left)
		if !ok {
			break
		}
		if l == nil {
			q.pause(ctx, wait)
			continue
		}
		s, wait, err := q.begin(ctx, l, w)
		switch {
		case err == nil && wait > 0:
			q.held(l, w, wait)
		case err == nil:
			return w, s, true
		case errors.Is(err, manifest.ErrServerFull):
			q.full(l, w)
		case ctx.Err() == nil && errors.As(err, new(unanswered)) && q.putOff(l, w, err):
		case !q.put(w, err):
			left(w, err)
		}
	}
	return nil, nil, false
}

// begin does what comes before the claim of a slice, and gives the slot for it; or for how
// long its server is to be left alone.
func (q *queue) begin(ctx context.Context, l *line, w *Work) (*slot, time.Duration, error) {
	if wait, err := q.a.ready(ctx, *w); err != nil || wait > 0 {
		return nil, wait, err
	}
	if w.Action != ActionLate { // a look costs less than a slot and a claim that is in vain
		st, err := q.a.Manifest.Standing(ctx, w.ID)
		if err != nil {
			return nil, 0, unanswered{err}
		}
		q.told()
		if err := standing(w, st); err != nil {
			return nil, 0, err
		}
	}
	s, err := q.slot(ctx, l.server, w)
	switch {
	case errors.Is(err, manifest.ErrServerFull), err == nil && s != nil:
		q.told()
	case err != nil:
		err = unanswered{err}
	}
	return s, 0, err
}

// standing says why a slice is not to be begun.
func standing(w *Work, st manifest.Standing) error {
	switch {
	case st.ID == 0:
		return fmt.Errorf("%s: %w, and it is done", w.SliceKey, ErrElsewhere)
	case st.Leased:
		return fmt.Errorf("%s: %w", w.SliceKey, manifest.ErrLeased)
	case st.Tries > w.Tries:
		return fmt.Errorf("%s: %w, and failed", w.SliceKey, ErrElsewhere)
	}
	return nil
}

// pick takes a slice out of the line whose turn it is. Without a line: all are full, and
// one may be asked again after wait. False: there is no more work.
func (q *queue) pick(ctx context.Context, left func(*Work, error)) (_ *Work, _ *line, wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ctx.Err() == nil {
		now := q.a.Clock()
		var best *line
		some := false
		wait = mostPause
		for _, l := range q.lines {
			if len(l.days) == 0 {
				continue
			}
			some = true
			if d := l.full.Sub(now); d > 0 {
				wait = min(wait, d)
			} else if best == nil || l.compare(best) < 0 {
				best = l
			}
		}
		switch {
		case best != nil:
			w, ok, err := q.take(ctx, best, left)
			if err != nil { // nothing is known of the whole day
				if ctx.Err() == nil && q.waits(err) {
					return nil, nil, awayPause, true
				}
				q.giveUp(err, left)
			}
			if ok {
				best.active++
				return w, best, 0, true
			}
		case some:
			return nil, nil, wait, true
		case q.last || len(q.busy) == 0:
			return nil, nil, 0, false
		default: // those who were at these may be done, or dead
			work := q.busy
			q.busy, q.last = nil, true
			q.fill(work)
		}
	}
	return nil, nil, 0, false
}

// take takes a slice of a line's first day, after a look at where the day's slices stand.
// The caller holds mu.
func (q *queue) take(ctx context.Context, l *line, left func(*Work, error)) (*Work, bool, error) {
	d := l.days[0]
	if !d.seen || d.missed >= mostMissed {
		if err := q.look(ctx, d.day, left); err != nil {
			return nil, false, err
		}
	}
	if len(d.work) == 0 {
		l.days = l.days[1:]
		return nil, false, nil
	}
	w := d.work[0]
	d.work = d.work[1:]
	return w, true, nil
}

// look sees where the slices of a day stand, and passes over those that are not to be
// begun, in all lines that are at the day. What other runs are at is put off to the end.
func (q *queue) look(ctx context.Context, day snowflake.Day, left func(*Work, error)) error {
	all, err := q.a.Manifest.Standings(ctx, day)
	if err != nil {
		return err
	}
	q.answered()
	for _, l := range q.lines {
		for _, d := range l.days[:min(len(l.days), 1)] {
			if d.day == day {
				q.sift(d, all, left)
			}
		}
	}
	return nil
}

func (q *queue) sift(d *dayWork, all map[manifest.Shard]manifest.Standing, left func(*Work, error)) {
	d.seen, d.missed = true, 0
	d.work = slices.DeleteFunc(d.work, func(w *Work) bool {
		if w.Action == ActionLate { // purged, and so done: its claim decides
			return false
		}
		err := standing(w, all[w.Shard])
		switch {
		case err == nil:
			return false
		case errors.Is(err, manifest.ErrLeased) && !q.last:
			q.busy = append(q.busy, w)
		default:
			left(w, err)
		}
		return true
	})
	for _, w := range d.work {
		if st, ok := all[w.Shard]; ok && w.Action != ActionLate {
			w.ID = st.ID
		}
	}
}

// put is what became of a slice that was taken. One that another run was at is looked at
// once more at the end, unless that is what this was.
func (q *queue) put(w *Work, err error) (again bool) {
	missed := errors.Is(err, manifest.ErrLeased) || errors.Is(err, ErrElsewhere)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		if l.server != q.servers[w.Shard.Database] {
			continue
		}
		l.active--
		if missed && len(l.days) > 0 && l.days[0].day == w.Day {
			l.days[0].missed++
		}
	}
	if errors.Is(err, manifest.ErrLeased) && !q.last {
		q.busy = append(q.busy, w)
		return true
	}
	return false
}

// full puts a slice back whose server has no slot, and leaves the server alone for a while.
func (q *queue) full(l *line, w *Work) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.back(l, w)
	l.pause = min(max(2*l.pause, firstPause), mostPause)
	l.full = q.a.Clock().Add(l.pause/2 + rand.N(l.pause)) //nolint:gosec // spreads load alone
}

// held puts a slice back whose server is not to be burdened now: one that pauses keeps no
// worker from the others.
func (q *queue) held(l *line, w *Work, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.back(l, w)
	l.full = q.a.Clock().Add(wait)
}

// back puts a slice back at its place. The caller holds mu.
func (q *queue) back(l *line, w *Work) {
	l.active--
	at := slices.IndexFunc(l.days, func(d *dayWork) bool { return d.day == w.Day && d.first == (w.Interrupted > 0) })
	if at < 0 {
		d := &dayWork{day: w.Day, first: w.Interrupted > 0, seen: true, missed: mostMissed}
		l.days = append(l.days, d)
		slices.SortFunc(l.days, (*dayWork).compare)
		at = slices.Index(l.days, d)
	}
	l.days[at].work = slices.Insert(l.days[at].work, 0, w)
}

// freed says that a slot of a server was taken or given back by this run.
func (q *queue) freed(server string, given bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		if l.server == server {
			l.pause = 0
			if given {
				l.full = time.Time{}
			}
		}
	}
	if given {
		close(q.change)
		q.change = make(chan struct{})
	}
}

// pause waits until a line may be asked again.
func (q *queue) pause(ctx context.Context, wait time.Duration) {
	q.mu.Lock()
	change := q.change
	q.mu.Unlock()
	t := time.NewTimer(max(wait, time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
	case <-change:
	case <-ctx.Done():
	}
}

// rest takes out all that was not begun.
func (q *queue) rest() (all []*Work) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		for _, d := range l.days {
			all = append(all, d.work...)
		}
		l.days = nil
	}
	all = append(all, q.busy...)
	q.busy = nil
	return all
}
