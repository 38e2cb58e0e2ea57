package bucket_test

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/bucket/bucktest"
	"github.com/coldtier/coldtier/tests/stack"
)

// fussy refuses what old stores refuse: checksum headers and trailers, and a
// multi-delete without Content-MD5, which is also right.
func fussy(w http.ResponseWriter, r request) bool {
	for name := range r.Header {
		low := strings.ToLower(name)
		if strings.HasPrefix(low, "x-amz-checksum") || strings.HasPrefix(low, "x-amz-sdk-checksum") || low == "x-amz-trailer" {
			refuse(w, http.StatusNotImplemented, "NotImplemented")
			return true
		}
	}
	if strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") || strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING") {
		refuse(w, http.StatusNotImplemented, "NotImplemented")
		return true
	}
	sum := md5.Sum(r.body)
	want := base64.StdEncoding.EncodeToString(sum[:])
	got := r.Header.Get("Content-Md5")
	if got != "" && got != want || got == "" && (r.has("delete") || r.Method == http.MethodPut) {
		refuse(w, http.StatusBadRequest, "InvalidDigest")
		return true
	}
	return false
}

// S1: stores that refuse today's checksums take everything in compatible mode, over
// http and TLS; without it the refusal says what to set.
func TestCompatibleMode(t *testing.T) {
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", tls), func(t *testing.T) {
			s := stack.Bucket(t)
			m := meddle(t, &s, tls)
			m.before = fussy
			if tls {
				trust(t, m)
			}
			cfg := config(s)
			cfg.MultipartAbove, cfg.PartSize, cfg.Compatible = 6<<20, 5<<20, true
			b, _ := open(t, cfg)
			for _, n := range []int{0, 1000, 7 << 20} {
				data := bucktest.Bytes(n, "compatible")
				if err := b.Put(ctx(t), "k", bytes.NewReader(data), int64(n), bucket.PutOptions{}); err != nil {
					t.Fatal(err)
				}
				if got, err := b.Get(ctx(t), "k"); err != nil || !bytes.Equal(got, data) {
					t.Fatalf("%d bytes come back as %d, %v", n, len(got), err)
				}
			}
			if err := b.Delete(ctx(t), "k", "other"); err != nil {
				t.Fatal(err)
			}
			cfg.Compatible = false
			b, _ = open(t, cfg)
			err := b.Put(ctx(t), "k", strings.NewReader("x"), 1, bucket.PutOptions{})
			if err == nil || !strings.Contains(err.Error(), "bucket.compatible") {
				t.Errorf("without compatible mode: %v", err)
			}
		})
	}
}

