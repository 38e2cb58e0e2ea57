package clickhouse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

// Pages of random ranges are what a plain filter of the rows gives: contiguous from the
// cursor, in order, never a row of an attempt or a generation that was not asked for.
func TestPagesAgainstAModel(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	s := schema(t)
	d := migrated(t, nil, s)
	cursors := []uint64{0, 1, 2, 3, 5, 8, 13, 1 << 40, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64 - 1, math.MaxUint64}
	live := message.NewBatch(s)
	var ids []CopyID
	for day := range 4 {
		id := copyID(fmt.Sprintf("live%d", day))
		id.Day, id.Generation = id.Day.Add(40*day), uint32(day+1)
		ids = append(ids, id)
		b := message.NewBatch(s)
		for i := range 300 {
			conv := []string{"-5", "7", "70", "9223372036854775807"}[r.IntN(4)]
			row := [][]byte{fmt.Append(nil, uint64(day)<<40+uint64(i)), []byte(conv), fmt.Append(nil, cursors[r.IntN(len(cursors))]), []byte("live")}
			if err := errors.Join(b.Append(row), live.Append(row)); err != nil {
				t.Fatal(err)
			}
		}
		insert(t, d, id, sorted(t, b))
		insert(t, d, id, sorted(t, b)) // and once more: each row comes out once
		for i, other := range []CopyID{id, id, id, id} {
			dead := message.NewBatch(s)
			for row := range b.Len() {
				vs := b.Row(nil, row)
				vs[3] = []byte("dead")
				if err := dead.Append(vs); err != nil {
					t.Fatal(err)
				}
			}
			switch i {
			case 0:
				other.Attempt += "x"
			case 1:
				other.Generation++
			case 2:
				other.Shard.Table = "msg_01"
			case 3:
				other.Day = other.Day.Next()
			}
			insert(t, d, other, sorted(t, dead))
		}
	}
	live = sorted(t, live)
	for range 60 {
		q := pageQuery{Conversation: []byte([]string{"-5", "7", "70", "9223372036854775807", "8"}[r.IntN(5)]), Limit: 1 + r.IntN(60), Newest: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			q.After = &cursors[r.IntN(len(cursors))]
		}
		if r.IntN(2) == 0 {
			q.Before = &cursors[r.IntN(len(cursors))]
		}
		var want []int
		for i := range live.Len() {
			if bytes.Equal(live.Conversation(i), q.Conversation) && (q.After == nil || live.Cursor(i) > *q.After) && (q.Before == nil || live.Cursor(i) < *q.Before) {
				want = append(want, i)
			}
		}
		if len(want) > q.Limit {
			if q.Newest {
				want = want[len(want)-q.Limit:]
			} else {
				want = want[:q.Limit]
			}
		}
		page, err := readPage(testContext(t), d, ids, s, q)
		if err != nil {
			t.Fatal(err)
		}
		var got, model []uint64
		for i := range page.Len() {
			got = append(got, page.MessageID(i))
			if string(page.Value(3, i)) != "live" {
				t.Fatalf("a row of another copy came out")
			}
		}
		for _, i := range want {
			model = append(model, live.MessageID(i))
		}
		if !slices.Equal(got, model) {
			t.Fatalf("page %s after %s before %s limit %d newest %v: %v, want %v", q.Conversation, cursorText(q.After), cursorText(q.Before), q.Limit, q.Newest, got, model)
		}
	}
	if b, err := readPage(testContext(t), d, nil, s, pageQuery{Conversation: []byte("7"), Limit: 10}); err != nil || b.Len() != 0 {
		t.Errorf("a page of no copies: %d rows, %v", b.Len(), err)
	}
	for n := range 64 { // a page may look for its rows in many copies
		ids = append(ids, copyID(fmt.Sprintf("another-attempt-%d", n)))
		ids[len(ids)-1].Day = ids[0].Day.Add(n)
	}
	if b, err := readPage(testContext(t), d, ids, s, pageQuery{Conversation: []byte("7"), Limit: 10}); err != nil || b.Len() != 10 {
		t.Errorf("a page of many copies: %v", err)
	}
	if _, err := readPage(testContext(t), d, ids, s, pageQuery{Conversation: []byte("7 OR 1"), Limit: 10}); err == nil {
		t.Error("a conversation ID that is no number is taken")
	}
}

// Without a sequence the cursor is the message ID; it may be signed, and conversations may
// be any bytes.
func TestTextConversationsAndSignedIDs(t *testing.T) {
	t.Parallel()
	s := newSchema(t, []message.Column{{Name: "session_id", Kind: message.Bytes}, {Name: "msg_id", Kind: message.Int, Bits: 64}, {Name: "v", Kind: message.Text}})
	d := migrated(t, nil, s)
	d.groupRows = 3
	convs := []string{"", "a", "a\x00", "a\x00b", "A", "\xff\xfe", "'; DROP", "\\", "é", "aa", strings.Repeat("k", 300), "-1", "10", "9"}
	var rows [][]string
	for i, c := range convs {
		rows = append(rows, []string{c, fmt.Sprint(i), "x"}, []string{c, fmt.Sprint(uint64(math.MaxInt64) - uint64(i)), "y"})
	}
	want := batchOf(t, s, rows...)
	insert(t, d, copyID("a"), want)
	wantEqual(t, readAll(t, d, copyID("a"), s), want)
	before, after := uint64(math.MaxUint64), uint64(math.MaxInt64)
	for i, c := range convs {
		p, err := readPage(testContext(t), d, []CopyID{copyID("a")}, s, pageQuery{Conversation: []byte(c), Limit: 1, Newest: true, Before: &before})
		if err != nil || p.Len() != 1 || p.MessageID(0) != uint64(math.MaxInt64)-uint64(i) {
			t.Errorf("page of conversation %q: %v", c, err)
		}
		if p, err = readPage(testContext(t), d, []CopyID{copyID("a")}, s, pageQuery{Conversation: []byte(c), Limit: 9, After: &after}); err != nil || p.Len() != 0 {
			t.Errorf("page of conversation %q beyond the end: %d rows, %v", c, p.Len(), err)
		}
	}
}

// ReadCopy's order is that of the texts of conversation IDs, though the table's is that of
// the numbers: "-10" < "-9" < "10" < "9".
func TestReadCopyOrderOfNumbers(t *testing.T) {
	t.Parallel()
	s := schema(t)
	d := migrated(t, nil, s)
	var rows [][]string
	for i, c := range []int64{math.MinInt64, math.MinInt64 + 1, -1000, -999, -100, -11, -10, -9, -1, 0, 1, 2, 9, 10, 11, 99, 100, 101, 1000, 12345678901, math.MaxInt64 - 1, math.MaxInt64} {
		for n := range 3 {
			rows = append(rows, []string{fmt.Sprint(i*10 + n), fmt.Sprint(c), fmt.Sprint(n), "x"})
		}
	}
	want := batchOf(t, s, rows...)
	insert(t, d, copyID("a"), want)
	insert(t, d, copyID("b"), batchOf(t, s, rows[:10]...)) // not to be read
	for _, size := range []uint64{1, 4, 7, 20, 1000} {
		d.groupRows = size
		wantEqual(t, readAll(t, d, copyID("a"), s), want)
	}
	stop := errors.New("enough")
	if err := d.ReadCopy(testContext(t), copyID("a"), s, func(*message.Batch) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the caller's error is lost: %v", err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := d.ReadCopy(ctx, copyID("a"), s, func(*message.Batch) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled read: %v", err)
	}
}

func cursorText(c *uint64) string {
	if c == nil {
		return "-"
	}
	return fmt.Sprint(*c)
}
