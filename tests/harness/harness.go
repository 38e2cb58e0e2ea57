// Package harness runs the built program against private corners of real servers,
// as its users would, and checks afterwards that no message is lost or doubled.
package harness

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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/stack"
	"github.com/coldtier/coldtier/tests/truth"
)

// program is the built program; Main sets it.
var program string

// Main builds the program and runs the tests of a package.
func Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "coldtier-bin-")
	if err == nil {
		program = filepath.Join(dir, "coldtier")
		err = build(program)
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// Once skips a test with -short, as tests/all runs the second set of servers: it is about
// what does not differ between them, and takes long.
func Once(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it is run on the first set of servers")
	}
}

// Options say what to set up. The zero value is one table of one day.
type Options struct {
	Tables      int  // 1 unless set; msg_content_00, _01, ... in one database
	Partitioned bool // by day
	Days        int
	Messages    int // 400 a day unless set
	Seed        uint64
	Source      chat.Source       // instead of invented chat
	Lag         string            // "0s" unless set
	Strategy    string            // "auto" unless set
	Replica     string            // DSN of a replica of the warm server
	Config      map[string]string // more lines of a section, by its name: "archive": "memory: 64MiB"
	// Through these the program reaches the servers, instead of directly (see stack.Proxy).
	MySQLAddr, S3Endpoint, ClickHouseAddr string
	ManifestAddr                          string // MySQLAddr unless set
}

// First is the day on which invented chat of so many days begins. It ends ten days
// ago, and archive.after is so that its last day is the youngest that is old
// enough, for the whole day of the test.
func First(days int) snowflake.Day { return snowflake.DayAt(time.Now(), time.UTC).Add(-days - 10) }

// Env is a set-up: warm tables with chat in them, a bucket with nothing but the owner
// mark, an empty ClickHouse database and manifest, and a configuration for all.
type Env struct {
	T          testing.TB
	WarmDSN    string
	Warm       *sql.DB
	Tables     []string // "database.table"
	Database   string
	Manifest   string // DSN
	S3         stack.S3
	ClickHouse stack.ClickHouse
	Config     string // path
	Days       []snowflake.Day
	Environ    []string // more of it for the program
	options    Options
	mu         sync.Mutex
	store      *manifest.Store
	storeOf    string // the manifest that store is
}

// New makes a set-up and migrates it. All of it goes at the test's end.
func New(t testing.TB, o Options) *Env {
	t.Helper()
	o.Tables, o.Days = max(o.Tables, 1), max(o.Days, 1)
	if o.Messages == 0 {
		o.Messages = 400 * o.Days
	}
	e := &Env{T: t, WarmDSN: stack.MySQL(t), Manifest: stack.MySQL(t), S3: stack.Bucket(t), ClickHouse: stack.NewClickHouse(t), options: o}
	e.Warm = stack.OpenMySQL(t, e.WarmDSN+"?interpolateParams=true&time_zone=%27%2B00%3A00%27")
	cfg, err := mysql.ParseDSN(e.WarmDSN)
	if err != nil {
		t.Fatal(err)
	}
	e.Database = cfg.DBName
	src := o.Source
	if src == nil {
		g, err := chat.New(chat.Config{Seed: o.Seed, From: First(o.Days), Days: o.Days, Messages: o.Messages})
		if err != nil {
			t.Fatal(err)
		}
		src = g
	}
	e.Days = src.Days()
	var parts []snowflake.Day
	if o.Partitioned {
		parts = e.Days
	}
	var targets []chat.Target
	for i := range o.Tables {
		name := fmt.Sprintf("%s.msg_content_%02d", e.Database, i)
		if err := chat.Create(t.Context(), e.Warm, name, parts); err != nil {
			t.Fatal(err)
		}
		e.Tables = append(e.Tables, name)
		targets = append(targets, chat.Target{DB: e.Warm, Table: name})
	}
	if _, err := chat.Load(t.Context(), src, targets...); err != nil {
		t.Fatal(err)
	}
	e.configure()
	e.Must("migrate")
	return e
}

