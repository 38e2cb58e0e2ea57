package manifest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The jobs that a stop can be of. All is of these and of whatever else changes warm, the
// bucket or ClickHouse of its own accord.
const (
	StopArchive = "archive"
	StopPurge   = "purge"
	StopAll     = "all"
)

// StopJobs lists what a stop can be of.
func StopJobs() []string { return []string{StopPurge, StopArchive, StopAll} }

// Stop forbids jobs until it is lifted, or ends. It is never deleted itself.
type Stop struct {
	ID       uint64     `json:"id"`
	Name     string     `json:"name"` // unique for ever, in the bucket, too
	Jobs     string     `json:"jobs"` // StopArchive, StopPurge, StopAll
	Reason   string     `json:"reason"`
	By       string     `json:"by"`
	At       time.Time  `json:"at"`
	EndsAt   *time.Time `json:"ends_at,omitempty"` // nil: when it is lifted
	LiftedBy string     `json:"lifted_by,omitempty"`
	LiftedAt *time.Time `json:"lifted_at,omitempty"`
}

// Of says whether the stop is of a job: one of StopArchive and StopPurge, or any other
// name for what only a stop of all forbids.
func (s Stop) Of(job string) bool { return s.Jobs == StopAll || s.Jobs == job }

// String says who stopped what, and why.
func (s Stop) String() string {
	until := ""
	if s.EndsAt != nil {
		until = " until " + s.EndsAt.UTC().Format("2006-01-02 15:04:05Z")
	}
	return fmt.Sprintf("%s stopped %s at %s%s: %s (stop %d)", s.By, s.Jobs, s.At.UTC().Format("2006-01-02 15:04:05Z"), until, s.Reason, s.ID)
}

func (s *Stop) check() error {
	switch {
	case !slices.Contains(StopJobs(), s.Jobs):
		return fmt.Errorf("stop of %q: want %s", s.Jobs, strings.Join(StopJobs(), ", "))
	case strings.TrimSpace(s.Reason) == "" || len(s.Reason) > maxError:
		return fmt.Errorf("stop of %s: say the reason, in at most %d bytes", s.Jobs, maxError)
	case s.By == "" || len(s.By) > 255:
		return fmt.Errorf("stop of %s: say who places it, in at most 255 bytes", s.Jobs)
	}
	return nil
}

const (
	stopColumns  = "s.id, s.name, s.jobs, s.reason, s.placed_by, s.placed_at, s.ends_at, s.lifted_by, s.lifted_at"
	stopsInForce = "s.lifted_at IS NULL AND (s.ends_at IS NULL OR s.ends_at > UTC_TIMESTAMP(6))"
)

// stoppedSQL says of slices s that nothing of them may be purged now.
const stoppedSQL = "EXISTS (SELECT 1 FROM stops st WHERE st.source_id = s.source_id AND st.jobs IN ('" + StopPurge + "', '" + StopAll + "') " +
	"AND st.lifted_at IS NULL AND (st.ends_at IS NULL OR st.ends_at > UTC_TIMESTAMP(6)))"

func scanStop(scan func(...any) error) (s Stop, err error) {
	err = scan(&s.ID, &s.Name, &s.Jobs, &s.Reason, &s.By, &s.At, &s.EndsAt, &s.LiftedBy, &s.LiftedAt)
	return s, err
}

// AddStop places a stop, which ends by itself after last, if that is not 0, by the
// database's clock. Jobs, Reason and By are wanted, the rest is set here.
func (s *Store) AddStop(ctx context.Context, st Stop, last time.Duration) (Stop, error) {
	if err := st.check(); err != nil {
		return Stop{}, err
	}
	if last < 0 {
		return Stop{}, fmt.Errorf("stop of %s for %s: want a time to come", st.Jobs, last)
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return Stop{}, err
	}
	st.Name = strings.ReplaceAll(newIdentity(), "-", "")
	until, args := "NULL", []any{src, st.Name, st.Jobs, st.Reason, st.By}
	if last > 0 {
		until, args = "UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND", append(args, micros(last))
	}
	_, err = s.db.ExecContext(ctx, "INSERT INTO stops (source_id, name, jobs, reason, placed_by, placed_at, ends_at) VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(6), "+until+")", args...)
	if err == nil {
		st, err = scanStop(s.db.QueryRowContext(ctx, "SELECT "+stopColumns+" FROM stops s WHERE s.source_id = ? AND s.name = ?", src, st.Name).Scan)
	}
	if err != nil {
		return Stop{}, fmt.Errorf("stop %s: %w", st.Jobs, err)
	}
	return st, nil
}

