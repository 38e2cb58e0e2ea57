package manifest

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"
)

// fleetMigration adds what many workers need: slots of servers, the progress of slices
// in work, how often a slice was interrupted for time, and the indexes by which lists of
// hundreds of thousands of slices are read.
//
//   - slices.interrupted: times in a row that a run's time was up while it was copied.
//   - slices.tried_seconds: the longest of these tries.
//   - the index state also holds row_count and bytes, so that Summary reads it alone.
func fleetMigration() *goose.Migration {
	return goMigration(11, "fleet", migrateFleet)
}

func migrateFleet(ctx context.Context, db *sql.DB) error {
	err := addMissing(ctx, db, []addition{{"slices",
		[][2]string{{"interrupted", "INT UNSIGNED NOT NULL DEFAULT 0"}, {"tried_seconds", "INT UNSIGNED NOT NULL DEFAULT 0"}},
		[][2]string{{"failing", "source_id, failed, day"}, {"shard", "source_id, db_name, table_name, day"}, {"interrupted", "source_id, interrupted"}}}})
	if err != nil {
		return err
	}
	wide, err := count(ctx, db, "information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'slices' AND index_name = 'state' AND column_name = 'bytes'")
	if err != nil {
		return err
	}
	if wide == 0 {
		if _, err := db.ExecContext(ctx, "ALTER TABLE slices DROP KEY state, ADD KEY state (source_id, state, day, row_count, bytes)"); err != nil {
			return fmt.Errorf("change the table slices: %w", err)
		}
	}
	return makeTables(ctx, db, "the fleet", createServerSlots, createSliceProgress)
}

// createServerSlots: fence grows with each taking of a slot.
const createServerSlots = `CREATE TABLE IF NOT EXISTS server_slots (
	source_id  INT UNSIGNED NOT NULL,
	server     VARCHAR(255) NOT NULL,
	slot       SMALLINT UNSIGNED NOT NULL,
	fence      BIGINT UNSIGNED NOT NULL DEFAULT 0,
	owner      VARCHAR(255) NOT NULL DEFAULT '',
	held_until DATETIME(6) NULL,
	PRIMARY KEY (source_id, server, slot)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

// createSliceProgress: token is the lease's under which the work is done. The row of a
// worker that died stays until the slice's next worker replaces it, and is not read.
const createSliceProgress = `CREATE TABLE IF NOT EXISTS slice_progress (
	slice_id      BIGINT UNSIGNED NOT NULL,
	source_id     INT UNSIGNED NOT NULL,
	token         BIGINT UNSIGNED NOT NULL,
	worker        VARCHAR(255) NOT NULL,
	stage         VARCHAR(16) NOT NULL,
	row_count     BIGINT UNSIGNED NOT NULL,
	of_rows       BIGINT UNSIGNED NOT NULL,
	bytes         BIGINT UNSIGNED NOT NULL,
	of_bytes      BIGINT UNSIGNED NOT NULL,
	objects       BIGINT UNSIGNED NOT NULL,
	inserted_rows BIGINT UNSIGNED NOT NULL,
	started_at    DATETIME(6) NOT NULL,
	updated_at    DATETIME(6) NOT NULL,
	PRIMARY KEY (slice_id),
	KEY source (source_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
