package segment

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

// allTypes has a column of every kind and width, nullable but for the IDs.
func allTypes(t testing.TB) *message.Schema {
	return mustSchema(t, []message.Column{
		{Name: "id", Kind: message.Uint, Bits: 64},
		{Name: "conv", Kind: message.Int, Bits: 64},
		{Name: "i8", Kind: message.Int, Bits: 8, Nullable: true},
		{Name: "i16", Kind: message.Int, Bits: 16, Nullable: true},
		{Name: "i32", Kind: message.Int, Bits: 32, Nullable: true},
		{Name: "i64", Kind: message.Int, Bits: 64, Nullable: true},
		{Name: "u8", Kind: message.Uint, Bits: 8, Nullable: true},
		{Name: "u16", Kind: message.Uint, Bits: 16, Nullable: true},
		{Name: "u32", Kind: message.Uint, Bits: 32, Nullable: true},
		{Name: "u64", Kind: message.Uint, Bits: 64, Nullable: true},
		{Name: "d9", Kind: message.Decimal, Precision: 9, Scale: 2, Nullable: true},
		{Name: "d18", Kind: message.Decimal, Precision: 18, Scale: 18, Nullable: true},
		{Name: "d38", Kind: message.Decimal, Precision: 38, Scale: 10, Nullable: true},
		{Name: "d65", Kind: message.Decimal, Precision: 65, Scale: 30, Nullable: true},
		{Name: "f", Kind: message.Float, Nullable: true},
		{Name: "d", Kind: message.Double, Nullable: true},
		{Name: "bit", Kind: message.Bit, Bits: 64, Nullable: true},
		{Name: "t", Kind: message.Text, Nullable: true},
		{Name: "b", Kind: message.Bytes, Nullable: true},
		{Name: "dt", Kind: message.Date, Nullable: true},
		{Name: "dt3", Kind: message.DateTime, Scale: 3, Nullable: true},
		{Name: "dt6", Kind: message.DateTime, Scale: 6, Nullable: true},
		{Name: "ts0", Kind: message.Timestamp, Scale: 0, Nullable: true},
		{Name: "ts6", Kind: message.Timestamp, Scale: 6, Nullable: true},
		{Name: "tm0", Kind: message.Time, Scale: 0, Nullable: true},
		{Name: "tm6", Kind: message.Time, Scale: 6, Nullable: true},
		{Name: "y", Kind: message.Year, Nullable: true},
	}, map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv"})
}

// typedRows have typed forms; other readers see their values.
func typedRows() [][]any {
	const maxID = "18446744073709551615"
	digits := strings.Repeat("9", 28) + "." + strings.Repeat("9", 10)
	return [][]any{
		{1, "-9223372036854775808", -128, -32768, -2147483648, "-9223372036854775808", 0, 0, 0, 0, "-9999999.99", "-0.999999999999999999", "-" + digits, "-1.5",
			"-1.5", "-2.5e300", 0, "", []byte{}, "0001-01-01", "1000-01-01 00:00:00.000", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:01", "1999-12-31 23:59:59.000001",
			"00:00:00", "00:00:00.000001", "0000"},
		{"9223372036854775808", "-9223372036854775808", nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil},
		{maxID, "-9223372036854775808", 127, 32767, 2147483647, "9223372036854775807", 255, 65535, 4294967295, maxID, "9999999.99", "0.000000000000000001", digits, "2",
			"0.10000000149011612", "0.1", maxID, "é😀 '\"\\ 你好", []byte{0, 0x27, 0x5c, 0xff, 0x80, 0x0a, 0x1a}, "9999-12-31", "2026-07-24 00:00:00.123", "2026-07-24 00:00:00.123456",
			"2026-07-24 00:00:00", "2038-01-19 03:14:07.999999", "23:59:59", "23:59:59.999999", "2155"},
	}
}

// inexactRows have values that no typed column can hold as they are.
func inexactRows() [][]any {
	return [][]any{
		{2, 5, "007", "-0", "00", "+5", "000", "0042", "0000", "00018446744073709551615", "1.5", "-0.000000000000000000", "007.0000000000", "-0.0", "1.0", "1.50",
			"0000000001", "x", []byte("x"), "0000-00-00", "0000-00-00 00:00:00.000", "2021-02-30 00:00:00.000000", "0000-00-00 00:00:00", "2021-00-01 00:00:00.000000",
			"-838:59:59", "838:59:59.000000", "99"},
	}
}

// M4, M7, M8, P1: every value comes back as it was, alone and among many rows.
func TestEveryTypeComesBack(t *testing.T) {
	s := allTypes(t)
	few := batch(t, s, append(typedRows()[:2:2], typedRows()[2])...)
	f, _, data := write(t, s, Options{}, few)
	readBack(t, f, data, few)

	exact := batch(t, s, inexactRows()...)
	f, _, data = write(t, s, Options{}, exact)
	readBack(t, f, data, exact)

	// Enough rows for dictionaries, differences and several pages.
	many := message.NewBatch(s)
	kinds := append(typedRows(), inexactRows()...)
	one := batch(t, s, kinds...)
	for i := range 20000 {
		row := one.Row(nil, i%len(kinds))
		row[0], row[1] = []byte(strconv.Itoa(i)), []byte("7")
		if err := many.Append(row); err != nil {
			t.Fatal(err)
		}
	}
	f, _, data = write(t, s, Options{RowGroupBytes: 32 << 10}, many)
	readBack(t, f, data, many)
	if len(f.RowGroups) < 3 {
		t.Errorf("%d row groups", len(f.RowGroups))
	}
}

// The same when the columns are NOT NULL: zero dates and the like still come back.
func TestEveryTypeComesBackNotNull(t *testing.T) {
	cols := append([]message.Column{}, allTypes(t).Columns()...)
	for i := range cols {
		cols[i].Nullable = false
	}
	s := mustSchema(t, cols, map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv"})
	b := batch(t, s, typedRows()[0], typedRows()[2], inexactRows()[0])
	f, _, data := write(t, s, Options{}, b)
	readBack(t, f, data, b)
}

func TestValuesOfNoTypeAreRefused(t *testing.T) {
	cols := []message.Column{{Name: "id", Kind: message.Uint, Bits: 64}, {Name: "conv", Kind: message.Int, Bits: 64}, {Name: "n", Kind: message.Int, Bits: 8, SourceType: "tinyint"}}
	roles := map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv"}
	for _, v := range []any{"x", "", "300", nil} {
		s := mustSchema(t, cols, roles)
		w, err := NewWriter(&bytes.Buffer{}, s, Meta{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(batch(t, s, []any{9, 1, v}), 0, 1); err == nil || !strings.Contains(err.Error(), "column n") || !strings.Contains(err.Error(), "message 9") {
			t.Errorf("value %v of a TINYINT NOT NULL: %v", v, err)
		}
	}
	cols[2].Name = exactName
	if _, err := NewWriter(&bytes.Buffer{}, mustSchema(t, cols, roles), Meta{}, Options{}); err == nil {
		t.Error("a table's own column _exact is taken")
	}
}

// M4, P1, P9: DuckDB sees the same values, whatever its time zone.
func TestDuckDBReadsEveryType(t *testing.T) {
	s := allTypes(t)
	_, _, data := write(t, s, Options{}, batch(t, s, typedRows()...))
	const query = `SELECT id, conv, i8, i16, i32, i64, u8, u16, u32, u64, d9, d18, d38, d65, f, d, bit, t, hex(b), dt, dt3, dt6, epoch_us(ts0), epoch_us(ts6), tm0, tm6, y, _exact
		FROM FILE ORDER BY id`
	digits := strings.Repeat("9", 28) + "." + strings.Repeat("9", 10)
	want := []string{
		`1,-9223372036854775808,-128,-32768,-2147483648,-9223372036854775808,0,0,0,0,-9999999.99,-.999999999999999999,-` + digits +
			`,-1.5,-1.5,-2.5e+300,0,,,0001-01-01,1000-01-01 00:00:00,1969-12-31 23:59:59.999999,1000000,946684799000001,00:00:00,00:00:00.000001,0,NULL`,
		"9223372036854775808,-9223372036854775808" + strings.Repeat(",NULL", 26),
		`18446744073709551615,-9223372036854775808,127,32767,2147483647,9223372036854775807,255,65535,4294967295,18446744073709551615,9999999.99,.000000000000000001,` + digits +
			`,2,0.1,0.1,18446744073709551615,"é😀 '""\ 你好",00275CFF800A1A,9999-12-31,2026-07-24 00:00:00.123,2026-07-24 00:00:00.123456,1784851200000000,2147483647999999,23:59:59,23:59:59.999999,2155,NULL`,
	}
	for _, zone := range []string{"UTC", "America/New_York", "Asia/Shanghai"} {
		if got := duckdb(t, data, "SET TimeZone='"+zone+"'; "+query, "TZ="+zone); got != strings.Join(want, "\n") {
			t.Errorf("in %s DuckDB reads\n%s\nwant\n%s", zone, got, strings.Join(want, "\n"))
		}
	}
	types := strings.Trim(duckdb(t, data, "SELECT string_agg(column_type, ' ') FROM (DESCRIBE SELECT * FROM FILE)"), `"`)
	if want := "UBIGINT BIGINT TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT DECIMAL(9,2) DECIMAL(18,18) DECIMAL(38,10) VARCHAR FLOAT DOUBLE UBIGINT VARCHAR BLOB " +
		"DATE TIMESTAMP TIMESTAMP TIMESTAMP WITH TIME ZONE TIMESTAMP WITH TIME ZONE TIME TIME USMALLINT VARCHAR"; types != want {
		t.Errorf("DuckDB's types are\n%s, want\n%s", types, want)
	}
	_, _, data = write(t, s, Options{}, batch(t, s, inexactRows()...))
	if got := duckdb(t, data, "SELECT i8, u64, d9, dt, dt3, tm0, y, d, _exact->>'dt3', _exact->>'tm0' FROM FILE"); got !=
		"7,18446744073709551615,NULL,NULL,NULL,NULL,NULL,1.5,0000-00-00 00:00:00.000,-838:59:59" {
		t.Errorf("DuckDB reads inexact values as %s", got)
	}
}

// clickhouseReads puts a file where a ClickHouse that can read Parquet reads it, and gives
// the table function's arguments.
func clickhouseReads(t *testing.T, data []byte, query string) [][]string {
	t.Helper()
	ch := stack.NewClickHouse(t)
	conn := ch.Open(t)
	var version string
	if err := conn.QueryRow(t.Context(), "SELECT version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if major, _, _ := strings.Cut(version, "."); len(major) != 2 || major < "22" {
		t.Skipf("ClickHouse %s does not read Parquet from S3", version)
	}
	b := stack.Bucket(t)
	if _, err := b.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &b.Bucket, Key: aws.String("x.parquet"), Body: bytes.NewReader(data)}); err != nil {
		t.Fatal(err)
	}
	args := "s3('" + b.Endpoint + "/" + b.Bucket + "/x.parquet', '" + b.Key + "', '" + b.Secret + "', 'Parquet')"
	rows, err := conn.Query(t.Context(), strings.ReplaceAll(query, "FILE", args))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all [][]string
	for rows.Next() {
		row := make([]string, len(rows.Columns()))
		dst := make([]any, len(row))
		for i := range row {
			dst[i] = &row[i]
		}
		if err := rows.Scan(dst...); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// M4, P1, P9: ClickHouse sees the same values, whatever the session's time zone.
func TestClickHouseReadsEveryType(t *testing.T) {
	s := allTypes(t)
	_, _, data := write(t, s, Options{}, batch(t, s, typedRows()...))
	// ClickHouse knows dates of 1900..2299 and has no time of day.
	names := strings.Fields("id conv i8 i16 i32 i64 u8 u16 u32 u64 d9 d18 d38 d65 f d bit t hex(b) dt dt3 dt6 toUnixTimestamp64Micro(toDateTime64(ts0,6,'UTC')) toUnixTimestamp64Micro(toDateTime64(ts6,6,'UTC')) tm0 tm6 y _exact")
	for i, n := range names {
		names[i] = "ifNull(toString(" + n + "), 'NULL')"
	}
	digits := strings.Repeat("9", 28) + "." + strings.Repeat("9", 10)
	want := []string{
		"1|-9223372036854775808|-128|-32768|-2147483648|-9223372036854775808|0|0|0|0|-9999999.99|-0.999999999999999999|-" + digits +
			"|-1.5|-1.5|-2.5e300|0|||1900-01-01|1000-01-01 00:00:00.000|1969-12-31 23:59:59.999999|1000000|946684799000001|1970-01-01 00:00:00.000|1970-01-01 00:00:00.000001|0|NULL",
		"9223372036854775808|-9223372036854775808" + strings.Repeat("|NULL", 26),
		"18446744073709551615|-9223372036854775808|127|32767|2147483647|9223372036854775807|255|65535|4294967295|18446744073709551615|9999999.99|0.000000000000000001|" + digits +
			"|2|0.1|0.1|18446744073709551615|é😀 '\"\\ 你好|00275CFF800A1A|2300-01-01|2026-07-24 00:00:00.123|2026-07-24 00:00:00.123456|1784851200000000|2147483647999999|1970-01-01 23:59:59.000|1970-01-01 23:59:59.999999|2155|NULL",
	}
	rows := clickhouseReads(t, data, "SELECT "+strings.Join(names, ", ")+" FROM FILE ORDER BY id SETTINGS date_time_overflow_behavior='saturate'")
	if len(rows) != len(want) {
		t.Fatalf("%d rows", len(rows))
	}
	for i, row := range rows {
		if got := strings.Join(row, "|"); got != want[i] {
			t.Errorf("ClickHouse reads\n%s\nwant\n%s", got, want[i])
		}
	}
}
