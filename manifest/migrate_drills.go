package manifest

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

// drillsMigration adds the history of drills and of what each restored.
func drillsMigration() *goose.Migration {
	return goMigration(4, "drills", func(ctx context.Context, db *sql.DB) error {
		return makeTables(ctx, db, "drills", createDrills, createDrillSlices)
	})
}

const createDrills = `CREATE TABLE IF NOT EXISTS drills (
	number      BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
	source_id   INT UNSIGNED NOT NULL,
	id          VARCHAR(64) NOT NULL,
	began       DATETIME(6) NOT NULL,
	ended       DATETIME(6) NOT NULL,
	verdict     VARCHAR(16) NOT NULL,
	sample      VARCHAR(32) NOT NULL,
	seed        BIGINT UNSIGNED NOT NULL,
	measures    MEDIUMTEXT NOT NULL,
	report_json VARBINARY(1024) NOT NULL,
	report_html VARBINARY(1024) NOT NULL,
	signed_by   VARCHAR(64) NOT NULL,
	PRIMARY KEY (number),
	UNIQUE KEY drill (source_id, id),
	KEY began (source_id, began)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

// createDrillSlices: one row for each slice that a drill restored; is_equal says that it was
// found equal.
const createDrillSlices = `CREATE TABLE IF NOT EXISTS drill_slices (
	drill      BIGINT UNSIGNED NOT NULL,
	day        DATE NOT NULL,
	db_name    VARCHAR(64) NOT NULL,
	table_name VARCHAR(64) NOT NULL,
	generation INT UNSIGNED NOT NULL,
	row_count  BIGINT UNSIGNED NOT NULL,
	is_equal   TINYINT UNSIGNED NOT NULL,
	PRIMARY KEY (drill, day, db_name, table_name)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
