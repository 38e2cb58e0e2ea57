package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/bucket/bucktest"
	"github.com/coldtier/coldtier/tests/late"
	"github.com/coldtier/coldtier/tests/stack"
)

// S2: a GET that is answered with other bytes than its checksum says is an error,
// also where only the store's checksum can tell: the object is not ours.
func TestDamagedAnswers(t *testing.T) {
	s := stack.Bucket(t)
	if _, err := s.Client().PutObject(ctx(t), &s3.PutObjectInput{Bucket: &s.Bucket, Key: aws.String("im/foreign"), Body: strings.NewReader("content"),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32}); err != nil {
		t.Fatal(err)
	}
	m := meddle(t, &s, false)
	b, _ := open(t, config(s))
	put(t, b, "ours", "content")
	reads := map[string]func(key string) ([]byte, error){
		"get":         func(key string) ([]byte, error) { return b.Get(ctx(t), key) },
		"whole range": func(key string) ([]byte, error) { return b.ReadRange(ctx(t), key, 0, 7) },
	}
	for name, read := range reads {
		for _, key := range []string{"ours", "foreign"} {
			if key == "foreign" && name != "get" {
				continue // the store gives no checksum with a range
			}
			damage := first(1)
			m.after = func(_ request, a *http.Response) error {
				if damage() {
					return replace(a, flip)
				}
				return nil
			}
			if got, err := read(key); err != nil || string(got) != "content" {
				t.Errorf("%s %s, damaged once: %q, %v", name, key, got, err)
			}
			m.after = func(_ request, a *http.Response) error { return replace(a, flip) }
			got, err := read(key)
			is(t, err, bucket.ErrCorrupt, "im/"+key)
			if got != nil {
				t.Errorf("%s %s: damaged bytes are returned", name, key)
			}
		}
	}
}

// A ranged read takes only 206 with the very range and all its bytes.
func TestRangedReadInsists(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	b, _ := open(t, config(s))
	data := bucktest.Bytes(10_000, "range")
	put(t, b, "k", string(data))
	answer := func(status int, contentRange string, body []byte, length int) func(http.ResponseWriter, request) bool {
		return func(w http.ResponseWriter, _ request) bool {
			if contentRange != "" {
				w.Header().Set("Content-Range", contentRange)
			}
			if length >= 0 {
				w.Header().Set("Content-Length", fmt.Sprint(length))
			}
			w.WriteHeader(status)
			_, _ = w.Write(body)
			if length < 0 {
				_ = http.NewResponseController(w).Flush() // chunked
			}
			return true
		}
	}
	part := data[100:200]
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, request) bool
		kind   error
	}{
		"good":                  {answer(206, "bytes 100-199/10000", part, 100), nil},
		"good, chunked":         {answer(206, "bytes 100-199/10000", part, -1), nil},
		"whole object":          {answer(200, "", data, 10_000), bucket.ErrCorrupt},
		"200 with the range":    {answer(200, "bytes 100-199/10000", part, 100), bucket.ErrCorrupt},
		"no Content-Range":      {answer(206, "", part, 100), bucket.ErrCorrupt},
		"other range":           {answer(206, "bytes 0-99/10000", part, 100), bucket.ErrCorrupt},
		"longer range":          {answer(206, "bytes 100-200/10000", data[100:201], 101), bucket.ErrCorrupt},
		"shorter range":         {answer(206, "bytes 100-198/10000", data[100:199], 99), bucket.ErrCorrupt},
		"cut by the end":        {answer(206, "bytes 100-149/150", data[100:150], 50), bucket.ErrCorrupt},
		"unknown total":         {answer(206, "bytes 100-199/*", part, 100), bucket.ErrCorrupt},
		"words":                 {answer(206, "bytes 100-199/10000 or so", part, 100), bucket.ErrCorrupt},
		"length differs":        {answer(206, "bytes 100-199/10000", part[:50], 50), bucket.ErrCorrupt},
		"chunked and short":     {answer(206, "bytes 100-199/10000", part[:99], -1), bucket.ErrCorrupt},
		"chunked and long":      {answer(206, "bytes 100-199/10000", data[100:300], -1), bucket.ErrCorrupt},
		"broken off":            {answer(206, "bytes 100-199/10000", part[:50], 100), bucket.ErrUnavailable},
		"a huge range, no body": {answer(206, "bytes 0-9223372036854775806/9223372036854775807", nil, -1), bucket.ErrCorrupt},
	} {
		m.before = c.answer
		got, err := b.ReadRange(ctx(t), "k", 100, 100)
		if c.kind == nil {
			if err != nil || !bytes.Equal(got, part) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
			continue
		}
		if !errors.Is(err, c.kind) || got != nil {
			t.Errorf("%s: %d bytes, %v; want %v", name, len(got), err, c.kind)
		}
	}
	// However much is asked for, memory is taken only for what comes.
	m.before = answer(206, "bytes 0-4611686018427387903/4611686018427387904", nil, -1)
	if _, err := b.ReadRange(ctx(t), "k", 0, 1<<62); !errors.Is(err, bucket.ErrCorrupt) {
		t.Errorf("a range of 4 EiB without a body: %v", err)
	}
}

