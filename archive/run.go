package archive

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// Run does what the plan lists, beside any number of other runs that do the same. A slice
// that fails does not stop the others; the report names it. An error of Run itself means
// that nothing was begun.
func (a *Archiver) Run(ctx context.Context, p *Plan, progress Progress) (*Report, error) {
	begun := a.Clock()
	report := &Report{}
	if len(p.Work) == 0 {
		return report, nil
	}
	if err := a.prepare(ctx, p); err != nil {
		return nil, err
	}
	servers, err := a.servers(ctx, p)
	if err != nil {
		return nil, err
	}
	progress.Slices(len(p.Work))
	var mu sync.Mutex
	add := func(o Outcome) {
		progress.SliceDone(int(o.Rows)) //nolint:gosec // a count of rows
		mu.Lock()
		defer mu.Unlock()
		report.add(o)
	}
	left := func(w *Work, err error) { add(Outcome{Slice: w.SliceKey, Action: w.Action, Err: err}) }
	q := newQueue(a, p.Work, servers)
	var g errgroup.Group
	for range min(a.cfg.Workers, len(p.Work)) {
		g.Go(func() error {
			for {
				w, s, ok := q.next(ctx, left)
				if !ok {
					return nil
				}
				if o, ok := a.one(ctx, q, w, s, progress); ok {
					add(o)
				}
			}
		})
	}
	_ = g.Wait() // its functions return no errors: each slice's is in the report
	if why := cmpErr(context.Cause(ctx), a.timeUp()); why != nil {
		for _, w := range q.rest() {
			left(w, why)
		}
	}
	report.sort()
	report.Seconds = a.Clock().Sub(begun).Seconds()
	return report, nil
}

// cmpErr is the first that is an error.
func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// prepare makes slices that are new, and ClickHouse's table hold all columns.
func (a *Archiver) prepare(ctx context.Context, p *Plan) error {
	var fresh []manifest.Slice
	var schemas []*message.Schema
	seen, tables := map[string]bool{}, map[manifest.Shard]bool{}
	for _, w := range p.Work {
		if w.New {
			fresh = append(fresh, w.Slice)
		}
		if tables[w.Shard] {
			continue
		}
		tables[w.Shard] = true
		if s := w.table.Schema(); !seen[s.Hash()] {
			seen[s.Hash()], schemas = true, append(schemas, s)
		}
	}
	if err := a.Rows.Fit(ctx, schemas); err != nil {
		return err
	}
	_, err := a.Manifest.Ensure(ctx, fresh)
	return err
}

// servers says on which server each of a plan's databases is.
func (a *Archiver) servers(ctx context.Context, p *Plan) (map[string]string, error) {
	all := map[string]string{}
	for _, w := range p.Work {
		if _, ok := all[w.Shard.Database]; ok {
			continue
		}
		name, err := w.table.Server(ctx)
		if err != nil {
			return nil, err
		}
		all[w.Shard.Database] = name
	}
	return all, nil
}

// one does a slice. False: another run was at it, and it is looked at again.
func (a *Archiver) one(ctx context.Context, q *queue, w *Work, s *slot, progress Progress) (o Outcome, ok bool) {
	t0 := a.Clock()
	o = Outcome{Slice: w.SliceKey, Action: w.Action}
	if o.Err = a.fits(w.Slice); o.Err == nil {
		sctx, done := a.observer().Slice(ctx, w.SliceKey)
		o.Err = a.do(sctx, *w, s, &o, progress)
		done(o.Err)
	}
	s.release(ctx)
	o.Seconds = a.Clock().Sub(t0).Seconds()
	return o, !q.put(w, o.Err)
}
