package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// Stats are the numbers of the whole that are watched all the time. Each is read by an
// index made for it.
type Stats struct {
	Now    time.Time     // by the database's clock
	States map[State]int // slices; all states, also those that do not occur
	Failed int           // slices whose last try failed
	Holds  int           // in force
	// Uncopied is the oldest day of a slice that has no verified copy, and was never known
	// to have one; nil: there is none. A slice that is to be copied again is not meant:
	// its former copy serves on.
	Uncopied *snowflake.Day
	Newest   *snowflake.Day // that has slices
	// Unpurged is when the verified slice that waits longest for its purge was verified;
	// nil: none is past the lag and not held.
	Unpurged *time.Time
}

// States lists the states, in the order of a slice's life.
func States() []State { return []State{Pending, Copying, Committed, Verified, Purging, Purged} }

const (
	statesQuery = "SELECT state, COUNT(*) FROM slices WHERE source_id = ? GROUP BY state"
	failedQuery = "SELECT COUNT(*) FROM slices WHERE source_id = ? AND failed = 1"
	// Of each state the first of the index that counts: MIN would read all of them.
	uncopiedQuery = "SELECT day FROM slices WHERE source_id = ? AND state = ? AND live_generation = 0 ORDER BY day LIMIT 1"
	newestQuery   = "SELECT MAX(day) FROM slices WHERE source_id = ?"
	// Holds are left to the reader: with them in it, MySQL reads all slices that are past their lag.
	unpurgedQuery = "SELECT verified_at, day, db_name, table_name FROM slices FORCE INDEX (due) WHERE source_id = ? AND state = ? AND verified_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY verified_at LIMIT ?"
	bytesQuery    = "SELECT COALESCE(SUM(bytes), 0), COALESCE(SUM(row_count), 0) FROM slices FORCE INDEX (sizes) WHERE source_id = ?"
)

// Stats reads the numbers of the whole; lag is how long verified rows stay in warm.
func (s *Store) Stats(ctx context.Context, lag time.Duration) (st Stats, err error) {
	if st.Now, err = s.Now(ctx); err != nil {
		return st, err
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return st, err
	}
	if st.States, err = s.stateCounts(ctx, src); err != nil {
		return st, err
	}
	if err := s.db.QueryRowContext(ctx, failedQuery, src).Scan(&st.Failed); err != nil {
		return st, fmt.Errorf("count the manifest's failed slices: %w", err)
	}
	holds, err := s.Holds(ctx, false)
	if err != nil {
		return st, err
	}
	st.Holds = len(holds)
	for _, state := range []State{Pending, Copying, Committed} {
		if st.Uncopied, err = earlier(s.db.QueryRowContext(ctx, uncopiedQuery, src, string(state)), st.Uncopied, func(a, b snowflake.Day) int { return a.Compare(b) }); err != nil {
			return st, fmt.Errorf("find the manifest's oldest slice without a copy: %w", err)
		}
	}
	var newest sql.Null[snowflake.Day]
	if err := s.db.QueryRowContext(ctx, newestQuery, src).Scan(&newest); err != nil {
		return st, fmt.Errorf("find the manifest's newest day: %w", err)
	}
	if newest.Valid {
		st.Newest = &newest.V
	}
	held := map[string]bool{}
	for _, h := range holds {
		if h.Kind == HoldSlice {
			held[h.Subject] = true
		}
	}
	for _, state := range []State{Verified, Purging} {
		at, err := s.unpurged(ctx, src, state, lag, held)
		if err != nil {
			return st, fmt.Errorf("find the manifest's oldest slice that is to be purged: %w", err)
		}
		if at != nil && (st.Unpurged == nil || at.Before(*st.Unpurged)) {
			st.Unpurged = at
		}
	}
	return st, nil
}

// unpurged is when the slice of a state that waits longest for its purge was verified. Of so
// many more than are held the first that is not.
func (s *Store) unpurged(ctx context.Context, src uint32, state State, lag time.Duration, held map[string]bool) (*time.Time, error) {
	rows, err := s.db.QueryContext(ctx, unpurgedQuery, src, string(state), micros(lag), len(held)+1)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var first *time.Time
	for rows.Next() {
		k := SliceKey{Source: s.source}
		var at time.Time
		if err := rows.Scan(&at, &k.Day, &k.Shard.Database, &k.Shard.Table); err != nil {
			return nil, err
		}
		if first == nil && !held[k.String()] {
			first = &at
		}
	}
	return first, rows.Err()
}

