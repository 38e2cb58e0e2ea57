package fetch

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore"
)

// counter stands before the bucket and writes down what it is asked.
type counter struct {
	addr  string
	stuck atomic.Value // string: the answer for a key that ends so stops in its middle

	active sync.WaitGroup
	mu     sync.Mutex
	seen   []*request
}

type request struct {
	method, path, bytes string // bytes: the range
	query               url.Values
}

func newCounter(t testing.TB, endpoint string) *counter {
	t.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // it is part of what was signed
	}, ModifyResponse: func(r *http.Response) error {
		if key, ok := c.stuck.Load().(string); ok && key != "" && strings.HasSuffix(r.Request.URL.Path, key) {
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(r.Body, r.ContentLength/2), waiting{r.Request.Context()}), r.Body}
		}
		return nil
	}, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.active.Add(1)
		defer c.active.Done()
		q := &request{method: r.Method, path: r.URL.Path, bytes: r.Header.Get("Range"), query: r.URL.Query()}
		c.mu.Lock()
		c.seen = append(c.seen, q) // before its answer, after which somebody may take
		c.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	c.addr = strings.TrimPrefix(s.URL, "http://")
	return c
}

// waiting is a body that never goes on.
type waiting struct{ ctx context.Context }

func (w waiting) Read([]byte) (int, error) {
	<-w.ctx.Done()
	return 0, context.Cause(w.ctx)
}

// take gives what was asked since the last take, when all of it is answered.
func (c *counter) take() []*request {
	c.active.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	return seen
}

// waves holds reads back until all that are to come have come, or none has for a while,
// and lets them go together. So their number is how many reads followed each other,
// however quick the machine is.
type waves struct {
	restore.Objects
	total int // reads to come

	mu           sync.Mutex
	held, passed int
	opened       int
	gate         chan struct{}
	late         *time.Timer
}

// lull is how long after a read another one of the same wave may come.
const lull = 500 * time.Millisecond

func (w *waves) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	w.mu.Lock()
	if w.held == 0 {
		w.gate = make(chan struct{})
		w.late = time.AfterFunc(lull, w.lullIsOver)
	}
	gate := w.gate
	w.late.Reset(lull)
	if w.held++; w.passed+w.held >= w.total {
		w.open()
	}
	w.mu.Unlock()
	select {
	case <-gate:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return w.Objects.ReadRange(ctx, key, off, n)
}

func (w *waves) lullIsOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held > 0 {
		w.open()
	}
}

func (w *waves) open() {
	w.late.Stop()
	w.passed += w.held
	w.held = 0
	w.opened++
	close(w.gate)
}

// number is how many waves there were.
func (w *waves) number() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened
}

// ranged demands ranged GETs of row groups of one conversation, each once.
func (c *cold) ranged(conversation string, all []*request) error {
	groups := map[string]bool{}
	for _, ref := range c.segments(conversation) {
		for _, g := range ref.File.RowGroups[ref.Span.FirstGroup : ref.Span.LastGroup+1] {
			groups[fmt.Sprintf("/%s/im/%s bytes=%d-%d", c.S3.Bucket, ref.Key, g.Offset, g.Offset+g.Length-1)] = true
		}
	}
	for _, r := range all {
		name := r.path + " " + r.bytes
		if r.method != http.MethodGet || r.query.Has("list-type") || !groups[name] {
			return fmt.Errorf("%s %s?%s: want a GET of a row group that was not read before", r.method, name, r.query.Encode())
		}
		delete(groups, name)
	}
	return nil
}

// countedRows is a ClickHouse whose statements are counted.
type countedRows struct {
	restore.Rows
	n *atomic.Int64
}

func (r countedRows) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	r.n.Add(1)
	return r.Rows.Spans(ctx, spans, s, conversation, limit)
}
