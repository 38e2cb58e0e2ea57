package purge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// What a Table answers; whoever wires the parts makes its errors match.
var (
	ErrDrift        = errors.New("warm rows differ from their copy")                // nothing was deleted
	ErrUnclear      = errors.New("outcome is unknown: the answer was lost")         // read before the next step
	ErrLocked       = errors.New("table is locked by others")                       // nothing was changed
	ErrIncompatible = errors.New("the partition can't be exchanged on this server") // nothing was changed
)

// What Execute's error can be told apart by, beside ErrDrift.
var (
	ErrRefused   = errors.New("refused for safety")
	ErrThrottled = errors.New("the server is busy or its replicas lag")
	ErrHours     = errors.New("outside the allowed hours")
	ErrStopped   = errors.New("purges are stopped")
	ErrPartly    = errors.New("purge is done in part")
	ErrLeased    = errors.New("another run holds every slice that is due")
	ErrPlanUsed  = errors.New("the plan was executed already")
)

// Strategy says how rows are deleted.
type Strategy string

// The strategies. Auto takes Partition where a partition holds exactly whole slices
// that may all go, else Rows.
const (
	Auto      Strategy = "auto"
	Partition Strategy = "partition"
	Rows      Strategy = "rows"
)

// The safety numbers and their defaults.
const (
	DefaultLag  = 7 * 24 * time.Hour
	ShortLag    = 24 * time.Hour // a lag below it is warned of
	MaxSkew     = time.Minute    // between the clocks of worker, manifest and warm
	maxFailures = 5              // slices in a row that fail before the run ends
	maxUnclear  = 3              // lost answers for one chunk before the slice is left
)

// Progress is told how a run goes.
type Progress interface {
	Slices(n int)       // so many slices are to be done
	Rows(n int)         // so many more rows were deleted
	SliceDone(rows int) // one more slice is done, or left
}

// Observer is told of the work on slices.
type Observer interface {
	// Job begins the work on slices of one table that go together. What it gives is the
	// context of all that is done for them; done is told, once, what became of them.
	Job(ctx context.Context, slices []manifest.SliceKey) (_ context.Context, done func([]Result))
}

// Pace decides when a server is left alone. What it decides by is its own.
type Pace interface {
	// Wait returns when the next chunk or partition of a shard may be deleted. ErrThrottled:
	// its server is not well, for too long; ErrHours: not at this time of day; ErrStopped.
	Wait(ctx context.Context, s manifest.Shard) error
	// Ready is Wait that does not wait: after what time to ask again; 0: go on.
	Ready(ctx context.Context, s manifest.Shard) (time.Duration, error)
	// Deleted is told how many rows went.
	Deleted(s manifest.Shard, rows uint64)
	// Stopped is ErrStopped when somebody has stopped all purges.
	Stopped(ctx context.Context) error
}

// Config says what may be deleted and how.
type Config struct {
	Owner    string        // names this process in leases
	Lag      time.Duration // from verification to deletion
	Strategy Strategy      // Auto when empty
	Now      func() time.Time
	Sleep    func(ctx context.Context, d time.Duration) error // waits, or ends early with the context's error

	// Pace, when not nil, holds deletes back.
	Pace Pace

	// Progress, when not nil, is told how the run goes.
	Progress Progress

	// Observer, when not nil, is told of each job.
	Observer Observer

	// Steps is called at each named step (StepNames); an error ends the run as
	// a crash would, with nothing cleaned up. Nil except in tests.
	Steps func(step string) error
}

func (c *Config) validate() error {
	if c.Progress == nil {
		c.Progress = nobody{}
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	switch c.Strategy {
	case "":
		c.Strategy = Auto
	case Auto, Partition, Rows:
	default:
		return fmt.Errorf("purge.strategy %q: want auto, partition or rows", c.Strategy)
	}
	switch {
	case c.Owner == "":
		return errors.New("purge: the owner of leases has no name")
	case c.Lag < 0:
		return fmt.Errorf("purge.lag %s: must not be negative", c.Lag)
	case c.Now == nil || c.Sleep == nil:
		return errors.New("purge: clock or sleep is missing")
	}
	if c.Pace == nil {
		c.Pace = unhindered{}
	}
	return nil
}

// The named steps, in order. A process that is killed at any of them leaves what
// the next run finishes.
const (
	StepClaimed          = "purge.claimed"
	StepGranted          = "purge.granted"
	StepChunkMarked      = "purge.chunk.marked-before-deleted"
	StepChunkDeleted     = "purge.chunk.deleted-before-recorded"
	StepChunkRecorded    = "purge.chunk.recorded"
	StepBeforePurged     = "purge.deleted-before-purged"
	StepPurgedMarked     = "purge.marked-before-purged"
	StepStagingRecorded  = "purge.partition.recorded-before-created"
	StepStagingMarked    = "purge.partition.marked-before-created"
	StepStagingCreated   = "purge.partition.created-before-exchanged"
	StepExchanged        = "purge.partition.exchanged-before-compared"
	StepCompared         = "purge.partition.compared-before-dropped"
	StepDropped          = "purge.partition.dropped-before-recorded"
	StepDiffers          = "purge.partition.differs-before-returned"
	StepReturned         = "purge.partition.returned-before-recorded"
	StepReturnedRecorded = "purge.partition.returned-recorded-in-part"
)

// StepNames lists the named steps.
func StepNames() []string {
	return []string{StepClaimed, StepGranted, StepChunkMarked, StepChunkDeleted, StepChunkRecorded, StepBeforePurged, StepPurgedMarked, StepStagingRecorded, StepStagingMarked,
		StepStagingCreated, StepExchanged, StepCompared, StepDropped, StepDiffers, StepReturned, StepReturnedRecorded}
}

// crash is a step's error: the run ends with nothing cleaned up.
type crash struct{ error }

func (c crash) Unwrap() error { return c.error }

func (c *Config) step(name string) error {
	if c.Steps == nil {
		return nil
	}
	if err := c.Steps(name); err != nil {
		return crash{fmt.Errorf("step %s: %w", name, err)}
	}
	return nil
}

// nobody watches the progress.
type nobody struct{}

func (nobody) Slices(int)    {}
func (nobody) Rows(int)      {}
func (nobody) SliceDone(int) {}
func (nobody) Job(ctx context.Context, _ []manifest.SliceKey) (context.Context, func([]Result)) {
	return ctx, func([]Result) {}
}

// unhindered holds nothing back.
type unhindered struct{}

func (unhindered) Wait(context.Context, manifest.Shard) error { return nil }
func (unhindered) Ready(context.Context, manifest.Shard) (time.Duration, error) {
	return 0, nil
}
func (unhindered) Deleted(manifest.Shard, uint64) {}
func (unhindered) Stopped(context.Context) error  { return nil }
