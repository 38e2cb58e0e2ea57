package restore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Objects is the bucket as a reader uses it.
type Objects interface {
	// ReadRange reads exactly n bytes of an object at off; ErrNotFound when it is missing.
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)
}

// Rows is ClickHouse as a reader uses it.
type Rows interface {
	// Page gives up to limit rows of a conversation in the given copies whose cursors
	// lie in (after, before), the newest of them or the oldest, in message.Compare order.
	Page(ctx context.Context, ids []manifest.CopyID, s *message.Schema, conversation []byte, after, before *uint64, limit int, newest bool) (*message.Batch, error)
}

// Fetcher reads pages.
type Fetcher struct {
	Manifest *manifest.Store
	Objects  Objects
	Rows     Rows
	Layout   snowflake.Layout
	Zone     *time.Location
	Log      *slog.Logger
	MaxLimit int // 0: DefaultMax
}

// segmentsAtOnce is how many segments are looked up in the manifest at a time.
const segmentsAtOnce = 64

// Fetch reads one page.
func (f *Fetcher) Fetch(ctx context.Context, q Query) (*Page, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	limit := q.Limit
	if limit == 0 {
		limit = DefaultBefore
		if q.After != nil || q.Around != nil {
			limit = DefaultAfter
		}
	}
	limit = min(limit, cmp.Or(f.MaxLimit, DefaultMax))
	if q.Around != nil {
		return f.around(ctx, q, limit)
	}
	w := walk{f: f, q: q, limit: limit, newest: q.After == nil}
	return w.page(ctx)
}

// around joins the page before a message and the page from it on.
func (f *Fetcher) around(ctx context.Context, q Query, limit int) (*Page, error) {
	cursor, err := f.cursorOf(ctx, q)
	if err != nil {
		return nil, err
	}
	older := walk{f: f, q: Query{Conversation: q.Conversation, Before: &cursor, From: q.From}, limit: limit / 2, newest: true}
	a, err := older.page(ctx)
	if err != nil {
		return nil, err
	}
	from := Query{Conversation: q.Conversation, From: q.From}
	if cursor > 0 {
		before := cursor - 1 // after is exclusive, and the message itself belongs to this side
		from.After = &before
	}
	newer := walk{f: f, q: from, limit: limit - limit/2, newest: false}
	b, err := newer.page(ctx)
	if err != nil {
		return nil, err
	}
	slices.Reverse(a.Rows)
	p := &Page{Rows: append(a.Rows, b.Rows...), State: Complete, HasMore: b.HasMore, Next: b.Next, Limit: limit,
		Missing: append(a.Missing, b.Missing...), Requests: a.Requests + b.Requests, Queries: a.Queries + b.Queries}
	if a.State != Complete || b.State != Complete {
		p.State = Partial
	}
	p.bounds()
	return p, nil
}

// cursorOf is the cursor of a message. Where it does not exist it is the lowest
// cursor above those of earlier messages near it: sequences need not rise with the
// IDs, so any place between its neighbours is as good.
func (f *Fetcher) cursorOf(ctx context.Context, q Query) (uint64, error) {
	id := *q.Around
	day := f.Layout.DayOf(id, f.Zone)
	// The message can lie nowhere but in a slice of its ID's day.
	own, err := f.Manifest.Segments(ctx, manifest.SegmentQuery{Conversation: q.Conversation, On: &day, Limit: segmentsAtOnce})
	if err != nil {
		return 0, err
	}
	near, err := f.Manifest.Segments(ctx, manifest.SegmentQuery{Conversation: q.Conversation, Until: &day, Limit: aroundSegments})
	if err != nil {
		return 0, err
	}
	cursor := uint64(0)
	for i, refs := range [][]manifest.SegmentRef{own, near} {
		w := walk{f: f, q: Query{Conversation: q.Conversation, From: q.From}, newest: true}
		for _, ref := range refs {
			if ref.Schema.Role(message.Sequence) < 0 {
				return id, nil // the cursor is the message ID
			}
			w.parts = append(w.parts, w.split(ref)...)
		}
		w.order()
		for _, p := range w.parts {
			rows, err := w.all(ctx, p)
			if err != nil {
				return 0, fmt.Errorf("look for message %d: %w", id, err)
			}
			for _, r := range rows {
				switch {
				case r.MessageID() == id:
					return r.Cursor(), nil
				case r.MessageID() < id:
					cursor = max(cursor, r.Cursor()+1)
				}
			}
			if i > 0 && cursor > 0 {
				break
			}
		}
		if cursor > 0 {
			break
		}
	}
	return cursor, nil
}

// aroundSegments is how many segments before a message's day are looked at for the
// place of one that does not exist.
const aroundSegments = 4

func (p *Page) bounds() {
	for _, r := range p.Rows {
		c := r.Cursor()
		if p.MinCursor == nil || c < *p.MinCursor {
			p.MinCursor = &c
		}
		if p.MaxCursor == nil || c > *p.MaxCursor {
			p.MaxCursor = &c
		}
	}
}
