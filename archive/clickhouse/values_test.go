package clickhouse

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

// nasty is values of each kind that break naive carriers.
func nasty() ([]message.Column, [][]string) {
	type col struct {
		c      message.Column
		values []string
	}
	cols := []col{
		{message.Column{Name: "i8", Kind: message.Int, Bits: 8}, []string{"-128", "0", "127"}},
		{message.Column{Name: "i16", Kind: message.Int, Bits: 16, Nullable: true}, []string{"-32768", null, "32767"}},
		{message.Column{Name: "i32", Kind: message.Int, Bits: 32}, []string{"-2147483648", "2147483647"}},
		{message.Column{Name: "i64", Kind: message.Int, Bits: 64, Nullable: true}, []string{"-9223372036854775808", null, "9223372036854775807", "0"}},
		{message.Column{Name: "u8", Kind: message.Uint, Bits: 8}, []string{"0", "255"}},
		{message.Column{Name: "u16", Kind: message.Uint, Bits: 16}, []string{"65535", "1"}},
		{message.Column{Name: "u32", Kind: message.Uint, Bits: 32, Nullable: true}, []string{"4294967295", null}},
		{message.Column{Name: "u64", Kind: message.Uint, Bits: 64, Nullable: true}, []string{"18446744073709551615", null, "9223372036854775808"}},
		{message.Column{Name: "bit1", Kind: message.Bit, Bits: 1}, []string{"0", "1"}},
		{message.Column{Name: "bit64", Kind: message.Bit, Bits: 64, Nullable: true}, []string{"18446744073709551615", null, "0"}},
		{message.Column{Name: "d9", Kind: message.Decimal, Precision: 9, Scale: 2}, []string{"-9999999.99", "0.00", "-0.01", "9999999.99"}},
		{message.Column{Name: "d18", Kind: message.Decimal, Precision: 18, Scale: 0}, []string{"999999999999999999", "-1", "0"}},
		{message.Column{Name: "d38", Kind: message.Decimal, Precision: 38, Scale: 10, Nullable: true}, []string{"-9999999999999999999999999999.9999999999", null, "0.0000000001", "0.0000000000"}},
		{message.Column{Name: "d65", Kind: message.Decimal, Precision: 65, Scale: 30}, []string{"99999999999999999999999999999999999.999999999999999999999999999999", "-0.000000000000000000000000000001", "0.000000000000000000000000000000"}},
		{message.Column{Name: "f", Kind: message.Float}, []string{"0.10000000149011612", "-0", "0", "3.4028234663852886e38", "1.401298464324817e-45", "0.1"}},
		{message.Column{Name: "g", Kind: message.Double, Nullable: true}, []string{"0.1", null, "1e15", "1.7976931348623157e308", "5e-324", "-0", "1E15", "100000000000000000000"}},
		{message.Column{Name: "day", Kind: message.Date}, []string{"0000-00-00", "1970-01-01", "1969-12-31", "1000-01-01", "9999-12-31", "2149-06-06", "2149-06-07", "2299-12-31", "2300-01-01", "1900-01-01", "1899-12-31", "2026-00-00"}},
		{message.Column{Name: "dt0", Kind: message.DateTime, Nullable: true}, []string{"0000-00-00 00:00:00", null, "1970-01-01 00:00:00", "1969-12-31 23:59:59", "2106-02-07 06:28:15", "2106-02-07 06:28:16", "9999-12-31 23:59:59", "2262-04-11 23:47:15", "2262-04-11 23:47:16", "1900-01-01 00:00:00", "1899-12-31 23:59:59", "2026-03-29 02:30:00"}},
		{message.Column{Name: "dt3", Kind: message.DateTime, Scale: 3}, []string{"0000-00-00 00:00:00.000", "2026-07-24 00:00:00.123", "1969-12-31 23:59:59.999", "2026-10-25 02:30:00.001", "9999-12-31 23:59:59.999"}},
		{message.Column{Name: "dt6", Kind: message.DateTime, Scale: 6, Nullable: true}, []string{"2026-07-24 23:59:59.999999", null, "1900-01-01 00:00:00.000001", "1899-12-31 23:59:59.999999", "0000-00-00 00:00:00.000000"}},
		{message.Column{Name: "ts0", Kind: message.Timestamp}, []string{"1970-01-01 00:00:01", "2038-01-19 03:14:07", "0000-00-00 00:00:00"}},
		{message.Column{Name: "ts6", Kind: message.Timestamp, Scale: 6, Nullable: true}, []string{"2026-03-08 02:30:00.000001", null, "0000-00-00 00:00:00.000000"}},
		{message.Column{Name: "ts1", Kind: message.Timestamp, Scale: 1}, []string{"2026-11-01 01:30:00.5", "2026-11-01 05:30:00.5"}},
		{message.Column{Name: "tm0", Kind: message.Time}, []string{"-838:59:59", "838:59:59", "00:00:00", "-00:00:00", "-00:00:01"}},
		{message.Column{Name: "tm6", Kind: message.Time, Scale: 6, Nullable: true}, []string{"-838:59:59.000000", null, "-00:00:00.000001", "23:59:59.999999"}},
		{message.Column{Name: "y", Kind: message.Year}, []string{"0000", "1901", "2155"}},
		{message.Column{Name: "yn", Kind: message.Year, Nullable: true}, []string{null, "2026", "0000"}},
		// P1, M8, M15: NULL, empty, NUL, quotes, tabs, backslashes, emoji, bytes that are no UTF-8.
		{message.Column{Name: "txt", Kind: message.Text, Nullable: true}, []string{null, "", " ", "é", "😀", "\x00", "a\tb\nc\\d'e\"f", "\\N", "NULL", strings.Repeat("字", 5000)}},
		{message.Column{Name: "txt1", Kind: message.Text}, []string{"", "x", "\x00\x00", "0"}},
		{message.Column{Name: "raw", Kind: message.Bytes, Nullable: true}, []string{null, "", "\x00", "\xf0", "\x00'\\\xff\x80\n\x1a", "\xff\xfe\xfd"}},
		{message.Column{Name: "raw1", Kind: message.Bytes}, []string{"", "\x00", "\xff"}},
		{message.Column{Name: "enum", Kind: message.Text, Enumerated: true}, []string{"a", "", "b", "a", "ü"}},
		{message.Column{Name: "enumn", Kind: message.Text, Enumerated: true, Nullable: true}, []string{"a", null, "", "b", "a"}},
		{message.Column{Name: "odd name, with-comma.and:values", Kind: message.Text}, []string{"a", "b"}},
		{message.Column{Name: "values", Kind: message.Text}, []string{"format", "select"}},
		{message.Column{Name: "名前", Kind: message.Text}, []string{"あ"}},
	}
	most := 0
	for _, c := range cols {
		most = max(most, len(c.values))
	}
	var defs []message.Column
	for _, c := range cols {
		c.c.SourceType = c.c.Kind.String()
		defs = append(defs, c.c)
	}
	var rows [][]string
	for i := range most * 3 { // so that rows combine values differently
		row := []string{fmt.Sprint(uint64(18446744073709551615) - uint64(i)), fmt.Sprint((i%5 - 2) * 1000), fmt.Sprint(i), null}
		for j, c := range cols {
			row = append(row, c.values[(i+j*(i/most))%len(c.values)])
		}
		rows = append(rows, row)
	}
	return defs, rows
}

// Every kind's nasty values come back with an equal fingerprint, from a copy and from a
// page. M4: IDs up to 2^64-1. M7: zero dates and NULL dates. M8: bytes.
func TestNastyValuesComeBack(t *testing.T) {
	t.Parallel()
	defs, rows := nasty()
	s := schema(t, defs...)
	d := migrated(t, nil, s)
	want := batchOf(t, s, rows...)
	id := copyID("a1")
	insert(t, d, id, want)
	wantEqual(t, readAll(t, d, id, s), want)

	total := 0
	for _, conv := range []string{"-2000", "-1000", "0", "1000", "2000"} {
		page, err := readPage(testContext(t), d, []CopyID{id}, s, pageQuery{Conversation: []byte(conv), Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Len() {
			if got := string(page.Conversation(i)); got != conv {
				t.Errorf("page of %s has a row of %s", conv, got)
			}
		}
		total += page.Len()
	}
	if total != want.Len() {
		t.Errorf("the pages have %d rows, want %d", total, want.Len())
	}
}
