package restore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore"
)

// An ID older than everything is before everything, also where the cursor is a sequence.
func TestAroundAnIDOlderThanAll(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(31, 31)), 3, 90, 1<<20)
	for _, id := range []uint64{1, 30, 400} { // the sequences are such numbers
		p, err := c.fetcher().Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Around: &id, Limit: 10})
		if err != nil || p.State != restore.Complete {
			t.Fatalf("%+v, %v", p, err)
		}
		var got []row
		for _, r := range p.Rows {
			got = append(got, row{r.MessageID(), r.Cursor()})
		}
		if len(got) < 5 || !slices.Equal(got, c.all[:len(got)]) || p.HasOlder {
			t.Errorf("around ID %d: %v", id, got)
		}
	}
}

// What the bucket has lost is not lost as long as ClickHouse has not said no.
func TestLostOnlyIfBothSaySo(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(32, 32)), 1, 20, 1<<20)
	if err := c.bucket.Delete(t.Context(), c.keys[0]); err != nil {
		t.Fatal(err)
	}
	cause := func() restore.Cause {
		t.Helper()
		p, err := c.fetcher().Fetch(t.Context(), restore.Query{Conversation: []byte(conversation)})
		if err != nil || len(p.Missing) != 1 {
			t.Fatalf("%+v, %v", p, err)
		}
		return p.Missing[0].Cause
	}
	c.rows.err = errors.New("connection refused")
	if got := cause(); got != restore.CauseStores {
		t.Errorf("while ClickHouse is away it is %s", got)
	}
	c.rows.err = nil
	for id, b := range c.rows.copies {
		c.rows.copies[id] = message.NewBatch(b.Schema())
	}
	if got := cause(); got != restore.CauseLost {
		t.Errorf("when ClickHouse has nothing either it is %s", got)
	}
}

// With ClickHouse hung and the hedge budget spent, pages still come, from the bucket, and
// soon without waiting for ClickHouse. With both hung answers come at once in the end.
func TestPagesInAnOutage(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(33, 33)), 80, 400, 1<<20)
	c.rows.hook = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	objects := gated{shut: make(chan struct{})}
	f := c.fetcher(func(cfg *restore.Config, d *restore.Deps) {
		objects.Objects = d.Objects
		d.Objects = &objects
		cfg.Budget, cfg.HedgeAfter, cfg.FillAfter = 600*time.Millisecond, 5*time.Millisecond, 1200*time.Millisecond
	})
	if got, p := c.pages(f, restore.FromAny, true, 3); !slices.Equal(got, c.want(true)) {
		t.Fatalf("%d messages of %d come while ClickHouse hangs, %s %+v", len(got), len(c.all), p.State, p.Missing)
	}
	p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Limit: 7})
	if err != nil || p.State != restore.Complete || p.Queries > 1 {
		t.Errorf("%s after %d queries of a ClickHouse that is known to hang: %v", p.State, p.Queries, err)
	}
	close(objects.shut)
	cold := restore.Query{Conversation: []byte(conversation), Limit: 3, From: restore.FromBucket} // which is not kept
	for range 30 {
		p, err := f.Fetch(t.Context(), cold)
		if err != nil || p.State != restore.Pending {
			t.Fatalf("with both hung the page is %+v, %v", p, err)
		}
		if p.Missing[0].Cause == restore.CauseStores && p.Took < 300*time.Millisecond {
			return
		}
	}
	t.Error("with both hung every page waits for its whole budget")
}

// gated is a bucket that can be shut.
type gated struct {
	restore.Objects
	shut chan struct{}
}

func (g *gated) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	select {
	case <-g.shut:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	default:
		return g.Objects.ReadRange(ctx, key, off, n)
	}
}
