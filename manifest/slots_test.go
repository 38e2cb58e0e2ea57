package manifest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Of many workers that take slots at once never more than the limit have one, and all
// of the slots are used.
func TestNoMoreSlotsThanTheLimit(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	const limit = 3
	var held, most, taken, full atomic.Int64
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			for range 15 {
				l, err := s.TakeSlot(t.Context(), "server", limit, "w")
				if errors.Is(err, ErrServerFull) {
					full.Add(1)
					continue
				}
				if err != nil {
					t.Errorf("take: %v", err)
					return
				}
				taken.Add(1)
				n := held.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				if err := l.Renew(t.Context()); err != nil {
					t.Errorf("renew: %v", err)
				}
				held.Add(-1)
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if most.Load() != limit || taken.Load() < limit || full.Load() == 0 {
		t.Errorf("at most %d had a slot, want %d; %d taken, %d times full", most.Load(), limit, taken.Load(), full.Load())
	}
}

// A slot is another's after it ran out, and its former holder is told so. Slots that others
// hold beyond a limit that was lowered count, and servers do not share slots.
func TestSlotsRunOut(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	take := func(server string, limit int) *Slot {
		t.Helper()
		l, err := s.TakeSlot(ctx, server, limit, "w")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	full := func(server string, limit int) {
		t.Helper()
		if _, err := s.TakeSlot(ctx, server, limit, "w"); !errors.Is(err, ErrServerFull) {
			t.Errorf("taken beyond %d: %v", limit, err)
		}
	}
	dead, alive := take("a", 2), take("a", 2)
	full("a", 2)
	full("a", 1) // two have it
	other := take("b", 2)
	kept, stop := dead.Keep(ctx)
	defer stop()
	if _, err := s.db.ExecContext(ctx, "UPDATE server_slots SET held_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE slot = ? AND server = 'a'", dead.number); err != nil {
		t.Fatal(err)
	}
	full("a", 1) // the other holds one
	next := take("a", 2)
	if next.number != dead.number || next.fence != dead.fence+1 {
		t.Errorf("slot %d with fence %d after slot %d with %d", next.number, next.fence, dead.number, dead.fence)
	}
	if err := dead.Renew(ctx); !errors.Is(err, ErrSlotLost) {
		t.Errorf("a slot that is another's is renewed: %v", err)
	}
	if err := dead.Release(ctx); err != nil {
		t.Error(err)
	}
	full("a", 2) // what the dead one gave back was not its own
	if err := alive.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := alive.Renew(ctx); !errors.Is(err, ErrSlotLost) {
		t.Errorf("renewed after it was given back: %v", err)
	}
	take("a", 2)
	if err := other.Renew(ctx); err != nil {
		t.Error(err)
	}
	if _, err := s.TakeSlot(ctx, "", 2, "w"); err == nil {
		t.Error("a server without a name is taken")
	}
	_ = kept
}

// Who keeps a slot that is taken from it learns it.
func TestKeepOfALostSlotEnds(t *testing.T) {
	t.Parallel()
	s := open(t, 300*time.Millisecond)
	l, err := s.TakeSlot(t.Context(), "a", 1, "w")
	if err != nil {
		t.Fatal(err)
	}
	kept, stop := l.Keep(t.Context())
	defer stop()
	if _, err := s.db.ExecContext(t.Context(), "UPDATE server_slots SET fence = fence + 1"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-kept.Done():
	case <-ctxIn(t, time.Minute).Done():
		t.Fatal("not told")
	}
	if err := context.Cause(kept); !errors.Is(err, ErrSlotLost) {
		t.Errorf("ended by %v", err)
	}
}
