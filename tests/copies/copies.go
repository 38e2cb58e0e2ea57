// Package copies makes small cold tiers for tests of what reads them: a real manifest,
// and a bucket and a ClickHouse in memory, both of which can be damaged.
package copies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/bucket/membucket"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/stack"
)

// Layout is how the tier's message IDs tell their time.
func Layout() snowflake.Layout {
	return snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}
}

// Tier is a cold tier of source im.
type Tier struct {
	T      testing.TB
	Store  *manifest.Store
	DSN    string // of the manifest
	Bucket *membucket.Bucket

	mu    sync.Mutex
	rows  map[manifest.CopyID]*message.Batch
	lost  error // ClickHouse does not answer
	reads int   // of the bucket
}

// New makes an empty tier, with its manifest on the MySQL of the environment.
func New(t testing.TB) *Tier {
	t.Helper()
	dsn := stack.MySQL(t)
	m, err := manifest.Open(t.Context(), manifest.Config{DSN: dsn, Source: "im"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return &Tier{T: t, Store: m, DSN: dsn, Bucket: membucket.New(time.Now), rows: map[manifest.CopyID]*message.Batch{}}
}

// Copy is a generation that is to be made.
type Copy struct {
	Shard      manifest.Shard
	Day        snowflake.Day
	Schema     *message.Schema
	ShowCreate string
	Rows       [][][]byte // canonical texts; in any order
	Per        int        // conversations of an object; 1 unless set
	GroupBytes int        // of a row group; see segment.Options
	// Folded are the messages whose status is in the rows already, and what their status
	// column read before.
	Folded map[uint64][]byte
	// Change changes what the manifest is told, when not nil.
	Change func(*manifest.Copy)
}

func (c *Tier) must(err error) {
	c.T.Helper()
	if err != nil {
		c.T.Fatal(err)
	}
}

// Commit makes a slice's next generation, verified, and gives it as the manifest has it.
func (c *Tier) Commit(o Copy) *manifest.Copy {
	c.T.Helper()
	ctx := c.T.Context()
	lo, hi, err := Layout().Window(o.Day, time.UTC)
	c.must(err)
	key := manifest.SliceKey{Source: "im", Shard: o.Shard, Day: o.Day}
	_, err = c.Store.Ensure(ctx, []manifest.Slice{{SliceKey: key, Lo: lo, Hi: hi, State: manifest.Pending}})
	c.must(err)
	found, err := c.Store.Slices(ctx, manifest.Filter{From: &o.Day, To: &o.Day, Shard: o.Shard.String()})
	c.must(err)
	if s := found[0]; s.State == manifest.Verified {
		l, err := c.Store.Claim(ctx, s.ID, "test", []manifest.State{manifest.Verified}, "")
		c.must(err)
		c.must(c.Store.Reopen(ctx, l, manifest.ReasonDrifted))
	}
	lease, err := c.Store.Claim(ctx, found[0].ID, "test", []manifest.State{manifest.Pending}, manifest.Copying)
	c.must(err)
	b := sorted(c.T, o.Schema, o.Rows)
	statuses, err := c.Store.StatusesBetween(ctx, lo, hi)
	c.must(err)
	for i := range statuses {
		if was, ok := o.Folded[statuses[i].MessageID]; ok {
			statuses[i].Original = &manifest.Original{Value: was}
		}
	}
	var h message.Hasher
	cp := &manifest.Copy{SliceKey: key, Lo: lo, Hi: hi, Generation: found[0].NextGeneration(), Attempt: lease.Attempt(), Schema: o.Schema, ShowCreate: o.ShowCreate,
		CopiedAt: time.Unix(0, 0).UTC(), Statuses: statuses, Chunks: []manifest.Chunk{{From: lo, To: hi, Warm: h.Batch(b, 0, b.Len()), State: manifest.ChunkPresent}}}
	for from := 0; from < b.Len(); {
		to, convs := from, 0
		for to < b.Len() {
			if to == from || !bytes.Equal(b.Conversation(to), b.Conversation(to-1)) {
				if convs++; convs > max(o.Per, 1) {
					break
				}
			}
			to++
		}
		cp.Objects = append(cp.Objects, c.object(key, cp, o, b, from, to))
		from = to
	}
	if o.Change != nil {
		o.Change(cp)
	}
	c.mu.Lock()
	c.rows[cp.ID()] = b
	c.mu.Unlock()
	c.must(c.Store.Commit(ctx, lease, cp, manifest.RecordKey(key, cp.Generation), [32]byte{}))
	c.must(c.Store.Verified(ctx, lease, cp.Generation))
	c.must(lease.Release(ctx, manifest.Verified))
	cp, err = c.Store.LoadCopy(ctx, found[0].ID, cp.Generation)
	c.must(err)
	return cp
}

func (c *Tier) object(key manifest.SliceKey, cp *manifest.Copy, o Copy, b *message.Batch, from, to int) manifest.Object {
	c.T.Helper()
	var buf bytes.Buffer
	w, err := segment.NewWriter(&buf, o.Schema, segment.Meta{Source: "im", Shard: key.Shard.String(), Day: key.Day.String(), Generation: cp.Generation, Attempt: cp.Attempt},
		segment.Options{RowGroupBytes: o.GroupBytes})
	c.must(err)
	c.must(w.Write(b, from, to))
	file, spans, err := w.Close()
	c.must(err)
	name := manifest.ConversationKey(key, cp.Generation, cp.Attempt, b.Conversation(from))
	c.must(c.Bucket.Put(c.T.Context(), name, bytes.NewReader(buf.Bytes()), int64(buf.Len()), bucket.PutOptions{}))
	return manifest.Object{Key: name, File: file, Segs: spans}
}

// sorted makes a batch of rows in the order of message.Compare.
func sorted(t testing.TB, s *message.Schema, rows [][][]byte) *message.Batch {
	t.Helper()
	all := message.NewBatch(s)
	at := make([]int, len(rows))
	for i, r := range rows {
		at[i] = i
		if err := all.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(at, func(i, j int) int { return message.Compare(all, i, all, j) })
	out := message.NewBatch(s)
	for _, i := range at {
		if err := out.AppendFrom(all, i); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// LoseRows lets ClickHouse answer every question with an error; nil ends it.
func (c *Tier) LoseRows(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = err
}

// SpoilRows changes what ClickHouse has of a copy.
func (c *Tier) SpoilRows(id manifest.CopyID, rows [][][]byte) {
	c.T.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows[id] = sorted(c.T, c.rows[id].Schema(), rows)
}

// ReadCopy implements selection.Rows.
func (c *Tier) ReadCopy(_ context.Context, id manifest.CopyID, s *message.Schema, fn func(*message.Batch) error) error {
	c.mu.Lock()
	all, lost := c.rows[id], c.lost
	c.mu.Unlock()
	if lost != nil {
		return lost
	}
	b := message.NewBatch(s)
	for i := range all.Len() {
		if err := b.AppendFrom(all, i); err != nil {
			return err
		}
		if b.Len() == 7 || i == all.Len()-1 {
			if err := fn(b); err != nil {
				return err
			}
			b.Reset()
		}
	}
	return nil
}

// Reads is how often the bucket was read.
func (c *Tier) Reads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

// ReadRange implements selection.Objects.
func (c *Tier) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	c.mu.Lock()
	c.reads++
	c.mu.Unlock()
	data, err := c.Bucket.ReadRange(ctx, key, off, n)
	for of, is := range map[error]error{bucket.ErrNotFound: selection.ErrNotFound, bucket.ErrCorrupt: selection.ErrDamaged, bucket.ErrArchived: selection.ErrArchived} {
		if errors.Is(err, of) {
			err = fmt.Errorf("%w: %w", is, err)
		}
	}
	return data, err
}

// Reader reads selections of the tier; with fallback it asks ClickHouse for what the
// bucket lacks.
func (c *Tier) Reader(fallback bool) *selection.Reader {
	d := selection.Deps{Manifest: c.Store, Objects: c, Layout: Layout()}
	if fallback {
		d.Rows = c
	}
	return selection.New(d, selection.Config{})
}
