package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/stack"
)

type doc = map[string]any

// at walks a JSON document: names and indexes.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				t.Fatalf("no %v in %v", p, v)
			}
			v = m[p]
		case int:
			l, ok := v.([]any)
			if !ok || p >= len(l) {
				t.Fatalf("no [%v] in %v", p, v)
			}
			v = l[p]
		}
	}
	return v
}

func (l *lab) rows(table string) (n int) {
	l.t.Helper()
	if err := l.warm.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&n); err != nil {
		l.t.Fatal(err)
	}
	return n
}

// The whole main job by the command line: what is copied is verified, shown, kept
// for the lag, deleted, and then read back, the same, from the cold tier alone.
func TestMainJob(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const conversation = "9007199254740993" // beyond 2^53
	l.exec(fmt.Sprintf(createMessages, "msg_01"))
	l.fill("msg_00", 40, 5, 9007199254740993)
	l.fill("msg_01", 39, 3, 17)
	l.fill("msg_00", 2, 4, 17) // too young

	l.want(exitUsage, "status") // no manifest yet
	l.want(exitUsage, "check")
	l.want(exitUsage, "archive")
	var dry, ran, again doc
	l.json(0, &dry, "migrate", "--dry-run")
	l.want(exitUsage, "status") // the dry run changed nothing
	l.json(0, &ran, "migrate")
	if fmt.Sprint(dry["manifest"], dry["clickhouse"]) != fmt.Sprint(ran["manifest"], ran["clickhouse"]) {
		t.Errorf("the dry run lists %v, the run did %v", dry, ran)
	}
	l.json(0, &again, "migrate")
	if len(again["manifest"].([]any))+len(again["clickhouse"].([]any)) != 0 {
		t.Errorf("a second migrate did %v", again)
	}
	if o := l.want(0, "check"); strings.Contains(o.stdout, "\nerror") {
		t.Errorf("check says\n%s", o.stdout)
	}

	var plan, status, report doc
	l.json(0, &plan, "archive", "--dry-run")
	if n := len(plan["slices"].([]any)); n != 19 { // 40..31 days ago of one table, 39..31 of the other
		t.Errorf("the plan lists %d slices, want 19", n)
	}
	l.json(0, &status, "status")
	if len(status["days"].([]any)) != 0 {
		t.Errorf("the dry run left slices: %v", status["days"])
	}
	l.json(0, &report, "archive")
	if len(report["done"].([]any)) != 19 || report["rows"].(float64) != 8 {
		t.Errorf("report: %v", report)
	}
	l.want(0, "verify")
	l.json(0, &status, "status")
	if s := at(t, status, "states", 0); at(t, s, "state") != "verified" || at(t, s, "slices") != 19.0 || at(t, s, "rows") != 8.0 {
		t.Errorf("status: %v", status["states"])
	}
	if at(t, status, "days", 0, "day") != l.day(40).String() || at(t, status, "days", 0, "rows") != 5.0 || at(t, status, "days", 0, "purge_from") == nil {
		t.Errorf("first day: %v", at(t, status, "days", 0))
	}
	if at(t, status, "runs", 0, "job") != "verify" || at(t, status, "runs", 1, "job") != "archive" || at(t, status, "runs", 1, "outcome") != "done" {
		t.Errorf("runs: %v", status["runs"])
	}

	var warmPage doc
	l.json(0, &warmPage, "fetch", "--conversation", conversation)
	if n := len(warmPage["messages"].([]any)); n != 5 {
		t.Fatalf("the page has %d messages, want 5", n)
	}

	l.want(0, "purge") // the lag is not over
	if n := l.rows("msg_00") + l.rows("msg_01"); n != 12 {
		t.Fatalf("%d rows after a purge within the lag, want 12", n)
	}
	l.set("purge.lag", "0s")
	l.want(0, "hold", "add", "--shard", l.db+".msg_01", "--day", l.day(39).String(), "--reason", "test")
	l.json(0, &plan, "purge", "--dry-run")
	if n := len(plan["jobs"].([]any)); n != 18 {
		t.Errorf("the purge plans %d jobs, want 18", n)
	}
	if l.rows("msg_00") != 9 {
		t.Error("the dry run deleted rows")
	}
	l.want(0, "purge")
	if a, b := l.rows("msg_00"), l.rows("msg_01"); a != 4 || b != 3 {
		t.Errorf("%d and %d rows after the purge, want 4 (too young) and 3 (held)", a, b)
	}
	l.want(exitUsage, "hold", "release", "77")
	l.want(0, "hold", "release", "--dry-run", "1")
	if o := l.want(0, "hold", "list"); !strings.Contains(o.stdout, "test") {
		t.Errorf("the dry run released the hold:\n%s", o.stdout)
	}
	l.want(0, "hold", "release", "1")
	l.want(0, "purge")
	if a, b := l.rows("msg_00"), l.rows("msg_01"); a != 4 || b != 0 {
		t.Errorf("%d and %d rows after the release, want 4 and 0", a, b)
	}

	for _, from := range []string{"auto", "s3", "clickhouse"} {
		var cold doc
		l.json(0, &cold, "fetch", "--conversation", conversation, "--from", from)
		if !same(t, cold["messages"], warmPage["messages"]) {
			t.Errorf("page from %s differs:\n%v\n%v", from, cold["messages"], warmPage["messages"])
		}
	}
	o := l.want(0, "fetch", "--conversation", conversation, "--limit", "1")
	if !strings.Contains(o.stdout, `message 4 of `) || !strings.Contains(o.stdout, `\u0000\xff`) || !strings.Contains(o.stdout, "1 message, COMPLETE, more from cursor") {
		t.Errorf("page as text:\n%s", o.stdout)
	}
}

