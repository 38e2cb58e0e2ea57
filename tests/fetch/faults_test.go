package fetch

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/tests/late"
	"github.com/coldtier/coldtier/tests/stack"
)

// lines are proxies before the three servers.
type lines struct{ manifest, bucket, rows *stack.Proxy }

func newLines(t testing.TB, c *cold) lines {
	my, s3, ch := c.addrs()
	return lines{stack.NewProxy(t, my), stack.NewProxy(t, s3), stack.NewProxy(t, ch)}
}

func (l lines) all() []*stack.Proxy { return []*stack.Proxy{l.manifest, l.bucket, l.rows} }

func (l lines) through() through {
	return through{mysql: l.manifest.Addr, s3: l.bucket.Addr, clickhouse: l.rows.Addr}
}

func (l lines) sockets(t testing.TB) (n int) {
	for _, p := range l.all() {
		n += sockets(t, p.Addr)
	}
	return n
}

// slow delays a request and its answer by 300 ms together.
const slow = 150 * time.Millisecond

// resets breaks connections every few milliseconds until it is told to end.
func resets(t *testing.T, rng *rand.Rand, lines ...*stack.Proxy) (end func()) {
	t.Helper()
	rng = rand.New(rand.NewPCG(rng.Uint64(), 5)) // the caller's is in use meanwhile
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(5+rng.IntN(40)) * time.Millisecond):
				lines[rng.IntN(len(lines))].Reset()
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// Whatever the stores do, each call is answered within its budget with a page that has no
// gap and says what is missing; and when the stores are well again all is as before.
func testFaults(t *testing.T, c *cold) {
	rng := random(t)
	watch := late.New(t)
	stall := func(ps ...*stack.Proxy) func() {
		for _, p := range ps {
			p.Stall()
		}
		return func() {}
	}
	delay := func(p *stack.Proxy) func() {
		p.Latency(slow)
		return func() {}
	}
	type fault struct {
		name  string
		begin func(t *testing.T, rng *rand.Rand, l lines) (end func())
		share float64 // of answers that must be complete even so
	}
	faults := []fault{
		{"bucket hung", func(_ *testing.T, _ *rand.Rand, l lines) func() { return stall(l.bucket) }, 0.3},
		{"clickhouse hung", func(_ *testing.T, _ *rand.Rand, l lines) func() { return stall(l.rows) }, 0.1},
		{"both hung", func(_ *testing.T, _ *rand.Rand, l lines) func() { return stall(l.bucket, l.rows) }, 0},
		{"manifest hung", func(_ *testing.T, _ *rand.Rand, l lines) func() { return stall(l.manifest) }, 0},
		{"bucket slow", func(_ *testing.T, _ *rand.Rand, l lines) func() { return delay(l.bucket) }, 0.3},
		{"clickhouse slow", func(_ *testing.T, _ *rand.Rand, l lines) func() { return delay(l.rows) }, 0.2},
		{"manifest slow", func(_ *testing.T, _ *rand.Rand, l lines) func() { return delay(l.manifest) }, 0},
		{"bucket resetting", func(t *testing.T, r *rand.Rand, l lines) func() { return resets(t, r, l.bucket) }, 0.3},
		{"clickhouse resetting", func(t *testing.T, r *rand.Rand, l lines) func() { return resets(t, r, l.rows) }, 0.2},
		{"manifest resetting", func(t *testing.T, r *rand.Rand, l lines) func() { return resets(t, r, l.manifest) }, 0},
	}
	var g errgroup.Group
	g.SetLimit(4) // most of it is waiting
	if os.Getenv("COLDTIER_TEST_CALLS") != "" {
		g.SetLimit(1)
	}
	for _, fault := range faults {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 4))
		g.Go(func() error {
			t.Run(fault.name, func(t *testing.T) {
				labelled(t, func(goroutines func() int) {
					l := newLines(t, c)
					r := c.rig(t, l.through(), func(cfg *restore.Config, _ *restore.Deps) { cfg.Cache = 1 << 20 }) // a part of the data
					f := &faulty{rig: r, late: watch, rng: rng, names: c.truth.names()}
					f.judge(t, f.storm(t, callers), 0) // while all is well
					f.quiet(t, l)
					before := goroutines()
					end := fault.begin(t, rng, l)
					f.judge(t, f.storm(t, number(t, 80)), fault.share)
					// What hangs is given up at the fill time-out. New connections may be more
					// than there were, with a goroutine or two each.
					if most := before + 32; !until(filled, func() bool { return f.metric(t, "filling") == 0 && goroutines() <= most }) {
						t.Errorf("%d goroutines, %d before, and %v parts are being read", goroutines(), before, f.metric(t, "filling"))
					}
					end()
					for _, p := range l.all() {
						p.Heal()
					}
					f.healed(t)
					f.quiet(t, l)
					r.close(t)
					if !until(closed, func() bool { return goroutines() == 0 && l.sockets(t) == 0 }) {
						t.Errorf("after Close %d goroutines and %d connections are left", goroutines(), l.sockets(t))
					}
				})
			})
			return nil
		})
	}
	_ = g.Wait()
}

