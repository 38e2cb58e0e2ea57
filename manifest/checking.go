package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// CheckClaim is the right to read a generation back, until it is finished or runs out by
// the database's clock, so that no two read the same at once. What its owner notes counts
// also when it ran out: it was read. It is safe for concurrent use.
type CheckClaim struct {
	s          *Store
	id         uint64
	generation uint32
	token      uint64
	At         time.Time // when it was made, by the database's clock: what is noted counts as read then
	Rows       Part      // of ClickHouse

	objectsAt *time.Time
	objects   map[int]ObjectCheck
}

// Object is what is known of an object by its place in Copy.Objects.
func (c *CheckClaim) Object(seq int) Part {
	if o, ok := c.objects[seq]; ok {
		return o.Part
	}
	return Part{Read: c.objectsAt, Good: c.objectsAt}
}

// ClaimCheck claims a generation; ErrLeased while another reads it.
func (s *Store) ClaimCheck(ctx context.Context, sliceID uint64, generation uint32, owner string) (*CheckClaim, error) {
	c := &CheckClaim{s: s, id: sliceID, generation: generation, objects: map[int]ObjectCheck{}}
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT IGNORE INTO checks (slice_id, generation) VALUES (?, ?)", sliceID, generation); err != nil {
			return err
		}
		var until *time.Time
		var other string
		var taken bool
		if err := tx.QueryRowContext(ctx, "SELECT objects_at, rows_at, rows_good_at, COALESCE(rows_error, ''), claim_token, claim_until, claim_owner, "+
			"COALESCE(claim_until > UTC_TIMESTAMP(6), 0), UTC_TIMESTAMP(6) FROM checks WHERE slice_id = ? AND generation = ? FOR UPDATE", sliceID, generation).
			Scan(&c.objectsAt, &c.Rows.Read, &c.Rows.Good, &c.Rows.Error, &c.token, &until, &other, &taken, &c.At); err != nil {
			return err
		}
		if taken {
			return fmt.Errorf("%w: %s reads it back until %s", ErrLeased, other, until.Format(time.RFC3339))
		}
		if err := c.forgetToCome(ctx, tx); err != nil {
			return err
		}
		c.token++
		_, err := tx.ExecContext(ctx, "UPDATE checks SET claim_token = ?, claim_owner = ?, claim_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE slice_id = ? AND generation = ?",
			c.token, cut(owner, 255), micros(s.ttl), sliceID, generation)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim the check of slice %d generation %d: %w", sliceID, generation, err)
	}
	all, err := s.objectChecks(ctx, s.db, "WHERE o.slice_id = ? AND o.generation = ?", sliceID, generation)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		c.objects[o.Seq] = o
	}
	return c, nil
}

// forgetToCome drops readings that were noted while the clock was ahead.
func (c *CheckClaim) forgetToCome(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "UPDATE checks SET objects_at = "+past("objects_at")+", rows_good_at = "+past("rows_good_at")+", rows_at = "+past("rows_at")+", good_at = "+past("good_at")+
		", read_at = "+past("read_at")+" WHERE slice_id = ? AND generation = ?", c.id, c.generation); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM object_checks WHERE slice_id = ? AND generation = ? AND read_at > "+toCome, c.id, c.generation); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE object_checks SET good_at = NULL WHERE slice_id = ? AND generation = ? AND good_at > "+toCome, c.id, c.generation); err != nil {
		return err
	}
	return tx.QueryRowContext(ctx, "SELECT objects_at, rows_at, rows_good_at FROM checks WHERE slice_id = ? AND generation = ?", c.id, c.generation).Scan(&c.objectsAt, &c.Rows.Read, &c.Rows.Good)
}

