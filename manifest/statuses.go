package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrStatus says that a status is none that can be put.
var ErrStatus = errors.New("status refused")

// Limits of a status, in bytes. MaxOriginal is the longest text of a status column
// that a status can be folded into.
const (
	MaxStatusValue = 255
	MaxStatusBy    = 255
	MaxOriginal    = 65535
)

func (st *Status) check() error {
	switch st.Kind {
	case StatusNone, StatusRecalled, StatusDeleted, StatusEdited:
	default:
		return fmt.Errorf("kind %q: want %s, %s, %s or %s", cut(string(st.Kind), 64), StatusRecalled, StatusDeleted, StatusEdited, StatusNone)
	}
	switch {
	case st.Conversation == nil: // an ID may be the empty string
		return errors.New("no conversation is given")
	case len(st.Conversation) > MaxConversation:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrConversation, len(st.Conversation), MaxConversation)
	case st.Value != nil && st.Kind == StatusNone:
		return errors.New("taking a status back takes no value")
	case st.Value != nil && (len(*st.Value) > MaxStatusValue || !utf8.ValidString(*st.Value)):
		return fmt.Errorf("value of %d bytes: want UTF-8 of at most %d", len(*st.Value), MaxStatusValue)
	case len(st.By) > MaxStatusBy || !utf8.ValidString(st.By):
		return fmt.Errorf("the name of who puts it has %d bytes: want UTF-8 of at most %d", len(st.By), MaxStatusBy)
	}
	return nil
}

// Check refuses what cannot be a status in the bucket.
func (st *Status) Check() error {
	if st.At.IsZero() {
		return errors.New("it has no time")
	}
	return st.check()
}

const statusColumns = "conversation, message_id, kind, value, put_by, put_at, has_original, original"

// overlaid selects the statuses that change what readers are given: not those that
// were taken back, unless a generation has them in its column.
const overlaid = "(kind <> 'none' OR has_original = 1)"

func scanStatus(scan func(...any) error) (f FoldedStatus, err error) {
	var has bool
	var original []byte
	err = scan(&f.Conversation, &f.MessageID, &f.Kind, &f.Value, &f.By, &f.At, &has, &original)
	if has {
		f.Original = &Original{Value: original}
	}
	return f, err
}

// PutStatus puts a message's status; the last put wins. The message need not exist.
// StatusNone takes it back, also where a generation has it already. It gives the status
// as Statuses does. The same status put again changes nothing and gives the first one,
// so a put whose outcome is unknown may be repeated. A status that cannot be put is
// ErrStatus.
func (s *Store) PutStatus(ctx context.Context, st Status) (Status, error) {
	fail := func(err error) (Status, error) {
		return Status{}, fmt.Errorf("put the status of message %d: %w", st.MessageID, err)
	}
	if err := st.check(); err != nil {
		return fail(fmt.Errorf("%w: %w", ErrStatus, err))
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return fail(err)
	}
	const find = "SELECT " + statusColumns + " FROM statuses WHERE source_id = ? AND conversation = ? AND message_id = ?"
	key := []any{src, st.Conversation, st.MessageID}
	var put FoldedStatus
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		put, err = scanStatus(tx.QueryRowContext(ctx, find+" FOR UPDATE", key...).Scan)
		switch {
		case errors.Is(err, sql.ErrNoRows) && st.Kind == StatusNone: // nothing to take back
			put = FoldedStatus{Status: st}
			return tx.QueryRowContext(ctx, "SELECT UTC_TIMESTAMP(6)").Scan(&put.At)
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return err
		case put.Kind == st.Kind && put.By == st.By && (put.Value == nil) == (st.Value == nil) && (st.Value == nil || *put.Value == *st.Value):
			return nil
		}
		// Each put of a message has a time of its own: by it a commit knows the one it has folded.
		if _, err := tx.ExecContext(ctx, "INSERT INTO statuses (source_id, conversation, message_id, kind, value, put_by, put_at) VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6)) "+
			"ON DUPLICATE KEY UPDATE kind = VALUES(kind), value = VALUES(value), put_by = VALUES(put_by), put_at = GREATEST(VALUES(put_at), put_at + INTERVAL 1 MICROSECOND), folded = 0, mirrored = 0",
			append(key, string(st.Kind), st.Value, st.By)...); err != nil {
			return err
		}
		if put, err = scanStatus(tx.QueryRowContext(ctx, find, key...).Scan); err != nil {
			return err
		}
		return s.bump(ctx, tx, statusVersion)
	})
	if err != nil {
		return fail(err)
	}
	return put.effective(), nil
}

// StatusQuery asks for the statuses of messages of a conversation.
type StatusQuery struct {
	Conversation []byte
	From, To     uint64   // message IDs, inclusive; To 0: no bound
	IDs          []uint64 // of these messages alone; nil: of all
	Limit        int
}

