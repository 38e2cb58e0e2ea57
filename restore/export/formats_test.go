package export_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore/export"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/copies"
)

// kinds is a tier whose table changed: columns came, went, became wider and of another
// kind. It gives the rows as they were archived.
func kinds(t *testing.T) (*copies.Tier, table) {
	t.Helper()
	x := copies.New(t)
	common := []message.Column{
		{Name: "z", Kind: message.Uint, Bits: 32, Nullable: true, SourceType: "int(5) unsigned zerofill"}, {Name: "d", Kind: message.Date, Nullable: true, SourceType: "date"},
		{Name: "tm", Kind: message.Time, Nullable: true, SourceType: "time"}, {Name: "db", Kind: message.Double, Nullable: true, SourceType: "double"},
		{Name: "ts", Kind: message.Timestamp, Scale: 6, Nullable: true, SourceType: "timestamp(6)"}, {Name: "y", Kind: message.Year, Nullable: true, SourceType: "year"},
	}
	older := schema(t, "body", append(common[:len(common):len(common)],
		message.Column{Name: "n", Kind: message.Int, Bits: 32, SourceType: "int"}, message.Column{Name: "at", Kind: message.DateTime, SourceType: "datetime"},
		message.Column{Name: "p", Kind: message.Decimal, Precision: 9, Scale: 2, SourceType: "decimal(9,2)"}, message.Column{Name: "k", Kind: message.Int, Bits: 32, SourceType: "int"},
		message.Column{Name: "gone", Kind: message.Text, SourceType: "text"})...)
	newer := schema(t, "body", append(common[:len(common):len(common)],
		message.Column{Name: "n", Kind: message.Int, Bits: 64, SourceType: "bigint"}, message.Column{Name: "at", Kind: message.DateTime, Scale: 3, SourceType: "datetime(3)"},
		message.Column{Name: "p", Kind: message.Decimal, Precision: 30, Scale: 4, SourceType: "decimal(30,4)"}, message.Column{Name: "k", Kind: message.Text, SourceType: "text"},
		message.Column{Name: "a,b", Kind: message.Text, Nullable: true, SourceType: "text"}, message.Column{Name: "bits", Kind: message.Bit, Bits: 3, Nullable: true, SourceType: "bit(3)"})...)
	var want table
	for d, c := range []struct {
		s    *message.Schema
		rows [][]string
	}{
		{older, [][]string{
			{"0", "c", "-7", "\xff\x00\x01", "00042", "0000-00-00", "-00:00:01", "1e300", "2024-03-01 23:59:59.999999", "0000", "-2147483648", "2024-02-29 12:34:56", "-1234567.89", "7", `\N`},
			{"1", "c", "<nil>", "<nil>", "<nil>", "<nil>", "<nil>", "<nil>", "<nil>", "<nil>", "1", "1000-01-01 00:00:00", "0.00", "8", `\\N`},
			{"2", "c", "0", "", "4294967295", "9999-12-31", "23:59:59", "-0.5", "1970-01-01 00:00:01.000000", "2155", "0", "9999-12-31 23:59:59", "9999999.99", "9", ""},
		}},
		{newer, [][]string{
			{"0", "", "127", "漢字 \U0001f600 \"quoted\", 'and' \\ <&> \t\u2028", "7", "2024-03-02", "838:59:59", "5", "2024-03-02 00:00:00.000001", "2024", "-9223372036854775808", "2024-03-02 00:00:00.001",
				"-99999999999999999999999999.9999", "text\nof, \"two\" lines\n", "N", "7"},
			{"1", "é", "-128", `\N`, "<nil>", "<nil>", "00:00:00", "<nil>", "<nil>", "<nil>", "9223372036854775807", "0000-00-00 00:00:00.000", "0.0001", "", "<nil>", "<nil>"},
		}},
	} {
		day, lo := day(t, 1+d)
		var rows [][][]byte
		for _, r := range c.rows {
			n, _ := strconv.ParseUint(r[0], 10, 64)
			r[0] = message.FormatID(lo + n)
			rows = append(rows, texts(r...))
			w := map[string]string{}
			for _, other := range []*message.Schema{older, newer} {
				for _, col := range other.Columns() {
					w[col.Name] = "<nil>"
				}
			}
			for i, col := range c.s.Columns() {
				w[col.Name] = r[i]
			}
			want = append(want, w)
		}
		x.Commit(copies.Copy{Shard: shard, Day: day, Schema: c.s, Rows: rows})
	}
	return x, want
}

