package integration

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coldtierv1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
	"github.com/coldtier/coldtier/restore/rpc/coldtier/v1/coldtierv1connect"
	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/harness"
)

// told is what readers must be given: of each message the body that they may see.
type told struct {
	mu       sync.Mutex
	messages map[int64][]*toldMessage // by conversation, in the order of sequences
}

type toldMessage struct {
	id, seq uint64
	since   uint64   // step at which it was there
	bodies  []string // all it ever had
	edited  uint64   // step at which the last of them was there
}

// step numbers the changes: what was done before a pass began is in it.
type step struct{ n atomic.Uint64 }

func (s *step) next() uint64 { return s.n.Add(1) }

// readTold reads what is in the tables, and which table each conversation is in.
func readTold(e *harness.Env) (*told, map[int64]string) {
	e.T.Helper()
	all, home := &told{messages: map[int64][]*toldMessage{}}, map[int64]string{}
	for _, table := range e.Tables {
		all.read(e, table, home)
	}
	return all, home
}

func (a *told) read(e *harness.Env, table string, home map[int64]string) {
	e.T.Helper()
	rows, err := e.Warm.QueryContext(e.T.Context(), "SELECT session_id, msg_id, seq, content FROM "+table)
	if err != nil {
		e.T.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var conv int64
		m := &toldMessage{bodies: []string{""}}
		if err := rows.Scan(&conv, &m.id, &m.seq, &m.bodies[0]); err != nil {
			e.T.Fatal(err)
		}
		a.add(conv, m)
		home[conv] = table
	}
	if err := rows.Err(); err != nil {
		e.T.Fatal(err)
	}
}

func (a *told) add(conv int64, m *toldMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := append(a.messages[conv], m)
	slices.SortFunc(list, func(x, y *toldMessage) int { return cmp.Or(cmp.Compare(x.seq, y.seq), cmp.Compare(x.id, y.id)) })
	a.messages[conv] = list
}

// check compares a whole pass, which began at a step, with what it must hold.
func (a *told) check(conv int64, began uint64, got []*coldtierv1.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := 0
	for _, m := range a.messages[conv] {
		if at >= len(got) || got[at].MessageId != m.id {
			if m.since > began {
				continue // it came while the pass ran
			}
			return fmt.Errorf("conversation %d: message %d (sequence %d, %.20q, there since step %d) is missing at place %d of %d in a pass that began at step %d", conv, m.id, m.seq, m.bodies[0], m.since, at, len(got), began)
		}
		body := valueOf(got[at].Columns["content"])
		if i := slices.Index(m.bodies, body); i < 0 || m.edited <= began && i != len(m.bodies)-1 {
			return fmt.Errorf("conversation %d: message %d has the body %d of %d, from %s", conv, m.id, i, len(m.bodies), got[at].Store)
		}
		at++
	}
	if at != len(got) {
		return fmt.Errorf("conversation %d: message %d at place %d of %d is doubled or foreign", conv, got[at].MessageId, at, len(got))
	}
	return nil
}

func valueOf(v *coldtierv1.Value) string {
	if b := v.GetBytes(); b != nil {
		return string(b)
	}
	return v.GetText()
}

// pass reads a conversation from one end to the other.
func pass(ctx context.Context, c coldtierv1connect.ColdHistoryClient, conv int64, newest bool, limit uint32) (all []*coldtierv1.Message, pages int, stores map[coldtierv1.Store]int, err error) {
	id := strconv.FormatInt(conv, 10)
	q := &coldtierv1.FetchRangeRequest{Conversation: &id, Limit: limit, Anchor: &coldtierv1.FetchRangeRequest_After{}}
	if newest {
		q.Anchor = &coldtierv1.FetchRangeRequest_Before{}
	}
	stores = map[coldtierv1.Store]int{}
	for range 2000 {
		r, err := c.FetchRange(ctx, q)
		if err != nil {
			return nil, pages, stores, err
		}
		pages++
		all = append(all, r.Messages...)
		for _, m := range r.Messages {
			stores[m.Store]++
		}
		if r.State == coldtierv1.State_STATE_COMPLETE && !r.HasMore {
			if newest {
				slices.Reverse(all)
			}
			return all, pages, stores, nil
		}
		if newest {
			q.Anchor = &coldtierv1.FetchRangeRequest_Before{Before: r.Next}
		} else {
			q.Anchor = &coldtierv1.FetchRangeRequest_After{After: r.Next}
		}
	}
	return nil, pages, stores, fmt.Errorf("conversation %d: no end after %d pages", conv, pages)
}

