package warm

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

// A conversation's page has the rows of that conversation and of none that looks like
// it: other case, accents, blanks, zeros, or a number of another type.
func TestConversationIDsAreExact(t *testing.T) {
	t.Parallel()
	texts := []string{"ab", "AB", "Ab", "áb", "ab ", "ab  ", " ab", "ab\t", "", " ", "ab\x00", "a'b\\", "😀", "😀 ", "é", "e\u0301", "ß", "ss", "SS", "漢", "?", "??", "1", "01", "1.0", "1e0"}
	hex := func(v string) string { return fmt.Sprintf("_utf8mb4 X'%x'", v) }
	raw := func(v string) string { return fmt.Sprintf("X'%x'", v) }
	plain := func(v string) string { return v }
	never := []string{"\xff", "ab\xc3", "18446744073709551616", "-9223372036854775809", "+1", "00", "-0", "0x1", " 1", "NULL", strings.Repeat("ab", 1000)}
	only := func(keep func(r rune) bool) (out []string) {
		for _, v := range texts {
			if !strings.ContainsFunc(v, func(r rune) bool { return !keep(r) }) {
				out = append(out, v)
			}
		}
		return out
	}
	ascii := only(func(r rune) bool { return r < 128 })
	for _, c := range []struct {
		ddl    string
		values []string
		sql    func(string) string
	}{
		{"BIGINT", []string{"-9223372036854775808", "-1", "0", "1", "9007199254740993", "9007199254740992", "9223372036854775807"}, plain},
		{"BIGINT UNSIGNED", []string{"0", "1", "9223372036854775808", "9223372036854775809", "18446744073709551615"}, plain},
		{"TINYINT", []string{"-128", "0", "127"}, plain},
		{"INT(8) ZEROFILL", []string{"0", "7", "4294967295"}, plain},
		{"VARCHAR(60) COLLATE utf8mb4_general_ci", texts, hex},
		{"VARCHAR(60) COLLATE utf8mb4_unicode_ci", texts, hex},
		{"VARCHAR(60) COLLATE utf8mb4_bin", texts, hex},
		{"VARCHAR(60)", texts, hex}, // the server's own collation
		{"VARCHAR(60) CHARACTER SET utf8mb3", only(func(r rune) bool { return r < 1<<16 }), hex},
		{"VARCHAR(60) CHARACTER SET latin1", only(func(r rune) bool { return r < 256 }), hex},
		{"VARCHAR(60) CHARACTER SET ascii", ascii, hex},
		{"VARCHAR(60) CHARACTER SET utf16", texts, hex},
		{"CHAR(60) COLLATE utf8mb4_general_ci", []string{"ab", "AB", "áb", "", " ab", "😀", "?"}, hex},
		{"ENUM('ab','x AB','?')", []string{"ab", "x AB", "?"}, hex},
		{"VARBINARY(60)", append(slices.Clone(texts), "\xff", "ab\xc3"), raw},
		{"BINARY(4)", []string{"ab\x00\x00", "ab  ", "AB\x00\x00", "\xff\xfe\xfd\xfc"}, raw},
	} {
		t.Run(c.ddl, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec("CREATE TABLE msg (id BIGINT NOT NULL PRIMARY KEY, conv " + c.ddl + " NOT NULL, KEY (conv))")
			of := map[string][]uint64{}
			id := uint64(0)
			for range 3 {
				var v []string
				for _, text := range c.values {
					id++
					of[text] = append(of[text], id)
					v = append(v, fmt.Sprintf("(%d, %s)", id, c.sql(text)))
				}
				b.exec("INSERT INTO msg VALUES " + strings.Join(v, ", "))
			}
			all := make([]uint64, id)
			for i := range all {
				all[i] = uint64(i) + 1
			}
			w := b.open()
			tables, err := w.Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tab := tables[0]
			for _, text := range slices.Concat(c.values, texts, never) {
				page, err := tab.Page(t.Context(), PageQuery{Conversation: []byte(text), Limit: 10, Newest: true})
				if err != nil {
					t.Fatal(err)
				}
				messages, err := tab.Messages(t.Context(), []byte(text), append(all, math.MaxUint64), "")
				if err != nil {
					t.Fatal(err)
				}
				for what, got := range map[string]*message.Batch{"page": page, "messages": messages} {
					if got.Len() != len(of[text]) {
						t.Errorf("%q: %s of %d rows, want %d", text, what, got.Len(), len(of[text]))
						continue
					}
					for i := range got.Len() {
						if got.MessageID(i) != of[text][i] || string(got.Conversation(i)) != text {
							t.Errorf("%q: %s has message %d of %q", text, what, got.MessageID(i), got.Conversation(i))
						}
					}
				}
				if held, err := w.Holding(t.Context(), tables, []byte(text)); err != nil || len(held) != min(1, len(of[text])) {
					t.Errorf("%q: held by %d tables: %v", text, len(held), err)
				}
			}
			// Each is found by the index: none of them costs what all of them do.
			for _, text := range c.values {
				read := handlerReads(t, readers(t, tab), func() {
					before := of[text][2]
					if _, err := tab.Page(t.Context(), PageQuery{Conversation: []byte(text), Before: &before, Limit: 2, Newest: true}); err != nil {
						t.Fatal(err)
					}
				})
				if most := 3*len(c.values) - 3; read > most && len(c.values) > 5 {
					t.Errorf("%q: a page of 2 rows read %d", text, read)
				}
			}
		})
	}
}

