package patrol

import (
	"context"
	"log/slog"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/manifest/mirror"
	"github.com/coldtier/coldtier/restore/canary"
	"github.com/coldtier/coldtier/restore/rebuild"
)

// Listed is what a listing says of an object.
type Listed struct {
	Key      string
	Size     int64
	Modified time.Time
}

// Bucket is the bucket, read only.
type Bucket interface {
	// List calls fn for every object whose key begins with the prefix, in the order of keys.
	List(ctx context.Context, prefix string, fn func(Listed) error) error
	// Folders calls fn for every beginning of keys up to the slash after the prefix.
	Folders(ctx context.Context, prefix string, fn func(folder string) error) error
	// Head is what List would say of one object; archive.ErrNotFound when it is missing.
	Head(ctx context.Context, key string) (Listed, error)
}

// Getter reads whole objects; archive.ErrNotFound and archive.ErrDamaged tell what is wrong.
type Getter interface {
	Get(ctx context.Context, key string) ([]byte, error)
}

// Counter counts ClickHouse's rows.
type Counter interface {
	Days(ctx context.Context) ([]snowflake.Day, error)
	// Counts counts the rows of every copy of the days; one that is there twice may count twice.
	Counts(ctx context.Context, first, last snowflake.Day, fn func(id manifest.CopyID, rows uint64) error) error
	// Messages counts the different messages of a copy.
	Messages(ctx context.Context, id manifest.CopyID, s *message.Schema) (uint64, error)
}

// Progress is told how a patrol goes.
type Progress interface {
	Slices(n int)
	SliceDone(rows int)
}

// Config says what is compared, and what is mended.
type Config struct {
	Filter  manifest.Filter // days and shards; States is not looked at
	Grace   time.Duration   // what is younger is nobody's yet, and not an orphan
	Workers int             // days at once; 0: 4
	Heal    bool
	DryRun  bool // say what Heal would do
	Owner   archive.Owner
	Worker  string // names this process in leases
}

// DefaultGrace is longer than any copy of a slice takes.
const DefaultGrace = 24 * time.Hour

// Deps are what a patrol works with.
type Deps struct {
	Manifest *manifest.Store
	Bucket   Bucket
	Objects  Getter
	Rows     Counter
	// Canaries looks for the canaries; it is not called when none were planted.
	Canaries func(ctx context.Context) ([]canary.Finding, error)
	Healer   *Healer          // nil: nothing is mended
	Clock    func() time.Time // for durations alone
	Log      *slog.Logger
	Progress Progress
}

// Healer is what mending works with, beside the mirror and what a rebuild of rows needs.
type Healer struct {
	Objects archive.Objects // the owner mark
	Mirror  *mirror.Mirror
	Puts    mirror.Objects
	Lister  mirror.Lister
	Rows    rebuild.RowDeps
	// Step is called at each named point between two effects; crash tests kill the process in it.
	Step func(name string) error
}
