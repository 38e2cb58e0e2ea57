package selection_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/copies"
)

func putOptions() bucket.PutOptions { return bucket.PutOptions{} }

// A status that was put after archiving is in the status column, the body stays as it
// was archived, and as of an instant before it was put the column reads as before.
func TestStatusesAreApplied(t *testing.T) {
	t.Parallel()
	x := copies.New(t)
	day := snowflake.MakeDay(2024, 3, 1)
	lo, _, err := copies.Layout().Window(day, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	sh := manifest.Shard{Database: "im_00", Table: "msg"}
	var rows [][][]byte
	for i := range uint64(8) {
		rows = append(rows, row(lo+i, "c", i, 0, fmt.Appendf(nil, "body %d", i)))
	}
	put := func(i uint64, conv string, kind manifest.StatusKind, value string) {
		t.Helper()
		st := manifest.Status{Conversation: []byte(conv), MessageID: lo + i, Kind: kind, By: "test"}
		if value != "" {
			st.Value = &value
		}
		if _, err := x.Store.PutStatus(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
	x.Commit(copies.Copy{Shard: sh, Day: day, Schema: schema(t, nil), Rows: rows})
	put(0, "c", manifest.StatusRecalled, "2")
	put(1, "c", manifest.StatusDeleted, "")       // no value
	put(2, "c", manifest.StatusRecalled, "999")   // no TINYINT
	put(3, "other", manifest.StatusRecalled, "2") // of another conversation
	put(4, "c", manifest.StatusRecalled, "2")     // and taken back
	put(4, "c", manifest.StatusNone, "")
	now, err := x.Store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(5, "c", manifest.StatusRecalled, "3")
	read := func(sel selection.Selection) (got map[uint64]string, r *selection.Read) {
		t.Helper()
		list, err := x.Reader(false).Slices(t.Context(), sel)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		got = map[uint64]string{}
		var h message.Hasher
		var sum message.Fingerprint
		r, err = x.Reader(false).Read(t.Context(), sel, list[0], func(b *message.Batch) error {
			sum = sum.Add(h.Batch(b, 0, b.Len()))
			for i := range b.Len() {
				got[b.MessageID(i)-lo] = fmt.Sprintf("%s %s", b.Value(3, i), b.Value(4, i))
			}
			return nil
		})
		if err != nil || sum != r.Fingerprint {
			t.Fatal(sum, r, err)
		}
		return got, r
	}
	check := func(name string, got map[uint64]string, changed map[uint64]string) {
		t.Helper()
		for i := range uint64(8) {
			want := fmt.Sprintf("0 body %d", i)
			if s, ok := changed[i]; ok {
				want = fmt.Sprintf("%s body %d", s, i)
			}
			if got[i] != want {
				t.Errorf("%s: message %d reads %q, want %q", name, i, got[i], want)
			}
		}
	}
	got, r := read(selection.Selection{})
	check("now", got, map[uint64]string{0: "2", 5: "3"})
	if r.Statuses != 2 {
		t.Errorf("%d statuses", r.Statuses)
	}
	got, _ = read(selection.Selection{Until: &now})
	check("before the last was put", got, map[uint64]string{0: "2"})
	before := day.Next().Start(time.UTC)
	got, _ = read(selection.Selection{Until: &before})
	check("before any was put", got, nil)
	// Where a generation has them in its column already, it reads so; taken back, or as of
	// before, it reads as it did.
	for _, i := range []int{0, 5} {
		rows[i][3] = []byte(map[int]string{0: "2", 5: "3"}[i])
	}
	x.Commit(copies.Copy{Shard: sh, Day: day, Schema: schema(t, nil), Rows: rows, Folded: map[uint64][]byte{lo: []byte("0"), lo + 5: []byte("0")}})
	got, _ = read(selection.Selection{})
	check("folded", got, map[uint64]string{0: "2", 5: "3"})
	put(5, "c", manifest.StatusNone, "")
	got, _ = read(selection.Selection{})
	check("folded and taken back", got, map[uint64]string{0: "2"})
	got, _ = read(selection.Selection{Until: &before})
	check("folded, before any was put", got, nil)
}
