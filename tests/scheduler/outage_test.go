package scheduler

import (
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// The manifest is away for a moment, as in a failover: an archive run loses the slice that it
// was at, and goes on with the others when the manifest is back.
func TestArchiveOutlivesAFailoverOfTheManifest(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	c, err := mysql.ParseDSN(stack.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	away := stack.NewProxy(t, c.Addr)
	r := set(t, 4, only(), func(o *harness.Options) { o.ManifestAddr = away.Addr })
	want := r.Truth()
	p := r.Start([]string{"COLDTIER_STOP_AT=archive.record-put:2"}, "archive")
	if !p.Stopped() {
		t.Fatal(p.Wait())
	}
	away.Cut()
	p.Signal(syscall.SIGCONT)
	r.logged(p, "the manifest does not answer, and no slice is begun")
	away.Heal()
	if res := p.Wait(); res.Exit != 3 || !strings.Contains(res.Stdout, "3 slices done, 0 left, 1 failed") {
		t.Errorf("%s", res)
	}
	for i, s := range r.Slices() {
		if (s.State == manifest.Verified) == (i == 1) {
			t.Errorf("slice %s is %s", s.SliceKey, s.State)
		}
	}
	if _, err := r.db.ExecContext(t.Context(), "UPDATE slices SET lease_until = NULL"); err != nil {
		t.Fatal(err)
	}
	r.Must("archive")
	r.Verdict(want)
}
