package archive

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

// lastServer is a pace that leaves one database's server alone until so many slices are done.
type lastServer struct {
	unhindered
	s        *sharing
	database string
	after    int
	asked    int
}

func (p *lastServer) Ready(_ context.Context, shard manifest.Shard) (time.Duration, error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if shard.Database == p.database && len(p.s.done) < p.after {
		p.asked++
		return 5 * time.Millisecond, nil
	}
	return 0, nil
}

// A server that pauses keeps no worker from the others' slices, and its own are done after.
func TestAPausedServerKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	dsn := stack.MySQL(t)
	m, err := manifest.Open(t.Context(), manifest.Config{DSN: dsn, Source: "im"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	s := newSharing(t, 6, 4, 3, 0)
	pace := &lastServer{s: s, database: "im_00", after: 16}
	a, err := New(Deps{Manifest: m, Tables: s.tables, Rows: &copiedRows{}, Layout: snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}, Zone: time.UTC,
		Source: "im", Owner: "pod/1", Clock: time.Now, Log: slog.New(slog.DiscardHandler), Pace: pace}, Config{After: time.Hour, Workers: 2, PerServer: 4})
	if err != nil {
		t.Fatal(err)
	}
	a.do = s.stand(a, stack.OpenMySQL(t, dsn))
	from, to := s.first, s.first.Add(s.days-1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := a.Plan(ctx, Selection{From: &from, To: &to})
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.Run(ctx, p, NoProgress{})
	if err != nil || len(r.Done) != 24 || len(r.Left)+len(r.Failed) > 0 {
		t.Fatalf("%d done, %d left, %d failed: %v, %v", len(r.Done), len(r.Left), len(r.Failed), err, r.Err())
	}
	if pace.asked == 0 {
		t.Error("the paused server's turn never came, so that nothing was tested")
	}
}
