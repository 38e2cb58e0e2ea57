package adversary

import (
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/tests/harness"
)

// What the stores have lost between verification and purge is not the last copy that
// there was: the purge refuses, verify says why, and the next archive makes it good.
func TestStoresThatLostTheCopy(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(e *harness.Env){
		"object deleted": func(e *harness.Env) {
			for _, k := range e.Keys() {
				if strings.Contains(k, "/conv=") {
					if _, err := e.S3.Client().DeleteObject(e.T.Context(), &s3.DeleteObjectInput{Bucket: &e.S3.Bucket, Key: &k}); err != nil {
						e.T.Fatal(err)
					}
					return
				}
			}
		},
		"ClickHouse emptied": func(e *harness.Env) { forget(e, "1") },
	} {
		for strategy, partitioned := range map[string]bool{"rows": false, "partition": true} {
			t.Run(name+" "+strategy, func(t *testing.T) {
				t.Parallel()
				e := harness.New(t, harness.Options{Partitioned: partitioned, Strategy: strategy, Seed: 76, Messages: 150})
				want := e.Truth()
				e.Must("archive")
				lose(e)
				e.Expect(4, []string{"coldtier verify"}, "purge")
				if n := e.Count(); n != len(want) {
					t.Fatalf("%d of %d rows are in warm", n, len(want))
				}
				e.Expect(4, nil, "verify")
				gone(e, want)
			})
		}
	}
}

// A purge that is pointed to another place in the bucket than the archive wrote to
// deletes nothing.
func TestPurgeOfAnotherPrefix(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 77, Messages: 150})
	want := e.Truth()
	e.Must("archive")
	text, err := os.ReadFile(e.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.Config, []byte(strings.Replace(string(text), "prefix: im", "prefix: elsewhere", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	e.Expect(4, []string{"is not in the bucket"}, "purge")
	e.Change(func(*harness.Options) {}) // back
	gone(e, want)
}
