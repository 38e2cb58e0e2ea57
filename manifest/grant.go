package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// PurgeGrant is the right to delete one slice's rows from warm. Only GrantPurge
// makes one that works; all methods of any other value are ErrState. It is safe
// for concurrent use.
type PurgeGrant struct {
	l     *Lease
	copy  *Copy
	token uint64 // of the copy's rows
	plan  string // by which it was made; "" where none is needed

	mu    sync.Mutex
	began map[int]bool // chunks that this grant moved from present to deleting
}

// mayPurge are the conditions under which rows may go, but for the lag. The
// newest generation must be the live one: a newer one says that warm has changed.
const mayPurge = "s.live_generation > 0 AND s.live_generation = s.generation AND NOT " + heldSQL + " AND NOT " + stoppedSQL

// permitted is mayPurge, and that a plan allows it or none is needed.
func permitted(plan string) (cond string, args []any) {
	if plan == "" {
		return mayPurge + " AND " + freeSQL, nil
	}
	return mayPurge + " AND " + approvedSQL, []any{plan}
}

// GrantPurge moves a verified slice to purging, if its lag is over by the
// database's clock and neither a hold nor a stop forbids it: else ErrLag, ErrHeld,
// ErrStopped or ErrState. A
// slice that is in purging already (its worker died) gets a grant on the same
// conditions, and keeps the states of its chunks and the name of its staging table.
// Where the manifest's policy requires an approval it is ErrUnapproved: see GrantPlanned.
func (s *Store) GrantPurge(ctx context.Context, l *Lease, lag time.Duration) (*PurgeGrant, error) {
	return s.grant(ctx, l, lag, "")
}

// GrantPlanned is GrantPurge by a plan that was approved: ErrUnapproved unless it is in
// force and lists the slice exactly as it is now. Revoked or expired later, it allows
// nothing more: Check fails.
func (s *Store) GrantPlanned(ctx context.Context, l *Lease, lag time.Duration, plan string) (*PurgeGrant, error) {
	if plan == "" {
		return nil, fmt.Errorf("grant the purge of slice %s: %w: no plan is named", l.key, ErrUnapproved)
	}
	return s.grant(ctx, l, lag, plan)
}

func (s *Store) grant(ctx context.Context, l *Lease, lag time.Duration, plan string) (*PurgeGrant, error) {
	fail := func(err error) (*PurgeGrant, error) {
		return nil, fmt.Errorf("grant the purge of slice %s: %w", l.key, err)
	}
	if lag < 0 {
		return fail(fmt.Errorf("a lag of %s", lag))
	}
	const over = "s.verified_at + INTERVAL ? MICROSECOND <= UTC_TIMESTAMP(6)"
	may, args := permitted(plan)
	var refused error // what a stop, the plan, or that there is none, has against it
	err := s.beginPurge(ctx, l.id, func(tx *sql.Tx) (bool, error) {
		refused = nil
		err := l.write(ctx, tx, "s.state = 'purging', s.purge_begun = 1, "+renewed, []any{micros(s.ttl)}, "s.state IN ('verified', 'purging') AND "+over+" AND "+may, append([]any{micros(lag)}, args...)...)
		switch {
		case errors.Is(err, ErrState):
			refused = l.refused(ctx, tx, plan)
		case err == nil && plan != "":
			err = l.sameSum(ctx, tx, plan)
		}
		return true, err
	})
	var st *stateError
	if errors.As(err, &st) {
		sl := st.slice
		switch {
		case sl.State != Verified && sl.State != Purging:
		case sl.Live == 0 || sl.Live != sl.Generation || sl.VerifiedAt == nil:
		case st.held:
			err = fmt.Errorf("%w: slice %s", ErrHeld, sl.SliceKey)
		case refused != nil:
			err = refused
		default:
			err = fmt.Errorf("%w: verified at %s, the lag is %s", ErrLag, sl.VerifiedAt.Format(time.RFC3339), lag)
		}
	}
	if err != nil {
		return fail(err)
	}
	now, err := s.Slice(ctx, l.id)
	if err != nil {
		return fail(err)
	}
	l.update(func(s *Slice) { *s = now })
	g := &PurgeGrant{l: l, plan: plan, began: map[int]bool{}}
	if g.copy, g.token, err = s.loadHead(ctx, now.ID, now.Live); err != nil {
		return fail(err)
	}
	return g, nil
}

