package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/cmd/coldtier/preflight"
	"github.com/coldtier/coldtier/tests/stack"
)

// findings runs check and gives what it finds, by code.
func (l *lab) findings(args ...string) map[preflight.Code][]preflight.Finding {
	l.t.Helper()
	o := l.run(append([]string{"--output", "json", "check"}, args...)...)
	doc := struct {
		Result struct{ Findings []preflight.Finding }
	}{}
	if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
		l.t.Fatalf("%v\n%s%s", err, o.stdout, o.stderr)
	}
	all := map[preflight.Code][]preflight.Finding{}
	for _, f := range doc.Result.Findings {
		all[f.Code] = append(all[f.Code], f)
		if f.Level != f.Severity || f.About == "" || f.Subject == "" || f.Text == "" || (f.Remedy == "") != (f.Severity == preflight.OK) {
			l.t.Errorf("finding %+v", f)
		}
	}
	return all
}

// wants runs check and insists that codes are found, or that others are not.
func (l *lab) wants(when string, found, not []preflight.Code, args ...string) {
	l.t.Helper()
	all := l.findings(args...)
	for _, c := range found {
		if len(all[c]) == 0 {
			l.t.Errorf("%s: %s is not found: %v", when, c, all)
		}
	}
	for _, c := range not {
		if len(all[c]) > 0 {
			l.t.Errorf("%s: %s is found: %v", when, c, all[c])
		}
	}
}

