package restore_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/bucket/membucket"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/tests/stack"
)

var layout = snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}

const conversation = "9007199254740993"

// cold is a cold tier with one conversation in it.
type cold struct {
	t      *testing.T
	dsn    string // of the manifest
	store  *manifest.Store
	bucket *membucket.Bucket
	schema *message.Schema
	rows   rows
	all    []row // in page order, oldest first
	keys   []string
	long   int // how often a body repeats its ID; 10 unless set
}

type row struct{ id, seq uint64 }

// rows is ClickHouse in memory: what each copy holds.
type rows struct {
	copies map[manifest.CopyID]*message.Batch
	err    error
	hook   func(ctx context.Context) error
}

func (r *rows) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conv []byte, limit int) (*message.Batch, error) {
	if r.hook != nil {
		if err := r.hook(ctx); err != nil {
			return nil, err
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	type at struct {
		b *message.Batch
		i int
	}
	var found []at
	for _, sp := range spans {
		b := r.copies[sp.Copy]
		for i := range b.Len() {
			if c := b.Cursor(i); bytes.Equal(b.Conversation(i), conv) && c >= sp.Min && c <= sp.Max {
				found = append(found, at{b, i})
			}
		}
	}
	slices.SortFunc(found, func(x, y at) int { return message.Compare(x.b, x.i, y.b, y.i) })
	found = slices.Compact(found) // a row that lies in two spans comes once
	out := message.NewBatch(s)
	for _, f := range found[:min(limit, len(found))] {
		if err := out.AppendFrom(f.b, f.i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// newCold makes days of one conversation whose cursors overlap as rng has it.
func newCold(t *testing.T, rng *rand.Rand, days, messages, groupBytes int) *cold {
	t.Helper()
	s, err := message.NewSchema([]message.Column{
		{Name: "msg_id", Kind: message.Uint, Bits: 64}, {Name: "conv", Kind: message.Int, Bits: 64}, {Name: "seq", Kind: message.Uint, Bits: 64}, {Name: "content", Kind: message.Bytes},
	}, map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "conv", message.Sequence: "seq"})
	if err != nil {
		t.Fatal(err)
	}
	dsn := stack.MySQL(t)
	m, err := manifest.Open(t.Context(), manifest.Config{DSN: dsn, Source: "im"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	c := &cold{t: t, dsn: dsn, store: m, bucket: membucket.New(time.Now), schema: s, rows: rows{copies: map[manifest.CopyID]*message.Batch{}}}
	byDay := make([][]row, days)
	for i := range messages {
		// Sequences rise with the days, but wander between neighbours; some are shared.
		day := min(max(i*days/messages+rng.IntN(3)-1, 0), days-1)
		seq := uint64(i)
		if rng.IntN(9) == 0 && i > 0 {
			seq--
		}
		lo, hi, err := layout.Window(snowflake.MakeDay(2026, 3, 1+day), time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		r := row{lo + rng.Uint64N(hi-lo-1), seq}
		byDay[day] = append(byDay[day], r)
		c.all = append(c.all, r)
	}
	slices.SortFunc(c.all, order)
	for day, list := range byDay {
		c.commit(snowflake.MakeDay(2026, 3, 1+day), list, groupBytes)
	}
	return c
}

func order(x, y row) int { return cmp.Or(cmp.Compare(x.seq, y.seq), cmp.Compare(x.id, y.id)) }

// commit makes a verified slice of rows.
func (c *cold) commit(day snowflake.Day, list []row, groupBytes int) {
	c.t.Helper()
	ctx := c.t.Context()
	must := func(err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	lo, hi, err := layout.Window(day, time.UTC)
	must(err)
	key := manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "im_00", Table: "msg"}, Day: day}
	_, err = c.store.Ensure(ctx, []manifest.Slice{{SliceKey: key, Lo: lo, Hi: hi, State: manifest.Pending}})
	must(err)
	found, err := c.store.Slices(ctx, manifest.Filter{From: &day, To: &day})
	must(err)
	lease, err := c.store.Claim(ctx, found[0].ID, "test", []manifest.State{manifest.Pending}, manifest.Copying)
	must(err)
	slices.SortFunc(list, order)
	b := message.NewBatch(c.schema)
	for _, r := range list {
		body := bytes.Repeat([]byte(message.FormatID(r.id*2654435761)), cmp.Or(c.long, 10))
		must(b.Append([][]byte{[]byte(message.FormatID(r.id)), []byte(conversation), []byte(message.FormatID(r.seq)), body}))
	}
	var h message.Hasher
	cp := &manifest.Copy{SliceKey: key, Lo: lo, Hi: hi, Generation: 1, Attempt: lease.Attempt(), Schema: c.schema, CopiedAt: time.Unix(0, 0).UTC(),
		Chunks: []manifest.Chunk{{From: lo, To: hi, Warm: h.Batch(b, 0, b.Len()), State: manifest.ChunkPresent}}}
	if len(list) > 0 {
		var buf bytes.Buffer
		w, err := segment.NewWriter(&buf, c.schema, segment.Meta{Source: "im", Shard: key.Shard.String(), Day: day.String(), Generation: 1, Attempt: cp.Attempt}, segment.Options{RowGroupBytes: groupBytes})
		must(err)
		must(w.Write(b, 0, b.Len()))
		file, spans, err := w.Close()
		must(err)
		name := manifest.ConversationKey(key, 1, cp.Attempt, []byte(conversation))
		must(c.bucket.Put(ctx, name, bytes.NewReader(buf.Bytes()), int64(buf.Len()), bucket.PutOptions{}))
		cp.Objects = []manifest.Object{{Key: name, File: file, Segs: spans}}
		c.keys = append(c.keys, name)
	}
	c.rows.copies[cp.ID()] = b
	must(c.store.Commit(ctx, lease, cp, manifest.RecordKey(key, 1), [32]byte{}))
	must(c.store.Verified(ctx, lease, 1))
	must(lease.Release(ctx, manifest.Verified))
}

// fetcher reads c's pages; change may set what is not the default.
func (c *cold) fetcher(change ...func(*restore.Config, *restore.Deps)) *restore.Fetcher {
	c.t.Helper()
	cfg := restore.Config{Layout: layout, Budget: time.Minute, Clock: time.Now}
	deps := restore.Deps{Manifest: c.store, Objects: objects{c.bucket}, Rows: &c.rows, Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg, &deps)
	}
	f, err := restore.New(cfg, deps)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = f.Close() })
	return f
}

// objects is the bucket with the errors that restore knows.
type objects struct{ b *membucket.Bucket }

func (o objects) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	data, err := o.b.ReadRange(ctx, key, off, n)
	for of, is := range map[error]error{bucket.ErrNotFound: restore.ErrNotFound, bucket.ErrCorrupt: restore.ErrDamaged, bucket.ErrArchived: restore.ErrArchived} {
		if errors.Is(err, of) {
			err = fmt.Errorf("%w: %w", is, err)
		}
	}
	return data, err
}

// holding is how many of the row groups of a message's object have IDs on both sides of
// its own, of how many.
func (c *cold) holding(id uint64) (holding, all int) {
	day := layout.DayOf(id, time.UTC)
	refs, err := c.store.Segments(c.t.Context(), manifest.SegmentQuery{Conversation: []byte(conversation), Days: []snowflake.Day{day}, Limit: 10})
	if err != nil || len(refs) != 1 {
		c.t.Fatalf("%d segments on %s: %v", len(refs), day, err)
	}
	rows := slices.DeleteFunc(slices.Clone(c.all), func(r row) bool { return layout.DayOf(r.id, time.UTC) != day })
	for _, g := range refs[0].File.RowGroups {
		one := rows[:g.Rows]
		rows = rows[g.Rows:]
		smaller := slices.ContainsFunc(one, func(r row) bool { return r.id <= id })
		if smaller && slices.ContainsFunc(one, func(r row) bool { return r.id >= id }) {
			holding++
		}
	}
	return holding, len(refs[0].File.RowGroups)
}

func idText(id uint64) string { return message.FormatID(id) }

// pages reads the conversation to its end, or to what is missing.
func (c *cold) pages(f *restore.Fetcher, from restore.Store, newest bool, limit int) (got []row, last *restore.Page) {
	c.t.Helper()
	q := restore.Query{Conversation: []byte(conversation), Limit: limit, From: from}
	if !newest {
		first := uint64(0)
		q.After = &first
	}
	for {
		p, err := f.Fetch(c.t.Context(), q)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, r := range p.Rows {
			got = append(got, row{r.MessageID(), r.Cursor()})
		}
		if p.State != restore.Complete || !p.HasMore {
			return got, p
		}
		if p.Next == nil || len(p.Rows) == 0 {
			c.t.Fatalf("there is more, but no way on: %+v", p)
		}
		if newest {
			q.Before = p.Next
		} else {
			q.After = p.Next
		}
	}
}

// want is what pages must give.
func (c *cold) want(newest bool) []row {
	w := slices.Clone(c.all)
	if newest {
		slices.Reverse(w)
		return w
	}
	return slices.DeleteFunc(w, func(r row) bool { return r.seq == 0 }) // after cursor 0
}

// Whatever the segments, their overlaps, the limit, the direction and the store: all
// pages together are the exact history, in order, nothing twice, nothing left out.
func TestPagesAreTheExactHistory(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 4 {
		c := newCold(t, rng, 1+rng.IntN(12), 1+rng.IntN(300), 1024+rng.IntN(4096))
		f := c.fetcher()
		for _, from := range []restore.Store{restore.FromAny, restore.FromBucket, restore.FromClickHouse} {
			for _, newest := range []bool{true, false} {
				limit := 1 + rng.IntN(60)
				if got, p := c.pages(f, from, newest, limit); !slices.Equal(got, c.want(newest)) || p.State != restore.Complete {
					t.Errorf("seed %d: %d days, %d messages, from %s, newest %v, limit %d: %d messages, %s", seed, len(c.keys), len(c.all), from, newest, limit, len(got), p.State)
				}
			}
		}
	}
}

// The middle of the history around each message, and around IDs that do not exist.
func TestAroundAMessage(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	c := newCold(t, rng, 5, 120, 1024)
	for at := range c.all {
		id := c.all[at].id
		p, err := c.fetcher().Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Around: &id, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		var got []row
		for _, r := range p.Rows {
			got = append(got, row{r.MessageID(), r.Cursor()})
		}
		from := slices.Index(c.all, got[0])
		if !slices.Contains(got, c.all[at]) || from < 0 || !slices.Equal(got, c.all[from:from+len(got)]) {
			t.Errorf("seed %d: around message %d (place %d): %v", seed, id, at, got)
		}
	}
	none := c.all[0].id - 1
	if p, err := c.fetcher().Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Around: &none}); err != nil || p.State != restore.Complete {
		t.Errorf("around an ID before all: %+v, %v", p, err)
	}
}

