package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// wall is a clock that can be set. In a bubble of synctest its time passes by itself.
type wall struct {
	mu     sync.Mutex
	offset time.Duration
}

// wallAt is a clock that shows an instant now.
func wallAt(at time.Time) *wall { return &wall{offset: time.Until(at)} }

func (w *wall) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Round(0).Add(w.offset)
}

func (w *wall) After(d time.Duration) <-chan time.Time { return time.After(d) }

func (w *wall) set(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offset += by
}

// memory keeps leases, marks and runs for tests that need no database. Its clock judges.
type memory struct {
	mu     sync.Mutex
	clock  Clock
	ttl    time.Duration
	leases map[string]*row
	runs   []*record
	down   error // what all calls give, if it is set
}

type row struct {
	owner string
	fence uint64
	until time.Time
	mark  time.Time
}

type record struct {
	Begin
	outcome, why string
	report       any
	ended        bool
}

func newMemory(clock Clock) *memory {
	return &memory{clock: clock, ttl: time.Minute, leases: map[string]*row{}}
}

func (m *memory) row(name string) *row {
	r := m.leases[name]
	if r == nil {
		r = &row{}
		m.leases[name] = r
	}
	return r
}

func (m *memory) Claim(_ context.Context, c Claim) (Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.row(c.Name)
	switch {
	case m.down != nil:
		return nil, m.down
	case !c.Scheduled.IsZero() && !r.mark.Before(c.Scheduled):
		return nil, ErrDone
	case r.until.After(m.clock.Now()):
		return nil, fmt.Errorf("%w: %s", ErrHeld, r.owner)
	}
	r.owner, r.until = c.Owner, m.clock.Now().Add(m.ttl)
	r.fence++
	return &memoryLease{m, r, r.fence}, nil
}

func (m *memory) Mark(_ context.Context, name string) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return time.Time{}, m.down
	}
	r := m.row(name)
	if r.mark.IsZero() {
		r.mark = m.clock.Now()
	}
	return r.mark, nil
}

func (m *memory) Begin(_ context.Context, b Begin) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return 0, m.down
	}
	m.runs = append(m.runs, &record{Begin: b})
	return uint64(len(m.runs)), nil
}

func (m *memory) End(_ context.Context, id uint64, outcome, why string, report any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return m.down
	}
	r := m.runs[id-1]
	r.outcome, r.why, r.report, r.ended = outcome, why, report, true
	return nil
}

func (m *memory) broken(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = err
}

type memoryLease struct {
	m     *memory
	r     *row
	fence uint64
}

func (l *memoryLease) Fence() uint64 { return l.fence }

func (l *memoryLease) Renew(context.Context) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.down != nil {
		return l.m.down
	}
	if l.r.fence != l.fence {
		return fmt.Errorf("%w to %s", ErrLost, l.r.owner)
	}
	l.r.until = l.m.clock.Now().Add(l.m.ttl)
	return nil
}

func (l *memoryLease) Release(_ context.Context, done time.Time) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.down != nil {
		return l.m.down
	}
	if l.r.fence != l.fence {
		return ErrLost
	}
	l.r.until = time.Time{}
	if now := l.m.clock.Now(); done.Sub(now) > lateness {
		l.r.mark = now
	} else if !done.IsZero() {
		l.r.mark = done
	}
	return nil
}

// word is what the tests call outcomes.
func word(err error) string {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, ErrPanic):
		return "panic"
	case errors.Is(err, ErrDeadline):
		return "deadline"
	case errors.Is(err, context.Canceled):
		return "interrupted"
	}
	return "failed"
}

func deps(t testing.TB, m *memory, owner string) Deps {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry(), []string{"job", "archive", "purge", "patrol"}, []string{"failed", "panic", "deadline", "interrupted"})
	if err != nil {
		t.Fatal(err)
	}
	return Deps{Owner: owner, Leases: m, TTL: m.ttl, Runs: m, Outcome: word, Text: error.Error, Metrics: metrics, Clock: m.clock, Log: slog.New(slog.DiscardHandler)}
}