// A body that breaks off is read again.
func TestBrokenBodyIsReadAgain(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	b, l := open(t, config(s))
	put(t, b, "k", "0123456789")
	for _, read := range []func() ([]byte, error){
		func() ([]byte, error) { return b.Get(ctx(t), "k") },
		func() ([]byte, error) { return b.ReadRange(ctx(t), "k", 0, 10) },
	} {
		breaks := first(2)
		m.after = func(_ request, a *http.Response) error {
			if breaks() {
				return replace(a, func(b []byte) []byte { return b[:5] })
			}
			return nil
		}
		if got, err := read(); err != nil || string(got) != "0123456789" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if !strings.Contains(l.String(), "broken off") {
		t.Errorf("log: %s", l)
	}
}

// S4: a call ends with its deadline, whether headers or a body stall, for reads
// and for writes.
func TestStallsEndAtTheDeadline(t *testing.T) {
	data := string(bucktest.Bytes(1<<20, "stall"))
	release := make(chan struct{})
	defer close(release) // before the servers end
	stalls := map[string]func(w http.ResponseWriter, r request) bool{
		"headers": func(http.ResponseWriter, request) bool { <-release; return true },
		"body": func(w http.ResponseWriter, r request) bool {
			if r.Method == http.MethodGet {
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(data)-1, len(data)))
				if r.Header.Get("Range") != "" {
					w.WriteHeader(http.StatusPartialContent)
				}
				_, _ = w.Write([]byte(data[:1000]))
				_ = http.NewResponseController(w).Flush()
			}
			<-release
			return true
		},
	}
	watch := late.New(t)
	for what, stall := range stalls {
		s := stack.Bucket(t)
		m := meddle(t, &s, false)
		m.before = stall
		b, _ := open(t, config(s))
		for name, call := range map[string]func(context.Context) error{
			"range": func(c context.Context) error { _, err := b.ReadRange(c, "k", 0, 1<<20); return err },
			"get":   func(c context.Context) error { _, err := b.Get(c, "k"); return err },
			"head":  func(c context.Context) error { _, err := b.Head(c, "k"); return err },
			"put": func(c context.Context) error {
				return b.Put(c, "k", strings.NewReader(data), 1<<20, bucket.PutOptions{})
			},
			"list":   func(c context.Context) error { return b.List(c, "", func(bucket.Info) error { return nil }) },
			"delete": func(c context.Context) error { return b.Delete(c, "k") },
		} {
			const budget = 200 * time.Millisecond
			c, cancel := context.WithTimeout(context.Background(), budget)
			start := late.Now()
			err := call(c)
			took, ours := time.Since(start.Time), watch.Since(start)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s, stalled %s: %v", name, what, err)
			}
			if ours > budget+150*time.Millisecond || took < budget-50*time.Millisecond {
				t.Errorf("%s, stalled %s: took %s of %s, less the machine's share %s", name, what, took, budget, ours)
			}
		}
	}
}

// S4: no try begins that the deadline would cut off; the answer comes at once and
// says what the trouble is.
func TestRetriesStayInsideTheDeadline(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	cfg := config(s)
	cfg.RetryBase = time.Hour
	b, _ := open(t, cfg)
	m.before = func(w http.ResponseWriter, _ request) bool { refuse(w, 503, "SlowDown"); return true }
	watch, start := late.New(t), late.Now()
	_, err := b.ReadRange(within(t, 2*time.Second), "k", 0, 1) // less than the shortest wait
	is(t, err, bucket.ErrThrottled, "no time for another try")
	if took := watch.Since(start); took > time.Second {
		t.Errorf("it took %s", took)
	}
	if n := len(m.requests(method("GET"))); n != 1 {
		t.Errorf("%d tries", n)
	}
	// A wait is ended by a cancelled context.
	cause := errors.New("the lease was lost")
	c, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
	_, err = b.ReadRange(c, "k", 0, 1)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || !strings.Contains(err.Error(), "SlowDown") {
		t.Errorf("cancelled in a wait: %v", err)
	}
}

