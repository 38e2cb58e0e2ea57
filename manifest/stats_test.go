package manifest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// statSlice is a slice as the numbers of the whole see it.
type statSlice struct {
	day      snowflake.Day
	table    string
	state    State
	live     int
	rows     int
	bytes    int
	failed   bool
	verified time.Duration // ago; 0: never
}

func putStats(t *testing.T, s *Store, list ...statSlice) {
	t.Helper()
	src, err := s.sourceOf(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range list {
		var ago any
		if l.verified > 0 {
			ago = micros(l.verified)
		}
		if _, err := s.db.ExecContext(t.Context(), "INSERT INTO slices (source_id, day, db_name, table_name, lo, hi, state, generation, live_generation, row_count, bytes, failed, verified_at) "+
			"VALUES (?, ?, 'im_00', ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)",
			src, l.day, l.table, i*100, i*100+100, string(l.state), l.live, l.live, l.rows, l.bytes, l.failed, ago); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	if st, err := s.Stats(ctx, time.Hour); err != nil || st.Uncopied != nil || st.Newest != nil || st.Unpurged != nil || len(st.States) != 6 {
		t.Fatalf("an empty manifest has %+v, %v", st, err)
	}
	d := snowflake.MakeDay(2026, 5, 1)
	const lag = 24 * time.Hour
	putStats(t, s,
		statSlice{day: d, table: "a", state: Pending, live: 1, rows: 5, bytes: 50}, // drifted: it has a copy
		statSlice{day: d.Add(1), table: "a", state: Committed, rows: 7, bytes: 70, failed: true},
		statSlice{day: d.Add(2), table: "a", state: Pending},
		statSlice{day: d.Add(3), table: "a", state: Verified, live: 1, rows: 1, bytes: 10, verified: 90 * time.Hour}, // held
		statSlice{day: d.Add(3), table: "b", state: Verified, live: 1, rows: 2, bytes: 20, verified: 50 * time.Hour},
		statSlice{day: d.Add(4), table: "a", state: Purging, live: 1, rows: 2, bytes: 20, verified: 70 * time.Hour},
		statSlice{day: d.Add(5), table: "a", state: Verified, live: 1, rows: 2, bytes: 20, verified: time.Hour},
		statSlice{day: d.Add(6), table: "a", state: Purged, live: 1, rows: 4, bytes: 40, verified: 200 * time.Hour},
	)
	key := SliceKey{Source: testSource, Shard: Shard{"im_00", "a"}, Day: d.Add(3)}
	if _, err := s.AddHold(ctx, Hold{Kind: HoldSlice, Subject: key.String(), Reason: "r", By: "b"}); err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats(ctx, lag)
	if err != nil {
		t.Fatal(err)
	}
	want := map[State]int{Pending: 2, Copying: 0, Committed: 1, Verified: 3, Purging: 1, Purged: 1}
	if fmt.Sprint(st.States) != fmt.Sprint(want) || st.Failed != 1 || st.Holds != 1 {
		t.Errorf("states %v, failed %d, holds %d", st.States, st.Failed, st.Holds)
	}
	if st.Uncopied == nil || *st.Uncopied != d.Add(1) || *st.Newest != d.Add(6) {
		t.Errorf("the oldest without a copy is of %v, the newest day is %v", st.Uncopied, st.Newest)
	}
	if st.Unpurged == nil || math.Abs(st.Now.Sub(*st.Unpurged).Hours()-70) > .1 {
		t.Errorf("what waits longest for its purge was verified at %v, now is %v", st.Unpurged, st.Now)
	}
	if rows, bytes, err := s.ColdSize(ctx); err != nil || rows != 23 || bytes != 230 {
		t.Errorf("cold holds %d rows, %d bytes, %v", rows, bytes, err)
	}
}

// What is asked for all day long reads no rows of the table but those it gives.
func TestStatsWalkIndexes(t *testing.T) {
	t.Parallel()
	s := longHistory(t, longDays-7)
	ctx := t.Context()
	if _, err := s.Stats(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	n := reads(t, s, func() {
		if _, err := s.Stats(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
	})
	if n > longDays+100 {
		t.Errorf("the numbers of the whole read %d entries of %d slices", n, longDays)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	day := longDay(40)
	for name, c := range map[string]struct {
		plan     []step
		want     string
		covering bool
	}{
		"states":   {plan(t, s, statesQuery, src), "slices state|slices due", true},
		"failed":   {plan(t, s, failedQuery, src), "slices failing", true},
		"uncopied": {plan(t, s, uncopiedQuery, src, "pending"), "slices state", false},
		"unpurged": {plan(t, s, unpurgedQuery, src, "verified", 1, 3), "slices due", false},
		"bytes":    {plan(t, s, bytesQuery, src), "slices sizes", true},
		"days":     {plan(t, s, dayTotalsQuery, src, day, day.Add(28)), "slices sizes", true},
		"skew":     {plan(t, s, skewQuery, src, day, day.Add(6)), "slices slice|slices sizes", false},
	} {
		got := ""
		for _, p := range c.plan {
			got += p.table + " " + p.key
			t.Logf("%s: %+v", name, p)
			if c.covering && !strings.HasSuffix(p.extra, "Using index") {
				t.Errorf("%s reads the table: %+v", name, p)
			}
		}
		if !slices.Contains(strings.Split(c.want, "|"), got) {
			t.Errorf("%s: the plan is %s, want %s", name, got, c.want)
		}
	}
}

func TestExpect(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	d := snowflake.MakeDay(2026, 6, 30)
	put := func(back, rows int) {
		putStats(t, s, statSlice{day: d.Add(-back), table: fmt.Sprint("t", back), state: Purged, live: 1, rows: rows})
	}
	expect := func() Expected {
		t.Helper()
		e, err := s.Expect(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := expect(); e.Missing() || e.Weeks != 0 {
		t.Errorf("without a history %+v", e)
	}
	put(7, 100)
	if e := expect(); e.Missing() || e.Expect != 0 {
		t.Errorf("with one week %+v", e)
	}
	put(14, 300)
	put(28, 110)
	put(13, 9999) // another weekday
	if e := expect(); !e.Missing() || e.Expect != 110 || e.Weeks != 3 {
		t.Errorf("with three weeks %+v", e)
	}
	put(0, 0) // an empty slice of the day
	if e := expect(); !e.Missing() {
		t.Errorf("an empty day %+v", e)
	}
	putStats(t, s, statSlice{day: d, table: "more", state: Verified, live: 1, rows: 1})
	if e := expect(); e.Missing() || e.Rows != 1 {
		t.Errorf("a day with a row %+v", e)
	}
	put(21, 0)
	if e := expect(); e.Weeks != 4 || e.Empty != 1 || e.Expect != 105 {
		t.Errorf("with an empty week %+v", e)
	}
}

func TestSkew(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	d := snowflake.MakeDay(2026, 5, 1)
	for i := range 5 {
		rows, size := 2000, 4<<20
		if i == 3 {
			rows = 6600
		}
		putStats(t, s, statSlice{day: d, table: fmt.Sprint("t", i), state: Verified, live: 1, rows: rows, bytes: size},
			statSlice{day: d.Add(1), table: fmt.Sprint("t", i), state: Verified, live: 1, rows: i * 500, bytes: 9},
			statSlice{day: d.Add(2), table: fmt.Sprint("t", i), state: Pending})
	}
	days, err := s.Skew(t.Context(), d, d.Add(2), DefaultSkew)
	if err != nil || len(days) != 2 {
		t.Fatalf("%+v, %v", days, err)
	}
	first, second := days[0], days[1]
	if first.Shards != 5 || first.MedianRows != 2000 || first.Rows != 14600 || len(first.Over) != 1 || first.Over[0].Shard.Table != "t3" ||
		first.Over[0].RowsRatio != 3.3 || first.Over[0].BytesRatio != 1 || first.Largest.Shard.Table != "t3" {
		t.Errorf("the skewed day: %+v", first)
	}
	if len(second.Over) != 0 || second.Largest.RowsRatio != 2 { // 2000 to a median of 1000
		t.Errorf("the other day: %+v", second)
	}
	for _, c := range []struct {
		of   DaySkew
		want float64
	}{
		{first, 3.3}, {second, 2},
		{DaySkew{MedianRows: 400, MedianBytes: 1000, Largest: &ShardSkew{Rows: 600, Bytes: 1100, RowsRatio: 0.6}}, 1.5}, // below the least medians
		{DaySkew{MedianBytes: 1000, Largest: &ShardSkew{Rows: 600, Bytes: 1100, RowsRatio: 0.6}}, 0},
	} {
		if got := c.of.Times(*c.of.Largest); got != c.want {
			t.Errorf("%+v: %v times the median, want %v", c.of.Largest, got, c.want)
		}
	}
}

// A few days make no trend: the last of them may be Sunday's.
func TestForecastOfFewDays(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	d := snowflake.MakeDay(2026, 5, 1)
	total := 0.0
	for i := range trendDays {
		size := 1000 + 100*i
		total += float64(size)
		putStats(t, s, statSlice{day: d.Add(i), table: "a", state: Purged, live: 1, rows: size / 10, bytes: size})
		f, err := s.Forecast(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		few := i < trendDays-1
		if f.Few != few || f.Days != i+1 || few && (f.Trend != 0 || f.PerDay != 1000+50*float64(i) || f.Sizes[2].Bytes != total+365*f.PerDay || f.Sizes[2].Trended != f.Sizes[2].Bytes) || !few && f.Trend != 100 {
			t.Errorf("%d days: %+v", i+1, f)
		}
	}
}

func TestForecast(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	if f, err := s.Forecast(t.Context(), 1000); err != nil || f.Days != 0 || f.QuotaDays != nil || f.Sizes[0].Bytes != 0 {
		t.Fatalf("of an empty manifest %+v, %v", f, err)
	}
	d := snowflake.MakeDay(2026, 5, 1)
	total := 0
	for i := range 28 { // 1000, 1010, ... with a flood and a lull in it
		size, state := 1000+10*i, Purged
		switch {
		case i == 9:
			size = 1_000_000
		case i == 20:
			size = 0
		case i > 24:
			state = Verified
		}
		total += size
		putStats(t, s, statSlice{day: d.Add(i), table: "a", state: state, live: 1, rows: size / 10, bytes: size})
	}
	putStats(t, s, statSlice{day: d.Add(28), table: "a", state: Pending})
	f, err := s.Forecast(t.Context(), uint64(total)+12_700)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > want/100 {
			t.Errorf("%s: %g, want about %g", what, got, want)
		}
	}
	near("bytes a day", f.PerDay, 1270)
	near("trend", f.Trend, 10)
	near("rows a day", f.RowsPerDay, 127)
	near("in 30 days", f.Sizes[0].Bytes-float64(total), 30*1270)
	near("in 30 days with the trend", f.Sizes[0].Trended-float64(total), 30*1270+10*30*31/2)
	near("in a year", f.Sizes[2].Bytes-float64(total), 365*1270)
	if f.QuotaDays == nil {
		t.Fatal("the quota is never reached")
	}
	near("days to the quota", *f.QuotaDays, 10)
	if f.Last != d.Add(27) || f.Days != 28 || f.Waiting.Uncopied != 1 || f.Waiting.Slices != 3 || f.Waiting.Bytes != 1250+1260+1270 {
		t.Errorf("%+v", f)
	}
}

// Of many slices that are past their lag few are read, on either server.
func TestUnpurgedReadsFew(t *testing.T) {
	t.Parallel()
	s := longHistory(t, 0)
	ctx := t.Context()
	if _, err := s.db.ExecContext(ctx, "UPDATE slices SET verified_at = UTC_TIMESTAMP(6) - INTERVAL 2 DAY + INTERVAL id SECOND"); err != nil {
		t.Fatal(err)
	}
	key := SliceKey{Source: testSource, Shard: Shard{"im_00", "msg_00"}, Day: longDay(1)}
	if _, err := s.AddHold(ctx, Hold{Kind: HoldSlice, Subject: key.String(), Reason: "r", By: "b"}); err != nil {
		t.Fatal(err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]bool{key.String(): true}
	var first *time.Time
	n := reads(t, s, func() {
		if first, err = s.unpurged(ctx, src, Verified, time.Hour, held); err != nil {
			t.Fatal(err)
		}
	})
	if first == nil || n > 20 {
		t.Errorf("%v, %d entries read", first, n)
	}
}
