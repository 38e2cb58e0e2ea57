// Package sql_test proves that the roles of this folder may do what their jobs need and nothing else.
package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/stack"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// roles are the databases of a test and two of its users.
type roles struct {
	admin, archive, purge *sql.DB
	warm, manifest, other string // databases

	archiveUser, purgeUser mysql.Config

	id     string
	server *mysql.Config
}

// apply runs the files, with names that no other test has in place of the files' own.
func apply(t *testing.T) roles {
	t.Helper()
	dsn := stack.MySQL(t) // skips without a server
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	r := roles{admin: stack.OpenMySQL(t, dsn), other: cfg.DBName}
	id := stack.Unique("g")
	r.id, r.server = id, cfg
	r.warm, r.manifest = id+"_im_00", id+"_manifest"
	for _, db := range []string{r.warm, r.manifest} {
		do(t, r.admin, "CREATE DATABASE "+db)
		t.Cleanup(func() { _, _ = r.admin.ExecContext(context.Background(), "DROP DATABASE "+db) })
	}
	for _, role := range []struct {
		name string
		db   **sql.DB
		user *mysql.Config
	}{{"archive", &r.archive, &r.archiveUser}, {"purge", &r.purge, &r.purgeUser}} {
		c := r.role(t, role.name)
		*role.user = *c
		*role.db = stack.OpenMySQL(t, c.FormatDSN())
		if role.name == "archive" { // makes the tables that the other role's file names
			m := c.Clone()
			m.DBName = r.manifest
			s, err := manifest.Open(deadline(t), manifest.Config{DSN: m.FormatDSN(), Source: "im"}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Migrate(deadline(t), false); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return r
}

// role runs the files of a role, and gives its user.
func (r roles) role(t *testing.T, name string) *mysql.Config {
	t.Helper()
	user := r.id + name[:2] // archive and approve begin alike
	t.Cleanup(func() { _, _ = r.admin.ExecContext(context.Background(), "DROP USER IF EXISTS "+user+"@'%'") })
	found := 0
	for _, server := range servers {
		file, err := os.ReadFile(filepath.Join(server, name+".sql"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		found++
		r.run(t, string(file), name, user)
	}
	if found == 0 {
		t.Fatalf("no file is of the role %s", name)
	}
	c := r.server.Clone()
	c.User, c.Passwd, c.DBName = user, "Pass-word-1", ""
	return c
}

// servers are the folders: what is run where.
var servers = []string{"warm", "target", "manifest"}

// run runs a whole file, with names that no other test has in place of the file's own.
func (r roles) run(t *testing.T, file, name, user string) {
	t.Helper()
	text := strings.NewReplacer("`im\\_%`", "`"+r.id+"\\_im\\_%`", "`restored\\_%`", "`"+r.id+"\\_restored\\_%`", "`coldtier`", "`"+r.manifest+"`", "coldtier_"+name+"@", user+"@",
		"change-this-password", "Pass-word-1").Replace(file)
	text = regexp.MustCompile(`(?m)^--.*$`).ReplaceAllString(text, "")
	for statement := range strings.SplitSeq(text, ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			if _, err := r.admin.ExecContext(deadline(t), statement); err != nil {
				t.Fatalf("%s.sql: %s: %v", name, statement, err)
			}
		}
	}
}

// Warm, the manifest and what is restored to may be three servers: each file is run whole on one of them, where the
// databases of the others are not, and names none of theirs.
func TestFilesStandAlone(t *testing.T) {
	t.Parallel()
	dsn := stack.MySQL(t)
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	id := stack.Unique("g")
	r := roles{admin: stack.OpenMySQL(t, dsn), id: id, server: cfg, manifest: id + "_manifest"}
	of := map[string][]string{"warm": {"im\\_"}, "manifest": {"coldtier"}, "target": {"restored\\_", "coldtier\\_scratch\\_"}}
	database := regexp.MustCompile("`([^`]+)`\\.")
	for _, server := range servers {
		files, err := filepath.Glob(filepath.Join(server, "*.sql"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", server, files, err)
		}
		for _, path := range files {
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range database.FindAllStringSubmatch(regexp.MustCompile(`(?m)^--.*$`).ReplaceAllString(string(file), ""), -1) {
				if !slices.ContainsFunc(of[server], func(own string) bool { return m[1] == own || strings.HasPrefix(m[1], own) && own != "coldtier" }) {
					t.Errorf("%s grants on %s, which is on another server", path, m[1])
				}
			}
			if server != "manifest" { // whose tables migrate makes first
				name := strings.TrimSuffix(filepath.Base(path), ".sql")
				user := id + server[:1] + name[:2]
				t.Cleanup(func() { _, _ = r.admin.ExecContext(context.Background(), "DROP USER IF EXISTS "+user+"@'%'") })
				r.run(t, string(file), name, user)
			}
		}
	}
	if _, err := os.Stat("manifest/archive.sql"); err != nil {
		t.Fatal(err)
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // one builds the program
	t.Cleanup(cancel)
	return ctx
}

func do(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(deadline(t), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// refused wants an access error: a database, a table, a column, a global command or a routine.
func refused(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(deadline(t), statement)
	var my *mysql.MySQLError
	if !errors.As(err, &my) || (my.Number != 1044 && my.Number != 1142 && my.Number != 1143 && my.Number != 1227 && my.Number != 1370) {
		t.Errorf("%s: %v; want it refused", statement, err)
	}
}

// fill makes a table of chat, partitioned by day: 2026-05-01 and 2026-05-02.
func (r roles) fill(t *testing.T) (table string) {
	t.Helper()
	g, err := chat.New(chat.Config{Seed: 1, From: snowflake.MakeDay(2026, 5, 1), Days: 2, Messages: 200})
	if err != nil {
		t.Fatal(err)
	}
	table = r.warm + ".msg_content_00"
	if err := chat.Create(deadline(t), r.admin, table, g.Days()); err != nil {
		t.Fatal(err)
	}
	if _, err := chat.Load(deadline(t), g, chat.Target{DB: r.admin, Table: table}); err != nil {
		t.Fatal(err)
	}
	return table
}

func TestArchiveRoleReadsWarmAndOwnsTheManifest(t *testing.T) {
	t.Parallel()
	r := apply(t)
	table := r.fill(t)
	for _, s := range []string{
		"SELECT * FROM " + table + " LIMIT 1",
		"SHOW CREATE TABLE " + table,
		"SELECT * FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = '" + r.warm + "'",
		"CREATE TABLE " + r.manifest + ".a (i INT PRIMARY KEY, j INT)",
		"ALTER TABLE " + r.manifest + ".a ADD COLUMN k INT, ADD INDEX (j)",
		"INSERT INTO " + r.manifest + ".a VALUES (1, 2, 3)",
		"UPDATE " + r.manifest + ".a SET j = 4",
		"DELETE FROM " + r.manifest + ".a",
		"DROP TABLE " + r.manifest + ".a",
	} {
		do(t, r.archive, s)
	}
	for _, s := range []string{
		"DELETE FROM " + table + " WHERE msg_id = 1",
		"UPDATE " + table + " SET status = 9 WHERE msg_id = 1",
		"INSERT INTO " + table + " SELECT * FROM " + table,
		"ALTER TABLE " + table + " DROP PARTITION p20260501",
		"TRUNCATE TABLE " + table,
		"DROP TABLE " + table,
		"CREATE TABLE " + r.warm + ".x (i INT)",
		"CREATE TABLE " + r.other + ".x (i INT)",
	} {
		refused(t, r.archive, s)
	}
}

func TestPurgeRoleDeletesAndExchangesAndNoMore(t *testing.T) {
	t.Parallel()
	r := apply(t)
	table, staging := r.fill(t), r.warm+".staging"
	rows := func(of string) (n int) {
		t.Helper()
		if err := r.admin.QueryRowContext(deadline(t), "SELECT COUNT(*) FROM "+of).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// By rows: under a lock, one day.
	tx, err := r.purge.BeginTx(deadline(t), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, s := range []string{
		"SELECT COUNT(*) FROM (SELECT msg_id FROM " + table + " PARTITION (p20260502) FOR UPDATE) q",
		"DELETE FROM " + table + " PARTITION (p20260502)",
	} {
		if _, err := tx.ExecContext(deadline(t), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := rows(table); n != 100 {
		t.Errorf("%d rows after the delete, want 100", n)
	}
	// By partitions: there and back, and at last away.
	for _, s := range []string{
		"CREATE TABLE " + staging + " LIKE " + table,
		"ALTER TABLE " + staging + " REMOVE PARTITIONING",
		"ALTER TABLE " + table + " EXCHANGE PARTITION p20260501 WITH TABLE " + staging,
		"INSERT INTO " + table + " SELECT s.* FROM " + staging + " s LEFT JOIN " + table + " t USING (msg_id) WHERE t.msg_id IS NULL",
		"DELETE FROM " + table,
		"ALTER TABLE " + table + " DROP PARTITION p20260501",
		"DROP TABLE " + staging,
		"SHOW REPLICA STATUS",
		"SHOW GLOBAL STATUS LIKE 'Threads_running'",
		"INSERT INTO " + r.manifest + ".runs (source_id, job, host, started_at) VALUES (1, 'purge', 'h', UTC_TIMESTAMP(6))",
		"UPDATE " + r.manifest + ".runs SET outcome = 'done'",
		"DELETE FROM " + r.manifest + ".runs",
		"INSERT INTO " + r.manifest + ".revocations (source_id, plan, account, os_user, given_by, reason, revoked_at) VALUES (1, 'p', '', '', '', '', UTC_TIMESTAMP(6))",
	} {
		do(t, r.purge, s)
	}
	if n := rows(table); n != 0 {
		t.Errorf("%d rows are left, want none", n)
	}
	for _, s := range []string{
		"UPDATE " + table + " SET status = 9 WHERE msg_id = 1",
		"CREATE TABLE " + r.manifest + ".x (i INT)",
		"DROP TABLE " + r.manifest + ".runs",
		"CREATE TABLE " + r.other + ".x (i INT)",
		"CREATE USER x@localhost",
		// It cannot approve, nor change what was planned, approved or revoked, nor set the policy.
		"INSERT INTO " + r.manifest + ".approvals SELECT * FROM " + r.manifest + ".approvals",
		"INSERT INTO " + r.manifest + ".approved_slices SELECT * FROM " + r.manifest + ".approved_slices",
		"UPDATE " + r.manifest + ".approvals SET expires_at = UTC_TIMESTAMP(6)",
		"UPDATE " + r.manifest + ".approved_slices SET generation = 2",
		"UPDATE " + r.manifest + ".plans SET expires_at = UTC_TIMESTAMP(6)",
		"UPDATE " + r.manifest + ".plan_slices SET generation = 2",
		"DELETE FROM " + r.manifest + ".revocations",
		"INSERT INTO " + r.manifest + ".policies SELECT * FROM " + r.manifest + ".policies",
		"UPDATE " + r.manifest + ".policies SET value = 'none'",
		"DELETE FROM " + r.manifest + ".policies",
	} {
		refused(t, r.purge, s)
	}
}

// A table of the manifest that is made later is given to the purge's account, or kept from it, on purpose.
func TestPurgeRoleNamesEveryTable(t *testing.T) {
	t.Parallel()
	r := apply(t)
	file, err := os.ReadFile("manifest/purge.sql")
	if err != nil {
		t.Fatal(err)
	}
	kept := []string{"approvals", "approved_slices", "policies", "schema_versions", "schema_lock", "canaries", "drills", "drill_slices"}
	rows, err := r.admin.QueryContext(deadline(t), "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?", r.manifest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		if named := strings.Contains(string(file), "ON `coldtier`."+name+" TO"); named == slices.Contains(kept, name) {
			t.Errorf("table %s: purge.sql names it: %v, and it is to be kept from the role: %v", name, named, !named)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// The approve role adds approvals and revocations, and can do nothing else.
func TestApproveRole(t *testing.T) {
	t.Parallel()
	r := apply(t)
	table := r.fill(t)
	db := stack.OpenMySQL(t, r.role(t, "approve").FormatDSN())
	for _, s := range []string{
		"INSERT INTO " + r.manifest + ".approvals (source_id, plan, hash, account, os_user, given_by, reason, approved_at, expires_at) VALUES (1, 'p', '', CURRENT_USER(), '', '', '', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
		"INSERT INTO " + r.manifest + ".approved_slices SELECT * FROM " + r.manifest + ".plan_slices",
		"INSERT INTO " + r.manifest + ".revocations (source_id, plan, account, os_user, given_by, reason, revoked_at) VALUES (1, 'p', '', '', '', '', UTC_TIMESTAMP(6))",
		"SELECT * FROM " + r.manifest + ".slices",
	} {
		do(t, db, s)
	}
	for _, s := range []string{
		"UPDATE " + r.manifest + ".approvals SET hash = 'x'",
		"DELETE FROM " + r.manifest + ".approvals",
		"DELETE FROM " + r.manifest + ".revocations",
		"UPDATE " + r.manifest + ".approved_slices SET generation = 2",
		"INSERT INTO " + r.manifest + ".plans SELECT * FROM " + r.manifest + ".plans",
		"INSERT INTO " + r.manifest + ".plan_slices SELECT * FROM " + r.manifest + ".plan_slices",
		"INSERT INTO " + r.manifest + ".policies SELECT * FROM " + r.manifest + ".policies",
		"UPDATE " + r.manifest + ".slices SET state = 'purged'",
		"SELECT * FROM " + table,
		"DELETE FROM " + table,
	} {
		refused(t, db, s)
	}
}