// Without a deadline a connection on which nothing moves is given up and the try
// repeated; one that is slow but moves is not.
func TestStalledConnectionIsGivenUp(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	cfg := config(s)
	cfg.StallTimeout = time.Second // far above what a busy store and a late machine take between two bytes
	b, l := open(t, cfg)
	put(t, b, "k", "0123456789")
	release := make(chan struct{})
	defer close(release) // before the servers end
	stalls := first(1)
	m.before = func(http.ResponseWriter, request) bool {
		if stalls() {
			<-release
			return true
		}
		return false
	}
	c, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.AfterFunc(30*time.Second, cancel) // an end for a broken product
	if got, err := b.Get(c, "k"); err != nil || string(got) != "0123456789" {
		t.Errorf("%q, %v", got, err)
	}
	if !strings.Contains(l.String(), "code=stalled") {
		t.Errorf("log: %s", l)
	}
	m.before = func(w http.ResponseWriter, r request) bool {
		w.Header().Set("Content-Length", "10")
		for i := range 10 {
			_, _ = fmt.Fprint(w, i)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(cfg.StallTimeout / 8) // all of it takes longer than a stall may
		}
		return true
	}
	before := len(m.requests(method("GET")))
	if got, err := b.Get(ctx(t), "k"); err != nil || string(got) != "0123456789" || len(m.requests(method("GET"))) != before+1 {
		t.Errorf("a slow body: %q, %v", got, err)
	}
}

// S8: a missing object, a missing bucket and a denied one are three outcomes of
// every call.
func TestOutcomesAreTold(t *testing.T) {
	s := stack.Bucket(t)
	good := config(s)
	noBucket := good
	noBucket.Name = stack.Unique("none-")
	badSecret := good
	badSecret.Credentials = credentials.NewStaticCredentialsProvider(s.Key, "wrong", "")
	m := meddle(t, &s, false)
	denied := config(s)
	m.before = func(w http.ResponseWriter, r request) bool { refuse(w, 403, "AccessDenied"); return true }

	for name, c := range map[string]struct {
		cfg  bucket.Config
		kind error
		says string
	}{
		"no bucket":    {noBucket, bucket.ErrNoBucket, "bucket.name"},
		"wrong secret": {badSecret, bucket.ErrDenied, "credentials"},
		"denied":       {denied, bucket.ErrDenied, "s3:PutObject"},
	} {
		b, _ := open(t, c.cfg)
		_, get := b.Get(ctx(t), "k")
		_, read := b.ReadRange(ctx(t), "k", 0, 1)
		_, head := b.Head(ctx(t), "k")
		_, check := b.Check(ctx(t))
		for call, err := range map[string]error{"get": get, "range": read, "head": head, "check": check,
			"list":   b.List(ctx(t), "", func(bucket.Info) error { return nil }),
			"put":    b.Put(ctx(t), "k", strings.NewReader("x"), 1, bucket.PutOptions{IfNoneMatch: true}),
			"delete": b.Delete(ctx(t), "k"),
		} {
			t.Run(name+" "+call, func(t *testing.T) { is(t, err, c.kind, c.says, "s3://"+c.cfg.Name) })
		}
	}
	b, _ := open(t, good)
	_, err := b.Get(ctx(t), "k") // S12: also after a put that said 200
	is(t, err, bucket.ErrNotFound, "s3://"+s.Bucket+"/im/k")
	good.Endpoint = "http://127.0.0.1:1"
	good.Tries = 2
	b, _ = open(t, good)
	_, err = b.Get(ctx(t), "k")
	is(t, err, bucket.ErrUnavailable, "connection refused", "im/k", "bucket.endpoint")
}

