package warm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Now is the time of the database's clock.
func (t *Table) Now(ctx context.Context) (time.Time, error) { return t.d.now(ctx) }

func (d *database) now(ctx context.Context) (time.Time, error) {
	var text string
	if err := d.db.QueryRowContext(ctx, "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)").Scan(&text); err != nil {
		return time.Time{}, fmt.Errorf("database %s: clock: %w", d.where, err)
	}
	now, err := time.Parse("2006-01-02 15:04:05.000000", text)
	if err != nil {
		return time.Time{}, fmt.Errorf("database %s: clock: %w", d.where, err)
	}
	return now, nil
}

// Lag is how far the worst of the database's replicas is behind; 0 without replicas.
// A replica that does not answer or does not replicate is an error: its lag is unknown.
func (t *Table) Lag(ctx context.Context) (worst time.Duration, err error) {
	for _, r := range t.d.replicas {
		lag, err := r.lag(ctx)
		if err != nil {
			return 0, fmt.Errorf("replica %s of database %s: %w", r.where, t.d.where, err)
		}
		worst = max(worst, lag)
	}
	return worst, nil
}

func (r replica) lag(ctx context.Context) (time.Duration, error) {
	rows, err := r.db.QueryContext(ctx, "SHOW REPLICA STATUS")
	if number(err) == erSyntax { // MySQL before 8.0.22 and MariaDB before 10.5
		rows, err = r.db.QueryContext(ctx, "SHOW SLAVE STATUS")
	}
	if err != nil {
		if denied(err) {
			return 0, fmt.Errorf("replication state: %w: grant REPLICATION CLIENT (REPLICA MONITOR on MariaDB) to the account", err)
		}
		return 0, fmt.Errorf("replication state: %w", err)
	}
	channels, err := namedRows(rows)
	if err != nil {
		return 0, fmt.Errorf("replication state: %w", err)
	}
	return behind(channels)
}

// behind is the lag of the worst of a replica's channels.
func behind(channels []map[string][]byte) (worst time.Duration, err error) {
	if len(channels) == 0 {
		return 0, errors.New("is no replica: correct source.databases.replicas")
	}
	for _, c := range channels {
		text := c["seconds_behind_source"]
		if text == nil {
			text = c["seconds_behind_master"] // MariaDB, and MySQL's SHOW SLAVE STATUS
		}
		seconds, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil { // NULL: one of its threads has stopped
			return 0, fmt.Errorf("does not replicate: its seconds behind are %q", text)
		}
		worst = max(worst, time.Duration(seconds)*time.Second)
	}
	return worst, nil
}

// ThreadsRunning is the number of statements that the primary works on.
func (t *Table) ThreadsRunning(ctx context.Context) (int, error) {
	var name string
	var n int
	if err := t.d.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_running'").Scan(&name, &n); err != nil {
		return 0, fmt.Errorf("database %s: running threads: %w", t.d.where, err)
	}
	return n, nil
}
