package rehydrate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/restore/selection"
)

// Execute does what a plan lists. What it has done when an error ends it stays; the
// report says how far it came, and the same plan made anew goes on from there.
func (r *Restorer) Execute(ctx context.Context, p *Plan) (*Report, error) {
	begun := r.cfg.Now()
	rep := &Report{Tables: p.Tables}
	for i := range rep.Tables {
		m := &rep.Tables[i]
		if !m.Create {
			continue
		}
		notes, err := r.Target.Create(ctx, m.Table, m.Define)
		if errors.Is(err, ErrUnfit) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		if err != nil {
			return nil, err
		}
		m.Notes = notes
		if err := r.step(ctx, "restore.created"); err != nil {
			return nil, err
		}
	}
	made := *p
	made.Tables = nil // all are there now
	sinks, err := r.sinks(ctx, &made)
	if err != nil {
		return nil, err
	}
	x := &execution{r: r, rep: rep, sel: p.sel}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Slices)
	for i := range p.Slices {
		s := &p.Slices[i]
		g.Go(func() error {
			t0 := r.cfg.Now()
			out := SliceReport{SliceKey: s.SliceKey, Generation: s.Live.Live, Table: s.Table, Outcome: Left}
			err := context.Cause(gctx)
			if err == nil {
				err = x.slice(gctx, s, sinks[sinkKey{s.Table, s.Schema.Hash()}], &out)
			}
			out.Seconds = r.cfg.Now().Sub(t0).Seconds()
			r.Progress.SliceDone(int(out.Rows)) //nolint:gosec // a count of rows
			return x.ended(s, out, err)
		})
	}
	rep.err = g.Wait()
	if cause := context.Cause(ctx); cause != nil {
		rep.err = cause
	}
	rep.sum()
	rep.Seconds = r.cfg.Now().Sub(begun).Seconds()
	return rep, rep.Err()
}

// execution is one Execute.
type execution struct {
	r   *Restorer
	sel selection.Selection

	mu  sync.Mutex
	rep *Report
}

// ended enters a slice's end into the report, and gives the error if it ends the restore:
// whatever is not of this slice's rows alone.
func (x *execution) ended(s *Slice, out SliceReport, err error) error {
	goesOn := err == nil || errors.Is(err, selection.ErrLost) || errors.Is(err, selection.ErrMismatch) || errors.Is(err, ErrDiffers)
	switch {
	case err == nil:
	case out.Outcome == Left && !goesOn && out.Inserted+out.Present == 0 && errors.Is(err, context.Canceled):
	default:
		out.Outcome = Failed
		if !errors.Is(err, selection.ErrLost) && !errors.Is(err, selection.ErrMismatch) {
			err = fmt.Errorf("slice %s: %w", s.SliceKey, err)
		}
	}
	if out.Err = err; err != nil {
		out.Error = err.Error()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rep.Slices = append(x.rep.Slices, out)
	if goesOn {
		return nil
	}
	return err
}

// name enters rows that were left out.
func (x *execution) name(s *Slice, w Written) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range w.Conflicts {
		if len(x.rep.Conflicts) < maxNamed {
			x.rep.Conflicts = append(x.rep.Conflicts, Named{SliceKey: s.SliceKey, Table: s.Table, Conflict: c})
		}
	}
	for _, c := range w.Refused {
		if len(x.rep.Refused) < maxNamed {
			x.rep.Refused = append(x.rep.Refused, Named{SliceKey: s.SliceKey, Table: s.Table, Conflict: Conflict{MessageID: c.MessageID}, Reason: c.Reason})
		}
	}
}
