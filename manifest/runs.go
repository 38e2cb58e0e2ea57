package manifest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// Run is one run of a job.
type Run struct {
	ID        uint64          `json:"id"`
	Job       string          `json:"job"` // the verb: archive, purge, ...
	Args      []string        `json:"args,omitempty"`
	Host      string          `json:"host"`
	Lease     string          `json:"lease,omitempty"` // name of the job's lease
	Fence     uint64          `json:"fence,omitempty"` // of that lease; 0: the run has none
	Scheduled *time.Time      `json:"scheduled_for,omitempty"`
	Started   time.Time       `json:"started"` // by the database's clock
	Ended     *time.Time      `json:"ended,omitempty"`
	Alive     bool            `json:"alive,omitempty"`   // it has not ended, and its lease lasts
	Outcome   string          `json:"outcome,omitempty"` // "" while it runs, or when its process died
	Why       string          `json:"why,omitempty"`     // it stopped; "" when all was done
	Report    json.RawMessage `json:"report,omitempty"`
}

// RunStart is a run that begins.
type RunStart struct {
	Job, Host string
	Args      []string // without secrets
	Lease     string   // name of the job's lease
	Fence     uint64
	Scheduled time.Time // zero: by hand, or by another scheduler
}

// maxArgs and maxWhy bound what a run says of itself, in bytes; a TEXT column takes 65,535.
const (
	maxArgs = 16_000
	maxWhy  = 60_000
)

// BeginRun notes that a job begins and gives the run's number.
func (s *Store) BeginRun(ctx context.Context, r RunStart) (uint64, error) {
	job := r.Job
	if job == "" || len(job) > 32 {
		return 0, fmt.Errorf("begin a run: job %q: want 1 to 32 bytes", job)
	}
	args, err := json.Marshal(r.Args)
	if err == nil && len(args) > maxArgs {
		args, err = json.Marshal([]string{cut(strings.Join(r.Args, " "), maxArgs/6), "..."}) // JSON makes of a byte six at most
	}
	if err != nil {
		return 0, fmt.Errorf("begin a run of %s: %w", job, err)
	}
	var scheduled any
	if !r.Scheduled.IsZero() {
		scheduled = r.Scheduled.UTC()
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return 0, err
	}
	res, err := s.db.ExecContext(ctx, "INSERT INTO runs (source_id, job, args, host, lease, fence, scheduled_for, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))",
		src, job, string(args), cut(r.Host, 255), cut(r.Lease, 255), r.Fence, scheduled)
	if err != nil {
		return 0, fmt.Errorf("begin a run of %s in the manifest: %w", job, err)
	}
	id, err := res.LastInsertId()
	if err != nil {
		return 0, fmt.Errorf("begin a run of %s in the manifest: %w", job, err)
	}
	return uint64(id), nil //nolint:gosec // counts from 1
}

// EndRun notes how a run ended, and why it stopped if not all was done; report is kept as JSON.
func (s *Store) EndRun(ctx context.Context, id uint64, outcome, why string, report any) error {
	j, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("end run %d in the manifest: %w", id, err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return err
	}
	n, err := exec(ctx, s.db, "UPDATE runs SET ended_at = UTC_TIMESTAMP(6), outcome = ?, why = ?, report = ? WHERE id = ? AND source_id = ? AND ended_at IS NULL", cut(outcome, 32), cut(why, maxWhy), string(j), id, src)
	if err != nil {
		return fmt.Errorf("end run %d in the manifest: %w", id, err)
	}
	if n == 0 {
		return fmt.Errorf("end run %d: %w: it is no run that is under way", id, ErrState)
	}
	return nil
}

// LastRuns gives the last n runs of a job, or of all jobs if it is empty, newest first.
func (s *Store) LastRuns(ctx context.Context, job string, n int) (all []Run, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	where, args := "r.source_id = ?", []any{src}
	if job != "" {
		where, args = where+" AND r.job = ?", append(args, job)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT r.id, r.job, r.args, r.host, r.lease, r.fence, r.scheduled_for, r.started_at, r.ended_at, r.outcome, COALESCE(r.why, ''), r.report, "+
		"r.ended_at IS NULL AND COALESCE((SELECT l.until > UTC_TIMESTAMP(6) FROM job_leases l WHERE l.source_id = r.source_id AND l.name = r.lease AND l.fence = r.fence), 0) "+
		"FROM runs r WHERE "+where+" ORDER BY r.id DESC LIMIT ?", append(args, n)...)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's runs: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r Run
		var given, report []byte
		if err := rows.Scan(&r.ID, &r.Job, &given, &r.Host, &r.Lease, &r.Fence, &r.Scheduled, &r.Started, &r.Ended, &r.Outcome, &r.Why, &report, &r.Alive); err != nil {
			return nil, fmt.Errorf("list the manifest's runs: %w", err)
		}
		if given != nil {
			if err := json.Unmarshal(given, &r.Args); err != nil {
				return nil, fmt.Errorf("%w: arguments of run %d: %w", ErrCorrupt, r.ID, err)
			}
		}
		r.Report = report
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's runs: %w", err)
	}
	return all, nil
}

// StateSummary is the slices in one state.
type StateSummary struct {
	State  State         `json:"state"`
	Slices int           `json:"slices"`
	Rows   uint64        `json:"rows"` // of their newest generations
	Bytes  uint64        `json:"bytes"`
	First  snowflake.Day `json:"first"` // the oldest day
	Last   snowflake.Day `json:"last"`
}

// Summary is what is where.
type Summary struct {
	Now           time.Time      `json:"now"`    // by the database's clock
	States        []StateSummary `json:"states"` // in the order of a slice's life; only those that occur
	OldestPending *snowflake.Day `json:"oldest_pending,omitempty"`
	Failed        []Slice        `json:"failed,omitempty"` // the last try failed; oldest day first
	Holds         int            `json:"holds"`            // in force
}

const maxFailed = 100

// Summary says what is where. Failed lists the first 100.
func (s *Store) Summary(ctx context.Context) (sum Summary, err error) {
	if sum.Now, err = s.Now(ctx); err != nil {
		return sum, err
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return sum, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT state, COUNT(*), CAST(SUM(row_count) AS UNSIGNED), CAST(SUM(bytes) AS UNSIGNED), MIN(day), MAX(day) FROM slices WHERE source_id = ? GROUP BY state "+
		"ORDER BY FIELD(state, 'pending', 'copying', 'committed', 'verified', 'purging', 'purged')", src)
	if err != nil {
		return sum, fmt.Errorf("sum up the manifest's slices: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var st StateSummary
		if err := rows.Scan(&st.State, &st.Slices, &st.Rows, &st.Bytes, &st.First, &st.Last); err != nil {
			return sum, fmt.Errorf("sum up the manifest's slices: %w", err)
		}
		if st.State == Pending {
			sum.OldestPending = &st.First
		}
		sum.States = append(sum.States, st)
	}
	if err := rows.Err(); err != nil {
		return sum, fmt.Errorf("sum up the manifest's slices: %w", err)
	}
	if sum.Failed, err = s.listSlices(ctx, "s.source_id = ? AND s.failed = 1 ORDER BY s.day, s.db_name, s.table_name LIMIT ?", []any{src, maxFailed}, ""); err != nil {
		return sum, err
	}
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM holds h WHERE h.source_id = ? AND "+inForce, src).Scan(&sum.Holds); err != nil {
		return sum, fmt.Errorf("count the manifest's holds: %w", err)
	}
	return sum, nil
}
