package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/tests/stack"
)

// asProgram makes the test's own binary behave as coldtier, so that what the tests
// run is always what was compiled with them, with the race detector if they have it.
const asProgram = "COLDTIER_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// command prepares a run of the program.
func command(ctx context.Context, t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(ctx, self, args...)
	c.Env = append(env[:len(env):len(env)], asProgram+"=1")
	return c
}

// lab is a private corner of real servers and a configuration for it.
type lab struct {
	t      *testing.T
	warm   *sql.DB
	db     string // name of the warm database
	dsn    string
	s3     stack.S3
	ch     stack.ClickHouse
	config map[string]any // by section, as JSON, which YAML is
	env    []string
	layout snowflake.Layout
	now    time.Time
}

const createMessages = `CREATE TABLE %s (msg_id BIGINT UNSIGNED NOT NULL PRIMARY KEY, session_id BIGINT UNSIGNED NOT NULL, seq BIGINT UNSIGNED NOT NULL,
	sender_id BIGINT NOT NULL, content VARBINARY(1000) NULL, create_time DATETIME(3) NOT NULL) ENGINE=InnoDB`

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, s3: stack.Bucket(t), ch: stack.NewClickHouse(t), now: time.Now().UTC(),
		layout: snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}}
	l.dsn = stack.MySQL(t)
	cfg, err := mysql.ParseDSN(l.dsn)
	if err != nil {
		t.Fatal(err)
	}
	l.db = cfg.DBName
	l.warm = stack.OpenMySQL(t, l.dsn)
	l.exec(fmt.Sprintf(createMessages, "msg_00"))
	manifestDSN := stack.MySQL(t)
	l.env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+l.s3.Key, "AWS_SECRET_ACCESS_KEY="+l.s3.Secret, "WARM_DSN="+l.dsn)
	l.config = map[string]any{
		"source": map[string]any{
			"name": "im", "snowflake": map[string]any{"epoch": "2015-01-01T00:00:00Z"},
			"databases": []any{map[string]any{"dsn": "${WARM_DSN}"}}, "tables": []string{"msg_*"},
			"columns": map[string]string{"message_id": "msg_id", "conversation_id": "session_id", "sequence": "seq", "sender_id": "sender_id", "content": "content", "created_at": "create_time"},
		},
		"manifest":   map[string]any{"dsn": manifestDSN},
		"bucket":     map[string]any{"name": l.s3.Bucket, "prefix": "im", "region": l.s3.Region, "endpoint": l.s3.Endpoint, "path_style": true},
		"clickhouse": map[string]any{"addrs": []string{l.ch.Addr}, "protocol": l.ch.Protocol, "database": l.ch.Database},
		"archive":    map[string]any{"after": "30d"},
		"purge":      map[string]any{"lag": "168h"},
	}
	return l
}

func (l *lab) exec(q string, args ...any) {
	l.t.Helper()
	if _, err := l.warm.Exec(q, args...); err != nil {
		l.t.Fatalf("%s: %v", q, err)
	}
}

// set changes a key "section.key" of the configuration.
func (l *lab) set(key string, v any) {
	l.t.Helper()
	section, name, _ := strings.Cut(key, ".")
	l.config[section].(map[string]any)[name] = v
}

// day is the day n days ago.
func (l *lab) day(n int) snowflake.Day { return snowflake.DayAt(l.now, time.UTC).Add(-n) }

// fill puts n messages of a conversation into a table on the day that many days ago.
func (l *lab) fill(table string, daysAgo, n int, conversation uint64) {
	l.t.Helper()
	start := l.day(daysAgo).Start(time.UTC)
	for i := range n {
		at := start.Add(time.Duration(i) * time.Second)
		id, err := l.layout.Lowest(at)
		if err != nil {
			l.t.Fatal(err)
		}
		id += conversation % 4096
		seq := uint64(1_000_000-daysAgo)*1_000 + uint64(i)
		l.exec("INSERT INTO "+table+" VALUES (?, ?, ?, ?, ?, ?)", id, conversation, seq, -7, []byte(fmt.Sprintf("message %d of %s\x00\xff", i, l.day(daysAgo))), at.Format("2006-01-02 15:04:05.000"))
	}
}

// out is what a run of the program gave.
type out struct {
	code           int
	stdout, stderr string
}

func (l *lab) file() string {
	l.t.Helper()
	data, err := json.MarshalIndent(l.config, "", "  ")
	if err != nil {
		l.t.Fatal(err)
	}
	path := filepath.Join(l.t.TempDir(), "coldtier.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		l.t.Fatal(err)
	}
	return path
}

func (l *lab) run(args ...string) out {
	l.t.Helper()
	return runProgram(l.t, l.env, append([]string{"--config", l.file()}, args...)...)
}

func runProgram(t *testing.T, env []string, args ...string) out {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := command(ctx, t, env, args...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", args, err, stderr.String())
	}
	return out{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// want runs the program and insists on its exit code.
func (l *lab) want(code int, args ...string) out {
	l.t.Helper()
	o := l.run(args...)
	if o.code != code {
		l.t.Fatalf("coldtier %v: exit code %d, want %d\n%s\n%s", args, o.code, code, o.stdout, o.stderr)
	}
	return o
}

// json runs the program with --output json and gives its document.
func (l *lab) json(code int, into any, args ...string) {
	l.t.Helper()
	o := l.want(code, append([]string{"--output", "json"}, args...)...)
	doc := struct {
		Command string `json:"command"`
		Code    int    `json:"exit_code"`
		Result  any    `json:"result"`
		Error   any    `json:"error"`
	}{Result: into}
	d := json.NewDecoder(strings.NewReader(o.stdout))
	if err := d.Decode(&doc); err != nil {
		l.t.Fatalf("coldtier %v prints no JSON: %v\n%s", args, err, o.stdout)
	}
	if d.More() {
		l.t.Fatalf("coldtier %v prints more than one document:\n%s", args, o.stdout)
	}
	if doc.Code != code || (doc.Error != nil) != (code != 0) {
		l.t.Fatalf("coldtier %v: document says %d, %v; exit code %d", args, doc.Code, doc.Error, code)
	}
}
