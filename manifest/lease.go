package manifest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"
)

// Lease is the right to work on one slice until it is released or runs out by the
// database's clock. Each claim of a slice has a greater token than all before, and
// each write under a lease is a compare-and-set on its token and its time, so that
// a worker that was paused beyond its lease can change nothing any more. It is
// safe for concurrent use.
type Lease struct {
	s       *Store
	id      uint64
	key     SliceKey
	token   uint64
	attempt string

	mu    sync.Mutex
	slice Slice // as it was when last written under this lease
	ended bool  // released, or the work is over
}

// fence selects slice s while it is leased under a token. Arguments: id, token.
const fence = "s.id = ? AND s.lease_token = ? AND s.lease_until > UTC_TIMESTAMP(6)"

// renewed sets a lease's new end. Argument: microseconds.
const renewed = "s.lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"

// mayClaim says whether a claim may change the state so.
func mayClaim(from, to State) bool {
	return from == to || from == Pending && to == Copying
}

// Claim leases a slice to owner if it is in one of the wanted states and no one
// else holds a lease on it, and moves it to state to. Allowed are pending ->
// copying and, for work that a dead worker left or that is done within a state, to
// stay: to equal to the present state, or empty. Otherwise it is ErrState, and
// ErrLeased while another's lease lasts.
func (s *Store) Claim(ctx context.Context, id uint64, owner string, want []State, to State) (*Lease, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	owner = cut(owner, 255)
	l := &Lease{s: s, id: id}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		row := tx.QueryRowContext(ctx, "SELECT "+sliceColumns+", s.lease_token, COALESCE(s.lease_until > UTC_TIMESTAMP(6), 0) FROM slices s WHERE s.id = ? AND s.source_id = ? FOR UPDATE", id, src)
		var leased bool
		sl, err := s.scanSlice(row.Scan, &l.token, &leased)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		// With the row locked: BeginRebuild looks for leases once it has said that it begins.
		if err := s.notRebuilding(ctx, tx); err != nil {
			return err
		}
		next := to
		if next == "" {
			next = sl.State
		}
		switch {
		case leased:
			return fmt.Errorf("%s: %w: %s until %s", sl.SliceKey, ErrLeased, sl.LeaseOwner, sl.LeaseUntil.Format(time.RFC3339))
		case !slices.Contains(want, sl.State) || !mayClaim(sl.State, next):
			return fmt.Errorf("%s: %w: it is %s, wanted %v to become %q", sl.SliceKey, ErrState, sl.State, want, to)
		}
		n, err := exec(ctx, tx, "UPDATE slices s SET s.lease_token = ?, s.lease_owner = ?, s.state = ?, "+renewed+" WHERE s.id = ? AND s.lease_token = ?",
			l.token+1, owner, string(next), micros(s.ttl), id, l.token)
		if err == nil && n != 1 {
			err = ErrLeased
		}
		l.token++
		sl.State, sl.LeaseOwner = next, owner
		l.slice, l.key = sl, sl.SliceKey
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim slice %d: %w", id, err)
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	l.attempt = fmt.Sprintf("%d-%s", l.token, hex.EncodeToString(b[:]))
	sl, err := s.Slice(ctx, id) // for Held and LeaseUntil
	if err != nil {
		return nil, fmt.Errorf("claim slice %d: %w", id, err)
	}
	l.slice.Held, l.slice.LeaseUntil = sl.Held, sl.LeaseUntil
	return l, nil
}

// cut shortens a text to n bytes of valid UTF-8.
func cut(text string, n int) string {
	if len(text) > n {
		text = text[:n]
		for len(text) > 0 {
			if r, size := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || size != 1 {
				break
			}
			text = text[:len(text)-1]
		}
	}
	return text
}

// Token is the lease's fencing token. It grows with each claim of the slice.
func (l *Lease) Token() uint64 { return l.token }

// Attempt is unique to this lease: the token and 64 random bits.
func (l *Lease) Attempt() string { return l.attempt }

// Slice is the slice as it was when this lease last wrote it.
func (l *Lease) Slice() Slice {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slice
}

func (l *Lease) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
}

func (l *Lease) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// update notes in the lease what was written.
func (l *Lease) update(change func(*Slice)) {
	l.mu.Lock()
	change(&l.slice)
	l.mu.Unlock()
}

