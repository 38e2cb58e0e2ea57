package restore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/guard"
)

// chaos makes each read of a store quick, slow, too slow or a failure, as a seed has it.
type chaos struct {
	mu    sync.Mutex
	rng   *rand.Rand
	rates [4]int // of ten: quick, slow, hung until it is given up, failed; what is left is quick
}

var errChaos = errors.New("the store has a bad day")

func (c *chaos) hit(ctx context.Context) error {
	c.mu.Lock()
	n, wait := c.rng.IntN(10), time.Duration(c.rng.IntN(20))*time.Millisecond
	c.mu.Unlock()
	for kind, rate := range c.rates {
		if n -= rate; n >= 0 {
			continue
		}
		switch kind {
		case 1:
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case 2:
			<-ctx.Done()
			return context.Cause(ctx)
		case 3:
			return errChaos
		}
		return nil
	}
	return nil
}

// troubled is a bucket in such a state.
type troubled struct {
	restore.Objects
	c *chaos
}

func (o troubled) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := o.c.hit(ctx); err != nil {
		return nil, err
	}
	return o.Objects.ReadRange(ctx, key, off, n)
}

// Whatever the segments and the order in which they arrive, whatever is too slow or
// fails: every page is contiguous, says so if it is not complete, and all pages together
// are the exact history, without a gap, without a double, in order.
func TestPagesAreTheExactHistoryInTrouble(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 7))
	for round := range 3 {
		c := newCold(t, rng, 3+rng.IntN(12), 50+rng.IntN(300), 1024+rng.IntN(4096))
		rows, bucket := &chaos{rng: rand.New(rand.NewPCG(seed, 8)), rates: [4]int{4, 3, 1, 2}}, &chaos{rng: rand.New(rand.NewPCG(seed, 9)), rates: [4]int{5, 3, 1, 1}}
		if round == 1 {
			rows.rates = [4]int{0, 0, 9, 1} // ClickHouse is as good as dead
		}
		c.rows.hook = rows.hit
		f := c.fetcher(func(cfg *restore.Config, d *restore.Deps) {
			cfg.Budget, cfg.HedgeAfter, cfg.FillAfter, cfg.Ahead = 15*time.Millisecond, 4*time.Millisecond, 60*time.Millisecond, round == 2
			d.Objects = troubled{d.Objects, bucket}
		})
		partial := 0
		for _, newest := range []bool{true, false} {
			got, some := c.patiently(f, newest, 1+rng.IntN(60))
			partial += some
			want := c.all
			if newest {
				want = slices.Clone(c.all)
				slices.Reverse(want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("seed %d, round %d, newest %v: %d messages, want %d", seed, round, newest, len(got), len(want))
			}
		}
		t.Logf("round %d: %d messages, %d pages were not complete", round, len(c.all), partial)
	}
}

// patiently reads the conversation to its end as a caller would: from Next, again and
// again.
func (c *cold) patiently(f *restore.Fetcher, newest bool, limit int) (got []row, partial int) {
	c.t.Helper()
	q := restore.Query{Conversation: []byte(conversation), Limit: limit, Oldest: !newest}
	for range 5000 {
		p, err := f.Fetch(c.t.Context(), q)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, r := range p.Rows {
			got = append(got, row{r.MessageID(), r.Cursor()})
		}
		switch {
		case p.State == restore.Complete && !p.HasMore:
			return got, partial
		case p.State == restore.Complete && len(p.Rows) < limit:
			c.t.Fatalf("a complete page of %d of %d messages has more", len(p.Rows), limit)
		case p.State != restore.Complete:
			partial++
			if len(p.Missing) == 0 || p.RetryAfter <= 0 || !p.HasMore || (p.State == restore.Pending) != (len(p.Rows) == 0) {
				c.t.Fatalf("a page that is not complete says %+v", p)
			}
		}
		if p.Next == nil {
			if len(p.Rows) > 0 {
				c.t.Fatalf("no way on from %+v", p)
			}
			continue
		}
		if newest {
			q.Before = p.Next
		} else {
			q.After, q.Oldest = p.Next, false
		}
	}
	c.t.Fatal("5000 pages, and no end")
	return nil, 0
}