func (e *Env) configure() {
	e.T.Helper()
	o := e.options
	through := func(dsn, addr string) string {
		c, err := mysql.ParseDSN(dsn)
		if err != nil {
			e.T.Fatal(err)
		}
		if addr != "" {
			c.Addr = addr
		}
		return c.FormatDSN()
	}
	or := func(a, b string) string {
		if a != "" {
			return a
		}
		return b
	}
	more := func(section string) string {
		if line := o.Config[section]; line != "" {
			return "  " + strings.ReplaceAll(strings.TrimSpace(line), "\n", "\n  ") + "\n"
		}
		return ""
	}
	impact := "  max_impact: 0\n" // tests slow each other down
	if strings.Contains(o.Config["archive"], "max_impact") {
		impact = ""
	}
	fetch := more("fetch")
	if fetch != "" {
		fetch = "fetch:\n" + fetch
	}
	text := fmt.Sprintf(`source:
  name: im
  snowflake: {epoch: 2015-01-01T00:00:00Z, time_shift: 22}
  databases:
    - dsn: %q
      replicas: [%s]
  tables: [msg_content_*]
  columns: {message_id: msg_id, conversation_id: session_id, sequence: seq, sender_id: sender_id,
            message_type: msg_type, status: status, content: content, created_at: create_time}
%smanifest:
  dsn: %q
%sbucket:
  name: %s
  prefix: im
  endpoint: %q
  path_style: true
%sclickhouse:
  addrs: [%q]
  protocol: %s
  database: %s
%sarchive:
  after: %s
%spurge:
  lag: %s
  strategy: %s
%s%s`, through(e.WarmDSN, o.MySQLAddr), o.Replica, more("source"), through(e.Manifest, or(o.ManifestAddr, o.MySQLAddr)), more("manifest"), e.S3.Bucket, or(o.S3Endpoint, e.S3.Endpoint), more("bucket"),
		or(o.ClickHouseAddr, e.ClickHouse.Addr), e.ClickHouse.Protocol, e.ClickHouse.Database, more("clickhouse"), e.after(), impact+more("archive"),
		or(o.Lag, "0s"), or(o.Strategy, "auto"), more("purge"), fetch)
	e.Config = filepath.Join(e.T.TempDir(), "coldtier.yaml")
	if err := os.WriteFile(e.Config, []byte(text), 0o600); err != nil {
		e.T.Fatal(err)
	}
}

// after makes the last day of the chat the youngest that is old enough.
func (e *Env) after() time.Duration {
	return time.Since(e.Days[len(e.Days)-1].Next().Start(time.UTC)).Truncate(time.Second) - time.Minute
}

// Change writes the configuration anew with other options of the purge.
func (e *Env) Change(change func(*Options)) {
	e.T.Helper()
	change(&e.options)
	e.configure()
}

// Result is how a command ended.
type Result struct {
	Args   []string
	Exit   int // -1: by a signal
	Stdout string
	Stderr string
}

// String shows all of it.
func (r Result) String() string {
	return fmt.Sprintf("coldtier %s: exit %d\n%s%s", strings.Join(r.Args, " "), r.Exit, r.Stdout, r.Stderr)
}

// Result decodes what a command run with --output json gives as its result.
func (r Result) Result(t testing.TB, into any) {
	t.Helper()
	envelope := struct{ Result any }{into}
	if err := json.Unmarshal([]byte(r.Stdout), &envelope); err != nil {
		t.Fatalf("output is no JSON: %v\n%s", err, r)
	}
}

// output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Process is a command that runs.
type Process struct {
	e      *Env
	cmd    *exec.Cmd
	args   []string
	out    output
	errs   output
	result chan Result
	done   chan struct{}
}

// Start starts a command. environ is added to its environment: crash tests set
// COLDTIER_CRASH_AT or COLDTIER_STOP_AT to "STEP" or "STEP:N", and the program
// kills or stops itself when it is there for the first or N-th time.
func (e *Env) Start(environ []string, args ...string) *Process {
	e.T.Helper()
	p := &Process{e: e, args: args, result: make(chan Result, 1), done: make(chan struct{})}
	p.cmd = exec.Command(program, append([]string{"--config", e.Config}, args...)...)
	p.cmd.Env = append(append(os.Environ(), "AWS_ACCESS_KEY_ID="+e.S3.Key, "AWS_SECRET_ACCESS_KEY="+e.S3.Secret, "AWS_EC2_METADATA_DISABLED=true"), append(e.Environ, environ...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errs
	if err := p.cmd.Start(); err != nil {
		e.T.Fatalf("start coldtier: %v", err)
	}
	go func() {
		_ = p.cmd.Wait() // its exit code says all
		p.result <- Result{args, p.cmd.ProcessState.ExitCode(), p.out.String(), p.errs.String()}
		close(p.done)
	}()
	e.T.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// Done is closed when the command has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stderr is what the command has logged so far.
func (p *Process) Stderr() string { return p.errs.String() }

// Wait waits for the command's end; one that takes longer than two minutes is killed and fails the test.
func (p *Process) Wait() Result {
	p.e.T.Helper()
	select {
	case r := <-p.result:
		return r
	case <-time.After(2 * time.Minute):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its stacks tell where it hangs
		r := <-p.result
		p.e.T.Fatalf("it hangs: %s", r)
		return r
	}
}

// Signal sends a signal to the command.
func (p *Process) Signal(s syscall.Signal) {
	p.e.T.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.e.T.Fatalf("signal %s: %v", s, err)
	}
}

// Stopped waits until the command has stopped itself (SIGSTOP); false when it ended before.
func (p *Process) Stopped() bool {
	p.e.T.Helper()
	end := time.Now().Add(time.Minute)
	for time.Now().Before(end) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return false
		}
		if _, rest, ok := bytes.Cut(stat, []byte(") ")); ok && rest[0] == 'T' {
			return true
		} else if ok && rest[0] == 'Z' {
			return false
		}
		time.Sleep(2 * time.Millisecond) // the kernel tells nobody but a parent that waits, which Start's does for the end
	}
	p.e.T.Fatal("the command neither stopped nor ended within a minute")
	return false
}

