package archive

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

// begun is a pace that does something whenever a slice is about to be begun.
type begun struct {
	unhindered
	do func()
}

func (p *begun) Ready(context.Context, manifest.Shard) (time.Duration, error) {
	p.do()
	return 0, nil
}

// A manifest that is away twice in a run, hours apart and each time for a moment, costs it no
// slice: how long it has been away is counted anew.
func TestTheManifestIsAwayTwice(t *testing.T) {
	t.Parallel()
	c, err := mysql.ParseDSN(stack.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := stack.NewProxy(t, c.Addr)
	c.Addr = proxy.Addr
	m, err := manifest.Open(t.Context(), manifest.Config{DSN: c.FormatDSN(), Source: "im"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	ctx := t.Context()
	if _, err := m.Migrate(ctx, false); err != nil {
		t.Fatal(err)
	}
	layout := snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}
	var fresh []manifest.Slice
	for _, table := range []string{"a", "b", "c"} {
		s := workOf("im_00", table, 1, 0).Slice
		if s.Lo, s.Hi, err = layout.Window(s.Day, time.UTC); err != nil {
			t.Fatal(err)
		}
		s.State = manifest.Pending
		fresh = append(fresh, s)
	}
	if _, err := m.Ensure(ctx, fresh); err != nil {
		t.Fatal(err)
	}
	var work []Work
	for _, s := range fresh {
		work = append(work, Work{Action: ActionCopy, Slice: s})
	}
	var mu sync.Mutex
	var later time.Duration
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(later)
	}
	tries := 0
	pace := &begun{do: func() {
		switch tries++; tries {
		case 2, 4:
			mu.Lock()
			later += 10 * m.LeaseTTL()
			mu.Unlock()
			proxy.Cut()
		case 3, 5:
			proxy.Heal()
		}
	}}
	q := newQueue(&Archiver{Deps: Deps{Owner: "pod/1", Manifest: m, Clock: clock, Log: slog.New(slog.DiscardHandler), Pace: pace}}, work, map[string]string{"im_00": "x"})
	left := func(w *Work, err error) { t.Errorf("slice %s is given up: %v", w.SliceKey, err) }
	for i := range work {
		if _, _, ok := q.next(ctx, left); !ok {
			t.Fatalf("slice %d of %d is not begun", i+1, len(work))
		}
	}
	if tries != 5 {
		t.Errorf("slices were begun %d times, want 5: the manifest was not away twice", tries)
	}
}
