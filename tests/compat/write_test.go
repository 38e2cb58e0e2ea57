package compat

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// COLDTIER_COMPAT_WRITE=v2 writes the bucket of a new version of the format below
// testdata, on MariaDB. What is there already is never written again.
func TestWrite(t *testing.T) {
	t.Parallel()
	version := os.Getenv("COLDTIER_COMPAT_WRITE")
	if version == "" {
		t.Skip("COLDTIER_COMPAT_WRITE names no version to write")
	}
	dir := filepath.Join("testdata", version)
	if _, err := os.Stat(dir); err == nil {
		t.Fatalf("%s is there: an old version is kept as it was written", dir)
	}
	e := harness.New(t, harness.Options{Tables: 2, Days: 2, Messages: 60, Seed: 99, Partitioned: true})
	ids := stack.Strings(t, e.Warm, "SELECT msg_id FROM "+e.Tables[0]+" ORDER BY msg_id")
	for i, k := range []struct{ ddl, value string }{
		{"TINYINT", "-128"}, {"BIGINT UNSIGNED", "18446744073709551615"}, {"INT UNSIGNED ZEROFILL", "42"}, {"DECIMAL(30,10)", "-12345678901234567890.0123456789"}, {"FLOAT", "16777217"},
		{"DOUBLE", "5e-324"}, {"BIT(12)", "b'101000101100'"}, {"DATE", "'9999-12-31'"}, {"DATETIME(6)", "'2026-07-24 00:00:00.123456'"}, {"TIMESTAMP(3) NULL", "'1970-01-01 00:00:01'"},
		{"TIME(2)", "'-838:59:59'"}, {"YEAR", "2155"}, {"CHAR(9)", "'ab'"}, {"VARCHAR(99)", `'tab\tnl\nbs\\q\'nul\0 😀 '`}, {"BINARY(4)", "X'00275C'"}, {"VARBINARY(300)", "X'00275CFF800A1A'"},
		{"LONGTEXT", "REPEAT('长', 3000)"}, {"ENUM('a','it''s')", "'it''s'"}, {"SET('x','y','z')", "'z,x'"},
	} {
		e.SQL(fmt.Sprintf("ALTER TABLE %s ADD k%d %s", e.Tables[0], i, k.ddl))
		e.SQL(fmt.Sprintf("UPDATE %s SET k%d = %s WHERE msg_id = %s", e.Tables[0], i, k.value, ids[i%len(ids)]))
	}
	e.Must("archive")
	// One slice has two generations, one is purged, and one held.
	first := e.Days[0].String()
	e.SQL("UPDATE "+e.Tables[1]+" SET content = 'edited after it was archived' WHERE msg_id = ?", stack.Strings(t, e.Warm, "SELECT MIN(msg_id) FROM "+e.Tables[1])[0])
	e.Expect(4, []string{"drift"}, "purge", "--day", first, "--shard", e.Tables[1])
	e.Must("archive")
	conversation := stack.Strings(t, e.Warm, "SELECT CONCAT(session_id, ' ', msg_id) FROM "+e.Tables[0]+" ORDER BY msg_id LIMIT 1")[0]
	rows := dump(t, e.Warm)
	c, id, _ := strings.Cut(conversation, " ")
	e.Must("hold", "add", "--shard", e.Tables[1], "--day", e.Days[1].String(), "--reason", "golden hold")
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Store().PutStatus(t.Context(), manifest.Status{Conversation: []byte(c), MessageID: n, Kind: manifest.StatusRecalled, By: "golden"}); err != nil {
		t.Fatal(err)
	}
	e.Must("archive") // takes the status to the bucket
	e.Must("purge", "--day", first, "--shard", e.Tables[0])
	save := func(name string, data []byte) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client := e.S3.Client()
	list, err := client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &e.S3.Bucket})
	if err != nil || aws.ToBool(list.IsTruncated) {
		t.Fatalf("list: %v", err)
	}
	for _, o := range list.Contents {
		got, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &e.S3.Bucket, Key: o.Key})
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(got.Body)
		_ = got.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		save("bucket/"+*o.Key, data)
	}
	save("rows.txt", []byte(rows))
	save("recalled.txt", []byte(conversation+"\n"))
}