// refused says which stop or plan, or that there is none, stands against a purge; nil when
// it is something else.
func (l *Lease) refused(ctx context.Context, q reader, plan string) error {
	stops, err := l.s.Stops(ctx, false)
	if err != nil {
		return err
	}
	for _, st := range stops {
		if st.Of(StopPurge) {
			return fmt.Errorf("slice %s: %w: %s: coldtier resume %s lets it go on", l.key, ErrStopped, st, st.Jobs)
		}
	}
	return l.unapproved(ctx, q, plan)
}

var errNoGrant = fmt.Errorf("%w: this purge grant was not made by GrantPurge", ErrState)

func (g *PurgeGrant) made() error {
	if g == nil || g.l == nil {
		return errNoGrant
	}
	return nil
}

func (g *PurgeGrant) fail(what string, err error) error {
	return fmt.Errorf("%s slice %s: %w", what, g.l.key, err)
}

// Slice is the slice that may be purged; the zero Slice if the grant is none.
func (g *PurgeGrant) Slice() Slice {
	if g.made() != nil {
		return Slice{}
	}
	return g.l.Slice()
}

// Copy is the live generation, without its objects, with the states of its chunks
// when the grant was made; nil if the grant is none. Do not change it.
func (g *PurgeGrant) Copy() *Copy {
	if g.made() != nil {
		return nil
	}
	return g.copy
}

// Check renews the lease if the grant still holds: the lease, the state and the
// generations are as they were, there is no hold and no stop, and the plan by which it
// was made is in force. Call it as the last thing before what cannot be undone.
func (g *PurgeGrant) Check(ctx context.Context) error {
	if err := g.made(); err != nil {
		return err
	}
	may, args := permitted(g.plan)
	if err := g.write(ctx, g.l.s.db, renewed, []any{micros(g.l.s.ttl)}, may, args...); err != nil {
		return g.fail("check the purge of", err)
	}
	return nil
}

// write is a fenced UPDATE of the slice while it is being purged.
func (g *PurgeGrant) write(ctx context.Context, q reader, set string, args []any, where string, whereArgs ...any) error {
	cond := "s.state = 'purging' AND s.live_generation = ?"
	if where != "" {
		cond += " AND " + where
	}
	err := g.l.write(ctx, q, set, args, cond, append([]any{g.copy.Generation}, whereArgs...)...)
	var st *stateError
	if errors.As(err, &st) && st.held && st.slice.State == Purging {
		return fmt.Errorf("%w: slice %s", ErrHeld, st.slice.SliceKey)
	}
	if st != nil && st.slice.State == Purging && st.slice.Live == g.copy.Generation {
		if refused := g.l.refused(ctx, q, g.plan); refused != nil {
			return refused
		}
	}
	return err
}