// same compares messages without the store they were read from.
func same(t *testing.T, a, b any) bool {
	t.Helper()
	var text [2]string
	for i, v := range []any{a, b} {
		for _, m := range v.([]any) {
			delete(m.(map[string]any), "store")
		}
		j, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text[i] = string(j)
	}
	return text[0] == text[1]
}

// Invariant 3: a row that changed between copy and purge stays; exit code 4.
func TestDriftIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 31, 5, 17)
	l.set("purge.lag", "0s")
	l.want(0, "migrate")
	l.want(0, "archive")
	l.exec("UPDATE msg_00 SET content = 'edited' ORDER BY msg_id LIMIT 1")
	o := l.want(exitRefused, "purge")
	if !strings.Contains(o.stdout, "drifted") || l.rows("msg_00") != 5 {
		t.Errorf("%d rows\n%s", l.rows("msg_00"), o.stdout)
	}
	l.want(0, "archive")
	l.want(0, "purge")
	if l.rows("msg_00") != 0 {
		t.Error("the next generation was not purged")
	}
	if o := l.want(0, "fetch", "--conversation", "17"); !strings.Contains(o.stdout, "edited") {
		t.Errorf("the edit is not in the cold tier:\n%s", o.stdout)
	}
}

// untouched insists that a refused run left nothing behind.
func (l *lab) untouched(rows int) {
	l.t.Helper()
	if n := l.rows("msg_00"); n != rows {
		l.t.Errorf("%d rows in MySQL, want %d", n, rows)
	}
	cfg := l.config["manifest"].(map[string]any)["dsn"].(string)
	var slices int
	if err := stack.OpenMySQL(l.t, cfg).QueryRow("SELECT COUNT(*) FROM slices").Scan(&slices); err != nil || slices != 0 {
		l.t.Errorf("%d slices in the manifest, %v", slices, err)
	}
}

const secret = "hunter2-hunter2"

// account makes a MySQL account with the given grants on the warm database.
func (l *lab) account(grants string) (dsn string) {
	l.t.Helper()
	return l.accountFor(l.dsn, grants)
}