// Readers page through whole conversations without stop, in both directions, while
// archive and purge take the rows away below them, while messages are edited (so that the
// purge puts partitions back) and while late ones arrive in days that were purged. No
// pass has a gap, a double or an old body.
func TestPagesOverTheSeam(t *testing.T) {
	t.Parallel()
	for _, partitioned := range []bool{false, true} {
		t.Run(fmt.Sprintf("partitioned=%v", partitioned), func(t *testing.T) {
			t.Parallel()
			seam(t, partitioned)
		})
	}
}

func seam(t *testing.T, partitioned bool) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	e := harness.New(t, harness.Options{Days: 4, Tables: 2, Messages: 800, Partitioned: partitioned, Seed: seed,
		Config: map[string]string{"fetch": "listen: 127.0.0.1:0\nwarm: true\nbudget: 20s\ndrain: 0s"}})
	for _, table := range e.Tables {
		e.SQL("ALTER TABLE " + table + " ADD KEY page (session_id, seq)")
	}
	all, home := readTold(e)
	var convs []int64
	for c, list := range all.messages {
		if len(list) > 8 {
			convs = append(convs, c)
		}
	}
	slices.Sort(convs)
	client := coldtierv1connect.NewColdHistoryClient(http.DefaultClient, e.Serve().URL)

	var now step
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	var passes, pages atomic.Int64
	var mixed atomic.Int64 // passes that read from both sides
	for n := range 4 {
		r := rand.New(rand.NewPCG(seed, uint64(n)+10))
		readers.Go(func() {
			for ctx.Err() == nil {
				conv, began := convs[r.IntN(len(convs))], now.n.Load()
				got, n, stores, err := pass(ctx, client, conv, r.IntN(2) == 0, uint32(3+r.IntN(40)))
				if ctx.Err() != nil {
					return
				}
				if err == nil {
					err = all.check(conv, began, got)
				}
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
					stop()
					return
				}
				passes.Add(1)
				pages.Add(int64(n))
				if len(stores) > 1 {
					mixed.Add(1)
				}
			}
		})
	}
	edit := func() {
		conv := convs[rng.IntN(len(convs))]
		all.mu.Lock()
		m := all.messages[conv][rng.IntN(len(all.messages[conv]))]
		body := fmt.Sprintf("edited %d", rng.Uint64())
		m.bodies = append(m.bodies, body) // readers may see it from now on
		m.edited = 1 << 62
		all.mu.Unlock()
		changed := int64(0)
		for _, table := range e.Tables {
			changed += e.SQL("UPDATE "+table+" SET content = ? WHERE msg_id = ?", []byte(body), m.id)
		}
		all.mu.Lock()
		if changed == 0 { // it is no longer in warm
			m.bodies = m.bodies[:len(m.bodies)-1]
			m.edited = 0
			if len(m.bodies) > 1 {
				m.bodies = m.bodies[len(m.bodies)-1:]
			}
		} else {
			m.edited = now.next()
		}
		all.mu.Unlock()
	}
	late := func() {
		conv := convs[rng.IntN(len(convs))]
		lo, hi := e.Window(e.Days[rng.IntN(len(e.Days))])
		all.mu.Lock()
		seq := all.messages[conv][rng.IntN(len(all.messages[conv]))].seq
		all.mu.Unlock()
		m := &toldMessage{id: lo + rng.Uint64N(hi-lo-1), seq: seq, bodies: []string{"late"}, since: 1 << 62}
		all.add(conv, m)
		e.SQL("INSERT INTO "+home[conv]+" (msg_id, session_id, sender_id, receiver_id, content, client_msg_id, create_time, seq) VALUES (?, ?, 1, 1, ?, '', ?, ?)",
			m.id, conv, []byte("late"), chat.Layout().Time(m.id), seq)
		all.mu.Lock()
		m.since = now.next()
		all.mu.Unlock()
	}
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	for round := 0; round < rounds && ctx.Err() == nil; round++ {
		e.Run("archive")
		for range 3 {
			edit()
		}
		e.Run("purge") // drift and late rows leave something: it is the next round's
		if round < 2 {
			late()
			edit()
		}
	}
	e.Must("archive")
	e.Must("purge")
	before := passes.Load()
	for ctx.Err() == nil && passes.Load() < before+4 { // and when all is over
		time.Sleep(10 * time.Millisecond) // readers tell nobody but by this count
	}
	stop()
	readers.Wait()
	if n := e.Count(); n != 0 {
		t.Errorf("%d messages are left in warm", n)
	}
	t.Logf("%d passes over %d pages, %d of them over the seam", passes.Load(), pages.Load(), mixed.Load())
	if mixed.Load() == 0 && !t.Failed() {
		t.Error("no pass went over the seam")
	}
}
