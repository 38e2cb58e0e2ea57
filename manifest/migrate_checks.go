package manifest

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"
)

// checksMigration adds what was read back when. Generations that were verified before
// count as checked then.
func checksMigration() *goose.Migration {
	return goMigration(6, "checks", func(ctx context.Context, db *sql.DB) error {
		if err := makeTables(ctx, db, "checks", createChecks, createObjectChecks, createCheckRounds); err != nil {
			return err
		}
		for last := uint64(0); ; {
			some, err := slicesAfter(ctx, db, last)
			if err != nil {
				return fmt.Errorf("list the manifest's slices: %w", err)
			}
			if len(some) == 0 {
				return nil
			}
			end := some[len(some)-1].ID
			if _, err := db.ExecContext(ctx, "INSERT IGNORE INTO checks (slice_id, generation, objects_at, rows_at, rows_good_at, read_at, good_at) "+
				"SELECT c.slice_id, c.generation, c.verified_at, c.verified_at, c.verified_at, c.verified_at, c.verified_at FROM copies c JOIN slices s ON s.id = c.slice_id "+
				"AND s.live_generation = c.generation WHERE c.slice_id > ? AND c.slice_id <= ? AND c.verified_at IS NOT NULL", last, end); err != nil {
				return fmt.Errorf("note when slices %d to %d were verified: %w", last, end, err)
			}
			last = end
		}
	})
}

// createChecks: objects_at is when those objects that have no row in object_checks were
// read and equal. read_at and good_at sum up all parts of the generation: the least recent
// reading, and the least recent one of each part's last that was equal; NULL where a part
// has none. The claim says who is reading now.
const createChecks = `CREATE TABLE IF NOT EXISTS checks (
	slice_id     BIGINT UNSIGNED NOT NULL,
	generation   INT UNSIGNED NOT NULL,
	objects_at   DATETIME(6) NULL,
	rows_at      DATETIME(6) NULL,
	rows_good_at DATETIME(6) NULL,
	rows_error   TEXT NULL,
	read_at      DATETIME(6) NULL,
	good_at      DATETIME(6) NULL,
	different    TINYINT UNSIGNED NOT NULL DEFAULT 0,
	claim_token  BIGINT UNSIGNED NOT NULL DEFAULT 0,
	claim_until  DATETIME(6) NULL,
	claim_owner  VARCHAR(255) NOT NULL DEFAULT '',
	PRIMARY KEY (slice_id, generation)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

const createObjectChecks = `CREATE TABLE IF NOT EXISTS object_checks (
	slice_id   BIGINT UNSIGNED NOT NULL,
	generation INT UNSIGNED NOT NULL,
	seq        INT UNSIGNED NOT NULL,
	bytes      BIGINT UNSIGNED NOT NULL,
	read_at    DATETIME(6) NOT NULL,
	good_at    DATETIME(6) NULL,
	error      TEXT NULL,
	PRIMARY KEY (slice_id, generation, seq)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

const createCheckRounds = `CREATE TABLE IF NOT EXISTS check_rounds (
	source_id INT UNSIGNED NOT NULL,
	seed      BIGINT UNSIGNED NOT NULL,
	begun_at  DATETIME(6) NOT NULL,
	PRIMARY KEY (source_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
