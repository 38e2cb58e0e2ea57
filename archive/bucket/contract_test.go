package bucket_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/bucket/bucktest"
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

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

// The contract holds with and without checksum headers, with and without a
// prefix, for uploads in parts, and whether or not AWS_CA_BUNDLE makes the SDK
// change the client.
func TestContract(t *testing.T) {
	for name, change := range map[string]func(*bucket.Config){
		"plain":      func(*bucket.Config) {},
		"compatible": func(c *bucket.Config) { c.Compatible = true },
		"no prefix":  func(c *bucket.Config) { c.Prefix = "" },
		"in parts":   func(c *bucket.Config) { c.MultipartAbove = 16 },
		"in parts, compatible": func(c *bucket.Config) {
			c.MultipartAbove, c.Compatible = 16, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			bucktest.Run(t, func(t *testing.T) bucktest.Store {
				cfg := config(stack.Bucket(t))
				change(&cfg)
				b, _ := open(t, cfg)
				return b
			})
		})
	}
}
