package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// wideHistory has so many tables with a slice on each of so many days: old ones purged, the
// last 14 verified, one a day longer ago than the other, before them one purging, after
// them one of pending, of which each hundredth failed. ANALYZE, as servers do by themselves.
func wideHistory(t testing.TB, tables, days int) *Store {
	t.Helper()
	s := open(t, time.Minute)
	src, err := s.sourceOf(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	digits := "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	numbers := "(SELECT a.d+10*b.d+100*c.d+1000*e.d n FROM " + digits + " a, " + digits + " b, " + digits + " c, " + digits + " e)"
	for _, q := range []string{
		fmt.Sprintf("INSERT INTO slices (source_id, day, db_name, table_name, lo, hi, state, generation, live_generation, row_count, bytes, failed, error, verified_at, lease_token) "+
			"SELECT %d, DATE('2025-01-01') + INTERVAL d.n DAY, CONCAT('im_', LPAD(t.n DIV 64, 2, '0')), CONCAT('msg_', LPAD(t.n MOD 64, 2, '0')), d.n*1000, d.n*1000+1000, "+
			"ELT(1 + (d.n >= %d) + (d.n >= %d) + (d.n >= %d), 'purged', 'purging', 'verified', 'pending'), d.n < %d, d.n < %d, (d.n < %d) * (1000 + t.n), (d.n < %d) * (100 + d.n), d.n = %d AND t.n MOD 100 = 0, "+
			"IF(d.n = %d AND t.n MOD 100 = 0, 'no', NULL), IF(d.n < %d, UTC_TIMESTAMP(6) - INTERVAL %d - d.n DAY, NULL), 1 FROM %s d, %s t WHERE d.n < %d AND t.n < %d ORDER BY d.n, t.n",
			src, days-16, days-15, days-1, days-1, days-1, days-1, days-1, days-1, days-1, days-1, days, numbers, numbers, days, tables),
		"ANALYZE TABLE slices",
	} {
		if _, err := s.db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%v in %.300s", err, q)
		}
	}
	return s
}