// Keep renews the claim in the background until stop is called, which waits for its end.
// The context it gives ends with cause ErrLeaseLost when the claim is another's.
func (c *CheckClaim) Keep(ctx context.Context) (kept context.Context, stop func()) {
	kept, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(c.s.ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-kept.Done():
				return
			case <-tick.C:
			}
			once, end := context.WithTimeout(kept, max(c.s.ttl/3, time.Second))
			n, err := exec(once, c.s.db, "UPDATE checks SET claim_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE slice_id = ? AND generation = ? AND claim_token = ?",
				micros(c.s.ttl), c.id, c.generation, c.token)
			end()
			switch {
			case err == nil && n == 0:
				cancel(fmt.Errorf("%w: another reads slice %d generation %d back", ErrLeaseLost, c.id, c.generation))
				return
			case err != nil && kept.Err() == nil:
				c.s.log.WarnContext(ctx, "claim of a check not renewed, trying again", "slice", c.id, "generation", c.generation, "error", err)
			}
		}
	}()
	return kept, sync.OnceFunc(func() {
		cancel(context.Canceled)
		<-done
	})
}

// ObjectNote is what became of reading an object.
type ObjectNote struct {
	Seq   int
	Bytes int64
	Error string // "": it is as it was committed
}

const notesBatch = 500

// Note notes objects that were read. It may be called again and again, so that a reader
// that dies has not read in vain.
func (c *CheckClaim) Note(ctx context.Context, notes []ObjectNote) error {
	for len(notes) > 0 {
		some := notes[:min(len(notes), notesBatch)]
		notes = notes[len(some):]
		const one = "(?, ?, ?, ?, ?, ?, ?)"
		args := make([]any, 0, 7*len(some))
		for _, n := range some {
			good, text := &c.At, sql.NullString{}
			if n.Error != "" {
				good, text = nil, sql.NullString{String: cut(n.Error, maxError), Valid: true}
				if o := c.Object(n.Seq); o.Good != nil {
					good = o.Good
				}
			}
			args = append(args, c.id, c.generation, n.Seq, n.Bytes, c.At, good, text)
		}
		// What another has found since stands. read_at is set last: the others compare with it.
		const later = " = IF(VALUES(read_at) >= read_at, VALUES(%[1]s), %[1]s)"
		if _, err := c.s.db.ExecContext(ctx, "INSERT INTO object_checks (slice_id, generation, seq, bytes, read_at, good_at, error) VALUES "+one+strings.Repeat(", "+one, len(some)-1)+
			" ON DUPLICATE KEY UPDATE good_at"+fmt.Sprintf(later, "good_at")+", error"+fmt.Sprintf(later, "error")+", read_at"+fmt.Sprintf(later, "read_at"), args...); err != nil {
			return fmt.Errorf("note the check of %d objects of slice %d generation %d: %w", len(some), c.id, c.generation, err)
		}
	}
	return nil
}

// NoteRows notes that the rows in ClickHouse were read; problem is "" when they are those
// that were committed.
func (c *CheckClaim) NoteRows(ctx context.Context, problem string) error {
	good, text := &c.At, sql.NullString{}
	if problem != "" {
		good, text = c.Rows.Good, sql.NullString{String: cut(problem, maxError), Valid: true}
	}
	if _, err := c.s.db.ExecContext(ctx, "UPDATE checks SET rows_good_at = ?, rows_error = ?, rows_at = ? WHERE slice_id = ? AND generation = ? AND (rows_at IS NULL OR rows_at <= ?)",
		good, text, c.At, c.id, c.generation, c.At); err != nil {
		return fmt.Errorf("note the check of the ClickHouse rows of slice %d generation %d: %w", c.id, c.generation, err)
	}
	return nil
}

// Finish ends the claim, sums up what is known of the generation's objects, of which there
// are so many, and gives it. Notes of generations that nobody relies on any more are dropped.
func (c *CheckClaim) Finish(ctx context.Context, objects int) (sum Check, err error) {
	err = c.s.inTx(ctx, func(tx *sql.Tx) error {
		sum, err = c.sum(ctx, tx, objects)
		return err
	})
	if err == nil {
		err = c.forget(ctx)
	}
	if err != nil {
		return sum, fmt.Errorf("end the check of slice %d generation %d: %w", c.id, c.generation, err)
	}
	return sum, nil
}

