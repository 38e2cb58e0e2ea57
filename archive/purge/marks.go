package purge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coldtier/coldtier/manifest"
)

// Marks is where purge marks are: the bucket.
type Marks interface {
	// PutMark stores a mark, over one that is there.
	PutMark(ctx context.Context, key string, mark []byte) error
	// GetMark reads a mark; nil when it is not there.
	GetMark(ctx context.Context, key string) ([]byte, error)
}

// mark puts a purge mark of a unit.
func (w *work) mark(ctx context.Context, u *unit, kind manifest.MarkKind, staging string, chunks []manifest.ChunkRun) error {
	return w.markOf(ctx, u, u.purge, kind, staging, chunks)
}

func (w *work) markOf(ctx context.Context, u *unit, purge string, kind manifest.MarkKind, staging string, chunks []manifest.ChunkRun) error {
	c := u.grant.Copy()
	now, err := w.store.Now(ctx) // by the clock that says when a copy was made; see manifest.Copy.Doubt
	if err != nil {
		return err
	}
	b, err := manifest.EncodeMark(manifest.PurgeMark{SliceKey: c.SliceKey, Generation: c.Generation, Attempt: c.Attempt, Kind: kind, Purge: purge,
		At: now, By: w.cfg.Owner, Staging: staging, Chunks: chunks})
	if err != nil {
		return err
	}
	key := manifest.MarkKey(c.SliceKey, c.Generation, kind)
	if err := w.marks.PutMark(ctx, key, b); err != nil {
		return fmt.Errorf("purge mark %s, without which nothing is deleted (the bucket's account needs s3:PutObject below manifest/): %w", key, err)
	}
	return nil
}

// open says in the bucket that rows of the units may be gone from now on, so that a
// manifest that is lost or set back is not all that knows it.
func (w *work) open(ctx context.Context) error {
	staging := w.job.Staging
	if staging == "" && w.job.Partition != nil {
		// Named from the first mark on: of two the first might arrive over the second.
		w.planned = stagingName(w.units[0].ID)
		staging = w.planned
	}
	for _, u := range w.units {
		stopped, err := w.look(ctx, u)
		if err == nil {
			u.purge = manifest.NewPurge() // before it is put: it may be there also after an error
			err = w.mark(ctx, u, manifest.MarkPurging, staging, nil)
		}
		if err == nil && stopped {
			err = w.revoke(ctx, u)
		}
		if err == nil {
			err = u.grant.Marked(ctx, manifest.MarkPurging)
		}
		if err != nil {
			err = fmt.Errorf("slice %s: %w", u.SliceKey, err)
			if w.job.Staging == "" {
				return err
			}
			return w.withoutGrant(ctx, err)
		}
	}
	return nil
}

// revoke makes where an earlier purge of the generation stopped count for nothing. That
// purge's own mark may have been put twice, and the one that was stuck on its way may arrive
// over this purge's: both together would say that what this one takes was never touched.
func (w *work) revoke(ctx context.Context, u *unit) error {
	return w.markOf(ctx, u, manifest.NewPurge(), manifest.MarkStopped, "", nil) // of a purge that never was
}

// look reads what the bucket knows of earlier purges of a unit's slice, and says whether it
// knows where one of this generation stopped.
func (w *work) look(ctx context.Context, u *unit) (stopped bool, err error) {
	there, err := w.cold.Sizes(ctx, manifest.RecordPrefix(u.SliceKey))
	if err != nil {
		return false, fmt.Errorf("purge marks: %w", err)
	}
	_, stopped = there[manifest.MarkKey(u.SliceKey, u.Generation, manifest.MarkStopped)]
	if w.job.Staging != "" { // its chunks are in doubt already, and its staging table is known
		return stopped, nil
	}
	get := func(key string) ([]byte, error) {
		if _, ok := there[key]; !ok {
			return nil, nil
		}
		b, err := w.marks.GetMark(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("purge mark %s: %w", key, err)
		}
		return b, nil
	}
	for key := range there {
		if strings.HasSuffix(key, "."+manifest.KeyPurging) {
			if err := w.returnForgotten(ctx, u, key, get); err != nil {
				return false, err
			}
		}
	}
	return stopped, w.remember(ctx, u, get)
}

// remember tells the manifest of chunks of which the marks do not know that they are
// untouched, while the manifest takes them for that: it was set back to a backup, or an
// earlier purge was killed. One that is in warm as it was archived is untouched.
func (w *work) remember(ctx context.Context, u *unit, get func(key string) ([]byte, error)) (err error) {
	c := u.grant.Copy()
	var m manifest.Marks
	for kind, into := range map[manifest.MarkKind]*[]byte{manifest.MarkPurging: &m.Purging, manifest.MarkStopped: &m.Stopped, manifest.MarkPurged: &m.Purged} {
		if *into, err = get(manifest.MarkKey(c.SliceKey, c.Generation, kind)); err != nil {
			return err
		}
	}
	p := m.Progress(c.SliceKey, c.Generation, c.Attempt)
	for i := range u.chunks {
		ch := &u.chunks[i]
		if ch.State != manifest.ChunkPresent || p.State(ch.Seq) == manifest.ChunkPresent {
			continue
		}
		f, err := w.table.Fingerprint(ctx, ch.From, ch.To)
		if err != nil {
			return err
		}
		if f == ch.Warm {
			continue
		}
		if err := u.grant.ChunkState(ctx, ch.Seq, manifest.ChunkDeleting); err != nil {
			return err
		}
		ch.State = manifest.ChunkDeleting
	}
	return nil
}

// returnForgotten puts rows back that a purge left in a staging table of which the
// manifest, set back or rebuilt since, knows nothing. A mark names it.
func (w *work) returnForgotten(ctx context.Context, u *unit, key string, get func(key string) ([]byte, error)) error {
	b, err := get(key)
	if err != nil || b == nil {
		return err
	}
	m, err := manifest.DecodeMark(b)
	if err != nil {
		return fmt.Errorf("%w: %s: %w: restore the object, or make sure that no table %s* of the warm database holds rows of the slice and delete it", ErrRefused, key, err, stagingPrefix)
	}
	if m.SliceKey != u.SliceKey || m.Staging == "" {
		return nil
	}
	exists, err := w.table.StagingExists(ctx, m.Staging)
	if err != nil || !exists {
		return err
	}
	w.log.WarnContext(ctx, "rows that a purge left in a staging table are put back", "slice", u.SliceKey.String(), "generation", m.Generation, "table", m.Staging)
	if err := w.table.ReturnStaging(ctx, m.Staging); err != nil {
		return fmt.Errorf("rows of staging table %s are not back yet, the next run goes on: %w", m.Staging, err)
	}
	return nil
}

// stop says in the bucket what a purge that ends before its end has taken. Under the
// lease, so that nobody begins another meanwhile. Without it the next generation keeps
// more than it must, so that it cannot be put is no error.
func (w *work) stop(ctx context.Context, u *unit) {
	if u.purge == "" {
		return
	}
	c, err := w.store.LoadHead(ctx, u.ID, u.Generation)
	if err == nil {
		err = u.lease.Renew(ctx)
	}
	if err == nil {
		err = w.mark(ctx, u, manifest.MarkStopped, "", manifest.ChunkRuns(c.Chunks))
	}
	if err != nil && !errors.Is(err, manifest.ErrLeaseLost) {
		w.log.WarnContext(ctx, "what the purge of a slice has taken is not in the bucket; if the slice changed, its next copy keeps all rows of the former one", "slice", u.SliceKey.String(), "error", err)
	}
}