// What is summed up by the server is what the slices one by one say, for any states and
// any selection.
func TestOverviewIsOfTheSlices(t *testing.T) {
	t.Parallel()
	s := wideHistory(t, 70, 40)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		state := States()[rng.IntN(len(States()))]
		if _, err := s.db.ExecContext(t.Context(), "UPDATE slices SET state = ?, failed = ?, error = 'why', verified_at = IF(? IN ('verified', 'purging'), UTC_TIMESTAMP(6) - INTERVAL ? HOUR, NULL) WHERE id = ?",
			string(state), rng.IntN(3) == 0, string(state), rng.IntN(400), 1+rng.IntN(2800)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.Slices(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sl := range []Slice{all[3], all[len(all)-100], all[len(all)-1], all[3]} {
		if _, err := s.AddHold(t.Context(), Hold{Kind: HoldSlice, Subject: sl.SliceKey.String(), Reason: "why", By: "me"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.AddHold(t.Context(), Hold{Kind: HoldSlice, Subject: "2031-01-01 im_00.msg_00", Reason: "one that does not exist", By: "me"}); err != nil {
		t.Fatal(err)
	}
	from, to := snowflake.MakeDay(2025, 1, 20), snowflake.MakeDay(2025, 2, 5)
	for name, f := range map[string]Filter{"all": {}, "days": {From: &from, To: &to}, "shards": {Shard: "im_0?.msg_*1"}, "both": {From: &from, Shard: "im_01.msg_0[0-3]"}, "none": {Shard: "nosuch.*"}} {
		list, err := s.Slices(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if (name == "none") != (len(list) == 0) {
			t.Fatalf("%s selects %d slices", name, len(list))
		}
		var want []DayState
		for _, sl := range list {
			i := slices.IndexFunc(want, func(d DayState) bool { return d.Day == sl.Day && d.State == sl.State })
			if i < 0 {
				i, want = len(want), append(want, DayState{Day: sl.Day, State: sl.State})
			}
			d := &want[i]
			d.Slices++
			d.Rows += sl.Rows
			d.Bytes += uint64(sl.Bytes)
			if sl.Failed {
				d.Failed++
			}
			if sl.State == Verified && (d.Last == nil || sl.VerifiedAt.After(*d.Last)) {
				d.Last = sl.VerifiedAt
			}
		}
		slices.SortFunc(want, func(a, b DayState) int {
			return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(slices.Index(States(), a.State), slices.Index(States(), b.State)))
		})
		got, err := s.DayStates(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if d := gocmp.Diff(want, got, gocmp.Comparer(func(a, b snowflake.Day) bool { return a == b })); d != "" {
			t.Errorf("days of %s (-want +got)\n%s", name, d)
		}
		for what, c := range map[string]struct {
			of   func(Slice) bool
			list func() ([]Slice, error)
		}{
			"failed": {func(sl Slice) bool { return sl.Failed }, func() ([]Slice, error) { return s.FailedSlices(t.Context(), f, 10_000) }},
			"held":   {func(sl Slice) bool { return sl.Held }, func() ([]Slice, error) { return s.HeldSlices(t.Context(), f) }},
		} {
			want := slices.DeleteFunc(slices.Clone(list), func(sl Slice) bool { return !c.of(sl) })
			got, err := c.list()
			if err != nil {
				t.Fatal(err)
			}
			if d := gocmp.Diff(keys(want), keys(got)); d != "" || name == "all" && len(got) == 0 {
				t.Errorf("%s of %s (-want +got)\n%s", what, name, d)
			}
		}
	}
	const lag = 168 * time.Hour
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.HeldSlices(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	then := now.Add(30 * time.Hour)
	var want Deletable
	archive, purge := map[Shard]ShardBehind{}, map[Shard]ShardBehind{}
	add := func(m map[Shard]ShardBehind, sl Slice) {
		b, ok := m[sl.Shard]
		if !ok {
			b = ShardBehind{Shard: sl.Shard, Oldest: sl.Day}
		}
		b.Slices++
		b.Rows += sl.Rows
		if sl.Failed {
			b.Failed++
		}
		m[sl.Shard] = b
	}
	for _, sl := range all {
		switch sl.State {
		case Pending, Copying, Committed:
			if !to.Before(sl.Day) {
				add(archive, sl)
			}
		case Verified, Purging:
			if slices.ContainsFunc(held, func(h Slice) bool { return h.ID == sl.ID }) {
				continue
			}
			over := sl.VerifiedAt.Add(lag)
			if sl.State == Purging || !over.After(now) {
				want.Now.Slices, want.Now.Rows, want.Now.Bytes = want.Now.Slices+1, want.Now.Rows+sl.Rows, want.Now.Bytes+uint64(sl.Bytes)
				add(purge, sl)
			} else if want.Next == nil || over.Before(*want.Next) {
				want.Next = &over
			}
			if sl.State == Purging || !over.After(then) {
				want.Then.Slices, want.Then.Rows, want.Then.Bytes = want.Then.Slices+1, want.Then.Rows+sl.Rows, want.Then.Bytes+uint64(sl.Bytes)
			}
		}
	}
	got, err := s.Deletable(t.Context(), lag, then, held)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(want, got); d != "" || want.Now.Slices == 0 || want.Then.Slices == want.Now.Slices {
		t.Errorf("deletable (-want +got)\n%s", d)
	}
	for what, c := range map[string]struct {
		want map[Shard]ShardBehind
		list func() ([]ShardBehind, error)
	}{
		"archive": {archive, func() ([]ShardBehind, error) { return s.BehindArchive(t.Context(), to) }},
		"purge":   {purge, func() ([]ShardBehind, error) { return s.BehindPurge(t.Context(), lag, held) }},
	} {
		list, err := c.list()
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != len(c.want) || len(list) == 0 {
			t.Errorf("%d shards are behind with %s, want %d", len(list), what, len(c.want))
		}
		for i, b := range list {
			if i > 0 && b.Oldest.Before(list[i-1].Oldest) {
				t.Errorf("behind with %s: %s comes after %s", what, b.Oldest, list[i-1].Oldest)
			}
			if (what == "purge") != (b.Since != nil) {
				t.Errorf("behind with %s since %v", what, b.Since)
			}
			b.Since = nil
			if d := gocmp.Diff(c.want[b.Shard], b, gocmp.Comparer(func(a, b snowflake.Day) bool { return a == b })); d != "" {
				t.Errorf("behind with %s (-want +got)\n%s", what, d)
			}
		}
	}
	if n, err := s.VerifiedSince(t.Context(), now.Add(-100*time.Hour)); err != nil || n == 0 {
		t.Errorf("verified lately: %d, %v", n, err)
	}
}

func keys(all []Slice) (list []string) {
	for _, s := range all {
		list = append(list, s.SliceKey.String())
	}
	return list
}

// Sums go by indexes: none of them sorts the slices, or reads them one by one but those of
// the few states that are on their way.
func TestOverviewWalksIndexes(t *testing.T) {
	t.Parallel()
	const tables, days = 64, 120
	s := wideHistory(t, tables, days)
	src, err := s.sourceOf(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key   string
		query string
	}{
		"days":   {"state", dayStatesQuery + "s.source_id = ? GROUP BY s.state, s.day"},
		"shards": {"shard", shardsQuery},
	} {
		p := plan(t, s, c.query, src)
		if len(p) != 1 || p[0].key != c.key || !strings.Contains(p[0].extra, "Using index") || strings.Contains(p[0].extra, "temporary") || strings.Contains(p[0].extra, "filesort") {
			t.Errorf("%s: the plan is %+v", name, p)
		}
	}
	for name, c := range map[string]struct {
		run  func() error
		most int
	}{
		"deletable": {func() error { _, err := s.Deletable(t.Context(), time.Hour, time.Now(), nil); return err }, 40 * tables},
		"behind":    {func() error { _, err := s.BehindArchive(t.Context(), snowflake.MakeDay(2027, 1, 1)); return err }, 10 * tables},
		"since":     {func() error { _, err := s.VerifiedSince(t.Context(), time.Now().Add(-12*time.Hour)); return err }, 15 * tables},
		"failed":    {func() error { _, err := s.FailedSlices(t.Context(), Filter{}, 100); return err }, 40},
	} {
		n := reads(t, s, func() {
			if err := c.run(); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %d of %d read", name, n, tables*days)
		if n > c.most {
			t.Errorf("%s: %d read, want at most %d", name, n, c.most)
		}
	}
}

// BenchmarkOverview sums up 400 days of 1,024 tables.
func BenchmarkOverview(b *testing.B) {
	tables, days := 1024, 400
	if testing.Short() {
		tables, days = 64, 100
	}
	s := wideHistory(b, tables, days)
	for name, run := range map[string]func() error{
		"days":          func() error { _, err := s.DayStates(b.Context(), Filter{}); return err },
		"shards":        func() error { _, err := s.Shards(b.Context(), ""); return err },
		"days_of_shard": func() error { _, err := s.DayStates(b.Context(), Filter{Shard: "im_00.*"}); return err },
		"deletable":     func() error { _, err := s.Deletable(b.Context(), time.Hour, time.Now(), nil); return err },
		"behind":        func() error { _, err := s.BehindArchive(b.Context(), snowflake.MakeDay(2027, 1, 1)); return err },
		"purge":         func() error { _, err := s.BehindPurge(b.Context(), time.Hour, nil); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What was checked is summed up as the list of checks has it, also of generations that are
// live still although there is a newer one.
func TestCoverageIsOfTheGenerations(t *testing.T) {
	t.Parallel()
	s := wideHistory(t, 12, 30)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	do := func(query string, args ...any) {
		t.Helper()
		if _, err := s.db.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatalf("%v in %.200s", err, query)
		}
	}
	for range 60 {
		live := rng.IntN(3)
		do("UPDATE slices SET live_generation = ?, generation = ?, state = ? WHERE id = ?", live, live+rng.IntN(3), string(States()[rng.IntN(len(States()))]), 1+rng.IntN(360))
	}
	const copied = "INSERT IGNORE INTO copies (slice_id, generation, token, attempt, schema_hash, show_create, copied_at, row_count, bytes, record_key, record_sum, committed_at) " +
		"SELECT id, %s, 1, 'x', 'x', '', UTC_TIMESTAMP(), %s, %s, '', '', UTC_TIMESTAMP() FROM slices WHERE %s > 0"
	do(fmt.Sprintf(copied, "generation", "row_count", "bytes", "generation"))
	do(fmt.Sprintf(copied, "live_generation", "7", "70000 + id", "live_generation"))
	do("INSERT INTO checks (slice_id, generation, objects_at, rows_at, rows_good_at, read_at, good_at) SELECT slice_id, generation, x.t, x.t, x.t, x.t, x.t FROM " +
		"(SELECT slice_id, generation, UTC_TIMESTAMP(6) - INTERVAL slice_id * 7 MOD 60 DAY - INTERVAL slice_id SECOND AS t FROM copies WHERE slice_id MOD 5 > 0) x")
	do("UPDATE checks SET different = 1, good_at = NULL WHERE slice_id MOD 50 = 1")
	const day = 24 * time.Hour
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Checks(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var want Coverage
	older := []time.Duration{20*day + time.Hour, 40*day + time.Hour}
	want.Older = []Unchecked{{Within: older[0]}, {Within: older[1]}}
	longest := func(a, b Check) int {
		at := func(c Check) time.Time {
			if c.GoodAt == nil {
				return time.Time{}
			}
			return *c.GoodAt
		}
		return cmp.Or(at(a).Compare(at(b)), a.Day.Compare(b.Day), cmp.Compare(a.Shard.String(), b.Shard.String()), cmp.Compare(a.Generation, b.Generation))
	}
	former := 0
	for i, c := range all {
		want.Slices++
		want.Bytes += uint64(c.Bytes)
		if c.Bytes >= 70_000 {
			former++
		}
		if c.GoodAt == nil {
			want.Never.Slices++
		}
		for i, d := range older {
			if c.GoodAt == nil || now.Sub(*c.GoodAt) > d {
				want.Older[i].Slices++
			}
		}
		if want.Oldest == nil || longest(c, *want.Oldest) < 0 {
			want.Oldest = &all[i]
		}
		if c.Different {
			want.Different = append(want.Different, c)
		}
	}
	slices.SortFunc(want.Different, func(a, b Check) int {
		return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(a.Shard.String(), b.Shard.String()), cmp.Compare(a.Generation, b.Generation))
	})
	got, err := s.Coverage(t.Context(), older...)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range append([]*Unchecked{&got.Never}, &got.Older[0], &got.Older[1]) {
		u.Bytes = 0 // objects have times of their own: TestChecks
	}
	if d := gocmp.Diff(want, got, gocmp.Comparer(func(a, b snowflake.Day) bool { return a == b })); d != "" || former == 0 || len(want.Different) == 0 {
		t.Errorf("%d former generations; (-want +got)\n%s", former, d)
	}
}

// What a purge may delete, and what waits in warm, is not what an earlier purge has deleted.
func TestRowsThatWereDeletedBefore(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	want := func(when string, rows uint64) {
		t.Helper()
		d, err := s.Deletable(ctx, 0, time.Now().Add(time.Hour), nil)
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.Forecast(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		behind, err := s.BehindPurge(ctx, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		var late uint64
		for _, b := range behind {
			late += b.Rows
		}
		if late != rows {
			t.Errorf("%s %+v are behind, want %d rows", when, behind, rows)
		}
		if d.Now.Rows != rows || d.Then.Rows != rows || d.Now.Slices != 2 || f.Waiting.Rows != rows || f.Waiting.Slices != 2 {
			t.Errorf("%s %+v may be deleted now, %+v soon, %+v waits, want %d rows of 2 slices", when, d.Now, d.Then, f.Waiting, rows)
		}
	}
	whole := verified(t, s, testSlice(t, s, 1), 3).Fingerprint().Rows
	sl := testSlice(t, s, 2)
	first := verified(t, s, sl, 2)
	want("copied,", whole+first.Fingerprint().Rows)

	// Two chunks of a purge that drifts then, and the next generation, which has their rows from the first.
	l := claim(t, s, sl.ID, Verified, "")
	g, err := s.GrantPurge(ctx, l, 0)
	if err != nil {
		t.Fatal(err)
	}
	gone := first.Chunks[0].Warm.Rows
	for _, st := range []ChunkState{ChunkDeleting, ChunkDeleted} {
		if err := g.ChunkState(ctx, 0, st); err != nil {
			t.Fatal(err)
		}
	}
	if gone == 0 {
		t.Fatal("the chunk has no rows")
	}
	want("while it is deleted,", whole+first.Fingerprint().Rows-gone)
	if err := g.Drifted(ctx, "a row more"); err != nil {
		t.Fatal(err)
	}
	l = claim(t, s, sl.ID, Pending, Copying)
	c := testCopy(t, sl, 2, l.Attempt(), 2)
	c.Chunks[0].Warm, c.Chunks[0].Carried = c.Chunks[0].Carried, c.Chunks[0].Warm
	if err := errors.Join(s.Commit(ctx, l, c, "k", [32]byte{}), s.Verified(ctx, l, 2)); err != nil {
		t.Fatal(err)
	}
	want("copied again,", whole+c.Fingerprint().Rows-gone)
}
