package segment

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

func mustSchema(t testing.TB, cols []message.Column, roles map[message.Role]string) *message.Schema {
	t.Helper()
	s, err := message.NewSchema(cols, roles)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// chatSchema is a message table as platforms have them.
func chatSchema(t testing.TB) *message.Schema {
	return mustSchema(t, []message.Column{
		{Name: "msg_id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "session_id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "seq", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "sender_id", Kind: message.Int, Bits: 64, SourceType: "bigint"},
		{Name: "msg_type", Kind: message.Int, Bits: 16, SourceType: "smallint"},
		{Name: "status", Kind: message.Int, Bits: 8, SourceType: "tinyint"},
		{Name: "client", Kind: message.Text, Enumerated: true, Nullable: true, SourceType: "enum('ios','android','web')", Charset: "utf8mb4"},
		{Name: "content", Kind: message.Text, Nullable: true, SourceType: "mediumtext", Charset: "utf8mb4", Collation: "utf8mb4_general_ci"},
		{Name: "extra", Kind: message.Text, Nullable: true, SourceType: "json", Charset: "utf8mb4"},
		{Name: "create_time", Kind: message.DateTime, Scale: 3, SourceType: "datetime(3)"},
		{Name: "update_time", Kind: message.Timestamp, Scale: 0, Nullable: true, SourceType: "timestamp"},
	}, map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "session_id", message.Sequence: "seq", message.SenderID: "sender_id",
		message.MessageType: "msg_type", message.Status: "status", message.Content: "content", message.CreatedAt: "create_time"})
}

// smallSchema has IDs and a body of bytes.
func smallSchema(t testing.TB) *message.Schema {
	return mustSchema(t, []message.Column{
		{Name: "id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "conv", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "body", Kind: message.Bytes, Nullable: true, SourceType: "mediumblob"},
	}, map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Content: "body"})
}

func testMeta() Meta {
	return Meta{Source: "im", Shard: "im_00.msg_00", Day: "2026-05-01", Attempt: "7-abc", Generation: 3, Lo: 1 << 62, Hi: 1<<64 - 1}
}

// batch makes a batch of rows, each of whose values is a string, []byte, nil or number.
func batch(t testing.TB, s *message.Schema, rows ...[]any) *message.Batch {
	t.Helper()
	b := message.NewBatch(s)
	for _, row := range rows {
		values := make([][]byte, len(row))
		for i, v := range row {
			switch v := v.(type) {
			case nil:
			case []byte:
				values[i] = v
			default:
				values[i] = []byte(fmt.Sprint(v))
			}
		}
		if err := b.Append(values); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// write makes a file of whole batches.
func write(t testing.TB, s *message.Schema, o Options, batches ...*message.Batch) (File, []Span, []byte) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, s, testMeta(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := w.Write(b, 0, b.Len()); err != nil {
			t.Fatal(err)
		}
	}
	f, spans, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return f, spans, out.Bytes()
}

// readBack reads a file whole and compares it with the rows that were written.
func readBack(t testing.TB, f File, data []byte, want ...*message.Batch) {
	t.Helper()
	in, at := 0, 0
	meta, err := ReadAll(f, bytes.NewReader(data), func(got *message.Batch) error {
		for i := range got.Len() {
			for in < len(want) && at == want[in].Len() {
				in, at = in+1, 0
			}
			if in == len(want) {
				return fmt.Errorf("more rows than were written")
			}
			for c := range got.Schema().Len() {
				g, w := got.Value(c, i), want[in].Value(c, at)
				if !bytes.Equal(g, w) || (g == nil) != (w == nil) {
					return fmt.Errorf("message %d, column %s: %.80q (NULL: %v) instead of %.80q (NULL: %v)", got.MessageID(i),
						got.Schema().Columns()[c].Name, g, g == nil, w, w == nil)
				}
			}
			at++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for in < len(want) && at == want[in].Len() {
		in, at = in+1, 0
	}
	if in != len(want) {
		t.Fatal("fewer rows than were written")
	}
	if meta != testMeta() {
		t.Errorf("metadata comes back as %+v", meta)
	}
}

// chat makes n rows of one conversation that look like chat.
func chat(t testing.TB, r *rand.Rand, conversation uint64, n int) *message.Batch {
	t.Helper()
	words := []string{"hello", "the", "meeting", "is", "at", "<b>noon</b>", "你好", "😀", "please", "send", "file", "https://example.com/", "tomorrow", "ok", "thanks"}
	b := message.NewBatch(chatSchema(t))
	id := uint64(837851385029464064)
	for i := range n {
		id += uint64(r.Int64N(1 << 32))
		var body []byte
		for range 4 + r.IntN(40) {
			body = fmt.Appendf(body, "%s %x ", words[r.IntN(len(words))], r.Uint32N(1<<12))
		}
		if r.IntN(50) == 0 {
			body = nil
		}
		row := [][]byte{fmt.Append(nil, id), fmt.Append(nil, conversation), fmt.Append(nil, i+1), fmt.Append(nil, 1<<40+r.Int64N(3)*77777777),
			fmt.Append(nil, r.IntN(5)), []byte("0"), []byte([]string{"ios", "android", "web"}[r.IntN(3)]), body, nil,
			fmt.Appendf(nil, "2021-05-%02d %02d:%02d:%02d.%03d", 1+i*28/n, r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000)), []byte("2021-06-01 00:00:00")}
		if err := b.Append(row); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}
