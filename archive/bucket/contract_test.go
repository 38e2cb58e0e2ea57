package bucket_test

import (
	"testing"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/bucket/bucktest"
	"github.com/coldtier/coldtier/tests/stack"
)

// The contract holds with and without checksum headers, with and without a
// prefix, and for uploads in parts.
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