// Cursors may be compared with any number, whatever the column's type holds.
func TestCursorsBeyondTheirColumn(t *testing.T) {
	t.Parallel()
	for ddl, highest := range map[string]uint64{"SMALLINT": 32767, "SMALLINT UNSIGNED": 65535, "MEDIUMINT": 8388607, "INT": math.MaxInt32, "BIGINT": math.MaxInt64, "BIGINT UNSIGNED": math.MaxUint64} {
		b := newBench(t)
		b.cfg.Columns[message.Sequence] = "seq"
		b.exec("CREATE TABLE msg (id BIGINT NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, seq " + ddl + " NOT NULL, KEY (conv, seq))")
		cursors := []uint64{0, 1, 100, highest - 1, highest}
		var all []pageRow
		for i, c := range cursors {
			all = append(all, pageRow{uint64(i) + 1, c})
			b.exec(fmt.Sprintf("INSERT INTO msg VALUES (%d, 1, %d)", i+1, c))
		}
		tab := b.table()
		anchors := []*uint64{nil}
		for _, a := range []uint64{0, 1, highest - 1, highest, highest + 1, math.MaxUint64} {
			anchors = append(anchors, &a)
		}
		for _, q := range []PageQuery{{Limit: 2}, {Limit: 2, Newest: true}, {Limit: 9}} {
			q.Conversation = []byte("1")
			for _, q.Before = range anchors {
				for _, q.After = range anchors {
					got, err := tab.Page(t.Context(), q)
					if err != nil {
						t.Fatal(err)
					}
					if want := q.page(all); !slices.Equal(pageRowsOf(got), want) {
						t.Errorf("%s: %s: got %v, want %v", ddl, q, pageRowsOf(got), want)
					}
				}
			}
		}
		if strings.Contains(ddl, "UNSIGNED") {
			continue
		}
		list := []uint64{2, 1 << 63, 1}
		if read := handlerReads(t, readers(t, tab), func() {
			if got, err := tab.Messages(t.Context(), []byte("1"), list, ""); err != nil || !slices.Equal(pageRowsOf(got), all[:2]) {
				t.Errorf("messages are %v: %v", pageRowsOf(got), err)
			}
		}); read >= len(all) {
			t.Errorf("2 messages and one that cannot be read %d rows", read)
		}
		// As for a scan, a cursor is no negative number.
		b.exec("INSERT INTO msg VALUES (9, 1, -1)")
		if _, err := tab.Page(t.Context(), PageQuery{Conversation: []byte("1"), Limit: 9}); err == nil || !strings.Contains(err.Error(), `message 9: sequence "-1" in column seq`) {
			t.Errorf("%s: a negative sequence: %v", ddl, err)
		}
	}
}
