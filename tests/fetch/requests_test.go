package fetch

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coldtier/coldtier/restore"
)

// A cold page costs one ranged GET for each row group that it reads: no listing, no HEAD, no
// footer. The same page again costs nothing.
func testRequests(t *testing.T, c *cold) {
	rng := random(t)
	s3 := newCounter(t, c.S3.Endpoint)
	r := c.rig(t, through{s3: s3.addr}, withoutRows)
	names := c.truth.names()
	for range 40 {
		q := c.truth.ask(rng, names)
		if q.Around != nil && !slices.ContainsFunc(c.truth[string(q.Conversation)], func(m msg) bool { return m.id == *q.Around }) {
			continue // to find a place for it costs a few more
		}
		r.start(t, withoutRows)
		s3.take()
		p := c.complete(t, r, q)
		cold := s3.take()
		if err := c.ranged(string(q.Conversation), cold); err != nil {
			t.Errorf("%s: %v", describe(q), err)
		}
		if len(cold) != p.Requests {
			t.Errorf("%s: %d requests, it says %d", describe(q), len(cold), p.Requests)
		}
		if len(p.Rows) > 0 && len(cold) == 0 {
			t.Fatalf("%s: %d messages, and the bucket was not asked", describe(q), len(p.Rows))
		}
		if p := c.complete(t, r, q); p.Requests != 0 || len(s3.take()) > 0 {
			t.Errorf("%s: %d requests for the same page again", describe(q), p.Requests)
		}
	}
}

// One statement of ClickHouse is enough for a page, whose rows are then not asked for again:
// neither it nor the bucket.
func testQueries(t *testing.T, c *cold) {
	rng := random(t)
	s3 := newCounter(t, c.S3.Endpoint)
	var statements atomic.Int64
	usual := func(cfg *restore.Config, d *restore.Deps) {
		cfg.Budget, cfg.HedgeAfter = enough, 10*time.Second // the bucket has no part in it
		d.Rows = countedRows{d.Rows, &statements}
	}
	r := c.rig(t, through{s3: s3.addr}, usual)
	for _, name := range c.truth.names()[:20] {
		r.start(t, usual)
		statements.Store(0)
		q := restore.Query{Conversation: []byte(name), Limit: 1 + rng.IntN(30)}
		p := c.complete(t, r, q)
		// Each statement reads as many parts as are expected to fill the page: where days
		// overlap it may be one more.
		if n := statements.Load(); n < 1 || n > 2 || int(n) != p.Queries {
			t.Errorf("%s: %d statements, it says %d", describe(q), n, p.Queries)
		}
		statements.Store(0)
		p = c.complete(t, r, q)
		if n := statements.Load(); n != 0 || p.Queries != 0 || len(s3.take()) > 0 {
			t.Errorf("%s: %d statements for the same page again", describe(q), n)
		}
	}
}

// Who reads back finds the next page read already. (From the fifth page on the conversation
// is hot, and its newest messages are kept.)
func testReadAhead(t *testing.T, c *cold) {
	ahead := func(cfg *restore.Config, d *restore.Deps) { cfg.Ahead, cfg.Budget, d.Rows = true, enough, nil }
	r := c.rig(t, through{}, ahead)
	found := 0
	for _, name := range c.truth.names()[:10] {
		r.start(t, ahead)
		q := restore.Query{Conversation: []byte(name), Limit: 15}
		for page := 1; ; page++ {
			p := c.complete(t, r, q)
			if page > 1 && p.Requests > 0 {
				t.Fatalf("%s: %d requests for page %d, which was to be read ahead", describe(q), p.Requests, page)
			}
			if !p.HasMore || page == 4 {
				break
			}
			if !until(time.Minute, func() bool { return r.metric(t, "prefetched_total") >= float64(page) && r.metric(t, "filling") == 0 }) {
				t.Fatalf("%s: nothing was read ahead after page %d", describe(q), page)
			}
			found++
			q.Before = p.Next
		}
	}
	if found == 0 {
		t.Fatal("no conversation has two pages")
	}
}
