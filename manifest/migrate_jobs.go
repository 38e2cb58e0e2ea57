package manifest

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

// jobsMigration adds the leases of jobs, and what a run was asked for, under which lease,
// and why it stopped.
func jobsMigration() *goose.Migration {
	return goMigration(8, "jobs", func(ctx context.Context, db *sql.DB) error {
		if err := makeTables(ctx, db, "job leases", createJobLeases); err != nil {
			return err
		}
		return addMissing(ctx, db, []addition{{"runs", [][2]string{
			{"args", "TEXT NULL"},
			{"lease", "VARCHAR(255) NOT NULL DEFAULT ''"},
			{"fence", "BIGINT UNSIGNED NOT NULL DEFAULT 0"},
			{"scheduled_for", "DATETIME(6) NULL"},
			{"why", "TEXT NULL"},
		}, nil}})
	})
}

// createJobLeases: a lease lasts while until is to come. own says that its name is one
// process's alone, so that the row goes with the lease. mark is up to when the job's
// schedule was done.
const createJobLeases = `CREATE TABLE IF NOT EXISTS job_leases (
	source_id INT UNSIGNED NOT NULL,
	name      VARCHAR(255) NOT NULL,
	owner     VARCHAR(255) NOT NULL DEFAULT '',
	fence     BIGINT UNSIGNED NOT NULL DEFAULT 0,
	until     DATETIME(6) NULL,
	own       TINYINT UNSIGNED NOT NULL DEFAULT 0,
	mark      DATETIME(6) NULL,
	PRIMARY KEY (source_id, name)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
