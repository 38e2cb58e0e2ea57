package warm

import (
	"context"
	"fmt"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// Any says whether the table has rows of the message IDs [from, to).
func (k *Sink) Any(ctx context.Context, from, to uint64) (bool, error) {
	s, err := k.x.t.d.session(ctx)
	if err != nil {
		return false, again(ctx, err)
	}
	defer s.close(ctx)
	id, ok, err := (&Table{d: k.x.t.d}).next(ctx, s, k.x.quoted, k.def, from, 0)
	if err != nil {
		return false, fmt.Errorf("table %s.%s: next message ID: %w", k.x.t.d.name, k.x.name, again(ctx, err))
	}
	return ok && id < to, nil
}

// Settle is Any when transactions of others that delete or change rows of [from, to) have
// ended: it reads with a lock, as Table.Settle does.
func (k *Sink) Settle(ctx context.Context, from, to uint64) (bool, error) {
	s, err := k.x.t.d.session(ctx)
	if err != nil {
		return false, again(ctx, err)
	}
	defer s.close(ctx)
	n, err := settle(ctx, s, k.x.quoted, k.def, from, to)
	if err != nil {
		return false, fmt.Errorf("table %s.%s: locked read of message IDs [%d, %d): %w", k.x.t.d.name, k.x.name, from, to, again(ctx, err))
	}
	return n > 0, nil
}

// Fingerprint computes, in the server, that of the rows of the message IDs [from, to), as
// the archived columns read there; of some conversations, or with nil of all.
func (k *Sink) Fingerprint(ctx context.Context, from, to uint64, conversations [][]byte) (f message.Fingerprint, err error) {
	s, err := k.x.t.d.session(ctx)
	if err != nil {
		return f, again(ctx, err)
	}
	defer s.close(ctx)
	if f, err = k.fingerprint(ctx, s, from, to, conversations); err != nil {
		err = fmt.Errorf("table %s.%s: fingerprint of message IDs [%d, %d): %w", k.x.t.d.name, k.x.name, from, to, again(ctx, err))
	}
	return f, err
}

func (k *Sink) fingerprint(ctx context.Context, s *session, from, to uint64, conversations [][]byte) (f message.Fingerprint, err error) {
	t := &Table{d: k.x.t.d, name: k.x.quoted}
	if conversations == nil {
		return t.fingerprintRange(ctx, s, k.x.quoted, k.def, from, to)
	}
	var of []string
	for _, c := range conversations {
		if cond, possible := k.def.conversation(c); possible {
			of = append(of, cond.exact)
		}
	}
	if len(of) == 0 {
		return f, nil
	}
	where := " AND (" + strings.Join(of, " OR ") + ")"
	for from < to {
		end, ok, err := t.next(ctx, s, k.x.quoted, k.def, from, k.x.t.d.cfg.ChunkRows)
		if err != nil {
			return f, err
		}
		if !ok || end > to {
			end = to
		}
		part, err := t.fingerprint(ctx, s, rows{table: k.x.quoted, def: k.def, where: k.def.between(from, end) + where})
		if err != nil {
			return f, err
		}
		f, from = f.Add(part), end
	}
	return f, nil
}