func (c *CheckClaim) sum(ctx context.Context, tx *sql.Tx, objects int) (sum Check, err error) {
	sum = Check{SliceID: c.id, Generation: c.generation}
	var base *time.Time
	var rows Part
	if err := tx.QueryRowContext(ctx, "SELECT objects_at, rows_at, rows_good_at, COALESCE(rows_error, '') FROM checks WHERE slice_id = ? AND generation = ? FOR UPDATE", c.id, c.generation).
		Scan(&base, &rows.Read, &rows.Good, &rows.Error); err != nil {
		return sum, err
	}
	each, err := c.s.objectChecks(ctx, tx, "WHERE o.slice_id = ? AND o.generation = ?", c.id, c.generation)
	if err != nil {
		return sum, err
	}
	if objects == 0 {
		base = &c.At
	}
	parts := []Part{rows}
	var objectsAt []Part
	if len(each) < objects || objects == 0 {
		objectsAt = append(objectsAt, Part{Read: base, Good: base})
	}
	for _, o := range each {
		objectsAt = append(objectsAt, o.Part)
	}
	parts = append(parts, objectsAt...)
	for i, p := range parts {
		sum.Different = sum.Different || p.Error != ""
		sum.ReadAt, sum.GoodAt = least(sum.ReadAt, p.Read, i == 0), least(sum.GoodAt, p.Good, i == 0)
	}
	// Objects that were read together need one time for all of them.
	if all, _ := sumParts(objectsAt); all != nil {
		base = all
		if _, err := tx.ExecContext(ctx, "DELETE FROM object_checks WHERE slice_id = ? AND generation = ? AND error IS NULL AND read_at <= ?", c.id, c.generation, *all); err != nil {
			return sum, err
		}
	}
	_, err = tx.ExecContext(ctx, "UPDATE checks SET objects_at = ?, read_at = ?, good_at = ?, different = ?, claim_until = CASE WHEN claim_token = ? THEN NULL ELSE claim_until END "+
		"WHERE slice_id = ? AND generation = ?", base, sum.ReadAt, sum.GoodAt, sum.Different, c.token, c.id, c.generation)
	return sum, err
}

// sumParts is the least recent reading of parts; nil where one was never read, or is no
// longer what it was.
func sumParts(parts []Part) (at *time.Time, ok bool) {
	for i, p := range parts {
		if p.Error != "" || p.Good == nil {
			return nil, false
		}
		at = least(at, p.Good, i == 0)
	}
	return at, true
}

// least is the earlier of two times; nil is before all of them.
func least(a, b *time.Time, first bool) *time.Time {
	switch {
	case first:
		return b
	case a == nil || b == nil:
		return nil
	case b.Before(*a):
		return b
	}
	return a
}

// forget drops the notes of generations below the live one.
func (c *CheckClaim) forget(ctx context.Context) error {
	var live uint32
	err := c.s.db.QueryRowContext(ctx, "SELECT live_generation FROM slices WHERE id = ?", c.id).Scan(&live)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, table := range []string{"checks", "object_checks"} {
		if _, err := c.s.db.ExecContext(ctx, "DELETE FROM "+table+" WHERE slice_id = ? AND generation < ?", c.id, min(live, c.generation)); err != nil {
			return err
		}
	}
	return nil
}

// Release ends the claim and sums nothing up.
func (c *CheckClaim) Release(ctx context.Context) error {
	if _, err := c.s.db.ExecContext(ctx, "UPDATE checks SET claim_until = NULL WHERE slice_id = ? AND generation = ? AND claim_token = ?", c.id, c.generation, c.token); err != nil {
		return fmt.Errorf("release the check of slice %d generation %d: %w", c.id, c.generation, err)
	}
	return nil
}
