package restore

import (
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// What is wrong with an object; whoever wires the parts makes the bucket's errors match.
var (
	ErrNotFound = errors.New("object not found")
	ErrDamaged  = errors.New("object damaged")
	ErrArchived = errors.New("object in an archive storage class")
)

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
	FromWarm       Store = "warm"       // where a row came from; a page cannot ask for it
)

// Query asks for one page. At most one of Before, After and Around is set; with
// none it is the first page: the newest, or with Oldest the oldest.
type Query struct {
	Conversation []byte
	Before       *uint64       // cursor, exclusive; newest first
	After        *uint64       // cursor, exclusive; oldest first
	Oldest       bool          // without a cursor: the page from the oldest end, oldest first
	Around       *uint64       // message ID: half a page on each side of it, oldest first
	Limit        int           // messages; 0 is the direction's default. More than the configured maximum is cut to it
	Budget       time.Duration // within which it must be answered; 0 or more than the configured one is that one
	Tenant       string        // whom the page is for, to bound how much of the process one may take
	Only         *string       // nil, or the only tenant whose messages may be given: any other's is ErrTenant
	From         Store         // "" is FromAny
}

func (q Query) validate() error {
	set := 0
	for _, p := range []*uint64{q.Before, q.After, q.Around} {
		if p != nil {
			set++
		}
	}
	switch {
	case set > 1, q.Oldest && (q.Before != nil || q.Around != nil):
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
	Pending  State = "PENDING" // as Partial, and there is nothing before it: no messages
	Thawing  State = "THAWING" // as Partial or Pending, and what is missing lies in an archive storage class
)

// Row is one message: a row of a batch.
type Row struct {
	Batch  *message.Batch
	Index  int
	Store  Store            // where it was read
	Status *manifest.Status // put after it was archived; nil when there is none. Of StatusNone: what one that was taken back left
}

// Cursor is the row's cursor.
func (r Row) Cursor() uint64 { return r.Batch.Cursor(r.Index) }

// MessageID is the row's message ID.
func (r Row) MessageID() uint64 { return r.Batch.MessageID(r.Index) }

// Value is the text of a column as a reader may see it; nil is NULL. Of a message
// that was recalled or deleted the body is withheld: its content, and where no column
// has that role all columns without a role.
func (r Row) Value(column int) []byte {
	if r.Status == nil {
		return r.Batch.Value(column, r.Index)
	}
	s := r.Batch.Schema()
	if column == s.Role(message.Status) {
		switch {
		case r.Status.Null:
			return nil
		case r.Status.Value != nil:
			return []byte(*r.Status.Value)
		}
	}
	if r.Withheld(column) {
		return nil
	}
	return r.Batch.Value(column, r.Index)
}

// Withheld says whether a column's value is kept back because of the message's status.
func (r Row) Withheld(column int) bool {
	if r.Status == nil || !r.Status.Kind.Hides() {
		return false
	}
	s := r.Batch.Schema()
	if content := s.Role(message.Content); content >= 0 {
		return column == content
	}
	for _, role := range message.Roles() {
		if s.Role(role) == column {
			return false
		}
	}
	return true
}

// Cause says why a part of the history is missing from a page.
type Cause string

// The causes.
const (
	CauseBudget   Cause = "BUDGET"   // it was not there in time; it is still being read
	CauseBusy     Cause = "BUSY"     // too much is being read already
	CauseManifest Cause = "MANIFEST" // the manifest did not answer
	CauseStores   Cause = "STORES"   // neither ClickHouse nor the bucket answers
	CauseLost     Cause = "LOST"     // the object is not in the bucket, and ClickHouse does not have its rows
	CauseDamaged  Cause = "DAMAGED"  // the object is damaged, and ClickHouse does not have its rows
	CauseArchived Cause = "ARCHIVED" // the object is in an archive storage class
	CauseWarm     Cause = "WARM"     // the warm tables did not answer, or rows were being moved
)

// Missing is a part of the history that could not be read. The page ends before it.
type Missing struct {
	Slice     manifest.SliceKey `json:"slice"` // zero: not known which
	Key       string            `json:"key"`
	MinCursor uint64            `json:"min_cursor,string"` // a page before this one goes on behind what is missing
	MaxCursor uint64            `json:"max_cursor,string"` // a page after this one does
	Cause     Cause             `json:"cause"`
	Reason    string            `json:"reason"` // the cause in words, without contents
}

// Page is an answer. An unknown conversation is an empty, complete page.
type Page struct {
	Rows       []Row
	State      State
	HasMore    bool    // there is, or may be, more in the direction of the page; around: newer ones
	HasOlder   bool    // around: there is, or may be, more on the older side
	MinCursor  *uint64 // of Rows; of an empty page the anchor; nil when it had none
	MaxCursor  *uint64
	Next       *uint64 // anchor with which to go on in the same direction; nil: ask as before
	Limit      int     // as applied
	Cut        bool    // it has fewer messages than were asked for, by the maximum or by their size
	RetryAfter time.Duration
	Missing    []Missing
	Requests   int // reads of the bucket that this page began
	Queries    int // of ClickHouse
	Took       time.Duration
}

// MessagesQuery asks for messages of one conversation by their IDs.
type MessagesQuery struct {
	Conversation []byte
	IDs          []uint64 // at most MaxLimit of them
	Budget       time.Duration
	Tenant       string
	Only         *string
}

// Messages is the answer to a MessagesQuery.
type Messages struct {
	Rows       []Row    // in the order of cursors, each once
	Absent     []uint64 // IDs that are in no place that was looked at
	Unknown    []uint64 // IDs that may be in what could not be read; empty when State is Complete
	State      State
	RetryAfter time.Duration
	Missing    []Missing
	Requests   int
	Queries    int
	Took       time.Duration
}

// Errors of a request that cannot be answered. All else is said in the answer.
var (
	ErrQuery   = errors.New("request refused")
	ErrTenant  = errors.New("the conversation belongs to another tenant")
	ErrPending = errors.New("the manifest did not answer in time") // of what has no partial answer: boundaries, statuses
)
