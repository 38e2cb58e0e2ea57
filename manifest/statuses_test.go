package manifest

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// put puts a status that must be taken.
func put(t *testing.T, s *Store, st Status) Status {
	t.Helper()
	got, err := s.PutStatus(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func statusesOf(t *testing.T, s *Store, q StatusQuery) []Status {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	all, err := s.Statuses(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The last put wins, the same put again is the first, and taking back leaves nothing.
func TestPutStatus(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	conv := []byte("a\x00\xff")
	const id = math.MaxUint64
	if all := statusesOf(t, s, StatusQuery{Conversation: conv}); len(all) > 0 {
		t.Errorf("at first: %+v", all)
	}
	none := put(t, s, Status{Conversation: conv, MessageID: id, Kind: StatusNone})
	if v := versions(t, s); none.Kind != StatusNone || none.At.IsZero() || v.Status != 0 {
		t.Errorf("taking back what is not there gives %+v, versions %+v", none, v)
	}
	last := time.Time{}
	for _, st := range []Status{
		{Kind: StatusRecalled, By: "alice"},
		{Kind: StatusRecalled, By: "bob"},
		{Kind: StatusRecalled, Value: new(""), By: "bob"},
		{Kind: StatusEdited, Value: new("é 'x' \x00"), By: "bob"},
		{Kind: StatusDeleted, Value: new(strings.Repeat("v", MaxStatusValue)), By: strings.Repeat("b", MaxStatusBy)},
	} {
		st.Conversation, st.MessageID = conv, id
		before := versions(t, s)
		got := put(t, s, st)
		after := versions(t, s)
		st.At = got.At
		if d := cmp.Diff(st, got); d != "" || !got.At.After(last) || time.Since(got.At).Abs() > time.Minute || after.Status == before.Status || after.Live != before.Live {
			t.Errorf("put %+v: %s, versions %+v, %+v", got, d, before, after)
		}
		if d := cmp.Diff(got, put(t, s, st)); d != "" || versions(t, s) != after {
			t.Errorf("the same again is another:\n%s", d)
		}
		if d := cmp.Diff([]Status{got}, statusesOf(t, s, StatusQuery{Conversation: conv})); d != "" {
			t.Errorf("it reads as another:\n%s", d)
		}
		last = got.At
	}
	before := versions(t, s)
	put(t, s, Status{Conversation: conv, MessageID: id, Kind: StatusNone, By: "bob"})
	if all := statusesOf(t, s, StatusQuery{Conversation: conv}); len(all) > 0 || versions(t, s).Status == before.Status {
		t.Errorf("taken back, it is %+v", all)
	}
	put(t, s, Status{Conversation: conv, MessageID: id, Kind: StatusDeleted})
	if all := statusesOf(t, s, StatusQuery{Conversation: conv}); len(all) != 1 {
		t.Errorf("put after it was taken back: %+v", all)
	}
}

func TestStatusesInARange(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	for _, id := range []uint64{7, 3, 1 << 63, 5, 9} {
		put(t, s, Status{Conversation: []byte("c"), MessageID: id, Kind: StatusRecalled})
		put(t, s, Status{Conversation: []byte("d"), MessageID: id, Kind: StatusRecalled})
	}
	put(t, s, Status{Conversation: []byte("c"), MessageID: 5, Kind: StatusNone})
	for _, c := range []struct {
		q    StatusQuery
		want []uint64
	}{
		{StatusQuery{}, []uint64{3, 7, 9, 1 << 63}},
		{StatusQuery{From: 4}, []uint64{7, 9, 1 << 63}},
		{StatusQuery{From: 3, To: 7}, []uint64{3, 7}},
		{StatusQuery{From: 4, Limit: 2}, []uint64{7, 9}},
		{StatusQuery{From: 4, To: 6}, nil},
	} {
		c.q.Conversation = []byte("c")
		var got []uint64
		for _, st := range statusesOf(t, s, c.q) {
			got = append(got, st.MessageID)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%+v:\n%s", c.q, d)
		}
	}
	between, err := s.StatusesBetween(t.Context(), 3, 9)
	if err != nil || len(between) != 5 || between[0].MessageID != 3 || string(between[0].Conversation) != "c" || string(between[2].Conversation) != "d" {
		t.Errorf("between: %+v, %v", between, err)
	}
	for _, q := range []StatusQuery{{Conversation: []byte("c")}, {Conversation: bytes.Repeat([]byte("x"), 256), Limit: 1}} {
		if _, err := s.Statuses(t.Context(), q); err == nil {
			t.Errorf("%+v is answered", q)
		}
	}
}

// What is refused is told apart from what has failed.
func TestPutStatusRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	good := Status{Conversation: []byte{}, MessageID: 1, Kind: StatusEdited}
	for name, change := range map[string]func(st *Status){
		"kind":          func(st *Status) { st.Kind = "forged" },
		"no kind":       func(st *Status) { st.Kind = "" },
		"conversation":  func(st *Status) { st.Conversation = bytes.Repeat([]byte("x"), 256) },
		"none":          func(st *Status) { st.Conversation = nil },
		"value":         func(st *Status) { st.Value = new(strings.Repeat("v", 256)) },
		"broken value":  func(st *Status) { st.Value = new("\xff") },
		"by":            func(st *Status) { st.By = strings.Repeat("b", 256) },
		"broken by":     func(st *Status) { st.By = "\xff" },
		"value of none": func(st *Status) { st.Kind, st.Value = StatusNone, new("1") },
	} {
		st := good
		change(&st)
		_, err := s.PutStatus(t.Context(), st)
		if !errors.Is(err, ErrStatus) || errors.Is(err, ErrConversation) != (name == "conversation") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.PutStatus(t.Context(), good); err != nil {
		t.Errorf("an empty conversation: %v", err)
	}
	ctx := ctxIn(t, 0)
	if _, err := s.PutStatus(ctx, good); err == nil || errors.Is(err, ErrStatus) {
		t.Errorf("without time: %v", err)
	}
}

// A commit notes what it has folded; a status that is taken back afterwards then reads
// as the column did before, and one that was put meanwhile stays to be folded.
func TestFoldedStatuses(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	conv := []byte("c000000")
	for i := range uint64(6) {
		put(t, s, Status{Conversation: conv, MessageID: 1000 + i, Kind: StatusRecalled, Value: new("2"), By: "a"})
	}
	l := claim(t, s, sl.ID, Pending, Copying)
	c := testCopy(t, sl, 1, l.Attempt(), 1)
	all, err := s.StatusesBetween(ctx, sl.Lo, sl.Hi)
	if err != nil || len(all) != 6 {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, o := range []*Original{{Value: []byte("0")}, {}, {Value: []byte{}}, nil, {Value: []byte("0")}} {
		all[i].Original = o
	}
	c.Statuses = all[:5]
	put(t, s, Status{Conversation: conv, MessageID: 1004, Kind: StatusEdited, By: "b"}) // meanwhile
	before := versions(t, s)
	if err := s.Commit(ctx, l, c, "k", [32]byte{}); err != nil {
		t.Fatal(err)
	}
	if v := versions(t, s); v.Status == before.Status {
		t.Error("the fold has not changed the version")
	}
	folded := func() (f []int) {
		t.Helper()
		rows, err := s.db.QueryContext(ctx, "SELECT folded FROM statuses ORDER BY message_id")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var n int
			if err := rows.Scan(&n); err != nil {
				t.Fatal(err)
			}
			f = append(f, n)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return f
	}
	if d := cmp.Diff([]int{1, 1, 1, 1, 0, 0}, folded()); d != "" {
		t.Errorf("folded:\n%s", d)
	}
	// Status 4 has no value of its own: its column, which was folded, reads as before.
	got := statusesOf(t, s, StatusQuery{Conversation: conv, From: 1004, To: 1004})
	if len(got) != 1 || got[0].Kind != StatusEdited || got[0].Value == nil || *got[0].Value != "0" || got[0].Null {
		t.Errorf("put while it was folded: %+v", got)
	}
	for i := range uint64(6) {
		put(t, s, Status{Conversation: conv, MessageID: 1000 + i, Kind: StatusNone})
	}
	var texts []string
	for _, st := range statusesOf(t, s, StatusQuery{Conversation: conv}) {
		text := "NULL"
		if st.Value != nil {
			text = "'" + *st.Value + "'"
		}
		if st.Null != (st.Value == nil) || st.Kind != StatusNone {
			t.Errorf("taken back: %+v", st)
		}
		texts = append(texts, text)
	}
	if d := cmp.Diff([]string{"'0'", "NULL", "''", "'0'"}, texts); d != "" {
		t.Errorf("taken back:\n%s", d)
	}
	// The next generation is to have the column as it was.
	if all, err = s.StatusesBetween(ctx, sl.Lo, sl.Hi); err != nil || len(all) != 4 {
		t.Fatalf("%+v, %v", all, err)
	}
	if got := all[0].Column([]byte("2")); string(got) != "0" {
		t.Errorf("the column is to read %q", got)
	}
	if got := all[1].Column([]byte("2")); got != nil {
		t.Errorf("the column is to read %q", got)
	}
	// A row that warm has again is as warm has it.
	if err := s.Verified(ctx, l, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(ctx, l, ReasonDrifted); err != nil {
		t.Fatal(err)
	}
	l = claim(t, s, sl.ID, Pending, Copying)
	c = testCopy(t, sl, 2, l.Attempt(), 1)
	c.Statuses = all
	for i := range c.Statuses {
		c.Statuses[i].Original = nil
	}
	if err := s.Commit(ctx, l, c, "k", [32]byte{}); err != nil {
		t.Fatal(err)
	}
	if got := statusesOf(t, s, StatusQuery{Conversation: conv}); len(got) > 0 {
		t.Errorf("as warm has them: %+v", got)
	}
}

// A manifest that was set back takes the statuses of a generation it takes over; what
// was put later stays.
func TestFoldGivesStatusesBack(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	sl := testSlice(t, s, 1)
	conv := []byte("c000000")
	old := put(t, s, Status{Conversation: conv, MessageID: 1001, Kind: StatusRecalled, By: "old"})
	now := put(t, s, Status{Conversation: conv, MessageID: 1002, Kind: StatusDeleted, By: "new"})
	l := claim(t, s, sl.ID, Pending, Copying)
	c := testCopy(t, sl, 1, l.Attempt(), 1)
	at := func(st Status, d time.Duration) FoldedStatus {
		st.Kind, st.Value, st.At, st.By = StatusEdited, new("7"), st.At.Add(d), "record"
		return FoldedStatus{Status: st}
	}
	later, earlier := at(old, time.Second), at(now, -time.Second)
	lost := at(Status{Conversation: conv, MessageID: 1003, At: now.At}, 0)
	c.Statuses = []FoldedStatus{later, earlier, lost}
	if err := s.Commit(t.Context(), l, c, "k", [32]byte{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Status{later.Status, now, lost.Status}, statusesOf(t, s, StatusQuery{Conversation: conv})); d != "" {
		t.Errorf("statuses:\n%s", d)
	}
	for name, st := range map[string]FoldedStatus{"another slice's": {Status: Status{Conversation: conv, MessageID: 2000, Kind: StatusEdited, At: now.At}}, "no time": {Status: Status{Conversation: conv, MessageID: 1001, Kind: StatusEdited}}} {
		c.Statuses = []FoldedStatus{st}
		if err := c.check(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
