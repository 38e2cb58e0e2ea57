package manifest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
)

// Canary is known messages of one conversation in one warm table, by which is seen that
// what is written travels the whole way. Of its contents the manifest has what they are made
// of again, and not the contents.
type Canary struct {
	ID           string              `json:"id"`
	Shard        Shard               `json:"shard"`
	Conversation string              `json:"conversation"` // canonical text of its ID
	FirstSeq     uint64              `json:"first_sequence,string"`
	MessageIDs   []uint64            `json:"-"`
	Spec         json.RawMessage     `json:"-"`                    // whoever plants says what it is
	Rest         json.RawMessage     `json:"-"`                    // what the server put into columns that were not given
	Fingerprint  message.Fingerprint `json:"fingerprint"`          // of the whole rows, as they were in warm
	NotedAt      time.Time           `json:"noted_at"`             // by the manifest's clock
	PlantedAt    *time.Time          `json:"planted_at,omitempty"` // nil: it is not known whether its rows are in warm
}

const canaryColumns = "id, db_name, table_name, conversation, first_seq, message_ids, spec, rest, fingerprint, noted_at, planted_at"

func scanCanary(scan func(...any) error) (c Canary, err error) {
	var ids, sum string
	var conv, spec, rest []byte
	if err := scan(&c.ID, &c.Shard.Database, &c.Shard.Table, &conv, &c.FirstSeq, &ids, &spec, &rest, &sum, &c.NotedAt, &c.PlantedAt); err != nil {
		return c, err
	}
	c.Conversation, c.Spec, c.Rest = string(conv), spec, rest
	for text := range strings.SplitSeq(ids, ",") {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return c, fmt.Errorf("%w: canary %s: message ID %q", ErrCorrupt, c.ID, text)
		}
		c.MessageIDs = append(c.MessageIDs, id)
	}
	if sum != "" {
		err = c.Fingerprint.UnmarshalText([]byte(sum))
	}
	return c, err
}

// Canaries lists all canaries, oldest first.
func (s *Store) Canaries(ctx context.Context) (all []Canary, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+canaryColumns+" FROM canaries WHERE source_id = ? ORDER BY noted_at, id, db_name, table_name", src)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's canaries: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		c, err := scanCanary(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("list the manifest's canaries: %w", err)
		}
		all = append(all, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's canaries: %w", err)
	}
	return all, nil
}

// Canary reads one canary; ErrNotFound.
func (s *Store) Canary(ctx context.Context, id string, shard Shard) (Canary, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return Canary{}, err
	}
	c, err := scanCanary(s.db.QueryRowContext(ctx, "SELECT "+canaryColumns+" FROM canaries WHERE source_id = ? AND id = ? AND db_name = ? AND table_name = ?",
		src, id, shard.Database, shard.Table).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return c, fmt.Errorf("read canary %s of %s: %w", id, shard, err)
	}
	return c, nil
}

// NoteCanary notes that a canary is about to be planted, and gives it as it is noted: with
// the first of its sequence numbers, which follow those of the conversation's other
// canaries. One that is noted already is given as it is.
func (s *Store) NoteCanary(ctx context.Context, c Canary) (Canary, error) {
	fail := func(err error) (Canary, error) {
		return c, fmt.Errorf("note canary %s of %s: %w", c.ID, c.Shard, err)
	}
	switch {
	case c.ID == "" || len(c.ID) > 64:
		return fail(errors.New("want an ID of 1 to 64 bytes"))
	case c.Conversation == "" || len(c.Conversation) > MaxConversation:
		return fail(fmt.Errorf("want a conversation ID of 1 to %d bytes", MaxConversation))
	case len(c.MessageIDs) == 0:
		return fail(errors.New("it has no messages"))
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return fail(err)
	}
	ids := make([]string, len(c.MessageIDs))
	for i, id := range c.MessageIDs {
		ids[i] = message.FormatID(id)
	}
	for range maxDeadlocks {
		if have, err := s.Canary(ctx, c.ID, c.Shard); !errors.Is(err, ErrNotFound) {
			return have, err
		}
		var first uint64
		var last string
		err := s.db.QueryRowContext(ctx, "SELECT first_seq, message_ids FROM canaries WHERE source_id = ? AND conversation = ? ORDER BY first_seq DESC LIMIT 1", src, []byte(c.Conversation)).Scan(&first, &last)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			first = 1
		case err != nil:
			return fail(err)
		default:
			first += uint64(strings.Count(last, ",") + 1) //nolint:gosec // a count
		}
		// Two that take the same numbers meet at the unique key.
		_, err = s.db.ExecContext(ctx, "INSERT INTO canaries (source_id, id, db_name, table_name, conversation, first_seq, message_ids, spec, noted_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))",
			src, c.ID, c.Shard.Database, c.Shard.Table, []byte(c.Conversation), first, strings.Join(ids, ","), string(c.Spec))
		var my *mysql.MySQLError
		if err != nil && (!errors.As(err, &my) || my.Number != 1062) && !deadlocked(err) {
			return fail(err)
		}
	}
	have, err := s.Canary(ctx, c.ID, c.Shard)
	if err != nil {
		return fail(err)
	}
	return have, nil
}

// PlantedCanary notes that a canary's rows are in warm, and how they read there.
func (s *Store) PlantedCanary(ctx context.Context, c Canary) error {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return err
	}
	if _, err := s.db.ExecContext(ctx, "UPDATE canaries SET rest = ?, fingerprint = ?, planted_at = UTC_TIMESTAMP(6) WHERE source_id = ? AND id = ? AND db_name = ? AND table_name = ? AND planted_at IS NULL",
		string(c.Rest), c.Fingerprint.String(), src, c.ID, c.Shard.Database, c.Shard.Table); err != nil {
		return fmt.Errorf("note that canary %s of %s is planted: %w", c.ID, c.Shard, err)
	}
	return nil
}