// Run runs a command to its end.
func (e *Env) Run(args ...string) Result {
	e.T.Helper()
	return e.Start(nil, args...).Wait()
}

// Must runs a command that has to exit with 0.
func (e *Env) Must(args ...string) Result {
	e.T.Helper()
	r := e.Run(args...)
	if r.Exit != 0 {
		e.T.Fatal(r)
	}
	return r
}

// Expect runs a command that has to exit with a code and to print all of words.
func (e *Env) Expect(exit int, words []string, args ...string) Result {
	e.T.Helper()
	r := e.Run(args...)
	for _, w := range words {
		if !strings.Contains(r.Stdout+r.Stderr, w) {
			e.T.Errorf("the output lacks %q: %s", w, r)
		}
	}
	if r.Exit != exit {
		e.T.Fatalf("exit %d, want %d: %s", r.Exit, exit, r)
	}
	return r
}

// SQL runs a statement in the warm database.
func (e *Env) SQL(query string, args ...any) int64 {
	e.T.Helper()
	r, err := e.Warm.ExecContext(e.T.Context(), query, args...)
	if err != nil {
		e.T.Fatalf("%s: %v", query, err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		e.T.Fatalf("%s: %v", query, err)
	}
	return n
}

// Count is the number of rows in all warm tables.
func (e *Env) Count() (n int) {
	e.T.Helper()
	for _, t := range e.Tables {
		var c int
		if err := e.Warm.QueryRowContext(e.T.Context(), "SELECT COUNT(*) FROM "+t).Scan(&c); err != nil {
			e.T.Fatal(err)
		}
		n += c
	}
	return n
}

// Truth reads what the warm tables hold now.
func (e *Env) Truth() truth.Rows {
	e.T.Helper()
	rows, err := truth.Warm(e.T.Context(), e.Warm, e.Tables...)
	if err != nil {
		e.T.Fatal(err)
	}
	return rows
}

// Store is the manifest, opened once for each database that Manifest names.
func (e *Env) Store() *manifest.Store {
	e.T.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.store != nil && e.storeOf == e.Manifest {
		return e.store
	}
	m, err := truth.Manifest(e.T.Context(), e.Manifest, "im")
	if err != nil {
		e.T.Fatal(err)
	}
	e.T.Cleanup(func() { _ = m.Close() })
	e.store, e.storeOf = m, e.Manifest
	return m
}

// Verdict compares what warm, the bucket and ClickHouse hold with what there should
// be, by code of its own; anything lost, doubled, different or never loaded fails
// the test.
func (e *Env) Verdict(want truth.Rows) *truth.Report {
	e.T.Helper()
	ctx, cancel := context.WithTimeout(e.T.Context(), 2*time.Minute)
	defer cancel()
	m := e.Store()
	cold, err := truth.Bucket(ctx, m, e.S3.Client(), e.S3.Bucket, "im")
	if err != nil {
		e.T.Fatal(err)
	}
	rows, doubled, err := truth.ClickHouse(ctx, m, e.ClickHouse.Open(e.T), e.ClickHouse.Database)
	if err != nil {
		e.T.Fatal(err)
	}
	warm := e.Truth()
	r := truth.Compare(want, warm, cold.Rows)
	if !r.OK() || len(cold.Doubled) > 0 {
		e.T.Errorf("bucket: %s, %d doubled; first lost %v, different %v, phantom %v", r, len(cold.Doubled), head(r.Lost), head(r.Different), head(r.Phantom))
	}
	if c := truth.Compare(want, warm, rows); !c.OK() || len(doubled) > 0 {
		e.T.Errorf("ClickHouse: %s, %d doubled; first lost %v, different %v, phantom %v", c, len(doubled), head(c.Lost), head(c.Different), head(c.Phantom))
	}
	return r
}

func head(k []truth.Key) []truth.Key { return k[:min(len(k), 3)] }
