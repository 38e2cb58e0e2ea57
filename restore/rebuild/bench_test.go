package rebuild_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/rebuild"
	"github.com/coldtier/coldtier/tests/stack"
)

// records are commit records that are made when they are read, so that as many as one
// wants take no memory.
type records struct {
	schema           *message.Schema
	slices, segments int
}

func (r *records) key(i int) manifest.SliceKey {
	return manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "im_00", Table: fmt.Sprintf("msg_%02d", i%64)}, Day: snowflake.MakeDay(2026, 1, 1).Add(i / 64)}
}

func (r *records) List(_ context.Context, prefix string, fn func(key string, size int64) error) error {
	if prefix != manifest.RecordsPrefix {
		return nil
	}
	for i := range r.slices {
		if err := fn(manifest.RecordKey(r.key(i), 1), 1<<20); err != nil {
			return err
		}
	}
	return nil
}

func (r *records) Get(_ context.Context, key string) ([]byte, error) {
	for i := range r.slices {
		if k := r.key(i); manifest.RecordKey(k, 1) == key {
			return r.record(i, k)
		}
	}
	return nil, archive.ErrNotFound
}

func (r *records) record(i int, k manifest.SliceKey) ([]byte, error) {
	lo := uint64(i) << 30
	c := &manifest.Copy{SliceKey: k, Lo: lo, Hi: lo + 1<<30, Generation: 1, Attempt: "1-" + strconv.Itoa(i), Schema: r.schema, ShowCreate: "CREATE TABLE `m` (…)", CopiedAt: time.Date(2026, 11, 1, 2, 3, 4, 0, time.UTC)}
	var sum message.Fingerprint
	for n := range r.segments {
		f := message.Fingerprint{Hi: uint64(n) * 0x9E3779B97F4A7C15, Lo: uint64(n), Rows: 20}
		sum = sum.Add(f)
		conv := fmt.Appendf(nil, "%d", 1_916_538_147_535_001_245+uint64(n)*977)
		c.Objects = append(c.Objects, manifest.Object{Key: manifest.ConversationKey(k, 1, c.Attempt, conv),
			File: segment.File{Version: 1, Size: 4096, SHA256: [32]byte{byte(n), byte(n >> 8), byte(i)}, Rows: 20, Footer: segment.Extent{Offset: 3000, Length: 1096, Sum: [16]byte{2, byte(n)}},
				RowGroups: []segment.RowGroup{{Extent: segment.Extent{Offset: 4, Length: 2996, Sum: [16]byte{3, byte(n)}}, Rows: 20, MinCursor: lo, MaxCursor: lo + 99}}},
			Segs: []segment.Span{{Conversation: conv, Rows: 20, MinCursor: lo + uint64(n), MaxCursor: lo + 99 + uint64(n), Fingerprint: f}}})
	}
	c.Chunks = []manifest.Chunk{{From: c.Lo, To: c.Hi, Warm: sum, State: manifest.ChunkPresent}}
	var b bytes.Buffer
	err := manifest.EncodeRecord(&b, c)
	return b.Bytes(), err
}

// BenchmarkRebuildManifest rebuilds a manifest of COLDTIER_BENCH_SEGMENTS segments (10,000,
// unless set), 10,000 in a slice, each an object of its own. The records are made while
// they are read, which counts.
func BenchmarkRebuildManifest(b *testing.B) {
	total := 10_000
	if s := os.Getenv("COLDTIER_BENCH_SEGMENTS"); s != "" {
		var err error
		if total, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	schema, err := message.NewSchema([]message.Column{
		{Name: "msg_id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "session_id", Kind: message.Text, SourceType: "varchar(64)"},
	}, map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "session_id"})
	if err != nil {
		b.Fatal(err)
	}
	r := &records{schema: schema, segments: min(total, 10_000), slices: max(1, total/10_000)}
	for range b.N {
		b.StopTimer()
		s, err := manifest.Open(b.Context(), manifest.Config{DSN: stack.MySQL(b), Source: "im"}, slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		rep, err := rebuild.Manifest(b.Context(), rebuild.Config{}, rebuild.Deps{Target: s, Objects: r, Clock: time.Now})
		if err != nil {
			b.Fatal(err)
		}
		if rep.Segments != r.slices*r.segments {
			b.Fatalf("%+v", rep)
		}
		b.ReportMetric(float64(rep.Segments)/rep.Seconds, "segments/s")
		_ = s.Close()
	}
}
