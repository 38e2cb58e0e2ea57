package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"
)

// Check is a generation that somebody relies on, and when all of it was last read back:
// each live one, and the newest that was committed.
type Check struct {
	SliceKey
	SliceID    uint64     `json:"slice_id"`
	State      State      `json:"state"` // of the slice
	Generation uint32     `json:"generation"`
	Rows       uint64     `json:"rows"`
	Bytes      int64      `json:"bytes"`
	ReadAt     *time.Time `json:"read_at,omitempty"` // no part of it was read longer ago; nil: one never was
	GoodAt     *time.Time `json:"good_at,omitempty"` // the same of readings that found it equal
	Different  bool       `json:"different"`         // a part was another when it was last read
}

// toCome is a time that no reading can have been at: the clock was ahead then. Such a
// reading counts for none, else what it read would not be due until that time. Clocks that
// differ a little are no matter.
const toCome = "UTC_TIMESTAMP(6) + INTERVAL 5 MINUTE"

// Checks lists what is to be checked of the slices that a filter selects, the least
// recently read first.
func (s *Store) Checks(ctx context.Context, f Filter) (all []Check, err error) {
	if _, err := path.Match(f.Shard, ""); err != nil {
		return nil, fmt.Errorf("shard pattern %q: %w", f.Shard, err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	where, args := f.where(src)
	all, err = s.listChecks(ctx, where+" ORDER BY "+past("k.read_at")+" IS NOT NULL, k.read_at, s.day, s.db_name, s.table_name, c.generation", args...)
	if err != nil || f.Shard == "" {
		return all, err
	}
	return slices.DeleteFunc(all, func(c Check) bool {
		ok, _ := path.Match(f.Shard, c.Shard.String()) // the pattern was tried before
		return !ok
	}), nil
}

// past is a column of times without those to come.
func past(col string) string { return "IF(" + col + " > " + toCome + ", NULL, " + col + ")" }

// ObjectCheck is what was noted of one object apart from the others of its generation.
type ObjectCheck struct {
	SliceID    uint64
	Generation uint32
	Seq        int // its place in Copy.Objects
	Bytes      int64
	Part
}

// Part is what is known of a part of a generation: of an object, or of its rows in ClickHouse.
type Part struct {
	Read  *time.Time // last; nil: never
	Good  *time.Time // last time that it was equal
	Error string     // what was wrong when it was last read; "": nothing
}

func (s *Store) objectChecks(ctx context.Context, q reader, where string, args ...any) (all []ObjectCheck, err error) {
	rows, err := q.QueryContext(ctx, "SELECT o.slice_id, o.generation, o.seq, o.bytes, o.read_at, o.good_at, COALESCE(o.error, '') FROM object_checks o "+where+
		" ORDER BY o.slice_id, o.generation, o.seq", args...)
	if err != nil {
		return nil, fmt.Errorf("list what was checked when of objects: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var o ObjectCheck
		if err := rows.Scan(&o.SliceID, &o.Generation, &o.Seq, &o.Bytes, &o.Read, &o.Good, &o.Error); err != nil {
			return nil, fmt.Errorf("list what was checked when of objects: %w", err)
		}
		all = append(all, o)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list what was checked when of objects: %w", err)
	}
	return all, nil
}

// NoteChecked notes that all of a generation was read just now, and was equal.
func (s *Store) NoteChecked(ctx context.Context, sliceID uint64, generation uint32) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO checks (slice_id, generation, objects_at, rows_at, rows_good_at, read_at, good_at)
		SELECT ?, ?, n.t, n.t, n.t, n.t, n.t FROM (SELECT UTC_TIMESTAMP(6) AS t) n
		ON DUPLICATE KEY UPDATE objects_at = VALUES(objects_at), rows_at = VALUES(rows_at), rows_good_at = VALUES(rows_good_at), rows_error = NULL,
		read_at = VALUES(read_at), good_at = VALUES(good_at), different = 0`, sliceID, generation)
	if err == nil { // each of these was read again
		_, err = s.db.ExecContext(ctx, "DELETE FROM object_checks WHERE slice_id = ? AND generation = ?", sliceID, generation)
	}
	if err != nil {
		return fmt.Errorf("note that slice %d generation %d was checked: %w", sliceID, generation, err)
	}
	return nil
}

// CheckRound is a round of samples: each sample takes slices that were not read since the
// round began, in an order that the seed decides, until there are none.
type CheckRound struct {
	Seed  uint64    `json:"seed,string"`
	Begun time.Time `json:"begun"`
}

// CheckRound reads the round that is under way; nil: none.
func (s *Store) CheckRound(ctx context.Context) (*CheckRound, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	var r CheckRound
	err = s.db.QueryRowContext(ctx, "SELECT seed, begun_at FROM check_rounds WHERE source_id = ?", src).Scan(&r.Seed, &r.Begun)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // there is none before the first sample
	}
	if err != nil {
		return nil, fmt.Errorf("read the round of samples: %w", err)
	}
	return &r, nil
}

// NextCheckRound begins the round after a former one (nil: the first) and gives it. Where
// another process was first, it is that one's.
func (s *Store) NextCheckRound(ctx context.Context, former *CheckRound, next CheckRound) (*CheckRound, error) {
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return nil, err
	}
	if former == nil {
		_, err = s.db.ExecContext(ctx, "INSERT IGNORE INTO check_rounds (source_id, seed, begun_at) VALUES (?, ?, ?)", src, next.Seed, next.Begun.UTC())
	} else {
		_, err = s.db.ExecContext(ctx, "UPDATE check_rounds SET seed = ?, begun_at = ? WHERE source_id = ? AND begun_at = ? AND seed = ?",
			next.Seed, next.Begun.UTC(), src, former.Begun.UTC(), former.Seed)
	}
	if err != nil {
		return nil, fmt.Errorf("begin a round of samples: %w", err)
	}
	return s.CheckRound(ctx)
}
