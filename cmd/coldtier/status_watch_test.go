package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/cmd/coldtier/status/statustest"
	"github.com/coldtier/coldtier/tests/stack"
)

// through makes the program reach the manifest by a proxy.
func (l *lab) through() *stack.Proxy {
	l.t.Helper()
	c, err := mysql.ParseDSN(l.config["manifest"].(map[string]any)["dsn"].(string))
	if err != nil {
		l.t.Fatal(err)
	}
	p := stack.NewProxy(l.t, c.Addr)
	c.Addr = p.Addr
	l.set("manifest.dsn", c.FormatDSN())
	return p
}

// shown is what a watch has written so far.
type shown struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shown) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shown) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// until waits until a text is shown after the first n bytes, and gives how many there are then.
func (s *shown) until(t *testing.T, n int, text string) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		all := s.String()
		if strings.Contains(all[n:], text) {
			return len(all)
		}
		if time.Now().After(end) {
			t.Fatalf("%q is never shown; what is:\n%q", text, all[n:])
		}
	}
}

// A watch goes on while the manifest is away, says so and since when, and ends well by
// Ctrl-C: on a terminal by drawing, which it leaves as it was, elsewhere by lines, one for
// each change.
func TestWatch(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 31, 2, 17)
	l.want(0, "migrate")
	direct := l.config["manifest"].(map[string]any)["dsn"]
	proxy := l.through()

	master, slave := openPTY(t, 30, 100)
	drawn, lines := &shown{}, &shown{}
	ended := make(chan error, 2)
	terminal := command(t.Context(), t, append(l.env, "TERM=xterm-256color"), "--config", l.file(), "status", "--watch", "1s")
	terminal.Stdin, terminal.Stdout, terminal.Stderr = slave, slave, slave
	terminal.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	pipe := command(t.Context(), t, l.env, "--config", l.file(), "status", "--watch=1s")
	pipe.Stdout, pipe.Stderr = lines, lines
	if err := errors.Join(terminal.Start(), pipe.Start()); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 64<<10)
		for {
			n, err := master.Read(b)
			_, _ = drawn.Write(b[:n]) // into memory
			if err != nil {
				return // EIO: nobody has the other side any more
			}
		}
	}()
	go func() { ended <- terminal.Wait() }()
	go func() { ended <- pipe.Wait() }()

	at := drawn.until(t, 0, "no slices yet")
	was := lines.until(t, 0, "no slices, 1 to look at\n")
	l.set("manifest.dsn", direct)
	l.want(0, "archive") // it does not go by the proxy
	at, was = drawn.until(t, at, "calendar"), lines.until(t, was, "1 verified, 1 to look at\n")
	proxy.Cut()
	at, was = drawn.until(t, at, "THE MANIFEST DOES NOT ANSWER"), lines.until(t, was, "the manifest does not answer: ")
	at = drawn.until(t, at, "below is what it said ")
	at = drawn.until(t, at, " since 20") // still: the next frame
	proxy.Heal()
	was = lines.until(t, was, "1 verified, 1 to look at\n")
	at = drawn.until(t, at, "\x1b[H\x1b[1msource im")
	// What the terminal sends for Ctrl-C, to the one; a signal to the other.
	if _, err := master.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("it ends with %v\n%s", err, lines)
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
	}
	_ = slave.Close()
	<-read
	out := drawn.String()
	if !strings.HasPrefix(out, "\x1b[?1049h") || !strings.HasSuffix(out, "\x1b[0m\x1b[?25h\x1b[?1049l") || strings.Count(out, "\x1b[?1049") != 2 {
		t.Errorf("the terminal is left as %q … %q", out[:20], out[at:])
	}
	if strings.Count(out, "\x1b[2J") != 1 {
		t.Error("it flickers: the screen is cleared for a frame")
	}
	text := lines.String()
	if strings.Contains(text, "\x1b") || strings.Count(text, "does not answer") != 1 || strings.Count(text, "\n") > 8 {
		t.Errorf("where there is no terminal it says\n%s", text)
	}
	_ = was
}

// A frame is as high as the terminal, and says what it leaves out.
func TestFrame(t *testing.T) {
	t.Parallel()
	text := drawn(statustest.Sample(), statusLook{width: 100})
	for _, height := range []int{2, 10, 24, 1000} {
		f := frame(text, height)
		n := strings.Count(f, "\r\n") + 1
		cut := strings.Contains(f, " more lines: ")
		if want := min(height, strings.Count(text, "\n")); n != want || cut != (n < strings.Count(text, "\n")) {
			t.Errorf("of %d lines %d are drawn on %d, cut: %t", strings.Count(text, "\n"), n, height, cut)
		}
		if strings.Count(f, "\x1b[K") != n || strings.Contains(f, "\x1b[2J") {
			t.Errorf("lines are not cleared at their ends: %q", f)
		}
	}
}

func TestWatchUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"status", "--watch=10ms"}, {"status", "--watch", "often"}, {"status", "2s"}, {"status", "--watch", "2s", "3s"}, {"--output", "json", "status", "--watch"}, {"status", "--watch", "0s"}} {
		if got := inProcess(nil, time.Now, append([]string{"--config", os.DevNull}, args...)...); got.code != exitUsage {
			t.Errorf("%v: %d %s", args, got.code, got.stderr)
		}
	}
}
