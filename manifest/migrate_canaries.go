package manifest

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

// canariesMigration adds the canaries.
func canariesMigration() *goose.Migration {
	return goMigration(7, "canaries", func(ctx context.Context, db *sql.DB) error {
		return makeTables(ctx, db, "canaries", createCanaries)
	})
}

// createCanaries: spec is what the rows are made of again, rest what the server put into
// columns that were not given. A canary without planted_at was noted, and its rows may or
// may not be in warm.
const createCanaries = `CREATE TABLE IF NOT EXISTS canaries (
	source_id    INT UNSIGNED NOT NULL,
	id           VARCHAR(64) NOT NULL,
	db_name      VARCHAR(64) NOT NULL,
	table_name   VARCHAR(64) NOT NULL,
	conversation VARBINARY(255) NOT NULL,
	first_seq    BIGINT UNSIGNED NOT NULL,
	message_ids  TEXT NOT NULL,
	spec         MEDIUMTEXT NOT NULL,
	rest         MEDIUMTEXT NULL,
	fingerprint  VARCHAR(64) NOT NULL DEFAULT '',
	noted_at     DATETIME(6) NOT NULL,
	planted_at   DATETIME(6) NULL,
	PRIMARY KEY (source_id, id, db_name, table_name),
	UNIQUE KEY conversation (source_id, conversation, first_seq)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
