package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/rpc/coldtier/v1/coldtierv1connect"
)

// Reflection and health, by gRPC and HTTP.
func TestReflectionAndHealth(t *testing.T) {
	t.Parallel()
	var fails atomic.Bool
	fails.Store(true)
	r := serve(t, func(_ *Config, d *Deps) {
		d.Ready = func(context.Context) error {
			if fails.Load() {
				return errors.New("no manifest")
			}
			return nil
		}
	})
	ctx := context.Background()
	stream := grpcreflect.NewClient(h2c(t), r.url, connect.WithGRPC()).NewStream(ctx)
	services, err := stream.ListServices()
	if err != nil || !strings.Contains(fmt.Sprint(services), coldtierv1connect.ColdHistoryName) {
		t.Errorf("services %v, %v", services, err)
	}
	if files, err := stream.FileContainingSymbol(coldtierv1connect.ColdHistoryName + ".FetchRange"); err != nil || len(files) == 0 {
		t.Errorf("files %v, %v", files, err)
	}
	if _, err := stream.Close(); err != nil {
		t.Error(err)
	}
	if status, body := r.get("/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %s", status, body)
	}
	if status, body := r.get("/readyz"); status != 503 || body != "the manifest has not answered yet\n" {
		t.Errorf("readyz: %d %s", status, body)
	}
	health := grpchealth.NewClient(h2c(t), r.url, connect.WithGRPC())
	check := func(service string) grpchealth.Status {
		t.Helper()
		resp, err := health.Check(ctx, &grpchealth.CheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status
	}
	if s := check(""); s != grpchealth.StatusNotServing {
		t.Errorf("health before the manifest answered: %s", s)
	}
	watch := health.Watch(ctx, &grpchealth.CheckRequest{Service: coldtierv1connect.ColdHistoryName})
	next := func() grpchealth.Status {
		t.Helper()
		select {
		case e := <-watch:
			if e.Err != nil {
				t.Fatal(e.Err)
			}
			return e.Response.Status
		case <-time.After(time.Minute):
			t.Fatal("no news of health")
			return 0
		}
	}
	if s := next(); s != grpchealth.StatusNotServing {
		t.Errorf("watched: %s", s)
	}
	fails.Store(false)
	if s := next(); s != grpchealth.StatusServing {
		t.Errorf("watched: %s", s)
	}
	if s := check(coldtierv1connect.ColdHistoryName); s != grpchealth.StatusServing {
		t.Errorf("health: %s", s)
	}
	if status, body := r.get("/readyz"); status != 200 {
		t.Errorf("readyz: %d %s", status, body)
	}
	r.stop() // it must not wait for the stream of health
	if s := next(); s != grpchealth.StatusNotServing {
		t.Errorf("watched while draining: %s", s)
	}
}

// A short fault of the manifest does not take a server out, a long one does.
func TestReadiness(t *testing.T) {
	t.Parallel()
	clock := &clock{now: time.Now()}
	var err error
	r := serve(t, nil)
	h := newHealth(func(context.Context) error { return err }, clock.get, r.server.log)
	steps := []struct {
		after time.Duration
		err   error
		want  string
	}{
		{0, errors.New("x"), "the manifest has not answered yet"}, {time.Second, nil, ""}, {30 * time.Second, errors.New("x"), ""}, {29 * time.Second, errors.New("x"), ""},
		{2 * time.Second, errors.New("x"), "the manifest does not answer"}, {0, nil, ""},
	}
	for i, s := range steps {
		clock.add(s.after)
		err = s.err
		h.look(context.Background())
		if got := h.state(); got != s.want {
			t.Errorf("step %d: %q, want %q", i, got, s.want)
		}
	}
	h.drain()
	if got := h.state(); got != "draining" {
		t.Errorf("%q", got)
	}
}