// Bad states of warm, the manifest and ClickHouse are found by the program, and are gone
// when they are mended.
func TestCheckFindsAndForgets(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.exec(fmt.Sprintf(createMessages, "msg_01"))
	l.exec(fmt.Sprintf(createMessages, "msg_02"))
	l.fill("msg_00", 40, 3, 17)
	l.fill("msg_01", 40, 3, 18)
	l.want(0, "migrate")
	m := stack.OpenMySQL(t, l.config["manifest"].(map[string]any)["dsn"].(string))
	manifest := func(q string) {
		t.Helper()
		if _, err := m.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	rows := l.ch.Open(t)
	clickhouse := func(q string) {
		t.Helper()
		if err := rows.Exec(t.Context(), strings.ReplaceAll(q, "DB", l.ch.Database)); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	codes := func(c ...preflight.Code) []preflight.Code { return c }
	shape, ttl, engine, partition := preflight.Code("TABLE_SHAPE_ODD"), preflight.Code("CLICKHOUSE_TTL"), preflight.Code("CLICKHOUSE_ENGINE_LOSES"), preflight.Code("CLICKHOUSE_PARTITION_KEY")
	bad := codes(preflight.SampleSplit, preflight.SampleTwice, preflight.ManifestEngine, shape, preflight.RowsBehind, preflight.ManifestLease, preflight.TableNoPurge, preflight.TableNoPages, engine, ttl, partition, preflight.ProbeFailed)
	l.wants("in order", codes(preflight.ManifestReady, preflight.TableReady, preflight.TableRows, preflight.BucketReady, preflight.RowsReady, preflight.ClockAgrees, preflight.SampleNoIndex, preflight.SpillRoom, preflight.AccountAdmin), bad)

	l.config["fetch"] = map[string]any{"warm": true}
	l.set("purge.strategy", "partition")
	l.set("purge.pause_query", "SELECT nope")
	l.set("manifest.lease", "5s")
	manifest("ALTER TABLE canaries ENGINE = MyISAM")
	l.exec("ALTER TABLE msg_02 ADD COLUMN more INT NULL")
	l.wants("broken", codes(preflight.ManifestEngine, shape, preflight.RowsBehind, preflight.ManifestLease, preflight.TableNoPurge, preflight.TableNoPages, preflight.PauseQuery), codes(preflight.TableRows))
	for _, n := range []string{"msg_00", "msg_01", "msg_02"} {
		l.exec("ALTER TABLE " + n + " ADD KEY page (session_id, seq)")
	}
	l.exec("ALTER TABLE msg_02 DROP COLUMN more")
	l.exec("INSERT INTO msg_02 SELECT * FROM msg_00")
	manifest("ALTER TABLE canaries ENGINE = InnoDB")
	l.set("purge.strategy", "auto")
	l.set("purge.pause_query", "SELECT 0")
	l.set("manifest.lease", "1m")
	l.wants("moved to two tables", codes(preflight.SampleSplit, preflight.SampleTwice, preflight.TablePages), codes(preflight.ManifestEngine, shape, preflight.RowsBehind, preflight.ManifestLease, preflight.TableNoPurge, preflight.TableNoPages, preflight.PauseQuery))
	l.exec("DELETE FROM msg_02")

	clickhouse("RENAME TABLE DB.messages TO DB.kept")
	clickhouse("CREATE TABLE DB.messages AS DB.kept ENGINE = Buffer(DB, kept, 1, 10, 100, 10000, 1000000, 10000000, 100000000)")
	l.wants("a buffer", codes(engine), codes(preflight.SampleSplit, preflight.SampleTwice))
	clickhouse("DROP TABLE DB.messages")
	clickhouse("CREATE TABLE DB.messages AS DB.kept ENGINE = ReplacingMergeTree() PARTITION BY _shard ORDER BY (_shard, session_id, seq, msg_id, _day, _generation, _attempt)")
	l.wants("by shard", codes(partition), codes(engine))
	clickhouse("DROP TABLE DB.messages")
	clickhouse("RENAME TABLE DB.kept TO DB.messages")
	if l.ch.Protocol == "http" { // the old server knows no TTL
		clickhouse("ALTER TABLE DB.messages MODIFY TTL _day + INTERVAL 10 YEAR")
		l.wants("a TTL", codes(ttl), codes(partition))
		clickhouse("ALTER TABLE DB.messages REMOVE TTL")
		clickhouse("ALTER TABLE DB.messages MODIFY COLUMN content Nullable(String) TTL _day + INTERVAL 10 YEAR")
		l.wants("a column's TTL", codes(ttl), nil)
		clickhouse("ALTER TABLE DB.messages MODIFY COLUMN content REMOVE TTL")
	}
	clickhouse("DROP TABLE DB.messages")
	l.wants("no table", codes(preflight.RowsUnfit), codes(preflight.RowsReady))
	l.want(0, "migrate")
	l.wants("mended", codes(preflight.SampleClean, preflight.RowsReady), bad)
	l.want(0, "check")
}

// The configured account is judged by the role that --for names.
func TestCheckForARole(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 40, 3, 17)
	l.want(0, "migrate")
	user := stack.Unique("u")
	l.exec("CREATE USER " + user + "@'%' IDENTIFIED BY 'Secret-1'")
	t.Cleanup(func() { l.exec("DROP USER " + user + "@'%'") })
	l.exec("GRANT SELECT ON `" + l.db + "`.* TO " + user + "@'%'")
	cfg, err := mysql.ParseDSN(l.dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.User, cfg.Passwd = user, "Secret-1"
	l.warmDSN(cfg.FormatDSN())
	rights := []preflight.Code{preflight.WarmRights, preflight.WarmExcess}
	lacks, excess := rights[:1], rights[1:]
	l.wants("SELECT", nil, rights, "--for", "archive")
	l.wants("SELECT", lacks, excess, "--for", "purge")
	l.want(exitUsage, "check", "--for", "purge")
	l.wants("SELECT", []preflight.Code{preflight.WarmRoleNot}, rights)
	l.want(0, "check")
	l.exec("GRANT DELETE ON `" + l.db + "`.msg_00 TO " + user + "@'%'")
	l.wants("DELETE", excess, lacks, "--for", "archive")
	l.wants("DELETE", nil, rights, "--for", "purge")
	l.wants("DELETE", excess, lacks, "--for", "fetch")
	l.exec("REVOKE DELETE ON `" + l.db + "`.msg_00 FROM " + user + "@'%'")
	l.wants("SELECT again", nil, rights, "--for", "archive")
	if o := l.want(exitUsage, "check", "--for", "nobody"); !strings.Contains(o.stderr, "want archive") {
		t.Errorf("%s", o.stderr)
	}
	if all := l.findings("--for", "archive"); len(all[preflight.ReplicasUnseen]) == 0 {
		t.Errorf("an account that may not see replicas: %v", all)
	}
}

// This machine: where temporary files go, and how many may be open.
func TestCheckOfTheMachine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(0, "migrate")
	env := l.env
	l.env = append(slices.Clone(env), "TMPDIR="+filepath.Join(t.TempDir(), "none"))
	l.wants("no folder", []preflight.Code{preflight.SpillUnusable}, nil)
	l.wants("no folder, and none needed", nil, []preflight.Code{preflight.SpillUnusable}, "--for", "purge")
	l.env = env
	l.wants("a folder", []preflight.Code{preflight.SpillRoom}, []preflight.Code{preflight.SpillUnusable, preflight.OpenFiles})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n 512 && exec "$0" "$@"`, self, "--config", l.file(), "check")
	c.Env = append(slices.Clone(env), asProgram+"=1")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "OPEN_FILES_FEW") {
		t.Errorf("512 files: %v\n%s", err, out)
	}
}

// A clock that is a little off is a warning, and each clock has its name.
func TestCheckNamesEachClock(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(0, "migrate")
	env := map[string]string{"WARM_DSN": l.dsn, "AWS_ACCESS_KEY_ID": l.s3.Key, "AWS_SECRET_ACCESS_KEY": l.s3.Secret}
	got := inProcess(env, func() time.Time { return time.Now().Add(20 * time.Second) }, "--config", l.file(), "--output", "json", "check")
	for _, who := range []string{"manifest database", "warm server"} {
		if !strings.Contains(got.stdout, "the clock of the "+who) && !strings.Contains(got.stdout, "the clock of "+who) {
			t.Errorf("no clock of %s: %s", who, got.stdout)
		}
	}
	if n := strings.Count(got.stdout, `"code": "CLOCK_DRIFTS"`); n != 2 {
		t.Errorf("%d clocks drift, want those of the manifest and of warm: %s", n, got.stdout)
	}
}
