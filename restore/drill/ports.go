package drill

import (
	"context"
	"log/slog"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/restore/drill/scratch"
	"github.com/coldtier/coldtier/restore/rehydrate"
)

// Bucket is the bucket, read only. Its errors of what is wrong with an object match those
// of packages restore and selection alike.
type Bucket interface {
	// Get reads a whole object.
	Get(ctx context.Context, key string) ([]byte, error)
	// ReadRange reads exactly n bytes at off.
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)
	// List calls fn for every object whose key begins with the prefix, in the order of keys.
	List(ctx context.Context, prefix string, fn func(key string, size int64) error) error
}

// Rows is ClickHouse, read only.
type Rows interface {
	restore.Rows
	// ReadCopy gives every row of a copy once, in message.Compare order. A batch is valid
	// until fn returns.
	ReadCopy(ctx context.Context, id manifest.CopyID, s *message.Schema, fn func(*message.Batch) error) error
}

// Target is a scratch database that rows are restored into.
type Target struct {
	rehydrate.Target
	Server rehydrate.Server
	Close  func() error
}

// Progress is told how a drill goes. Its methods may be called from several goroutines.
type Progress interface {
	Step(name string)
	Rows(n int)
	SliceDone(rows int)
}

// NoProgress is a Progress that nobody watches.
type NoProgress struct{ rehydrate.NoProgress }

// Step implements Progress.
func (NoProgress) Step(string) {}

// Deps are the parts a drill works with.
type Deps struct {
	Manifest *manifest.Store // live; read only
	Bucket   Bucket
	Rows     Rows
	// Owner is the identity in the bucket's owner mark.
	Owner func(ctx context.Context) (string, error)
	// Open opens a scratch database.
	Open func(ctx context.Context, dsn string) (*Target, error)
	// OpenManifest opens a manifest in a scratch database; it need not have tables.
	OpenManifest func(ctx context.Context, dsn string) (*manifest.Store, error)
	Scratch      *scratch.Server // nil: only Plan
	Progress     Progress        // nil: nobody watches
	Log          *slog.Logger
}

// Config says how a drill is made.
type Config struct {
	Fraction Fraction
	Seed     uint64
	Layout   snowflake.Layout
	Zone     *time.Location
	Fetch    restore.Config // of the pages: as those that are served
	Pages    int            // of the read drill, all rounds together
	Minutes  int            // points in time; 0: DefaultMinutes
	Memory   int64          // bytes of rows that are gathered; 0: rehydrate.DefaultMemory
	Prices   report.Prices

	Now   func() time.Time // for durations
	Sleep func(ctx context.Context, d time.Duration) error
	Step  func(name string) error // nil; crash tests kill the process in it
}

// Defaults of Config.
const (
	DefaultMinutes = 4
	DefaultPages   = 200
)
