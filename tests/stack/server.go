package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a real server of one test's own, which may be killed, stopped, frozen
// and brought back with the same data on the same address. It ends with the test.
type Server struct {
	Addr string // host:port

	t     testing.TB
	name  string // of its script in servers/
	state string // folder
	pid   int    // 0 when it does not run

	environ []string // of its script
}

// StartMariaDB starts a MariaDB of the test's own, with more flags of mariadbd if
// need be. It has no database yet.
func StartMariaDB(t testing.TB, flags ...string) *Server {
	t.Helper()
	env(t, "COLDTIER_TEST_MYSQL")
	return start(t, "mariadb", "MARIADB_EXTRA="+strings.Join(flags, " "))
}

// DSN is how to reach a MariaDB, "test:test@tcp(host:port)/", with all rights.
func (s *Server) DSN() string { return "test:test@tcp(" + s.Addr + ")/" }

// StartVersityGW starts an S3 server of the test's own and makes a bucket on it.
func StartVersityGW(t testing.TB) (*Server, S3) {
	t.Helper()
	env(t, "COLDTIER_TEST_S3")
	s := start(t, "versitygw")
	b := S3{Endpoint: "http://" + s.Addr, Region: "us-east-1", Key: "testkey", Secret: "testsecret", Bucket: Unique("t-")}
	b.create(t)
	return s, b
}

// StartClickHouse starts a ClickHouse of the test's own, of the kind that the
// environment names, and makes a database on it.
func StartClickHouse(t testing.TB) (*Server, ClickHouse) {
	t.Helper()
	protocol, _, _ := strings.Cut(env(t, "COLDTIER_TEST_CLICKHOUSE"), "://")
	name := "ch18"
	if protocol == "http" {
		name = "chdbd"
	}
	s := start(t, name)
	c := ClickHouse{Addr: s.Addr, Protocol: protocol, Database: Unique("t_")}
	if err := c.Open(t).Exec(deadline(t), "CREATE DATABASE "+c.Database); err != nil {
		t.Fatalf("create ClickHouse database %s: %v", c.Database, err)
	}
	return s, c
}

// start makes a folder for the server's state: in that of the stack, so that `stack
// down` ends what a killed test binary left behind. Not t.TempDir, whose long names
// break Unix sockets.
func start(t testing.TB, name string, environ ...string) *Server {
	t.Helper()
	state, err := os.MkdirTemp(os.Getenv("COLDTIER_TEST_STACK"), "own-")
	if err != nil {
		t.Fatalf("folder for %s: %v", name, err)
	}
	s := &Server{t: t, name: name, state: state, environ: environ}
	t.Cleanup(func() {
		s.Stop()
		if err := os.RemoveAll(state); err != nil {
			t.Errorf("remove the folder of %s: %v", name, err)
		}
	})
	s.run()
	return s
}

// run calls the server's script, which leaves a server alone that is up.
func (s *Server) run() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // may install and build
	defer cancel()
	line := s.script(ctx, s.name+".sh")
	m := regexp.MustCompile(`^\S+ up (\S+) pid (\d+)$`).FindStringSubmatch(line)
	if m == nil {
		s.t.Fatalf("start %s: its last line is %q", s.name, line)
	}
	s.Addr = m[1]
	s.pid, _ = strconv.Atoi(m[2]) // digits
}

func (s *Server) script(ctx context.Context, args ...string) (lastLine string) {
	s.t.Helper()
	args[0] = filepath.Join(scripts(s.t), args[0])
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(append(os.Environ(), "STATE="+s.state), s.environ...)
	// A file, not a pipe: the server inherits it, and a pipe would keep Wait waiting.
	out, err := os.Create(filepath.Join(s.state, "script.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	c.Stdout, c.Stderr = out, out
	err = c.Run()
	text, _ := os.ReadFile(out.Name())
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", filepath.Base(args[0]), err, text)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// scripts is the folder of the start scripts: found from the working folder, which
// for a test is its package's.
func scripts(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		s := filepath.Join(dir, "tests", "stack", "servers")
		if _, err := os.Stat(filepath.Join(s, "lib.sh")); err == nil {
			return s
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("tests/stack/servers is not above the working folder")
		}
		dir = up
	}
}

// Stop ends the server as an operator would; nothing happens when it does not run.
func (s *Server) Stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.script(ctx, "stop.sh", s.name)
	s.pid = 0
}

// Kill ends the server at once (SIGKILL) and waits until it is gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.signal(syscall.SIGKILL)
	for end := time.Now().Add(10 * time.Second); !errors.Is(syscall.Kill(s.pid, 0), syscall.ESRCH) && !zombie(s.pid); {
		if time.Now().After(end) {
			s.t.Fatalf("%s (pid %d) survives SIGKILL", s.name, s.pid)
		}
		time.Sleep(time.Millisecond)
	}
	s.pid = 0
}

// zombie says that a process has ended and nobody has asked for its status: a
// container without an init process keeps it so.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// Pause freezes the server (SIGSTOP): it keeps its connections and says nothing.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	end := time.Now().Add(10 * time.Second)
	for !s.stopped() {
		if time.Now().After(end) {
			s.t.Fatalf("%s does not stop", s.name)
		}
		time.Sleep(time.Millisecond) // each thread stops on its own, and nobody is told
	}
}

// stopped says whether every thread of the server has stopped.
func (s *Server) stopped() bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.pid))
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // a thread that has ended
		}
		if _, rest, ok := strings.Cut(string(b), ") "); ok && !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true
}

// Continue ends Pause.
func (s *Server) Continue() { s.t.Helper(); s.signal(syscall.SIGCONT) }

// Restart brings the server back after Stop or Kill, with the same data on the same
// address, and does nothing when it runs.
func (s *Server) Restart() { s.t.Helper(); s.run() }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.pid == 0 {
		s.t.Fatalf("%s does not run", s.name)
	}
	if err := syscall.Kill(s.pid, sig); err != nil {
		s.t.Fatalf("signal %s to %s (pid %d): %v", sig, s.name, s.pid, err)
	}
}
