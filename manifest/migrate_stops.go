package manifest

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

// stopsMigration adds stops and pauses.
func stopsMigration() *goose.Migration {
	return goMigration(9, "stops", func(ctx context.Context, db *sql.DB) error {
		return makeTables(ctx, db, "stops and pauses", createStops, createPauses)
	})
}

// createStops: a stop has a name of its own beside its number, since in the bucket one of a
// manifest that was set back must not meet another of its number.
const createStops = `CREATE TABLE IF NOT EXISTS stops (
	id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
	source_id   INT UNSIGNED NOT NULL,
	name        CHAR(32) NOT NULL,
	jobs        VARCHAR(16) NOT NULL,
	reason      TEXT NOT NULL,
	placed_by   VARCHAR(255) NOT NULL,
	placed_at   DATETIME(6) NOT NULL,
	ends_at     DATETIME(6) NULL,
	lifted_by   VARCHAR(255) NOT NULL DEFAULT '',
	lifted_at   DATETIME(6) NULL,
	mirrored    BOOLEAN NOT NULL DEFAULT 0,
	PRIMARY KEY (id),
	UNIQUE KEY name (source_id, name),
	KEY lifted (source_id, lifted_at),
	KEY mirrored (source_id, mirrored)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

const createPauses = `CREATE TABLE IF NOT EXISTS pauses (
	source_id INT UNSIGNED NOT NULL,
	owner     VARCHAR(255) NOT NULL,
	job       VARCHAR(32) NOT NULL,
	server    VARCHAR(255) NOT NULL,
	cause     VARCHAR(16) NOT NULL,
	why       TEXT NOT NULL,
	since     DATETIME(6) NOT NULL,
	ends_at   DATETIME(6) NULL,
	seen_at   DATETIME(6) NOT NULL,
	PRIMARY KEY (source_id, owner, job, server)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
