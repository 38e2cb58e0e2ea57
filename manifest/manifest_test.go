package manifest

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/tests/stack"
)

const testSource = "im"

// open gives a migrated manifest in a database of its own.
func open(t testing.TB, ttl time.Duration) *Store {
	t.Helper()
	s := openAt(t, stack.MySQL(t), testSource, ttl)
	if _, err := s.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return s
}

func openAt(t testing.TB, dsn, source string, ttl time.Duration) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{DSN: dsn, Source: source, LeaseTTL: ttl}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func testSchema(t testing.TB) *message.Schema {
	t.Helper()
	s, err := message.NewSchema([]message.Column{
		{Name: "msg_id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "session_id", Kind: message.Text, SourceType: "varchar(64)"},
		{Name: "content", Kind: message.Bytes, Nullable: true, SourceType: "mediumblob"},
	}, map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "session_id", message.Content: "content"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testKey(day int) SliceKey {
	return SliceKey{Source: testSource, Shard: Shard{"im_00", "msg_00"}, Day: snowflake.MakeDay(2026, 5, day)}
}

// testSlice makes a slice of the day with IDs [1000*day, 1000*day+1000).
func testSlice(t testing.TB, s *Store, day int) Slice {
	t.Helper()
	lo := uint64(1000 * day)
	if _, err := s.Ensure(t.Context(), []Slice{{SliceKey: testKey(day), Lo: lo, Hi: lo + 1000}}); err != nil {
		t.Fatal(err)
	}
	all, err := s.Slices(t.Context(), Filter{From: new(testKey(day).Day), To: new(testKey(day).Day)})
	if err != nil || len(all) != 1 {
		t.Fatalf("slices of day %d: %v, %v", day, all, err)
	}
	return all[0]
}

// testCopy is a copy of convs conversations, one object with one segment each,
// in four chunks.
func testCopy(t testing.TB, sl Slice, generation uint32, attempt string, convs int) *Copy {
	t.Helper()
	c := &Copy{SliceKey: sl.SliceKey, Lo: sl.Lo, Hi: sl.Hi, Generation: generation, Attempt: attempt, Schema: testSchema(t), ShowCreate: "CREATE TABLE `msg_00` (…)",
		CopiedAt: time.Date(2026, 11, 1, 2, 3, 4, 567890000, time.UTC)}
	var sum message.Fingerprint
	for i := range convs {
		f := message.Fingerprint{Hi: math.MaxUint64 - uint64(i), Lo: uint64(generation)<<60 + uint64(i), Rows: 3}
		sum = sum.Add(f)
		conv := fmt.Appendf(nil, "c%06d", i)
		c.Objects = append(c.Objects, Object{Key: ConversationKey(sl.SliceKey, generation, attempt, conv),
			File: segment.File{Version: 1, Size: 4096, SHA256: [32]byte{byte(i), 1}, Rows: 3, Footer: segment.Extent{Offset: 3000, Length: 1096, Sum: [16]byte{2}},
				RowGroups: []segment.RowGroup{{Extent: segment.Extent{Offset: 4, Length: 2996, Sum: [16]byte{3}}, Rows: 3, MinCursor: sl.Lo, MaxCursor: sl.Hi - 1}}},
			Segs: []segment.Span{{Conversation: conv, Rows: 3, MinCursor: sl.Lo, MaxCursor: sl.Hi - 1, Fingerprint: f}}})
	}
	for i := range 4 {
		lo := sl.Lo + uint64(i)*250
		ch := Chunk{Seq: i, From: lo, To: lo + 250, Warm: sum, State: ChunkPresent} // the first holds all rows
		if i > 0 {
			ch.Warm = message.Fingerprint{}
		}
		c.Chunks = append(c.Chunks, ch)
	}
	return c
}

func claim(t testing.TB, s *Store, id uint64, from, to State) *Lease {
	t.Helper()
	l, err := s.Claim(t.Context(), id, "worker", []State{from}, to)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// commitCopy takes a pending slice to committed, keeping the lease.
func commitCopy(t testing.TB, s *Store, sl Slice, convs int) (*Lease, *Copy) {
	t.Helper()
	l := claim(t, s, sl.ID, Pending, Copying)
	c := testCopy(t, l.Slice(), l.Slice().NextGeneration(), l.Attempt(), convs)
	if err := s.Commit(t.Context(), l, c, RecordKey(c.SliceKey, c.Generation), [32]byte{1}); err != nil {
		t.Fatal(err)
	}
	return l, c
}

// verified takes a pending slice to verified, and releases it.
func verified(t testing.TB, s *Store, sl Slice, convs int) *Copy {
	t.Helper()
	l, c := commitCopy(t, s, sl, convs)
	if err := s.Verified(t.Context(), l, c.Generation); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context(), Verified); err != nil {
		t.Fatal(err)
	}
	return c
}

// diff says how two copies differ; NULL and empty lists are one.
func diff(a, b *Copy) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b snowflake.Day) bool { return a == b }),
		cmp.Comparer(func(a, b *message.Schema) bool { return a.Equal(b) }))
}

func ctxIn(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
