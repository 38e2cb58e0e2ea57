package fetch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coldtier/coldtier/restore"
	v1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
	"github.com/coldtier/coldtier/tests/late"
	truths "github.com/coldtier/coldtier/tests/truth"
)

// server is the built program that serves.
type server struct {
	c   *cold
	url string
}

// serve starts a server that reaches the stores by other addresses than the set-up's.
func (c *cold) serve(t *testing.T, by through) *server {
	t.Helper()
	text, err := os.ReadFile(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	my, s3, ch := c.addrs()
	source, rest, ok := strings.Cut(string(text), "\nmanifest:\n")
	if !ok {
		t.Fatalf("the configuration has no manifest:\n%s", text)
	}
	for was, is := range map[string]string{my: by.mysql, s3: by.s3, ch: by.clickhouse} {
		if is != "" {
			rest = strings.ReplaceAll(rest, was, is)
		}
	}
	usual := c.Config
	defer func() { c.Config = usual }()
	c.Config = filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(c.Config, fmt.Appendf(nil, "%s\nmanifest:\n%sfetch:\n  listen: 127.0.0.1:0\n  cache: 16MiB\n  drain: 0s\n", source, rest), 0o600); err != nil {
		t.Fatal(err)
	}
	p := c.Serve()
	s := &server{c: c, url: p.URL}
	t.Cleanup(func() {
		p.Stop()
		if strings.Contains(p.Stderr(), "panic") {
			t.Error(p.Stderr())
		}
	})
	if !until(time.Minute, func() bool { return s.status("/readyz") == http.StatusOK }) {
		t.Fatal("the server is never ready")
	}
	return s
}

func (s *server) status(path string) int {
	r, err := http.Get(s.url + path)
	if err != nil {
		return 0
	}
	_ = r.Body.Close()
	return r.StatusCode
}

// post calls a method in JSON.
func (s *server) post(ctx context.Context, method string, in, out proto.Message) error {
	body, err := protojson.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/coldtier.v1.ColdHistory/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d: %s", method, r.StatusCode, text)
	}
	return protojson.Unmarshal(text, out)
}

// fetch asks the server for a page.
func (s *server) fetch(ctx context.Context, q restore.Query) (restore.State, error) {
	req := &v1.FetchRangeRequest{Conversation: new(string(q.Conversation)), Limit: uint32(q.Limit)}
	switch {
	case q.Before != nil:
		req.Anchor = &v1.FetchRangeRequest_Before{Before: show(q.Before)}
	case q.After != nil:
		req.Anchor = &v1.FetchRangeRequest_After{After: show(q.After)}
	case q.Oldest:
		req.Anchor = &v1.FetchRangeRequest_After{}
	case q.Around != nil:
		req.Anchor = &v1.FetchRangeRequest_AroundMessageId{AroundMessageId: *q.Around}
	}
	if q.Budget > 0 {
		req.Budget = durationpb.New(q.Budget)
	}
	a := &v1.FetchRangeResponse{}
	if err := s.post(ctx, "FetchRange", req, a); err != nil {
		return "", err
	}
	p := page{state: restore.State(strings.TrimPrefix(a.State.String(), "STATE_")), hasMore: a.HasMore, hasOlder: a.HasOlder, limit: int(a.Limit), cut: a.LimitCut, retryAfter: a.RetryAfter.AsDuration()}
	if a.Next != "" {
		n, err := strconv.ParseUint(a.Next, 10, 64)
		if err != nil {
			return p.state, err
		}
		p.next = &n
	}
	for _, m := range a.Messages {
		p.rows = append(p.rows, messageOf(m))
	}
	for _, m := range a.Missing {
		p.missing = append(p.missing, restore.Missing{MinCursor: m.MinCursor, MaxCursor: m.MaxCursor, Cause: restore.Cause(strings.TrimPrefix(m.Cause.String(), "CAUSE_")), Reason: m.Reason})
	}
	return p.state, s.c.truth.checkPage(q, p)
}

func messageOf(m *v1.Message) msg {
	out := msg{id: m.MessageId, seq: m.Cursor}
	for _, name := range truths.Columns {
		switch v := m.Columns[name].GetKind().(type) {
		case *v1.Value_Text:
			out.values = append(out.values, []byte(v.Text))
		case *v1.Value_Bytes:
			out.values = append(out.values, append([]byte{}, v.Bytes...))
		case *v1.Value_Null:
			out.values = append(out.values, nil)
		}
	}
	return out
}

// Whatever the stores do, the served pages are answers with the status 200: in time, without
// a gap, and honest.
func testServed(t *testing.T, c *cold) {
	rng := random(t)
	watch := late.New(t)
	l := newLines(t, c)
	s := c.serve(t, l.through())
	names := c.truth.names()
	f := &faulty{late: watch}
	f.judge(t, s.storm(t, c, rng, names, callers), 0.5)
	for _, fault := range []struct {
		name  string
		begin func() (end func())
		share float64
	}{
		{"both hung", func() func() { l.bucket.Stall(); l.rows.Stall(); return func() {} }, 0},
		{"manifest hung", func() func() { l.manifest.Stall(); return func() {} }, 0},
		{"all resetting", func() func() { return resets(t, rng, l.all()...) }, 0},
	} {
		end := fault.begin()
		all := s.storm(t, c, rng, names, number(t, 40))
		if status := s.status("/healthz"); status != http.StatusOK {
			t.Errorf("%s: /healthz says %d", fault.name, status)
		}
		end()
		for _, p := range l.all() {
			p.Heal()
		}
		t.Log(fault.name)
		f.judge(t, all, fault.share)
		for _, name := range names[:5] {
			if !until(time.Minute, func() bool {
				state, err := s.fetch(t.Context(), restore.Query{Conversation: []byte(name)})
				if err != nil {
					t.Errorf("after %s: %v", fault.name, err)
				}
				return state == restore.Complete
			}) {
				t.Errorf("after %s conversation %s stays incomplete", fault.name, name)
			}
		}
	}
}

// remote is what a call of another process may take beyond its budget.
const remote = 250 * time.Millisecond

// storm calls the server n times, several at once.
func (s *server) storm(t *testing.T, c *cold, rng *rand.Rand, names []string, n int) []answered {
	t.Helper()
	calls := make(chan call, n)
	for range n {
		q := c.truth.ask(rng, names)
		limit := budget
		if rng.IntN(6) == 0 {
			q.Budget = time.Duration(50+rng.IntN(600)) * time.Millisecond
			limit = q.Budget
		}
		calls <- call{text: describe(q), limit: limit + remote, run: func(ctx context.Context) (restore.State, error) { return s.fetch(ctx, q) }}
	}
	close(calls)
	return together(t, calls)
}
