package manifest

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
)

const longDays = 3000

// longHistory has one conversation with a live segment on each of longDays days, and
// of the first begun of them a purge was begun. Slices are numbered from 1; the one
// of day n has the cursors [100 n, 100 n + 100).
func longHistory(t *testing.T, begun int) *Store {
	t.Helper()
	s := open(t, time.Minute)
	ctx := t.Context()
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	do := func(query string, args ...any) {
		if _, err := s.db.ExecContext(ctx, query, args...); err != nil {
			t.Fatalf("%v in %.200s", err, query)
		}
	}
	c := recordCopy(t, 1)
	schema, err := c.Schema.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	do("INSERT INTO table_schemas (hash, definition) VALUES (?, ?)", c.Schema.Hash(), string(schema))
	digits := "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	do("INSERT INTO slices (id, source_id, day, db_name, table_name, lo, hi, state, generation, copy_token, live_generation, live_token, lease_token, purge_begun) "+
		"SELECT n, ?, DATE('2020-01-01') + INTERVAL n DAY, 'im_00', 'msg_00', n*100, n*100+100, IF(n <= ?, 'purged', 'verified'), 1, 1, 1, 1, 1, n <= ? FROM "+
		"(SELECT 1+a.d+10*b.d+100*c.d+1000*e.d n FROM "+digits+" a, "+digits+" b, "+digits+" c, "+digits+" e) n WHERE n <= ?", src, begun, begun, longDays)
	do("INSERT INTO copies (slice_id, generation, token, attempt, schema_hash, show_create, copied_at, row_count, bytes, record_key, record_sum, committed_at) "+
		"SELECT id, 1, 1, '1-abc', ?, '', UTC_TIMESTAMP(), 1, 1, '', '', UTC_TIMESTAMP() FROM slices", c.Schema.Hash())
	do("INSERT INTO objects (slice_id, token, seq, name, file) SELECT id, 1, 0, 'x', ? FROM slices", appendFile(nil, &segment.File{Version: 1, Size: 4096, Rows: 4, RowGroups: make([]segment.RowGroup, 1)}))
	do("INSERT INTO segments (slice_id, token, object_seq, seq, source_id, day, conversation, min_cursor, max_cursor, first_row, row_count, first_group, last_group, sum_hi, sum_lo) " +
		"SELECT id, 1, 0, 0, source_id, day, 'busy', lo, hi - 1, 0, 4, 0, 0, 1, 1 FROM slices")
	return s
}

func longDay(n int) snowflake.Day { return snowflake.MakeDay(2020, 1, 1+n) }

// reads counts the rows and index entries that the server reads in fn, by one
// connection; temporary tables aside.
func reads(t *testing.T, s *Store, fn func()) (n int) {
	t.Helper()
	s.db.SetMaxOpenConns(1)
	defer s.db.SetMaxOpenConns(0)
	sum := func() (n int) {
		rows, err := s.db.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_first', 'Handler_read_key', 'Handler_read_last', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_rnd', 'Handler_read_rnd_next')")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var name string
			var v int
			if err := rows.Scan(&name, &v); err != nil {
				t.Fatal(err)
			}
			n += v
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	idle := sum() // what asking costs
	idle = sum() - idle
	before := sum()
	fn()
	return sum() - before - idle
}

// step is a line of a plan.
type step struct{ table, key, extra string }

// plan asks how the server would run a query.
func plan(t *testing.T, s *Store, query string, args ...any) (all []step) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		ptrs := make([]any, len(names))
		for i := range values {
			ptrs[i] = &values[i]
		}
		if err := rows.Scan(ptrs...); err != nil {
			t.Fatal(err)
		}
		var p step
		for i, n := range names {
			switch strings.ToLower(n) {
			case "table":
				p.table = values[i].String
			case "key":
				p.key = values[i].String
			case "extra":
				p.extra = values[i].String
			}
		}
		all = append(all, p)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Every look-up of a reader walks the index that was made for it, and reads a few rows
