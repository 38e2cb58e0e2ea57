package purge

import (
	"context"
	"errors"
	"fmt"
	"time"
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
	DefaultLag     = 7 * 24 * time.Hour
	ShortLag       = 24 * time.Hour  // a lag below it is warned of
	MaxSkew        = time.Minute     // between the clocks of worker, manifest and warm
	DefaultMaxWait = 5 * time.Minute // for a busy server, before a slice is left
	maxFailures    = 5               // slices in a row that fail before the run ends
	maxUnclear     = 3               // lost answers for one chunk before the slice is left
)

// Progress is told how a run goes.
type Progress interface {
	Slices(n int)       // so many slices are to be done
	Rows(n int)         // so many more rows were deleted
	SliceDone(rows int) // one more slice is done, or left
}

// Config says what may be deleted and how fast.
type Config struct {
	Owner             string         // names this process in leases
	Lag               time.Duration  // from verification to deletion
	Strategy          Strategy       // Auto when empty
	RowsPerSecond     int            // 0: no limit
	MaxReplicaLag     time.Duration  // 0: not looked at
	MaxThreadsRunning int            // 0: not looked at
	MaxWait           time.Duration  // DefaultMaxWait when 0
	Hours             string         // "22:00-06:00" in Zone; empty: always
	Zone              *time.Location // of Hours
	Now               func() time.Time
	Sleep             func(ctx context.Context, d time.Duration) error // waits, or ends early with the context's error

	// Progress, when not nil, is told how the run goes.
	Progress Progress

	// Steps is called at each named step (StepNames); an error ends the run as
	// a crash would, with nothing cleaned up. Nil except in tests.
	Steps func(step string) error
}

func (c *Config) validate() error {
	if c.Progress == nil {
		c.Progress = nobody{}
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
	case c.RowsPerSecond < 0:
		return fmt.Errorf("purge.rows_per_second %d: must not be negative", c.RowsPerSecond)
	case c.MaxReplicaLag < 0:
		return fmt.Errorf("purge.max_replica_lag %s: must not be negative", c.MaxReplicaLag)
	case c.MaxThreadsRunning < 0:
		return fmt.Errorf("purge.max_threads_running %d: must not be negative", c.MaxThreadsRunning)
	case c.MaxWait < 0:
		return fmt.Errorf("purge: wait of %s: must not be negative", c.MaxWait)
	case c.Zone == nil || c.Now == nil || c.Sleep == nil:
		return errors.New("purge: zone, clock or sleep is missing")
	}
	if c.MaxWait == 0 {
		c.MaxWait = DefaultMaxWait
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
	StepStagingRecorded  = "purge.partition.recorded-before-created"
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
	return []string{StepClaimed, StepGranted, StepChunkMarked, StepChunkDeleted, StepChunkRecorded, StepBeforePurged, StepStagingRecorded,
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
