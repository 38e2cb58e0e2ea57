package manifest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
)

// SegmentQuery asks for the segments of a conversation around a cursor. Without a
// cursor it is those from the newest end, or from the oldest.
type SegmentQuery struct {
	Conversation []byte          // canonical text
	Before       *uint64         // exclusive; or
	After        *uint64         // exclusive; or
	Oldest       bool            // from the oldest end
	Days         []snowflake.Day // segments of these days alone; nil: of all
	Until        *snowflake.Day  // of this day and the days before it alone
	Limit        int
}

// SegmentRef is a segment and all that is needed to read it.
type SegmentRef struct {
	Slice      SliceKey
	SliceID    uint64
	Generation uint32
	Attempt    string
	Schema     *message.Schema
	Key        string // of the object
	File       segment.File
	Span       segment.Span
	ClickHouse bool // its rows are in ClickHouse as well: so of every generation that was verified
	PurgeBegun bool // warm may no longer hold all rows of the slice
}

// segmentQuery reads one index in its own order. The index is forced and the tables
// joined in the order written, lest a server with poor statistics sorts or starts
// from slices. The row without a shard says, of the same moment, whether the manifest is
// whole. Arguments: index, condition, order.
const segmentQuery = `(SELECT g.slice_id, s.day, s.db_name, s.table_name, c.generation, c.attempt, c.schema_hash, o.name, o.file,
	g.conversation, g.min_cursor, g.max_cursor, g.first_row, g.row_count, g.first_group, g.last_group, g.sum_hi, g.sum_lo, s.purge_begun
	FROM segments g FORCE INDEX (%s)
	STRAIGHT_JOIN slices s ON s.id = g.slice_id AND s.live_token = g.token AND s.live_generation > 0
	STRAIGHT_JOIN copies c ON c.slice_id = g.slice_id AND c.generation = s.live_generation
	STRAIGHT_JOIN objects o ON o.slice_id = g.slice_id AND o.token = g.token AND o.seq = g.object_seq
	WHERE g.source_id = ? AND g.conversation = ? AND %s ORDER BY %s LIMIT ?)
	UNION ALL SELECT q.id, DATE '2000-01-01', '', '', q.id, '', '', q.rebuilding, '', '', q.id, q.id, q.id, q.id, q.id, q.id, q.id, q.id, 0 FROM sources q WHERE q.id = ?`

const (
	beforeOrder = "g.max_cursor DESC, g.min_cursor DESC, g.slice_id"
	afterOrder  = "g.min_cursor, g.max_cursor, g.slice_id"
)

// Segments gives the live segments of a conversation that can hold rows before
// (after) a cursor, nearest first in page order: Before by falling MaxCursor,
// After by rising MinCursor. At most Limit.
//
// Segments of neighbouring days may overlap in their cursors. The order makes that
// safe: whatever was not given yet has no row nearer than the MaxCursor
// (MinCursor) of the last that was given. So a reader has a page without a gap
// once it has read every segment that reaches nearer than the page's far end, and
// when it needs more than Limit it asks again for more of them; it must not go on
// from the far end of the last segment, which would skip those that overlap it.
//
// Each direction is one range of one index, read in its order and ended by Limit;
// segments on the wrong side of the cursor are passed over inside the index. Days are
// a range each of a third index, whose few segments are sorted.
func (s *Store) Segments(ctx context.Context, q SegmentQuery) ([]SegmentRef, error) {
	fail := func(err error) ([]SegmentRef, error) {
		return nil, fmt.Errorf("find segments of conversation %q: %w", cut(string(q.Conversation), 64), err)
	}
	switch {
	case len(q.Conversation) > MaxConversation:
		return fail(fmt.Errorf("%w: %d bytes", ErrConversation, len(q.Conversation)))
	case q.Before != nil && (q.After != nil || q.Oldest):
		return fail(errors.New("before and after at once"))
	case q.Limit <= 0:
		return fail(fmt.Errorf("a limit of %d", q.Limit))
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return fail(err)
	}
	args := []any{src, q.Conversation}
	index, order, where := "page_before", beforeOrder, "TRUE"
	switch {
	case q.After != nil:
		index, order, where = "page_after", afterOrder, "g.max_cursor > ?"
		args = append(args, *q.After)
	case q.Before != nil:
		where = "g.min_cursor < ?"
		args = append(args, *q.Before)
	case q.Oldest:
		index, order = "page_after", afterOrder
	}
	if len(q.Days) > 0 {
		index = "page_day"
		where += " AND g.day IN (?" + strings.Repeat(", ?", len(q.Days)-1) + ")"
		for _, d := range q.Days {
			args = append(args, d)
		}
	}
	if q.Until != nil {
		where += " AND s.day <= ?"
		args = append(args, *q.Until)
	}
	query := fmt.Sprintf(segmentQuery, index, where, order)
	rows, err := s.db.QueryContext(ctx, query, append(args, q.Limit, src)...)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	var all []SegmentRef
	var hashes []string
	whole := src == 0 // what was never known has nothing
	for rows.Next() {
		r := SegmentRef{Slice: SliceKey{Source: s.source}, ClickHouse: true}
		var hash, name string
		var file []byte
		sp := &r.Span
		if err := rows.Scan(&r.SliceID, &r.Slice.Day, &r.Slice.Shard.Database, &r.Slice.Shard.Table, &r.Generation, &r.Attempt, &hash, &name, &file,
			&sp.Conversation, &sp.MinCursor, &sp.MaxCursor, &sp.FirstRow, &sp.Rows, &sp.FirstGroup, &sp.LastGroup, &sp.Fingerprint.Hi, &sp.Fingerprint.Lo, &r.PurgeBegun); err != nil {
			return fail(err)
		}
		if r.Slice.Shard.Database == "" {
			whole = name == ""
			continue
		}
		sp.Fingerprint.Rows = uint64(sp.Rows) //nolint:gosec // written from one
		r.Key = longKey(ObjectPrefix(r.Slice, r.Generation, r.Attempt), name)
		if r.File, err = parseFile(file); err != nil {
			return fail(fmt.Errorf("object %s: %w", r.Key, err))
		}
		all, hashes = append(all, r), append(hashes, hash)
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	if !whole {
		return fail(ErrHalfRebuilt)
	}
	for i := range all { // after the rows, so that one connection is enough
		if all[i].Schema, err = s.schema(ctx, hashes[i]); err != nil {
			return fail(err)
		}
	}
	return all, nil
}
