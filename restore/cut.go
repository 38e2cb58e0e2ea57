package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
)

func (w *walk) missPart(p part, ctx context.Context, err error) { //nolint:revive // the context is only looked at
	m := Missing{Slice: p.ref.Slice, Key: p.ref.Key, MinCursor: p.min, MaxCursor: p.max, Cause: causeOf(err)}
	switch m.Cause {
	case CauseBudget:
		m.Reason = "it was not there in time"
	case CauseLost:
		if errors.Is(err, errUnwanted) {
			m.Reason = "ClickHouse does not have the rows of a verified copy (was it emptied, replaced or set back?): see coldtier verify"
			break
		}
		m.Reason = "the object is missing from the bucket, and ClickHouse does not give its rows"
	case CauseDamaged:
		m.Reason = "the object is damaged, and ClickHouse does not give its rows"
	case CauseArchived:
		m.Reason = "the object is in an archive storage class, and ClickHouse does not give its rows"
	default:
		m.Reason = plain(ctx, err)
	}
	w.miss(m)
}

// causeOf tells why a part could not be read.
func causeOf(err error) Cause {
	// What the bucket has lost or cannot give now, ClickHouse may have: it is missing for
	// good only if that was asked and said no, or is not to be asked.
	if errors.Is(err, errNotAsked) {
		return CauseStores
	}
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, errUnwanted) && errors.Is(err, errLacks): // the one store that may be asked lacks it
		return CauseLost
	case errors.Is(err, segment.ErrCorrupt), errors.Is(err, ErrDamaged):
		return CauseDamaged
	case errors.Is(err, ErrArchived):
		return CauseArchived
	case errors.Is(err, errBusy):
		return CauseBusy
	case errors.Is(err, errDead):
		return CauseStores
	case errors.Is(err, errBudget), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return CauseBudget
	}
	return CauseStores
}

// plain is an error in the words of an answer.
func plain(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "it was not there in time"
	}
	return err.Error()
}

// cut makes the page of what is loaded. Rows of one cursor are never parted: a page
// that ends inside of such a run takes all of it, since its next page begins behind
// that cursor.
func (w *walk) cut() *Page {
	n := w.safe()
	rows := w.rows[:n]
	p := &Page{State: Complete, Limit: w.limit, Requests: int(w.count.bucket.Load()), Queries: int(w.count.rows.Load())}
	end := min(w.limit, n)
	if full := w.full(); full < end {
		end, p.Cut = full, true
	}
	for end > 0 && end < n && rows[end].Cursor() == rows[end-1].Cursor() {
		end++
	}
	p.Rows = slices.Clone(rows[:end])
	_, unread := w.edge()
	p.HasMore = end < n || unread || !w.looked || !w.warm.read()
	if len(w.missing) > 0 && end < w.limit && !p.Cut {
		p.Missing = w.missing
		p.State, p.RetryAfter = stateOf(w.missing, end)
		if w.given && p.State == Pending {
			p.State = Partial
		}
	}
	p.bounds(w.anchor())
	if end > 0 {
		last := p.Rows[end-1].Cursor()
		p.Next = &last
	} else {
		p.Next = w.anchor()
	}
	return p
}

func (w *walk) anchor() *uint64 { return cmp.Or(w.q.Before, w.q.After) }

// retryAfter is after how long to ask again.
func (c Cause) retryAfter() time.Duration {
	switch c {
	case CauseBusy, CauseWarm:
		return 100 * time.Millisecond
	case CauseBudget:
		return 250 * time.Millisecond
	case CauseLost, CauseDamaged: // until somebody has restored the object
		return 10 * time.Minute
	case CauseArchived:
		return time.Hour
	}
	return time.Second // by then a circuit breaker tries the store again
}

// stateOf is the state of a page that ends before something missing.
func stateOf(missing []Missing, rows int) (State, time.Duration) {
	state, after, fetching := Partial, time.Duration(0), false
	for _, m := range missing {
		after = max(after, m.Cause.retryAfter())
		switch m.Cause {
		case CauseArchived:
			state = Thawing
		case CauseLost, CauseDamaged:
		default:
			fetching = true
		}
	}
	if state != Thawing && rows == 0 && fetching {
		state = Pending
	}
	return state, after
}

// bounds sets the lowest and highest cursor; those of an empty page are the anchor.
func (p *Page) bounds(anchor *uint64) {
	p.MinCursor, p.MaxCursor = anchor, anchor
	for i, r := range p.Rows {
		c := r.Cursor()
		if i == 0 || c < *p.MinCursor {
			p.MinCursor = &c
		}
		if i == 0 || c > *p.MaxCursor {
			p.MaxCursor = &c
		}
	}
}

// tenants refuses rows of another tenant than the only one that may be given.
func tenants(rows []Row, only *string) error {
	if only == nil {
		return nil
	}
	for _, r := range rows {
		c := r.Batch.Schema().Role(message.TenantID)
		if c < 0 {
			return fmt.Errorf("%w: the tables have no column with the role tenant_id, so that nothing tells whose it is", ErrTenant)
		}
		if string(r.Batch.Value(c, r.Index)) != *only {
			return ErrTenant
		}
	}
	return nil
}