// faulty is a rig whose lines break.
type faulty struct {
	*rig
	late  *late.Watch
	rng   *rand.Rand
	names []string
}

// callers is how many call at once.
const callers = 16

// call is one call of a storm: run makes it and says what was answered, and what of that is
// wrong.
type call struct {
	text  string
	limit time.Duration
	run   func(ctx context.Context) (state restore.State, wrong error)
}

// answered is how a call ended.
type answered struct {
	call
	state      restore.State
	wrong      error
	begun, end late.Moment
}

// calls are n random ones.
func (f *faulty) calls(n int) chan call {
	out := make(chan call, n)
	for range n {
		q := f.c.truth.ask(f.rng, f.names)
		c := call{limit: budget}
		switch f.rng.IntN(16) {
		case 0:
			q.From = restore.FromBucket
		case 1:
			q.From = restore.FromClickHouse
		case 2:
			q.Budget = time.Duration(20+f.rng.IntN(700)) * time.Millisecond
			c.limit = q.Budget
		}
		c.text = describe(q)
		switch f.rng.IntN(8) {
		case 0:
			ids := f.c.truth.someIDs(f.rng, string(q.Conversation))
			c.text = fmt.Sprintf("conversation %s messages %v", q.Conversation, ids)
			c.run = func(ctx context.Context) (restore.State, error) {
				return f.messages(ctx, restore.MessagesQuery{Conversation: q.Conversation, IDs: ids, Budget: q.Budget})
			}
		case 1:
			c.text += ", as a stream"
			c.run = func(ctx context.Context) (restore.State, error) { return f.stream(ctx, q) }
		default:
			c.run = func(ctx context.Context) (restore.State, error) {
				p, err := f.Fetch(ctx, q)
				if err != nil {
					return "", err
				}
				return p.State, f.c.truth.check(q, p)
			}
		}
		out <- c
	}
	close(out)
	return out
}

// stream puts a stream's batches together.
func (f *faulty) stream(ctx context.Context, q restore.Query) (restore.State, error) {
	var rows []restore.Row
	var last *restore.Page
	err := f.Stream(ctx, q, func(p *restore.Page) error {
		rows, last = append(rows, p.Rows...), p
		return nil
	})
	if err != nil {
		return "", err
	}
	whole := *last
	whole.Rows = rows
	return whole.State, f.c.truth.check(q, &whole)
}

// someIDs are message IDs of a conversation, and some that it does not have.
func (all truth) someIDs(rng *rand.Rand, name string) (ids []uint64) {
	list := all[name]
	for range 1 + rng.IntN(8) {
		id := rng.Uint64N(1 << 60)
		if len(list) > 0 {
			id = list[rng.IntN(len(list))].id ^ rng.Uint64N(4)>>1<<20
		}
		ids = append(ids, id)
	}
	return ids
}

// messages asks for messages by their IDs: what is given is exact, and what is said to be
// absent is.
func (f *faulty) messages(ctx context.Context, q restore.MessagesQuery) (restore.State, error) {
	a, err := f.Messages(ctx, q)
	if err != nil {
		return "", err
	}
	want := map[uint64]*msg{}
	for _, id := range q.IDs {
		want[id] = nil
		for _, m := range f.c.truth[string(q.Conversation)] {
			if m.id == id {
				want[id] = &m
			}
		}
	}
	for _, row := range a.Rows {
		m := want[row.MessageID()]
		if m == nil {
			return a.State, fmt.Errorf("message %d is given twice, or was not asked for", row.MessageID())
		}
		if err := m.same(rowOf(row)); err != nil {
			return a.State, err
		}
		delete(want, m.id)
	}
	for _, id := range a.Absent {
		if m, ok := want[id]; !ok || m != nil {
			return a.State, fmt.Errorf("message %d is said to be absent, and is not", id)
		}
		delete(want, id)
	}
	for _, id := range a.Unknown {
		delete(want, id)
	}
	if len(want) > 0 || (len(a.Unknown) > 0) != (a.State != restore.Complete) || (len(a.Missing) > 0) != (a.State != restore.Complete) ||
		(a.RetryAfter > 0) != (a.State != restore.Complete) {
		return a.State, fmt.Errorf("%d rows, %d absent, %d unknown, missing %+v, retry after %s; nothing is said of %v", len(a.Rows), len(a.Absent), len(a.Unknown), a.Missing, a.RetryAfter, want)
	}
	return a.State, nil
}

