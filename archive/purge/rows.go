package purge

import (
	"context"
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/manifest"
)

// rows purges a slice chunk by chunk.
func (w *work) rows(ctx context.Context, u *unit) error {
	for _, c := range u.chunks {
		if err := w.chunk(ctx, u, c); err != nil {
			return fmt.Errorf("chunk %d: %w", c.Seq, err)
		}
	}
	if err := w.cfg.step(StepBeforePurged); err != nil {
		return err
	}
	return w.purged(ctx, u)
}

func (w *work) purged(ctx context.Context, u *unit) error {
	// Before the manifest says so: a slice that is purged has its mark.
	if err := w.mark(ctx, u, manifest.MarkPurged, "", nil); err != nil {
		return err
	}
	if err := u.grant.Marked(ctx, manifest.MarkPurged); err != nil {
		return err
	}
	if err := w.cfg.step(StepPurgedMarked); err != nil {
		return err
	}
	if err := u.grant.Purged(ctx); err != nil {
		return err
	}
	u.settled = true
	return nil
}

// chunk deletes one chunk. The manifest is told before and after, so that a crash
// between leaves "deleting": the delete may or may not have been committed.
func (w *work) chunk(ctx context.Context, u *unit, c manifest.Chunk) error {
	if c.State == manifest.ChunkDeleted {
		return nil // rows that are there now came after: late rows
	}
	if c.Warm.Rows == 0 {
		return w.nothing(ctx, u, c)
	}
	unknown := c.State == manifest.ChunkDeleting
	for try := 0; ; try++ {
		if unknown {
			gone, err := w.deletedAlready(ctx, c)
			if err != nil {
				return err
			}
			if gone {
				return w.recorded(ctx, u, c, try > 0)
			}
		}
		if try == maxUnclear {
			return fmt.Errorf("%w: deleted %d times", ErrUnclear, try)
		}
		if err := w.cfg.Pace.Wait(ctx, w.table.Shard()); err != nil {
			return err
		}
		if err := u.grant.Check(ctx); err != nil {
			return err
		}
		if c.State == manifest.ChunkPresent {
			if err := u.grant.ChunkState(ctx, c.Seq, manifest.ChunkDeleting); err != nil {
				return err
			}
		}
		if err := w.cfg.step(StepChunkMarked); err != nil {
			return err
		}
		err := w.table.DeleteChunk(ctx, u.grant, c)
		switch {
		case err == nil:
			if err := w.cfg.step(StepChunkDeleted); err != nil {
				return err
			}
			return w.recorded(ctx, u, c, true)
		case errors.Is(err, ErrUnclear):
			unknown, c.State = true, manifest.ChunkDeleting // read before the next step
		case errors.Is(err, ErrDrift) && unknown:
			// The transaction of the lost answer may have been committed between
			// the look and the lock.
		case (errors.Is(err, ErrDrift) || errors.Is(err, ErrLocked)) && !unknown:
			// Nothing was deleted, so that the next generation takes all of the chunk from warm.
			return errors.Join(err, u.grant.ChunkState(ctx, c.Seq, manifest.ChunkPresent))
		default:
			return err
		}
	}
}

// nothing checks that warm still has no row where the copy found none.
func (w *work) nothing(ctx context.Context, u *unit, c manifest.Chunk) error {
	if err := u.grant.ChunkState(ctx, c.Seq, manifest.ChunkDeleting); err != nil {
		return err
	}
	f, err := w.table.Fingerprint(ctx, c.From, c.To)
	if err != nil {
		return err
	}
	if f.Rows > 0 {
		err := fmt.Errorf("%w: %d rows came since, with IDs in [%d, %d)", ErrDrift, f.Rows, c.From, c.To)
		if c.State == manifest.ChunkPresent {
			return errors.Join(err, u.grant.ChunkState(ctx, c.Seq, manifest.ChunkPresent))
		}
		return err
	}
	return u.grant.ChunkState(ctx, c.Seq, manifest.ChunkDeleted)
}

// deletedAlready looks what a delete of unknown outcome left: nothing, or all.
func (w *work) deletedAlready(ctx context.Context, c manifest.Chunk) (bool, error) {
	f, err := w.table.Fingerprint(ctx, c.From, c.To)
	switch {
	case err != nil:
		return false, err
	case f.Rows == 0:
		return true, nil
	case f == c.Warm:
		return false, nil
	}
	return false, fmt.Errorf("%w: after a delete of unknown outcome IDs [%d, %d) have fingerprint %s, the copy has %s", ErrDrift, c.From, c.To, f, c.Warm)
}

func (w *work) recorded(ctx context.Context, u *unit, c manifest.Chunk, now bool) error {
	if now {
		u.rows += c.Warm.Rows
		w.cfg.Pace.Deleted(w.table.Shard(), c.Warm.Rows)
		w.cfg.Progress.Rows(int(c.Warm.Rows)) //nolint:gosec // a chunk's
	}
	if err := u.grant.ChunkState(ctx, c.Seq, manifest.ChunkDeleted); err != nil {
		return err
	}
	return w.cfg.step(StepChunkRecorded)
}
