package manifest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// Run is one run of a job.
type Run struct {
	ID      uint64          `json:"id"`
	Job     string          `json:"job"` // the verb: archive, purge, ...
	Host    string          `json:"host"`
	Started time.Time       `json:"started"` // by the database's clock
	Ended   *time.Time      `json:"ended,omitempty"`
	Outcome string          `json:"outcome,omitempty"` // "" while it runs, or when its process died
	Report  json.RawMessage `json:"report,omitempty"`
}

// BeginRun notes that a job begins and gives the run's number.
func (s *Store) BeginRun(ctx context.Context, job, host string) (uint64, error) {
	if job == "" || len(job) > 32 {
		return 0, fmt.Errorf("begin a run: job %q: want 1 to 32 bytes", job)
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return 0, err
	}
	r, err := s.db.ExecContext(ctx, "INSERT INTO runs (source_id, job, host, started_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6))", src, job, cut(host, 255))
	if err != nil {
		return 0, fmt.Errorf("begin a run of %s in the manifest: %w", job, err)
	}
	id, err := r.LastInsertId()
	if err != nil {
		return 0, fmt.Errorf("begin a run of %s in the manifest: %w", job, err)
	}
	return uint64(id), nil //nolint:gosec // counts from 1
}

// EndRun notes how a run ended; report is kept as JSON.
func (s *Store) EndRun(ctx context.Context, id uint64, outcome string, report any) error {
	j, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("end run %d in the manifest: %w", id, err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return err
	}
	n, err := exec(ctx, s.db, "UPDATE runs SET ended_at = UTC_TIMESTAMP(6), outcome = ?, report = ? WHERE id = ? AND source_id = ? AND ended_at IS NULL", cut(outcome, 32), string(j), id, src)
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
	where, args := "source_id = ?", []any{src}
	if job != "" {
		where, args = where+" AND job = ?", append(args, job)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT id, job, host, started_at, ended_at, outcome, report FROM runs WHERE "+where+" ORDER BY id DESC LIMIT ?", append(args, n)...)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's runs: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r Run
		var report []byte
		if err := rows.Scan(&r.ID, &r.Job, &r.Host, &r.Started, &r.Ended, &r.Outcome, &report); err != nil {
			return nil, fmt.Errorf("list the manifest's runs: %w", err)
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
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM holds WHERE source_id = ? AND released_at IS NULL", src).Scan(&sum.Holds); err != nil {
		return sum, fmt.Errorf("count the manifest's holds: %w", err)
	}
	return sum, nil
}
