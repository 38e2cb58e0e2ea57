package warm

import (
	"crypto/sha256"
	"log/slog"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

// book is a real manifest, for real grants.
type book struct {
	t     testing.TB
	store *manifest.Store
	days  int
}

func newBook(t testing.TB) *book {
	t.Helper()
	s, err := manifest.Open(t.Context(), manifest.Config{DSN: stack.MySQL(t), Source: "im"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return &book{t: t, store: s}
}

// grant copies the rows [lo, hi) as the archiver would, but for the objects' bytes,
// and gives the right to purge them.
func (b *book) grant(tab *Table, lo, hi uint64) *manifest.PurgeGrant {
	b.t.Helper()
	ctx := b.t.Context()
	must := func(err error) {
		b.t.Helper()
		if err != nil {
			b.t.Fatal(err)
		}
	}
	b.days++
	key := manifest.SliceKey{Source: "im", Shard: tab.Shard(), Day: snowflake.MakeDay(2026, 5, b.days)}
	_, err := b.store.Ensure(ctx, []manifest.Slice{{SliceKey: key, Lo: lo, Hi: hi}})
	must(err)
	all, err := b.store.Slices(ctx, manifest.Filter{From: &key.Day, To: &key.Day})
	must(err)
	l, err := b.store.Claim(ctx, all[0].ID, "test", []manifest.State{manifest.Pending}, manifest.Copying)
	must(err)
	c := &manifest.Copy{SliceKey: key, Lo: lo, Hi: hi, Generation: 1, Attempt: l.Attempt(), Schema: tab.Schema(), ShowCreate: tab.ShowCreate()}
	must(tab.Scan(ctx, lo, hi, func(ch message.Chunk) error {
		c.Chunks = append(c.Chunks, manifest.Chunk{Seq: len(c.Chunks), From: ch.From, To: ch.To, Warm: ch.Fingerprint, State: manifest.ChunkPresent})
		return nil
	}))
	if f := c.Fingerprint(); f.Rows > 0 {
		n := int64(f.Rows)
		c.Objects = []manifest.Object{{Key: manifest.ObjectPrefix(key, 1, c.Attempt) + "all.parquet",
			File: segment.File{Version: segment.FormatVersion, Size: n, Rows: n, RowGroups: []segment.RowGroup{{Rows: n}}},
			Segs: []segment.Span{{Conversation: []byte("1"), Rows: n, Fingerprint: f}}}}
	}
	c.CopiedAt, err = b.store.Now(ctx)
	must(err)
	must(b.store.Commit(ctx, l, c, manifest.RecordKey(key, 1), sha256.Sum256([]byte(c.Attempt))))
	must(b.store.Verified(ctx, l, 1))
	must(l.Release(ctx, manifest.Verified))
	l, err = b.store.Claim(ctx, all[0].ID, "test", []manifest.State{manifest.Verified}, "")
	must(err)
	g, err := b.store.GrantPurge(ctx, l, 0)
	must(err)
	return g
}

// hold forbids the purge of a grant's slice.
func (b *book) hold(g *manifest.PurgeGrant) {
	b.t.Helper()
	if _, err := b.store.AddHold(b.t.Context(), manifest.Hold{Kind: manifest.HoldSlice, Subject: g.Slice().SliceKey.String(), Reason: "test", By: "test"}); err != nil {
		b.t.Fatal(err)
	}
}
