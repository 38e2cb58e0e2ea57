package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// Standing is where a slice that is not done stands, for a worker that looks for work.
type Standing struct {
	ID     uint64
	State  State // Pending, Copying or Committed
	Leased bool  // another worker is at it
	Tries  int   // in a row that failed
}

const standingsQuery = "SELECT s.id, s.db_name, s.table_name, s.state, s.tries, COALESCE(s.lease_until > UTC_TIMESTAMP(6), 0) FROM slices s " +
	"WHERE s.source_id = ? AND s.state IN ('pending', 'copying', 'committed') AND s.day = ?"

const standingQuery = "SELECT s.id, s.state, s.tries, COALESCE(s.lease_until > UTC_TIMESTAMP(6), 0) FROM slices s " +
	"WHERE s.id = ? AND s.source_id = ? AND s.state IN ('pending', 'copying', 'committed')"

// Standing says where a slice stands; the zero Standing when it is done, or is not there.
func (s *Store) Standing(ctx context.Context, id uint64) (st Standing, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return st, err
	}
	err = s.db.QueryRowContext(ctx, standingQuery, id, src).Scan(&st.ID, &st.State, &st.Tries, &st.Leased)
	if errors.Is(err, sql.ErrNoRows) {
		return Standing{}, nil
	}
	if err != nil {
		return st, fmt.Errorf("look where slice %d stands: %w", id, err)
	}
	return st, nil
}

// Standings gives the slices of a day that are not verified yet. What is not among them
// is done, or was never made.
func (s *Store) Standings(ctx context.Context, day snowflake.Day) (map[Shard]Standing, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, standingsQuery, src, day)
	if err != nil {
		return nil, fmt.Errorf("look where the slices of %s stand: %w", day, err)
	}
	defer func() { _ = rows.Close() }()
	all := map[Shard]Standing{}
	for rows.Next() {
		var k Shard
		var st Standing
		if err := rows.Scan(&st.ID, &k.Database, &k.Table, &st.State, &st.Tries, &st.Leased); err != nil {
			return nil, fmt.Errorf("look where the slices of %s stand: %w", day, err)
		}
		all[k] = st
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look where the slices of %s stand: %w", day, err)
	}
	return all, nil
}

// SlicesOf lists the slices of one warm table up to a day, oldest first.
func (s *Store) SlicesOf(ctx context.Context, shard Shard, to snowflake.Day) ([]Slice, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	return s.listSlices(ctx, slicesOfTable, []any{src, shard.Database, shard.Table, to}, "")
}

const slicesOfTable = "s.source_id = ? AND s.db_name = ? AND s.table_name = ? AND s.day <= ? ORDER BY s.day"

// Interrupted gives a slice back that a run had no time to copy whole: it becomes pending,
// the lease ends, and the try is counted until one gets the slice verified. One that
// is past its commit is given back as it is.
func (s *Store) Interrupted(ctx context.Context, l *Lease, took time.Duration) error {
	if st := l.Slice().State; st != Copying {
		return l.Release(ctx, st)
	}
	tried := int64(took / time.Second)
	if err := l.finish(inState(Pending), func() error {
		return l.write(ctx, s.db, "s.state = 'pending', s.lease_until = NULL, s.interrupted = s.interrupted + 1, s.tried_seconds = GREATEST(s.tried_seconds, ?)", []any{tried}, "s.state = 'copying'")
	}); err != nil {
		return fmt.Errorf("give back slice %s: %w", l.key, err)
	}
	l.update(func(s *Slice) { s.State, s.Interrupted, s.Tried = Pending, s.Interrupted+1, max(s.Tried, took) })
	return nil
}

// InterruptedSlices lists the slices whose copy was interrupted for time at least so many
// times in a row, and was not made since.
func (s *Store) InterruptedSlices(ctx context.Context, times int) ([]Slice, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	return s.listSlices(ctx, interruptedSlices, []any{src, max(times, 1), maxFailed}, "")
}

const interruptedSlices = "s.source_id = ? AND s.interrupted >= ? ORDER BY s.interrupted DESC, s.day, s.db_name, s.table_name LIMIT ?"

// values are the placeholders of n rows of so many columns.
func values(n, columns int) string {
	row := "(?" + strings.Repeat(", ?", columns-1) + ")"
	return row + strings.Repeat(", "+row, n-1)
}