// S2: a client with an endpoint of its own sends a checksum, of the content.
func TestChecksumsAreSent(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	cfg := config(s)
	cfg.MultipartAbove, cfg.PartSize = 6<<20, 5<<20
	b, _ := open(t, cfg)
	put(t, b, "k", "content")
	sum := sha256.Sum256([]byte("content"))
	r := m.requests(method("PUT"))
	if len(r) != 1 || r[0].Header.Get("X-Amz-Checksum-Sha256") != base64.StdEncoding.EncodeToString(sum[:]) ||
		r[0].Header.Get("X-Amz-Meta-Sha256") != hex.EncodeToString(sum[:]) {
		t.Errorf("%d puts, headers %v", len(r), r[0].Header)
	}
	data := bucktest.Bytes(11<<20, "parts")
	if err := b.Put(ctx(t), "k", bytes.NewReader(data), int64(len(data)), bucket.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	parts := m.requests(func(r request) bool { return r.has("partNumber") })
	if len(parts) != 3 {
		t.Errorf("%d parts, want 3", len(parts))
	}
	for _, p := range parts {
		if p.Header.Get("X-Amz-Checksum-Crc32c") == "" {
			t.Errorf("a part without a checksum: %v", p.Header)
		}
	}
	if err := b.Delete(ctx(t), "k"); err != nil {
		t.Fatal(err)
	}
	if d := m.requests(func(r request) bool { return r.has("delete") }); len(d) != 1 || d[0].Header.Get("X-Amz-Checksum-Crc32c") == "" {
		t.Errorf("a multi-delete without a checksum: %v", d[0].Header)
	}
}

// A body that is damaged on its way is refused by the store and sent again.
func TestDamagedOnTheWay(t *testing.T) {
	for _, compatible := range []bool{false, true} {
		s := stack.Bucket(t)
		m := meddle(t, &s, false)
		cfg := config(s)
		cfg.Compatible = compatible
		b, _ := open(t, cfg)
		damage := first(1)
		m.change = func(r request) []byte {
			if r.Method == http.MethodPut && damage() {
				return flip(r.body)
			}
			return r.body
		}
		put(t, b, "once", "content")
		if got, err := b.Get(ctx(t), "once"); err != nil || string(got) != "content" {
			t.Errorf("after a damaged try: %q, %v", got, err)
		}
		m.change = func(r request) []byte { return flip(r.body) }
		err := b.Put(ctx(t), "always", strings.NewReader("content"), 7, bucket.PutOptions{})
		is(t, err, bucket.ErrCorrupt, "always", "after 2 tries")
		m.change = nil
		_, err = b.Head(ctx(t), "always")
		is(t, err, bucket.ErrNotFound)
	}
}

// S3: 503, 503, 200 is a success at the third try with the same bytes, whatever
// kind of body; the log names SlowDown.
func TestSlowDownIsRetriedWithTheSameBytes(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	cfg := config(s)
	cfg.MultipartAbove, cfg.PartSize = 6<<20, 5<<20
	retries := 0
	cfg.OnRetry = func() { retries++ }
	for name, n := range map[string]int{"small": 1000, "large": 5 << 20, "parts": 7 << 20} {
		for kind, wrap := range map[string]func(*bytes.Reader) io.ReadSeeker{
			"reader at": func(r *bytes.Reader) io.ReadSeeker { return r },
			"seeker":    func(r *bytes.Reader) io.ReadSeeker { return struct{ io.ReadSeeker }{r} },
		} {
			b, l := open(t, cfg)
			busy := first(2)
			m.before = func(w http.ResponseWriter, r request) bool {
				if r.Method == http.MethodPut && busy() {
					refuse(w, http.StatusServiceUnavailable, "SlowDown")
					return true
				}
				return false
			}
			key, data := name+"/"+kind, bucktest.Bytes(n, name)
			if err := b.Put(ctx(t), key, wrap(bytes.NewReader(data)), int64(n), bucket.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Get(ctx(t), key); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes come back, %v", key, len(got), err)
			}
			tries := m.requests(func(r request) bool {
				return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, key) && !r.has("partNumber")
			})
			if int64(n) <= cfg.MultipartAbove && len(tries) != 3 {
				t.Errorf("%s: %d tries, want 3", key, len(tries))
			}
			for _, r := range tries {
				if !bytes.Equal(r.body, data) {
					t.Errorf("%s: a try sent %d other bytes", key, len(r.body))
				}
			}
			if strings.Count(l.String(), "code=SlowDown") != 2 {
				t.Errorf("%s: the log does not name SlowDown twice: %s", key, l)
			}
		}
	}
	if retries != 3*2*2 {
		t.Errorf("%d retries were told, want two of each of six", retries)
	}
	b, _ := open(t, cfg)
	m.before = func(w http.ResponseWriter, _ request) bool {
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
		return true
	}
	is(t, b.Put(ctx(t), "k", strings.NewReader("x"), 1, bucket.PutOptions{}), bucket.ErrThrottled, "SlowDown", "TESTREQUEST", "after 6 tries")
}

