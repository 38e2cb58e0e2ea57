package purge

import (
	"context"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// Range is a partition of a warm table: the message IDs [Lo, Hi).
type Range struct {
	Name string `json:"name"`
	Lo   uint64 `json:"lo,string"`
	Hi   uint64 `json:"hi,string"`
}

// Table is a warm table, in small parts.
type Table interface {
	Shard() manifest.Shard
	Definition
	Server
	Edges
	Deleter
	Partitions
	Staging
	Isolated
}

// Definition is a table's columns and whether its IDs mean what they are taken for.
type Definition interface {
	Reload(ctx context.Context) error // reads the columns anew
	Schema() *message.Schema
	EpochFits(ctx context.Context) error // ErrRefused: the IDs' time and the rows' own timestamps disagree
}

// Server is the server a table is on.
type Server interface {
	Now(ctx context.Context) (time.Time, error)
}

// Deleter deletes by rows.
type Deleter interface {
	// Fingerprint is that of the rows [from, to) now, on the primary.
	Fingerprint(ctx context.Context, from, to uint64) (message.Fingerprint, error)
	// DeleteChunk deletes a chunk's rows if they are, under a lock, what the chunk
	// says. ErrDrift: they are not, and nothing was deleted. ErrUnclear: they may
	// have been deleted. Any other error: nothing was deleted.
	DeleteChunk(ctx context.Context, g *manifest.PurgeGrant, c manifest.Chunk) error
}

// Partitions isolates a partition.
type Partitions interface {
	// Partition finds the partition that holds [lo, hi) whole, if rows of it can be
	// isolated by an exchange.
	Partition(ctx context.Context, lo, hi uint64) (Range, bool, error)
	// Exchange swaps the partition and the staging table. ErrLocked: it did not,
	// since others hold the table. ErrIncompatible: it did not and never will. Any
	// other error: it may have.
	Exchange(ctx context.Context, r Range, staging string) error
}

// Staging is the staging table of an exchange.
type Staging interface {
	CreateStaging(ctx context.Context, name string) error
	StagingExists(ctx context.Context, name string) (bool, error)
	StagingFingerprint(ctx context.Context, name string, from, to uint64) (message.Fingerprint, error)
}

// Isolated ends an exchange in one of two ways.
type Isolated interface {
	// DropStaging drops the staging table if its rows, all of them, are those of the
	// grants' slices, which are in order. ErrDrift, ErrLocked: it did not.
	DropStaging(ctx context.Context, gs []*manifest.PurgeGrant, name string) error
	// ReturnStaging puts rows of the staging table that the table lacks back, and drops
	// the staging table only when the table has them all. It may be called again.
	ReturnStaging(ctx context.Context, name string) error
}