func (l *lab) accountFor(dsn, grants string) string {
	l.t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		l.t.Fatal(err)
	}
	name := stack.Unique("u")
	l.exec(fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s'", name, secret))
	l.t.Cleanup(func() { l.exec(fmt.Sprintf("DROP USER '%s'@'%%'", name)) })
	if grants != "" {
		l.exec(fmt.Sprintf("GRANT %s ON %s.* TO '%s'@'%%'", grants, cfg.DBName, name))
	}
	cfg.User, cfg.Passwd = name, secret
	return cfg.FormatDSN()
}

func (l *lab) warmDSN(dsn string) {
	l.set("source.databases", []any{map[string]any{"dsn": dsn}})
}

// nobody is an address on which nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	s, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	return s.Addr().String()
}

// Bad input gets a one-line error that names the thing and the remedy, exit code 2
// or 4, from check as from archive, and nothing is changed.
func TestBadInput(t *testing.T) {
	t.Parallel()
	young := time.Now().UTC().AddDate(0, 0, -2).Format(time.DateOnly)
	future := time.Now().UTC().AddDate(0, 0, 2).Format(time.DateOnly)
	for _, tt := range []struct {
		name    string
		breakIt func(l *lab)
		args    []string // beside check; nil: archive
		code    int
		words   []string // in the errors
		noCheck bool
	}{
		{"wrong epoch", func(l *lab) { l.config["source"].(map[string]any)["snowflake"] = doc{"epoch": "2016-01-01T00:00:00Z"} }, nil, exitRefused, []string{"msg_00", "epoch"}, false},
		{"wrong shift", func(l *lab) {
			l.config["source"].(map[string]any)["snowflake"] = doc{"epoch": "2015-01-01T00:00:00Z", "time_shift": 21}
		}, nil, exitRefused, []string{"msg_00"}, false},
		{"no unique key", func(l *lab) { l.exec("ALTER TABLE msg_00 DROP PRIMARY KEY, ADD INDEX (msg_id)") }, nil, exitUsage, []string{"msg_00", "msg_id", "unique"}, false},
		{"unsupported column", func(l *lab) { l.exec("ALTER TABLE msg_00 ADD COLUMN place POINT NULL") }, nil, exitUsage, []string{"msg_00", "place", "point"}, false},
		{"role without column", func(l *lab) {
			l.config["source"].(map[string]any)["columns"].(map[string]string)["sender_id"] = "nobody"
		}, nil, exitUsage, []string{"msg_00", "nobody", "sender_id"}, false},
		{"no table", func(l *lab) { l.set("source.tables", []string{"messages_*"}) }, nil, exitUsage, []string{"messages_*", l2}, false},
		{"no privilege", func(l *lab) { l.warmDSN(l.account("")) }, nil, exitUsage, []string{"denied", "grant"}, false},
		{"wrong password", func(l *lab) { l.warmDSN(strings.Replace(l.account("SELECT"), secret, secret+"x", 1)) }, nil, exitUsage, []string{"denied"}, false},
		{"warm unreachable", func(l *lab) { l.warmDSN("u:" + secret + "@tcp(" + nobody(l.t) + ")/im") }, nil, exitUsage, []string{"refused"}, false},
		{"manifest unreachable", func(l *lab) { l.set("manifest.dsn", "u:"+secret+"@tcp("+nobody(l.t)+")/x") }, nil, exitUsage, []string{"manifest", "refused"}, false},
		{"manifest password", func(l *lab) { l.set("manifest.dsn", strings.Replace(l.account("SELECT"), secret, secret+"x", 1)) }, nil, exitUsage, []string{"manifest", "denied"}, false},
		{"no right to write the manifest", func(l *lab) {
			l.set("manifest.dsn", l.accountFor(l.config["manifest"].(map[string]any)["dsn"].(string), "SELECT"))
		}, nil, exitUsage, []string{"manifest", "INSERT command denied", "deploy/sql"}, false},
		{"archive of no table", func(*lab) {}, []string{"archive", "--shard", "nosuch*"}, exitUsage, []string{"--shard", "nosuch*"}, true},
		{"verify of no table", func(*lab) {}, []string{"verify", "--shard", "nosuch*"}, exitUsage, []string{"--shard", "nosuch*"}, true},
		{"purge of no table", func(*lab) {}, []string{"purge", "--shard", "nosuch*"}, exitUsage, []string{"--shard", "nosuch*"}, true},
		{"status of no table", func(*lab) {}, []string{"status", "--shard", "nosuch*"}, exitUsage, []string{"--shard", "nosuch*"}, true},
		{"no bucket", func(l *lab) { l.set("bucket.name", "t-none-such") }, nil, exitUsage, []string{"t-none-such", "bucket"}, false},
		{"bucket unreachable", func(l *lab) { l.set("bucket.endpoint", "http://"+nobody(l.t)) }, nil, exitUsage, []string{"refused"}, false},
		{"bucket denied", func(l *lab) { l.env = append(l.env, "AWS_SECRET_ACCESS_KEY="+secret) }, nil, exitUsage, []string{"denied", "credentials"}, false},
		{"ClickHouse unreachable", func(l *lab) {
			l.set("clickhouse.addrs", []string{nobody(l.t)})
			l.set("clickhouse.password", secret)
		}, nil, exitUsage, []string{"ClickHouse", "refused"}, false},
		{"ClickHouse password", func(l *lab) {
			if l.ch.Protocol == "http" {
				l.t.Skip("this server has no accounts")
			}
			l.set("clickhouse.password", secret)
		}, nil, exitUsage, []string{"ClickHouse", "denies", "clickhouse.password"}, false},
		{"day in the future", func(*lab) {}, []string{"archive", "--day", future}, exitUsage, []string{future, "archive.after"}, true},
		{"day too young", func(*lab) {}, []string{"archive", "--day", young}, exitUsage, []string{young, "archive.after"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.fill("msg_00", 40, 3, 17)
			l.want(0, "migrate")
			home := l.config["manifest"].(map[string]any)["dsn"]
			tt.breakIt(l)
			args := tt.args
			if args == nil {
				args = []string{"archive"}
			}
			o := l.want(tt.code, args...)
			check := out{}
			if !tt.noCheck {
				check = l.want(tt.code, "check")
				if !strings.Contains(check.stdout, "\nerror") {
					t.Errorf("check names no error:\n%s", check.stdout)
				}
			}
			for _, w := range tt.words {
				if w == l2 {
					w = l.db
				}
				if !strings.Contains(strings.ToLower(o.stderr), strings.ToLower(w)) {
					t.Errorf("the error does not name %q:\n%s", w, o.stderr)
				}
			}
			for line := range strings.Lines(o.stderr) {
				if !strings.HasPrefix(line, "coldtier: ") && !strings.HasPrefix(line, "time=") { // or a line of the log
					t.Errorf("line %q", line)
				}
			}
			if all := o.stdout + o.stderr + check.stdout + check.stderr; strings.Contains(all, secret) {
				t.Errorf("the password is in\n%s", all)
			}
			l.set("manifest.dsn", home)
			l.untouched(3)
		})
	}
}

