package rehydrate

import (
	"context"
	"errors"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/selection"
)

// Config says how rows are restored.
type Config struct {
	// Names maps a shard to the name of the table in the target.
	Names Names
	// Create makes the tables that the target lacks, of the newest selected generation's
	// definition.
	Create bool
	// Live says which tables of the target are live warm tables; nil: none is.
	Live *Live

	RowsPerSecond     int           // 0: no limit
	MaxReplicaLag     time.Duration // 0: replicas are not asked
	MaxThreadsRunning int           // 0: not asked
	MaxWait           time.Duration // for a server that is too busy; 0: DefaultMaxWait

	Memory  int64 // bytes of rows that are gathered; 0: DefaultMemory
	Writers int   // statements at once; 0: DefaultWriters
	Slices  int   // slices at once; 0: DefaultSlices

	Now   func() time.Time // for durations and the throttle
	Sleep func(ctx context.Context, d time.Duration) error
	Step  func(name string) error // nil; crash tests kill the process in it
}

// Defaults of Config.
const (
	DefaultMaxWait = 10 * time.Minute
	DefaultMemory  = 128 << 20
	DefaultWriters = 3
	DefaultSlices  = 2
)

// Live is the live warm tables of a target.
type Live struct {
	Database string                  // as shards name it
	Is       func(table string) bool // whether a table is one of them
	Keeper   Keeper                  // nil: live tables must not be written
}

// Deps are the parts a Restorer works with.
type Deps struct {
	Reader   *selection.Reader
	Manifest *manifest.Store
	Target   Target
	Server   Server
	Progress Progress // nil: nobody watches
}

// Restorer restores rows. It is for one Plan and one Execute at a time.
type Restorer struct {
	Deps
	cfg      Config
	throttle *throttle
}

// New makes a restorer.
func New(d Deps, c Config) (*Restorer, error) {
	if c.Now == nil || c.Sleep == nil {
		return nil, errors.New("restore: no clock is given")
	}
	if c.RowsPerSecond < 0 || c.MaxThreadsRunning < 0 || c.MaxReplicaLag < 0 {
		return nil, errors.New("restore: a limit is below zero")
	}
	if c.MaxWait == 0 {
		c.MaxWait = DefaultMaxWait
	}
	if c.Memory <= 0 {
		c.Memory = DefaultMemory
	}
	if c.Writers <= 0 {
		c.Writers = DefaultWriters
	}
	if c.Slices <= 0 {
		c.Slices = DefaultSlices
	}
	if d.Progress == nil {
		d.Progress = NoProgress{}
	}
	return &Restorer{Deps: d, cfg: c, throttle: newThrottle(&c, d.Server)}, nil
}

// step is between two effects.
func (r *Restorer) step(ctx context.Context, name string) error {
	if r.cfg.Step != nil {
		if err := r.cfg.Step(name); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}
