package fetch

import (
	"context"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore"
)

// delayedRows is a ClickHouse that takes a while.
type delayedRows struct {
	restore.Rows
	by time.Duration
}

func (r delayedRows) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	select {
	case <-time.After(r.by):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return r.Rows.Spans(ctx, spans, s, conversation, limit)
}

// stuckObjects hang from a time on.
type stuckObjects struct {
	restore.Objects
	stuck <-chan struct{}
}

func (o stuckObjects) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	select {
	case <-o.stuck:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	default:
	}
	return o.Objects.ReadRange(ctx, key, off, n)
}

// A ClickHouse that is slower than the bucket, but answers within the budget, is not taken
// for dead: when the bucket hangs afterwards it gives the pages.
func testSlowIsNotDead(t *testing.T, c *cold) {
	stuck := make(chan struct{})
	r := c.rig(t, through{}, func(cfg *restore.Config, d *restore.Deps) {
		cfg.HedgeAfter, cfg.Budget = time.Millisecond, enough
		d.Rows, d.Objects = delayedRows{d.Rows, 100 * time.Millisecond}, stuckObjects{d.Objects, stuck}
	})
	names := c.truth.names()
	for _, name := range names[:12] { // more than either the breaker or the hedge budget bears
		c.complete(t, r, restore.Query{Conversation: []byte(name)})
	}
	if r.metric(t, "hedges_total") == 0 {
		t.Fatal("the bucket was never asked beside ClickHouse")
	}
	close(stuck)
	for _, name := range names[20:23] {
		c.complete(t, r, restore.Query{Conversation: []byte(name)})
	}
}

// complete demands a complete, exact page.
func (c *cold) complete(t *testing.T, r *rig, q restore.Query) *restore.Page {
	t.Helper()
	p, err := r.Fetch(t.Context(), q)
	if err == nil {
		err = c.truth.check(q, p)
	}
	if err != nil {
		t.Fatalf("%s: %v", describe(q), err)
	}
	if p.State != restore.Complete {
		t.Fatalf("%s: %s after %s: %+v", describe(q), p.State, p.Took, p.Missing)
	}
	return p
}

// again demands the same of a rig with a budget that a busy machine may exceed: sooner or later.
func (c *cold) again(t *testing.T, r *rig, q restore.Query) {
	t.Helper()
	if !until(time.Minute, func() bool {
		p, err := r.Fetch(t.Context(), q)
		if err == nil {
			err = c.truth.check(q, p)
		}
		if err != nil {
			t.Fatalf("%s: %v", describe(q), err)
		}
		return p.State == restore.Complete
	}) {
		t.Fatalf("%s stays incomplete", describe(q))
	}
}
