package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	v1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
	"github.com/coldtier/coldtier/restore/rpc/coldtier/v1/coldtierv1connect"
)

const secretBody = "body that must stay out of logs"

// fake is an engine that gives what a test sets and keeps what it was asked.
type fake struct {
	mu       sync.Mutex
	queries  []restore.Query
	batches  []restore.MessagesQuery
	asked    [][]byte
	put      []manifest.Status
	deadline time.Time // of the last call's context
	page     *restore.Page
	parts    []*restore.Page
	messages *restore.Messages
	err      error
	hook     func(context.Context)
}

func (f *fake) begin(ctx context.Context) error {
	if f.hook != nil {
		f.hook(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline, _ = ctx.Deadline()
	return f.err
}

func (f *fake) Fetch(ctx context.Context, q restore.Query) (*restore.Page, error) {
	if err := f.begin(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries = append(f.queries, q)
	return f.page, nil
}

func (f *fake) Stream(ctx context.Context, q restore.Query, emit func(*restore.Page) error) error {
	if err := f.begin(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	f.queries = append(f.queries, q)
	f.mu.Unlock()
	for _, p := range f.parts {
		if err := emit(p); err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) Messages(ctx context.Context, q restore.MessagesQuery) (*restore.Messages, error) {
	if err := f.begin(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = append(f.batches, q)
	return f.messages, nil
}

func (f *fake) Boundaries(ctx context.Context, ids [][]byte, _ time.Duration) ([]restore.Boundary, error) {
	if err := f.begin(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, ids...)
	lo, hi := uint64(1), uint64(1<<64-1)
	var all []restore.Boundary
	for i := range ids { // not in the order that was asked
		all = append(all, restore.Boundary{Conversation: ids[len(ids)-1-i], WarmFrom: 1<<63 + uint64(len(ids[len(ids)-1-i])), ColdMin: &lo, ColdMax: &hi})
	}
	return all, nil
}

func (f *fake) PutStatus(ctx context.Context, s manifest.Status) (manifest.Status, error) {
	if err := f.begin(ctx); err != nil {
		return s, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put = append(f.put, s)
	s.At = time.Date(2026, 5, 1, 8, 42, 16, 717e6, time.UTC)
	return s, nil
}

func (f *fake) last(t *testing.T) restore.Query {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queries) == 0 {
		t.Fatal("the engine was not asked")
	}
	return f.queries[len(f.queries)-1]
}

// schema has a column of each kind of value.
func schema(t testing.TB) *message.Schema {
	t.Helper()
	s, err := message.NewSchema([]message.Column{
		{Name: "id", Kind: message.Uint, Bits: 64}, {Name: "conv", Kind: message.Text}, {Name: "seq", Kind: message.Uint, Bits: 64},
		{Name: "body", Kind: message.Text, Nullable: true}, {Name: "raw", Kind: message.Bytes, Nullable: true}, {Name: "state", Kind: message.Int, Bits: 8, Nullable: true},
	}, map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Sequence: "seq", message.Content: "body", message.Status: "state"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func rowsOf(t testing.TB, values ...[][]byte) []restore.Row {
	t.Helper()
	b := message.NewBatch(schema(t))
	var rows []restore.Row
	for i, v := range values {
		if err := b.Append(v); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, restore.Row{Batch: b, Index: i, Store: restore.FromBucket})
	}
	return rows
}

func bs(s string) []byte { return []byte(s) }

// aPage is a complete page of one message with the highest numbers there are.
func aPage(t testing.TB) *restore.Page {
	t.Helper()
	top := uint64(1<<64 - 1)
	return &restore.Page{
		Rows:  rowsOf(t, [][]byte{bs("18446744073709551615"), bs("c"), bs("18446744073709551615"), bs(secretBody), {0, 0xf0}, nil}),
		State: restore.Complete, MinCursor: &top, MaxCursor: &top, Limit: 20,
	}
}

// logs are what the server logged, for several goroutines.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rig is a server that runs.
type rig struct {
	t      testing.TB
	url    string
	engine *fake
	server *Server
	reg    *prometheus.Registry
	log    *logs
	audit  *logs
	stop   context.CancelFunc // as SIGTERM does
	hurry  chan struct{}
	ended  chan error
}

// serve runs a server on a port of its own; change may change what it is made with.
func serve(t testing.TB, change func(*Config, *Deps)) *rig {
	t.Helper()
	r := &rig{t: t, engine: &fake{page: aPage(t)}, reg: prometheus.NewRegistry(), log: &logs{}, audit: &logs{}, hurry: make(chan struct{}), ended: make(chan error, 1)}
	c := Config{MaxLimit: 200, Budget: 800 * time.Millisecond}
	d := Deps{Reader: r.engine, Keeper: r.engine, Ready: func(context.Context) error { return nil }, Audit: NewAudit(r.audit), Metrics: r.reg,
		Log: slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Now: time.Now}
	if change != nil {
		change(&c, &d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	s, err := NewServer(ctx, c, d)
	if err != nil {
		t.Fatal(err)
	}
	r.server = s
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + ln.Addr().String()
	if c.TLS.Cert != "" {
		r.url = "https://" + ln.Addr().String()
	}
	go func() { r.ended <- s.Serve(ctx, ln, r.hurry) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-r.ended:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the server did not end")
		}
		if strings.Contains(r.log.String()+r.audit.String(), secretBody) {
			t.Error("a body is in the logs")
		}
	})
	return r
}

// post sends JSON as curl does.
func (r *rig) post(method, body string, header ...string) (int, string) {
	r.t.Helper()
	return r.postWith(http.DefaultClient, method, body, header...)
}

func (r *rig) postWith(c *http.Client, method, body string, header ...string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, r.url+"/coldtier.v1.ColdHistory/"+method, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (r *rig) get(path string) (int, string) {
	r.t.Helper()
	resp, err := http.Get(r.url + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// h2c speaks HTTP/2 without TLS.
func h2c(t testing.TB) *http.Client {
	t.Helper()
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (r *rig) client(c *http.Client, options ...connect.ClientOption) coldtierv1connect.ColdHistoryClient {
	return coldtierv1connect.NewColdHistoryClient(c, r.url, options...)
}

// count is the value of a metric.
func (r *rig) count(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			ok := true
			for i := 0; i+1 < len(labels); i += 2 {
				ok = ok && have[labels[i]] == labels[i+1]
			}
			if ok {
				return m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()) + m.GetGauge().GetValue()
			}
		}
	}
	r.t.Fatalf("no metric %s %v", name, labels)
	return 0
}

// eventually waits for what another goroutine does right after it answered.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func codeIs(t testing.TB, err error, want connect.Code) {
	t.Helper()
	if connect.CodeOf(err) != want || err == nil {
		t.Errorf("error %v, want code %s", err, want)
	}
}

func str(s string) *string { return &s }

func jsonOf(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func fetchReq(conversation string) *v1.FetchRangeRequest {
	return &v1.FetchRangeRequest{Conversation: &conversation}
}

// lines are the entries of the audit log.
func (r *rig) lines() []map[string]any {
	r.t.Helper()
	var all []map[string]any
	for _, l := range strings.Split(strings.TrimSpace(r.audit.String()), "\n") {
		if l != "" {
			all = append(all, jsonOf(r.t, l))
		}
	}
	return all
}

func show(m map[string]any, keys ...string) string {
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprint(m[k]))
	}
	return strings.Join(out, " ")
}

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) get() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func serveLog(t testing.TB) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(&logs{}, nil))
}
