package warm

import (
	"context"
	"errors"
	"testing"
	"time"
)

// cutLook is a server whose probe is cut off by the end of the worker that asks, as often as
// the test says.
type cutLook struct {
	*fakeLook
	cuts int
	end  context.CancelFunc
}

func (l *cutLook) probe(ctx context.Context, t *Table) (time.Duration, error) {
	if l.cuts > 0 {
		l.cuts--
		l.end()
	}
	if ctx.Err() != nil {
		return lookTime, ctx.Err()
	}
	return l.fakeLook.probe(ctx, t)
}

// One worker ends, as when it loses its slice, while the server is looked at for all. What
// its probes say is no latency: neither as the usual one, nor as the one of now.
func TestImpactOfAWorkerThatEnds(t *testing.T) {
	t.Parallel()
	p := newTestPace(t, Limits{MaxImpact: 4})
	p.look.latency = 2 * time.Millisecond
	l := &cutLook{fakeLook: p.look}
	s := p.servers[paceServer]
	s.look = l
	ended := func(ctx context.Context, end context.CancelFunc) {
		t.Helper()
		defer end()
		l.cuts, l.end = 1, end
		if err := p.Wait(ctx, p.table); !errors.Is(err, ctx.Err()) || err == nil {
			t.Fatalf("%v, want the context's end", err)
		}
	}
	ended(context.WithCancel(t.Context()))
	p.wait(t)
	if i := s.impact; i.baseline != 2*time.Millisecond {
		t.Fatalf("the baseline is %s, want 2ms", i.baseline)
	}
	for range recentProbes {
		p.clock.mu.Lock()
		p.clock.t = p.clock.t.Add(time.Minute)
		p.clock.mu.Unlock()
		ctx, end := context.WithDeadlineCause(t.Context(), time.Now().Add(-time.Second), context.DeadlineExceeded)
		if _, err := s.affected(ctx, p.table); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the context's end", err)
		}
		end()
	}
	if i := s.impact; i.now != 2*time.Millisecond || i.stretch != 0 {
		t.Errorf("reads take %s, and steps are %s apart, after workers that ended", i.now, i.stretch)
	}
}
