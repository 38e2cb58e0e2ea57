package manifest

import (
	"fmt"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
)

// Shard names a warm table: one shard of the messages.
type Shard struct {
	Database string `json:"database"`
	Table    string `json:"table"`
}

// String is "database.table".
func (s Shard) String() string { return s.Database + "." + s.Table }

// ParseShard reads what String wrote; a database's name has no dot.
func ParseShard(text string) (Shard, error) {
	db, table, ok := strings.Cut(text, ".")
	if !ok || db == "" || table == "" {
		return Shard{}, fmt.Errorf("shard %q: want DATABASE.TABLE", text)
	}
	return Shard{db, table}, nil
}

// SliceKey names a slice: one warm table on one day.
type SliceKey struct {
	Source string        `json:"source"` // source.name of the configuration
	Shard  Shard         `json:"shard"`
	Day    snowflake.Day `json:"day"`
}

// String is "2026-05-01 im_00.msg_content_00".
func (k SliceKey) String() string { return k.Day.String() + " " + k.Shard.String() }

// State is the state of a slice.
type State string

// The states, in the order of a slice's life. A slice whose warm rows no longer
// equal its copy, or that got rows after its purge, goes back to Pending.
const (
	Pending   State = "pending"
	Copying   State = "copying"
	Committed State = "committed"
	Verified  State = "verified"
	Purging   State = "purging"
	Purged    State = "purged"
)

// Reasons for which a slice went back to Pending.
const (
	ReasonNew      = ""         // never copied
	ReasonDrifted  = "drifted"  // warm rows differ from the copy
	ReasonLate     = "late"     // rows turned up after the purge
	ReasonMismatch = "mismatch" // the copy failed its verification
)

// Slice is a row of the manifest: a slice and where it stands.
type Slice struct {
	ID uint64 `json:"id"`
	SliceKey
	Lo         uint64 `json:"lo,string"` // message IDs [Lo, Hi)
	Hi         uint64 `json:"hi,string"`
	State      State  `json:"state"`
	Reason     string `json:"reason,omitempty"`
	Live       uint32 `json:"live_generation"` // the verified generation that serves reads; 0 none
	Generation uint32 `json:"generation"`      // the newest committed generation; 0 none
	Rows       uint64 `json:"rows"`            // of Generation
	Bytes      int64  `json:"bytes"`           // of Generation's objects
	Held       bool   `json:"held"`
	Failed     bool   `json:"failed"` // the last try ended with Error
	Error      string `json:"error,omitempty"`
	Tries      int    `json:"tries,omitempty"` // tries in a row that failed
	// Interrupted is how many times in a row a run's time was up while the slice was
	// copied, and Tried the longest of these tries.
	Interrupted int           `json:"interrupted,omitempty"`
	Tried       time.Duration `json:"-"`
	Staging     string        `json:"staging,omitempty"` // table of a partition exchange that is under way
	VerifiedAt  *time.Time    `json:"verified_at,omitempty"`
	PurgedAt    *time.Time    `json:"purged_at,omitempty"`
	LeaseUntil  *time.Time    `json:"lease_until,omitempty"`
	LeaseOwner  string        `json:"lease_owner,omitempty"`
}

// ChunkState says what the purge by rows knows of a chunk.
type ChunkState string

// The states of a chunk.
const (
	ChunkPresent  ChunkState = "present"  // not touched
	ChunkDeleting ChunkState = "deleting" // a delete was begun; whether it was committed is unknown
	ChunkDeleted  ChunkState = "deleted"  // the delete was committed
)

// Chunk is a run of message IDs [From, To) of a slice generation. The chunks of a
// generation are in order and cover the slice's whole range without a gap, so
// that any row of the slice lies in exactly one.
type Chunk struct {
	Seq     int                 `json:"seq"`
	From    uint64              `json:"from,string"`
	To      uint64              `json:"to,string"`
	Warm    message.Fingerprint `json:"warm"`    // rows that warm held; what a delete must find
	Carried message.Fingerprint `json:"carried"` // rows taken from the former generation, which warm no longer has
	State   ChunkState          `json:"state"`
	// Staged says that it is deleting only because its partition was about to be
	// exchanged. ChunkState clears it: the isolated rows were found equal.
	Staged bool `json:"staged,omitempty"`
}

// Object is one Parquet file of a generation and the segments in it.
type Object struct {
	Key  string         `json:"key"`
	File segment.File   `json:"file"`
	Segs []segment.Span `json:"segments"`
}

// Copy is one generation of a slice: everything that its commit says.
type Copy struct {
	SliceKey
	Lo         uint64          `json:"lo,string"`
	Hi         uint64          `json:"hi,string"`
	Generation uint32          `json:"generation"`
	Attempt    string          `json:"attempt"`     // unique for each try to make a copy; part of its objects' keys and ClickHouse rows
	Schema     *message.Schema `json:"schema"`      // columns at the time of the copy
	ShowCreate string          `json:"show_create"` // the warm table's definition then
	CopiedAt   time.Time       `json:"copied_at"`   // by the manifest database's clock
	Chunks     []Chunk         `json:"chunks"`
	Objects    []Object        `json:"objects"`
	// Statuses are those of messages of the copy when it was made. LoadCopy does not read them.
	Statuses []FoldedStatus `json:"statuses,omitempty"`
}

// Fingerprint is that of all rows of the copy.
func (c *Copy) Fingerprint() (f message.Fingerprint) {
	for _, ch := range c.Chunks {
		f = f.Add(ch.Warm).Add(ch.Carried)
	}
	return f
}

func (c *Copy) warmRows() (n uint64) {
	for _, ch := range c.Chunks {
		n += ch.Warm.Rows
	}
	return n
}

// carries says that the copy has rows that warm had no longer when it was made.
func (c *Copy) carries() bool { return c.Fingerprint().Rows > c.warmRows() }

// Bytes is the size of all objects.
func (c *Copy) Bytes() (n int64) {
	for i := range c.Objects {
		n += c.Objects[i].File.Size
	}
	return n
}

// CopyID names one try to make one generation of a slice: what the rows of a copy
// in ClickHouse are marked with.
type CopyID struct {
	Shard      Shard
	Day        snowflake.Day
	Generation uint32
	Attempt    string
}

// String is "2026-05-01 im_00.msg_00 g1-0a1b".
func (id CopyID) String() string {
	return fmt.Sprintf("%s %s g%d-%s", id.Day, id.Shard, id.Generation, id.Attempt)
}

// ID names the copy.
func (c *Copy) ID() CopyID { return CopyID{c.Shard, c.Day, c.Generation, c.Attempt} }
