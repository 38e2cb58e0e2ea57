package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ErrWorkedOff says that an occurrence of a job's schedule, or a later one, was done already.
var ErrWorkedOff = errors.New("the schedule was worked off beyond it")

// ErrEarly says that an occurrence is still to come by the database's clock.
var ErrEarly = errors.New("by the database's clock it is still to come")

// maxAhead is how far a mark or an occurrence may be ahead of the database's clock: a little
// more than the skew of clocks at which jobs refuse to work.
const maxAhead = 2 * time.Minute

// believeMark corrects a mark in the future, which a clock that was wrong has set: were it
// believed, the job would not run until then. It is written, not only read so: a mark that
// moved with the time would be after every occurrence that has come.
const believeMark = "UPDATE job_leases SET mark = UTC_TIMESTAMP(6) WHERE source_id = ? AND name = ? AND mark > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"

// JobClaim says which lease is wanted, and for whom.
type JobClaim struct {
	Name  string // of the lease; at most one process has it
	Owner string
	// Own says that no other process takes a lease of this name, ever: it only tells that its
	// process lives, and is deleted with its release, or some time after its process was killed.
	Own bool
	// Scheduled is the occurrence of the job's schedule that the work is for; zero: none.
	Scheduled time.Time
}

// JobLease is the right to do a job, until it is released or another has it. It runs out by
// the database's clock. Each claim of the name has a greater fence than all before. It is
// safe for concurrent use.
type JobLease struct {
	s     *Store
	src   uint32
	name  string
	fence uint64
	own   bool
}

// ClaimJob takes a job's lease. It is ErrLeased while another process has it; with an
// occurrence it is ErrWorkedOff when that was done, and ErrEarly when it is still to come.
func (s *Store) ClaimJob(ctx context.Context, c JobClaim) (*JobLease, error) {
	if c.Name == "" || len(c.Name) > 255 {
		return nil, fmt.Errorf("claim the lease of job %q: want a name of 1 to 255 bytes", c.Name)
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return nil, err
	}
	if c.Own {
		if err := s.forgetDead(ctx, src); err != nil {
			return nil, fmt.Errorf("claim the lease of job %s in the manifest: %w", c.Name, err)
		}
	}
	l := &JobLease{s: s, src: src, name: c.Name, own: c.Own}
	var scheduled any // NULL: no comparison with it is true
	if !c.Scheduled.IsZero() {
		scheduled = c.Scheduled.UTC()
	}
	// By itself: it shares a lock on a row that is there, which two claims could not both make
	// their own afterwards.
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT IGNORE INTO job_leases (source_id, name, own) VALUES (?, ?, ?)", src, c.Name, c.Own)
		return err
	})
	if err == nil && scheduled != nil {
		_, err = s.db.ExecContext(ctx, believeMark, src, c.Name, micros(maxAhead))
	}
	if err != nil {
		return nil, fmt.Errorf("claim the lease of job %s in the manifest: %w", c.Name, err)
	}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		var owner string
		var until, mark sql.NullTime
		var leased, done, early bool
		err := tx.QueryRowContext(ctx, "SELECT owner, fence, until, COALESCE(until > UTC_TIMESTAMP(6), 0), mark, COALESCE(mark >= ?, 0), "+
			"COALESCE(? > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, 0) FROM job_leases WHERE source_id = ? AND name = ? FOR UPDATE",
			scheduled, scheduled, micros(maxAhead), src, c.Name).Scan(&owner, &l.fence, &until, &leased, &mark, &done, &early)
		switch {
		case err != nil:
			return err
		case done:
			return fmt.Errorf("%s: %w: up to %s", c.Scheduled.Format(time.RFC3339), ErrWorkedOff, mark.Time.Format(time.RFC3339))
		case early:
			return fmt.Errorf("%s: %w: set the clock of this machine (NTP)", c.Scheduled.Format(time.RFC3339), ErrEarly)
		case leased:
			return fmt.Errorf("%w: %s until %s", ErrLeased, owner, until.Time.Format(time.RFC3339))
		}
		n, err := exec(ctx, tx, "UPDATE job_leases SET owner = ?, fence = ?, own = ?, until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE source_id = ? AND name = ? AND fence = ?",
			cut(c.Owner, 255), l.fence+1, c.Own, micros(s.ttl), src, c.Name, l.fence)
		if err == nil && n != 1 {
			err = ErrLeased
		}
		l.fence++
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim the lease of job %s in the manifest: %w", c.Name, err)
	}
	return l, nil
}

