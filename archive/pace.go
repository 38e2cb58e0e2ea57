package archive

import (
	"context"
	"errors"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// What a Pace ends a run by.
var (
	// ErrPaused says that a server was not to be burdened for longer than a run waits.
	ErrPaused = errors.New("paused")
	// ErrStopped says that somebody has stopped all archive runs.
	ErrStopped = errors.New("archive runs are stopped")
)

// Pace decides when a warm server is left alone. What it decides by is its own. Its
// methods may be called from several goroutines.
type Pace interface {
	// Wait returns when the next chunk of a shard may be read; ErrPaused, ErrStopped.
	Wait(ctx context.Context, s manifest.Shard) error
	// Ready is Wait that does not wait: after what time to ask again; 0: a chunk may be read.
	Ready(ctx context.Context, s manifest.Shard) (time.Duration, error)
	// Read is told what a chunk was.
	Read(s manifest.Shard, rows, bytes int)
	// Stopped is ErrStopped when somebody has stopped all archive runs.
	Stopped(ctx context.Context) error
}

// unhindered is a Pace that holds nothing back.
type unhindered struct{}

func (unhindered) Wait(context.Context, manifest.Shard) error { return nil }
func (unhindered) Ready(context.Context, manifest.Shard) (time.Duration, error) {
	return 0, nil
}
func (unhindered) Read(manifest.Shard, int, int) {}
func (unhindered) Stopped(context.Context) error { return nil }

// heldBack says that a pace ended a slice's work: no failure of the slice's.
func heldBack(err error) bool { return errors.Is(err, ErrPaused) || errors.Is(err, ErrStopped) }

// ready says whether a slice may be begun, while its lease is nobody's, and if not, when
// to ask again.
func (a *Archiver) ready(ctx context.Context, w Work) (time.Duration, error) {
	if w.Action == ActionVerify { // which reads nothing of warm
		return 0, a.Pace.Stopped(ctx)
	}
	return a.Pace.Ready(ctx, w.Shard)
}