// ChunkState notes what is known of a chunk: ChunkDeleting before its delete is
// begun, ChunkDeleted after it was committed, and ChunkPresent again only if this
// grant has begun it and it provably deleted nothing. In doubt it stays deleting.
func (g *PurgeGrant) ChunkState(ctx context.Context, seq int, st ChunkState) error {
	if err := g.made(); err != nil {
		return err
	}
	if seq < 0 || seq >= len(g.copy.Chunks) {
		return g.fail("purge", fmt.Errorf("it has no chunk %d", seq))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var from string
	switch {
	case st == ChunkDeleting:
		from = "IN ('present', 'deleting')"
	case st == ChunkDeleted:
		from = "IN ('deleting', 'deleted')"
	case st == ChunkPresent && g.began[seq]:
		from = "IN ('deleting', 'present')"
	default:
		return g.fail("purge", fmt.Errorf("chunk %d to %q: %w: its delete was not begun by this grant", seq, st, ErrState))
	}
	err := g.l.s.inTx(ctx, func(tx *sql.Tx) error {
		if err := g.write(ctx, tx, renewed, []any{micros(g.l.s.ttl)}, ""); err != nil {
			return err
		}
		var was ChunkState
		if err := tx.QueryRowContext(ctx, "SELECT state FROM chunks WHERE slice_id = ? AND token = ? AND seq = ?", g.l.id, g.token, seq).Scan(&was); err != nil {
			return err
		}
		n, err := exec(ctx, tx, "UPDATE chunks SET state = ?, staged = 0 WHERE slice_id = ? AND token = ? AND seq = ? AND state "+from, string(st), g.l.id, g.token, seq)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: it is %s", ErrState, was)
		}
		if was == ChunkPresent && st == ChunkDeleting {
			g.began[seq] = true
		}
		return nil
	})
	if err != nil {
		return g.fail("purge", fmt.Errorf("chunk %d to %s: %w", seq, st, err))
	}
	if st != ChunkDeleting {
		delete(g.began, seq)
	}
	return nil
}

// Staging notes, before a partition is exchanged, the table that it is exchanged
// with: the rows of all chunks are then as good as deleted, and their states say
// deleting. An empty name notes that every row of the staging table is provably
// back in the warm table; see Lease.StagingReturned.
func (g *PurgeGrant) Staging(ctx context.Context, table string) error {
	if err := g.made(); err != nil {
		return err
	}
	if table == "" {
		return g.l.StagingReturned(ctx)
	}
	if len(table) > 64 {
		return g.fail("purge", fmt.Errorf("staging table name %q: at most 64 bytes", table))
	}
	err := g.l.s.inTx(ctx, func(tx *sql.Tx) error {
		may, args := permitted(g.plan)
		if err := g.write(ctx, tx, "s.staging = ?, "+renewed, []any{table, micros(g.l.s.ttl)}, may+" AND s.staging IN ('', ?)", append(args, table)...); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE chunks SET state = 'deleting', staged = 1 WHERE slice_id = ? AND token = ? AND state = 'present'", g.l.id, g.token); err != nil {
			return err
		}
		return g.l.s.bump(ctx, tx, moveVersion)
	})
	if err != nil {
		return g.fail("note staging table "+table+" of", err)
	}
	g.l.update(func(s *Slice) { s.Staging = table })
	return nil
}

// Purged ends the purge and the lease: state purged. All chunks must be deleted;
// with a staging table noted the caller says that it was dropped, and all chunks
// become deleted.
func (g *PurgeGrant) Purged(ctx context.Context) error {
	if err := g.made(); err != nil {
		return err
	}
	err := g.l.finish(inState(Purged), func() error { return g.l.s.inTx(ctx, func(tx *sql.Tx) error { return g.purged(ctx, tx) }) })
	if err != nil {
		return g.fail("end the purge of", err)
	}
	g.l.update(func(s *Slice) { s.State, s.Staging = Purged, "" })
	return nil
}

func (g *PurgeGrant) purged(ctx context.Context, tx *sql.Tx) error {
	id := g.l.id
	var staging string
	if err := g.write(ctx, tx, renewed, []any{micros(g.l.s.ttl)}, ""); err != nil { // locks the slice
		return err
	}
	if err := tx.QueryRowContext(ctx, "SELECT staging FROM slices WHERE id = ?", id).Scan(&staging); err != nil {
		return err
	}
	if staging != "" {
		if _, err := tx.ExecContext(ctx, "UPDATE chunks SET state = 'deleted' WHERE slice_id = ? AND token = ? AND state = 'deleting'", id, g.token); err != nil {
			return err
		}
	}
	var left int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM chunks WHERE slice_id = ? AND token = ? AND state <> 'deleted'", id, g.token).Scan(&left); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%w: %d chunks are not deleted", ErrState, left)
	}
	return g.write(ctx, tx, "s.state = 'purged', s.purged_at = UTC_TIMESTAMP(6), s.staging = '', s.failed = 0, s.error = NULL, s.tries = 0, s.lease_until = NULL", nil, "")
}

