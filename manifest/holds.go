package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// HoldKind says what a hold is on, and so what it stops.
type HoldKind string

// The kinds. A hold on a slice stops its purge. One on a conversation or a sender
// does not (the rows stay in the cold tier); it stops whatever would take rows out
// of the cold tier.
const (
	HoldSlice        HoldKind = "slice"
	HoldConversation HoldKind = "conversation"
	HoldSender       HoldKind = "sender"
)

// Hold forbids deleting until it is released, or expires. It is never deleted itself.
type Hold struct {
	ID         uint64     `json:"id"`
	Kind       HoldKind   `json:"kind"`
	Subject    string     `json:"subject"` // SliceKey.String, or the canonical text of the conversation's or sender's ID
	Reason     string     `json:"reason"`
	By         string     `json:"by"`
	At         time.Time  `json:"at"`
	ReleasedBy string     `json:"released_by,omitempty"`
	ReleasedAt *time.Time `json:"released_at,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"` // it is in force until then; nil: until it is released
}

// inForce says of a hold h that it forbids deleting now.
const inForce = "h.released_at IS NULL AND (h.expires_at IS NULL OR h.expires_at > UTC_TIMESTAMP(6))"

const holdColumns = "h.id, h.kind, h.subject, h.reason, h.placed_by, h.placed_at, h.released_by, h.released_at, h.expires_at"

func scanHold(scan func(...any) error) (h Hold, err error) {
	err = scan(&h.ID, &h.Kind, &h.Subject, &h.Reason, &h.By, &h.At, &h.ReleasedBy, &h.ReleasedAt, &h.ExpiresAt)
	return h, err
}

// ParseSlice reads what SliceKey.String wrote.
func ParseSlice(source, text string) (SliceKey, error) {
	day, shard, ok := strings.Cut(text, " ")
	if !ok {
		return SliceKey{}, fmt.Errorf("slice %q: want DAY DATABASE.TABLE", text)
	}
	d, err := snowflake.ParseDay(day)
	if err != nil {
		return SliceKey{}, fmt.Errorf("slice %q: %w", text, err)
	}
	sh, err := ParseShard(shard)
	if err != nil {
		return SliceKey{}, fmt.Errorf("slice %q: %w", text, err)
	}
	return SliceKey{Source: source, Day: d, Shard: sh}, nil
}

// AddHold places a hold and gives its number. A slice need not exist yet. Kind,
// Subject, Reason and By are wanted, the rest is set here.
func (s *Store) AddHold(ctx context.Context, h Hold) (uint64, error) {
	limit := MaxConversation
	switch h.Kind {
	case HoldSlice:
		limit = 600
		k, err := ParseSlice(s.source, h.Subject)
		if err != nil {
			return 0, fmt.Errorf("add a hold: %w", err)
		}
		h.Subject = k.String()
	case HoldConversation, HoldSender:
	default:
		return 0, fmt.Errorf("add a hold: kind %q: want slice, conversation or sender", h.Kind)
	}
	switch {
	case h.Subject == "" || len(h.Subject) > limit:
		return 0, fmt.Errorf("add a hold on a %s: its ID has %d bytes: want 1 to %d", h.Kind, len(h.Subject), limit)
	case strings.TrimSpace(h.Reason) == "" || len(h.Reason) > maxError:
		return 0, fmt.Errorf("add a hold on %s %s: say the reason, in at most %d bytes", h.Kind, h.Subject, maxError)
	case h.By == "" || len(h.By) > 255:
		return 0, fmt.Errorf("add a hold on %s %s: say who places it, in at most 255 bytes", h.Kind, h.Subject)
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return 0, err
	}
	r, err := s.db.ExecContext(ctx, "INSERT INTO holds (source_id, kind, subject, reason, placed_by, placed_at) VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(6))",
		src, string(h.Kind), []byte(h.Subject), h.Reason, h.By)
	if err != nil {
		return 0, fmt.Errorf("add a hold on %s %s: %w", h.Kind, h.Subject, err)
	}
	id, err := r.LastInsertId()
	if err != nil {
		return 0, fmt.Errorf("add a hold on %s %s: %w", h.Kind, h.Subject, err)
	}
	return uint64(id), nil //nolint:gosec // counts from 1
}

