package drill

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/restore/rehydrate"
	"github.com/coldtier/coldtier/restore/selection"
)

// slicesAtOnce is how many slices are restored or compared at once.
const slicesAtOnce = 2

// restore is the step: the sample comes back into scratch tables.
func (r *run) restore(ctx context.Context) error {
	began, before := r.cfg.Now(), r.bucket.now()
	c := r.check(report.StepRestore, "the sample is restored from the bucket alone", some(r.plan.Rows, "row")+" of "+some(len(r.sample), "slice"))
	if len(r.sample) == 0 {
		c.fail(report.Place{What: "there is no slice to restore: nothing is archived, or this is another manifest"})
	}
	byShard := map[manifest.Shard][]*sampled{}
	for i := len(r.sample) - 1; i >= 0; i-- { // newest first
		s := r.sample[i]
		byShard[s.Shard] = append(byShard[s.Shard], s)
	}
	var rows uint64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(slicesAtOnce)
	for _, list := range byShard {
		g.Go(func() error {
			definitions := map[string]int{}
			for _, s := range list { // one after the other: the first makes the table
				if err := r.refresh(gctx, s); err != nil {
					return err
				}
				hash := s.Schema.Hash()
				if _, seen := definitions[hash]; !seen {
					definitions[hash] = len(definitions)
				}
				if err := r.restoreOne(gctx, s, definitions[hash], c); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, s := range r.sample {
		if s.equal {
			rows += s.Rows
		}
	}
	c.count("slices", int64(len(r.sample)))
	c.count("rows", int64(rows))
	c.end(fmt.Sprintf("%d rows", rows))
	used := r.bucket.now().since(before)
	r.stage(report.NewStage("restore", r.cfg.Now().Sub(began), rows, used.bytes, used.requests()))
	return r.step(ctx, "drill.restored")
}

// refresh reads what is live of a slice now: it may have got its next generation since the
// plan, with other columns.
func (r *run) refresh(ctx context.Context, s *sampled) error {
	sel := slice(s.SliceKey)
	now, err := r.Deps.Manifest.LiveCopies(ctx, manifest.Filter{From: sel.From, To: sel.To, Shard: sel.Shard})
	if err != nil {
		return err
	}
	if len(now) == 1 {
		s.Live = now[0]
	}
	return nil
}

// restoreOne restores a slice.
func (r *run) restoreOne(ctx context.Context, s *sampled, definition int, c *check) error {
	p, err := r.places.get(ctx, "r", s.Shard.Database, definition)
	if err != nil {
		return err
	}
	rep, err := r.bring(ctx, p, slice(s.SliceKey), r.Progress)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if rep != nil && len(rep.Slices) == 1 {
		x := &rep.Slices[0]
		if s.table, s.at = x.Table, p; s.Live.Live != x.Generation { // it got its next one since the plan
			head, err := r.Deps.Manifest.LoadHead(ctx, s.ID, x.Generation)
			if err != nil {
				return err
			}
			s.Live.Live, s.Rows = x.Generation, head.Fingerprint().Rows
		}
		for _, d := range x.Damaged {
			c.fail(damaged(d))
		}
		s.equal = err == nil && x.Outcome == rehydrate.Restored && x.Rows == s.Rows && x.Found == x.Archived
		if err == nil && !s.equal {
			c.fail(of(&s.Live, fmt.Sprintf("it was restored as %s with %d of %d rows, %s in the table and %s in the archive", x.Outcome, x.Rows, s.Rows, x.Found, x.Archived)))
		}
		if len(x.Damaged) > 0 && onlyLost(err) {
			return nil // they are named
		}
	}
	if err != nil {
		c.fail(of(&s.Live, err.Error()))
	}
	return nil
}

// onlyLost says that all that is wrong are rows that the bucket does not give.
func onlyLost(err error) bool {
	return errors.Is(err, selection.ErrLost) && !errors.Is(err, selection.ErrMismatch) && !errors.Is(err, rehydrate.ErrDiffers)
}

// damaged names rows of an object.
func damaged(d *selection.Damage) report.Place {
	return report.Place{What: fmt.Sprintf("rows [%d, %d) of the object: %s", d.FirstRow, d.FirstRow+d.Rows, d.Reason), Object: d.Key, Slice: d.Slice.String(), Generation: d.Generation}
}