// storm calls n times, several at once.
func (f *faulty) storm(t *testing.T, n int) []answered { return together(t, f.calls(n)) }

// together makes calls, several at once, and checks each answer.
func together(t *testing.T, calls <-chan call) []answered {
	var wg sync.WaitGroup
	all := make([][]answered, callers)
	for i := range all {
		wg.Go(func() {
			for c := range calls {
				a := answered{call: c, begun: late.Now()}
				a.state, a.wrong = c.run(t.Context())
				a.end = late.At(time.Now())
				all[i] = append(all[i], a)
			}
		})
	}
	wg.Wait()
	return slices.Concat(all...)
}

// grace is by how much a call may exceed its budget, on a machine that is on time.
const grace = 20 * time.Millisecond

// judge demands that each answer is right and in time, and that a share of those is complete
// of which the machine had no great part.
func (f *faulty) judge(t *testing.T, all []answered, share float64) {
	t.Helper()
	states, overs := map[restore.State]int{}, 0
	prompt, complete := 0, 0
	most := time.Duration(math.MinInt64)
	for _, a := range all {
		if a.wrong != nil {
			t.Errorf("%s: %s %v", a.text, a.state, a.wrong)
			continue
		}
		states[a.state]++
		excuse := f.late.Between(a.begun, a.end)
		if excuse < a.limit/4 {
			if prompt++; a.state == restore.Complete {
				complete++
			}
		}
		over := a.end.Sub(a.begun.Time) - a.limit
		most = max(most, over)
		if over <= grace {
			continue
		}
		overs++
		if over > grace+excuse {
			t.Errorf("%s: %s over its budget of %s (state %s); the machine's share is %s", a.text, over, a.limit, a.state, excuse)
		}
	}
	t.Logf("%s: %d calls: %v; of %d on time %d complete; %d more than %s over their budget; most %s", t.Name(), len(all), states, prompt, complete, overs, grace, most)
	if !testing.Short() && prompt >= callers && float64(complete) < share*float64(prompt) { // of few answers a share says nothing
		t.Errorf("%d of %d answers are complete, want a share of %.2f", complete, prompt, share)
	}
}

// healed demands that pages become complete and exact.
func (f *faulty) healed(t *testing.T) {
	t.Helper()
	most, begun := 0, time.Now()
	for i := range 30 {
		q := f.c.truth.ask(f.rng, f.names)
		if f.Rows != nil {
			q.From = []restore.Store{restore.FromAny, restore.FromBucket, restore.FromClickHouse}[i%3]
		}
		tries := 0
		for {
			tries++
			p, err := f.Fetch(t.Context(), q)
			if err == nil {
				err = f.c.truth.check(q, p)
			}
			if err != nil {
				t.Errorf("after the fault: %s: %v", describe(q), err)
				return
			}
			if p.State == restore.Complete {
				break
			}
			if tries > 12 {
				t.Errorf("after the fault: %s: still %s at try %d: %+v", describe(q), p.State, tries, p.Missing)
				return
			}
			time.Sleep(p.RetryAfter) // as it asks for
		}
		most = max(most, tries)
	}
	t.Logf("%s: healed in %s, with at most %d tries of a page", t.Name(), time.Since(begun).Round(time.Millisecond), most)
}

// quiet demands that what goes on in the background ends by the fill time-out.
func (f *faulty) quiet(t *testing.T, l lines) {
	t.Helper()
	if !until(filled, func() bool { return f.metric(t, "filling") == 0 && f.metric(t, "in_flight") == 0 }) {
		t.Errorf("%v parts are still being read", f.metric(t, "filling"))
	}
	// What the pools keep.
	for _, p := range []struct {
		name string
		line *stack.Proxy
		most int
	}{{"the manifest", l.manifest, 32}, {"ClickHouse", l.rows, 8}, {"the bucket", l.bucket, 256}} {
		if !until(closed, func() bool { return sockets(t, p.line.Addr) <= p.most }) {
			t.Errorf("%d connections to %s are open, want at most %d", sockets(t, p.line.Addr), p.name, p.most)
		}
	}
}

func describe(q restore.Query) string {
	return fmt.Sprintf("conversation %s before %s after %s oldest %v around %s limit %d from %s", q.Conversation, show(q.Before), show(q.After), q.Oldest, show(q.Around), q.Limit, q.From)
}
