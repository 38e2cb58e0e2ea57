package restore

import (
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// ErrNotFound says that an object is not in the bucket; whoever wires the parts
// makes the bucket's errors match it.
var ErrNotFound = errors.New("object not found")

// Defaults and limits of a page, in messages.
const (
	DefaultBefore = 20
	DefaultAfter  = 50
	DefaultMax    = 200
)

// Store says where a page may be read from.
type Store string

// The stores.
const (
	FromAny        Store = "auto"       // ClickHouse, and the bucket for what it does not give
	FromBucket     Store = "s3"         // the bucket alone
	FromClickHouse Store = "clickhouse" // ClickHouse alone
)

// Query asks for one page. At most one of Before, After and Around is set; with
// none it is the newest page.
type Query struct {
	Conversation []byte
	Before       *uint64 // cursor, exclusive; newest first
	After        *uint64 // cursor, exclusive; oldest first
	Around       *uint64 // message ID: half a page on each side of it, oldest first
	Limit        int     // messages; 0 is the direction's default. More than the configured maximum is cut to it
	From         Store   // "" is FromAny
}

func (q Query) validate() error {
	set := 0
	for _, p := range []*uint64{q.Before, q.After, q.Around} {
		if p != nil {
			set++
		}
	}
	switch {
	case set > 1:
		return errors.New("a page is before a cursor, after one, or around a message: choose one")
	case q.Conversation == nil: // an ID may be the empty string
		return errors.New("no conversation is given")
	case q.Limit < 0:
		return fmt.Errorf("limit %d: want at least 1", q.Limit)
	}
	switch q.From {
	case "", FromAny, FromBucket, FromClickHouse:
		return nil
	}
	return fmt.Errorf("store %q: want %s, %s or %s", q.From, FromAny, FromBucket, FromClickHouse)
}

// State says whether a page is all that was asked for.
type State string

// The states.
const (
	Complete State = "COMPLETE"
	Partial  State = "PARTIAL" // it ends before something that could not be read; Missing names it
)

// Row is one message: a row of a batch.
type Row struct {
	Batch *message.Batch
	Index int
	Store Store // where it was read
}

// Cursor is the row's cursor.
func (r Row) Cursor() uint64 { return r.Batch.Cursor(r.Index) }

// MessageID is the row's message ID.
func (r Row) MessageID() uint64 { return r.Batch.MessageID(r.Index) }

// Missing is a part of the history that could not be read.
type Missing struct {
	Slice     manifest.SliceKey `json:"slice"`
	Key       string            `json:"key"`
	MinCursor uint64            `json:"min_cursor,string"`
	MaxCursor uint64            `json:"max_cursor,string"`
	Reason    string            `json:"reason"`
}

// Page is an answer. An unknown conversation is an empty, complete page.
type Page struct {
	Rows      []Row
	State     State
	HasMore   bool    // there is more in the direction of the page
	MinCursor *uint64 // of Rows; nil when there are none
	MaxCursor *uint64
	Next      *uint64 // anchor of the next page in the same direction; nil when there is none
	Limit     int     // as applied
	Missing   []Missing
	Requests  int // reads of the bucket
	Queries   int // of ClickHouse
}
