package manifest

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"
)

// plansMigration adds plans of purges, their approvals, and the policies of a source.
func plansMigration() *goose.Migration {
	return goMigration(10, "plans", func(ctx context.Context, db *sql.DB) error {
		return makeTables(ctx, db, "plans", createPlans, fmt.Sprintf(createPlanSlices, "plan_slices"), createApprovals, fmt.Sprintf(createPlanSlices, "approved_slices"), createRevocations, createPolicies)
	})
}

// Of each of these tables but policies rows are only ever inserted, so that an account can be
// given the right to make a plan, to approve one or to revoke one, and no right to change it.
//
// account is CURRENT_USER() of whoever wrote the row; os_user and given_by are what he said.
const createPlans = `CREATE TABLE IF NOT EXISTS plans (
	source_id  INT UNSIGNED NOT NULL,
	id         VARCHAR(16) NOT NULL,
	hash       CHAR(64) NOT NULL,
	account    VARCHAR(320) NOT NULL,
	os_user    VARCHAR(255) NOT NULL,
	given_by   VARCHAR(255) NOT NULL,
	made_at    DATETIME(6) NOT NULL,
	expires_at DATETIME(6) NOT NULL,
	slices     INT UNSIGNED NOT NULL,
	row_count  BIGINT UNSIGNED NOT NULL,
	PRIMARY KEY (source_id, id),
	KEY made (source_id, made_at)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

// createPlanSlices: what was planned, and, of the same form and written by the approver,
// what was approved. sum_hi and sum_lo are the fingerprint of all rows of the copy; record_sum
// is the checksum of its commit record.
const createPlanSlices = `CREATE TABLE IF NOT EXISTS %s (
	source_id  INT UNSIGNED NOT NULL,
	plan       VARCHAR(16) NOT NULL,
	slice_id   BIGINT UNSIGNED NOT NULL,
	day        DATE NOT NULL,
	db_name    VARCHAR(64) NOT NULL,
	table_name VARCHAR(64) NOT NULL,
	lo         BIGINT UNSIGNED NOT NULL,
	hi         BIGINT UNSIGNED NOT NULL,
	generation INT UNSIGNED NOT NULL,
	row_count  BIGINT UNSIGNED NOT NULL,
	bytes      BIGINT UNSIGNED NOT NULL,
	sum_hi     BIGINT UNSIGNED NOT NULL,
	sum_lo     BIGINT UNSIGNED NOT NULL,
	record_sum BINARY(32) NOT NULL,
	PRIMARY KEY (source_id, plan, slice_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

const createApprovals = `CREATE TABLE IF NOT EXISTS approvals (
	source_id   INT UNSIGNED NOT NULL,
	plan        VARCHAR(16) NOT NULL,
	hash        CHAR(64) NOT NULL,
	account     VARCHAR(320) NOT NULL,
	os_user     VARCHAR(255) NOT NULL,
	given_by    VARCHAR(255) NOT NULL,
	reason      TEXT NOT NULL,
	approved_at DATETIME(6) NOT NULL,
	expires_at  DATETIME(6) NOT NULL,
	PRIMARY KEY (source_id, plan)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

const createRevocations = `CREATE TABLE IF NOT EXISTS revocations (
	source_id  INT UNSIGNED NOT NULL,
	plan       VARCHAR(16) NOT NULL,
	account    VARCHAR(320) NOT NULL,
	os_user    VARCHAR(255) NOT NULL,
	given_by   VARCHAR(255) NOT NULL,
	reason     TEXT NOT NULL,
	revoked_at DATETIME(6) NOT NULL,
	PRIMARY KEY (source_id, plan)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

const createPolicies = `CREATE TABLE IF NOT EXISTS policies (
	source_id INT UNSIGNED NOT NULL,
	name      VARCHAR(64) NOT NULL,
	value     VARCHAR(64) NOT NULL,
	account   VARCHAR(320) NOT NULL,
	os_user   VARCHAR(255) NOT NULL,
	given_by  VARCHAR(255) NOT NULL,
	set_at    DATETIME(6) NOT NULL,
	PRIMARY KEY (source_id, name)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
