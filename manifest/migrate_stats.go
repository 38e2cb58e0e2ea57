package manifest

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

// statsMigration adds the indexes by which the numbers of the whole are read, so that a
// server may ask for them all day long:
//
//   - due: the slices of a state by the time at which they were verified
//   - sizes: the rows and bytes of days, without the rows of the table
func statsMigration() *goose.Migration {
	return goMigration(12, "stats", func(ctx context.Context, db *sql.DB) error {
		return addMissing(ctx, db, []addition{
			{"slices", nil, [][2]string{{"due", "source_id, state, verified_at"}, {"sizes", "source_id, day, bytes, row_count"}}},
		})
	})
}
