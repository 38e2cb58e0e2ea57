package bucket_test

import (
	"context"
	"io"
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

func findings(t *testing.T, b *bucket.Bucket) (fatal, other []string) {
	t.Helper()
	found, err := b.Check(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Fatal {
			fatal = append(fatal, f.String())
		} else {
			other = append(other, f.String())
		}
	}
	return fatal, other
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
	if fatal, _ := findings(t, b); len(fatal) > 0 {
		t.Errorf("fatal: %q", fatal)
	}
	if err := b.List(ctx(t), "", func(i bucket.Info) error {
		t.Errorf("%s is left", i.Key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// S13: rules that would expire our objects are fatal, those that move them out of
// reach, and small objects that nothing moves, are said. Rules for others are not.
func TestCheckReadsLifecycleRules(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	b, _ := open(t, config(s))
	rules := ""
	m.before = func(w http.ResponseWriter, r request) bool {
		if !r.has("lifecycle") {
			return false
		}
		if rules == "" {
			refuse(w, http.StatusNotFound, "NoSuchLifecycleConfiguration")
			return true
		}
		_, _ = io.WriteString(w, "<LifecycleConfiguration>"+rules+"</LifecycleConfiguration>")
		return true
	}
	rule := func(filter, rest string) string {
		return "<Rule><ID>r</ID><Status>Enabled</Status>" + filter + rest + "</Rule>"
	}
	prefix := func(p string) string { return "<Filter><Prefix>" + p + "</Prefix></Filter>" }
	const expire = "<Expiration><Days>30</Days></Expiration>"
	const abort = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
	move := func(class string) string {
		return "<Transition><Days>30</Days><StorageClass>" + class + "</StorageClass></Transition>"
	}
	for name, c := range map[string]struct {
		rules        string
		fatal, other []string // words of one finding each
	}{
		"none":               {"", nil, []string{"aborts incomplete uploads"}},
		"abort":              {rule(prefix(""), abort), nil, nil},
		"abort elsewhere":    {rule(prefix("other/"), abort), nil, []string{"aborts incomplete uploads"}},
		"expires all":        {rule(prefix(""), expire), []string{"expires objects"}, nil},
		"expires ours":       {rule(prefix("im/"), expire), []string{"expires objects"}, nil},
		"expires a part":     {rule(prefix("im/messages/day=2026"), expire), []string{"expires objects"}, nil},
		"old form":           {rule("<Prefix>im</Prefix>", expire), []string{"expires objects"}, nil},
		"with a size":        {rule("<Filter><And><Prefix>im/</Prefix><ObjectSizeLessThan>5</ObjectSizeLessThan></And></Filter>", expire), []string{"expires objects"}, nil},
		"by date":            {rule(prefix("im/"), "<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>"), []string{"expires objects"}, nil},
		"expires others":     {rule(prefix("image/"), expire), nil, nil},
		"expires tagged":     {rule("<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>", expire), nil, nil},
		"tagged, and prefix": {rule("<Filter><And><Prefix>im/</Prefix><Tag><Key>a</Key><Value>b</Value></Tag></And></Filter>", expire), nil, nil},
		"disabled":           {strings.Replace(rule(prefix("im/"), expire), "Enabled", "Disabled", 1), nil, nil},
		"markers only":       {rule(prefix("im/"), "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"), nil, nil},
		"moves out of reach": {rule(prefix("im/"), move("GLACIER")), nil, []string{"cannot be read at once"}},
		"moves":              {rule(prefix("im/"), move("STANDARD_IA")), nil, []string{"under 128 KiB never move"}},
	} {
		rules = c.rules
		fatal, other := findings(t, b)
		if len(fatal) != len(c.fatal) || len(c.fatal) > 0 && !says(fatal, c.fatal[0]) {
			t.Errorf("%s: fatal %q, want %q", name, fatal, c.fatal)
		}
		for _, w := range c.other {
			if !says(other, w) {
				t.Errorf("%s: found %q, want %q", name, other, w)
			}
		}
		if name == "abort" && len(other) > 0 {
			t.Errorf("%s: found %q", name, other)
		}
	}
	cfg := config(s)
	cfg.StorageClass = "STANDARD_IA"
	ia, _ := open(t, cfg)
	if _, other := findings(t, ia); !says(other, "charged as 128 KiB", "packed") {
		t.Errorf("small objects in STANDARD_IA: %q", other)
	}
	put(t, b, "messages/a", "small")
	if _, other := findings(t, ia); !says(other, "1 of the first 1") {
		t.Errorf("small objects in STANDARD_IA: %q", other)
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
	fatal, _ := findings(t, b)
	if !says(fatal, "If-None-Match") || !says(fatal, "clock", "off") || len(fatal) != 2 {
		t.Errorf("fatal: %q", fatal)
	}
	m.after = nil
	m.before = func(w http.ResponseWriter, r request) bool {
		if r.has("lifecycle") {
			refuse(w, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	}
	if _, other := findings(t, b); !says(other, "cannot be read", "s3:GetLifecycleConfiguration") {
		t.Errorf("rules that may not be read: %q", other)
	}
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
