package sql_test

import (
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
	must(r.archiveUser, "check")
	must(r.archiveUser, "archive", "--from", "2026-05-01", "--to", "2026-05-02")
	if out, err := run(r.archiveUser, "purge"); err == nil || left() != 200 {
		t.Fatalf("purge as the archive role: %v, %d of 200 rows are left\n%s", err, left(), out)
	}
	if out, err := run(r.purgeUser, "check"); err != nil || strings.Contains(out, "lacks") {
		t.Errorf("check as the purge role: %v\n%s", err, out)
	}
	must(r.purgeUser, "purge")
	if left() != 0 {
		t.Errorf("%d rows are left in warm", left())
	}
	var tables int
	if err := r.admin.QueryRowContext(deadline(t), "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?", r.warm).Scan(&tables); err != nil || tables != 2 {
		t.Errorf("%d tables in warm, %v; want 2", tables, err)
	}
}
