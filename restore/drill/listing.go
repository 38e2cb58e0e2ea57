package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
)

// manifest is the step: the bucket has what the manifest names, and says the same of it.
func (r *run) manifest(ctx context.Context) error {
	if err := r.owner(ctx); err != nil {
		return err
	}
	if err := r.listing(ctx); err != nil {
		return err
	}
	return r.rebuild(ctx)
}

// owner looks whether the bucket is the manifest's.
func (r *run) owner(ctx context.Context) error {
	want, err := r.Deps.Manifest.Identity(ctx)
	if err != nil {
		return err
	}
	c := r.check(report.StepManifest, "the bucket belongs to this manifest", want)
	found, err := r.Owner(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		c.fail(report.Place{What: err.Error(), Object: manifest.OwnerKey(r.Deps.Manifest.Source())})
	case found != want:
		c.fail(report.Place{What: fmt.Sprintf("the owner mark names manifest %q, this one is %q: it is another bucket, or another manifest", found, want), Object: manifest.OwnerKey(r.Deps.Manifest.Source())})
	}
	r.rep.Bucket.Owner = found
	c.end(found)
	return nil
}

// lists is how many listings of days run at once.
const lists = 8

// listing compares what the bucket lists with what the manifest names, for all slices.
func (r *run) listing(ctx context.Context) error {
	objects := r.check(report.StepManifest, "every object of every live generation is listed with its size", "all that the manifest names")
	records := r.check(report.StepManifest, "every live generation's commit record is listed", "all that the manifest names")
	if len(r.plan.live) == 0 {
		objects.fail(report.Place{What: "the manifest has no slice with a live generation: nothing is archived, or this is another manifest"})
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(lists)
	for day, list := range r.byDay() {
		g.Go(func() error {
			return r.recordsOf(gctx, day, list, records)
		})
		g.Go(func() error { return r.objectsOf(gctx, day, list, objects) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	objects.end("")
	records.end("")
	return nil
}

func (r *run) byDay() map[snowflake.Day][]*manifest.Live {
	by := map[snowflake.Day][]*manifest.Live{}
	for i := range r.plan.live {
		l := &r.plan.live[i]
		by[l.Day] = append(by[l.Day], l)
	}
	return by
}

// recordsOf looks for the commit records of a day.
func (r *run) recordsOf(ctx context.Context, day snowflake.Day, list []*manifest.Live, c *check) error {
	there := map[string]bool{}
	err := r.bucket.List(ctx, "manifest/day="+day.String()+"/", func(key string, _ int64) error {
		there[key] = true
		return nil
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c.fail(report.Place{What: "list the commit records of " + day.String() + ": " + err.Error()})
		return nil
	}
	for _, l := range list {
		c.count("commit records", 1)
		if key := manifest.RecordKey(l.SliceKey, l.Live); !there[key] {
			p := of(l, "its commit record is not in the bucket")
			p.Object = key
			c.fail(p)
		}
	}
	return nil
}

// objectsOf compares a day's objects with their listing: one listing for all its slices, of
// which no more than one slice's is kept.
func (r *run) objectsOf(ctx context.Context, day snowflake.Day, list []*manifest.Live, c *check) error {
	prefixes := map[*manifest.Live]string{}
	for _, l := range list {
		prefixes[l] = manifest.ObjectPrefix(l.SliceKey, l.Live, l.Attempt)
	}
	// None of them begins with another: each ends with a slash, and all have as many.
	left := slices.SortedFunc(slices.Values(list), func(a, b *manifest.Live) int { return cmp.Compare(prefixes[a], prefixes[b]) })
	sizes := map[string]int64{}
	var failed error // of the manifest, not of the listing
	next := func() error {
		failed = r.compareObjects(ctx, left[0], sizes, c)
		left = left[1:]
		clear(sizes)
		return failed
	}
	err := r.bucket.List(ctx, "messages/day="+day.String()+"/", func(key string, size int64) error {
		for len(left) > 0 && prefixes[left[0]] < key {
			if strings.HasPrefix(key, prefixes[left[0]]) {
				sizes[key] = size
				return nil
			}
			if err := next(); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failed != nil:
		return failed
	case err != nil:
		for _, l := range left { // what it had not come to may be there or not
			c.fail(of(l, "list the objects of its day: "+err.Error()))
		}
		return nil
	}
	for len(left) > 0 {
		if err := next(); err != nil {
			return err
		}
	}
	return nil
}

// compareObjects compares a slice's objects with the sizes that the bucket lists.
func (r *run) compareObjects(ctx context.Context, l *manifest.Live, sizes map[string]int64, c *check) error {
	copied, err := r.Deps.Manifest.LoadCopy(ctx, l.ID, l.Live)
	if errors.Is(err, manifest.ErrNotFound) || errors.Is(err, manifest.ErrCorrupt) {
		c.fail(of(l, err.Error()))
		return nil
	}
	if err != nil {
		return err
	}
	var rows, bytes int64
	for i := range copied.Objects {
		o := &copied.Objects[i]
		rows, bytes = rows+o.File.Rows, bytes+o.File.Size
		c.count("objects", 1)
		c.count("bytes", o.File.Size)
		size, there := sizes[o.Key]
		p := of(l, "the object is not in the bucket")
		p.Object = o.Key
		if there && size == o.File.Size {
			continue
		}
		if there {
			p.What = fmt.Sprintf("the object has %d bytes, the manifest says %d", size, o.File.Size)
		}
		c.fail(p)
	}
	if uint64(rows) != l.Rows || bytes != l.Bytes {
		c.fail(of(l, fmt.Sprintf("the manifest's objects have %d rows and %d bytes, its slice %d and %d: the manifest disagrees with itself", rows, bytes, l.Rows, l.Bytes)))
	}
	return nil
}

func (t traffic) requests() int64 { return t.gets + t.lists }

func (r *run) stage(s report.Stage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stages = append(r.stages, s)
}
