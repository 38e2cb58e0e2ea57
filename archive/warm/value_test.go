package warm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

// kindCase is a column type and values to try: SQL expressions, with the canonical
// text each must have (Q of it for exact bytes).
type kindCase struct {
	ddl    string
	kind   message.Kind
	values map[string]string
	// parse is the typed form of the kind, nil for opaque ones. It must take each text
	// that is not in untyped.
	parse   func([]byte) bool
	untyped []string
}

func typed[T any](f func([]byte) (T, bool)) func([]byte) bool {
	return func(b []byte) bool { _, ok := f(b); return ok }
}

func scaled[T any](f func([]byte, int) (T, bool), scale int) func([]byte) bool {
	return func(b []byte) bool { _, ok := f(b, scale); return ok }
}

func kindCases() []kindCase {
	ints, uints := typed(message.ParseInt), typed(message.ParseUint)
	text := func(vs ...string) map[string]string {
		m := map[string]string{}
		for _, v := range vs {
			m[v] = v
		}
		return m
	}
	quoted := func(vs ...string) map[string]string {
		m := map[string]string{}
		for _, v := range vs {
			m["'"+v+"'"] = v
		}
		return m
	}
	hex := func(vs ...string) map[string]string {
		m := map[string]string{}
		for _, v := range vs {
			m[fmt.Sprintf("X'%x'", v)] = v
		}
		return m
	}
	long := strings.Repeat("长", 20000)
	return []kindCase{
		{ddl: "TINYINT", kind: message.Int, values: text("-128", "0", "127"), parse: ints},
		{ddl: "TINYINT(1)", kind: message.Int, values: text("0", "1", "-1"), parse: ints},
		{ddl: "TINYINT UNSIGNED", kind: message.Uint, values: text("0", "255"), parse: uints},
		{ddl: "SMALLINT", kind: message.Int, values: text("-32768", "32767"), parse: ints},
		{ddl: "SMALLINT UNSIGNED", kind: message.Uint, values: text("65535"), parse: uints},
		{ddl: "MEDIUMINT", kind: message.Int, values: text("-8388608", "8388607"), parse: ints},
		{ddl: "MEDIUMINT UNSIGNED", kind: message.Uint, values: text("16777215"), parse: uints},
		{ddl: "INT", kind: message.Int, values: text("-2147483648", "2147483647"), parse: ints},
		{ddl: "INT UNSIGNED", kind: message.Uint, values: text("4294967295"), parse: uints},
		{ddl: "INT(8) ZEROFILL", kind: message.Uint, values: text("0", "7", "123456789", "4294967295"), parse: uints},
		{ddl: "BIGINT", kind: message.Int, values: text("-9223372036854775808", "9223372036854775807", "9007199254740993"), parse: ints},
		{ddl: "BIGINT UNSIGNED", kind: message.Uint, values: text("9223372036854775808", "18446744073709551615"), parse: uints},
		{ddl: "BIGINT(20) ZEROFILL", kind: message.Uint, values: text("0", "9223372036854775808", "18446744073709551615"), parse: uints},
		{ddl: "DECIMAL(10,2)", kind: message.Decimal, values: text("-0.01", "0.00", "99999999.99", "-99999999.99"), parse: scaled(message.ParseDecimal, 2)},
		{ddl: "DECIMAL(65,30)", kind: message.Decimal, values: text("-99999999999999999999999999999999999.999999999999999999999999999999", "0.000000000000000000000000000001"), parse: scaled(message.ParseDecimal, 30)},
		{ddl: "DECIMAL(20,0)", kind: message.Decimal, values: text("-1", "0", "12345678901234567890"), parse: scaled(message.ParseDecimal, 0)},
		{ddl: "DECIMAL(10,2) ZEROFILL", kind: message.Decimal, values: text("0.00", "12.50", "99999999.99"), parse: scaled(message.ParseDecimal, 2)},
		{ddl: "FLOAT", kind: message.Float, parse: typed(message.ParseFloat), values: map[string]string{"0.1": "0.10000000149011612", "16777217": "16777216",
			"3.402823466e38": "3.4028234663852886e38", "1.17549435e-38": "1.1754943508222875e-38", "-1.5": "-1.5", "0": "0", "1e-45": "1.401298464324817e-45"}},
		{ddl: "FLOAT(7,2)", kind: message.Float, parse: typed(message.ParseFloat), values: map[string]string{"12345.67": "12345.669921875", "0.01": "0.009999999776482582"}},
		{ddl: "DOUBLE", kind: message.Double, parse: typed(message.ParseDouble), values: map[string]string{"0.1": "0.1", "1e15": "1e15", "123456789012345": "123456789012345",
			"1.7976931348623157e308": "1.7976931348623157e308", "5e-324": "5e-324", "1.23e8": "123000000", "1e-15": "0.000000000000001", "9007199254740993e0": "9.007199254740992e15", "-1.2345678901234567e-100": "-1.2345678901234567e-100", "-2.2250738585072014e-308": "-2.2250738585072014e-308", "2.2250738585072014e-308": "2.2250738585072014e-308"}},
		{ddl: "BIT(1)", kind: message.Bit, parse: uints, values: map[string]string{"b'0'": "0", "b'1'": "1"}},
		{ddl: "BIT(12)", kind: message.Bit, parse: uints, values: map[string]string{"b'101000101100'": "2604", "b'00100111'": "39"}},
		{ddl: "BIT(64)", kind: message.Bit, parse: uints, values: map[string]string{"18446744073709551615": "18446744073709551615", "9223372036854775808": "9223372036854775808"}},
		{ddl: "DATE", kind: message.Date, parse: typed(message.ParseDate), values: quoted("2024-02-29", "9999-12-31", "0000-00-00", "2026-02-31", "2026-00-00", "1000-01-01"), untyped: []string{"0000-00-00", "2026-02-31", "2026-00-00"}},
		{ddl: "DATETIME", kind: message.DateTime, parse: scaled(message.ParseDateTime, 0), values: quoted("2026-05-01 23:59:59", "0000-00-00 00:00:00", "9999-12-31 23:59:59"), untyped: []string{"0000-00-00 00:00:00"}},
		{ddl: "DATETIME(3)", kind: message.DateTime, parse: scaled(message.ParseDateTime, 3), values: quoted("2026-07-24 00:00:00.123", "2026-07-24 00:00:00.000")},
		{ddl: "DATETIME(6)", kind: message.DateTime, parse: scaled(message.ParseDateTime, 6), values: quoted("1000-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999")},
		{ddl: "TIMESTAMP NULL", kind: message.Timestamp, parse: scaled(message.ParseDateTime, 0), values: quoted("1970-01-01 00:00:01", "2038-01-19 03:14:07", "0000-00-00 00:00:00"), untyped: []string{"0000-00-00 00:00:00"}},
		{ddl: "TIMESTAMP(6) NULL", kind: message.Timestamp, parse: scaled(message.ParseDateTime, 6), values: quoted("2026-03-29 02:30:00.654321")},
		{ddl: "TIME", kind: message.Time, parse: scaled(message.ParseTime, 0), values: quoted("-838:59:59", "838:59:59", "00:00:00", "-00:00:01")},
		{ddl: "TIME(6)", kind: message.Time, parse: scaled(message.ParseTime, 6), values: quoted("-00:00:00.000001", "100:00:00.100000")},
		{ddl: "YEAR", kind: message.Year, parse: typed(message.ParseYear), values: map[string]string{"0": "0000", "1901": "1901", "2155": "2155"}},
		{ddl: "CHAR(10)", kind: message.Text, values: map[string]string{"'ab  '": "ab", "''": "", "'~'": "~", "'0:'": "0:"}},
		{ddl: "VARCHAR(255)", kind: message.Text, values: map[string]string{"'ab  '": "ab  ", "''": "", "'日本語 😀'": "日本語 😀", `'tab\tnl\nbs\\q\'nul\0'`: "tab\tnl\nbs\\q'nul\x00"}},
		{ddl: "VARCHAR(50) CHARACTER SET latin1", kind: message.Text, values: map[string]string{"'é€ÿ'": "é€ÿ", "_latin1 X'81'": "\u0081"}},
		{ddl: "VARCHAR(50) CHARACTER SET utf16 COLLATE utf16_bin", kind: message.Text, values: quoted("é😀")},
		{ddl: "VARCHAR(50) CHARACTER SET ascii COLLATE ascii_bin", kind: message.Text, values: quoted("abc", "")},
		{ddl: "VARCHAR(50) CHARACTER SET utf8mb3", kind: message.Text, values: quoted("é漢")},
		{ddl: "VARCHAR(50) CHARACTER SET koi8r", kind: message.Text, values: quoted("привет")},
		{ddl: "TINYTEXT", kind: message.Text, values: quoted("x")},
		{ddl: "TEXT", kind: message.Text, values: quoted("é", "")},
		{ddl: "MEDIUMTEXT", kind: message.Text, values: map[string]string{"REPEAT('长', 20000)": long}},
		{ddl: "LONGTEXT", kind: message.Text, values: quoted("x")},
		{ddl: "LONGTEXT CHARACTER SET latin1", kind: message.Text, values: map[string]string{"REPEAT('é', 70000)": strings.Repeat("é", 70000)}},
		{ddl: "BINARY(4)", kind: message.Bytes, values: map[string]string{"X'61'": "a\x00\x00\x00", "X'00275cff'": "\x00'\\\xff"}},
		{ddl: "VARBINARY(50)", kind: message.Bytes, values: hex("\x00'\\\xff\x80\n\x1a", "\x00", "\xf0", "~", "é")},
		{ddl: "TINYBLOB", kind: message.Bytes, values: hex("\xff\xfe")},
		{ddl: "BLOB", kind: message.Bytes, values: hex("\x80")},
		{ddl: "MEDIUMBLOB", kind: message.Bytes, values: map[string]string{"REPEAT(X'ff', 100000)": strings.Repeat("\xff", 100000), "''": ""}},
		{ddl: "LONGBLOB", kind: message.Bytes, values: hex("x")},
		{ddl: "JSON", kind: message.Text, values: map[string]string{`'{"a": "é😀", "b": [1, 2.5, null]}'`: `{"a": "é😀", "b": [1, 2.5, null]}`, "'null'": "null", `'"x"'`: `"x"`}},
		{ddl: "ENUM('a','it''s','é')", kind: message.Text, values: map[string]string{"'a'": "a", "'it''s'": "it's", "'é'": "é", "'no such member'": ""}},
		{ddl: "ENUM('é','b') CHARACTER SET latin1", kind: message.Text, values: map[string]string{"1": "é"}},
		{ddl: "SET('x','y','z')", kind: message.Text, values: map[string]string{"'z,x'": "x,z", "''": "", "'y'": "y"}},
	}
}

