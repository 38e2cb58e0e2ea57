package manifest

import (
	"context"
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

// Hold forbids deleting until it is released. It is never deleted itself.
type Hold struct {
	ID         uint64     `json:"id"`
	Kind       HoldKind   `json:"kind"`
	Subject    string     `json:"subject"` // SliceKey.String, or the canonical text of the conversation's or sender's ID
	Reason     string     `json:"reason"`
	By         string     `json:"by"`
	At         time.Time  `json:"at"`
	ReleasedBy string     `json:"released_by,omitempty"`
	ReleasedAt *time.Time `json:"released_at,omitempty"`
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

// ReleaseHold releases a hold; one that is released already is ErrState.
func (s *Store) ReleaseHold(ctx context.Context, id uint64, by string) error {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return err
	}
	if by == "" || len(by) > 255 {
		return fmt.Errorf("release hold %d: say who releases it, in at most 255 bytes", id)
	}
	n, err := exec(ctx, s.db, "UPDATE holds SET released_by = ?, released_at = UTC_TIMESTAMP(6) WHERE id = ? AND source_id = ? AND released_at IS NULL", by, id, src)
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

// Holds lists the holds in force, or all there ever were, oldest first.
func (s *Store) Holds(ctx context.Context, released bool) (all []Hold, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT id, kind, subject, reason, placed_by, placed_at, released_by, released_at FROM holds WHERE source_id = ? AND (? OR released_at IS NULL) ORDER BY id", src, released)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's holds: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var h Hold
		if err := rows.Scan(&h.ID, &h.Kind, &h.Subject, &h.Reason, &h.By, &h.At, &h.ReleasedBy, &h.ReleasedAt); err != nil {
			return nil, fmt.Errorf("list the manifest's holds: %w", err)
		}
		all = append(all, h)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's holds: %w", err)
	}
	return all, nil
}