// LiftStops lifts the stops in force whose Jobs are exactly these, and gives them. None is
// no error.
func (s *Store) LiftStops(ctx context.Context, jobs, by string) (lifted []Stop, err error) {
	if by == "" || len(by) > 255 {
		return nil, fmt.Errorf("resume %s: say who does, in at most 255 bytes", jobs)
	}
	in, err := s.Stops(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, st := range in {
		if st.Jobs != jobs {
			continue
		}
		n, err := exec(ctx, s.db, "UPDATE stops SET lifted_by = ?, lifted_at = UTC_TIMESTAMP(6), mirrored = 0 WHERE id = ? AND lifted_at IS NULL", by, st.ID)
		if err != nil {
			return lifted, fmt.Errorf("resume %s: %w", jobs, err)
		}
		if n == 1 {
			lifted = append(lifted, st)
		}
	}
	return lifted, nil
}

// Stops lists the stops in force, or all there ever were, oldest first.
func (s *Store) Stops(ctx context.Context, all bool) ([]Stop, error) {
	return s.stops(ctx, "(? OR "+stopsInForce+")", all)
}

// UnmirroredStops lists stops that the bucket does not have as they are.
func (s *Store) UnmirroredStops(ctx context.Context) ([]Stop, error) {
	return s.stops(ctx, "s.mirrored = 0")
}

func (s *Store) stops(ctx context.Context, where string, args ...any) (list []Stop, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+stopColumns+" FROM stops s WHERE s.source_id = ? AND "+where+" ORDER BY s.id", append([]any{src}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's stops: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		st, err := scanStop(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("list the manifest's stops: %w", err)
		}
		list = append(list, st)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's stops: %w", err)
	}
	return list, nil
}

// StopMirrored notes that the bucket has the stop as it is given; see HoldMirrored.
func (s *Store) StopMirrored(ctx context.Context, st Stop) error {
	if _, err := s.db.ExecContext(ctx, "UPDATE stops SET mirrored = (lifted_at <=> ?) WHERE id = ?", utc(st.LiftedAt), st.ID); err != nil {
		return fmt.Errorf("note that stop %d is in the bucket: %w", st.ID, err)
	}
	return nil
}

// AdoptStop enters a stop that lies in the bucket, and says whether the manifest did not
// have it. One that the manifest has is lifted if it was.
func (s *Store) AdoptStop(ctx context.Context, st Stop) (fresh bool, err error) {
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return false, err
	}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		fresh, err = adoptStop(ctx, tx, src, st)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("adopt stop %s: %w", st.Name, err)
	}
	return fresh, nil
}

func adoptStop(ctx context.Context, tx *sql.Tx, src uint32, st Stop) (fresh bool, err error) {
	n, err := exec(ctx, tx, "UPDATE stops SET lifted_by = IF(lifted_at IS NULL, ?, lifted_by), lifted_at = COALESCE(lifted_at, ?) WHERE source_id = ? AND name = ?",
		st.LiftedBy, utc(st.LiftedAt), src, st.Name)
	if err != nil || n > 0 {
		return false, err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO stops (source_id, name, jobs, reason, placed_by, placed_at, ends_at, lifted_by, lifted_at, mirrored) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
		src, st.Name, st.Jobs, st.Reason, st.By, st.At.UTC(), utc(st.EndsAt), st.LiftedBy, utc(st.LiftedAt))
	return true, err
}

// Stop enters a stop that lay in the bucket.
func (r *Rebuild) Stop(ctx context.Context, st Stop) error {
	err := r.s.inTx(ctx, func(tx *sql.Tx) error {
		if err := r.running(ctx, tx); err != nil {
			return err
		}
		_, err := adoptStop(ctx, tx, r.src, st)
		return err
	})
	if err != nil {
		return fmt.Errorf("rebuild stop %s: %w", st.Name, err)
	}
	return nil
}

// StopsPrefix is what the keys of a source's stops begin with.
func StopsPrefix(source string) string {
	return "manifest/stops/source=" + escape([]byte(source)) + "/"
}

// StopKey is the key of the object that is a stop.
func StopKey(source, name string) string {
	return StopsPrefix(source) + "stop=" + escape([]byte(name)) + ".json"
}

// stopVersion is the version of the form of stops in the bucket.
const stopVersion = 1

type stopObject struct {
	FormatVersion int `json:"format_version"`
	Stop
}

// EncodeStop writes a stop for the bucket.
func EncodeStop(st Stop) ([]byte, error) {
	b, err := json.Marshal(stopObject{stopVersion, st})
	if err != nil {
		return nil, fmt.Errorf("encode stop %d: %w", st.ID, err)
	}
	return b, nil
}

// DecodeStop reads a stop of the bucket.
func DecodeStop(b []byte) (Stop, error) {
	var o stopObject
	if err := json.Unmarshal(b, &o); err != nil {
		return Stop{}, fmt.Errorf("stop: %w: %w", ErrCorrupt, err)
	}
	if o.FormatVersion != stopVersion {
		return Stop{}, fmt.Errorf("stop of format version %d: this coldtier knows version %d: use a newer coldtier", o.FormatVersion, stopVersion)
	}
	if err := o.check(); err != nil {
		return Stop{}, fmt.Errorf("stop: %w: %w", ErrCorrupt, err)
	}
	if len(o.Name) != 32 || o.At.IsZero() {
		return Stop{}, fmt.Errorf("stop: %w: %w", ErrCorrupt, errors.New("its name or time is missing"))
	}
	return o.Stop, nil
}
