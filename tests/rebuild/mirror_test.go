package rebuild

import (
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// An installation of before there were marks and mirrors gets them by migrate, and is
// then rebuilt equal; statuses that a server takes are in the bucket soon.
func TestOlderInstallationIsMirrored(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	e, want := installation(t, harness.Options{Config: map[string]string{"fetch": "listen: 127.0.0.1:0"}})
	for _, k := range e.Keys() {
		n, ok := manifest.ParseRecordKey(strings.TrimPrefix(k, "im/"))
		if ok && n.Kind != manifest.KeyRecord || strings.HasPrefix(k, "im/manifest/holds/") || strings.HasPrefix(k, "im/manifest/statuses/") {
			e.DeleteObject(k)
		}
	}
	db := stack.OpenMySQL(t, e.Manifest)
	for _, table := range []string{"holds SET mirrored", "statuses SET mirrored", "copies SET marks"} {
		query(t, db, "UPDATE "+table+" = 0")
	}
	e.Expect(0, []string{"not in the bucket yet: 2 holds, 6 statuses, 1 purge"}, "status")
	e.Must("migrate")
	e.Serve()
	if _, err := e.Store().PutStatus(t.Context(), manifest.Status{Conversation: []byte("18"), MessageID: 1<<64 - 1, Kind: manifest.StatusDeleted, By: "t"}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // the server tells nobody
		u, err := e.Store().Unmirrored(t.Context())
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v", u, err)
		}
		if u.None() {
			break
		}
	}
	lost := lose(e)
	e.Must("rebuild", "manifest")
	equal(t, lost, e.Store())
	e.Verdict(want)
}
