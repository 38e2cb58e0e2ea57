package drill

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/drill/scratch"
)

func schema(t *testing.T) *message.Schema {
	t.Helper()
	column := func(name string) message.Column {
		return message.Column{Name: name, Kind: message.Uint, Bits: 64, SourceType: "bigint(20) unsigned"}
	}
	s, err := message.NewSchema([]message.Column{column("id"), column("conv"), column("seq")},
		map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Sequence: "seq"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// batch makes rows of conversation, cursor, ID.
func batch(t *testing.T, s *message.Schema, rows ...[3]uint64) *message.Batch {
	t.Helper()
	b := message.NewBatch(s)
	text := func(n uint64) []byte { return strconv.AppendUint(nil, n, 10) }
	for _, r := range rows {
		if err := b.Append([][]byte{text(r[2]), text(r[0]), text(r[1])}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestGaps shows that a page that lies is found, and one that does not is not.
func TestGaps(t *testing.T) {
	s := schema(t)
	r := &run{Drill: &Drill{cfg: Config{Layout: snowflake.Layout{Epoch: time.Unix(0, 0), Shift: 22}, Zone: time.UTC}}}
	tr := &truth{conversation: []byte("1"), at: map[uint64]int{}}
	for n := uint64(1); n <= 10; n++ {
		tr.at[n] = len(tr.rows)
		tr.rows = append(tr.rows, spot{Place: scratch.Place{Cursor: 10 * n, ID: n}})
	}
	n := func(x uint64) *uint64 { return &x }
	complete, partial, pending := restore.Complete, restore.Partial, restore.Pending
	for _, c := range []struct {
		name  string
		q     restore.Query
		state restore.State
		more  bool
		older bool
		limit int
		ids   []uint64
		want  string // "": right
	}{
		{"newest", restore.Query{}, complete, true, false, 3, []uint64{10, 9, 8}, ""},
		{"newest, with a gap", restore.Query{}, complete, true, false, 3, []uint64{10, 8, 7}, "message 9"},
		{"newest, without the newest", restore.Query{}, complete, true, false, 2, []uint64{9, 8}, "message 10"},
		{"before", restore.Query{Before: n(50)}, complete, true, false, 2, []uint64{4, 3}, ""},
		{"before, with the anchor", restore.Query{Before: n(50)}, complete, true, false, 2, []uint64{5, 4}, "wrong side"},
		{"before an anchor that is not there", restore.Query{Before: n(45)}, complete, true, false, 1, []uint64{4}, ""},
		{"before, to the end", restore.Query{Before: n(30)}, complete, false, false, 9, []uint64{2, 1}, ""},
		{"before, and it hides the oldest", restore.Query{Before: n(30)}, complete, false, false, 9, []uint64{2}, "message 1"},
		{"before, not full, and it hides the oldest", restore.Query{Before: n(30)}, complete, true, false, 9, []uint64{2}, "message 1"},
		{"before, in part", restore.Query{Before: n(50)}, partial, true, false, 9, []uint64{4}, ""},
		{"before, in part and with a gap", restore.Query{Before: n(50)}, partial, true, false, 9, []uint64{4, 2}, "message 3"},
		{"nothing yet", restore.Query{Before: n(50)}, pending, true, false, 9, nil, ""},
		{"complete and empty", restore.Query{Before: n(50)}, complete, false, false, 9, nil, "message 1"},
		{"before the first cursor", restore.Query{Before: n(0)}, complete, false, false, 9, nil, ""},
		{"after", restore.Query{After: n(50)}, complete, true, false, 2, []uint64{6, 7}, ""},
		{"after, with a gap", restore.Query{After: n(50)}, complete, true, false, 2, []uint64{7, 8}, "message 6"},
		{"after, with the anchor", restore.Query{After: n(50)}, complete, true, false, 2, []uint64{5, 6}, "wrong side"},
		{"oldest", restore.Query{Oldest: true}, complete, true, false, 2, []uint64{1, 2}, ""},
		{"oldest, without the oldest", restore.Query{Oldest: true}, complete, true, false, 2, []uint64{2, 3}, "message 1"},
		{"after the last cursor", restore.Query{After: n(^uint64(0))}, complete, false, false, 2, nil, ""},
		{"around", restore.Query{Around: n(5)}, complete, true, true, 4, []uint64{4, 5, 6, 7}, ""},
		{"around, with a gap", restore.Query{Around: n(5)}, complete, true, true, 4, []uint64{3, 5, 6, 7}, "message 4"},
		{"around, and it hides newer ones", restore.Query{Around: n(5)}, complete, false, true, 9, []uint64{4, 5, 6}, "message 7"},
		{"around, and it hides older ones", restore.Query{Around: n(9)}, complete, false, false, 9, []uint64{8, 9, 10}, "message 1"},
		{"a row that nobody archived", restore.Query{}, complete, true, false, 3, []uint64{11, 10, 9}, "message 11 was not restored"},
	} {
		var rows [][3]uint64
		for _, id := range c.ids {
			rows = append(rows, [3]uint64{1, 10 * id, id})
		}
		b := batch(t, s, rows...)
		p := &restore.Page{State: c.state, HasMore: c.more, HasOlder: c.older, Limit: c.limit}
		for i := range b.Len() {
			p.Rows = append(p.Rows, restore.Row{Batch: b, Index: i})
		}
		bad := strings.Join(r.gaps(&asked{q: c.q, t: tr, page: p}, c.q.After == nil && c.q.Around == nil && !c.q.Oldest), "; ")
		if c.want == "" && bad != "" || !strings.Contains(bad, c.want) {
			t.Errorf("%s: %q, want %q", c.name, bad, c.want)
		}
	}
	// Of days that were not restored nothing is said.
	tr.days = map[snowflake.Day]bool{}
	b := batch(t, s, [3]uint64{1, 110, 11})
	if bad := r.gaps(&asked{q: restore.Query{}, t: tr, page: &restore.Page{State: complete, HasMore: true, Limit: 1, Rows: []restore.Row{{Batch: b}}}}, true); len(bad) > 0 {
		t.Errorf("a row of a day that was not restored: %v", bad)
	}
}

// TestTally counts rows of conversations that lie in several objects, in any order.
func TestTally(t *testing.T) {
	s := schema(t)
	one, two := &tally{}, &tally{}
	one.batch(batch(t, s, [3]uint64{1, 30, 3}, [3]uint64{1, 40, 2}, [3]uint64{2, 10, 9}))
	two.batch(batch(t, s, [3]uint64{1, 10, 4}))
	two.batch(batch(t, s, [3]uint64{1, 30, 1}))
	for _, order := range [][]*tally{{one, two}, {two, one}} {
		all := &tally{}
		for _, x := range order {
			all.add(x)
		}
		f := all.facts()
		// Conversation 1 is 10/4, 30/1, 30/3, 40/2, of which the second object has 10/4 and 30/1.
		want := scratch.Facts{Rows: 5, IDs: 5, Conversations: 2, Ties: 1, Inversions: 2}
		if f.Facts != want || f.first != 1 || f.last != 9 || f.sum.Rows != 5 {
			t.Errorf("%+v, want %+v", f, want)
		}
	}
}

func TestFraction(t *testing.T) {
	for _, c := range []struct {
		f    Fraction
		n    int
		want int
		note string
	}{
		{Fraction{1, 8}, 100, 13, "52 of today's 100 slices (52 %): full coverage within a year takes a sample of at least 1/4, or 8 drills a year"},
		{Fraction{1, 4}, 100, 25, "4 drills at 1/4 restore all of today's 100 slices"},
		{Fraction{1, 1}, 3, 3, "one drill at 1/1 restores all"},
		{Fraction{1, 1000}, 3, 1, "3 drills at 1/1000 restore all"},
		{Fraction{1, 8}, 0, 0, "nothing is archived"},
	} {
		if got := c.f.of(c.n); got != c.want {
			t.Errorf("%s of %d is %d, want %d", c.f, c.n, got, c.want)
		}
		if got := c.f.coverage(c.n); !strings.Contains(got, c.note) {
			t.Errorf("%s of %d: %q, want %q", c.f, c.n, got, c.note)
		}
	}
}

// TestFaulty sees that every fault occurs, the same for the same seed.
func TestFaulty(t *testing.T) {
	draw := func(seed uint64) (out string) {
		f := newFaulty(nil, seed, time.Second, nil)
		for i := range 400 {
			out += fmt.Sprint(f.draw("key", int64(i%100), 1)%100, " ")
		}
		return out
	}
	if first, again := draw(1), draw(1); first != again || first == draw(2) {
		t.Error("faults do not follow from the seed")
	}
	seen := map[int]int{}
	for text := range strings.FieldsSeq(draw(3)) {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case n < 30:
			seen[0]++
		case n < 45:
			seen[1]++
		case n < 60:
			seen[2]++
		case n < 70:
			seen[3]++
		case n < 75:
			seen[4]++
		default:
			seen[5]++
		}
	}
	if len(seen) != 6 {
		t.Errorf("of the kinds of faults there were %v", seen)
	}
}
