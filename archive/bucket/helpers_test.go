package bucket_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/tests/stack"
)

// config is a test's bucket, and how the product reaches it.
func config(s stack.S3) bucket.Config {
	return bucket.Config{Name: s.Bucket, Prefix: "im", Region: s.Region, Endpoint: s.Endpoint, PathStyle: true,
		RetryBase: time.Millisecond, Credentials: credentials.NewStaticCredentialsProvider(s.Key, s.Secret, "")}
}

func open(t *testing.T, cfg bucket.Config) (*bucket.Bucket, *logs) {
	t.Helper()
	l := &logs{}
	b, err := bucket.Open(context.Background(), cfg, slog.New(slog.NewTextHandler(l, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, l
}

func ctx(t *testing.T) context.Context { return within(t, time.Minute) }

func within(t *testing.T, d time.Duration) context.Context {
	c, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return c
}

func put(t *testing.T, b *bucket.Bucket, key, body string) {
	t.Helper()
	if err := b.Put(ctx(t), key, strings.NewReader(body), int64(len(body)), bucket.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// is checks an error's kind, that it is none of the other kinds, and its words.
func is(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("error is %v, want %v", err, kind)
		return
	}
	for _, other := range []error{bucket.ErrNotFound, bucket.ErrNoBucket, bucket.ErrDenied, bucket.ErrThrottled, bucket.ErrCorrupt,
		bucket.ErrArchived, bucket.ErrClockSkew, bucket.ErrExists, bucket.ErrUnavailable} {
		if other != kind && errors.Is(err, other) { //nolint:errorlint // sentinels
			t.Errorf("error %q is also %v", err, other)
		}
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q is no one-liner", err)
	}
}

// logs keeps what is logged.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// request is a request that the meddler saw, with its whole body.
type request struct {
	*http.Request
	body []byte
}

// has says whether the query has a name, as S3's sub-resources do.
func (r request) has(name string) bool { return r.URL.Query().Has(name) }

// meddler stands in front of the real store and injects faults at the level of
// HTTP: it sees each request whole, and may answer it, change it, or change or
// lose what the store answers.
type meddler struct {
	*httptest.Server
	mu   sync.Mutex
	seen []request
	// before answers a request itself by returning true.
	before func(w http.ResponseWriter, r request) bool
	// change may change the body that is sent to the store.
	change func(r request) []byte
	// after may change the store's answer; with an error the connection is cut.
	after func(r request, answer *http.Response) error
}

func meddle(t *testing.T, s *stack.S3, tls bool) *meddler {
	t.Helper()
	target, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	m := &meddler{}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		// The Host header stays: it is signed.
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = target.Scheme, target.Host, p.In.Host
		},
		Transport: transport,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // cuts the connection
		},
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		body, err := io.ReadAll(hr.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r := request{hr, body}
		m.mu.Lock()
		m.seen = append(m.seen, request{hr.Clone(context.Background()), body})
		m.mu.Unlock()
		if m.before != nil && m.before(w, r) {
			return
		}
		if m.change != nil {
			body = m.change(r)
		}
		hr.Body = io.NopCloser(bytes.NewReader(body))
		p := *proxy
		if m.after != nil {
			p.ModifyResponse = func(a *http.Response) error { return m.after(r, a) }
		}
		p.ServeHTTP(w, hr)
	})
	m.Server = httptest.NewUnstartedServer(handler)
	m.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if tls {
		m.StartTLS()
	} else {
		m.Start()
	}
	t.Cleanup(m.Close)
	s.Endpoint = m.URL
	return m
}

// requests are those seen so far that match.
func (m *meddler) requests(match func(request) bool) (found []request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.seen {
		if match(r) {
			found = append(found, r)
		}
	}
	return found
}

func method(name string) func(request) bool {
	return func(r request) bool { return r.Method == name }
}

// refuse answers as S3 does.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("X-Amz-Request-Id", "TESTREQUEST")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<?xml version=\"1.0\"?><Error><Code>"+code+"</Code><Message>because</Message></Error>")
}

// replace changes the body of an answer and leaves its headers as they are.
func replace(a *http.Response, f func([]byte) []byte) error {
	data, err := io.ReadAll(a.Body)
	if err != nil {
		return err
	}
	_ = a.Body.Close()
	a.Body = io.NopCloser(bytes.NewReader(f(data)))
	return nil
}

// flip changes the last byte.
func flip(data []byte) []byte {
	data = bytes.Clone(data)
	if len(data) > 0 {
		data[len(data)-1] ^= 1
	}
	return data
}

// first is true for the first n calls.
func first(n int) func() bool {
	var mu sync.Mutex
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		n--
		return n >= 0
	}
}

// trust makes the SDK trust a meddler's certificate, through AWS_CA_BUNDLE.
func trust(t *testing.T, m *meddler) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", file)
}
