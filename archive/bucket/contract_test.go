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
		"plain":               func(*bucket.Config) {},
		"no prefix, in parts": func(c *bucket.Config) { c.Prefix, c.MultipartAbove = "", 16 },
		"compatible, in parts": func(c *bucket.Config) {
			c.Compatible, c.MultipartAbove = true, 16
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