// What came too late for one page is there for the next: each part is read once.
func TestLateReadsServeTheNextCall(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(11, 11)), 1, 40, 1<<20)
	gate, begun := make(chan struct{}), make(chan struct{}, 100)
	c.rows.hook = func(ctx context.Context) error {
		begun <- struct{}{}
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	f := c.fetcher(func(cfg *restore.Config, d *restore.Deps) {
		cfg.Budget, cfg.HedgeAfter, cfg.FillAfter = 20*time.Millisecond, 20*time.Millisecond, time.Minute
		d.Objects = troubled{d.Objects, &chaos{rng: rand.New(rand.NewPCG(1, 1)), rates: [4]int{0, 0, 10, 0}}}
	})
	q := restore.Query{Conversation: []byte(conversation)}
	for range 5 {
		if p, err := f.Fetch(t.Context(), q); err != nil || p.State != restore.Pending || p.Missing[0].Cause == "" {
			t.Fatalf("while the stores hang the page is %+v, %v", p, err)
		}
	}
	close(gate)
	for {
		p, err := f.Fetch(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if p.State == restore.Complete {
			break
		}
	}
	if n := len(begun); n != 1 {
		t.Errorf("ClickHouse was asked %d times for one part", n)
	}
	if p, err := f.Fetch(t.Context(), q); err != nil || p.Queries != 0 || p.Requests != 0 {
		t.Errorf("what is kept was read again: %+v, %v", p, err)
	}
}

// What is cached never hides what has become live since, on no server: the boundary and
// the pages agree at each moment.
func TestNewDaysAreSeenAtOnce(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(15, 15)), 1, 30, 1<<20)
	var servers []*restore.Fetcher
	for range 2 {
		servers = append(servers, c.fetcher(func(cfg *restore.Config, _ *restore.Deps) { cfg.Ahead = true }))
	}
	seq := uint64(1000)
	for day := 2; day < 14; day++ {
		for range 8 { // until it is hot and all is cached
			for _, f := range servers {
				if _, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		d := snowflake.MakeDay(2026, 3, day)
		lo, _, err := layout.Window(d, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		seq++
		c.commit(d, []row{{lo + 5, seq}}, 1<<20)
		for i, f := range servers {
			p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation)})
			if err != nil || len(p.Rows) == 0 || p.Rows[0].Cursor() != seq {
				t.Fatalf("server %d does not see day %s: %+v, %v", i, d, p, err)
			}
			b, err := f.Boundaries(t.Context(), [][]byte{[]byte(conversation)}, 0)
			if err != nil || b[0].ColdMax == nil || *b[0].ColdMax != seq {
				t.Fatalf("server %d: the boundary on day %s is %+v, %v", i, d, b, err)
			}
		}
	}
}

// frozen is a bucket whose objects lie in an archive storage class.
type frozen struct{}

func (frozen) ReadRange(context.Context, string, int64, int64) ([]byte, error) {
	return nil, fmt.Errorf("get: %w", restore.ErrArchived)
}

// What lies in an archive storage class is said to, unless ClickHouse has it.
func TestArchivedObjects(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(17, 17)), 2, 30, 1<<20)
	for _, rows := range []bool{true, false} {
		f := c.fetcher(func(_ *restore.Config, d *restore.Deps) {
			d.Objects = frozen{}
			if !rows {
				d.Rows = nil
			}
		})
		p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation)})
		switch {
		case err != nil:
			t.Fatal(err)
		case rows && (p.State != restore.Complete || len(p.Rows) != 20):
			t.Errorf("with ClickHouse the page is %s with %d messages", p.State, len(p.Rows))
		case !rows && (p.State != restore.Thawing || len(p.Rows) != 0 || p.Missing[0].Cause != restore.CauseArchived || p.RetryAfter < time.Minute || !p.HasMore):
			t.Errorf("without ClickHouse the page is %+v", p)
		}
	}
}

// Above a limit the answer is PENDING at once, with nothing read.
func TestLimits(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(18, 18)), 1, 30, 1<<20)
	gate, inside := make(chan struct{}), make(chan struct{}, 9)
	c.rows.hook = func(context.Context) error {
		inside <- struct{}{}
		<-gate
		return nil
	}
	f := c.fetcher(func(cfg *restore.Config, _ *restore.Deps) {
		cfg.Limits = guard.LimitsConfig{Process: 9, Tenant: 9, Conversation: 1}
		cfg.HedgeAfter = time.Minute
	})
	first := make(chan *restore.Page, 1)
	go func() {
		p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation)})
		if err != nil {
			t.Error(err)
		}
		first <- p
	}()
	<-inside
	p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation)})
	if err != nil || p.State != restore.Pending || p.Missing[0].Cause != restore.CauseBusy || p.RetryAfter <= 0 {
		t.Errorf("beyond the limit: %+v, %v", p, err)
	}
	m, err := f.Messages(t.Context(), restore.MessagesQuery{Conversation: []byte(conversation), IDs: []uint64{7}})
	if err != nil || m.State != restore.Pending || len(m.Unknown) != 1 || len(m.Absent) != 0 {
		t.Errorf("beyond the limit, by ID: %+v, %v", m, err)
	}
	close(gate)
	if p := <-first; p == nil || p.State != restore.Complete {
		t.Errorf("the one within it: %+v", p)
	}
}
