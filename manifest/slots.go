package manifest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
)

// Slot is the right to scan a server beside others, until it is given back or runs out
// by the database's clock. There are as many slots of a server as workers may scan it at
// once, over the whole fleet. Like a lease each taking has a greater fence than all
// before it. It is safe for concurrent use.
type Slot struct {
	s      *Store
	src    uint32
	server string
	number int
	fence  uint64
	over   atomic.Bool
}

// maxSlots is how many slots a server can have.
const maxSlots = 1024

const (
	slotsQuery = "SELECT slot, fence, COALESCE(held_until > UTC_TIMESTAMP(6), 0) FROM server_slots WHERE source_id = ? AND server = ?"
	takeSlot   = "UPDATE server_slots SET fence = fence + 1, owner = ?, held_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND " +
		"WHERE source_id = ? AND server = ? AND slot = ? AND fence = ? AND (held_until IS NULL OR held_until <= UTC_TIMESTAMP(6))"
	renewSlot = "UPDATE server_slots SET held_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND " +
		"WHERE source_id = ? AND server = ? AND slot = ? AND fence = ? AND held_until > UTC_TIMESTAMP(6)"
	freeSlot = "UPDATE server_slots SET held_until = NULL WHERE source_id = ? AND server = ? AND slot = ? AND fence = ?"
)

// TakeSlot takes one of a server's slots, of which there are limit; ErrServerFull when
// all are taken. Slots beyond limit, that others hold since the limit was greater, count.
//
// Nothing is locked while it looks: a slot that is free is taken by a compare-and-set on
// its fence, so that workers never wait for each other.
func (s *Store) TakeSlot(ctx context.Context, server string, limit int, owner string) (*Slot, error) {
	fail := func(err error) (*Slot, error) { return nil, fmt.Errorf("take a slot of server %s: %w", server, err) }
	if server == "" || len(server) > 255 || limit < 1 || limit > maxSlots {
		return fail(fmt.Errorf("want a name of 1 to 255 bytes and 1 to %d slots, not %d bytes and %d", maxSlots, len(server), limit))
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return fail(err)
	}
	for range 3 { // again when all that were free were taken meanwhile
		free, known, held, err := s.slots(ctx, src, server, limit)
		if err != nil {
			return fail(err)
		}
		if known < limit {
			if err := s.makeSlots(ctx, src, server, limit); err != nil {
				return fail(err)
			}
			continue
		}
		if held >= limit || len(free) == 0 {
			return fail(ErrServerFull)
		}
		rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] }) //nolint:gosec // spreads load alone
		for _, f := range free {
			n, err := exec(ctx, s.db, takeSlot, cut(owner, 255), micros(s.ttl), src, server, f.number, f.fence)
			if err != nil {
				return fail(err)
			}
			if n == 1 {
				f.fence++
				return f, nil
			}
		}
	}
	return fail(ErrServerFull)
}

// slots gives the free slots below limit, how many there are below it, and how many of
// all are held.
func (s *Store) slots(ctx context.Context, src uint32, server string, limit int) (free []*Slot, known, held int, err error) {
	rows, err := s.db.QueryContext(ctx, slotsQuery, src, server)
	if err != nil {
		return nil, 0, 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		sl := &Slot{s: s, src: src, server: server}
		var taken bool
		if err := rows.Scan(&sl.number, &sl.fence, &taken); err != nil {
			return nil, 0, 0, err
		}
		if sl.number < limit {
			known++
		}
		switch {
		case taken:
			held++
		case sl.number < limit:
			free = append(free, sl)
		}
	}
	return free, known, held, rows.Err()
}

func (s *Store) makeSlots(ctx context.Context, src uint32, server string, limit int) error {
	args := make([]any, 0, 3*limit)
	for i := range limit {
		args = append(args, src, server, i)
	}
	return s.repeated(ctx, func() error {
		_, err := s.db.ExecContext(ctx, "INSERT IGNORE INTO server_slots (source_id, server, slot) VALUES "+values(limit, 3), args...)
		return err
	})
}

// Renew makes the slot last its whole time again from now.
func (l *Slot) Renew(ctx context.Context) error {
	n, err := exec(ctx, l.s.db, renewSlot, micros(l.s.ttl), l.src, l.server, l.number, l.fence)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: it ran out, was given back, or another worker has it", ErrSlotLost)
	}
	if err != nil {
		return fmt.Errorf("renew slot %d of server %s: %w", l.number, l.server, err)
	}
	return nil
}

// Keep renews the slot in the background until stop is called, which waits for its end.
// The context it gives ends with cause ErrSlotLost as soon as the slot is another's, or
// could not be renewed for as long as it lasts.
func (l *Slot) Keep(ctx context.Context) (kept context.Context, stop func()) {
	return keeper{s: l.s, what: fmt.Sprintf("slot %d of server %s", l.number, l.server), renew: l.Renew, over: l.over.Load, lost: ErrSlotLost}.keep(ctx)
}

// Release gives the slot back. One that is another's is left alone.
func (l *Slot) Release(ctx context.Context) error {
	if l.over.Swap(true) {
		return nil
	}
	if _, err := l.s.db.ExecContext(ctx, freeSlot, l.src, l.server, l.number, l.fence); err != nil {
		return fmt.Errorf("release slot %d of server %s: %w", l.number, l.server, err)
	}
	return nil
}
