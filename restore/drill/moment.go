package drill

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/restore/rehydrate"
)

// moments is the step: the state as of random minutes comes back, and nothing of later.
func (r *run) moments(ctx context.Context) error {
	c := r.check(report.StepPointInTime, "restore --until random minutes", "exactly the rows whose message IDs are of that minute's first millisecond or before")
	var from []*sampled
	for _, s := range r.sample {
		if s.equal {
			from = append(from, s)
		}
	}
	if len(from) == 0 {
		c.skip("no slice was restored and found equal, so there is nothing to compare with")
		return nil
	}
	random := r.random(2)
	for i := range r.cfg.Minutes {
		s := from[random.IntN(len(from))]
		first, last := r.cfg.Layout.Time(s.first).Truncate(time.Minute), r.cfg.Layout.Time(s.last).Truncate(time.Minute)
		// From the minute after the first message's to the last one's.
		at := first.Add(time.Minute)
		if n := last.Sub(first) / time.Minute; n > 1 {
			at = at.Add(time.Duration(random.Int64N(int64(n))) * time.Minute)
		}
		if err := r.moment(ctx, i, s, at, c); err != nil {
			return err
		}
	}
	c.end("")
	return nil
}

// moment restores the state of a slice as of an instant, and compares with what was
// restored of all of it.
func (r *run) moment(ctx context.Context, i int, s *sampled, at time.Time, c *check) error {
	p, err := r.places.get(ctx, "t", fmt.Sprint(i), 0)
	if err != nil {
		return err
	}
	c.count("minutes", 1)
	named := func(what string) report.Place {
		return s.noted(fmt.Sprintf("as of %s: %s", at.UTC().Format("2006-01-02T15:04Z"), what))
	}
	sel := slice(s.SliceKey)
	sel.Until = &at
	rep, err := r.bring(ctx, p, sel, rehydrate.NoProgress{})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c.fail(named(err.Error()))
		return r.places.drop(ctx, p)
	}
	// The cut is worked out here anew, from the layout alone.
	cut, err := r.cfg.Layout.Lowest(at.Add(time.Millisecond))
	if err != nil {
		return err
	}
	cut = min(max(cut, s.Lo), s.Hi)
	sink, err := p.sinkOf(ctx, rep.Slices[0].Table, s.Schema)
	if err != nil {
		return err
	}
	found, err := patiently(ctx, r, func() (message.Fingerprint, error) { return sink.Fingerprint(ctx, 0, math.MaxUint64, nil) })
	if err != nil {
		return err
	}
	want, err := patiently(ctx, r, func() (message.Fingerprint, error) { return s.sink.Fingerprint(ctx, s.Lo, cut, nil) })
	if err != nil {
		return err
	}
	late, err := patiently(ctx, r, func() (bool, error) { return sink.Any(ctx, cut, math.MaxUint64) })
	if err != nil {
		return err
	}
	c.count("rows", int64(want.Rows)) //nolint:gosec // a count
	switch {
	case late:
		c.fail(named("messages of later came back"))
	case found.Rows != want.Rows:
		c.fail(named(fmt.Sprintf("%d rows came back, %d are of then", found.Rows, want.Rows)))
	case found != want:
		if err := r.then(ctx, s, cut, c, named); err != nil {
			return err
		}
	}
	return r.places.drop(ctx, p)
}

// then looks row by row for what differs: where a status was put later than the instant,
// the row must.
func (r *run) then(ctx context.Context, s *sampled, cut uint64, c *check, named func(string) report.Place) error {
	sel := slice(s.SliceKey)
	at := r.cfg.Layout.Time(cut).Add(-time.Millisecond)
	sel.Until = &at
	list, err := r.reader.Slices(ctx, sel)
	if err != nil {
		return err
	}
	before := c.failures(s)
	changed := 0
	for _, l := range list {
		_, err := r.reader.Read(ctx, sel, l, func(b *message.Batch) error {
			w, _, err := s.sink.Compare(ctx, b)
			for _, x := range w.Conflicts {
				if changed++; !r.put(s, conflict{x.MessageID, x.Columns, x.Key}) {
					c.fail(named(fmt.Sprintf("message %d differs in %v", x.MessageID, x.Columns)))
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if changed == 0 && c.failures(s) == before {
		c.fail(named("what came back differs from what the archive has of then"))
	}
	return nil
}
