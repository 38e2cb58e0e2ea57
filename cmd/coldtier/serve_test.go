package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/archive/clickhouse"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/rpc"
)

// serving is a server that runs as a process of its own.
type serving struct {
	*started
	url string
	log *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) line(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.WriteString(s + "\n")
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts `coldtier serve` and waits until it is ready. Unless the configuration says
// otherwise it takes a free port, and has a budget in which a page is complete also on a busy
// machine.
func (l *lab) serve(args ...string) *serving {
	l.t.Helper()
	fetch, _ := l.config["fetch"].(map[string]any)
	if fetch == nil {
		fetch = map[string]any{}
		l.config["fetch"] = fetch
	}
	for name, v := range map[string]string{"listen": "127.0.0.1:0", "budget": "20s"} {
		if fetch[name] == nil {
			fetch[name] = v
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	l.t.Cleanup(cancel)
	s := &serving{started: &started{done: make(chan struct{})}, log: &lockedBuffer{}}
	s.cmd = command(ctx, l.t, l.env, append([]string{"--config", l.file(), "serve"}, args...)...)
	s.cmd.Stdout = &s.stdout
	pipe, err := s.cmd.StderrPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		defer close(s.done)
		for sc := bufio.NewScanner(pipe); sc.Scan(); {
			s.log.line(sc.Text())
			if _, at, ok := strings.Cut(sc.Text(), "address="); ok {
				address <- at
			}
		}
		_ = s.cmd.Wait() // the exit code is looked at
	}()
	select {
	case at := <-address:
		s.url = "http://" + at
	case <-s.done:
		l.t.Fatalf("the server ended\n%s", s.log)
	case <-time.After(time.Minute):
		l.t.Fatalf("the server did not begin\n%s", s.log)
	}
	s.until(l.t, "/readyz", http.StatusOK)
	return s
}

// until waits for a status of a path.
func (s *serving) until(t *testing.T, path string, want int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(s.url + path)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == want {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s never says %d: %v\n%s", path, want, err, s.log)
		}
	}
}

func curl(t *testing.T, url, method, body, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url+"/coldtier.v1.ColdHistory/"+method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// The server from start to end, on real stores: the same page as without it, a status
// that takes the body away, the audit log through a rotation, and an end with code 0.
func TestServe(t *testing.T) {
	t.Parallel()
	const conversation, token = "17", "a-token-of-20-characters"
	l := newLab(t)
	l.fill("msg_00", 31, 5, 17)
	l.want(0, "migrate")
	l.want(0, "archive")
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/tokens", []byte(`{"token": "`+token+`", "name": "test"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/token", []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.config["fetch"] = map[string]any{"listen": "127.0.0.1:0", "audit": dir + "/audit", "drain": "10m", "auth": map[string]any{"tokens": dir + "/tokens"}}
	s := l.serve("--log-requests")

	var here, there doc
	l.json(0, &here, "fetch", "--conversation", conversation, "--limit", "3")
	l.json(0, &there, "fetch", "--conversation", conversation, "--limit", "3", "--server", s.url, "--token-file", dir+"/token")
	for _, d := range []doc{here, there} {
		delete(d, "bucket_requests")
		delete(d, "clickhouse_queries")
	}
	if !same(t, here["messages"], there["messages"]) || len(here["messages"].([]any)) != 3 || !reflect.DeepEqual(here, there) {
		t.Errorf("here\n%v\nthere\n%v", here, there)
	}
	if o := l.want(exitUsage, "fetch", "--conversation", conversation, "--server", s.url); !strings.Contains(o.stderr, "unauthenticated") {
		t.Errorf("without a token: %s", o.stderr)
	}

	newest := at(t, there, "messages", 0, "message_id").(string)
	if status, body := curl(t, s.url, "PutStatus", `{"conversation": "17", "message_id": "`+newest+`", "kind": "STATUS_KIND_RECALLED"}`, token); status != 200 {
		t.Fatalf("put: %d %s", status, body)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, body := curl(t, s.url, "FetchRange", `{"conversation": "17", "limit": 1}`, token)
		if strings.Contains(body, `"withheld":["content"]`) && !strings.Contains(body, `"content":{"bytes"`) && strings.Contains(body, "STATUS_KIND_RECALLED") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a recalled message's body is still given: %s", body)
		}
	}
	if o := l.want(0, "fetch", "--conversation", conversation, "--limit", "1", "--server", s.url, "--token-file", dir+"/token"); !strings.Contains(o.stdout, "(recalled)") {
		t.Errorf("%s", o.stdout)
	}
	if status, body := curl(t, s.url, "GetBoundary", `{"conversations": ["17", "none"]}`, token); status != 200 || !strings.Contains(body, `{"conversation":"none","warm_from":`) {
		t.Errorf("%d %s", status, body)
	}

	if err := os.Rename(dir+"/audit", dir+"/audit.1"); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(dir + "/audit"); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("SIGHUP did not open the audit log anew")
		}
	}
	curl(t, s.url, "FetchRange", `{"conversation": "17"}`, token)

	s.signal(t)
	s.until(t, "/readyz", http.StatusServiceUnavailable)
	if status, _ := curl(t, s.url, "FetchRange", `{"conversation": "17"}`, token); status != 200 {
		t.Errorf("while draining: %d", status)
	}
	s.signal(t) // ten minutes are not waited for
	if code := s.wait(t, time.Minute); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
	first, err := os.ReadFile(dir + "/audit.1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(dir + "/audit")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(first), `"who":"test","how":"token"`) || strings.Count(string(second), "\n") != 2 {
		t.Errorf("audit\n%s\nand\n%s", first, second)
	}
	for name, text := range map[string]string{"log": s.log.String(), "audit log": string(first) + string(second), "stdout": s.stdout.String()} {
		if strings.Contains(text, token) || strings.Contains(text, "message 4 of") {
			t.Errorf("a token or a body is in the %s:\n%s", name, text)
		}
	}
	if !strings.Contains(s.log.String(), "msg=request method=FetchRange who=test") {
		t.Errorf("--log-requests logs none:\n%s", s.log)
	}
}

