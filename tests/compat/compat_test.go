// Package compat keeps a bucket of every version of the format that was ever released,
// and proves that it still comes back, row for row, out of nothing but its bytes.
package compat

import (
	"bytes"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

func TestMain(m *testing.M) { harness.Main(m) }

// A bucket of each version is rebuilt into an empty manifest and an empty ClickHouse,
// proven, and restored: every row as it was in warm when it was written.
func TestOldBucketsComeBack(t *testing.T) {
	t.Parallel()
	versions, err := os.ReadDir("testdata")
	if err != nil || len(versions) == 0 {
		t.Fatalf("%d versions: %v", len(versions), err)
	}
	for _, v := range versions {
		t.Run(v.Name(), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("testdata", v.Name())
			e := opened(t, filepath.Join(dir, "bucket"))
			e.Must("rebuild", "manifest")
			e.Must("rebuild", "clickhouse")
			e.Must("verify")
			into := stack.MySQL(t)
			e.Must("restore", "--into", into, "--create")
			got := dump(t, stack.OpenMySQL(t, into+"?time_zone=%27%2B00%3A00%27"))
			want, err := os.ReadFile(filepath.Join(dir, "rows.txt"))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(string(want), "\n")
			for i, line := range strings.SplitAfter(got, "\n") {
				if i >= len(lines) || line != lines[i] {
					t.Fatalf("line %d reads\n%.2000swant\n%.2000s", i+1, line, lines[min(i, len(lines)-1)])
				}
			}
			if got != string(want) {
				t.Errorf("%d bytes came back, want %d", len(got), len(want))
			}
			// What is about messages beside their rows.
			if list := e.Must("hold", "list"); !strings.Contains(list.Stdout, "golden hold") {
				t.Errorf("the hold is gone:\n%s", list)
			}
			recalled, err := os.ReadFile(filepath.Join(dir, "recalled.txt"))
			if err != nil {
				t.Fatal(err)
			}
			conversation, id, _ := strings.Cut(strings.TrimSpace(string(recalled)), " ")
			page := e.Must("--output", "json", "fetch", "--conversation", conversation, "--around", id, "--limit", "200")
			if !strings.Contains(page.Stdout, `"recalled"`) && !strings.Contains(page.Stdout, "RECALLED") {
				t.Errorf("message %s is not recalled any more:\n%s", id, page)
			}
		})
	}
}

// opened is a set-up whose bucket has the objects of a folder, and nothing else anywhere.
func opened(t *testing.T, dir string) *harness.Env {
	t.Helper()
	warm, ch := stack.MySQL(t), stack.NewClickHouse(t)
	e := &harness.Env{T: t, WarmDSN: warm, Manifest: stack.MySQL(t), S3: stack.Bucket(t), ClickHouse: ch}
	e.Config = filepath.Join(t.TempDir(), "coldtier.yaml")
	text := fmt.Sprintf(`source:
  name: im
  snowflake: {epoch: 2015-01-01T00:00:00Z, time_shift: 22}
  databases:
    - dsn: %q
  tables: [msg_content_*]
  columns: {message_id: msg_id, conversation_id: session_id, sequence: seq, sender_id: sender_id,
            message_type: msg_type, status: status, content: content, created_at: create_time}
manifest: {dsn: %q}
bucket: {name: %s, prefix: im, endpoint: %q, path_style: true}
clickhouse: {addrs: [%q], protocol: %s, database: %s}
`, warm, e.Manifest, e.S3.Bucket, e.S3.Endpoint, ch.Addr, ch.Protocol, ch.Database)
	if err := os.WriteFile(e.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	client := e.S3.Client()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		key, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		_, err = client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &e.S3.Bucket, Key: aws.String(filepath.ToSlash(key)), Body: bytes.NewReader(data)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// dump is the text of all rows of a database, as the server writes them, each with its
// table and the names of its columns.
func dump(t *testing.T, db *sql.DB) string {
	t.Helper()
	var all []string
	for _, table := range stack.Strings(t, db, "SHOW TABLES") {
		for _, row := range stack.Rows(t, db, "`"+table+"`") {
			all = append(all, table+row+"\n")
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}