// l2 stands for the lab's database among the words of TestBadInput.
const l2 = "\x00database"

// Days that are cut otherwise than before are refused, by check as well.
func TestChangedZone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 40, 3, 17)
	l.want(0, "migrate")
	l.want(0, "archive")
	l.set("source.timezone", "Asia/Shanghai")
	for _, verb := range []string{"check", "archive"} {
		if o := l.want(exitRefused, verb); !strings.Contains(o.stdout+o.stderr, "source.timezone or source.snowflake was changed, set it back") {
			t.Errorf("%s: %+v", verb, o)
		}
	}
	l.set("source.timezone", "UTC")
	l.want(0, "check")
}

func TestZeroAndNegativeIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []int64{0, -5} {
		l := newLab(t)
		l.exec("ALTER TABLE msg_00 MODIFY msg_id BIGINT NOT NULL")
		l.fill("msg_00", 40, 3, 17)
		l.exec("SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
		l.exec("INSERT INTO msg_00 VALUES (?, 17, 1, 1, 'x', '2026-05-01 00:00:00')", id)
		l.want(0, "migrate")
		for _, verb := range []string{"archive", "check"} {
			if o := l.want(exitRefused, verb); !strings.Contains(o.stdout+o.stderr, "msg_00") {
				t.Errorf("%s with ID %d says %+v", verb, id, o)
			}
		}
		l.untouched(4)
	}
}

