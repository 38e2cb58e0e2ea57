package archive

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// slot is the right to scan a server, held while a slice of it is scanned. The nil slot
// is that no right is needed.
type slot struct {
	q      *queue
	server string
	held   *manifest.Slot
	over   atomic.Bool
	once   sync.Once
	stop   func() // of its renewal
}

// slot takes one of a server's slots for a slice; ErrServerFull. Verifying reads nothing
// of warm, and needs none.
func (q *queue) slot(ctx context.Context, server string, w *Work) (*slot, error) {
	if q.a.cfg.PerServer == 0 || w.Action == ActionVerify {
		return nil, nil //nolint:nilnil // the nil slot is a slot
	}
	held, err := q.a.Manifest.TakeSlot(ctx, server, q.a.cfg.PerServer, q.a.Owner)
	if err != nil {
		return nil, err
	}
	q.freed(server, false)
	return &slot{q: q, server: server, held: held}, nil
}

// keep renews the slot. The context it gives ends with cause ErrSlotLost when the slot is
// lost before it was given back.
func (s *slot) keep(ctx context.Context) (context.Context, context.CancelFunc) {
	kept, cancel := context.WithCancelCause(ctx)
	end := func() { cancel(context.Canceled) }
	if s == nil {
		return kept, end
	}
	renewed, stop := s.held.Keep(ctx)
	s.stop = stop
	context.AfterFunc(renewed, func() {
		if !s.over.Load() {
			cancel(context.Cause(renewed))
		}
	})
	return kept, end
}

// releaseTime is how long giving back a slot may take; if it fails the slot runs out.
const releaseTime = 10 * time.Second

// release gives the slot back: nothing more is read of warm. It may be called again.
func (s *slot) release(ctx context.Context) {
	if s == nil {
		return
	}
	s.once.Do(func() {
		s.over.Store(true)
		if s.stop != nil {
			s.stop()
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		if err := s.held.Release(clean); err != nil {
			s.q.a.Log.WarnContext(ctx, "a slot was not given back and runs out by itself", "server", s.server, "error", err)
		}
		s.q.freed(s.server, true)
	})
}