// ownForgotten is for how long the lease of a process that was killed is kept, where no other
// takes one of its name: longer than one sleeps that then goes on.
const ownForgotten = 30 * 24 * time.Hour

// forgetDead deletes such leases. By name, so that it meets no lock of those that are in use.
func (s *Store) forgetDead(ctx context.Context, src uint32) error {
	const dead = " AND own = 1 AND until < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"
	rows, err := s.db.QueryContext(ctx, "SELECT name FROM job_leases WHERE source_id = ?"+dead+" LIMIT 100", src, micros(ownForgotten))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	args := []any{src}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		args = append(args, name)
	}
	if err := rows.Err(); err != nil || len(args) == 1 {
		return err
	}
	_, err = s.db.ExecContext(ctx, "DELETE FROM job_leases WHERE source_id = ? AND name IN ("+placeholders(len(args)-1)+")"+dead, append(args, micros(ownForgotten))...)
	return err
}

// Fence is the lease's fencing number. It grows with each claim of the name, but for names
// that are one process's own.
func (l *JobLease) Fence() uint64 { return l.fence }

// LeaseTTL is how long a lease lasts that is not renewed.
func (s *Store) LeaseTTL() time.Duration { return s.ttl }

// Renew makes the lease last its whole time again from now. One that ran out is revived if
// nobody has claimed it since, which the fence tells; else it is ErrLeaseLost.
func (l *JobLease) Renew(ctx context.Context) error {
	return l.write(ctx, "renew", "UPDATE job_leases SET until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND", micros(l.s.ttl))
}

// Release ends the lease. done, if it is not zero, is up to when the job's schedule is done;
// what is in the future by the database's clock is up to now.
func (l *JobLease) Release(ctx context.Context, done time.Time) error {
	if l.own {
		return l.write(ctx, "release", "DELETE FROM job_leases")
	}
	var mark any
	if !done.IsZero() {
		mark = done.UTC()
	}
	return l.write(ctx, "release", "UPDATE job_leases SET until = NULL, mark = COALESCE(CASE WHEN ? > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND THEN UTC_TIMESTAMP(6) ELSE ? END, mark)", mark, micros(maxAhead), mark)
}

// write runs one fenced statement.
func (l *JobLease) write(ctx context.Context, verb, statement string, args ...any) error {
	n, err := exec(ctx, l.s.db, statement+" WHERE source_id = ? AND name = ? AND fence = ? AND until IS NOT NULL", append(args, l.src, l.name, l.fence)...)
	if err == nil && n == 0 {
		err = l.why(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s the lease of job %s: %w", verb, l.name, err)
	}
	return nil
}

// why says why a fenced statement found no row.
func (l *JobLease) why(ctx context.Context) error {
	var owner string
	var fence uint64
	switch err := l.s.db.QueryRowContext(ctx, "SELECT owner, fence FROM job_leases WHERE source_id = ? AND name = ?", l.src, l.name).Scan(&owner, &fence); {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: it was released (fence %d)", ErrLeaseLost, l.fence)
	case err != nil:
		return err
	case fence != l.fence:
		return fmt.Errorf("%w: another process (%s) has fence %d, this one %d", ErrLeaseLost, owner, fence, l.fence)
	}
	return fmt.Errorf("%w: it was released (fence %d)", ErrLeaseLost, l.fence)
}

// JobMark is up to when a job's schedule was done, by the name of its lease. One that was
// never asked for is done up to now, since nothing before was to be done.
func (s *Store) JobMark(ctx context.Context, name string) (mark time.Time, err error) {
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return mark, err
	}
	const read = "SELECT mark FROM job_leases WHERE source_id = ? AND name = ? AND mark IS NOT NULL"
	if _, err = s.db.ExecContext(ctx, believeMark, src, name, micros(maxAhead)); err == nil {
		err = s.db.QueryRowContext(ctx, read, src, name).Scan(&mark)
	}
	if errors.Is(err, sql.ErrNoRows) {
		if _, err = s.db.ExecContext(ctx, "INSERT INTO job_leases (source_id, name, mark) VALUES (?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE mark = COALESCE(mark, UTC_TIMESTAMP(6))", src, name); err == nil {
			err = s.db.QueryRowContext(ctx, read, src, name).Scan(&mark)
		}
	}
	if err != nil {
		return mark, fmt.Errorf("read how far job %s is: %w", name, err)
	}
	return mark, nil
}
