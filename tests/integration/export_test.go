package integration

import (
	"bytes"
	"database/sql"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/harness"
)

// exported is rows by message ID, each as the texts of its columns.
type exported map[string]map[string]string

// warmRows reads what MySQL has, as it writes it.
func warmRows(e *harness.Env) exported {
	e.T.Helper()
	all := exported{}
	for _, table := range e.Tables {
		all.read(e, table)
	}
	return all
}

func (x exported) read(e *harness.Env, table string) {
	e.T.Helper()
	rows, err := e.Warm.QueryContext(e.T.Context(), "SELECT * FROM "+table)
	if err != nil {
		e.T.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		e.T.Fatal(err)
	}
	for rows.Next() {
		values, into := make([]sql.RawBytes, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			e.T.Fatal(err)
		}
		x.add(e.T, names, func(i int) string { return string(values[i]) })
	}
	if err := rows.Err(); err != nil {
		e.T.Fatal(err)
	}
}

func (x exported) add(t testing.TB, names []string, value func(int) string) {
	t.Helper()
	row := map[string]string{}
	for i, name := range names {
		row[name] = value(i)
	}
	if x[row["msg_id"]] != nil {
		t.Errorf("message %s occurs twice", row["msg_id"])
	}
	x[row["msg_id"]] = row
}

func fromNDJSON(t testing.TB, data []byte) exported {
	t.Helper()
	x, d := exported{}, json.NewDecoder(bytes.NewReader(data))
	for d.More() {
		var row map[string]any
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		encoded := fmt.Sprint(row["_base64"])
		delete(row, "_base64")
		names := slices.Collect(maps.Keys(row))
		x.add(t, names, func(i int) string {
			text, _ := row[names[i]].(string)
			if strings.Contains(encoded, names[i]) {
				text = unBase64(t, text)
			}
			return text
		})
	}
	return x
}

func unBase64(t testing.TB, text string) string {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func fromCSV(t testing.TB, data []byte) exported {
	t.Helper()
	records, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	x, names := exported{}, slices.Clone(records[0])
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, ":base64")
	}
	for _, r := range records[1:] {
		x.add(t, names, func(i int) string {
			if names[i] != records[0][i] && r[i] != `\N` {
				return unBase64(t, r[i])
			}
			return r[i]
		})
	}
	return x
}