// Each type's one SQL expression gives the same text in a scan and in the server's
// fingerprint, and it is the text that is meant. M4 M5 M7 M8 M15 P1.
func TestValuesAreOneTextInSQLAndGo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cases := kindCases()
	var ddl, names []string
	for i, c := range cases {
		names = append(names, fmt.Sprintf("c%d", i))
		ddl = append(ddl, fmt.Sprintf("c%d %s", i, c.ddl))
	}
	b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, " + strings.Join(ddl, ", ") + ") ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4")
	type expectation struct {
		col  int
		text []byte
		sql  string
	}
	want := map[uint64]expectation{}
	id := uint64(math.MaxUint64)
	for i, c := range cases {
		for expr, text := range c.values {
			id--
			b.exec(fmt.Sprintf("INSERT IGNORE INTO msg (id, conv, %s) VALUES (%d, 1, %s)", names[i], id, expr))
			want[id] = expectation{i, []byte(text), expr}
		}
	}
	tab := b.table()
	seen := 0
	err := tab.Scan(t.Context(), 0, math.MaxUint64, func(c message.Chunk) error {
		for r := range c.Batch.Len() {
			w := want[c.Batch.MessageID(r)]
			kc := cases[w.col]
			seen++
			for col := range cases {
				got := c.Batch.Value(col+2, r)
				switch {
				case col != w.col && got != nil:
					t.Errorf("%s of another row is %q, want NULL", cases[col].ddl, got)
				case col == w.col && (got == nil || !bytes.Equal(got, w.text)):
					t.Errorf("%s %s reads %.100q, want %.100q", kc.ddl, w.sql, got, w.text)
				case col == w.col && kc.parse != nil:
					untyped := false
					for _, u := range kc.untyped {
						untyped = untyped || u == string(got)
					}
					if kc.parse(got) == untyped {
						t.Errorf("%s %s: text %q has a typed form: %v", kc.ddl, w.sql, got, !untyped)
					}
				}
			}
			// Row by row, so that a difference is found where it is.
			one := c.Batch.MessageID(r)
			f, err := tab.Fingerprint(t.Context(), one, one+1)
			if err != nil {
				return err
			}
			var h message.Hasher
			if g := h.Batch(c.Batch, r, r+1); f != g {
				t.Errorf("%s %s: SQL's fingerprint is %s, Go's %s of %.100q", kc.ddl, w.sql, f, g, c.Batch.Value(w.col+2, r))
			}
		}
		return nil
	})
	if err != nil || seen != len(want) {
		t.Fatalf("read %d of %d rows: %v", seen, len(want), err)
	}
	for i, c := range cases {
		if col := tab.Schema().Columns()[i+2]; col.Kind != c.kind {
			t.Errorf("%s is a %s, want %s", c.ddl, col.Kind, c.kind)
		}
	}
}