func (s *Store) stateCounts(ctx context.Context, src uint32) (map[State]int, error) {
	n := map[State]int{}
	for _, state := range States() {
		n[state] = 0
	}
	rows, err := s.db.QueryContext(ctx, statesQuery, src)
	if err != nil {
		return nil, fmt.Errorf("count the manifest's slices: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var state State
		var slices int
		if err := rows.Scan(&state, &slices); err != nil {
			return nil, fmt.Errorf("count the manifest's slices: %w", err)
		}
		n[state] = slices
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("count the manifest's slices: %w", err)
	}
	return n, nil
}

// earlier is the less of what a row has, if there is one, and of what is known.
func earlier[T any](row *sql.Row, known *T, compare func(a, b T) int) (*T, error) {
	var v T
	switch err := row.Scan(&v); {
	case errors.Is(err, sql.ErrNoRows):
		return known, nil
	case err != nil:
		return nil, err
	case known != nil && compare(*known, v) <= 0:
		return known, nil
	}
	return &v, nil
}

// ColdSize is the rows of all slices' newest generations, and the bytes of their objects.
func (s *Store) ColdSize(ctx context.Context) (rows, bytes uint64, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return 0, 0, err
	}
	if err := s.db.QueryRowContext(ctx, bytesQuery, src).Scan(&bytes, &rows); err != nil {
		return 0, 0, fmt.Errorf("sum up the manifest's slices: %w", err)
	}
	return rows, bytes, nil
}

// DayTotal is all slices of one day together.
type DayTotal struct {
	Day    snowflake.Day `json:"day"`
	Slices int           `json:"slices"`
	Rows   uint64        `json:"rows"`  // of their newest generations
	Bytes  uint64        `json:"bytes"` // of their objects
}

const dayTotalsQuery = "SELECT day, COUNT(*), SUM(row_count), SUM(bytes) FROM slices WHERE source_id = ? AND day >= ? AND day <= ? GROUP BY day ORDER BY day"

// DayTotals gives the days from one to another, inclusive, that have slices.
func (s *Store) DayTotals(ctx context.Context, from, to snowflake.Day) (all []DayTotal, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, dayTotalsQuery, src, from, to)
	if err != nil {
		return nil, fmt.Errorf("sum up the manifest's days: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var d DayTotal
		if err := rows.Scan(&d.Day, &d.Slices, &d.Rows, &d.Bytes); err != nil {
			return nil, fmt.Errorf("sum up the manifest's days: %w", err)
		}
		all = append(all, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sum up the manifest's days: %w", err)
	}
	return all, nil
}

// Expected is what a day's slices should hold, judging by the same weekday of former weeks.
type Expected struct {
	Day    snowflake.Day `json:"day"`
	Rows   uint64        `json:"rows"`   // that it has in the manifest
	Expect uint64        `json:"expect"` // the median of the former weeks'; 0 when less than two are known
	Weeks  int           `json:"weeks"`  // former weeks that are known
	Empty  int           `json:"empty"`  // of these, without a row
}

// expectWeeks is how many weeks are looked back.
const expectWeeks = 4

// Missing says that the day has no row although each of the former weeks, at least two of
// them, had.
func (e Expected) Missing() bool { return e.Rows == 0 && e.Weeks >= 2 && e.Empty == 0 }

// Expect says what a day should hold.
func (s *Store) Expect(ctx context.Context, day snowflake.Day) (Expected, error) {
	e := Expected{Day: day}
	days, err := s.DayTotals(ctx, day.Add(-7*expectWeeks), day)
	if err != nil {
		return e, err
	}
	var rows []uint64
	for back := range expectWeeks + 1 {
		i := slices.IndexFunc(days, func(d DayTotal) bool { return d.Day == day.Add(-7*back) })
		switch {
		case i < 0:
		case back == 0:
			e.Rows = days[i].Rows
		default:
			rows = append(rows, days[i].Rows)
			if days[i].Rows == 0 {
				e.Empty++
			}
		}
	}
	if e.Weeks = len(rows); e.Weeks >= 2 {
		e.Expect = uint64(median(rows))
	}
	return e, nil
}

// median of numbers, which it sorts; 0 of none.
func median[N ~uint64 | ~float64](n []N) float64 {
	if len(n) == 0 {
		return 0
	}
	slices.Sort(n)
	half := len(n) / 2
	if len(n)%2 == 1 {
		return float64(n[half])
	}
	return (float64(n[half-1]) + float64(n[half])) / 2
}