// A worker's clock that is off by more than a minute: nothing is done.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 40, 3, 17)
	l.want(0, "migrate")
	env := map[string]string{"WARM_DSN": l.dsn}
	for _, off := range []time.Duration{2 * time.Minute, -2 * time.Minute} {
		now := func() time.Time { return time.Now().Add(off) }
		for _, verb := range []string{"archive", "purge", "verify", "check"} {
			got := inProcess(env, now, "--config", l.file(), verb)
			if got.code != exitRefused || !strings.Contains(got.stdout+got.stderr, "clock") {
				t.Errorf("%s with a clock %s off: %+v", verb, off, got)
			}
		}
	}
	l.untouched(3)
	late := func() time.Time { return time.Now().Add(time.Hour) }
	// Nor for the bucket, for which this process has no credentials.
	if got := inProcess(env, late, "--config", l.file(), "hold", "add", "--conversation", "17", "--reason", "a hold must not wait for clocks"); got.code != exitPartial || !strings.Contains(got.stderr, "it counts") {
		t.Errorf("hold add with a wrong clock: %+v", got)
	}
	if got := inProcess(env, late, "--config", l.file(), "status"); got.code != 0 {
		t.Errorf("status with a wrong clock: %+v", got)
	}
	l.want(0, "hold", "add", "--conversation", "18", "--reason", "this one has a bucket, and puts the other one, too")
	if out := l.want(0, "status"); strings.Contains(out.stdout, "not in the bucket yet") {
		t.Errorf("a hold is not in the bucket: %s", out.stdout)
	}
}

// J3: a slice that another worker holds is left alone; exit code 5.
func TestLeasedByAnother(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 31, 3, 17)
	l.set("purge.lag", "0s")
	l.want(0, "migrate")
	l.want(0, "archive")
	m := stack.OpenMySQL(t, l.config["manifest"].(map[string]any)["dsn"].(string))
	lease(t, m, "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR")
	l.want(exitLeased, "verify")
	l.want(0, "purge", "--dry-run")
	l.want(exitLeased, "purge")
	if l.rows("msg_00") != 3 {
		t.Error("rows of a leased slice were deleted")
	}
	lease(t, m, "UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
	l.want(0, "verify")
	l.want(0, "purge")
}

func lease(t *testing.T, m *sql.DB, until string) {
	t.Helper()
	if _, err := m.Exec("UPDATE slices SET lease_until = " + until + ", lease_owner = 'other/1', lease_token = lease_token + 1"); err != nil {
		t.Fatal(err)
	}
}

// A damaged copy: verify refuses, and the slice is copied again.
func TestVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 31, 3, 17)
	l.want(0, "migrate")
	l.want(0, "archive")
	if err := l.ch.Open(t).Exec(t.Context(), fmt.Sprintf("INSERT INTO %s.messages SELECT * REPLACE ('x' AS content, seq + 1 AS seq) FROM %s.messages", l.ch.Database, l.ch.Database)); err != nil {
		if err := l.ch.Open(t).Exec(t.Context(), fmt.Sprintf("TRUNCATE TABLE %s.messages", l.ch.Database)); err != nil {
			t.Fatal(err)
		}
	}
	o := l.want(exitRefused, "verify")
	if !strings.Contains(o.stdout, "different") {
		t.Errorf("%s", o.stdout)
	}
	l.want(0, "archive")
	l.want(0, "verify")
}

func TestMain_PasswordsComeFromFilesToo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	path := t.TempDir() + "/dsn"
	if err := os.WriteFile(path, []byte(l.dsn+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.warmDSN("${file:" + path + "}")
	l.want(0, "migrate")
	l.want(0, "check")
}
