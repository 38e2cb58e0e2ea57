package manifest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Boundary says where a conversation's messages are.
type Boundary struct {
	Conversation []byte
	// WarmFrom is the cursor from which on warm holds every archived message: one
	// above the highest of all live segments whose slice a purge was begun on.
	WarmFrom uint64
	WarmAll  bool // there is no such segment; WarmFrom is 0
	WarmNone bool // such a segment ends at the highest cursor there is, so warm is complete from none on; WarmFrom is that cursor
	// ColdMin and ColdMax are the lowest and the highest cursor of its live
	// segments; nil when there is none.
	ColdMin, ColdMax *uint64
}

// boundaryQuery looks up each conversation at the ends of the two page indexes, as
// segmentQuery reads them. The one for WarmFrom passes over the segments above it, so
// it is not begun where no purge was begun at all. Ordered by the whole index: of the
// last column alone MySQL does not see that it has that order already. Arguments: source four times, and
// a number and a conversation for each one.
const boundaryQuery = `SELECT q.n,
	(SELECT g.min_cursor FROM segments g FORCE INDEX (page_after) ` + boundaryLive + ` ORDER BY g.source_id, g.conversation, g.min_cursor LIMIT 1),
	(SELECT g.max_cursor FROM segments g FORCE INDEX (page_before) ` + boundaryLive + ` ORDER BY g.source_id, g.conversation, g.max_cursor DESC LIMIT 1),
	CASE WHEN EXISTS (SELECT 1 FROM slices b FORCE INDEX (begun) WHERE b.source_id = ? AND b.purge_begun = 1) THEN
	(SELECT g.max_cursor FROM segments g FORCE INDEX (page_before) ` + boundaryLive + ` AND s.purge_begun = 1 ORDER BY g.source_id, g.conversation, g.max_cursor DESC LIMIT 1) END
	FROM (SELECT ? AS n, ? AS conversation%s) q
	UNION ALL SELECT IF(w.rebuilding = '', -1, -2), NULL, NULL, NULL FROM sources w WHERE w.id = ?`

const boundaryLive = `STRAIGHT_JOIN slices s ON s.id = g.slice_id AND s.live_token = g.token AND s.live_generation > 0
	WHERE g.source_id = ? AND g.conversation = q.conversation`

const boundaryBatch = 500

// Boundaries gives the boundary of each conversation, in the order given, as all are
// at one moment (of each 500). Its cost does not grow with the number of segments,
// but with that of the segments above WarmFrom, once any purge was begun.
func (s *Store) Boundaries(ctx context.Context, conversations [][]byte) ([]Boundary, error) {
	for _, c := range conversations {
		if len(c) > MaxConversation {
			return nil, fmt.Errorf("find the boundary of conversation %q: %w: %d bytes", cut(string(c), 64), ErrConversation, len(c))
		}
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	all := make([]Boundary, len(conversations))
	for i, c := range conversations {
		all[i] = Boundary{Conversation: c, WarmAll: true}
	}
	for some := range slices.Chunk(all, boundaryBatch) {
		if err := s.boundaries(ctx, src, some); err != nil {
			return nil, fmt.Errorf("find the boundaries of %d conversations: %w", len(some), err)
		}
	}
	return all, nil
}

func (s *Store) boundaries(ctx context.Context, src uint32, all []Boundary) error {
	args := []any{src, src, src, src}
	for i := range all {
		c := all[i].Conversation
		if c == nil {
			c = []byte{} // nil would be NULL
		}
		args = append(args, i, c)
	}
	args = append(args, src)
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf(boundaryQuery, strings.Repeat(" UNION ALL SELECT ?, ?", len(all)-1)), args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	whole := src == 0 // what was never known has nothing
	for rows.Next() {
		var n int
		var low, high, gone *uint64
		if err := rows.Scan(&n, &low, &high, &gone); err != nil {
			return err
		}
		if n < 0 {
			whole = n == -1
			continue
		}
		b := &all[n]
		b.ColdMin, b.ColdMax = low, high
		switch {
		case gone == nil:
		case *gone == math.MaxUint64:
			b.WarmFrom, b.WarmAll, b.WarmNone = *gone, false, true
		default:
			b.WarmFrom, b.WarmAll = *gone+1, false
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if !whole {
		return ErrHalfRebuilt
	}
	return nil
}