// write runs one fenced UPDATE. When it finds no row it says why: ErrLeaseLost, or
// what the state says. set and where speak of slice s.
func (l *Lease) write(ctx context.Context, q reader, set string, setArgs []any, where string, whereArgs ...any) error {
	args := slices.Concat(setArgs, []any{l.id, l.token}, whereArgs)
	if where != "" {
		where = " AND " + where
	}
	n, err := exec(ctx, q, "UPDATE slices s SET "+set+" WHERE "+fence+where, args...)
	if err != nil {
		return err
	}
	if n == 0 {
		return l.why(ctx, q)
	}
	return nil
}

// why says why a fenced write found no row.
func (l *Lease) why(ctx context.Context, q reader) error {
	var token uint64
	var alive, held bool
	sl, err := l.s.scanSlice(q.QueryRowContext(ctx, "SELECT "+sliceColumns+", s.lease_token, COALESCE(s.lease_until > UTC_TIMESTAMP(6), 0), "+heldSQL+
		" FROM slices s WHERE s.id = ?", l.id).Scan, &token, &alive, &held)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case err != nil:
		return err
	case token != l.token:
		return fmt.Errorf("%w: another worker (%s) has token %d, this one %d", ErrLeaseLost, sl.LeaseOwner, token, l.token)
	case !alive && sl.LeaseUntil == nil && !l.over():
		return &endedError{slice: sl}
	case !alive:
		return fmt.Errorf("%w: it ran out or was released (token %d)", ErrLeaseLost, l.token)
	}
	return &stateError{slice: sl, held: held}
}

// stateError is ErrState with the slice that was found.
type stateError struct {
	slice Slice
	held  bool
}

func (e *stateError) Error() string {
	return fmt.Sprintf("%v: it is %s, generation %d, live generation %d", ErrState, e.slice.State, e.slice.Generation, e.slice.Live)
}

func (e *stateError) Unwrap() error { return ErrState }

// endedError is ErrLeaseLost when the lease was ended under its own token, and no
// one has claimed the slice since: by a step whose answer was lost.
type endedError struct{ slice Slice }

func (e *endedError) Error() string { return ErrLeaseLost.Error() + ": it was released" }

func (e *endedError) Unwrap() error { return ErrLeaseLost }

// finish is write for a step that ends the lease. A step whose first answer was
// lost may be repeated: done says whether the slice is as it leaves it.
func (l *Lease) finish(done func(Slice) bool, step func() error) error {
	err := step()
	var e *endedError
	if errors.As(err, &e) && done(e.slice) {
		err = nil
	}
	if err != nil {
		return err
	}
	l.end()
	return nil
}

func inState(to State) func(Slice) bool { return func(s Slice) bool { return s.State == to } }

// Renew makes the lease last its whole time again from now.
func (l *Lease) Renew(ctx context.Context) error {
	if err := l.write(ctx, l.s.db, renewed, []any{micros(l.s.ttl)}, ""); err != nil {
		return fmt.Errorf("renew the lease on slice %s: %w", l.key, err)
	}
	return nil
}

// Release ends the lease. The slice must be in state to already, or be in copying
// with to pending: the copy was given up. A lease that Reopen, Fail or a grant has
// ended is left alone.
func (l *Lease) Release(ctx context.Context, to State) error {
	if l.over() {
		return nil
	}
	if err := l.finish(inState(to), func() error {
		return l.write(ctx, l.s.db, "s.lease_until = NULL, s.state = ?", []any{string(to)}, "(s.state = ? OR (s.state = 'copying' AND ? = 'pending'))", string(to), string(to))
	}); err != nil {
		return fmt.Errorf("release slice %s as %s: %w", l.key, to, err)
	}
	l.update(func(s *Slice) { s.State = to })
	return nil
}

// Keep renews the lease in the background until stop is called, which waits for
// its end. The context it gives ends with cause ErrLeaseLost as soon as the lease
// is another's, or could not be renewed for as long as it lasts.
func (l *Lease) Keep(ctx context.Context) (kept context.Context, stop func()) {
	return keeper{s: l.s, what: "slice " + l.key.String(), renew: l.Renew, over: l.over, lost: ErrLeaseLost}.keep(ctx)
}
