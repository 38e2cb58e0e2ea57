package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// mirroredHold is a hold, and whether the bucket has it as it is.
type mirroredHold struct {
	Hold
	mirrored bool
}

func (s *Store) allHolds(ctx context.Context) (map[uint64]mirroredHold, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+holdColumns+", h.mirrored FROM holds h WHERE h.source_id = ?", src)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's holds: %w", err)
	}
	defer func() { _ = rows.Close() }()
	all := map[uint64]mirroredHold{}
	for rows.Next() {
		var m mirroredHold
		if m.Hold, err = scanHold(func(into ...any) error { return rows.Scan(append(into, &m.mirrored)...) }); err != nil {
			return nil, fmt.Errorf("list the manifest's holds: %w", err)
		}
		all[m.ID] = m
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's holds: %w", err)
	}
	return all, nil
}

// holdVersion is the version of the form of holds in the bucket.
const holdVersion = 1

type holdObject struct {
	FormatVersion int `json:"format_version"`
	Hold
}

// EncodeHold writes a hold for the bucket.
func EncodeHold(h Hold) ([]byte, error) {
	b, err := json.Marshal(holdObject{holdVersion, h})
	if err != nil {
		return nil, fmt.Errorf("encode hold %d: %w", h.ID, err)
	}
	return b, nil
}

// DecodeHold reads a hold of the bucket.
func DecodeHold(b []byte) (Hold, error) {
	var o holdObject
	if err := json.Unmarshal(b, &o); err != nil {
		return Hold{}, fmt.Errorf("hold: %w: %w", ErrCorrupt, err)
	}
	if o.FormatVersion != holdVersion {
		return Hold{}, fmt.Errorf("hold of format version %d: this coldtier knows version %d: use a newer coldtier", o.FormatVersion, holdVersion)
	}
	if o.ID == 0 || o.Subject == "" || o.At.IsZero() {
		return Hold{}, fmt.Errorf("hold: %w: %w", ErrCorrupt, errors.New("its number, subject or time is missing"))
	}
	return o.Hold, nil
}

// Unmirrored counts what the manifest alone knows: what would be lost with it.
type Unmirrored struct {
	Holds    int `json:"holds"`
	Stops    int `json:"stops"`
	Statuses int `json:"statuses"`
	Purges   int `json:"purges"` // slices whose purge the bucket does not know of
}

// None says that the bucket has everything.
func (u Unmirrored) None() bool { return u == Unmirrored{} }

// unmarked selects slices s and their live copies c whose purge has no mark yet. purge_begun
// may be of a former generation; of one of those the carried rows of the next tell.
const unmarked = "FROM slices s JOIN copies c ON c.slice_id = s.id AND c.generation = s.live_generation " +
	"WHERE s.source_id = ? AND ((s.state = 'purged' AND c.marks & 2 = 0) OR (s.purge_begun = 1 AND c.marks & 3 = 0 " +
	"AND (s.state = 'purging' OR EXISTS (SELECT 1 FROM chunks x WHERE x.slice_id = s.id AND x.token = s.live_token AND x.state <> 'present'))))"

// Unmirrored counts what is not in the bucket yet.
func (s *Store) Unmirrored(ctx context.Context) (u Unmirrored, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return u, err
	}
	for query, into := range map[string]*int{"SELECT COUNT(*) FROM holds WHERE source_id = ? AND mirrored = 0": &u.Holds,
		"SELECT COUNT(*) FROM stops WHERE source_id = ? AND mirrored = 0":    &u.Stops,
		"SELECT COUNT(*) FROM statuses WHERE source_id = ? AND mirrored = 0": &u.Statuses, "SELECT COUNT(*) " + unmarked: &u.Purges} {
		if err := s.db.QueryRowContext(ctx, query, src).Scan(into); err != nil {
			return u, fmt.Errorf("count what is not in the bucket yet: %w", err)
		}
	}
	return u, nil
}

// UnmirroredHolds lists holds that the bucket does not have as they are.
func (s *Store) UnmirroredHolds(ctx context.Context) (list []Hold, err error) {
	all, err := s.allHolds(ctx)
	for _, h := range all {
		if !h.mirrored {
			list = append(list, h.Hold)
		}
	}
	return list, err
}

