package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
)

func tinyConfig(t *testing.T, epoch, zone string) string {
	t.Helper()
	path := t.TempDir() + "/coldtier.yaml"
	text := fmt.Sprintf(`source: {name: im, timezone: %q, snowflake: {epoch: %q}, databases: [{dsn: "u:p@tcp(127.0.0.1:1)/x"}], tables: [x], columns: {message_id: a, conversation_id: b}}
manifest: {dsn: "u:p@tcp(127.0.0.1:1)/x"}
bucket: {name: cold}
clickhouse: {addrs: ["127.0.0.1:1"]}
`, zone, epoch)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// inProcess runs a command line in this process, with a clock of one's own.
func inProcess(env map[string]string, now func() time.Time, args ...string) out {
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &stdout, stderr: &stderr, now: now, log: slog.New(slog.DiscardHandler), lookup: config.Lookup{
		Env:  func(n string) (string, bool) { s, ok := env[n]; return s, ok },
		File: os.ReadFile,
	}}
	code := a.run(context.Background(), args)
	return out{code, stdout.String(), stderr.String()}
}

func TestID(t *testing.T) {
	path := tinyConfig(t, "2015-01-01T00:00:00Z", "Asia/Shanghai")
	got := inProcess(nil, time.Now, "--config", path, "id", "837851385029464064")
	want := `id        837851385029464064
time      2021-05-01T00:42:16.717Z
          2021-05-01T08:42:16.717+08:00
day       2021-05-01 (Asia/Shanghai), IDs 837719949312000000 to 838082337177599999
machine   1
sequence  0
`
	if got.code != 0 || got.stdout != want || got.stderr != "" {
		t.Errorf("%+v", got)
	}
	// M4: the highest ID stays the same number.
	got = inProcess(nil, time.Now, "--config", path, "--output", "json", "id", "18446744073709551615", "0")
	if got.code != 0 || !strings.Contains(got.stdout, `"id": "18446744073709551615"`) || !strings.Contains(got.stdout, `"machine": 1023`) {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"-1", "18446744073709551616", "x", "1e3", ""} {
		if got := inProcess(nil, time.Now, "--config", path, "id", "--", bad); got.code != exitUsage {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

// Bad command lines are usage errors of one line, in JSON also a document.
func TestUsage(t *testing.T) {
	path := tinyConfig(t, "2015-01-01T00:00:00Z", "UTC")
	for _, args := range [][]string{
		{"frob"}, {"id"}, {"--frob", "status"}, {"status", "extra"}, {"--output", "xml", "status"}, {"--log-format", "xml", "status"},
		{"archive", "--day", "2026-05-01", "--from", "2026-05-01"}, {"archive", "--day", "1. Mai"}, {"archive", "--from", "2026-05-02", "--to", "2026-05-01"},
		{"purge", "--shard", "x["}, {"fetch"}, {"fetch", "--conversation", "1", "--before", "1", "--after", "2"}, {"fetch", "--conversation", "1", "--before", "x"},
		{"hold", "add", "--reason", "x"}, {"hold", "add", "--shard", "a.b", "--reason", "x"}, {"hold", "add", "--conversation", "1"},
		{"hold", "add", "--shard", "a", "--day", "2026-05-01", "--reason", "x"}, {"hold", "add", "--conversation", "1", "--sender", "2", "--reason", "x"},
		{"hold", "add", "--conversation", "1", "--reason", " "}, {"hold", "release"}, {"hold", "release", "x"}, {"hold", "frob"}, {"status", "--runs", "-1"},
		{"hold"}, {"canary"}, {"rebuild"}, {"drill", "--last", "3"}, {"drill", "--trusted-key", "x"}, {"drill", "--history", "--sample", "1"},
		{"restore", "--into", "u:p@tcp(127.0.0.1:1)/x", "--keep-for", "30d"}, {"restore", "--into", "u:p@tcp(127.0.0.1:1)/x", "--into-warm", "--keep-for", "0d"},
	} {
		got := inProcess(nil, time.Now, append([]string{"--config", path}, args...)...)
		if got.code != exitUsage || got.stdout != "" || !strings.HasPrefix(got.stderr, "coldtier: ") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%q: %+v", args, got)
		}
		got = inProcess(nil, time.Now, append([]string{"--config", path, "--output", "json"}, args...)...)
		if args[0] != "--output" && (got.code != exitUsage || !strings.Contains(got.stdout, `"kind": "usage"`) || !strings.Contains(got.stdout, `"exit_code": 2`)) {
			t.Errorf("%q in JSON: %+v", args, got)
		}
	}
}

// A fault of the command line is told in plain words, with the help of its own verb.
func TestUsageIsPlain(t *testing.T) {
	for line, want := range map[string]string{
		"arkive":                               `unknown command "arkive": is archive meant? (see coldtier --help)`,
		"hold relase 3":                        `unknown command "relase": is release meant? (see coldtier hold --help)`,
		"hold":                                 "say what to do: add, release, list (see coldtier hold --help)",
		"archive now":                          `unexpected argument "now" (see coldtier archive --help)`,
		"fetch":                                "--conversation missing (see coldtier fetch --help)",
		"hold add --reason x":                  "--shard or --conversation or --sender missing (see coldtier hold add --help)",
		"hold add --day x":                     "--reason missing (see coldtier hold add --help)",
		"drill --last 3":                       "--last does nothing without --history (see coldtier drill --help)",
		"status --frob":                        "unknown flag: --frob (see coldtier status --help)",
		"restore --keep-for x":                 "--keep-for does nothing without --into-warm (see coldtier restore --help)",
		"hold add --reason x --day 2026-05-01": "--shard and --day belong together: --shard missing (see coldtier hold add --help)",
		"fetch --conversation 1 --after 1 --before 2": "--after and --before exclude each other (see coldtier fetch --help)",
		"archive --day 2026-05-01 --from 2026-05-01":  "--day and --from exclude each other (see coldtier archive --help)",
		"export": "--format missing (see coldtier export --help)",
	} {
		got := inProcess(nil, time.Now, strings.Fields(line)...)
		if got.code != exitUsage || got.stderr != "coldtier: "+want+"\n" {
			t.Errorf("%s: %d\n got %swant coldtier: %s", line, got.code, got.stderr, want)
		}
	}
	got := inProcess(nil, time.Now, "--output", "json", "hold", "add")
	if !strings.Contains(got.stdout, `"command": "hold add"`) {
		t.Errorf("%+v", got)
	}
}

func TestConfigurationErrors(t *testing.T) {
	path := t.TempDir() + "/bad.yaml"
	if err := os.WriteFile(path, []byte("source: {name: im}\ncolour: red\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := inProcess(nil, time.Now, "--config", path, "status")
	if got.code != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, "coldtier: "+path+":2:1: unknown key colour") {
		t.Errorf("%+v", got)
	}
	for line := range strings.Lines(got.stderr) {
		if !strings.HasPrefix(line, "coldtier: "+path+":") {
			t.Errorf("line %q", line)
		}
	}
	if got := inProcess(nil, time.Now, "--config", path+".none", "id", "1"); got.code != exitUsage || !strings.Contains(got.stderr, path+".none: the file does not exist") {
		t.Errorf("%+v", got)
	}
}

// Every verb has help with examples.
func TestHelp(t *testing.T) {
	for _, verb := range []string{"", "migrate", "check", "archive", "verify", "purge", "fetch", "restore", "export", "serve", "scheduler", "status", "hold", "hold add", "hold release", "hold list", "canary", "canary plant", "canary check", "id"} {
		got := inProcess(nil, time.Now, append(strings.Fields(verb), "--help")...)
		if got.code != 0 || !strings.Contains(got.stdout, "Examples:\n  coldtier ") {
			t.Errorf("help of %q: %+v", verb, got)
		}
	}
	for _, verb := range []string{"migrate", "archive", "verify", "purge", "restore", "scheduler", "hold add", "hold release", "canary plant"} {
		if got := inProcess(nil, time.Now, append(strings.Fields(verb), "--help")...); !strings.Contains(got.stdout, "--dry-run") {
			t.Errorf("%s changes something and has no --dry-run", verb)
		}
	}
	if got := inProcess(nil, time.Now, "--version"); got.code != 0 || !strings.HasPrefix(got.stdout, "coldtier ") {
		t.Errorf("%+v", got)
	}
}

// What a message or a server says cannot drive the terminal.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 漢字 😀":        "plain é 漢字 😀",
		"\x1b[31mred\x00\xff": `\u001b[31mred\u0000\xff`,
		"a\nb\tc\r":           `a\nb\tc\u000d`,
		"\u202eevil":          `\u202eevil`,
		"":                    "",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := shortened(strings.Repeat("漢", 100), 10); got != strings.Repeat("漢", 9)+"…" {
		t.Errorf("shortened to %q", got)
	}
}

// J4: the first signal ends the context, the second ends the process at once.
func TestSignals(t *testing.T) {
	for try := 1; !signalled(t); try++ {
		if try == 10 {
			t.Fatal("the machine is never quick enough for an echo")
		}
	}
}

// signalled is false where the machine let so much time pass that an echo of the first signal
// may be taken for a second one.
func signalled(t *testing.T) bool {
	quit := make(chan int, 1)
	ctx, stop := signals(context.Background(), func() time.Duration { return time.Minute }, func(code int) { quit <- code })
	defer stop()
	begun := time.Now()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("the first signal did not end the context")
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) || cause.Error() != "interrupted by SIGTERM" {
		t.Errorf("cause: %v", context.Cause(ctx))
	}
	select {
	case <-quit:
		t.Fatal("the first signal ended the process")
	default:
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil { // at once: the first one's echo
		t.Fatal(err)
	}
	select {
	case <-quit:
		if time.Since(begun) > echo {
			return false
		}
		t.Fatal("the first signal's echo ended the process")
	case <-time.After(2 * echo):
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-quit:
		if code != exitFailed {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(30 * time.Second): // the grace time is a minute
		t.Fatal("the second signal did not end the process")
	}
	return true
}

// Whoever writes a password into an error or a log line, it does not come out.
func TestRedactedOutput(t *testing.T) {
	const password = "hunter2hunter2"
	var stdout, stderr bytes.Buffer
	r := &config.Redactor{}
	r.Add(password)
	for _, format := range []string{"text", "json"} {
		a := &app{stdout: &stdout, stderr: &stderr, now: time.Now, redactor: r, output: format, logFormat: format, log: slog.New(slog.DiscardHandler)}
		if err := a.start(); err != nil {
			t.Fatal(err)
		}
		a.log.Error("connect", "dsn", "u:"+password+"@tcp(h)/d", "error", errors.New("bad "+password))
		a.finish(context.Background(), fmt.Errorf("dial u:%s@tcp(h)/d", password))
	}
	if all := stdout.String() + stderr.String(); strings.Contains(all, password) || strings.Count(all, "***") < 6 {
		t.Errorf("%s", all)
	}
}
