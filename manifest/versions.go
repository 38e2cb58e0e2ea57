package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Versions are numbers by which a reader sees whether what it keeps is still so. A
// number that is as it was says that nothing has changed; they mean nothing else. They
// come from the clock, so that a manifest that is set back to a backup does not use a
// number a second time for other contents.
type Versions struct {
	Live   uint64 // changes with whatever Segments and Boundaries give
	Status uint64 // changes with whatever Statuses gives
	Moves  uint64 // Moving.Version
}

// Versions reads both at once; the zero Versions when the source is unknown. Read them
// before what is to be kept under them: each changes in the transaction of the change.
func (s *Store) Versions(ctx context.Context) (v Versions, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT live_version, status_version, move_version FROM sources WHERE name = ?", s.source).Scan(&v.Live, &v.Status, &v.Moves)
	if errors.Is(err, sql.ErrNoRows) {
		return Versions{}, nil
	}
	if err != nil {
		return Versions{}, fmt.Errorf("read the versions of source %s in the manifest: %w", s.source, err)
	}
	return v, nil
}

const (
	liveVersion   = "live_version"
	statusVersion = "status_version"
	moveVersion   = "move_version"
)

// bump changes versions. All transactions of a source meet at this row: it must be a
// transaction's last statement, so that the row is locked for a moment only.
func (s *Store) bump(ctx context.Context, tx *sql.Tx, versions ...string) error {
	if len(versions) == 0 {
		return nil
	}
	var set []string
	for _, v := range versions {
		set = append(set, v+" = GREATEST("+v+" + 1, CAST(UNIX_TIMESTAMP(UTC_TIMESTAMP(6)) * 1000000 AS UNSIGNED))")
	}
	n, err := exec(ctx, tx, "UPDATE sources SET "+strings.Join(set, ", ")+" WHERE name = ?", s.source)
	if err == nil && n != 1 {
		err = fmt.Errorf("source %s: %w", s.source, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("change the versions of source %s in the manifest: %w", s.source, err)
	}
	return nil
}

// purgeBegun says whether a slice's purge_begun is set: whether warm may no longer hold
// all rows of its live generation. It is changed in transactions that bump liveVersion,
// by the holder of the slice's lease alone, or when the slice is purged.
func purgeBegun(ctx context.Context, tx *sql.Tx, id uint64) (begun bool, err error) {
	err = tx.QueryRowContext(ctx, "SELECT purge_begun FROM slices WHERE id = ?", id).Scan(&begun)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil // the write that follows says so
	}
	return begun, err
}

// Begun tells the verified slices of which warm may no longer have all rows, by their numbers.
func (s *Store) Begun(ctx context.Context) (map[uint64]bool, error) {
	fail := func(err error) (map[uint64]bool, error) {
		return nil, fmt.Errorf("list the slices of the manifest that a purge was begun on: %w", err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return fail(err)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT id FROM slices WHERE source_id = ? AND purge_begun = 1 AND state = 'verified'", src)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	begun := map[uint64]bool{}
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return fail(err)
		}
		begun[id] = true
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return begun, nil
}

// beginPurge runs a write that sets a slice's purge_begun; it says whether it did.
func (s *Store) beginPurge(ctx context.Context, id uint64, write func(tx *sql.Tx) (bool, error)) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		begun, err := purgeBegun(ctx, tx, id)
		if err != nil {
			return err
		}
		set, err := write(tx)
		if err != nil || !set || begun {
			return err
		}
		return s.bump(ctx, tx, liveVersion)
	})
}

// untouched takes purge_begun back where the purge that ends took nothing: no chunk of
// the live generation was deleted, or may have been, and none holds rows that are nowhere
// else. Else what its users delete in warm would be given out of the cold copy until the
// next generation.
func (s *Store) untouched(ctx context.Context, tx *sql.Tx, id uint64) error {
	n, err := exec(ctx, tx, "UPDATE slices s SET s.purge_begun = 0 WHERE s.id = ? AND s.purge_begun = 1 AND s.staging = '' AND s.state <> 'purged' AND s.live_generation > 0 "+
		"AND NOT EXISTS (SELECT 1 FROM chunks c WHERE c.slice_id = s.id AND c.token = s.live_token AND (c.state <> 'present' OR c.carried_rows > 0))", id)
	if err != nil || n == 0 {
		return err
	}
	return s.bump(ctx, tx, liveVersion)
}
