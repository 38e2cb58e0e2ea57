package message

import (
	"strings"
	"testing"
)

// What a column cannot hold as its canonical text is not written into it.
func TestFits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		col      Column
		yes, not []string
	}{
		{Column{Kind: Int, Bits: 8}, []string{"0", "127", "-128"}, []string{"128", "-129", "", "+1", "01", "1.0", "x", "99999999999999999999"}},
		{Column{Kind: Int, Bits: 64}, []string{"-9223372036854775808"}, []string{"9223372036854775808"}},
		{Column{Kind: Int, Bits: 32, SourceType: "mediumint(9)"}, []string{"8388607"}, []string{"8388608"}},
		{Column{Kind: Uint, Bits: 8}, []string{"0", "255"}, []string{"256", "-1"}},
		{Column{Kind: Uint, Bits: 32, SourceType: "mediumint(8) unsigned"}, []string{"16777215"}, []string{"16777216"}},
		{Column{Kind: Uint, Bits: 64}, []string{"18446744073709551615"}, []string{"18446744073709551616"}},
		{Column{Kind: Bit, Bits: 1}, []string{"0", "1"}, []string{"2"}},
		{Column{Kind: Decimal, Precision: 4, Scale: 2}, []string{"99.99", "-99.99", "0.00", "0.01"}, []string{"100.00", "1", "1.5", "1.555"}},
		{Column{Kind: Decimal, Precision: 2, SourceType: "decimal(2,0) unsigned"}, []string{"99"}, []string{"-9", "100"}},
		{Column{Kind: Float}, []string{"0.5"}, []string{"0.1", "x"}},
		{Column{Kind: Double, SourceType: "double unsigned"}, []string{"0.1"}, []string{"-0.1", "inf", "1e3"}},
		{Column{Kind: Date}, []string{"2020-02-29"}, []string{"2021-02-29", "2020-2-9"}},
		{Column{Kind: DateTime, Scale: 3}, []string{"2020-02-29 01:02:03.004"}, []string{"2020-02-29 01:02:03"}},
		{Column{Kind: Time}, []string{"-838:59:59"}, []string{"1:2:3"}},
		{Column{Kind: Year}, []string{"2020"}, []string{"20"}},
		{Column{Kind: Text, SourceType: "varchar(3)", Charset: "utf8mb4"}, []string{"", "äöü"}, []string{"äöüa", "\xff"}},
		{Column{Kind: Text, SourceType: "varchar(3)", Charset: "latin1"}, []string{"abc"}, []string{"ä"}},
		{Column{Kind: Text, SourceType: "char(3)"}, []string{"a b"}, []string{"ab ", "abcd"}},
		{Column{Kind: Text, SourceType: "text"}, []string{strings.Repeat("x", 255)}, nil},
		{Column{Kind: Text, SourceType: "json"}, []string{"{}", "1"}, []string{"{", ""}},
		{Column{Kind: Text, Enumerated: true, SourceType: "enum('sent','it''s','a,b')"}, []string{"sent", "it's", "a,b"}, []string{"Sent", "it", "s", "", "sent,it's"}},
		{Column{Kind: Text, Enumerated: true, SourceType: "set('a','b','c')"}, []string{"", "a", "a,c", "a,b,c"}, []string{"c,a", "a,a", "d", "a,"}},
		{Column{Kind: Bytes, SourceType: "varbinary(2)"}, []string{"\xff\x00"}, []string{"abc"}},
		{Column{Kind: Bytes, SourceType: "binary(2)"}, []string{"ab"}, []string{"a"}},
	} {
		for _, v := range c.yes {
			if !c.col.Fits([]byte(v)) {
				t.Errorf("%+v does not take %q", c.col, v)
			}
		}
		for _, v := range c.not {
			if c.col.Fits([]byte(v)) {
				t.Errorf("%+v takes %q", c.col, v)
			}
		}
		c.col.Nullable = false
		null := c.col.Fits(nil)
		c.col.Nullable = true
		if null || !c.col.Fits(nil) {
			t.Errorf("%+v and NULL", c.col)
		}
	}
}