// Statuses gives the statuses that were put on messages of a conversation, by rising
// message ID, at most Limit. Where a status was taken back that a generation has in its
// column already, it is of StatusNone, and its Value or Null says what the column is to
// read.
func (s *Store) Statuses(ctx context.Context, q StatusQuery) ([]Status, error) {
	fail := func(err error) ([]Status, error) {
		return nil, fmt.Errorf("find statuses of conversation %q: %w", cut(string(q.Conversation), 64), err)
	}
	switch {
	case len(q.Conversation) > MaxConversation:
		return fail(fmt.Errorf("%w: %d bytes", ErrConversation, len(q.Conversation)))
	case q.Limit <= 0:
		return fail(fmt.Errorf("a limit of %d", q.Limit))
	}
	where, args := "conversation = ? AND message_id >= ?", []any{q.Conversation, q.From}
	if len(q.IDs) > 0 {
		where += " AND message_id IN (?" + strings.Repeat(", ?", len(q.IDs)-1) + ")"
		for _, id := range q.IDs {
			args = append(args, id)
		}
	}
	if q.To > 0 {
		where, args = where+" AND message_id <= ?", append(args, q.To)
	}
	found, err := s.statuses(ctx, "FORCE INDEX (PRIMARY)", where+" ORDER BY message_id LIMIT ?", append(args, q.Limit))
	if err != nil {
		return fail(err)
	}
	var all []Status
	for i := range found {
		all = append(all, found[i].effective())
	}
	return all, nil
}

// StatusesBetween gives the statuses of all messages of the source in [lo, hi), by
// message ID, as a generation that is made now is to have them: see FoldedStatus.Column.
func (s *Store) StatusesBetween(ctx context.Context, lo, hi uint64) ([]FoldedStatus, error) {
	all, err := s.statuses(ctx, "FORCE INDEX (message)", "message_id >= ? AND message_id < ? ORDER BY message_id, conversation", []any{lo, hi})
	if err != nil {
		return nil, fmt.Errorf("find statuses of messages [%d, %d): %w", lo, hi, err)
	}
	return all, nil
}

func (s *Store) statuses(ctx context.Context, index, where string, args []any) (all []FoldedStatus, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+statusColumns+" FROM statuses "+index+" WHERE source_id = ? AND "+overlaid+" AND "+where, append([]any{src}, args...)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		f, err := scanStatus(rows.Scan)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, rows.Err()
}

// checkStatuses refuses statuses that no generation of the slice can have.
func (c *Copy) checkStatuses() error {
	for i := range c.Statuses {
		st := &c.Statuses[i]
		if err := st.check(); err != nil {
			return fmt.Errorf("status of message %d: %w", st.MessageID, err)
		}
		if st.MessageID < c.Lo || st.MessageID >= c.Hi || st.At.IsZero() {
			return fmt.Errorf("status of message %d of %s: it is none of the slice's [%d, %d)", st.MessageID, st.At.Format(time.RFC3339), c.Lo, c.Hi)
		}
		if o := st.Original; o != nil && len(o.Value) > MaxOriginal {
			return fmt.Errorf("status of message %d: its column read %d bytes before, at most %d can be noted", st.MessageID, len(o.Value), MaxOriginal)
		}
	}
	return nil
}

// status adds conversation, message_id, kind, value, put_by and put_at.
func (in *inserter) status(st *Status) {
	in.bytes(st.Conversation)
	in.num(st.MessageID)
	in.bytes([]byte(st.Kind))
	if st.Value == nil {
		in.null()
	} else {
		in.bytes([]byte(*st.Value))
	}
	in.bytes([]byte(st.By))
	in.bytes([]byte(st.At.UTC().Format("2006-01-02 15:04:05.000000")))
}

// foldStatuses notes which statuses a generation has and what its column read before.
// One that was put again since stays to be folded. One that the manifest lacks (it was
// set back to a backup, and took the generation over from the bucket) is put.
func (w *copyWriter) foldStatuses(ctx context.Context, q reader, c *Copy) error {
	in := w.into(ctx, q, "INSERT INTO statuses (source_id, conversation, message_id, kind, value, put_by, put_at, folded, has_original, original)")
	// From left to right, so put_at comes last.
	in.tail = ` ON DUPLICATE KEY UPDATE folded = IF(VALUES(put_at) >= put_at, VALUES(folded), folded), kind = IF(VALUES(put_at) > put_at, VALUES(kind), kind),
		value = IF(VALUES(put_at) > put_at, VALUES(value), value), put_by = IF(VALUES(put_at) > put_at, VALUES(put_by), put_by),
		has_original = VALUES(has_original), original = VALUES(original), put_at = GREATEST(put_at, VALUES(put_at))`
	for i := range c.Statuses {
		st := &c.Statuses[i]
		in.num(uint64(w.src))
		in.status(&st.Status)
		in.num(uint64(c.Generation))
		if st.Original == nil {
			in.num(0)
			in.null()
		} else {
			in.num(1)
			if st.Original.Value == nil {
				in.null()
			} else {
				in.bytes(st.Original.Value)
			}
		}
		if err := in.end(); err != nil {
			return fmt.Errorf("fold statuses: %w", err)
		}
	}
	if err := in.flush(); err != nil {
		return fmt.Errorf("fold statuses: %w", err)
	}
	return nil
}