// A server that ends says so first, still answers, and waits for what runs.
func TestDrain(t *testing.T) {
	t.Parallel()
	r := serve(t, func(c *Config, _ *Deps) { c.Drain = time.Hour })
	eventually(t, "ready", func() bool { status, _ := r.get("/readyz"); return status == 200 })
	inside, release := make(chan struct{}, 1), make(chan struct{})
	r.engine.hook = func(context.Context) {
		inside <- struct{}{}
		<-release
	}
	answered := make(chan string, 1)
	go func() {
		resp, err := http.Post(r.url+"/coldtier.v1.ColdHistory/FetchRange", "application/json", strings.NewReader(forC))
		if err != nil {
			answered <- err.Error()
			return
		}
		_ = resp.Body.Close()
		answered <- resp.Status
	}()
	<-inside
	r.stop()
	eventually(t, "not ready", func() bool { status, body := r.get("/readyz"); return status == 503 && body == "draining\n" })
	if status, _ := r.get("/healthz"); status != 200 {
		t.Error("it is not alive while it drains")
	}
	go func() {
		if resp, err := http.Post(r.url+"/coldtier.v1.ColdHistory/FetchRange", "application/json", strings.NewReader(forC)); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-inside // a request that comes while it drains is worked on
	close(r.hurry)
	eventually(t, "no more connections", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	select {
	case err := <-r.ended:
		t.Fatalf("it ended with a request inside: %v", err)
	default:
	}
	close(release)
	if got := <-answered; got != "200 OK" {
		t.Errorf("the request inside was answered %s", got)
	}
	err := <-r.ended
	r.ended <- nil
	if err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A panic is one caller's error; the log has the stack and nothing that the panic quotes.
func TestPanic(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	r.engine.hook = func(context.Context) { panic(secretBody) }
	for range 2 {
		status, body := r.post("FetchRange", forC)
		if status != 500 || jsonOf(t, body)["code"] != "internal" || strings.Contains(body, secretBody) {
			t.Errorf("%d %s", status, body)
		}
	}
	r.engine.hook = func(context.Context) { _ = []int{}[len(os.Args):][1] }
	stream, err := r.client(h2c(t), connect.WithGRPC()).StreamRange(context.Background(), fetchReq("c"))
	if err != nil {
		t.Fatal(err)
	}
	for stream.Receive() {
	}
	codeIs(t, stream.Err(), connect.CodeInternal)
	log := r.log.String()
	if !strings.Contains(log, "server_test.go") || !strings.Contains(log, "a string") || !strings.Contains(log, "out of range") {
		t.Errorf("log: %s", log)
	}
	if n := r.count("coldtier_rpc_panics_total"); n != 3 {
		t.Errorf("%v panics are counted", n)
	}
	eventually(t, "counted as internal", func() bool {
		return r.count("coldtier_rpc_requests_total", "method", "FetchRange", "code", "internal") == 2
	})
	r.engine.hook = nil
	if status, _ := r.post("FetchRange", forC); status != 200 {
		t.Error("it does not serve after a panic")
	}
}

// A client that sends its headers slowly, or too many, is let go.
func TestHTTPLimits(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 2*maxHeader))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%v, %v", resp, err)
	}
	if resp != nil {
		_ = resp.Body.Close()
	}
	if status, _ := r.get("/coldtier.v1.ColdHistory/FetchRange"); status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", status)
	}
	if status, _ := r.get("/else"); status != http.StatusNotFound {
		t.Errorf("another path: %d", status)
	}
}