// A2, S8: an object that is damaged or missing ends the page before it, and is
// named; what is nearer still comes, from ClickHouse all of it does.
func TestDamageEndsThePageAndIsNamed(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(c *cold, key string){
		"bit": func(c *cold, key string) {
			if err := c.bucket.Damage(key, func(b []byte) []byte { b[len(b)/3] ^= 4; return b }); err != nil {
				c.t.Fatal(err)
			}
		},
		"missing": func(c *cold, key string) {
			if err := c.bucket.Delete(c.t.Context(), key); err != nil {
				c.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCold(t, rand.New(rand.NewPCG(3, 3)), 6, 120, 1<<20)
			damage(c, c.keys[2])
			got, p := c.pages(c.fetcher(), restore.FromBucket, true, 10)
			want := c.want(true)
			if p.State != restore.Partial || len(p.Missing) != 1 || p.Missing[0].Key != c.keys[2] || !p.HasMore {
				t.Errorf("the page says %s, missing %+v", p.State, p.Missing)
			}
			if len(got) == 0 || len(got) == len(want) || !slices.Equal(got, want[:len(got)]) {
				t.Errorf("%d messages come before the damage of %d", len(got), len(want))
			}
			if all, _ := c.pages(c.fetcher(), restore.FromAny, true, 10); !slices.Equal(all, want) {
				t.Errorf("%d messages with ClickHouse, want %d", len(all), len(want))
			}
			c.rows.err = errors.New("ClickHouse is away")
			if _, p := c.pages(c.fetcher(), restore.FromAny, true, 10); p.State != restore.Partial {
				t.Errorf("with neither store the page says %s", p.State)
			}
		})
	}
}

