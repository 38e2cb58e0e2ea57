package main

import (
	"bytes"
	"context"
	"database/sql"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/stack"
)

// started is a run of the program that goes on.
type started struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	done           chan struct{}
}

func (l *lab) start(args ...string) *started {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	l.t.Cleanup(cancel)
	s := &started{cmd: command(ctx, l.t, l.env, append([]string{"--config", l.file()}, args...)...), done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.stderr
	if err := s.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // the exit code is looked at
		close(s.done)
	}()
	return s
}

// wait gives the exit code, which must come within limit.
func (s *started) wait(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-s.done:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("not ended after %s\n%s", limit, s.stderr.String())
		return -1
	}
}

func (s *started) signal(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		var yes bool
		if err := db.QueryRow(query).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		if yes {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never true: %s", query)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// slowBucket puts a proxy before the bucket.
func (l *lab) slowBucket() *stack.Proxy {
	p := stack.NewProxy(l.t, strings.TrimPrefix(l.s3.Endpoint, "http://"))
	l.set("bucket.endpoint", "http://"+p.Addr)
	return p
}

// J4: SIGTERM in the middle ends the run within the grace time and says what was
// left; the next run finishes.
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for d := 31; d <= 50; d++ {
		l.fill("msg_00", d, 2, 17)
	}
	l.want(0, "migrate")
	m := stack.OpenMySQL(t, l.config["manifest"].(map[string]any)["dsn"].(string))
	proxy := l.slowBucket()
	proxy.Latency(150 * time.Millisecond)
	s := l.start("--output", "json", "archive")
	eventually(t, m, "SELECT COUNT(*) > 2 FROM slices WHERE state = 'verified'")
	s.signal(t)
	if code := s.wait(t, defaultGrace+5*time.Second); code != exitPartial {
		t.Fatalf("exit code %d\n%s", code, s.stderr.String())
	}
	if !strings.Contains(s.stdout.String(), `"kind": "partial"`) || !strings.Contains(s.stderr.String(), "interrupted by SIG") || !strings.Contains(s.stderr.String(), "left, the first ") {
		t.Errorf("%s", s.stderr.String())
	}
	eventually(t, m, "SELECT outcome = 'partial' FROM runs WHERE job = 'archive'")
	proxy.Heal()
	// A claim whose answer the signal cut off is a lease that nobody knows of; it runs out.
	if _, err := m.Exec("UPDATE slices SET lease_until = UTC_TIMESTAMP(6) WHERE lease_until IS NOT NULL"); err != nil {
		t.Fatal(err)
	}
	l.want(0, "archive")
	var slices, rows int
	if err := m.QueryRow("SELECT COUNT(*), SUM(row_count) FROM slices WHERE state = 'verified'").Scan(&slices, &rows); err != nil || slices != 20 || rows != 40 {
		t.Errorf("%d slices with %d rows are verified, want 20 with 40; %v", slices, rows, err)
	}
}

// A second signal does not wait for anything.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 31, 2, 17)
	l.want(0, "migrate")
	direct := l.config["manifest"].(map[string]any)["dsn"].(string)
	cfg, err := mysql.ParseDSN(direct)
	if err != nil {
		t.Fatal(err)
	}
	m, proxy := stack.OpenMySQL(t, direct), stack.NewProxy(t, cfg.Addr)
	cfg.Addr = proxy.Addr
	l.set("manifest.dsn", cfg.FormatDSN())
	bucket := l.slowBucket()
	bucket.Latency(300 * time.Millisecond)
	s := l.start("archive")
	eventually(t, m, "SELECT COUNT(*) > 0 FROM slices WHERE state = 'copying'")
	proxy.Stall() // so that the end of the run cannot be noted
	s.signal(t)
	time.Sleep(200 * time.Millisecond) // so that the second one is not merged with the first
	select {
	case <-s.done:
		t.Fatal("the first signal ended the process at once")
	default:
	}
	s.signal(t)
	if code := s.wait(t, defaultGrace-10*time.Second); code != exitFailed { // at its end the process would end, too
		t.Errorf("exit code %d\n%s", code, s.stderr.String())
	}
}
