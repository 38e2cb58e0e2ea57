package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Statuses puts statuses that lay in the bucket; of each message the last put counts.
func (r *Rebuild) Statuses(ctx context.Context, all []Status) error {
	packet, err := r.s.maxPacket(ctx)
	if err != nil {
		return err
	}
	return r.s.inTx(ctx, func(tx *sql.Tx) error {
		if err := r.running(ctx, tx); err != nil {
			return err
		}
		in := &inserter{ctx: ctx, q: tx, limit: min(statementBytes, packet/2),
			head: "INSERT INTO statuses (source_id, conversation, message_id, kind, value, put_by, put_at, mirrored) VALUES ",
			// From left to right, so put_at comes last.
			tail: ` ON DUPLICATE KEY UPDATE folded = IF(VALUES(put_at) > put_at, 0, folded), kind = IF(VALUES(put_at) > put_at, VALUES(kind), kind), value = IF(VALUES(put_at) > put_at, VALUES(value), value),
				put_by = IF(VALUES(put_at) > put_at, VALUES(put_by), put_by), mirrored = IF(VALUES(put_at) >= put_at, 1, mirrored), put_at = GREATEST(put_at, VALUES(put_at))`}
		for i := range all {
			st := &all[i]
			if err := st.check(); err != nil {
				return fmt.Errorf("rebuild the status of message %d: %w: %w", st.MessageID, ErrCorrupt, err)
			}
			in.num(uint64(r.src))
			in.status(st)
			in.num(1)
			if err := in.end(); err != nil {
				return fmt.Errorf("rebuild statuses: %w", err)
			}
		}
		if err := in.flush(); err != nil {
			return fmt.Errorf("rebuild statuses: %w", err)
		}
		return nil
	})
}

// Hold enters a hold that lay in the bucket; see Store.AdoptHold.
func (r *Rebuild) Hold(ctx context.Context, h Hold) error {
	err := r.s.inTx(ctx, func(tx *sql.Tx) error {
		if err := r.running(ctx, tx); err != nil {
			return err
		}
		_, _, err := adoptHold(ctx, tx, r.src, h)
		return err
	})
	if err != nil {
		return fmt.Errorf("rebuild hold %d: %w", h.ID, err)
	}
	return nil
}

// AdoptHold enters a hold that lies in the bucket, and gives the number that it has now,
// and whether the manifest did not have it. One that the manifest has, too, keeps the later end; one whose number is another's gets
// a new one.
func (s *Store) AdoptHold(ctx context.Context, h Hold) (id uint64, fresh bool, err error) {
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return 0, false, err
	}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		id, fresh, err = adoptHold(ctx, tx, src, h)
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("adopt hold %d: %w", h.ID, err)
	}
	return id, fresh, nil
}

func adoptHold(ctx context.Context, tx *sql.Tx, src uint32, h Hold) (id uint64, fresh bool, err error) {
	err = tx.QueryRowContext(ctx, "SELECT id FROM holds WHERE source_id = ? AND kind = ? AND subject = ? AND placed_by = ? AND placed_at = ? ORDER BY id LIMIT 1 FOR UPDATE",
		src, string(h.Kind), []byte(h.Subject), h.By, h.At.UTC()).Scan(&id)
	switch {
	case err == nil:
		_, err = tx.ExecContext(ctx, "UPDATE holds SET released_by = IF(released_at IS NULL, ?, released_by), released_at = COALESCE(released_at, ?), expires_at = IF(expires_at IS NULL OR ? IS NULL, NULL, GREATEST(expires_at, ?)) WHERE id = ?",
			h.ReleasedBy, utc(h.ReleasedAt), utc(h.ExpiresAt), utc(h.ExpiresAt), id)
		return id, false, err
	case !errors.Is(err, sql.ErrNoRows):
		return 0, false, err
	}
	var taken bool
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM holds WHERE id = ?", h.ID).Scan(&taken); err != nil {
		return 0, false, err
	}
	number := any(h.ID)
	if taken {
		number = nil
	}
	res, err := tx.ExecContext(ctx, "INSERT INTO holds (id, source_id, kind, subject, reason, placed_by, placed_at, released_by, released_at, expires_at, mirrored) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		number, src, string(h.Kind), []byte(h.Subject), h.Reason, h.By, h.At.UTC(), h.ReleasedBy, utc(h.ReleasedAt), utc(h.ExpiresAt), !taken)
	if err != nil || !taken {
		return h.ID, true, err
	}
	n, err := res.LastInsertId()
	return uint64(n), true, err //nolint:gosec // counts from 1
}

func utc(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UTC()
}
