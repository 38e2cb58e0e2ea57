package purge_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/manifest"
)

// progress is what the marks of a slice's newest generation say.
func (l *lab) progress(day int) manifest.Progress {
	l.t.Helper()
	sl := l.slice(day)
	c, err := l.store.LoadHead(l.t.Context(), sl.ID, sl.Generation)
	if err != nil {
		l.t.Fatal(err)
	}
	get := func(kind manifest.MarkKind) []byte {
		b, _ := l.stores.GetMark(l.t.Context(), manifest.MarkKey(c.SliceKey, c.Generation, kind))
		return b
	}
	return manifest.Marks{Purging: get(manifest.MarkPurging), Stopped: get(manifest.MarkStopped), Purged: get(manifest.MarkPurged)}.Progress(c.SliceKey, c.Generation, c.Attempt)
}

// Nothing is deleted while the bucket takes no marks; then all of it is.
func TestNoMarkNoDelete(t *testing.T) {
	t.Parallel()
	strategies(t, func(t *testing.T, partitioned bool) {
		l := newLab(t, partitioned, 1, 330)
		l.archiveAll()
		l.stores.refuse = errors.New("access denied")
		rep, err := l.purge(now)
		if err == nil || rep.Rows != 0 || !strings.Contains(err.Error(), "s3:PutObject") {
			t.Fatalf("%+v, %v", rep, err)
		}
		l.safe()
		if n := l.warmCount(0); n != 330 {
			t.Fatalf("%d rows are left", n)
		}
		l.stores.refuse = nil
		if _, err := l.purge(now); err != nil {
			t.Fatal(err)
		}
		if p := l.progress(0); !p.Purged || p.Damaged != nil {
			t.Errorf("the marks say %+v", p)
		}
	})
}

// A purge that ends before its end says what it took: exactly what the manifest knows.
func TestStoppedMarkSaysWhatWasTaken(t *testing.T) {
	t.Parallel()
	l := newLab(t, byRows, 1, 330)
	l.archiveAll()
	l.set(l.id(0, 200), "edited")
	if _, err := l.purge(now); !errors.Is(err, purge.ErrDrift) {
		t.Fatal(err)
	}
	sl := l.slice(0)
	c, err := l.store.LoadHead(t.Context(), sl.ID, sl.Generation)
	if err != nil {
		t.Fatal(err)
	}
	p := l.progress(0)
	if !p.Begun || !p.Known || p.Purged || len(p.Chunks) == 0 {
		t.Fatalf("the marks say %+v", p)
	}
	for i, ch := range c.Chunks {
		if p.State(i) != ch.State {
			t.Errorf("chunk %d is %s by the marks, %s in the manifest", i, p.State(i), ch.State)
		}
	}
}

// A manifest that forgot a partition's exchange (it was set back, or lost and rebuilt)
// still gets the rows back that lie in the staging table, also those that differ.
func TestForgottenStagingTableIsReturned(t *testing.T) {
	t.Parallel()
	l := newLab(t, byPartition, 1, 330)
	l.archiveAll()
	sl := l.slice(0)
	l.set(l.id(0, 7), "edited")
	if _, err := l.purge(killAt(purge.StepExchanged, 1)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if n := l.warmCount(0); n != 0 {
		t.Fatalf("%d rows are in the table", n)
	}
	l.exec("UPDATE slices SET state = 'verified', staging = '', purge_begun = 0, lease_until = NULL")
	l.exec("UPDATE chunks SET state = 'present', staged = 0")
	if _, err := l.purge(now); !errors.Is(err, purge.ErrDrift) {
		t.Fatal(err)
	}
	l.safe()
	if n := l.warmCount(0); n != 330 {
		t.Fatalf("%d rows are in the table", n)
	}
	if now := l.slice(0); now.ID != sl.ID || now.State != manifest.Pending || now.Reason != manifest.ReasonDrifted {
		t.Errorf("the slice is %+v", now)
	}
}
