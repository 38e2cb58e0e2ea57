package fleet_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// fleet is warm servers, a bucket and a ClickHouse in memory, which see who does what.
type fleet struct {
	size   size
	source string
	layout snowflake.Layout
	tables []archive.Table
	schema *message.Schema

	mu       sync.Mutex
	objects  map[string][]byte
	held     map[manifest.CopyID]*message.Batch
	scans    map[string]int // of each slice
	now      map[string]int // slices that are being scanned, by server
	parts    map[string]int // ranges of a slice that are being scanned
	begun    map[string][]int
	highest  int
	furthest int
	begin    time.Time
	planning time.Duration
	made     map[snowflake.Day]int
}

func newFleet(s size, source string) *fleet {
	schema, err := message.NewSchema([]message.Column{{Name: "msg_id", Kind: message.Uint, Bits: 64}, {Name: "conv", Kind: message.Text}, {Name: "content", Kind: message.Bytes}},
		map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "conv", message.Content: "content"})
	if err != nil {
		panic(err)
	}
	f := &fleet{size: s, source: source, schema: schema, layout: snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22},
		objects: map[string][]byte{}, held: map[manifest.CopyID]*message.Batch{}, scans: map[string]int{}, now: map[string]int{}, parts: map[string]int{},
		begun: map[string][]int{}, made: map[snowflake.Day]int{}, begin: time.Now()}
	for i := range s.tables {
		server := i * s.servers / s.tables
		f.tables = append(f.tables, &table{f: f, number: i, server: fmt.Sprintf("server-%02d", server),
			shard: manifest.Shard{Database: fmt.Sprintf("im_%02d", server), Table: fmt.Sprintf("msg_%04d", i)}})
	}
	for server := range s.servers {
		f.begun[fmt.Sprintf("server-%02d", server)] = make([]int, s.days)
	}
	return f
}

func (f *fleet) slices() int { return f.size.tables * f.size.days }

func (f *fleet) deps(s *manifest.Store, owner string) archive.Deps {
	return archive.Deps{Manifest: s, Tables: f.tables, Objects: bucket{f}, Rows: rows{f}, Layout: f.layout, Zone: time.UTC, Source: f.source, Owner: owner,
		Clock: time.Now, Log: slog.New(slog.DiscardHandler)}
}

func (f *fleet) planned(int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.planning = max(f.planning, time.Since(f.begin))
}

func (f *fleet) plans() time.Duration { return f.planning }
func (f *fleet) most() int            { return f.highest }
func (f *fleet) apart() int           { return f.furthest }

// copies says how many slices of each day have a copy.
func (f *fleet) copies() map[snowflake.Day]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made
}

// enter notes that a range of a slice is scanned from now on.
func (f *fleet) enter(t *table, day int) (slice string) {
	slice = fmt.Sprintf("%s %d", t.shard, day)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts[slice]++
	if f.parts[slice] > 1 {
		return slice
	}
	f.now[t.server]++
	f.highest = max(f.highest, f.now[t.server])
	return slice
}

func (f *fleet) leave(t *table, slice string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parts[slice]--; f.parts[slice] == 0 {
		f.now[t.server]--
		delete(f.parts, slice)
	}
}

// first notes that the scan of a slice begins, and how far its day is from the oldest of
// which the server has slices that were not begun.
func (f *fleet) first(t *table, slice string, day int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scans[slice]++
	b := f.begun[t.server]
	b[day]++
	f.made[first().Add(day)]++
	for d, n := range b {
		if n < f.size.tables/f.size.servers {
			f.furthest = max(f.furthest, day-d)
			break
		}
	}
}

// table is a warm table: most of its days have no rows, some a few, and one in a thousand
// is big: it takes long.
type table struct {
	f      *fleet
	number int
	server string
	shard  manifest.Shard
}

func (t *table) Shard() manifest.Shard                                       { return t.shard }
func (t *table) Schema() *message.Schema                                     { return t.f.schema }
func (t *table) ShowCreate() string                                          { return "CREATE TABLE msg (…)" }
func (t *table) Reload(context.Context) error                                { return nil }
func (t *table) Settle(context.Context, uint64, uint64) error                { return nil }
func (t *table) EpochFits(context.Context) error                             { return nil }
func (t *table) Server(context.Context) (string, error)                      { return t.server, nil }
func (t *table) NextID(_ context.Context, from uint64) (uint64, bool, error) { return from, true, nil }

func (t *table) Scan(ctx context.Context, from, to uint64, fn func(message.Chunk) error) error {
	at := t.f.layout.DayOf(from, time.UTC)
	day := 0
	for d := first(); d.Before(at); d = d.Next() {
		day++
	}
	lo, _, err := t.f.layout.Window(at, time.UTC)
	if err != nil {
		return err
	}
	slice := t.f.enter(t, day)
	defer t.f.leave(t, slice)
	if from == lo {
		t.f.first(t, slice, day)
		took := time.Duration(t.f.size.scan)
		if (t.number*31+day*17)%1000 == 0 {
			took = 500 * time.Millisecond
		}
		select {
		case <-time.After(took):
		case <-ctx.Done():
		}
	}
	b := message.NewBatch(t.f.schema)
	if from == lo && (t.number+day)%16 == 0 {
		for i := range uint64(3) {
			if err := b.Append([][]byte{[]byte(message.FormatID(lo + i)), fmt.Appendf(nil, "c%d", i%2), fmt.Appendf(nil, "message %d of %s", i, slice)}); err != nil {
				return err
			}
		}
	}
	var h message.Hasher
	return fn(message.Chunk{From: from, To: to, Batch: b, Fingerprint: h.Batch(b, 0, b.Len())})
}

type bucket struct{ f *fleet }

func (b bucket) Put(_ context.Context, key string, body io.ReadSeeker, _ int64, sum [32]byte, ifAbsent bool) error {
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	if old, ok := b.f.objects[key]; ok && (ifAbsent || !bytes.Equal(old, data)) {
		return fmt.Errorf("object %s: %w", key, archive.ErrExists)
	}
	if sha256.Sum256(data) != sum {
		return fmt.Errorf("object %s: another checksum", key)
	}
	b.f.objects[key] = data
	return nil
}

func (b bucket) Get(_ context.Context, key string) ([]byte, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	data, ok := b.f.objects[key]
	if !ok {
		return nil, fmt.Errorf("object %s: %w", key, archive.ErrNotFound)
	}
	return data, nil
}

func (b bucket) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	data, err := b.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return data[off : off+n], nil
}

type rows struct{ f *fleet }

type writer struct {
	f  *fleet
	id manifest.CopyID
	b  *message.Batch
}

func (r rows) Fit(context.Context, []*message.Schema) error { return nil }

func (r rows) Insert(_ context.Context, id manifest.CopyID, s *message.Schema) (archive.RowWriter, error) {
	return &writer{r.f, id, message.NewBatch(s)}, nil
}

func (r rows) ReadCopy(_ context.Context, id manifest.CopyID, _ *message.Schema, fn func(*message.Batch) error) error {
	r.f.mu.Lock()
	b := r.f.held[id]
	r.f.mu.Unlock()
	if b == nil {
		return nil
	}
	return fn(b)
}

func (w *writer) Write(_ context.Context, b *message.Batch, from, to int) error {
	for i := from; i < to; i++ {
		if err := w.b.AppendFrom(b, i); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) Close(context.Context) error {
	if w.b.Len() == 0 {
		return nil
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.f.held[w.id] = w.b
	return nil
}

func (w *writer) Abort() {}
