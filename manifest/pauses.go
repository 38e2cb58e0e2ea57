package manifest

import (
	"context"
	"fmt"
	"time"
)

// Pause is a time in which a process leaves a server alone.
type Pause struct {
	Owner  string     `json:"owner"` // the process
	Job    string     `json:"job"`
	Server string     `json:"server"` // host:port
	Cause  string     `json:"cause"`  // a word for machines
	Why    string     `json:"why"`    // for people
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"` // nil: not known
	// Seen is when the process last said so. One that has died says nothing any more.
	Seen time.Time `json:"seen"`
	Dead bool      `json:"dead,omitempty"` // it was not said for PauseKept, by the database's clock
}

// PauseKept is how long a pause that is not told again is taken to last. A process has to
// tell it several times in that time.
const PauseKept = time.Minute

// pauseForgotten is after how long one of a process that died is deleted.
const pauseForgotten = 24 * time.Hour

// NotePause notes a pause that lasts, for the first time or again. For how long it has
// lasted, and will, is given: the worker's clock may be another than the database's, by
// which Since and Until are set.
func (s *Store) NotePause(ctx context.Context, p Pause, lasted time.Duration, left *time.Duration) error {
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return err
	}
	until, args := "NULL", []any{src, cut(p.Owner, 255), p.Job, cut(p.Server, 255), p.Cause, cut(p.Why, maxError), micros(lasted)}
	if left != nil {
		until, args = "UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND", append(args, micros(*left))
	}
	_, err = s.db.ExecContext(ctx, "INSERT INTO pauses (source_id, owner, job, server, cause, why, since, ends_at, seen_at) VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, "+until+", UTC_TIMESTAMP(6)) "+
		"ON DUPLICATE KEY UPDATE cause = VALUES(cause), why = VALUES(why), since = VALUES(since), ends_at = VALUES(ends_at), seen_at = VALUES(seen_at)", args...)
	if err != nil {
		return fmt.Errorf("note a pause of %s: %w", p.Job, err)
	}
	return nil
}

// EndPause notes that a pause is over, and forgets those of processes that died: within one
// of the same job on the same server, or long ago.
func (s *Store) EndPause(ctx context.Context, owner, job, server string) error {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, "DELETE FROM pauses WHERE source_id = ? AND (job = ? AND server = ? AND (owner = ? OR seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND) OR seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)",
		src, job, cut(server, 255), cut(owner, 255), micros(PauseKept), micros(pauseForgotten))
	if err != nil {
		return fmt.Errorf("note the end of a pause of %s: %w", job, err)
	}
	return nil
}

// Pauses lists the pauses that last, and those of processes that died within one.
func (s *Store) Pauses(ctx context.Context) (list []Pause, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT owner, job, server, cause, why, since, ends_at, seen_at, seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND FROM pauses WHERE source_id = ? ORDER BY since, owner, job, server",
		micros(PauseKept), src)
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var p Pause
		if err := rows.Scan(&p.Owner, &p.Job, &p.Server, &p.Cause, &p.Why, &p.Since, &p.Until, &p.Seen, &p.Dead); err != nil {
			return nil, fmt.Errorf("list pauses: %w", err)
		}
		list = append(list, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	return list, nil
}
