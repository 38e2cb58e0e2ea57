package purge

import (
	"context"
	"fmt"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// Cold is the cold tier as the purge looks at it before it deletes.
type Cold interface {
	// Sizes gives the sizes of all objects whose keys begin with a prefix, by key.
	Sizes(ctx context.Context, prefix string) (map[string]int64, error)
	// Messages counts the different messages of a copy in ClickHouse.
	Messages(ctx context.Context, id manifest.CopyID, s *message.Schema) (uint64, error)
}

// present refuses when copies are no longer all where they were verified: since then a
// bucket may have been emptied, expired or exchanged for another, ClickHouse replaced,
// the manifest set back. It counts and does not read; reading is what verify does.
func (w *work) present(ctx context.Context) error {
	if w.job.Staging != "" {
		exists, err := w.table.StagingExists(ctx, w.job.Staging)
		if err != nil || !exists { // what is not isolated any more is gone or back: either way it is to be recorded
			return err
		}
	}
	for _, u := range w.units {
		if err := w.presentOne(ctx, u); err != nil {
			err = fmt.Errorf("copy of slice %s: %w", u.SliceKey, err)
			if w.job.Staging == "" {
				return err
			}
			return w.withoutGrant(ctx, err)
		}
	}
	return nil
}

func (w *work) presentOne(ctx context.Context, u *unit) error {
	c, err := w.store.LoadCopy(ctx, u.ID, u.Generation)
	if err != nil {
		return err
	}
	if len(c.Objects) == 0 {
		return nil
	}
	sizes, err := w.cold.Sizes(ctx, manifest.ObjectPrefix(c.SliceKey, c.Generation, c.Attempt))
	if err != nil {
		return err
	}
	const remedy = "see that bucket and ClickHouse are the right ones, then run coldtier verify"
	for i := range c.Objects {
		o := &c.Objects[i]
		if size, ok := sizes[o.Key]; !ok {
			return fmt.Errorf("%w: object %s is not in the bucket: %s", ErrRefused, o.Key, remedy)
		} else if size != o.File.Size {
			return fmt.Errorf("%w: object %s has %d bytes, verified were %d: %s", ErrRefused, o.Key, size, o.File.Size, remedy)
		}
	}
	n, err := w.cold.Messages(ctx, c.ID(), c.Schema)
	if err != nil {
		return err
	}
	if want := c.Fingerprint().Rows; n != want {
		return fmt.Errorf("%w: ClickHouse has %d of its %d messages: %s", ErrRefused, n, want, remedy)
	}
	return nil
}
