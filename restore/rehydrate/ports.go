package rehydrate

import (
	"context"
	"errors"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// What a target's errors are told apart by; whoever wires the parts makes them match.
var (
	// ErrAgain says that a step was cut off, and that the same step may be tried again.
	ErrAgain = errors.New("interrupted")
	// ErrNoTable says that the target has no such table.
	ErrNoTable = errors.New("no such table")
	// ErrUnfit says that a table cannot hold the rows as they were archived.
	ErrUnfit = errors.New("the table does not fit")
)

// What a restore may end with.
var (
	// ErrRefused says that nothing was written, and why.
	ErrRefused = errors.New("restore refused")
	// ErrNothing says that the selection has no archived rows.
	ErrNothing = errors.New("nothing to restore")
	// ErrPartly says that rows were left out, each of which is named.
	ErrPartly = errors.New("restored in part")
	// ErrDiffers says that the target does not have, after they were written, the rows
	// that were archived.
	ErrDiffers = errors.New("the target's rows differ from the archived ones")
	// ErrThrottled says that the target's server was too busy, or its replicas too far
	// behind, for too long.
	ErrThrottled = errors.New("held back for too long")
)

// Target is the database that rows are written into.
type Target interface {
	// Table looks at a table: ErrNoTable, ErrUnfit.
	Table(ctx context.Context, name string) (Table, error)
	// Create makes a table of another's SHOW CREATE TABLE, and says what is not as it was.
	Create(ctx context.Context, name, showCreate string) (notes []string, err error)
}

// Table is a table of the target.
type Table interface {
	Name() string
	// Sink takes rows of a schema; ErrUnfit with the name of each column that stands in
	// the way.
	Sink(s *message.Schema) (Sink, error)
}

// Sink is a table as rows of one archived schema see it.
type Sink interface {
	// Missing are the columns that the table lacks: no row with a value in one may be written.
	Missing() []string
	Looker
	Writer
}

// Looker says what is in a table.
type Looker interface {
	// Any says whether there is a row of the message IDs [from, to).
	Any(ctx context.Context, from, to uint64) (bool, error)
	// Settle is Any when deletes that others have not committed yet have come to their end.
	Settle(ctx context.Context, from, to uint64) (bool, error)
	// Fingerprint is that of the rows [from, to); of some conversations, or with nil of all.
	Fingerprint(ctx context.Context, from, to uint64, conversations [][]byte) (message.Fingerprint, error)
}

// Writer puts rows into a table.
type Writer interface {
	// Write puts those that are not there, and changes none. It may be repeated. fresh:
	// most likely none is there.
	Write(ctx context.Context, b *message.Batch, fresh bool) (Written, error)
	// Compare says what Write would meet, and which are not there.
	Compare(ctx context.Context, b *message.Batch) (w Written, absent []uint64, err error)
}

// Written is what became of rows.
type Written struct {
	Inserted  uint64
	Present   uint64 // were there, equal
	Conflicts []Conflict
	Refused   []Refused
}

// Conflict is a row that the table has with other values, or whose place in a unique key
// another row has.
type Conflict struct {
	MessageID uint64              `json:"message_id,string"`
	Columns   []string            `json:"columns,omitempty"` // that differ
	Key       string              `json:"key,omitempty"`     // in which another row has its place
	Archived  message.Fingerprint `json:"-"`
	Found     message.Fingerprint `json:"-"` // of the row of that message ID; none with Key
}

// Refused is a row that the table cannot hold as it was archived.
type Refused struct {
	MessageID uint64              `json:"message_id,string"`
	Reason    string              `json:"reason"` // without values
	Archived  message.Fingerprint `json:"-"`
}

// Server is the state of the target's server.
type Server interface {
	Lag(ctx context.Context) (time.Duration, error) // of the worst replica
	ThreadsRunning(ctx context.Context) (int, error)
}

// Keeper marks slices that are restored into live tables.
type Keeper interface {
	// Keep lets no purge take a slice's rows for a time from now.
	Keep(ctx context.Context, key manifest.SliceKey) error
}

// Progress is told how a restore goes. Its methods may be called from several goroutines.
type Progress interface {
	Rows(n int)         // so many more rows are in the target, or are left out
	SliceDone(rows int) // one more slice is done
}

// NoProgress is a Progress that nobody watches.
type NoProgress struct{}

// Rows implements Progress.
func (NoProgress) Rows(int) {}

// SliceDone implements Progress.
func (NoProgress) SliceDone(int) {}
