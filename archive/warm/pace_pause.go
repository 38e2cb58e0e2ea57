package warm

import (
	"context"
	"time"
)

// note begins a pause, or notes its new cause.
func (s *paced) note(now time.Time, f *obstacle) {
	soft := f.cause == CauseRows || f.cause == CauseBytes || f.cause == CauseImpact && !f.until.IsZero()
	s.mu.Lock()
	was := s.pause
	if was == nil && soft && f.until.Sub(now) < announced {
		s.mu.Unlock()
		return
	}
	next := &Pause{Job: s.p.cfg.Job, Server: s.addr, Cause: f.cause, Why: f.why, Since: now, Until: f.until}
	if was != nil {
		next.Since = was.Since
	}
	s.pause = next
	s.mu.Unlock()
	if was != nil && was.Cause == next.Cause {
		return
	}
	args := []any{"job", next.Job, "server", next.Server, "cause", string(next.Cause), "why", next.Why}
	if !next.Until.IsZero() {
		args = append(args, "until", next.Until.Format(time.RFC3339))
	}
	s.p.log.Warn("paused", args...)
	s.p.tell(*next)
}

// goOn ends a pause, because its cause is gone, or the run ends while it lasts.
func (s *paced) goOn(how string) {
	s.mu.Lock()
	was := s.pause
	s.pause = nil
	s.mu.Unlock()
	if was == nil {
		return
	}
	x := *was
	x.Ended = s.p.cfg.Now()
	s.p.log.Info(how, "job", x.Job, "server", x.Server, "cause", string(x.Cause), "lasted", x.Ended.Sub(x.Since).Round(time.Millisecond).String())
	s.p.tell(x)
}

// sleep waits and counts for what.
func (s *paced) sleep(ctx context.Context, c Cause, d time.Duration) error {
	s.mu.Lock()
	h := s.begin(c)
	s.mu.Unlock()
	err := s.p.cfg.Sleep(ctx, d)
	s.mu.Lock()
	defer s.mu.Unlock()
	h.end(s.p.cfg.Now())
	return err
}

// begin counts a step that is held back. The caller holds mu.
func (s *paced) begin(c Cause) *heldBack {
	h := s.held[c]
	if h == nil {
		h = &heldBack{}
		s.held[c] = h
	}
	if h.steps++; h.steps == 1 {
		h.since = s.p.cfg.Now()
	}
	return h
}

// end is that such a step goes on.
func (h *heldBack) end(now time.Time) {
	if h.steps--; h.steps == 0 {
		h.total += now.Sub(h.since)
	}
}
