package chat

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// Config says what to invent.
type Config struct {
	Seed          uint64
	From          snowflake.Day // first day (UTC)
	Days          int           // 1 unless set
	Messages      int           // in all, spread evenly over the days
	Conversations int           // how many there are; 0: as many as make the usual number of messages in each
}

// Generator invents chat.
type Generator struct{ c Config }

// New makes a generator.
func New(c Config) (*Generator, error) {
	if c.Days == 0 {
		c.Days = 1
	}
	if c.Messages < 0 || c.Days < 0 || c.Conversations < 0 {
		return nil, errors.New("generator: messages, days and conversations are at least 0")
	}
	if c.Conversations == 0 {
		c.Conversations = max(20, c.Messages/c.Days/3)
	}
	for _, d := range []snowflake.Day{c.From, c.From.Add(c.Days - 1)} {
		if _, _, err := Layout().Window(d, time.UTC); err != nil {
			return nil, fmt.Errorf("generator: %w", err)
		}
	}
	return &Generator{c}, nil
}

// Days are the days of the configuration.
func (g *Generator) Days() []snowflake.Day {
	days := make([]snowflake.Day, g.c.Days)
	for i := range days {
		days[i] = g.c.From.Add(i)
	}
	return days
}

// knot is a point of a cumulative distribution: a share q of the values is at most v.
type knot struct{ q, v float64 }

var (
	// The first quarter is single; 1.5 rounds to 2.
	perDayKnots = []knot{{0.25, 1.5}, {0.5, 4}, {0.9, 18}, {0.99, 62}, {0.999, 200}, {1, 830}}
	bodyKnots   = []knot{{0.01, 1}, {0.1, 25}, {0.5, 160}, {0.9, 1300}, {0.99, 10000}, {0.999, 30000}, {1, 205000}}
)

// draw is a value of the distribution, interpolated on a logarithmic scale; below the first knot it is low.
func draw(r *rand.Rand, knots []knot, low int) int {
	u := r.Float64()
	if u < knots[0].q {
		return low
	}
	i := 1
	for knots[i].q < u {
		i++
	}
	a, b := knots[i-1], knots[i]
	return int(math.Round(a.v * math.Pow(b.v/a.v, (u-a.q)/(b.q-a.q))))
}

// stub is a message of a day before it has a body.
type stub struct {
	ms   uint32 // since midnight
	conv uint32
	seq  uint64
}

const dayMillis = 24 * 60 * 60 * 1000

// Each invents the messages, day by day. A day's stubs (16 bytes a message) are the
// memory it needs.
func (g *Generator) Each(fn func(*Message) error) error {
	r := rand.New(rand.NewPCG(g.c.Seed, 0xC01D))
	next := make([]uint64, g.c.Conversations) // next sequence number of each conversation
	for i := range next {
		next[i] = 1 + r.Uint64N(5000)
	}
	w := writer{g: g, r: r}
	for i, d := range g.Days() {
		n := g.c.Messages / g.c.Days
		if i < g.c.Messages%g.c.Days {
			n++
		}
		stubs := g.plan(r, n)
		number(r, stubs, next)
		for _, s := range stubs {
			if err := fn(w.message(d, s)); err != nil {
				return err
			}
		}
	}
	return nil
}

// plan chooses the conversations of a day and the times of their messages.
func (g *Generator) plan(r *rand.Rand, n int) []stub {
	stubs := make([]stub, 0, n)
	used := map[uint32]bool{}
	for len(stubs) < n {
		// Few conversations are there every day, most are seldom.
		u := r.Float64()
		conv := uint32(u * u * float64(g.c.Conversations))
		if len(used) < g.c.Conversations {
			for used[conv] {
				conv = (conv + 1) % uint32(g.c.Conversations)
			}
			used[conv] = true
		}
		count := min(draw(r, perDayKnots, 1), n-len(stubs))
		// More starts around noon than at night.
		start := (r.Float64() + r.Float64()) / 2 * dayMillis
		span := min(dayMillis-start, math.Exp(r.Float64()*6.5)*60_000)
		for i := range count {
			ms := uint32(start + r.Float64()*span)
			if i > 0 && r.IntN(100) == 0 {
				ms = stubs[len(stubs)-1].ms
			}
			stubs = append(stubs, stub{ms: ms, conv: conv})
		}
	}
	slices.SortStableFunc(stubs, func(a, b stub) int { return cmp.Compare(a.ms, b.ms) })
	if n > 1 {
		stubs[0].ms, stubs[n-1].ms = 0, dayMillis-1
	}
	return stubs
}

// number gives each message its sequence number in its conversation.
func number(r *rand.Rand, stubs []stub, next []uint64) {
	last := make(map[uint32]int)
	for i := range stubs {
		s := &stubs[i]
		s.seq = next[s.conv]
		next[s.conv]++
		if j, ok := last[s.conv]; ok && r.IntN(100) == 0 {
			s.seq, stubs[j].seq = stubs[j].seq, s.seq
		}
		last[s.conv] = i
	}
}

// writer makes messages of stubs; it keeps what must not repeat.
type writer struct {
	g      *Generator
	r      *rand.Rand
	m      Message
	body   []byte
	lastMs uint64
	inMs   [machines]uint64 // IDs that each machine gave in lastMs
}

const machines = 6

func (w *writer) message(d snowflake.Day, s stub) *Message {
	lo, _, _ := Layout().Window(d, time.UTC) // New has tried it
	ms := lo>>22 + uint64(s.ms)
	if ms != w.lastMs {
		w.lastMs, w.inMs = ms, [machines]uint64{}
	}
	at := w.r.IntN(machines)
	for w.inMs[at] > 4095 { // six machines give 24,576 IDs in a millisecond
		at = (at + 1) % machines
	}
	machine := [machines]uint64{0, 1, 17, 128, 700, 1023}[at]
	m := &w.m
	m.ID = ms<<22 | machine<<12 | w.inMs[at]
	w.inMs[at]++

	h := mix(w.g.c.Seed ^ uint64(s.conv)*0x9E3779B97F4A7C15)
	m.Conversation = int64(1<<53 + h%(1<<63-1<<53))
	members := 2
	m.ReceiverType = 0
	if h%5 < 2 {
		m.ReceiverType, members = 1, 3+int(h>>8%200)
	}
	person := func(i int) int64 { return int64(mix(h+uint64(i)) >> 2) }
	u := w.r.Float64()
	sender := int(u * u * float64(members))
	m.Sender = person(sender)
	m.Receiver = person(1 - sender)
	if m.ReceiverType == 1 {
		m.Receiver = m.Conversation
	}
	w.body, m.Type = appendBody(w.body[:0], w.r)
	m.Content = w.body
	m.ClientID = fmt.Sprintf("%016x-%08x", m.ID, w.r.Uint32())
	m.Status = 0
	switch p := w.r.IntN(200); {
	case p < 2:
		m.Status = 1 // recalled
	case p == 2:
		m.Status = 2 // deleted by the sender
	}
	m.Created = Layout().Time(m.ID)
	m.Seq = s.seq
	return m
}

// mix spreads a number over all 64 bits (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
