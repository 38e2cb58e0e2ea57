package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"testing"
)

func testSchema(t testing.TB) *Schema {
	t.Helper()
	s, err := NewSchema([]Column{
		{Name: "msg_id", Kind: Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "session_id", Kind: Int, Bits: 64, SourceType: "bigint"},
		{Name: "seq", Kind: Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "content", Kind: Bytes, Nullable: true, SourceType: "mediumblob"},
	}, map[Role]string{MessageID: "msg_id", ConversationID: "session_id", Sequence: "seq", Content: "content"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSchemaRoundTripsAndRefuses(t *testing.T) {
	s := testSchema(t)
	j, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseSchema(j)
	if err != nil || !back.Equal(s) || back.Role(Content) != 3 || back.Role(TenantID) != -1 || back.Cursor() != 2 {
		t.Fatalf("schema comes back as %+v, %v", back, err)
	}
	id, conv := Column{Name: "i", Kind: Int, Bits: 64}, Column{Name: "c", Kind: Text}
	for name, bad := range map[string]struct {
		cols  []Column
		roles map[Role]string
	}{
		"twice":                {[]Column{id, id, conv}, map[Role]string{MessageID: "i", ConversationID: "c"}},
		"no ID":                {[]Column{id, conv}, map[Role]string{ConversationID: "c"}},
		"role without column":  {[]Column{id, conv}, map[Role]string{MessageID: "x", ConversationID: "c"}},
		"text as message ID":   {[]Column{id, conv}, map[Role]string{MessageID: "c", ConversationID: "i"}},
		"nullable ID":          {[]Column{{Name: "i", Kind: Int, Nullable: true}, conv}, map[Role]string{MessageID: "i", ConversationID: "c"}},
		"double as a sequence": {[]Column{id, conv, {Name: "s", Kind: Double}}, map[Role]string{MessageID: "i", ConversationID: "c", Sequence: "s"}},
	} {
		if _, err := NewSchema(bad.cols, bad.roles); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// P1: NULL, empty, 00 and F0 are four values, in a batch and in the fingerprint.
func TestNullEmptyAndBytesDiffer(t *testing.T) {
	b := NewBatch(testSchema(t))
	values := [][]byte{nil, {}, {0}, {0xf0}, []byte("~"), []byte("0:")}
	for i, v := range values {
		if err := b.Append([][]byte{[]byte("1"), []byte("2"), []byte("3"), v}); err != nil {
			t.Fatal(err)
		}
		if got := b.Value(3, i); (got == nil) != (v == nil) || !bytes.Equal(got, v) || b.IsNull(3, i) != (v == nil) {
			t.Errorf("value %#v comes back as %#v", v, got)
		}
	}
	var h Hasher
	seen := map[Fingerprint]int{}
	for i := range values {
		f := h.Batch(b, i, i+1)
		if j, twice := seen[f]; twice {
			t.Errorf("values %#v and %#v have one fingerprint", values[j], values[i])
		}
		seen[f] = i
		if f != h.Row(b.Row(nil, i)) {
			t.Errorf("value %d: the row's fingerprint differs from the batch's", i)
		}
	}
	// A lone empty value in a column without data is still not NULL.
	e := NewBatch(testSchema(t))
	if err := e.Append([][]byte{[]byte("1"), []byte("2"), []byte("3"), {}}); err != nil || e.Value(3, 0) == nil {
		t.Errorf("an empty value became NULL (%v)", err)
	}
}

// Equal rows must not cancel out, and moving a byte from one column to the next must show.
func TestFingerprintIsASum(t *testing.T) {
	var h Hasher
	row := func(v ...string) Fingerprint {
		var vs [][]byte
		for _, s := range v {
			vs = append(vs, []byte(s))
		}
		return h.Row(vs)
	}
	a, b := row("1", "ab"), row("1", "c")
	if a.Add(a) == (Fingerprint{Rows: 2}) || a.Add(a).Add(b) == b.Add(Fingerprint{Rows: 2}) {
		t.Error("equal rows cancel out")
	}
	if a.Add(b) != b.Add(a) || a.Add(b).Sub(b) != a {
		t.Error("the sum depends on order")
	}
	if row("ab", "c") == row("a", "bc") || row("1:a") == row("", "a") {
		t.Error("columns run into each other")
	}
	// SHA-256("1:12:ab"), by sha256sum.
	if got := a.String(); got != "a5c4ae21939432b22a20ebf6991f4b34/1" {
		t.Errorf("fingerprint reads %s", got)
	}
	var back Fingerprint
	if err := back.UnmarshalText([]byte(a.String())); err != nil || back != a {
		t.Errorf("fingerprint comes back as %v, %v", back, err)
	}
	for _, bad := range []string{"", "/", "zz", a.Sum(), a.Sum() + "/", a.Sum() + "/-1", a.Sum()[:31] + "g/1"} {
		if back.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q is taken as a fingerprint", bad)
		}
	}
}

func TestBadRowsAreRefusedWhole(t *testing.T) {
	b := NewBatch(testSchema(t))
	for _, row := range [][][]byte{
		{[]byte("-1"), []byte("2"), []byte("3"), nil},
		{[]byte("18446744073709551616"), []byte("2"), []byte("3"), nil},
		{[]byte("1"), nil, []byte("3"), nil},
		{[]byte("1"), []byte("2"), []byte("-3"), nil},
		{nil, []byte("2"), []byte("3"), nil},
		{[]byte("1"), []byte("2"), []byte("3")},
	} {
		if err := b.Append(row); err == nil {
			t.Errorf("row %q is taken", row)
		}
	}
	if b.Len() != 0 || b.Bytes() != 0 || len(b.cols[0].data) != 0 {
		t.Errorf("a refused row left %d rows, %d bytes", b.Len(), b.Bytes())
	}
	if err := b.Append([][]byte{[]byte("18446744073709551615"), []byte("-9223372036854775808"), []byte("0"), nil}); err != nil ||
		b.MessageID(0) != math.MaxUint64 || string(b.Conversation(0)) != "-9223372036854775808" {
		t.Errorf("the largest ID: %v", err)
	}
	if errors.Is(b.Append(nil), ErrBatchFull) {
		t.Error("a short row is taken for a full batch")
	}
}

func TestDoubleText(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 1: "1", -1.5: "-1.5", 0.1: "0.1", 1e15: "1e15", 123456789012345: "123456789012345",
		1e14: "100000000000000", 1e16: "1e16", 1.5e-20: "1.5e-20", 1e-14: "0.00000000000001", 1e300: "1e300", math.Copysign(0, -1): "-0",
		math.MaxFloat64: "1.7976931348623157e308", math.SmallestNonzeroFloat64: "5e-324"} {
		if got := string(AppendDouble(nil, x)); got != want {
			t.Errorf("%g reads %s, want %s", x, got, want)
		}
	}
}

func TestTypedForms(t *testing.T) {
	check := func(kind, text string, ok, want bool, back []byte) {
		t.Helper()
		if ok != want || (ok && string(back) != text) {
			t.Errorf("%s %q: ok %v, want %v; reads back %q", kind, text, ok, want, back)
		}
	}
	for text, want := range map[string]bool{"0000-00-00": false, "2021-02-30": false, "2021-05-01": true, "1000-01-01": true, "9999-12-31": true,
		"1969-12-31": true, "2021-5-1": false, "0000-01-01": false, "2020-02-29": true, "2021-02-29": false} {
		d, ok := ParseDate([]byte(text))
		check("date", text, ok, want, AppendDate(nil, d))
	}
	for _, c := range []struct {
		text  string
		scale int
		want  bool
	}{{"2026-07-24 00:00:00.123", 3, true}, {"2026-07-24 00:00:00", 0, true}, {"1969-12-31 23:59:59.999999", 6, true}, {"0000-00-00 00:00:00.000", 3, false},
		{"2026-07-24 00:00:00.12", 3, false}, {"2026-07-24 24:00:00", 0, false}, {"1000-01-01 00:00:00.5", 1, true}} {
		m, ok := ParseDateTime([]byte(c.text), c.scale)
		check("datetime", c.text, ok, c.want, AppendDateTime(nil, m, c.scale))
	}
	for _, c := range []struct {
		text  string
		scale int
		want  bool
	}{{"-838:59:59", 0, true}, {"00:00:00.000001", 6, true}, {"-00:00:00.5", 1, true}, {"838:59:59.000000", 6, true}, {"-00:00:00", 0, false}, {"1:00:00", 0, false}} {
		m, ok := ParseTime([]byte(c.text), c.scale)
		check("time", c.text, ok, c.want, AppendTime(nil, m, c.scale))
	}
	for _, c := range []struct {
		text  string
		scale int
		want  bool
	}{{"-12.50", 2, true}, {"0.00", 2, true}, {"-0.01", 2, true}, {"12", 0, true}, {"-0.00", 2, false}, {"012", 0, false}, {"1.5", 2, false}, {".50", 2, false},
		{"999999999999999999", 0, true}, {"0.000000000000000001", 18, true}, {"", 0, false}, {"-", 0, false}} {
		n, ok := ParseDecimal64([]byte(c.text), c.scale)
		check("decimal64", c.text, ok, c.want, AppendDecimal64(nil, n, c.scale))
		if big, ok := ParseDecimal([]byte(c.text), c.scale); ok != c.want || (ok && (big.Int64() != n || string(AppendDecimal(nil, big, c.scale)) != c.text)) {
			t.Errorf("decimal %q: %v, ok %v", c.text, big, ok)
		}
	}
}

// Whatever text comes, a typed form that says ok gives the same text again, and nothing panics.
func FuzzTypedForms(f *testing.F) {
	for _, s := range []string{"", "-1", "1.5e-20", "2026-07-24 00:00:00.123", "-838:59:59", "-12.50", "2155", "\x00", "0000-00-00", "1e16", "12345678901234567890123456789.12"} {
		f.Add([]byte(s), uint8(2))
	}
	f.Fuzz(func(t *testing.T, text []byte, s uint8) {
		scale := int(s % 31)
		same := func(kind string, ok bool, back func() []byte) {
			if ok && !bytes.Equal(back(), text) {
				t.Fatalf("%s %q reads back %q", kind, text, back())
			}
		}
		i, ok := ParseInt(text)
		same("int", ok, func() []byte { return appendPaddedInt(i) })
		u, ok := ParseUint(text)
		same("uint", ok, func() []byte { return []byte(FormatID(u)) })
		d, ok := ParseDate(text)
		same("date", ok, func() []byte { return AppendDate(nil, d) })
		m, ok := ParseDateTime(text, scale)
		same("datetime", ok, func() []byte { return AppendDateTime(nil, m, scale) })
		m, ok = ParseTime(text, scale)
		same("time", ok, func() []byte { return AppendTime(nil, m, scale) })
		x, ok := ParseDouble(text)
		same("double", ok, func() []byte { return AppendDouble(nil, x) })
		x4, ok := ParseFloat(text)
		same("float", ok, func() []byte { return AppendFloat(nil, x4) })
		n, ok := ParseDecimal(text, scale)
		same("decimal", ok, func() []byte { return AppendDecimal(nil, n, scale) })
		n8, ok := ParseDecimal64(text, scale)
		same("decimal64", ok, func() []byte { return AppendDecimal64(nil, n8, scale) })
		y, ok := ParseYear(text)
		same("year", ok, func() []byte { return AppendYear(nil, y) })
	})
}

func appendPaddedInt(i int64) []byte {
	if i < 0 {
		return append([]byte("-"), FormatID(-uint64(i))...)
	}
	return []byte(FormatID(uint64(i)))
}

func TestBinaryRoundTripAndDamage(t *testing.T) {
	s := testSchema(t)
	b := NewBatch(s)
	for i := range 200 {
		v := bytes.Repeat([]byte{byte(i)}, i%7)
		if i%5 == 0 {
			v = nil
		}
		if err := b.Append([][]byte{[]byte(FormatID(uint64(i) << 40)), []byte("-7"), []byte(FormatID(uint64(i))), v}); err != nil {
			t.Fatal(err)
		}
	}
	var h Hasher
	bin := b.AppendBinary(nil)
	got := NewBatch(s)
	for range 2 { // into an empty batch, and into a used one
		if err := got.DecodeBatch(bin); err != nil {
			t.Fatal(err)
		}
		if got.Len() != b.Len() || got.Bytes() != b.Bytes() || h.Batch(got, 0, got.Len()) != h.Batch(b, 0, b.Len()) || got.MessageID(3) != 3<<40 {
			t.Fatal("the batch comes back changed")
		}
	}
	for i := range bin {
		if err := got.DecodeBatch(bin[:i]); err == nil {
			t.Fatalf("a batch cut after %d of %d bytes is taken", i, len(bin))
		}
	}
	c := b.Clone()
	b.Reset()
	if h.Batch(c, 0, c.Len()).Rows != 200 || c.IsNull(3, 1) || !c.IsNull(3, 5) || c.Memory() < c.Bytes()/2 {
		t.Error("a clone shares memory with its batch")
	}
}
