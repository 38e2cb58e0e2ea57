package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// Verified makes a committed generation, which must be the newest, the live one:
// from now on it serves reads and the former no longer does, and the lag begins.
// The lease goes on.
func (s *Store) Verified(ctx context.Context, l *Lease, generation uint32) error {
	id := l.id
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		err := l.write(ctx, tx, "s.state = 'verified', s.live_generation = s.generation, s.live_token = s.copy_token, s.verified_at = UTC_TIMESTAMP(6), s.purged_at = NULL, "+
			"s.reason = '', s.failed = 0, s.error = NULL, s.tries = 0, s.interrupted = 0, s.tried_seconds = 0", nil, "s.state = 'committed' AND s.generation = ?", generation)
		var st *stateError
		if errors.As(err, &st) && st.slice.State == Verified && st.slice.Live == generation && st.slice.Generation == generation {
			return nil // the answer to an earlier call was lost
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE copies SET verified_at = UTC_TIMESTAMP(6) WHERE slice_id = ? AND generation = ?", id, generation); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE copies SET superseded_at = UTC_TIMESTAMP(6) WHERE slice_id = ? AND generation < ? AND superseded_at IS NULL", id, generation); err != nil {
			return err
		}
		return s.bump(ctx, tx, liveVersion)
	})
	if err != nil {
		return fmt.Errorf("mark slice %s generation %d verified: %w", l.key, generation, err)
	}
	now, err := s.Slice(ctx, id)
	if err != nil {
		return fmt.Errorf("mark slice %s generation %d verified: %w", l.key, generation, err)
	}
	l.update(func(s *Slice) { *s = now })
	return nil
}

const maxError = 4000

// Reopen sends a slice back to pending to be copied again as its next generation
// and ends the lease; the live generation serves on. From copying, committed or
// verified.
func (s *Store) Reopen(ctx context.Context, l *Lease, reason string) error {
	if !slices.Contains([]string{ReasonDrifted, ReasonLate, ReasonMismatch}, reason) {
		return fmt.Errorf("reopen slice %s: reason %q is unknown", l.key, reason)
	}
	if err := l.finish(inState(Pending), func() error {
		return l.write(ctx, s.db, "s.state = 'pending', s.reason = ?, s.verified_at = NULL, s.lease_until = NULL", []any{reason},
			"s.state IN ('copying', 'committed', 'verified')")
	}); err != nil {
		return fmt.Errorf("reopen slice %s: %w", l.key, err)
	}
	l.update(func(s *Slice) { s.State, s.Reason, s.VerifiedAt = Pending, reason, nil })
	return nil
}

// Fail notes that a try failed and ends the lease. A slice in copying goes back to
// pending, any other stays as it is.
func (s *Store) Fail(ctx context.Context, l *Lease, cause error) error {
	text := cut(cause.Error(), maxError)
	if err := l.finish(func(s Slice) bool { return s.Failed }, func() error {
		return l.write(ctx, s.db, "s.failed = 1, s.error = ?, s.tries = s.tries + 1, s.lease_until = NULL, s.state = CASE WHEN s.state = 'copying' THEN 'pending' ELSE s.state END",
			[]any{text}, "")
	}); err != nil {
		return fmt.Errorf("note the failure of slice %s: %w", l.key, err)
	}
	l.update(func(s *Slice) {
		s.Failed, s.Error, s.Tries = true, text, s.Tries+1
		if s.State == Copying {
			s.State = Pending
		}
	})
	return nil
}

// ReopenLate sends a purged slice in whose range rows have turned up back to
// pending; its next generation must hold all that the live one holds.
func (s *Store) ReopenLate(ctx context.Context, sliceID uint64) error {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return err
	}
	// A purged slice has purge_begun, unless a coldtier purged it that did not know the column.
	var n int64
	err = s.beginPurge(ctx, sliceID, func(tx *sql.Tx) (bool, error) {
		n, err = exec(ctx, tx, "UPDATE slices SET state = 'pending', reason = ?, verified_at = NULL, purged_at = NULL, purge_begun = 1 WHERE id = ? AND source_id = ? AND state = 'purged' "+
			"AND (lease_until IS NULL OR lease_until <= UTC_TIMESTAMP(6))", ReasonLate, sliceID, src)
		return n == 1, err
	})
	if err != nil {
		return fmt.Errorf("reopen slice %d: %w", sliceID, err)
	}
	if n == 1 {
		return nil
	}
	sl, err := s.Slice(ctx, sliceID)
	switch {
	case err != nil:
		return fmt.Errorf("reopen slice %d: %w", sliceID, err)
	case sl.State == Pending && sl.Reason == ReasonLate:
		return nil // another run was first
	case sl.State == Purged:
		return fmt.Errorf("reopen slice %s: %w", sl.SliceKey, ErrLeased)
	}
	return fmt.Errorf("reopen slice %s: %w: it is %s, wanted purged", sl.SliceKey, ErrState, sl.State)
}
