package sql_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/stack"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// The whole job by the real commands: the archive role copies, and may not purge; the
// purge role purges, by rows and by partitions.
func TestCommandsUnderTheRoles(t *testing.T) {
	t.Parallel()
	r := apply(t)
	program := filepath.Join(t.TempDir(), "coldtier")
	if out, err := exec.CommandContext(deadline(t), "go", "build", "-o", program, "../../cmd/coldtier").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	g, err := chat.New(chat.Config{Seed: 1, From: snowflake.MakeDay(2026, 5, 1), Days: 2, Messages: 200})
	if err != nil {
		t.Fatal(err)
	}
	daily, plain := r.warm+".msg_content_00", r.warm+".msg_content_01"
	if err := chat.Create(deadline(t), r.admin, daily, g.Days()); err != nil {
		t.Fatal(err)
	}
	if err := chat.Create(deadline(t), r.admin, plain, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := chat.Load(deadline(t), g, chat.Target{DB: r.admin, Table: daily}, chat.Target{DB: r.admin, Table: plain}); err != nil {
		t.Fatal(err)
	}
	bucket, clickhouse := stack.Bucket(t), stack.NewClickHouse(t)
	run := func(role mysql.Config, args ...string) (string, error) {
		t.Helper()
		dsn := func(database string) string {
			c := role.Clone()
			c.DBName = database
			return c.FormatDSN()
		}
		config, err := json.Marshal(map[string]any{
			"source": map[string]any{
				"name": "im", "snowflake": map[string]any{"epoch": "2015-01-01T00:00:00Z", "time_shift": 22},
				"databases": []any{map[string]any{"dsn": dsn(r.warm), "replicas": []string{}}}, "tables": []string{"msg_content_*"},
				"columns": map[string]string{"message_id": "msg_id", "conversation_id": "session_id", "sequence": "seq", "created_at": "create_time"},
			},
			"manifest":   map[string]any{"dsn": dsn(r.manifest)},
			"bucket":     map[string]any{"name": bucket.Bucket, "region": bucket.Region, "endpoint": bucket.Endpoint, "path_style": true},
			"clickhouse": map[string]any{"addrs": []string{clickhouse.Addr}, "protocol": clickhouse.Protocol, "database": clickhouse.Database},
			"archive":    map[string]any{"after": "1d"},
			"purge":      map[string]any{"lag": "0s"},
			"fetch":      map[string]any{"warm": role.User == r.id+"fe"},
		})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "coldtier.yaml")
		if err := os.WriteFile(file, config, 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(deadline(t), program, append([]string{"--config", file}, args...)...)
		c.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+bucket.Key, "AWS_SECRET_ACCESS_KEY="+bucket.Secret)
		out, err := c.CombinedOutput()
		if strings.Contains(string(out), role.Passwd) {
			t.Errorf("%v prints the password", args)
		}
		return string(out), err
	}
	must := func(role mysql.Config, args ...string) {
		t.Helper()
		if out, err := run(role, args...); err != nil {
			t.Fatalf("%v as %s: %v\n%s", args, role.User, err, out)
		}
	}
	left := func() (n int) {
		t.Helper()
		if err := r.admin.QueryRowContext(deadline(t), "SELECT (SELECT COUNT(*) FROM "+daily+") + (SELECT COUNT(*) FROM "+plain+")").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	must(r.archiveUser, "migrate")
	checked := func(role mysql.Config, name string) {
		t.Helper()
		out, err := run(role, "check", "--for", name)
		if err != nil {
			t.Errorf("check as the %s role: %v\n%s", name, err, out)
		}
		for _, code := range []string{"RIGHTS_MISSING", "RIGHTS_EXCESS", "ACCOUNT_ADMIN", "ACCOUNT_GRANT_OPTION"} {
			if strings.Contains(out, code) {
				t.Errorf("check as the %s role finds %s:\n%s", name, code, out)
			}
		}
	}
	checked(r.archiveUser, "archive")
	must(r.archiveUser, "archive", "--from", "2026-05-01", "--to", "2026-05-02")
	// The fetch role reads from both sides of the seam, notes statuses, and no more.
	fetch := *r.role(t, "fetch")
	var conversation string
	if err := r.admin.QueryRowContext(deadline(t), "SELECT session_id FROM "+daily+" LIMIT 1").Scan(&conversation); err != nil {
		t.Fatal(err)
	}
	if out, err := run(fetch, "fetch", "--conversation", conversation); err == nil || !strings.Contains(out, "ADD KEY") {
		t.Errorf("fetch.warm without an index to page by: %v\n%s", err, out)
	}
	for _, table := range []string{daily, plain} {
		do(t, r.admin, "ALTER TABLE "+table+" ADD KEY page (session_id, seq)")
	}
	must(fetch, "fetch", "--conversation", conversation)
	checked(fetch, "fetch")
	if out, err := run(fetch, "archive"); err == nil || left() != 200 {
		t.Errorf("archive as the fetch role: %v\n%s", err, out)
	}
	notes := stack.OpenMySQL(t, fetch.FormatDSN())
	do(t, notes, "INSERT INTO "+r.manifest+".statuses (source_id, conversation, message_id, kind, put_by, put_at) VALUES (1, '1', 1, 'recalled', '', UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE kind = VALUES(kind)")
	do(t, notes, "SELECT COUNT(*) FROM (SELECT message_id FROM "+r.manifest+".statuses FOR UPDATE) q")
	do(t, notes, "UPDATE "+r.manifest+".sources SET status_version = status_version + 1")
	for _, s := range []string{"DELETE FROM " + daily, "UPDATE " + daily + " SET status = 1", "DELETE FROM " + r.manifest + ".statuses", "UPDATE " + r.manifest + ".slices SET state = 'purged'"} {
		refused(t, notes, s)
	}
	if out, err := run(r.archiveUser, "purge"); err == nil || left() != 200 {
		t.Fatalf("purge as the archive role: %v, %d of 200 rows are left\n%s", err, left(), out)
	}
	checked(r.purgeUser, "purge")
	for _, other := range []string{"archive", "purge"} { // the one may too much in warm for the other, and too little in the manifest, or too little in warm
		user, code := r.purgeUser, "WARM_RIGHTS_EXCESS"
		if other == "purge" {
			user, code = r.archiveUser, "WARM_RIGHTS_MISSING"
		}
		if out, err := run(user, "check", "--for", other); !strings.Contains(out, code) || err == nil {
			t.Errorf("check --for %s as another role: %v\n%s", other, err, out)
		}
	}
	must(r.purgeUser, "purge")
	if left() != 0 {
		t.Errorf("%d rows are left in warm", left())
	}
	var tables int
	if err := r.admin.QueryRowContext(deadline(t), "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?", r.warm).Scan(&tables); err != nil || tables != 2 {
		t.Errorf("%d tables in warm, %v; want 2", tables, err)
	}
	// The restore role brings them back, beside warm and into it, and can harm nothing.
	restorer, back := *r.role(t, "restore"), r.id+"_restored_00"
	do(t, r.admin, "CREATE DATABASE "+back)
	t.Cleanup(func() { _, _ = r.admin.ExecContext(context.Background(), "DROP DATABASE "+back) })
	checked(restorer, "restore")
	into := restorer.Clone()
	into.DBName = back
	must(restorer, "restore", "--into", into.FormatDSN(), "--create")
	var rows int
	if err := r.admin.QueryRowContext(deadline(t), "SELECT (SELECT COUNT(*) FROM "+back+".msg_content_00) + (SELECT COUNT(*) FROM "+back+".msg_content_01)").Scan(&rows); err != nil || rows != 200 {
		t.Errorf("%d rows came back: %v", rows, err)
	}
	into.DBName = r.warm
	must(restorer, "restore", "--into", into.FormatDSN(), "--into-warm", "--day", "2026-05-01")
	if n := left(); n != 100 {
		t.Errorf("%d rows came back into warm, want 100", n)
	}
	must(restorer, "export", "--format", "ndjson", "--out", filepath.Join(t.TempDir(), "rows.ndjson"))
	db := stack.OpenMySQL(t, restorer.FormatDSN())
	for _, s := range []string{"DELETE FROM " + daily, "UPDATE " + daily + " SET status = 1", "DELETE FROM " + back + ".msg_content_00", "DROP TABLE " + back + ".msg_content_00", "CREATE TABLE " + r.warm + ".x (i INT)",
		"UPDATE " + r.manifest + ".slices SET state = 'purged'", "DELETE FROM " + r.manifest + ".holds", "UPDATE " + r.manifest + ".holds SET released_at = NULL"} {
		refused(t, db, s)
	}
	must(r.purgeUser, "purge")
	if n := left(); n != 100 {
		t.Errorf("%d rows are left in warm, want the 100 that are held", n)
	}
	// The canary role adds canaries, and can change and delete nothing.
	planter := *r.role(t, "canary")
	checked(planter, "canary")
	must(planter, "canary", "plant", "--conversation", "1", "--shard", daily, "--at", "2026-05-02T10:00", "--set", "sender_id=1", "--set", "msg_type=1", "--set", "receiver_id=1", "--set", "client_msg_id=c", "--set", "content=x")
	if n := left(); n != 109 {
		t.Errorf("%d rows in warm, want 9 more than 100", n)
	}
	must(r.archiveUser, "canary", "check")
	must(r.archiveUser, "patrol", "--heal")
	// The patrol role reads everything back and compares, and can delete nothing nor approve a plan.
	patroller := *r.role(t, "patrol")
	checked(patroller, "patrol")
	checked(*r.role(t, "approve"), "approve")
	checked(*r.role(t, "drill"), "drill") // which sees nothing of warm
	must(patroller, "verify")
	must(patroller, "verify", "--sample", "1/8")
	must(patroller, "canary", "check")
	must(patroller, "patrol")
	must(patroller, "patrol", "--heal")
	db = stack.OpenMySQL(t, patroller.FormatDSN())
	for _, s := range []string{"DELETE FROM " + daily, "UPDATE " + daily + " SET status = 1", "INSERT INTO " + daily + " SELECT * FROM " + plain, "DROP TABLE " + r.manifest + ".holds",
		"DELETE FROM " + r.manifest + ".holds", "DELETE FROM " + r.manifest + ".slices", "UPDATE " + r.manifest + ".policies SET source_id = 1", "INSERT INTO " + r.manifest + ".approvals SELECT * FROM " + r.manifest + ".approvals"} {
		refused(t, db, s)
	}
	db = stack.OpenMySQL(t, planter.FormatDSN())
	for _, s := range []string{"DELETE FROM " + daily, "UPDATE " + daily + " SET status = 1", "DROP TABLE " + daily, "CREATE TABLE " + r.warm + ".x (i INT)", "UPDATE " + r.manifest + ".slices SET state = 'purged'",
		"DELETE FROM " + r.manifest + ".canaries"} {
		refused(t, db, s)
	}
}