// Codes that the real store never gives.
func TestCodesAreTranslated(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	b, _ := open(t, config(s))
	for _, c := range []struct {
		status int
		code   string
		kind   error
		says   string
		tries  int
	}{
		{403, "InvalidObjectState", bucket.ErrArchived, "restore", 1},
		{403, "ExpiredToken", bucket.ErrDenied, "credentials", 1},
		{301, "PermanentRedirect", bucket.ErrNoBucket, "bucket.region", 1},
		{400, "AuthorizationHeaderMalformed", bucket.ErrNoBucket, "bucket.region", 1},
		{400, "KMS.DisabledException", bucket.ErrDenied, "kms_key", 1},
		{416, "InvalidRange", bucket.ErrCorrupt, "shorter", 1},
		{404, "NoSuchKey", bucket.ErrNotFound, "", 1},
		{400, "RequestTimeout", bucket.ErrUnavailable, "RequestTimeout", 6},
		{500, "InternalError", bucket.ErrUnavailable, "status 500", 6},
		{503, "ServiceUnavailable", bucket.ErrUnavailable, "status 503", 6},
		{429, "TooManyRequests", bucket.ErrThrottled, "", 6},
		{503, "SlowDown", bucket.ErrThrottled, "SlowDown", 6},
	} {
		before := len(m.requests(method("GET")))
		m.before = func(w http.ResponseWriter, _ request) bool { refuse(w, c.status, c.code); return true }
		_, err := b.ReadRange(ctx(t), "k", 0, 1)
		is(t, err, c.kind, c.says, "im/k", c.code)
		if n := len(m.requests(method("GET"))) - before; n != c.tries {
			t.Errorf("%s: %d tries, want %d", c.code, n, c.tries)
		}
	}
	// Not S3 at all.
	m.before = func(w http.ResponseWriter, _ request) bool {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("<html>bad gateway"))
		return true
	}
	_, err := b.ReadRange(ctx(t), "k", 0, 1)
	is(t, err, bucket.ErrUnavailable)
	// Its "not found" is none of an object's: a wrong endpoint makes no object missing.
	m.before = func(w http.ResponseWriter, r request) bool { http.NotFound(w, nil); return true }
	_, get := b.Get(ctx(t), "k")
	_, read := b.ReadRange(ctx(t), "k", 0, 1)
	_, head := b.Head(ctx(t), "k")
	for _, err := range []error{get, read, head, b.List(ctx(t), "", func(bucket.Info) error { return nil })} {
		is(t, err, bucket.ErrUnavailable, "bucket.endpoint")
	}
}

// S11: a skewed clock once is tried again, always is an alarm of its own; with
// HEAD too, whose answer has no code.
func TestSkewedClock(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	b, _ := open(t, config(s))
	put(t, b, "k", "x")
	skewed := func(yes func() bool) func(http.ResponseWriter, request) bool {
		return func(w http.ResponseWriter, _ request) bool {
			if !yes() {
				return false
			}
			refuse(w, http.StatusForbidden, "RequestTimeTooSkewed")
			return true
		}
	}
	calls := map[string]func() error{
		"get":    func() error { _, err := b.Get(ctx(t), "k"); return err },
		"head":   func() error { _, err := b.Head(ctx(t), "k"); return err },
		"put":    func() error { return b.Put(ctx(t), "k", strings.NewReader("x"), 1, bucket.PutOptions{}) },
		"list":   func() error { return b.List(ctx(t), "", func(bucket.Info) error { return nil }) },
		"delete": func() error { return b.Delete(ctx(t), "other") },
	}
	for name, call := range calls {
		n := 1
		if name == "head" {
			n = 2 // the HEAD, and the GET that says why
		}
		m.before = skewed(first(n))
		if err := call(); err != nil {
			t.Errorf("%s, skewed once: %v", name, err)
		}
		m.before = skewed(func() bool { return true })
		is(t, call(), bucket.ErrClockSkew, "clock", "NTP")
	}
	if got, err := func() ([]byte, error) { m.before = nil; return b.Get(ctx(t), "k") }(); err != nil || string(got) != "x" {
		t.Errorf("after it all: %q, %v", got, err)
	}
}

// S5: after 1,000 reads, cancelled at all kinds of moments, goroutines and sockets
// are back to where they were.
func TestCancelledReadsLeakNothing(t *testing.T) {
	s := stack.Bucket(t)
	b, _ := open(t, config(s))
	data := string(bucktest.Bytes(256<<10, "leak"))
	put(t, b, "k", data)
	_ = b.Close()
	settle := func(goroutines, sockets int, within time.Duration) (g, f int) {
		for end := time.Now().Add(within); time.Now().Before(end); {
			runtime.GC()
			if g, f = runtime.NumGoroutine(), openSockets(t); g <= goroutines && f <= sockets {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return g, f
	}
	g0, f0 := settle(0, 0, time.Second)
	work := make(chan int)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for i := range work {
				c, cancel := context.WithCancel(context.Background())
				if i%2 == 0 {
					time.AfterFunc(time.Duration(i%40)*100*time.Microsecond, cancel)
				}
				got, err := b.ReadRange(c, "k", 0, 256<<10)
				if err == nil && string(got) != data || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("read %d: %d bytes, %v", i, len(got), err)
				}
				cancel()
			}
		})
	}
	for i := range 1000 {
		work <- i
	}
	close(work)
	wg.Wait()
	_ = b.Close()
	if g, f := settle(g0, f0, 20*time.Second); g > g0 || f > f0 {
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines and %d sockets, before %d and %d\n%s", g, f, g0, f0, buf[:runtime.Stack(buf, true)])
	}
}

func openSockets(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc to count sockets in")
	}
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
