package drill

import (
	"context"
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/restore/rebuild"
)

// rebuild makes the manifest anew of the bucket alone, and compares it with the live one.
func (r *run) rebuild(ctx context.Context) (err error) {
	database, err := r.Scratch.Make(ctx, "m")
	if err != nil {
		return err
	}
	store, err := r.OpenManifest(ctx, r.Scratch.DSN(database))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	// A rebuild refuses a database that has other tables than a manifest's; this one has the marker.
	if _, err := store.Migrate(ctx, false); err != nil {
		return err
	}
	before, err := r.stands(ctx)
	if err != nil {
		return err
	}
	if err := r.makeAnew(ctx, store); err != nil {
		return err
	}
	if err := r.step(ctx, "drill.rebuilt"); err != nil {
		return err
	}
	if err := r.difference(ctx, store, before); err != nil {
		return err
	}
	return r.Scratch.Drop(ctx, database)
}

// makeAnew rebuilds the manifest.
func (r *run) makeAnew(ctx context.Context, store *manifest.Store) error {
	began, before := r.cfg.Now(), r.bucket.now()
	c := r.check(report.StepManifest, "the manifest is rebuilt from the bucket alone", "all that the bucket has of it can be read")
	// Beside: it gets an identity of its own, so that nothing could work with it.
	rep, err := rebuild.Manifest(ctx, rebuild.Config{Beside: true}, rebuild.Deps{Target: store, Objects: r.bucket, Clock: r.cfg.Now, Log: r.Log, Step: r.cfg.Step})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if rep != nil {
		for _, p := range rep.Problems {
			c.fail(report.Place{What: p.Error, Object: p.Key})
		}
		for _, k := range rep.Kept {
			c.fail(report.Place{What: k.Reason, Slice: k.Slice.String()})
		}
		for _, w := range rep.Warnings {
			r.note(report.Warning, report.StepManifest, w)
		}
		c.count("slices", int64(rep.Slices))
		c.count("generations", int64(rep.Generations))
		c.count("objects", int64(rep.Objects))
		c.count("segments", int64(rep.Segments))
	}
	if err != nil && !c.failed() {
		c.fail(report.Place{What: err.Error()})
	}
	c.end("")
	used := r.bucket.now().since(before)
	r.stage(report.NewStage(stageManifest, r.cfg.Now().Sub(began), 0, used.bytes, used.requests()))
	return nil
}

// stand is where a slice stands, as far as the bucket tells it.
type stand struct {
	state            manifest.State
	live, generation uint32
}

// stands says where all slices stand.
func (r *run) stands(ctx context.Context) (map[manifest.SliceKey]stand, error) {
	list, err := r.Deps.Manifest.Slices(ctx, manifest.Filter{})
	if err != nil {
		return nil, err
	}
	all := make(map[manifest.SliceKey]stand, len(list))
	for _, s := range list {
		all[s.SliceKey] = stand{s.State, s.Live, s.Generation}
	}
	return all, nil
}

// difference compares the two manifests. The live one goes on meanwhile: what differs of a
// slice that is not where it was before the rebuild is no fault.
func (r *run) difference(ctx context.Context, store *manifest.Store, before map[manifest.SliceKey]stand) error {
	c := r.check(report.StepManifest, "the rebuilt manifest equals the live one", "no difference but of what is being worked on")
	list, err := manifest.Compare(ctx, r.Deps.Manifest, store)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c.fail(report.Place{What: err.Error()})
	}
	now, err := r.stands(ctx)
	if err != nil {
		return err
	}
	moving := 0
	for _, d := range list {
		p := report.Place{What: d.What, Generation: d.Generation}
		moved := d.InFlight
		if d.Slice != nil {
			p.Slice = d.Slice.String()
			was, seen := before[*d.Slice]
			moved = moved || !seen || was != now[*d.Slice]
		}
		if moved {
			moving++
			continue
		}
		c.fail(p)
	}
	c.count("slices", int64(len(now)))
	if moving > 0 {
		c.count("differences of what was being worked on", int64(moving))
		r.note(report.Info, report.StepManifest, fmt.Sprintf("%d differences between the manifests are of what was being worked on meanwhile; the next drill compares it", moving))
	}
	c.end("")
	return nil
}