// Columns of several collations before one of bytes: the server must not make a text of them.
func TestBytesBehindTextsOfSeveralCollations(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, a VARCHAR(9) COLLATE utf8mb4_general_ci, b VARCHAR(9) COLLATE utf8mb4_unicode_520_ci NOT NULL,
		c VARCHAR(9) CHARACTER SET latin1, d TEXT COLLATE utf8mb4_bin, raw VARBINARY(9), e VARCHAR(9) COLLATE utf8mb4_unicode_ci, more BLOB NOT NULL)`)
	b.exec("INSERT INTO msg VALUES (1, 1, 'é', 'é', 'é', 'é', X'FF80', 'é', X'C3'), (2, 1, NULL, '', NULL, 'x', X'FE80', NULL, X''), (3, 1, 'x', 'x', 'x', 'x', NULL, 'x', X'00FF')")
	tab := b.table()
	_, inGo, _ := scanAll(t, tab, 0, math.MaxUint64)
	if inSQL, err := tab.Fingerprint(t.Context(), 0, math.MaxUint64); err != nil || inSQL != inGo {
		t.Errorf("SQL's fingerprint is %s, Go's %s (%v)", inSQL, inGo, err)
	}
}

// Random values of every type that has random values.
func TestRandomRowsHaveOneFingerprint(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL, conv VARCHAR(64) CHARACTER SET latin1 NOT NULL, i BIGINT NULL, u INT UNSIGNED ZEROFILL NOT NULL, d DOUBLE NULL, f FLOAT NULL,
		m DECIMAL(30,10) NULL, x DATETIME(6) NULL, ts TIMESTAMP(3) NULL, tm TIME(2) NULL, v VARBINARY(200) NULL, tx VARCHAR(200) NULL, bt BIT(40) NULL, g BIGINT AS (i+1) VIRTUAL, UNIQUE KEY other (id))`)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	maybe := func(v any) any {
		if r.IntN(6) == 0 {
			return nil
		}
		return v
	}
	random := func(n int) []byte {
		p := make([]byte, r.IntN(n))
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		return p
	}
	runes := func(n int, max int32) string {
		var s strings.Builder
		for range r.IntN(n) {
			c := rune(r.Int32N(max))
			if c >= 0xd800 && c < 0xe000 {
				c = '~'
			}
			s.WriteRune(c)
		}
		return s.String()
	}
	ids := map[uint64]bool{}
	doubles, singles := map[uint64]float64{}, map[uint64]float32{}
	for range 400 {
		id := r.Uint64() >> r.IntN(64)
		if ids[id] || id == math.MaxUint64 {
			continue
		}
		ids[id] = true
		double := math.Float64frombits(r.Uint64())
		if math.IsNaN(double) || math.IsInf(double, 0) {
			double = 0.3
		}
		doubles[id] = double
		single := math.Float32frombits(r.Uint32())
		if math.IsNaN(float64(single)) || math.IsInf(float64(single), 0) || (single != 0 && math.Abs(float64(single)) < 1.2e-38) {
			single = 0.3
		}
		singles[id] = single
		b.exec("INSERT INTO msg (id,conv,i,u,d,f,m,x,ts,tm,v,tx,bt) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", id, runes(30, 255), maybe(int64(r.Uint64())>>2), r.Uint32(), maybe(double), maybe(single),
			maybe(fmt.Sprintf("%d.%010d", r.Int64(), r.Int64N(1e10))), maybe(fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d.%06d", r.IntN(10000), r.IntN(12)+1, r.IntN(31)+1, r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e6))),
			maybe(fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d.%03d", 1971+r.IntN(60), r.IntN(12)+1, r.IntN(28)+1, r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000))),
			maybe(fmt.Sprintf("%d:%02d:%02d.%02d", r.IntN(1600)-800, r.IntN(60), r.IntN(60), r.IntN(100))), maybe(random(200)), maybe(runes(100, 0x10ffff)), maybe(r.Uint32()))
	}
	tab := b.table()
	// The texts of inexact numbers must tell each from every other.
	d, f := tab.Schema().Index("d"), tab.Schema().Index("f")
	err := tab.Scan(t.Context(), 0, math.MaxUint64, func(c message.Chunk) error {
		for i := range c.Batch.Len() {
			id := c.Batch.MessageID(i)
			if v := c.Batch.Value(d, i); v != nil {
				if x, err := strconv.ParseFloat(string(v), 64); err != nil || x != doubles[id] {
					t.Errorf("double %v reads %s", doubles[id], v)
				}
			}
			if v := c.Batch.Value(f, i); v != nil {
				if x, err := strconv.ParseFloat(string(v), 32); err != nil || float32(x) != singles[id] {
					t.Errorf("float %v reads %s", singles[id], v)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, inGo, _ := scanAll(t, tab, 0, math.MaxUint64)
	inSQL, err := tab.Fingerprint(t.Context(), 0, math.MaxUint64)
	if err != nil || inSQL != inGo || len(got) != len(ids) {
		t.Errorf("SQL's fingerprint is %s, Go's %s, of %d rows (%v)", inSQL, inGo, len(ids), err)
	}
	for _, c := range tab.Schema().Columns() {
		if c.Generated != (c.Name == "g") {
			t.Errorf("column %s: generated %v", c.Name, c.Generated)
		}
	}
}

// What losslessCharset promises: each byte of a single-byte set has a UTF-8 form of its own.
func TestCharsetsAreLossless(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, cs := range []string{"latin1", "latin2", "latin5", "latin7", "cp850", "cp852", "cp866", "koi8r", "koi8u", "keybcs2", "macce", "macroman"} {
		if convert, ok := losslessCharset(cs); !ok || !convert {
			t.Errorf("%s is not taken", cs)
		}
		seen := map[string]int{}
		for v := range 256 {
			var s string
			if err := b.db.QueryRowContext(t.Context(), fmt.Sprintf("SELECT HEX(CONVERT(_%s X'%02x' USING utf8mb4))", cs, v)).Scan(&s); err != nil {
				t.Fatal(err)
			}
			if before, twice := seen[s]; twice {
				t.Errorf("%s: bytes %02x and %02x are both %s", cs, before, v, s)
			}
			seen[s] = v
		}
	}
	if _, ok := losslessCharset("gbk"); ok {
		t.Error("gbk is taken, though codes of it have no UTF-8 form")
	}
}

func TestEmptyMembers(t *testing.T) {
	t.Parallel()
	for ct, want := range map[string]bool{"enum('a','b')": false, "enum('')": true, "enum('a','')": true, "enum('','a')": true,
		"enum('''a','b')": false, "enum('it''s','b''')": false, "set('a','','b')": true, "enum('a''','')": true, "enum('(','),''')": false} {
		if hasEmptyMember(ct) != want {
			t.Errorf("%s has an empty member: %v", ct, !want)
		}
	}
}