// KeepSlice places a hold on a slice that ends by itself after so long, by the database's
// clock. One of that kind that is in force already is made to last so long from now, if
// that is longer, so that a step that is repeated leaves one hold. It gives the hold.
func (s *Store) KeepSlice(ctx context.Context, key SliceKey, last time.Duration, reason, by string) (Hold, error) {
	fail := func(err error) (Hold, error) { return Hold{}, fmt.Errorf("hold slice %s for %s: %w", key, last, err) }
	switch {
	case last <= 0:
		return fail(errors.New("want a time to come"))
	case strings.TrimSpace(reason) == "" || len(reason) > maxError:
		return fail(fmt.Errorf("say the reason, in at most %d bytes", maxError))
	case by == "" || len(by) > 255:
		return fail(errors.New("say who places it, in at most 255 bytes"))
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return fail(err)
	}
	var h Hold
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		// The slice's row is what two that do this at once meet at; a slice that is not there yet has none.
		var id uint64
		err := tx.QueryRowContext(ctx, "SELECT id FROM slices WHERE source_id = ? AND day = ? AND db_name = ? AND table_name = ? FOR UPDATE",
			src, key.Day, key.Shard.Database, key.Shard.Table).Scan(&id)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		const until = "UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"
		id = 0
		err = tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(h.id), 0) FROM holds h WHERE h.source_id = ? AND h.kind = 'slice' AND h.subject = ? AND h.expires_at IS NOT NULL AND "+inForce,
			src, []byte(key.String())).Scan(&id)
		switch {
		case err != nil:
			return err
		case id > 0:
			if _, err := tx.ExecContext(ctx, "UPDATE holds SET expires_at = GREATEST(expires_at, "+until+"), mirrored = 0 WHERE id = ?", micros(last), id); err != nil {
				return err
			}
		default:
			r, err := tx.ExecContext(ctx, "INSERT INTO holds (source_id, kind, subject, reason, placed_by, placed_at, expires_at) VALUES (?, 'slice', ?, ?, ?, UTC_TIMESTAMP(6), "+until+")",
				src, []byte(key.String()), reason, by, micros(last))
			if err != nil {
				return err
			}
			last, err := r.LastInsertId()
			if err != nil {
				return err
			}
			id = uint64(last) //nolint:gosec // counts from 1
		}
		h, err = scanHold(tx.QueryRowContext(ctx, "SELECT "+holdColumns+" FROM holds h WHERE h.id = ?", id).Scan)
		return err
	})
	if err != nil {
		return fail(err)
	}
	return h, nil
}

// ReleaseHold releases a hold; one that is released already is ErrState.
func (s *Store) ReleaseHold(ctx context.Context, id uint64, by string) error {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return err
	}
	if by == "" || len(by) > 255 {
		return fmt.Errorf("release hold %d: say who releases it, in at most 255 bytes", id)
	}
	n, err := exec(ctx, s.db, "UPDATE holds SET released_by = ?, released_at = UTC_TIMESTAMP(6), mirrored = 0 WHERE id = ? AND source_id = ? AND released_at IS NULL", by, id, src)
	if err != nil {
		return fmt.Errorf("release hold %d: %w", id, err)
	}
	if n == 1 {
		return nil
	}
	var there bool
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM holds WHERE id = ? AND source_id = ?", id, src).Scan(&there); err != nil {
		return fmt.Errorf("release hold %d: %w", id, err)
	}
	if !there {
		return fmt.Errorf("release hold %d: %w", id, ErrNotFound)
	}
	return fmt.Errorf("release hold %d: %w: it was released before", id, ErrState)
}

// Holds lists the holds in force, or all there ever were, oldest first. One that has
// expired is not in force and was not released.
func (s *Store) Holds(ctx context.Context, all bool) (list []Hold, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+holdColumns+" FROM holds h WHERE h.source_id = ? AND (? OR "+inForce+") ORDER BY h.id", src, all)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's holds: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		h, err := scanHold(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("list the manifest's holds: %w", err)
		}
		list = append(list, h)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's holds: %w", err)
	}
	return list, nil
}
