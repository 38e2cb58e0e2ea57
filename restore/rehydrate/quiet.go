package rehydrate

import (
	"context"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// A purge that is at work on a slice that was just held ends soon; with a big table to drop it
// may take so long. It is looked whether it has after each pause.
const (
	purgeTime  = 6 * time.Minute
	purgePause = 200 * time.Millisecond
)

// quiet returns when no purge is at work on a live slice, which is held already, so that none
// begins. Rows that one has in a staging table are neither seen nor in the way of those that
// are written: they could not come back if they were edited since they were archived. So it
// waits until they are, and refuses where the purge has died.
func (r *Restorer) quiet(ctx context.Context, s *Slice) error {
	for waited := time.Duration(0); ; waited += purgePause {
		now, err := r.Manifest.Now(ctx)
		if err != nil {
			return err
		}
		is, err := r.Manifest.Slice(ctx, s.ID)
		switch {
		case err != nil:
			return err
		case is.State != manifest.Purging:
			return nil
		case is.LeaseUntil == nil || !is.LeaseUntil.After(now):
			if is.Staging == "" {
				return nil
			}
			return fmt.Errorf("%w: a purge that has died left rows of the slice in table %s: let coldtier purge put them back", ErrRefused, is.Staging)
		case waited >= purgeTime:
			return fmt.Errorf("%w: a purge (%s) is at work on the slice still: run the same again", ErrRefused, is.LeaseOwner)
		}
		if err := r.cfg.Sleep(ctx, purgePause); err != nil {
			return err
		}
	}
}
