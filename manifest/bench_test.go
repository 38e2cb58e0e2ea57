package manifest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/segment"
)

// BenchmarkCommit commits a slice of 200,000 conversations, each an object of its own.
func BenchmarkCommit(b *testing.B) {
	s := open(b, time.Minute)
	convs := 200_000
	if testing.Short() {
		convs = 10_000
	}
	for i := 1; b.Loop(); i++ {
		b.StopTimer()
		sl := testSlice(b, s, i)
		l := claim(b, s, sl.ID, Pending, Copying)
		c := testCopy(b, l.Slice(), 1, l.Attempt(), convs)
		b.StartTimer()
		if err := s.Commit(b.Context(), l, c, RecordKey(c.SliceKey, 1), [32]byte{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(convs)*float64(b.N)/b.Elapsed().Seconds(), "segments/s")
}

// BenchmarkRecord encodes and decodes the record of such a slice.
func BenchmarkRecord(b *testing.B) {
	c := recordCopy(b, 200_000)
	for b.Loop() {
		raw := encode(b, c)
		if _, err := DecodeRecord(raw); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(raw)), "bytes")
	}
}

const benchDays = 2000

// benchManifest has n segments in one live slice a day: the busiest conversation
// in every slice, each other one in every hundredth.
func benchManifest(b *testing.B, n int) *Store {
	b.Helper()
	s := open(b, time.Minute)
	ctx := b.Context()
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		b.Fatal(err)
	}
	do := func(query string, args ...any) {
		if _, err := s.db.ExecContext(ctx, query, args...); err != nil {
			b.Fatalf("%v in %.200s", err, query)
		}
	}
	c := recordCopy(b, 1)
	schema, err := c.Schema.MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	do("INSERT INTO table_schemas (hash, definition) VALUES (?, ?)", c.Schema.Hash(), string(schema))
	do("CREATE TABLE bench_n (n INT UNSIGNED NOT NULL PRIMARY KEY)")
	perDay := max(n/benchDays, 1)
	digits := "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	do("INSERT INTO bench_n SELECT a.d+10*b.d+100*c.d+1000*e.d+10000*f.d FROM " + digits + " a, " + digits + " b, " + digits + " c, " + digits + " e, " + digits + " f")
	do("INSERT INTO slices (id, source_id, day, db_name, table_name, lo, hi, state, generation, copy_token, live_generation, live_token, lease_token) "+
		"SELECT n+1, ?, DATE('2020-01-01') + INTERVAL n DAY, 'im_00', 'msg_00', n*100000, n*100000+100000, 'verified', 1, 1, 1, 1, 1 FROM bench_n WHERE n < ?", src, benchDays)
	do("INSERT INTO copies (slice_id, generation, token, attempt, schema_hash, show_create, copied_at, row_count, bytes, record_key, record_sum, committed_at) "+
		"SELECT n+1, 1, 1, '1-abc', ?, '', UTC_TIMESTAMP(), 1, 1, '', '', UTC_TIMESTAMP() FROM bench_n WHERE n < ?", c.Schema.Hash(), benchDays)
	file := appendFile(nil, &segment.File{Version: 1, Size: 4096, Rows: 4, RowGroups: make([]segment.RowGroup, 1)})
	for day := 0; day < benchDays; day += 20 {
		do("INSERT INTO objects (slice_id, token, seq, name, file) SELECT s.id, 1, n.n, CONCAT('part-', n.n, '.parquet'), ? FROM slices s JOIN bench_n n WHERE s.id > ? AND s.id <= ? AND n.n <= ?",
			file, day, day+20, perDay/50)
		do("INSERT INTO segments (slice_id, token, object_seq, seq, source_id, day, conversation, min_cursor, max_cursor, first_row, row_count, first_group, last_group, sum_hi, sum_lo) "+
			"SELECT s.id, 1, n.n DIV 50, n.n, s.source_id, s.day, CONCAT('conversation-', IF(n.n = 0, 'busy', n.n * 100 + s.id % 100)), s.lo, s.hi - 1, 0, 4, 0, 0, 1, 1 FROM slices s JOIN bench_n n WHERE s.id > ? AND s.id <= ? AND n.n < ?",
			day, day+20, perDay)
	}
	do("ANALYZE TABLE segments")
	return s
}

// BenchmarkSegments looks up a page's segments among COLDTIER_BENCH_SEGMENTS
// (default 200,000; up to 200 million).
func BenchmarkSegments(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("COLDTIER_BENCH_SEGMENTS"))
	if err != nil {
		n = 200_000
	}
	s := benchManifest(b, n)
	perDay := uint64(max(n/benchDays, 2))
	end := uint64(benchDays * 100000)
	for name, next := range map[string]func(r *rand.Rand) SegmentQuery{
		"random": func(r *rand.Rand) SegmentQuery {
			return SegmentQuery{Conversation: fmt.Appendf(nil, "conversation-%d", 100+r.Uint64N(100*(perDay-1))), Before: new(r.Uint64N(end)), Limit: 4}
		},
		"randomAfter": func(r *rand.Rand) SegmentQuery {
			return SegmentQuery{Conversation: fmt.Appendf(nil, "conversation-%d", 100+r.Uint64N(100*(perDay-1))), After: new(r.Uint64N(end)), Limit: 4}
		},
		"busyNewest": func(*rand.Rand) SegmentQuery {
			return SegmentQuery{Conversation: []byte("conversation-busy"), Limit: 4}
		},
		"busyOldest": func(*rand.Rand) SegmentQuery {
			return SegmentQuery{Conversation: []byte("conversation-busy"), Before: new(uint64(300_000)), Limit: 4}
		},
		"busyAfter": func(r *rand.Rand) SegmentQuery {
			return SegmentQuery{Conversation: []byte("conversation-busy"), After: new(r.Uint64N(end)), Limit: 4}
		},
	} {
		b.Run(name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			found := 0
			for b.Loop() {
				got, err := s.Segments(b.Context(), next(r))
				if err != nil {
					b.Fatal(err)
				}
				found += len(got)
			}
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/look-up")
			b.ReportMetric(float64(found)/float64(b.N), "segments/look-up")
		})
	}
}
