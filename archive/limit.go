package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// ErrTimeUp says that a run has come to the end of its time: nothing more is begun, and
// what is under way ends at its next chunk or object.
var ErrTimeUp = errors.New("time is up")

// ErrTooLarge says that a slice was interrupted for time again and again, and that the
// time a run has left is no longer than the longest of these tries.
var ErrTooLarge = errors.New("its copy does not fit the time that runs have")

// Limit is how long a run may last.
type Limit interface {
	// Up matches ErrTimeUp, and says which limit it is, when the time is up.
	Up() error
	// Left is how long it is until then.
	Left() time.Duration
}

// timeUp says why nothing more is to be begun.
func (d *Deps) timeUp() error {
	if d.Limit == nil {
		return nil
	}
	return d.Limit.Up()
}

// mayGoOn says why work that burdens no warm server is to end between two steps: the time is
// up, or somebody has stopped such runs. That it is not known whether somebody has does not
// end it: nothing is read of warm.
func (d *Deps) mayGoOn(ctx context.Context) error {
	if err := d.timeUp(); err != nil || d.Pace == nil {
		return err
	}
	if err := d.Pace.Stopped(ctx); heldBack(err) {
		return err
	}
	return nil
}

// maxInterrupted is how often a slice is begun again by runs whose time was not enough
// for it.
const maxInterrupted = 3

// fits refuses to begin a slice anew that no run has had enough time for, when this run
// has no more of it.
func (d *Deps) fits(s manifest.Slice) error {
	if d.Limit == nil || s.Interrupted < maxInterrupted {
		return nil
	}
	left := d.Limit.Left()
	if left > s.Tried+s.Tried/10 {
		return nil
	}
	return fmt.Errorf("%w: it was interrupted %d times, after up to %s, and this run has %s left: run coldtier archive --day %s --shard %s without --max-duration and --until, give the runs more time, or the worker more processors",
		ErrTooLarge, s.Interrupted, s.Tried.Round(time.Second), left.Round(time.Second), s.Day, s.Shard)
}