// A put "only if it is not there" whose answer is lost finds its own work at the
// next try. That is a success; somebody else's work is not.
func TestLostAnswerIsToldFromConflict(t *testing.T) {
	for name, change := range map[string]func(*bucket.Config){
		"whole":    func(*bucket.Config) {},
		"in parts": func(c *bucket.Config) { c.MultipartAbove = 4 },
	} {
		t.Run(name, func(t *testing.T) {
			s := stack.Bucket(t)
			m := meddle(t, &s, false)
			cfg := config(s)
			change(&cfg)
			b, _ := open(t, cfg)
			lose, lost := first(1), make(chan bool, 1)
			m.after = func(r request, _ *http.Response) error {
				if writes(r) && lose() {
					lost <- true
					return io.ErrUnexpectedEOF // cuts the connection
				}
				return nil
			}
			o := bucket.PutOptions{IfNoneMatch: true}
			if err := b.Put(ctx(t), "k", strings.NewReader("mine, surely"), 12, o); err != nil {
				t.Fatalf("after a lost answer: %v", err)
			}
			if len(lost) != 1 {
				t.Error("no answer was lost")
			}
			is(t, b.Put(ctx(t), "k", strings.NewReader("yours, truly"), 12, o), bucket.ErrExists, "im/k", "SHA-256")
			is(t, b.Put(ctx(t), "k", strings.NewReader("yours"), 5, o), bucket.ErrExists, "12 bytes")
			if got, err := b.Get(ctx(t), "k"); err != nil || string(got) != "mine, surely" {
				t.Errorf("there is %q, %v", got, err)
			}
			noUploads(t, s)
		})
	}
}

// writes says whether a request makes an object.
func writes(r request) bool {
	return r.Method == http.MethodPut && !r.has("partNumber") || r.Method == http.MethodPost && r.has("uploadId")
}

