package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// PageQuery selects rows of one conversation.
type PageQuery struct {
	Conversation  []byte  // canonical text of the conversation ID
	Before, After *uint64 // exclusive cursors
	Limit         int
	Newest        bool // where more rows fit than Limit: the newest of them instead of the oldest
}

// ReadPage gives up to q.Limit rows of one conversation from the given copies, in the
// order of message.Compare, whichever end of the range they were taken from. Rows of
// other copies are never among them. All of the copies must have the schema's columns.
func (d *DB) ReadPage(ctx context.Context, ids []CopyID, s *message.Schema, q PageQuery) (*message.Batch, error) {
	if len(ids) == 0 || q.Limit <= 0 {
		return message.NewBatch(s), nil
	}
	b, err := d.readPage(ctx, ids, s, q, false)
	if errors.Is(err, ErrNoTable) { // the columns that were read earlier may be out of date
		b, err = d.readPage(ctx, ids, s, q, true)
	}
	if err != nil {
		return nil, fmt.Errorf("page of conversation %s: %w", q.Conversation, err)
	}
	return b, nil
}

func (d *DB) readPage(ctx context.Context, ids []CopyID, s *message.Schema, q PageQuery, fresh bool) (*message.Batch, error) {
	r, err := d.newReader(ctx, s, fresh)
	if err != nil {
		return nil, err
	}
	where, possible, err := r.pageCondition(ids, q)
	if err != nil || !possible {
		return r.batch, err
	}
	// First the keys alone, from which the server's primary key tells where the rows lie;
	// then whole rows of just that range.
	keys, err := r.pageKeys(ctx, where, q)
	if err != nil || len(keys) == 0 {
		return r.batch, err
	}
	first, last := keys[0], keys[len(keys)-1]
	if q.Newest {
		first, last = last, first
	}
	key := r.keyTuple()
	where += fmt.Sprintf(" AND %s >= %d AND %s <= %d AND %s >= %s AND %s <= %s", r.cursor(), first[0], r.cursor(), last[0], key, first.literal(), key, last.literal())
	if err := r.read(ctx, where+" ORDER BY "+r.order(), func() error { return nil }); err != nil {
		return nil, err
	}
	if r.batch.Len() != len(keys) { // a copy was dropped meanwhile, or a key has two different rows
		return nil, fmt.Errorf("%w: %d rows where %d were found", ErrPartial, r.batch.Len(), len(keys))
	}
	return r.batch, nil
}

// pageCondition is the WHERE clause of a page; possible is false when no row can match.
func (r *reader) pageCondition(ids []CopyID, q PageQuery) (where string, possible bool, err error) {
	conv, err := r.conversationLiteral(q.Conversation)
	if err != nil {
		return "", false, err
	}
	var days, shards, attempts, tuples []string
	seen := map[manifest.Shard]bool{}
	for i, id := range ids {
		if i == 0 || id.Day != ids[i-1].Day {
			days = append(days, quote(id.Day.String()))
		}
		if !seen[id.Shard] {
			seen[id.Shard] = true
			shards = append(shards, quote(id.Shard.String()))
		}
		attempts = append(attempts, quote(id.Attempt))
		tuples = append(tuples, tuple(id))
	}
	// The days prune partitions, the shards and the conversation are the start of the
	// primary key; the tuples say which rows count.
	where = fmt.Sprintf(" PREWHERE %s IN (%s) AND %s = %s AND %s IN (%s) AND %s IN (%s) WHERE (%s, %s, %s, %s) IN (%s)", colShard, join(shards), r.conversation(), conv,
		colDay, join(days), colAttempt, join(attempts), colDay, colShard, colGeneration, colAttempt, join(tuples))
	highest := uint64(math.MaxUint64)
	if r.schema.Columns()[r.schema.Cursor()].Kind == message.Int {
		highest = math.MaxInt64 // the server need not compare beyond the column's type
	}
	if q.After != nil {
		if *q.After >= highest {
			return "", false, nil
		}
		where += fmt.Sprintf(" AND %s > %d", r.cursor(), *q.After)
	}
	if q.Before != nil {
		if *q.Before == 0 {
			return "", false, nil
		}
		if *q.Before <= highest {
			where += fmt.Sprintf(" AND %s < %d", r.cursor(), *q.Before)
		}
	}
	return where, true, nil
}

// conversationLiteral writes a conversation ID as the column's type has it.
func (r *reader) conversationLiteral(text []byte) (string, error) {
	switch r.conversationKind() {
	case message.Int:
		if _, ok := message.ParseInt(text); !ok {
			return "", fmt.Errorf("conversation ID %q: want an integer", text)
		}
		return string(text), nil
	case message.Uint:
		if _, ok := message.ParseUint(text); !ok {
			return "", fmt.Errorf("conversation ID %q: want an integer of at least 0", text)
		}
		return string(text), nil
	}
	return quote(string(text)), nil
}

type pageKey [2]uint64 // cursor, message ID

// keyTuple is the SQL of a row's key, and literal that of a given one.
func (r *reader) keyTuple() string { return "(" + r.cursor() + ", " + r.messageID() + ")" }

func (k pageKey) literal() string { return fmt.Sprintf("(%d, %d)", k[0], k[1]) }

// pageKeys gives the keys of the page's rows, each once, nearest to the selected end first.
// It asks for more than the limit, since a row may be in the table twice.
func (r *reader) pageKeys(ctx context.Context, where string, q PageQuery) (keys []pageKey, err error) {
	direction := ""
	if q.Newest {
		direction = " DESC"
	}
	order := r.cursor() + direction
	if r.cursor() != r.messageID() {
		order += ", " + r.messageID() + direction
	}
	for ask := q.Limit + q.Limit/4 + 8; ; ask *= 4 {
		keys = keys[:0]
		rows := 0
		err := r.d.query(ctx, readSettings(), fmt.Sprintf("SELECT toUInt64(%s), toUInt64(%s) FROM %s%s ORDER BY %s LIMIT %d",
			r.cursor(), r.messageID(), r.d.qualified(tableName), where, order, ask), func(scan func(...any) error) error {
			rows++
			var k pageKey
			if err := scan(&k[0], &k[1]); err != nil {
				return fmt.Errorf("%w: %w", ErrNoTable, err)
			}
			if len(keys) < q.Limit && (len(keys) == 0 || keys[len(keys)-1] != k) {
				keys = append(keys, k)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(keys) == q.Limit || rows < ask {
			return keys, nil
		}
	}
}