// A server starts and gives complete pages while ClickHouse is away.
func TestServeWithoutClickHouse(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 31, 2, 17)
	l.want(0, "migrate")
	l.want(0, "archive")
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nobody.Close() }() // it takes connections and never answers
	l.set("clickhouse.addrs", []string{nobody.Addr().String()})
	l.config["fetch"] = map[string]any{"listen": "127.0.0.1:0", "drain": "0s", "budget": "20s", "audit": "-"}
	s := l.serve()
	if o := l.want(0, "fetch", "--conversation", "17", "--server", s.url); !strings.Contains(o.stdout, "2 messages, COMPLETE") {
		t.Errorf("%s", o.stdout)
	}
	s.signal(t)
	if code := s.wait(t, time.Minute); code != 0 || !strings.Contains(s.stdout.String(), `"method":"FetchRange"`) {
		t.Errorf("exit code %d\n%s\n%s", code, s.stdout.String(), s.log)
	}
}

// ClickHouse is connected to when it is there, not more often than lateEvery, and nobody
// waits longer for it than they have time.
func TestLateRows(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64
	var now atomic.Int64
	release := make(chan error)
	l := &lateRows{now: func() time.Time { return time.Unix(now.Load(), 0) }, open: func(ctx context.Context) (*clickhouse.DB, error) {
		tries.Add(1)
		select {
		case err := <-release:
			if err != nil {
				return nil, err
			}
			return &clickhouse.DB{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	l.base, l.cancel = context.WithCancel(context.Background())
	gone, cancel := context.WithCancel(context.Background())
	now.Store(100)
	cancel()
	if _, err := l.get(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller without time: %v", err)
	}
	away := errors.New("away")
	release <- away
	for range 10 {
		if _, err := l.get(context.Background()); !errors.Is(err, away) {
			t.Errorf("%v", err)
		}
	}
	if n := tries.Load(); n != 1 {
		t.Errorf("%d attempts within lateEvery", n)
	}
	now.Add(int64(lateEvery / time.Second))
	go func() { release <- nil }()
	if db, err := l.get(context.Background()); db == nil || err != nil || tries.Load() != 2 {
		t.Errorf("%v, %v after %d attempts", db, err, tries.Load())
	}
	// Closing does not wait for an attempt that runs.
	hung := &lateRows{now: time.Now, open: l.open}
	hung.base, hung.cancel = context.WithCancel(context.Background())
	if _, err := hung.get(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := hung.Close(); err != nil {
		t.Error(err)
	}
}

// oneServer serves one page, or an error.
type oneServer struct {
	page *restore.Page
	err  error
	last restore.Query
}

func (o *oneServer) Fetch(_ context.Context, q restore.Query) (*restore.Page, error) {
	o.last = q
	return o.page, o.err
}

func (o *oneServer) Stream(context.Context, restore.Query, func(*restore.Page) error) error {
	return nil
}

func (o *oneServer) Messages(context.Context, restore.MessagesQuery) (*restore.Messages, error) {
	return nil, nil
}

func (o *oneServer) Boundaries(context.Context, [][]byte, time.Duration) ([]restore.Boundary, error) {
	return nil, nil
}

func (o *oneServer) PutStatus(_ context.Context, s manifest.Status) (manifest.Status, error) {
	return s, nil
}

// What a server's page prints is what the same page prints that was read here.
func TestFetchFromServer(t *testing.T) {
	t.Parallel()
	schema, err := message.NewSchema([]message.Column{
		{Name: "id", Kind: message.Uint, Bits: 64}, {Name: "conv", Kind: message.Text}, {Name: "body", Kind: message.Bytes, Nullable: true}, {Name: "note", Kind: message.Text, Nullable: true},
	}, map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Content: "body"})
	if err != nil {
		t.Fatal(err)
	}
	b := message.NewBatch(schema)
	day, err := snowflake.ParseDay("2026-05-01")
	if err != nil {
		t.Fatal(err)
	}
	var rows []restore.Row
	for i, v := range [][][]byte{
		{[]byte("18446744073709551615"), []byte("c"), []byte("plain é"), nil}, {[]byte("5"), []byte("c"), {0, 0xff}, {}}, {[]byte("4"), []byte("c"), nil, []byte("x")},
		{[]byte("3"), []byte("c"), []byte("hidden"), {0xff}}, {[]byte("2"), []byte("c"), {}, {0}},
	} {
		if err := b.Append(v); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, restore.Row{Batch: b, Index: i, Store: []restore.Store{restore.FromBucket, restore.FromClickHouse, restore.FromWarm}[i%3]})
	}
	value := "2"
	rows[3].Status = &manifest.Status{Kind: manifest.StatusRecalled, Value: &value, At: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)}
	lo, hi := uint64(2), uint64(1<<64-1)
	engine := &oneServer{page: &restore.Page{Rows: rows, State: restore.Partial, HasMore: true, HasOlder: true, MinCursor: &lo, MaxCursor: &hi, Next: &lo, Limit: 200, Cut: true, RetryAfter: 250 * time.Millisecond,
		Missing:  []restore.Missing{{Slice: manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "im", Table: "msg"}, Day: day}, MinCursor: 1, MaxCursor: hi, Cause: restore.CauseBudget, Reason: "it was not there in time and is still being read"}},
		Requests: 3, Queries: 1}}
	s, err := rpc.NewServer(context.Background(), rpc.Config{MaxLimit: 200}, rpc.Deps{Reader: engine, Keeper: engine, Ready: func(context.Context) error { return nil },
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	defer h.Close()
	want, err := json.Marshal(localPage(restore.Query{Conversation: []byte("c")}, engine.page))
	if err != nil {
		t.Fatal(err)
	}
	got := inProcess(nil, time.Now, "--output", "json", "fetch", "--conversation", "c", "--server", h.URL+"/", "--limit", "500", "--around", "7", "--tenant", "acme")
	var d struct{ Result json.RawMessage }
	var plain bytes.Buffer
	if err := json.Unmarshal([]byte(got.stdout), &d); err != nil || json.Compact(&plain, d.Result) != nil || got.code != exitPartial {
		t.Fatalf("%+v, %v", got, err)
	}
	if plain.String() != string(want) {
		t.Errorf("the server's\n%s\nread here\n%s", plain.String(), want)
	}
	var local bytes.Buffer
	localPage(restore.Query{Conversation: []byte("c")}, engine.page).text(&local)
	if got := inProcess(nil, time.Now, "fetch", "--conversation", "c", "--server", h.URL); got.stdout != local.String() || strings.Contains(got.stdout, "hidden") || !strings.Contains(got.stdout, "(recalled)") {
		t.Errorf("the server's\n%s\nread here\n%s", got.stdout, local.String())
	}
	show := func(q restore.Query) string {
		return fmt.Sprintf("%s %s %s %s %v %d %s", q.Conversation, decimalText(q.Before), decimalText(q.After), decimalText(q.Around), q.Oldest, q.Limit, q.Tenant)
	}
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"c - - - false 0 ", nil}, {"c 0 - - false 3 acme", []string{"--before", "0", "--limit", "3", "--tenant", "acme"}}, {"c - 18446744073709551615 - false 0 ", []string{"--after", "18446744073709551615"}},
		{"c - - - true 0 ", []string{"--oldest"}}, {"c - - 9 false 0 ", []string{"--around", "9"}},
	} {
		inProcess(nil, time.Now, append([]string{"fetch", "--conversation", "c", "--server", h.URL}, tt.args...)...)
		if got := show(engine.last); got != tt.want {
			t.Errorf("%v became %s, want %s", tt.args, got, tt.want)
		}
	}
	for err, code := range map[error]int{restore.ErrTenant: exitRefused, restore.ErrQuery: exitUsage, errors.New("x"): exitFailed} {
		engine.err = err
		if got := inProcess(nil, time.Now, "fetch", "--conversation", "c", "--server", h.URL); got.code != code {
			t.Errorf("%v: %+v", err, got)
		}
	}
	h.Close()
	if got := inProcess(nil, time.Now, "fetch", "--conversation", "c", "--server", h.URL); got.code != exitUsage {
		t.Errorf("no server: %+v", got)
	}
}

