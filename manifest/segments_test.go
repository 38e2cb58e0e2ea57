package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
)

// spanCopy is a copy of one object that holds the given spans.
func spanCopy(t testing.TB, sl Slice, generation uint32, attempt string, spans []segment.Span) *Copy {
	t.Helper()
	c := testCopy(t, sl, generation, attempt, 1)
	c.Objects[0].Key = ObjectPrefix(sl.SliceKey, generation, attempt) + "part-00001.parquet"
	c.Objects[0].Segs, c.Objects[0].File.Rows, c.Chunks[0].Warm = spans, 0, message.Fingerprint{}
	for i := range spans {
		spans[i].Fingerprint.Rows = uint64(spans[i].Rows)
		c.Objects[0].File.Rows += spans[i].Rows
		c.Chunks[0].Warm = c.Chunks[0].Warm.Add(spans[i].Fingerprint)
	}
	return c
}

// A reader that follows the order of Segments has pages without a gap, however
// the segments of neighbouring days overlap, and whatever the limit is.
func TestPagesHaveNoGapUnderAnyOverlap(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	s := open(t, time.Minute)
	// rows of each segment by slice; the cursors of each conversation are unique.
	const convs, days = 3, 25
	rows := map[string]map[uint64][]uint64{}
	spans := make([][]segment.Span, days+1)
	sls := make([]Slice, days+1)
	for day := 1; day <= days; day++ {
		sls[day] = testSlice(t, s, day)
	}
	for c := range convs {
		conv := fmt.Sprint("conv", c)
		rows[conv] = map[uint64][]uint64{}
		for cur := uint64(1); cur <= 200; cur++ {
			day := 1 + int(cur)*days/201 + r.IntN(7) - 3
			if r.IntN(60) == 0 {
				day = r.IntN(days) + 1 // far away
			}
			day = min(max(day, 1), days)
			rows[conv][sls[day].ID] = append(rows[conv][sls[day].ID], cur)
		}
		for day := 1; day <= days; day++ {
			if in := rows[conv][sls[day].ID]; len(in) > 0 {
				spans[day] = append(spans[day], segment.Span{Conversation: []byte(conv), Rows: int64(len(in)), MinCursor: in[0], MaxCursor: in[len(in)-1]})
			}
		}
	}
	for day := 1; day <= days; day++ {
		l := claim(t, s, sls[day].ID, Pending, Copying)
		if err := s.Commit(t.Context(), l, spanCopy(t, sls[day], 1, l.Attempt(), spans[day]), "k", [32]byte{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Verified(t.Context(), l, 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 300 {
		conv := fmt.Sprint("conv", r.IntN(convs))
		at, limit, want, before := r.Uint64N(203), 1+r.IntN(6), 1+r.IntN(20), r.IntN(2) == 0
		q := SegmentQuery{Conversation: []byte(conv), After: &at, Limit: limit}
		if before {
			q.Before, q.After = q.After, nil
		}
		got := readPage(t, s, q, want, rows[conv])
		var all []uint64
		for _, in := range rows[conv] {
			all = append(all, in...)
		}
		all = slices.DeleteFunc(all, func(c uint64) bool { return before && c >= at || !before && c <= at })
		sortPage(all, before)
		if all = all[:min(len(all), want)]; !slices.Equal(got, all) {
			t.Fatalf("%s before=%t %d, %d rows by %d segments: page %v, want %v", conv, before, at, want, limit, got, all)
		}
	}
}

func sortPage(c []uint64, before bool) {
	slices.SortFunc(c, func(a, b uint64) int {
		if before {
			a, b = b, a
		}
		return cmp.Compare(a, b)
	})
}

// readPage reads as the documentation of Segments says a reader does.
func readPage(t *testing.T, s *Store, q SegmentQuery, want int, rows map[uint64][]uint64) []uint64 {
	t.Helper()
	before := q.Before != nil
	for {
		refs, err := s.Segments(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		var page []uint64
		for _, ref := range refs {
			for _, c := range rows[ref.SliceID] {
				if before && c < *q.Before || !before && c > *q.After {
					page = append(page, c)
				}
			}
		}
		sortPage(page, before)
		page = page[:min(len(page), want)]
		if len(refs) < q.Limit {
			return page // there are no more
		}
		last := refs[len(refs)-1].Span
		if len(page) == want && (before && last.MaxCursor <= page[want-1] || !before && last.MinCursor >= page[want-1]) {
			return page // what was not given reaches no nearer than the last that was
		}
		q.Limit *= 2
	}
}

// The oldest end, and only days up to one.
func TestSegmentsOfOldDays(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	for day := 1; day <= 6; day++ {
		verified(t, s, testSlice(t, s, day), 2)
	}
	until := testKey(4).Day
	for name, c := range map[string]struct {
		q    SegmentQuery
		want []int
	}{
		"oldest":         {SegmentQuery{Oldest: true, Limit: 2}, []int{1, 2}},
		"newest":         {SegmentQuery{Limit: 2}, []int{6, 5}},
		"until":          {SegmentQuery{Until: &until, Limit: 2}, []int{4, 3}},
		"before, until":  {SegmentQuery{Until: &until, Before: new(uint64(3001)), Limit: 9}, []int{3, 2, 1}},
		"after, until":   {SegmentQuery{Until: &until, After: new(uint64(2500)), Limit: 9}, []int{2, 3, 4}},
		"after":          {SegmentQuery{After: new(uint64(2999)), Limit: 2}, []int{3, 4}},
		"before":         {SegmentQuery{Before: new(uint64(3000)), Limit: 2}, []int{2, 1}},
		"oldest, until":  {SegmentQuery{Oldest: true, Until: &until, Limit: 9}, []int{1, 2, 3, 4}},
		"before nothing": {SegmentQuery{Before: new(uint64(1000)), Limit: 2}, nil},
	} {
		c.q.Conversation = []byte("c000001")
		refs, err := s.Segments(t.Context(), c.q)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, r := range refs {
			got = append(got, int(r.Span.MinCursor/1000))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: days %v, want %v", name, got, c.want)
		}
	}
}

// Segments come only from the live generation: the former's until the next is
// verified, then the next's.
func TestOnlyTheLiveGenerationIsRead(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	live := func(want uint32) {
		t.Helper()
		for _, q := range []SegmentQuery{{Limit: 5}, {Before: new(uint64(math.MaxUint64)), Limit: 5}, {After: new(uint64(0)), Limit: 5}} {
			q.Conversation = []byte("c000001")
			refs, err := s.Segments(ctx, q)
			switch {
			case err != nil:
				t.Fatal(err)
			case want == 0 && len(refs) > 0, want > 0 && (len(refs) != 1 || refs[0].Generation != want):
				t.Errorf("reads find %+v, want generation %d", refs, want)
			}
		}
	}
	live(0)
	l, _ := commitCopy(t, s, sl, 2)
	live(0)
	if err := s.Verified(ctx, l, 1); err != nil {
		t.Fatal(err)
	}
	live(1)
	if err := s.Reopen(ctx, l, ReasonDrifted); err != nil {
		t.Fatal(err)
	}
	live(1)
	l, _ = commitCopy(t, s, sl, 2)
	live(1)
	if err := s.Verified(ctx, l, 2); err != nil {
		t.Fatal(err)
	}
	live(2)
	var superseded int
	if err := s.db.QueryRowContext(ctx, "SELECT generation FROM copies WHERE superseded_at IS NOT NULL").Scan(&superseded); err != nil || superseded != 1 {
		t.Errorf("superseded is %d, %v", superseded, err)
	}
}

func TestSegmentsRefusesWhatItCannotAnswer(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	one := uint64(1)
	for _, q := range []SegmentQuery{{Conversation: []byte("a")}, {Conversation: []byte("a"), Before: &one, After: &one, Limit: 1}, {Conversation: []byte("a"), Limit: -1}, {Conversation: []byte("a"), Before: &one, Oldest: true, Limit: 1}} {
		if _, err := s.Segments(t.Context(), q); err == nil {
			t.Errorf("%+v is answered", q)
		}
	}
	if _, err := s.Segments(t.Context(), SegmentQuery{Conversation: bytes.Repeat([]byte("x"), 256), Limit: 1}); !errors.Is(err, ErrConversation) {
		t.Errorf("a long conversation: %v", err)
	}
}

// Sources share the tables and see nothing of each other.
func TestSourcesAreApart(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	other := &Store{db: s.db, log: s.log, source: "other", ttl: s.ttl, schemas: map[string]*message.Schema{}}
	sl := testSlice(t, s, 1)
	verified(t, s, sl, 2)
	hold, err := s.AddHold(ctx, Hold{Kind: HoldSlice, Subject: sl.String(), Reason: "r", By: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.BeginRun(ctx, RunStart{Job: "archive", Host: "h"}); err != nil {
		t.Fatal(err)
	}
	// Once before the other source has a number, once after.
	for range 2 {
		list, err1 := other.Slices(ctx, Filter{})
		refs, err2 := other.Segments(ctx, SegmentQuery{Conversation: []byte("c000001"), Limit: 1})
		holds, err3 := other.Holds(ctx, true)
		runs, err4 := other.LastRuns(ctx, "", 5)
		sum, err5 := other.Summary(ctx)
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil || len(list)+len(refs)+len(holds)+len(runs)+len(sum.States)+sum.Holds > 0 {
			t.Errorf("the other source sees %v %v %v %v %+v, %v", list, refs, holds, runs, sum, err)
		}
		_, err6 := other.Slice(ctx, sl.ID)
		_, err7 := other.Claim(ctx, sl.ID, "w", []State{Verified}, "")
		for _, err := range []error{err6, err7, other.ReleaseHold(ctx, hold, "x")} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("the other source reaches in: %v", err)
			}
		}
		k := sl.SliceKey
		k.Source = "other"
		if n, err := other.Ensure(ctx, []Slice{{SliceKey: k, Lo: 5, Hi: 6}}); err != nil {
			t.Errorf("%d, %v", n, err)
		} else if n == 0 {
			break
		}
		if list, err := other.Slices(ctx, Filter{}); err != nil || len(list) != 1 || list[0].Held {
			t.Errorf("the other source has %+v, %v", list, err)
		}
		if _, err := s.db.ExecContext(ctx, "DELETE FROM slices WHERE source_id = ?", other.sourceID); err != nil {
			t.Fatal(err)
		}
	}
}