// A page of 20 costs one ranged GET in a conversation of any size (P12), and never a LIST.
func TestAPageIsOneRequest(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(4, 4)), 1, 20_000, 256<<10)
	for range 5 {
		p, err := c.fetcher().Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), From: restore.FromBucket})
		if err != nil || len(p.Rows) < 20 || p.Requests != 1 {
			t.Errorf("%d messages in %d requests: %v", len(p.Rows), p.Requests, err)
		}
	}
	middle := c.all[len(c.all)/2].seq
	if p, err := c.fetcher().Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), From: restore.FromBucket, Before: &middle}); err != nil || p.Requests > 2 {
		t.Errorf("a page in the middle takes %d requests: %v", p.Requests, err)
	}
}

func TestUnknownConversationAndBadQueries(t *testing.T) {
	t.Parallel()
	c := newCold(t, rand.New(rand.NewPCG(5, 5)), 1, 3, 1<<20)
	f := c.fetcher()
	p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte("404")})
	if err != nil || len(p.Rows) != 0 || p.State != restore.Complete || p.HasMore || p.Next != nil {
		t.Errorf("an unknown conversation: %+v, %v", p, err)
	}
	one := uint64(1)
	for _, q := range []restore.Query{{}, {Conversation: []byte("1"), Before: &one, After: &one}, {Conversation: []byte("1"), Limit: -1}, {Conversation: []byte("1"), From: "tape"}} {
		if _, err := f.Fetch(t.Context(), q); err == nil {
			t.Errorf("%+v is taken", q)
		}
	}
	if p, err := f.Fetch(t.Context(), restore.Query{Conversation: []byte(conversation), Limit: 100_000}); err != nil || p.Limit != restore.DefaultMax {
		t.Errorf("a limit beyond the maximum becomes %d: %v", p.Limit, err)
	}
}