func decimalText(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// A bad command line, and a configuration that would let anybody in, are refused.
func TestServeUsage(t *testing.T) {
	path := tinyConfig(t, "2015-01-01T00:00:00Z", "UTC")
	for _, args := range [][]string{
		{"serve", "x"}, {"fetch", "--conversation", "1", "--server", "history:8080"}, {"fetch", "--conversation", "1", "--server", "http://u:hunter2@h"}, {"fetch", "--conversation", "1", "--server", ""},
		{"fetch", "--conversation", "1", "--token-file", "x"}, {"fetch", "--conversation", "1", "--server", "http://h", "--ca", "x"}, {"fetch", "--conversation", "1", "--server", "https://h", "--cert", "x"},
		{"fetch", "--conversation", "1", "--server", "https://h", "--from", "s3"}, {"fetch", "--conversation", "1", "--oldest", "--before", "1"}, {"fetch", "--conversation", "1", "--limit", "0"},
		{"fetch", "--conversation", "1", "--limit", "4294967297"}, {"fetch", "--conversation", "1", "--server", "https://h", "--token-file", path},
	} {
		got := inProcess(nil, time.Now, append([]string{"--config", path}, args...)...)
		if got.code != exitUsage || got.stdout != "" || strings.Contains(got.stderr, "hunter2") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, "fetch: {listen: ':8080'}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := inProcess(nil, time.Now, "--config", path, "serve"); got.code != exitUsage || !strings.Contains(got.stderr, "fetch.listen: anybody who reaches this address could read all messages") {
		t.Errorf("%+v", got)
	}
}
