package archive

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Errors that the adapters' errors are told apart by; whoever wires the parts
// makes them match with errors.Is.
var (
	// ErrExists says that an object is there already with other contents.
	ErrExists = errors.New("object exists with other contents")
	// ErrNotFound says that an object is not in the bucket.
	ErrNotFound = errors.New("object not found")
	// ErrDamaged says that the bucket itself found an object's bytes to be others than were put.
	ErrDamaged = errors.New("object damaged")
	// ErrMismatch says that a copy is not equal to what it was made from.
	ErrMismatch = errors.New("copy differs from its source")
	// ErrRows says that it is the copy in ClickHouse.
	ErrRows = errors.New("ClickHouse")
	// ErrElsewhere says that another run did a slice's work meanwhile.
	ErrElsewhere = errors.New("another run was at it meanwhile")
	// ErrNoTable says that no warm table matches a selection.
	ErrNoTable = errors.New("no warm table matches")
	// ErrTooYoung says that a day was asked for that is not old enough to be archived.
	ErrTooYoung = errors.New("day is too young to be archived")
	// ErrUnsafe says that a table's IDs cannot be trusted to tell the day (wrong epoch, IDs of zero or below).
	ErrUnsafe = errors.New("message IDs do not tell the day")
)

// Table is a warm table as the archiver reads it.
type Table interface {
	Described
	Scanner
	Located
}

// Located is what is on a server, beside others.
type Located interface {
	// Server names the server that the table is on; the tables of one server have the same.
	Server(ctx context.Context) (string, error)
}

// Described is what is known of a table.
type Described interface {
	Shard() manifest.Shard
	Schema() *message.Schema
	ShowCreate() string
}

// Scanner reads a table's rows.
type Scanner interface {
	// Reload reads the table's definition again.
	Reload(ctx context.Context) error
	// NextID is the lowest message ID at or above from.
	NextID(ctx context.Context, from uint64) (id uint64, ok bool, err error)
	// Scan gives the rows of [from, to) in chunks that cover the range without a
	// gap, in order. A chunk's batch is valid until fn returns.
	Scan(ctx context.Context, from, to uint64, fn func(message.Chunk) error) error
	// Settle returns when no transaction of others that deletes or changes rows of
	// [from, to) is open, or fails.
	Settle(ctx context.Context, from, to uint64) error
	// EpochFits fails with an error that names the remedy when the table's IDs and
	// its own timestamps disagree, or when IDs are zero or below.
	EpochFits(ctx context.Context) error
}

// Objects is the bucket as the archiver and the verifier use it.
type Objects interface {
	// Put stores an object of a known SHA-256. With ifAbsent it is ErrExists when
	// another object is there already.
	Put(ctx context.Context, key string, body io.ReadSeeker, size int64, sum [32]byte, ifAbsent bool) error
	// Get reads a whole object; ErrNotFound when it is missing, ErrDamaged.
	Get(ctx context.Context, key string) ([]byte, error)
	// ReadRange reads exactly n bytes at off, with the same errors.
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)
}

// Rows is ClickHouse as the archiver and the verifier use it.
type Rows interface {
	// Fit makes the table hold the columns of all schemas.
	Fit(ctx context.Context, schemas []*message.Schema) error
	// Insert begins to insert the rows of a copy.
	Insert(ctx context.Context, id manifest.CopyID, s *message.Schema) (RowWriter, error)
	// ReadCopy gives every row of a copy once, in message.Compare order.
	ReadCopy(ctx context.Context, id manifest.CopyID, s *message.Schema, fn func(*message.Batch) error) error
}

// RowWriter takes the rows of a copy in message.Compare order.
type RowWriter interface {
	Write(ctx context.Context, b *message.Batch, from, to int) error
	Close(ctx context.Context) error
	Abort()
}

// Progress is told how a run goes. Its methods may be called from several
// goroutines.
type Progress interface {
	Slices(n int)       // so many slices are to be done
	Rows(n int)         // so many more rows were read from warm
	SliceDone(rows int) // one more slice is done
}

// NoProgress is a Progress that nobody watches.
type NoProgress struct{}

// Slices implements Progress.
func (NoProgress) Slices(int) {}

// Rows implements Progress.
func (NoProgress) Rows(int) {}

// SliceDone implements Progress.
func (NoProgress) SliceDone(int) {}

// Selection narrows a run to days and shards; the zero value selects all.
type Selection struct {
	From, To *snowflake.Day // inclusive
	Shard    string         // glob over "database.table"
	// Filled looks of every day of a table whether it has rows, for who wants to know what
	// a plan comes to: a query for each.
	Filled bool
}

// When to verify a new copy.
const (
	VerifyFull  = "full"  // at once: read back every object and every ClickHouse row
	VerifyLater = "later" // leave it committed; `coldtier verify` does it. Nothing is purged before
)

// Config is the archiver's part of the configuration.
type Config struct {
	After   time.Duration // rows of days that ended longer ago than this are archived
	Memory  int64         // bytes that all slices in work may hold together
	Workers int           // slices at once; 0: as many as processors, at least 2
	Uploads int           // objects put or read back at once; 0: 16 for each worker
	// PerServer is how many slices of one server may be scanned at once, by all runs
	// together; 0: no limit. Each slice is scanned by scanRanges connections.
	PerServer int
	Verify    string // VerifyFull or VerifyLater
	TempDir   string // for rows beyond Memory; "" is the system's
}

// Defaults of Config.
const (
	DefaultAfter  = 180 * 24 * time.Hour
	DefaultMemory = 512 << 20
	MinMemory     = 32 << 20
)

func (c Config) withDefaults() Config {
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	if c.Workers == 0 {
		c.Workers = max(2, runtime.GOMAXPROCS(0))
	}
	if c.Uploads == 0 {
		c.Uploads = 16 * c.Workers
	}
	if c.Verify == "" {
		c.Verify = VerifyFull
	}
	return c
}

// perSlice is the memory of one slice in work.
func (c Config) perSlice() int64 { return c.Memory / int64(c.Workers) }

// Deps are the parts an Archiver or a Verifier works with.
type Deps struct {
	Manifest *manifest.Store
	Tables   []Table // the archiver's alone
	Objects  Objects
	Rows     Rows
	Layout   snowflake.Layout
	Zone     *time.Location
	Source   string
	Owner    string           // names this process in leases: host and pid
	Clock    func() time.Time // for durations alone; what is old enough is judged by the manifest database's clock
	Log      *slog.Logger
	Observer Observer // nil: nobody
	Pace     Pace     // the archiver's alone; nil: nothing is held back
	Limit    Limit    // nil: the run may last for ever
	// Step, when not nil, is called at each named point between two effects; an
	// error from it is handled as a failure there. Crash tests kill the process in it.
	Step func(name string) error
}

// observer is never nil.
func (d *Deps) observer() Observer {
	if d.Observer == nil {
		return unobserved{}
	}
	return d.Observer
}

func (d *Deps) step(ctx context.Context, name string) error {
	if d.Step == nil {
		return nil
	}
	if err := d.Step(name); err != nil {
		return err
	}
	return context.Cause(ctx) // the process may have been paused in the step
}