// Everything that a table can hold is read back by readers that are not ours: NULL and ”,
// bytes, quotes and line ends, numbers beyond 2^53, columns that were added and dropped.
func TestTextFormatsAreReadBack(t *testing.T) {
	t.Parallel()
	x, want := kinds(t)
	data, rep, err := run(t, x.Reader(false), selection.Selection{}, export.Options{Format: export.NDJSON})
	if err != nil || rep.Rows != 5 || rep.Slices != 2 || rep.Requests == 0 {
		t.Fatal(rep, err)
	}
	same(t, "NDJSON", readNDJSON(t, data), want)
	data, _, err = run(t, x.Reader(false), selection.Selection{}, export.Options{Format: export.CSV})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "CSV", readCSV(t, data), want)
	// The newest generation's columns come first.
	if head, _, _ := strings.Cut(string(data), "\n"); head != `id,conv,st,body:base64,z,d,tm,db,ts,y,n,at,p,k,"a,b",bits,gone,_status,_status_at,_withheld` {
		t.Errorf("header %s", head)
	}
}

// The export's own columns step aside for the table's; a CR stays what it is; no row at
// all is a file all the same.
func TestOddNamesAndNoRows(t *testing.T) {
	t.Parallel()
	x := copies.New(t)
	d, lo := day(t, 1)
	s := schema(t, "body", message.Column{Name: "_status", Kind: message.Text, SourceType: "text"}, message.Column{Name: "__status", Kind: message.Text, SourceType: "text"})
	x.Commit(copies.Copy{Shard: shard, Day: d, Schema: s, Rows: [][][]byte{texts(message.FormatID(lo), "c", "1", "a\xff", "a\r\nb\rc", "own")}})
	if _, err := x.Store.PutStatus(t.Context(), recalled("c", lo)); err != nil {
		t.Fatal(err)
	}
	o := export.Options{Format: export.NDJSON, Withheld: true}
	data, _, err := run(t, x.Reader(false), selection.Selection{}, o)
	if want := fmt.Sprintf(`{"id":"%d","conv":"c","st":"1","body":"Yf8=","_status":"a\r\nb\rc","__status":"own","_base64":["body"],"___status":{"kind":"recalled","at":"`, lo); err != nil || !strings.HasPrefix(string(data), want) || !strings.HasSuffix(string(data), "\"}}\n") {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
	o.Format = export.CSV
	data, _, err = run(t, x.Reader(false), selection.Selection{}, o)
	if want := fmt.Sprintf("id,conv,st,body:base64,_status,__status,___status,_status_at,_withheld\n%d,c,1,Yf8=,\"a\r\nb\rc\",own,recalled,20", lo); err != nil || !strings.HasPrefix(string(data), want) {
		t.Errorf("%q, %v; want %q", data, err, want)
	}
	none := selection.Selection{Conversations: [][]byte{[]byte("none")}}
	for as, want := range map[export.Format]string{export.NDJSON: "", export.CSV: "_status,_status_at,_withheld\n"} {
		if data, rep, err := run(t, x.Reader(false), none, export.Options{Format: as}); err != nil || string(data) != want || rep.Rows != 0 {
			t.Errorf("%s: %q, %+v, %v", as, data, rep, err)
		}
	}
	data, _, err = run(t, x.Reader(false), none, export.Options{Format: export.Parquet})
	if rows := readParquet(t, data); err != nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
	if _, _, err := run(t, x.Reader(false), none, export.Options{Format: "xml"}); !errors.Is(err, export.ErrFormat) {
		t.Error(err)
	}
}

// typed is what typed columns read where that isn't the archived text.
var typed = []map[string]string{
	{"z": "42", "d": "<nil>", "tm": "<nil>", "y": "0", "at": "2024-02-29 12:34:56.000", "p": "-1234567.8900", "_exact": `{"d":"0000-00-00","tm":"-00:00:01","z":"00042"}`},
	{"at": "1000-01-01 00:00:00.000", "p": "0.0000", "_exact": "<nil>"},
	{"at": "9999-12-31 23:59:59.000", "p": "9999999.9900", "_exact": "<nil>"},
	{"tm": "<nil>", "_exact": `{"tm":"838:59:59"}`},
	{"at": "<nil>", "_exact": `{"at":"0000-00-00 00:00:00.000"}`},
}

func TestParquetIsReadBack(t *testing.T) {
	t.Parallel()
	x, want := kinds(t)
	data, _, err := run(t, x.Reader(false), selection.Selection{}, export.Options{Format: export.Parquet})
	if err != nil {
		t.Fatal(err)
	}
	for i, other := range typed {
		for k, v := range other {
			want[i][k] = v
		}
	}
	same(t, "Parquet", readParquet(t, data), want)

	program := os.Getenv("COLDTIER_TEST_DUCKDB")
	if program == "" {
		t.Log("COLDTIER_TEST_DUCKDB is not set: DuckDB is not asked")
		return
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "-csv", "-nullvalue", "<nil>", "-c", `SELECT id, conv, st, hex(body) AS body, z, d, tm, db, epoch_us(ts) AS ts, y, n, "at"::varchar AS "at", p, k, "a,b", bits, _withheld, _status, _exact FROM '`+path+"'",
		"-c", "SELECT string_agg(column_type, ' ') FROM (DESCRIBE SELECT * FROM '"+path+"')").CombinedOutput()
	if err != nil {
		t.Fatalf("DuckDB: %v: %s", err, out)
	}
	text, types, _ := strings.Cut(strings.ReplaceAll(string(out), "\r", ""), "\"string_agg")
	for _, w := range want {
		delete(w, "gone") // has \N, which readCSV takes for NULL
		w["body"] = strings.ToUpper(fmt.Sprintf("%x", w["body"]))
		if w["body"] == "3C6E696C3E" {
			w["body"] = "<nil>"
		}
		if w["ts"] != "<nil>" {
			at, err := time.Parse("2006-01-02 15:04:05.000000", w["ts"])
			if err != nil {
				t.Fatal(err)
			}
			w["ts"] = fmt.Sprint(at.UnixMicro())
		}
		if w["at"] != "<nil>" {
			w["at"] = strings.TrimSuffix(w["at"], ".000")
		}
		switch w["db"] {
		case "1e300":
			w["db"] = "1e+300"
		case "5":
			w["db"] = "5.0"
		}
	}
	same(t, "DuckDB", readCSV(t, []byte(text)), want)
	if want := "UBIGINT VARCHAR TINYINT BLOB UINTEGER DATE TIME DOUBLE TIMESTAMP WITH TIME ZONE USMALLINT BIGINT TIMESTAMP DECIMAL(30,4) VARCHAR VARCHAR UBIGINT VARCHAR VARCHAR TIMESTAMP WITH TIME ZONE BOOLEAN VARCHAR"; !strings.Contains(types, want) {
		t.Errorf("DuckDB sees %s, want %s", types, want)
	}
}

// readParquet reads the values of all columns as their canonical texts.
func readParquet(t testing.TB, data []byte) (all table) {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	fields := f.Root().Columns()
	for _, g := range f.RowGroups() {
		rows := g.Rows()
		buf := make([]parquet.Row, 10)
		for {
			n, err := rows.ReadRows(buf)
			for _, r := range buf[:n] {
				row := map[string]string{}
				for i, v := range r {
					row[fields[i].Name()] = parquetText(t, fields[i].Type(), v)
				}
				all = append(all, row)
			}
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func parquetText(t testing.TB, typ parquet.Type, v parquet.Value) string {
	t.Helper()
	if v.IsNull() {
		return "<nil>"
	}
	var of any
	if l := typ.LogicalType(); l != nil {
		of = l.Value
	}
	switch l := of.(type) {
	case *format.DateType:
		return time.Unix(int64(v.Int32())*86400, 0).UTC().Format(time.DateOnly)
	case *format.TimeType:
		return time.UnixMilli(int64(v.Int32())).UTC().Format(time.TimeOnly)
	case *format.TimestampType:
		if _, ok := l.Unit.Value.(*format.MilliSeconds); ok {
			return time.UnixMilli(v.Int64()).UTC().Format("2006-01-02 15:04:05.000")
		}
		return time.UnixMicro(v.Int64()).UTC().Format("2006-01-02 15:04:05.000000")
	case *format.DecimalType:
		n := new(big.Int).SetBytes(v.ByteArray())
		if v.ByteArray()[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(v.ByteArray()))))
		}
		return new(big.Rat).SetFrac(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(l.Scale)), nil)).FloatString(int(l.Scale))
	case *format.IntType:
		switch {
		case l.IsSigned && v.Kind() == parquet.Int32:
			return fmt.Sprint(v.Int32())
		case l.IsSigned:
			return fmt.Sprint(v.Int64())
		case v.Kind() == parquet.Int32:
			return fmt.Sprint(v.Uint32())
		}
		return fmt.Sprint(v.Uint64())
	}
	switch v.Kind() {
	case parquet.Boolean:
		return fmt.Sprint(v.Boolean())
	case parquet.Double:
		return strings.Replace(strconv.FormatFloat(v.Double(), 'g', -1, 64), "e+", "e", 1)
	case parquet.ByteArray:
		return string(v.ByteArray())
	}
	t.Fatalf("a value of type %s", typ)
	return ""
}