// An address that others reach is not listened on without callers that are known, nor
// for tokens in the clear.
func TestWhereToListen(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "all")
	dir := t.TempDir()
	files := serverCert(t, a, dir)
	write(t, dir+"/ca.pem", string(a.pem))
	write(t, dir+"/tokens", "")
	mutual := files
	mutual.ClientCA = dir + "/ca.pem"
	everywhere, here := &net.TCPAddr{IP: net.IPv4zero, Port: 1}, &net.TCPAddr{IP: net.IPv6loopback, Port: 1}
	for name, tt := range map[string]struct {
		c    Config
		fits bool
	}{
		"nothing":               {Config{}, false},
		"TLS":                   {Config{TLS: files}, false},
		"mutual TLS":            {Config{TLS: mutual}, true},
		"tokens":                {Config{Auth: Auth{Tokens: dir + "/tokens"}}, false},
		"tokens behind a proxy": {Config{Auth: Auth{Tokens: dir + "/tokens", InsecureTransport: true}}, true},
		"insecure alone":        {Config{Auth: Auth{InsecureTransport: true}}, false},
		"tokens and TLS":        {Config{TLS: files, Auth: Auth{Tokens: dir + "/tokens"}}, true},
	} {
		s, err := NewServer(context.Background(), tt.c, Deps{Now: time.Now, Metrics: prometheus.NewRegistry(), Log: serveLog(t), Ready: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.fit(everywhere); (err == nil) != tt.fits || (err != nil && !errors.Is(err, ErrOpen)) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.fit(here); err != nil {
			t.Errorf("%s, loopback: %v", name, err)
		}
	}
}

// Every label value is there before the first request, and what comes adds none.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	_, before := r.get("/metrics")
	for _, want := range []string{`coldtier_rpc_requests_total{code="permission_denied",method="PutStatus"} 0`, `coldtier_rpc_duration_seconds_count{method="FetchRange",result="pending"} 0`,
		`coldtier_rpc_audit_failures_total 0`, `coldtier_rpc_running{method="StreamRange"} 0`} {
		if !strings.Contains(before, want) {
			t.Errorf("no %s", want)
		}
	}
	r.post("FetchRange", forC)
	r.post("FetchRange", `{`)
	r.post("Nothing", `{}`)
	r.engine.page = &restore.Page{State: restore.Pending}
	r.post("FetchRange", forC)
	r.engine.err = errors.New("x")
	r.post("GetBoundary", `{"conversations": ["c"]}`)
	eventually(t, "all counted", func() bool {
		return r.count("coldtier_rpc_requests_total", "method", "GetBoundary", "code", "internal") == 1
	})
	for _, want := range []struct {
		n      float64
		name   string
		labels []string
	}{
		{2, "coldtier_rpc_requests_total", []string{"method", "FetchRange", "code", "ok"}}, {1, "coldtier_rpc_requests_total", []string{"method", "FetchRange", "code", "malformed"}},
		{1, "coldtier_rpc_duration_seconds", []string{"method", "FetchRange", "result", "complete"}}, {1, "coldtier_rpc_duration_seconds", []string{"method", "FetchRange", "result", "pending"}},
		{1, "coldtier_rpc_duration_seconds", []string{"method", "FetchRange", "result", "error"}}, {1, "coldtier_rpc_messages_total", []string{"method", "FetchRange"}},
		{0, "coldtier_rpc_running", []string{"method", "FetchRange"}},
	} {
		if got := r.count(want.name, want.labels...); got != want.n {
			t.Errorf("%s%v is %v, want %v", want.name, want.labels, got, want.n)
		}
	}
	_, after := r.get("/metrics")
	if a, b := strings.Count(before, "\ncoldtier_"), strings.Count(after, "\ncoldtier_"); a != b {
		t.Errorf("%d series became %d", a, b)
	}
}

// Callers that go away leave nothing behind.
func TestGoneCallers(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	r.engine.hook = func(ctx context.Context) { <-ctx.Done() }
	client := r.client(h2c(t), connect.WithGRPC())
	ctx, cancel := context.WithCancel(context.Background())
	const n = 50
	ended := make(chan error, n)
	for range n {
		go func() {
			_, err := client.FetchRange(ctx, fetchReq("c"))
			ended <- err
		}()
	}
	eventually(t, "all inside", func() bool { return r.count("coldtier_rpc_running", "method", "FetchRange") == n })
	inside := runtime.NumGoroutine()
	cancel()
	for range n {
		codeIs(t, <-ended, connect.CodeCanceled)
	}
	eventually(t, "all gone", func() bool { return r.count("coldtier_rpc_running", "method", "FetchRange") == 0 })
	eventually(t, "goroutines", func() bool { return runtime.NumGoroutine() < inside-n })
}
