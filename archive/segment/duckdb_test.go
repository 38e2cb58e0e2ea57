package segment

import (
	"bytes"
	"context"
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
	cmd := exec.CommandContext(ctx, program, "-csv", "-noheader", "-nullvalue", "NULL", "-c", strings.ReplaceAll(query, "FILE", "'"+path+"'")) //nolint:gosec // a test's own query
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("DuckDB: %v: %s", err, errs.String())
	}
	return strings.TrimRight(strings.ReplaceAll(out.String(), "\r", ""), "\n")
}

func TestDuckDBReadsChat(t *testing.T) {
	b := chat(t, seeded(t), 1<<63+5, 5000)
	_, _, data := write(t, b.Schema(), Options{}, b)
	t.Log(duckdb(t, data, "SELECT count(*), sum(msg_id), min(create_time), count(content), sum(length(content)) FROM FILE"))
	t.Log("\n" + duckdb(t, data, "SELECT row_group_id, path_in_schema, num_values, type, encodings, compression, total_compressed_size,total_uncompressed_size, stats_min_value FROM parquet_metadata(FILE)"))
	t.Log("\n" + duckdb(t, data, "DESCRIBE SELECT * FROM FILE"))
}