// Drifted sends the slice back to pending, since warm no longer holds what was
// archived, and ends the lease. The states of the chunks stay, for the next
// generation must carry on the rows of those that are deleted or in doubt. A
// staging table must have been returned before.
func (g *PurgeGrant) Drifted(ctx context.Context, detail string) error {
	if err := g.made(); err != nil {
		return err
	}
	detail = cut(detail, maxError)
	if err := g.l.finish(inState(Pending), func() error {
		return g.l.s.inTx(ctx, func(tx *sql.Tx) error {
			if err := g.write(ctx, tx, "s.state = 'pending', s.reason = 'drifted', s.error = ?, s.verified_at = NULL, s.lease_until = NULL", []any{detail}, "s.staging = ''"); err != nil {
				return err
			}
			return g.l.s.untouched(ctx, tx, g.l.id)
		})
	}); err != nil {
		return g.fail("note the drift of", err)
	}
	g.l.update(func(s *Slice) { s.State, s.Reason, s.Error, s.VerifiedAt = Pending, ReasonDrifted, detail, nil })
	return nil
}

// Marked notes that the bucket has a purge mark of the generation.
func (g *PurgeGrant) Marked(ctx context.Context, kind MarkKind) error {
	if err := g.made(); err != nil {
		return err
	}
	return g.l.Marked(ctx, g.copy.Generation, kind)
}

// GiveBack is Lease.GiveBack.
func (g *PurgeGrant) GiveBack(ctx context.Context) error {
	if err := g.made(); err != nil {
		return err
	}
	return g.l.GiveBack(ctx)
}

// GiveBack sends a slice in purging back to verified and ends the lease: the purge
// stopped, and goes on another time. Chunks keep their states. A staging table
// must have been returned before. It deletes nothing, so it needs no grant.
func (l *Lease) GiveBack(ctx context.Context) error {
	if err := l.finish(inState(Verified), func() error {
		return l.s.inTx(ctx, func(tx *sql.Tx) error {
			if err := l.write(ctx, tx, "s.state = 'verified', s.lease_until = NULL", nil, "s.state = 'purging' AND s.staging = ''"); err != nil {
				return err
			}
			return l.s.untouched(ctx, tx, l.id)
		})
	}); err != nil {
		return fmt.Errorf("give back slice %s: %w", l.key, err)
	}
	l.update(func(s *Slice) { s.State = Verified })
	return nil
}

// StagingReturned notes that every row of the staging table is provably back in
// the warm table: its name is forgotten and the chunks that became deleting for
// its sake are present again. It deletes nothing, so it needs no grant: a slice
// that was held or whose lag was lengthened meanwhile gets none.
func (l *Lease) StagingReturned(ctx context.Context) error {
	id := l.id
	err := l.s.inTx(ctx, func(tx *sql.Tx) error {
		if err := l.write(ctx, tx, "s.staging = '', "+renewed, []any{micros(l.s.ttl)}, "s.state = 'purging'"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE chunks SET state = 'present', staged = 0 WHERE slice_id = ? AND staged = 1 AND state = 'deleting'", id); err != nil {
			return err
		}
		return l.s.bump(ctx, tx, moveVersion)
	})
	if err != nil {
		return fmt.Errorf("note the return of slice %s from staging: %w", l.key, err)
	}
	l.update(func(s *Slice) { s.Staging = "" })
	return nil
}