func fromParquet(t testing.TB, data []byte) exported {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	x, columns := exported{}, f.Root().Columns()
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name()
	}
	r := parquet.NewReader(f)
	defer func() { _ = r.Close() }()
	buf := make([]parquet.Row, 50)
	for {
		n, err := r.ReadRows(buf)
		for _, row := range buf[:n] {
			x.add(t, names, func(i int) string {
				switch v := row[i]; {
				case v.IsNull():
					return `\N`
				case names[i] == "create_time":
					return time.UnixMilli(v.Int64()).UTC().Format("2006-01-02 15:04:05.000")
				default:
					return v.String()
				}
			})
		}
		if errors.Is(err, io.EOF) {
			return x
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// check compares the table's columns.
func (x exported) check(t *testing.T, name string, want exported) {
	t.Helper()
	if len(x) != len(want) {
		t.Errorf("%s: %d rows, want %d", name, len(x), len(want))
	}
	for id, w := range want {
		for column, v := range w {
			if got, ok := x[id][column]; !ok || got != v {
				t.Errorf("%s: message %s, column %s reads %.60q, want %.60q", name, id, column, got, v)
				return
			}
		}
	}
}

// What was archived and purged is exported as MySQL had it, whole and in part; what is lost
// is named; nothing half has a file's name.
func TestExport(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Tables: 2, Days: 2, Seed: 17})
	want := warmRows(e)
	e.Must("archive")
	e.Must("purge")
	dir := t.TempDir()
	export := func(exit int, words []string, format string, args ...string) []byte {
		t.Helper()
		path := filepath.Join(dir, message.FormatID(uint64(len(names(t, dir))))+"."+format)
		e.Expect(exit, words, append([]string{"export", "--format", format, "--out", path}, args...)...)
		data, err := os.ReadFile(path)
		if (err == nil) != (exit == 0 || exit == 3) {
			t.Errorf("export %v ends with %d: %v", args, exit, err)
		}
		return data
	}
	readers := map[string]func(testing.TB, []byte) exported{"ndjson": fromNDJSON, "csv": fromCSV, "parquet": fromParquet}
	for format, read := range readers {
		read(t, export(0, []string{fmt.Sprintf("%d rows of", len(want))}, format)).check(t, format, want)
	}
	r := e.Must("export", "--format", "csv")
	fromCSV(t, []byte(r.Stdout)).check(t, "standard output", want)
	if !strings.Contains(r.Stderr, "written to the standard output") {
		t.Error(r.Stderr)
	}

	// Parts.
	part := func(name string, keep func(id uint64, row map[string]string) bool, args ...string) {
		t.Helper()
		some := exported{}
		for id, row := range want {
			if n, ok := message.ParseUint([]byte(id)); ok && keep(n, row) {
				some[id] = row
			}
		}
		if len(some) == 0 || len(some) == len(want) {
			t.Errorf("%s: %d rows are no test", name, len(some))
		}
		fromNDJSON(t, export(0, nil, "ndjson", args...)).check(t, name, some)
	}
	lo, hi := e.Window(e.Days[0])
	noon := e.Days[0].Start(time.UTC).Add(12*time.Hour + 34*time.Minute)
	one := slices.Sorted(maps.Keys(want))[len(want)/2]
	conv := want[one]["session_id"]
	part("a day", func(id uint64, _ map[string]string) bool { return id >= lo && id < hi }, "--to", e.Days[0].String())
	part("a conversation", func(_ uint64, row map[string]string) bool { return row["session_id"] == conv }, "--conversation", conv)
	part("IDs", func(id uint64, _ map[string]string) bool { return id >= lo+5 && id <= hi-(hi-lo)/2 }, "--ids", fmt.Sprintf("%d-%d", lo+5, hi-(hi-lo)/2))
	until := func(id uint64, _ map[string]string) bool {
		return lo+uint64(noon.Sub(e.Days[0].Start(time.UTC)).Milliseconds()+1)<<chat.Layout().Shift > id
	}
	part("until", until, "--until", noon.Format(time.RFC3339))

	// A status.
	id, _ := message.ParseUint([]byte(one))
	if _, err := e.Store().PutStatus(t.Context(), manifest.Status{Conversation: []byte(conv), MessageID: id, Kind: manifest.StatusRecalled, By: "test"}); err != nil {
		t.Fatal(err)
	}
	if row := fromCSV(t, export(0, []string{"1 body withheld"}, "csv"))[one]; row["_status"] != "recalled" || row["content"] != `\N` || row["_withheld"] != "true" {
		t.Errorf("a recalled message reads %v", row)
	}
	if row := fromParquet(t, export(0, []string{"0 bodies withheld"}, "parquet", "--with-withheld"))[one]; row["_status"] != "recalled" || row["content"] != want[one]["content"] {
		t.Errorf("with withheld it reads %v", row)
	}

	// Refusals.
	path := filepath.Join(dir, "there")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.Expect(2, []string{"--force"}, "export", "--format", "csv", "--out", path)
	e.Expect(2, []string{"--out"}, "--output", "json", "export", "--format", "csv")
	e.Expect(2, []string{"want ndjson, csv or parquet"}, "export", "--format", "xml")
	e.Expect(2, []string{"--ids"}, "export", "--format", "csv", "--ids", "7")
	e.Expect(2, []string{"--until"}, "export", "--format", "csv", "--until", "noon")
	e.Expect(2, []string{"no slice"}, "export", "--format", "csv", "--shard", "nothing.*")
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
	e.Must("export", "--format", "csv", "--out", path, "--force")

	// Damage: ClickHouse has the rows, then it does not.
	key := e.DamageObject(func(b []byte) []byte { b[20] ^= 1; return b })
	var doc struct {
		Rows    int
		Damaged []struct {
			Key      string
			Replaced bool
		}
	}
	e.Must("--output", "json", "export", "--format", "csv", "--out", path, "--force").Result(t, &doc)
	if doc.Rows != len(want) || len(doc.Damaged) != 1 || !strings.HasSuffix(key, doc.Damaged[0].Key) || !doc.Damaged[0].Replaced {
		t.Errorf("with an altered object: %+v", doc)
	}
	conn := e.ClickHouse.Open(t)
	defer func() { _ = conn.Close() }()
	if err := conn.Exec(t.Context(), "TRUNCATE TABLE "+e.ClickHouse.Database+".messages"); err != nil {
		t.Fatal(err)
	}
	left := fromCSV(t, export(3, []string{key[strings.LastIndex(key, "/")+1:], "left out"}, "csv"))
	if len(left) == 0 || len(left) >= len(want) {
		t.Errorf("%d of %d rows are left", len(left), len(want))
	}
	lost := ""
	for id := range want {
		if left[id] == nil {
			lost = want[id]["session_id"]
		}
	}
	for _, k := range e.Keys() {
		if strings.Contains(k, "/conv=") {
			e.PutObject(k, []byte("gone"))
		}
	}
	export(1, []string{key[strings.LastIndex(key, "/")+1:]}, "csv", "--conversation", lost)
	for _, name := range names(t, dir) {
		if strings.HasSuffix(name, ".part") {
			t.Errorf("%s is left", name)
		}
	}
}

func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		all = append(all, f.Name())
	}
	return all
}