// of 3,000 days.
func TestReadersWalkIndexes(t *testing.T) {
	t.Parallel()
	s := longHistory(t, longDays-7)
	ctx := t.Context()
	busy := []byte("busy")
	segments := func(q SegmentQuery) func() int {
		q.Conversation = busy
		return func() int {
			refs, err := s.Segments(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			return len(refs)
		}
	}
	if _, err := s.PutStatus(ctx, Status{Conversation: busy, MessageID: 5, Kind: StatusRecalled}); err != nil {
		t.Fatal(err)
	}
	many := make([][]byte, 300)
	for i := range many {
		many[i] = fmt.Appendf(nil, "none%d", i)
		if i%10 == 0 {
			many[i] = busy
		}
	}
	for name, c := range map[string]struct {
		run        func() int
		want, most int
	}{
		"newest":   {segments(SegmentQuery{Limit: 4}), 4, 40},
		"before":   {segments(SegmentQuery{Limit: 4, Before: new(uint64(150_000))}), 4, 40},
		"days":     {segments(SegmentQuery{Limit: 64, Days: []snowflake.Day{longDay(7), longDay(1500), longDay(1501)}}), 3, 60},
		"days cut": {segments(SegmentQuery{Limit: 2, Days: []snowflake.Day{longDay(7), longDay(1500), longDay(1501)}}), 2, 60},
		"no day":   {segments(SegmentQuery{Limit: 64, Days: []snowflake.Day{longDay(7000)}}), 0, 10},
		"moving": {func() int {
			m, err := s.Moving(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return len(m.InUse)
		}, 0, 10},
		"boundary": {func() int {
			b, err := s.Boundaries(ctx, [][]byte{busy})
			if err != nil || b[0].WarmFrom != 100*(longDays-7)+100 {
				t.Errorf("boundary %+v, %v", b, err)
			}
			return len(b)
		}, 1, 60},
		"boundaries": {func() int {
			b, err := s.Boundaries(ctx, many)
			if err != nil || b[290].WarmFrom != 100*(longDays-7)+100 || !b[291].WarmAll {
				t.Fatalf("boundaries %+v, %v", b[290:], err)
			}
			return len(b)
		}, len(many), 15 * len(many)},
		"statuses": {func() int {
			st, err := s.Statuses(ctx, StatusQuery{Conversation: busy, From: 1, To: 9, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return len(st)
		}, 1, 10},
		"versions": {func() int {
			if _, err := s.Versions(ctx); err != nil {
				t.Fatal(err)
			}
			return 1
		}, 1, 3},
	} {
		c.run() // caches schemas and numbers
		got := 0
		n := reads(t, s, func() { got = c.run() })
		t.Logf("%s: %d found, %d read", name, got, n)
		if got != c.want || n > c.most {
			t.Errorf("%s: %d found, %d read; want %d, at most %d", name, got, n, c.want, c.most)
		}
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	day := longDay(7)
	for name, c := range map[string]struct {
		plan []step
		want string
		sort bool // sorts what it found
	}{
		"days":   {plan(t, s, fmt.Sprintf(segmentQuery, "page_day", "g.day IN (?, ?)", beforeOrder), src, busy, day, day.Next(), 10, src), "g page_day, s PRIMARY, c PRIMARY, o PRIMARY, q PRIMARY", true},
		"before": {plan(t, s, fmt.Sprintf(segmentQuery, "page_before", "g.min_cursor < ?", beforeOrder), src, busy, 5000, 10, src), "g page_before, s PRIMARY, c PRIMARY, o PRIMARY, q PRIMARY", false},
		"after":  {plan(t, s, fmt.Sprintf(segmentQuery, "page_after", "g.max_cursor > ?", afterOrder), src, busy, 5000, 10, src), "g page_after, s PRIMARY, c PRIMARY, o PRIMARY, q PRIMARY", false},
		"boundaries": {plan(t, s, fmt.Sprintf(boundaryQuery, " UNION ALL SELECT ?, ?"), src, src, src, src, 0, busy, 1, []byte("c"), src),
			"b begun, g page_after, g page_before, g page_before, s PRIMARY, s PRIMARY, s PRIMARY, w PRIMARY", false},
		"moving": {plan(t, s, movingQuery, testSource), "s name, x state", false},
	} {
		var got []string
		for _, p := range c.plan {
			if p.table == "" || p.table[0] == '<' {
				continue // the list of conversations asked for
			}
			got = append(got, p.table+" "+p.key)
			if !c.sort && (strings.Contains(p.extra, "filesort") || strings.Contains(p.extra, "temporary")) {
				t.Errorf("%s sorts: %+v", name, p)
			}
		}
		if name == "boundaries" {
			slices.Sort(got) // the servers differ in how they list subqueries
		}
		if g := strings.Join(got, ", "); g != c.want {
			t.Errorf("%s: the plan is %s, want %s", name, g, c.want)
		}
	}
}

// Where no purge was begun, boundaries pass over nothing.
func TestBoundariesBeforeAnyPurge(t *testing.T) {
	t.Parallel()
	s := longHistory(t, 0)
	var b []Boundary
	n := reads(t, s, func() {
		var err error
		if b, err = s.Boundaries(t.Context(), [][]byte{[]byte("busy")}); err != nil {
			t.Fatal(err)
		}
	})
	if n > 60 || !b[0].WarmAll || b[0].WarmFrom != 0 || *b[0].ColdMin != 100 || *b[0].ColdMax != 100*longDays+99 {
		t.Errorf("%d read, %+v", n, b[0])
	}
}
