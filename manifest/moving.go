package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Moving is what purges by partition are moving: rows that lie in a staging table are
// not in their warm table, and may come back.
type Moving struct {
	// Version changes when a staging table is noted, before the exchange, and when it is
	// noted that its rows are back. So if it is the same before a table was read and
	// after it, no row went out or came back meanwhile but of the staging tables in use.
	Version uint64
	InUse   []Staging
}

// Staging is a staging table that is noted, in the same database as its table.
type Staging struct {
	Shard Shard // the warm table
	Table string
}

// movingQuery reads both at one moment. A slice has a staging table only in purging.
const movingQuery = `SELECT s.move_version, COALESCE(x.db_name, ''), COALESCE(x.table_name, ''), COALESCE(x.staging, '') FROM sources s
	LEFT JOIN slices x FORCE INDEX (state) ON x.source_id = s.id AND x.state = 'purging' AND x.staging <> ''
	WHERE s.name = ?`

// Moving reads what is being moved now. It is a fence around a read of warm tables: read
// it before them, and Versions.Moves after them.
func (s *Store) Moving(ctx context.Context) (m Moving, err error) {
	rows, err := s.db.QueryContext(ctx, movingQuery, s.source)
	if err != nil {
		return Moving{}, fmt.Errorf("read what purges of source %s move: %w", s.source, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var st Staging
		if err := rows.Scan(&m.Version, &st.Shard.Database, &st.Shard.Table, &st.Table); err != nil {
			return Moving{}, fmt.Errorf("read what purges of source %s move: %w", s.source, err)
		}
		if st.Table != "" {
			m.InUse = append(m.InUse, st)
		}
	}
	if err := rows.Err(); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Moving{}, fmt.Errorf("read what purges of source %s move: %w", s.source, err)
	}
	return m, nil
}
