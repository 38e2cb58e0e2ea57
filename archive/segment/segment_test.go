package segment

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

func TestRoundTripOfChat(t *testing.T) {
	r := seeded(t)
	for _, n := range []int{1, 2, 4, 15, 16, 17, 100, 3000} {
		b := chat(t, r, 1<<63+5, n)
		f, spans, data := write(t, b.Schema(), Options{}, b)
		if f.Size != int64(len(data)) || f.Rows != int64(n) || f.Version != 1 {
			t.Fatalf("file of %d rows is described as %+v, is %d bytes", n, f, len(data))
		}
		readBack(t, f, data, b)
		var h message.Hasher
		if len(spans) != 1 || spans[0].Rows != int64(n) || spans[0].Fingerprint != h.Batch(b, 0, n) || spans[0].MinCursor != 1 || spans[0].MaxCursor != uint64(n) ||
			spans[0].LastGroup != len(f.RowGroups)-1 || string(spans[0].Conversation) != "9223372036854775813" {
			t.Errorf("%d rows: spans %+v", n, spans)
		}
		t.Logf("%d rows of %d bytes: file of %d bytes, %d row groups", n, b.Bytes(), len(data), len(f.RowGroups))
	}
}

// P1: NULL, empty, 00 and F0 stay four values, in bytes and in text.
func TestNullEmptyAndBytesStayDifferent(t *testing.T) {
	s := mustSchema(t, []message.Column{{Name: "id", Kind: message.Int, Bits: 64}, {Name: "conv", Kind: message.Int, Bits: 32},
		{Name: "b", Kind: message.Bytes, Nullable: true}, {Name: "t", Kind: message.Text, Nullable: true}},
		map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv"})
	for _, n := range []int{1, 40} { // few rows are PLAIN, many are in a dictionary
		var rows [][]any
		for range n {
			for _, v := range []any{nil, []byte{}, []byte{0}, []byte{0xf0}} {
				tv := v
				if v != nil && len(v.([]byte)) > 0 {
					tv = "x\x00é😀"
				}
				rows = append(rows, []any{len(rows) + 1, -5, v, tv})
			}
		}
		b := batch(t, s, rows...)
		f, _, data := write(t, s, Options{}, b)
		readBack(t, f, data, b)
	}
}

func TestEmptyFile(t *testing.T) {
	f, spans, data := write(t, smallSchema(t), Options{})
	if len(spans) != 0 || f.Rows != 0 {
		t.Errorf("%+v, %+v", f, spans)
	}
	readBack(t, f, data)
}

func TestRowsOutOfOrderAreRefused(t *testing.T) {
	s := mustSchema(t, []message.Column{{Name: "id", Kind: message.Uint, Bits: 64}, {Name: "conv", Kind: message.Uint, Bits: 64}, {Name: "seq", Kind: message.Uint, Bits: 64}},
		map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Sequence: "seq"})
	for name, rows := range map[string][][]any{
		"cursor":       {{1, 7, 5}, {2, 7, 4}},
		"ID":           {{2, 7, 5}, {1, 7, 5}},
		"conversation": {{1, 7, 5}, {2, 10, 6}}, // "10" is before "7" by its bytes
	} {
		w, err := NewWriter(&bytes.Buffer{}, s, Meta{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(batch(t, s, rows...), 0, 2); err == nil {
			t.Errorf("%s out of order is taken", name)
		}
		if _, _, err := w.Close(); err == nil {
			t.Errorf("%s: closed well after an error", name)
		}
	}
	// Over two calls, too; and the right order, with two messages of one cursor, is taken.
	w, _ := NewWriter(&bytes.Buffer{}, s, Meta{}, Options{})
	b := batch(t, s, []any{1, 10, 9}, []any{2, 7, 5}, []any{3, 7, 5})
	if err := w.Write(b, 0, 3); err != nil {
		t.Error(err)
	}
	if err := w.Write(b, 1, 2); err == nil {
		t.Error("a second batch that begins before the end of the first is taken")
	}
}

func TestSpansOfManyConversations(t *testing.T) {
	r := seeded(t)
	s := smallSchema(t)
	b := message.NewBatch(s)
	want := map[string]message.Fingerprint{}
	var h message.Hasher
	for c := range 300 {
		conv := fmt.Sprint(1000 + c)
		n := 1 + r.IntN(30)
		from := b.Len()
		for range n {
			body := noise(r, r.IntN(3000))
			if err := b.Append([][]byte{fmt.Append(nil, b.Len()+1), []byte(conv), body}); err != nil {
				t.Fatal(err)
			}
		}
		want[conv] = h.Batch(b, from, b.Len())
	}
	f, spans, data := write(t, s, Options{RowGroupBytes: 32 << 10}, b)
	if len(spans) != 300 || len(f.RowGroups) < 20 {
		t.Fatalf("%d spans, %d row groups", len(spans), len(f.RowGroups))
	}
	rd, err := Open(f, s)
	if err != nil {
		t.Fatal(err)
	}
	var starts []int64
	at := int64(0)
	for _, g := range f.RowGroups {
		starts = append(starts, at)
		at += g.Rows
	}
	// Reading only the row groups a span names gives the conversation, whole.
	for _, sp := range spans {
		var got message.Fingerprint
		for g := sp.FirstGroup; g <= sp.LastGroup; g++ {
			e := f.RowGroups[g]
			gb, err := rd.ReadGroup(g, data[e.Offset:e.Offset+e.Length])
			if err != nil {
				t.Fatal(err)
			}
			lo, hi := max(sp.FirstRow-starts[g], 0), min(sp.FirstRow+sp.Rows-starts[g], e.Rows)
			for i := lo; i < hi; i++ {
				if !bytes.Equal(gb.Conversation(int(i)), sp.Conversation) {
					t.Fatalf("row %d of group %d is of conversation %s, not %s", i, g, gb.Conversation(int(i)), sp.Conversation)
				}
				if c := gb.Cursor(int(i)); c < sp.MinCursor || c > sp.MaxCursor || c < e.MinCursor || c > e.MaxCursor {
					t.Fatalf("cursor %d outside its span or row group", c)
				}
			}
			got = got.Add(h.Batch(gb, int(lo), int(hi)))
		}
		if got != want[string(sp.Conversation)] || got != sp.Fingerprint {
			t.Fatalf("conversation %s reads %v, span says %v, want %v", sp.Conversation, got, sp.Fingerprint, want[string(sp.Conversation)])
		}
	}
}

// A writer that was reset makes the same bytes as a new one.
func TestResetWriterMakesTheSameFile(t *testing.T) {
	r := seeded(t)
	var first, second bytes.Buffer
	w, err := NewWriter(&bytes.Buffer{}, smallSchema(t), testMeta(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := batch(t, smallSchema(t), []any{1, 1, "x"}, []any{2, 1, nil})
	if err := w.Write(b, 0, 2); err != nil {
		t.Fatal(err)
	}
	c := chat(t, r, 7, 2500)
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := w.Reset(out, c.Schema(), testMeta()); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(c, 0, c.Len()); err != nil {
			t.Fatal(err)
		}
		f, _, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		readBack(t, f, out.Bytes(), c)
	}
	_, _, fresh := write(t, c.Schema(), Options{}, c)
	if !bytes.Equal(first.Bytes(), second.Bytes()) || !bytes.Equal(first.Bytes(), fresh) {
		t.Error("the same rows give other bytes")
	}
}
