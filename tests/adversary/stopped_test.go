package adversary

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
)

// A purge that is paused after its last look for stops, and wakes up when purges are
// stopped, deletes nothing more: the leave to delete itself is gone. What is isolated is
// put back.
func TestStopBehindThePurgesBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ strategy, step string }{
		{"rows", "purge.claimed:2"}, {"rows", "purge.chunk.marked-before-deleted:2"}, {"partition", "purge.partition.compared-before-dropped:2"},
	} {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Seed: 140, Days: 3, Messages: 300, Partitioned: true, Strategy: c.strategy})
			e.Must("archive")
			want := e.Truth()
			p := e.Start([]string{"COLDTIER_STOP_AT=" + c.step}, "purge")
			if !p.Stopped() {
				t.Fatal(p.Wait())
			}
			e.Must("stop", "purge", "--reason", "ticket 4711", "--by", "ops")
			var there []int // rows of each slice
			for _, s := range e.Slices() {
				there = append(there, rowsOf(e, s))
			}
			p.Signal(syscall.SIGCONT)
			if r := p.Wait(); r.Exit != 3 || !strings.Contains(r.Stderr, "ops stopped purge") || !strings.Contains(r.Stderr, "ticket 4711") {
				t.Errorf("after the stop: %s", r)
			}
			for i, s := range e.Slices() {
				left, state := there[i], manifest.Verified
				if left == 0 && c.strategy == "partition" && i > 0 { // was isolated
					left = 100
				}
				if left == 0 {
					state = manifest.Purged
				}
				if got := rowsOf(e, s); s.State != state || s.Staging != "" || got != left {
					t.Errorf("slice %s is %s with %d rows, staging %q; want %s with %d", s.SliceKey, s.State, got, s.Staging, state, left)
				}
			}
			if n := e.Count(); n < 100 {
				t.Errorf("%d rows are left: it went on", n)
			}
			e.Verdict(want)
			e.Must("resume", "purge")
			e.Must("purge")
			if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
				t.Errorf("%s, %d rows in warm", r, e.Count())
			}
		})
	}
}

// An archive run that is stopped ends also where it reads nothing of warm any more: while it
// stores, or verifies, what may be hours of work. The slice is given back as it is.
func TestStopOfAnArchiveThatStores(t *testing.T) {
	t.Parallel()
	for step, state := range map[string]manifest.State{"archive.scanned": manifest.Pending, "archive.committed": manifest.Committed} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Seed: 142, Messages: 100})
			want := e.Truth()
			p := e.Start([]string{"COLDTIER_STOP_AT=" + step}, "archive")
			if !p.Stopped() {
				t.Fatal(p.Wait())
			}
			e.Must("stop", "archive", "--reason", "ticket 4711", "--by", "ops")
			time.Sleep(time.Second) // for so long it remembers that it was not stopped
			p.Signal(syscall.SIGCONT)
			if r := p.Wait(); r.Exit != 3 || !strings.Contains(r.Stderr, "ops stopped archive") {
				t.Errorf("after the stop: %s", r)
			}
			if s := only(e); s.State != state || s.Failed {
				t.Errorf("the slice is %s, failed %t", s.State, s.Failed)
			}
			e.Must("resume", "archive")
			e.Must("archive")
			e.Must("purge")
			if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
				t.Errorf("%s, %d rows in warm", r, e.Count())
			}
		})
	}
}
