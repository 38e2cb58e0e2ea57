package manifest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"
)

// fetchMigration adds what the cold range fetch needs: versions, purge_begun, the days
// of segments, statuses. It is written in Go because a migration that stopped half-way
// is run again from its start, and MySQL cannot be told to add a column only where it
// is missing. Everything is looked for first, or may be repeated.
func fetchMigration() *goose.Migration {
	return goMigration(2, "fetch", migrateFetch)
}

func migrateFetch(ctx context.Context, db *sql.DB) error {
	err := addMissing(ctx, db, []addition{
		{"sources", [][2]string{{"live_version", "BIGINT UNSIGNED NOT NULL DEFAULT 0"}, {"status_version", "BIGINT UNSIGNED NOT NULL DEFAULT 0"},
			{"move_version", "BIGINT UNSIGNED NOT NULL DEFAULT 0"}}, nil},
		{"slices", [][2]string{{"purge_begun", "TINYINT UNSIGNED NOT NULL DEFAULT 0"}}, [][2]string{{"begun", "source_id, purge_begun"}}},
		// No default, so that a coldtier that does not know the column cannot commit
		// segments without it. The rows that are there get '0000-00-00'.
		{"segments", [][2]string{{"day", "DATE NOT NULL"}}, [][2]string{{"page_day", "source_id, conversation, day"}}},
	})
	if err != nil {
		return err
	}
	if err := backFill(ctx, db); err != nil {
		return err
	}
	return makeTables(ctx, db, "statuses", createStatuses)
}

// addition is what a table may lack.
type addition struct {
	table         string
	columns, keys [][2]string // name and definition
}

// addMissing adds the columns and the keys that tables lack.
func addMissing(ctx context.Context, db *sql.DB, tables []addition) error {
	for _, t := range tables {
		// One statement for what a table lacks: each is a while of waiting.
		var add []string
		for _, c := range t.columns {
			n, err := count(ctx, db, "information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? AND column_name = ?", t.table, c[0])
			if err != nil {
				return err
			}
			if n == 0 {
				add = append(add, "ADD COLUMN "+c[0]+" "+c[1])
			}
		}
		for _, k := range t.keys {
			n, err := count(ctx, db, "information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ? AND index_name = ?", t.table, k[0])
			if err != nil {
				return err
			}
			if n == 0 {
				add = append(add, "ADD KEY "+k[0]+" ("+k[1]+")")
			}
		}
		if len(add) == 0 {
			continue
		}
		if _, err := db.ExecContext(ctx, "ALTER TABLE "+t.table+" "+strings.Join(add, ", ")); err != nil {
			return fmt.Errorf("change the table %s: %w", t.table, err)
		}
	}
	return nil
}

// createStatuses: folded is the generation whose commit record has the status as it is;
// 0 none. original is what the table's status column read before the first status was
// folded into it; it counts where has_original is 1. A status that was taken back stays
// as kind none, so that a commit that is under way meets it.
const createStatuses = `CREATE TABLE IF NOT EXISTS statuses (
	source_id    INT UNSIGNED NOT NULL,
	conversation VARBINARY(255) NOT NULL,
	message_id   BIGINT UNSIGNED NOT NULL,
	kind         VARCHAR(16) NOT NULL,
	value        VARBINARY(255) NULL,
	put_by       VARCHAR(255) NOT NULL,
	put_at       DATETIME(6) NOT NULL,
	folded       INT UNSIGNED NOT NULL DEFAULT 0,
	has_original TINYINT UNSIGNED NOT NULL DEFAULT 0,
	original     BLOB NULL,
	PRIMARY KEY (source_id, conversation, message_id),
	KEY message (source_id, message_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

func count(ctx context.Context, db *sql.DB, from string, args ...any) (n int, err error) {
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+from, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("look at the manifest's tables: %w", err)
	}
	return n, nil
}

// backFill sets purge_begun and the days of segments, a slice at a time, so that no
// statement is long and nothing that runs beside it waits for long.
func backFill(ctx context.Context, db *sql.DB) error {
	for last := uint64(0); ; {
		some, err := slicesAfter(ctx, db, last)
		if err != nil {
			return fmt.Errorf("list the manifest's slices: %w", err)
		}
		if len(some) == 0 {
			return nil
		}
		for _, s := range some {
			// In doubt 1: then readers look in the cold tier for what is in warm as well.
			if _, err := db.ExecContext(ctx, `UPDATE slices s SET s.purge_begun = 1 WHERE s.id = ? AND s.purge_begun = 0 AND (s.state IN ('purging', 'purged')
				OR s.purged_at IS NOT NULL OR s.staging <> '' OR s.reason = 'late'
				OR EXISTS (SELECT 1 FROM chunks c WHERE c.slice_id = s.id AND (c.state <> 'present' OR c.carried_rows > 0)))`, s.ID); err != nil {
				return fmt.Errorf("note whether a purge of slice %d was begun: %w", s.ID, err)
			}
			if _, err := db.ExecContext(ctx, "UPDATE segments SET day = ? WHERE slice_id = ? AND day <> ?", s.Day, s.ID, s.Day); err != nil {
				return fmt.Errorf("note the day of the segments of slice %d: %w", s.ID, err)
			}
			last = s.ID
		}
	}
}

// slicesAfter lists IDs and days of all sources' slices, some at a time.
func slicesAfter(ctx context.Context, db *sql.DB, last uint64) (some []Slice, err error) {
	rows, err := db.QueryContext(ctx, "SELECT id, day FROM slices WHERE id > ? ORDER BY id LIMIT 1000", last)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s Slice
		if err := rows.Scan(&s.ID, &s.Day); err != nil {
			return nil, err
		}
		some = append(some, s)
	}
	return some, rows.Err()
}
