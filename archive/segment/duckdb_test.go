package segment

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// duckdb runs a query; FILE in it stands for a file with the given bytes. The
// answer is CSV without a heading, NULL for NULL.
func duckdb(t testing.TB, data []byte, query string, env ...string) string {
	t.Helper()
	program := os.Getenv("COLDTIER_TEST_DUCKDB")
	if program == "" {
		t.Skip("COLDTIER_TEST_DUCKDB is not set: no DuckDB to read files with")
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-csv", "-noheader", "-nullvalue", "NULL", "-c", strings.ReplaceAll(query, "FILE", "'"+path+"'"))
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("DuckDB: %v: %s", err, errs.String())
	}
	return strings.TrimRight(strings.ReplaceAll(out.String(), "\r", ""), "\n")
}

// All rows of several row groups and pages, and the encodings they are to have.
func TestDuckDBReadsChat(t *testing.T) {
	b := chat(t, seeded(t), 1<<63+5, 5000)
	f, _, data := write(t, b.Schema(), Options{}, b)
	nulls, length, last := 0, 0, uint64(0)
	for i := range b.Len() {
		if b.IsNull(7, i) {
			nulls++
		}
		length += len(b.Value(7, i))
		last = b.MessageID(i)
	}
	want := fmt.Sprintf("5000,%d,9223372036854775813,12502500,%d,%d,3,0", last, nulls, length)
	if got := duckdb(t, data, `SELECT count(*), max(msg_id), any_value(session_id), sum(seq), count(*) - count(content), sum(octet_length(encode(content))),
		count(DISTINCT client), count(_exact) FROM FILE`); got != want {
		t.Errorf("DuckDB reads %s, want %s", got, want)
	}
	for column, want := range map[string]string{"msg_id": "DELTA_BINARY_PACKED", "seq": "DELTA_BINARY_PACKED", "create_time": "DELTA_BINARY_PACKED",
		"client": "RLE_DICTIONARY", "sender_id": "RLE_DICTIONARY", "content": "PLAIN"} {
		got := duckdb(t, data, "SELECT count(*) FROM parquet_metadata(FILE) WHERE path_in_schema = '"+column+"' AND contains(encodings, '"+want+"')")
		if got != fmt.Sprint(len(f.RowGroups)) {
			t.Errorf("column %s is %s in %s of %d row groups", column, want, got, len(f.RowGroups))
		}
	}
}