// A store may close the connection of a conditional put before the refusal is
// read, at every try: what is there decides then too.
func TestConflictThatIsNeverAnswered(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	b, _ := open(t, config(s))
	put(t, b, "k", "mine")
	m.before = func(_ http.ResponseWriter, r request) bool {
		if r.Method == http.MethodPut {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	o := bucket.PutOptions{IfNoneMatch: true}
	if err := b.Put(ctx(t), "k", strings.NewReader("mine"), 4, o); err != nil {
		t.Errorf("the same bytes: %v", err)
	}
	is(t, b.Put(ctx(t), "k", strings.NewReader("yours"), 5, o), bucket.ErrExists)
	is(t, b.Put(ctx(t), "new", strings.NewReader("yours"), 5, o), bucket.ErrUnavailable)
}

// An object that another program put has no SHA-256: its bytes are compared.
func TestConflictWithForeignObject(t *testing.T) {
	s := stack.Bucket(t)
	if _, err := s.Client().PutObject(ctx(t), &s3.PutObjectInput{Bucket: &s.Bucket, Key: aws.String("im/k"), Body: strings.NewReader("abc")}); err != nil {
		t.Fatal(err)
	}
	b, _ := open(t, config(s))
	o := bucket.PutOptions{IfNoneMatch: true}
	if err := b.Put(ctx(t), "k", strings.NewReader("abc"), 3, o); err != nil {
		t.Errorf("the same bytes: %v", err)
	}
	is(t, b.Put(ctx(t), "k", strings.NewReader("abd"), 3, o), bucket.ErrExists)
}

// Of several writers of large, different bodies exactly one wins, and what is
// there is the winner's. (A store may cut the losers' connections.)
func TestRaceOfConditionalPuts(t *testing.T) {
	for _, above := range []int64{32 << 20, 1 << 20} {
		s := stack.Bucket(t)
		cfg := config(s)
		cfg.MultipartAbove = above
		b, _ := open(t, cfg)
		const n = 6
		errs := make(chan error, n)
		winner := make(chan int, n)
		for i := range n {
			go func() {
				data := bucktest.Bytes(2<<20, fmt.Sprint(i))
				err := b.Put(ctx(t), "k", bytes.NewReader(data), int64(len(data)), bucket.PutOptions{IfNoneMatch: true})
				if err == nil {
					winner <- i
				}
				errs <- err
			}()
		}
		for range n {
			if err := <-errs; err != nil {
				is(t, err, bucket.ErrExists)
			}
		}
		if len(winner) != 1 {
			t.Fatalf("%d winners", len(winner))
		}
		if got, err := b.Get(ctx(t), "k"); err != nil || !bytes.Equal(got, bucktest.Bytes(2<<20, fmt.Sprint(<-winner))) {
			t.Errorf("what is there is not the winner's: %v", err)
		}
		noUploads(t, s)
	}
}

// 409 ConditionalRequestConflict is another writer at work, not its success.
func TestConditionalConflictIsTriedAgain(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	b, _ := open(t, config(s))
	busy := first(2)
	m.before = func(w http.ResponseWriter, r request) bool {
		if r.Method == http.MethodPut && busy() {
			refuse(w, http.StatusConflict, "ConditionalRequestConflict")
			return true
		}
		return false
	}
	if err := b.Put(ctx(t), "k", strings.NewReader("x"), 1, bucket.PutOptions{IfNoneMatch: true}); err != nil {
		t.Error(err)
	}
}

// Class and encryption are asked for, with either kind of upload.
func TestClassAndEncryptionAreSent(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	m.before = func(w http.ResponseWriter, r request) bool { // versitygw may not know them
		if r.Method == http.MethodPut || r.has("uploads") {
			refuse(w, http.StatusBadRequest, "InvalidRequest")
			return true
		}
		return false
	}
	cfg := config(s)
	cfg.StorageClass, cfg.SSE, cfg.KMSKey, cfg.MultipartAbove = "GLACIER_IR", "aws:kms", "alias/k", 4
	b, _ := open(t, cfg)
	for _, body := range []string{"abc", "abcdef"} {
		if err := b.Put(ctx(t), "k", strings.NewReader(body), int64(len(body)), bucket.PutOptions{ContentType: "a/b"}); err == nil {
			t.Error("a refused put is a success")
		}
	}
	r := m.requests(func(r request) bool { return true })
	if len(r) != 2 || r[1].Method != http.MethodPost {
		t.Fatalf("%d requests", len(r))
	}
	for _, r := range r {
		for name, want := range map[string]string{"X-Amz-Storage-Class": "GLACIER_IR", "X-Amz-Server-Side-Encryption": "aws:kms",
			"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "alias/k", "Content-Type": "a/b"} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", r.Method, name, got, want)
			}
		}
	}
}

// fickle is a body whose reads after the first n bytes go wrong.
type fickle struct {
	*bytes.Reader
	n    int64
	read func(p []byte) (int, error)
}

func (f *fickle) ReadAt(p []byte, off int64) (int, error) {
	if f.n <= 0 {
		return f.read(p)
	}
	n, err := f.Reader.ReadAt(p, off)
	f.n -= int64(n)
	return n, err
}

// A body that fails while it is sent is the caller's trouble, not the store's: no
// other try. One that changes after it was hashed is refused by the store.
func TestBodyGoesWrongOnTheWay(t *testing.T) {
	s := stack.Bucket(t)
	b, _ := open(t, config(s))
	data := bucktest.Bytes(1<<20, "fickle")
	disk := fmt.Errorf("disk on fire")
	err := b.Put(ctx(t), "k", &fickle{bytes.NewReader(data), 1 << 20, func([]byte) (int, error) { return 0, disk }}, 1<<20, bucket.PutOptions{})
	is(t, err, disk, "im/k")
	if strings.Contains(err.Error(), "tries") {
		t.Errorf("it was tried again: %v", err)
	}
	err = b.Put(ctx(t), "k", &fickle{bytes.NewReader(data), 1 << 20, func(p []byte) (int, error) { return len(p), nil }}, 1<<20, bucket.PutOptions{})
	is(t, err, bucket.ErrCorrupt, "im/k")
	_, err = b.Head(ctx(t), "k")
	is(t, err, bucket.ErrNotFound)
}
