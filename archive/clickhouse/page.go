package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// Span is a range of cursors in one copy.
type Span struct {
	Copy     CopyID
	Min, Max uint64 // inclusive
}

// ReadSpans gives a conversation's rows in the spans, in the order of message.Compare,
// by one statement. A row that was inserted twice comes once. More than limit rows are
// cut off at limit, so that a table with too many of them cannot exhaust the reader; who
// knows how many there must be sees by their number that some are missing.
func (d *DB) ReadSpans(ctx context.Context, spans []Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	if len(spans) == 0 || limit <= 0 {
		return message.NewBatch(s), nil
	}
	b, err := d.readSpans(ctx, spans, s, conversation, limit, false)
	if errors.Is(err, ErrNoTable) { // the columns that were read earlier may be out of date
		b, err = d.readSpans(ctx, spans, s, conversation, limit, true)
	}
	if err != nil {
		return nil, fmt.Errorf("spans of conversation %s: %w", conversation, err)
	}
	return b, nil
}

func (d *DB) readSpans(ctx context.Context, spans []Span, s *message.Schema, conversation []byte, limit int, fresh bool) (*message.Batch, error) {
	r, err := d.newReader(ctx, s, fresh)
	if err != nil {
		return nil, err
	}
	where, possible, err := r.spansCondition(spans, conversation)
	if err != nil || !possible {
		return r.batch, err
	}
	err = r.read(ctx, fmt.Sprintf("%s ORDER BY %s LIMIT %d", where, r.order(), limit), func() error { return nil })
	return r.batch, err
}

// spansCondition is the WHERE clause of spans; possible is false when no row can match.
func (r *reader) spansCondition(spans []Span, conversation []byte) (where string, possible bool, err error) {
	conv, err := r.conversationLiteral(conversation)
	if err != nil {
		return "", false, err
	}
	var days, shards, attempts, tuples, each []string
	seen := map[manifest.Shard]bool{}
	low, high := uint64(math.MaxUint64), uint64(0)
	for i, sp := range spans {
		low, high = min(low, sp.Min), max(high, sp.Max)
		id := sp.Copy
		if i == 0 || id.Day != spans[i-1].Copy.Day {
			days = append(days, quote(id.Day.String()))
		}
		if !seen[id.Shard] {
			seen[id.Shard] = true
			shards = append(shards, quote(id.Shard.String()))
		}
		attempts = append(attempts, quote(id.Attempt))
		tuples = append(tuples, tuple(id))
		each = append(each, fmt.Sprintf("(%s = %s AND %s = %s AND %s >= %d AND %s <= %d)", colDay, quote(id.Day.String()), colShard, quote(id.Shard.String()),
			r.cursor(), sp.Min, r.cursor(), sp.Max))
	}
	highest := uint64(math.MaxUint64)
	if r.schema.Columns()[r.schema.Cursor()].Kind == message.Int {
		highest = math.MaxInt64 // the server need not compare beyond the column's type
	}
	if low > high || low > highest {
		return "", false, nil
	}
	// The days prune partitions, the shards, the conversation and the ends of all spans are
	// the start of the primary key; the tuples and each span say which rows count.
	where = fmt.Sprintf(" PREWHERE %s IN (%s) AND %s = %s AND %s IN (%s) AND %s IN (%s) WHERE (%s, %s, %s, %s) IN (%s)", colShard, join(shards), r.conversation(), conv,
		colDay, join(days), colAttempt, join(attempts), colDay, colShard, colGeneration, colAttempt, join(tuples))
	if low > 0 {
		where += fmt.Sprintf(" AND %s >= %d", r.cursor(), low)
	}
	if high < highest {
		where += fmt.Sprintf(" AND %s <= %d", r.cursor(), high)
	}
	if len(spans) > 1 {
		where += " AND (" + strings.Join(each, " OR ") + ")"
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