// Same says whether two are the same hold, whatever its number, and however it went on.
func (h Hold) Same(o Hold) bool {
	return h.Kind == o.Kind && h.Subject == o.Subject && h.By == o.By && h.At.Equal(o.At)
}

// Outlasts says whether a hold ends later than another, if it is not released before.
func (h Hold) Outlasts(o Hold) bool {
	return o.ExpiresAt != nil && (h.ExpiresAt == nil || h.ExpiresAt.After(*o.ExpiresAt))
}

// HoldMirrored notes that the bucket has the hold as it is given. One that was changed
// meanwhile is to be put again, also if someone else has put it: whose put was the last
// is not known.
func (s *Store) HoldMirrored(ctx context.Context, h Hold) error {
	if _, err := s.db.ExecContext(ctx, "UPDATE holds SET mirrored = (released_at <=> ? AND expires_at <=> ?) WHERE id = ?", utc(h.ReleasedAt), utc(h.ExpiresAt), h.ID); err != nil {
		return fmt.Errorf("note that hold %d is in the bucket: %w", h.ID, err)
	}
	return nil
}

// RemirrorHold notes that the bucket has to be given the hold once more.
func (s *Store) RemirrorHold(ctx context.Context, id uint64) error {
	if _, err := s.db.ExecContext(ctx, "UPDATE holds SET mirrored = 0 WHERE id = ?", id); err != nil {
		return fmt.Errorf("note that hold %d is to be put into the bucket again: %w", id, err)
	}
	return nil
}

// UnmirroredStatuses lists statuses as they were put that the bucket does not have, at most
// limit.
func (s *Store) UnmirroredStatuses(ctx context.Context, limit int) (all []Status, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+statusColumns+" FROM statuses FORCE INDEX (mirrored) WHERE source_id = ? AND mirrored = 0 LIMIT ?", src, limit)
	if err != nil {
		return nil, fmt.Errorf("list statuses that are not in the bucket yet: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		f, err := scanStatus(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("list statuses that are not in the bucket yet: %w", err)
		}
		all = append(all, f.Status)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list statuses that are not in the bucket yet: %w", err)
	}
	return all, nil
}

// MayMirror says whether StatusesMirrored will be allowed to note anything; else what is
// put into the bucket would be put again and again.
func (s *Store) MayMirror(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, "UPDATE statuses SET mirrored = 1 WHERE source_id = 0"); err != nil {
		return fmt.Errorf("note which statuses are in the bucket: %w", err)
	}
	return nil
}

// StatusesMirrored notes that the bucket has statuses as they are given. One that was put
// again meanwhile is not meant.
func (s *Store) StatusesMirrored(ctx context.Context, all []Status) error {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return err
	}
	const batch = 200
	for len(all) > 0 {
		some := all[:min(batch, len(all))]
		all = all[len(some):]
		args := []any{src}
		for _, st := range some {
			args = append(args, st.Conversation, st.MessageID, st.At.UTC())
		}
		// Not a row constructor with IN, for which MariaDB uses no index.
		const one = "(conversation = ? AND message_id = ? AND put_at = ?)"
		if _, err := s.db.ExecContext(ctx, "UPDATE statuses SET mirrored = 1 WHERE source_id = ? AND ("+one+strings.Repeat(" OR "+one, len(some)-1)+")", args...); err != nil {
			return fmt.Errorf("note that %d statuses are in the bucket: %w", len(some), err)
		}
	}
	return nil
}

// Unmarked lists slices whose purge the bucket does not know of, by their IDs from one on,
// at most limit.
func (s *Store) Unmarked(ctx context.Context, after uint64, limit int) (ids []uint64, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT s.id "+unmarked+" AND s.id > ? ORDER BY s.id LIMIT ?", src, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list slices without purge marks: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("list slices without purge marks: %w", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list slices without purge marks: %w", err)
	}
	return ids, nil
}

// Marked notes that the bucket has a purge mark of a generation of the lease's slice.
func (l *Lease) Marked(ctx context.Context, generation uint32, kind MarkKind) error {
	if _, err := l.s.db.ExecContext(ctx, "UPDATE copies SET marks = marks | ? WHERE slice_id = ? AND generation = ?", markBit(kind), l.id, generation); err != nil {
		return fmt.Errorf("note the purge mark of slice %s: %w", l.key, err)
	}
	return nil
}
