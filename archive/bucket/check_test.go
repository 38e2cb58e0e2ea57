package bucket_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/tests/stack"
)

// codes is what Check and Look find: the texts by code.
func codes(t *testing.T, b *bucket.Bucket) map[bucket.Code][]string {
	t.Helper()
	found, err := b.Check(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	all := map[bucket.Code][]string{}
	for _, f := range append(found, b.Look(ctx(t))...) {
		all[f.Code] = append(all[f.Code], f.String())
	}
	return all
}

func says(lines []string, words ...string) bool {
	for _, l := range lines {
		all := true
		for _, w := range words {
			all = all && strings.Contains(l, w)
		}
		if all {
			return true
		}
	}
	return false
}

// Check of a good bucket finds nothing fatal and leaves nothing behind.
func TestCheckOfAGoodBucket(t *testing.T) {
	s := stack.Bucket(t)
	b, _ := open(t, config(s))
	if found, err := b.Check(ctx(t)); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	if found, err := b.CheckReading(ctx(t)); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	if err := b.List(ctx(t), "", func(i bucket.Info) error {
		t.Errorf("%s is left", i.Key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A store that ignores If-None-Match, or whose clock is off, is found out.
func TestCheckTriesTheStore(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	b, _ := open(t, config(s))
	m.after = func(r request, a *http.Response) error {
		if r.Method == http.MethodPut && a.StatusCode == http.StatusPreconditionFailed {
			a.StatusCode, a.ContentLength = http.StatusOK, 0
			a.Header.Set("Content-Length", "0")
			return replace(a, func([]byte) []byte { return nil })
		}
		a.Header.Set("Date", time.Now().Add(5*time.Minute).UTC().Format(http.TimeFormat))
		return nil
	}
	if found := codes(t, b); !says(found[bucket.CodeOverwrites], "If-None-Match") {
		t.Errorf("found %v", found)
	}
	if skew, err := b.Clock(ctx(t)); err != nil || (skew-5*time.Minute).Abs() > 10*time.Second {
		t.Errorf("a clock 5m off is %s off: %v", skew, err)
	}
	m.after = nil
	m.before = func(w http.ResponseWriter, r request) bool {
		if r.has("delete") {
			refuse(w, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	}
	_, err := b.Check(ctx(t))
	is(t, err, bucket.ErrDenied, "delete", "check/probe")
}

// AWS_CA_BUNDLE: the SDK must be able to add it to our client. Without it a private
// authority is refused, at once, with what to do.
func TestCABundle(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, true)
	t.Setenv("AWS_CA_BUNDLE", "")
	b, _ := open(t, config(s))
	err := b.Put(ctx(t), "k", strings.NewReader("x"), 1, bucket.PutOptions{})
	is(t, err, bucket.ErrUnavailable, "AWS_CA_BUNDLE")
	trust(t, m)
	cfg := config(s)
	cfg.MultipartAbove, cfg.PartSize = 6<<20, 5<<20
	b, _ = open(t, cfg)
	put(t, b, "k", "over TLS")
	put(t, b, "parts", strings.Repeat("over TLS", 1<<20))
	if got, err := b.Get(ctx(t), "k"); err != nil || string(got) != "over TLS" {
		t.Errorf("%q, %v", got, err)
	}
	for _, r := range m.requests(method("PUT")) {
		for name := range r.Header {
			if strings.EqualFold(name, "X-Amz-Trailer") { // a body that could not be sent again as it was
				t.Errorf("%s has a trailer", r.URL.Path)
			}
		}
	}
	if err := b.Delete(ctx(t), "k", "parts"); err != nil {
		t.Error(err)
	}
	t.Setenv("AWS_CA_BUNDLE", "/no/such/file")
	if _, err := bucket.Open(ctx(t), cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a missing bundle is no error")
	}
}

// The credentials of the SDK's default chain are used, and asked for when there are none.
func TestDefaultCredentials(t *testing.T) {
	s := stack.Bucket(t)
	cfg := config(s)
	cfg.Credentials, cfg.Region = nil, ""
	for name := range map[string]bool{"AWS_PROFILE": true, "AWS_SESSION_TOKEN": true, "AWS_DEFAULT_REGION": true} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_ACCESS_KEY_ID", s.Key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.Secret)
	// Settings of the environment that would weaken what this package promises.
	t.Setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
	t.Setenv("AWS_MAX_ATTEMPTS", "9")
	if _, err := bucket.Open(ctx(t), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "bucket.region") {
		t.Errorf("no region: %v", err)
	}
	t.Setenv("AWS_REGION", s.Region)
	b, _ := open(t, cfg)
	put(t, b, "k", "x")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	b, _ = open(t, cfg)
	_, err := b.Get(ctx(t), "k")
	is(t, err, bucket.ErrDenied, "credentials", "AWS_ACCESS_KEY_ID")
	// A machine without a role: that there is none is "not found", but of no object.
	answer := http.StatusNotFound
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer) }))
	defer metadata.Close()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
	for _, answer = range []int{http.StatusNotFound, http.StatusForbidden, http.StatusUnauthorized} {
		b, _ = open(t, cfg)
		_, err = b.Get(ctx(t), "k")
		is(t, err, bucket.ErrDenied, "give credentials", "AWS_ACCESS_KEY_ID")
	}
}

func TestConfigIsValidated(t *testing.T) {
	good := bucket.Config{Name: "b", Region: "us-east-1"}
	for name, c := range map[string]struct {
		change func(*bucket.Config)
		says   string
	}{
		"name":          {func(c *bucket.Config) { c.Name = "" }, "bucket.name"},
		"prefix":        {func(c *bucket.Config) { c.Prefix = "a//b" }, "bucket.prefix"},
		"endpoint":      {func(c *bucket.Config) { c.Endpoint = "localhost:9000" }, "bucket.endpoint"},
		"class":         {func(c *bucket.Config) { c.StorageClass = "COLD" }, "bucket.storage_class"},
		"archive class": {func(c *bucket.Config) { c.StorageClass = "DEEP_ARCHIVE" }, "restore"},
		"sse":           {func(c *bucket.Config) { c.SSE = "yes" }, "bucket.sse"},
		"key alone":     {func(c *bucket.Config) { c.KMSKey = "k" }, "bucket.kms_key"},
		"parts":         {func(c *bucket.Config) { c.PartSize = 1 }, "part size"},
		"tries":         {func(c *bucket.Config) { c.Tries = -1 }, "tries"},
	} {
		cfg := good
		c.change(&cfg)
		if _, err := bucket.Open(context.Background(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	for _, prefix := range []string{"", "im", "/im/", "a/b"} {
		cfg := good
		cfg.Prefix, cfg.StorageClass, cfg.SSE, cfg.KMSKey = prefix, "GLACIER_IR", "aws:kms", "k"
		b, err := bucket.Open(context.Background(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("prefix %q: %v", prefix, err)
			continue
		}
		_ = b.Close()
	}
}
