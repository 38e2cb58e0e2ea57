package manifest

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

// mirrorMigration adds what is needed so that the bucket alone is enough: what of holds,
// statuses and purges is in the bucket already, and which rebuild is under way.
//
//   - sources.rebuilding: the rebuild that is not ended yet; "" none.
//   - slices.rebuild: the rebuild that made the slice what it is.
//   - copies.marks: which purge marks of the generation are in the bucket, see markedPurging.
//   - mirrored: the row as it is is in the bucket.
func mirrorMigration() *goose.Migration {
	return goMigration(5, "mirror", func(ctx context.Context, db *sql.DB) error {
		const flag = "TINYINT UNSIGNED NOT NULL DEFAULT 0"
		return addMissing(ctx, db, []addition{
			{"sources", [][2]string{{"rebuilding", "VARCHAR(36) NOT NULL DEFAULT ''"}}, nil},
			{"slices", [][2]string{{"rebuild", "VARCHAR(36) NOT NULL DEFAULT ''"}}, nil},
			{"copies", [][2]string{{"marks", flag}}, nil},
			{"holds", [][2]string{{"mirrored", flag}}, [][2]string{{"mirrored", "source_id, mirrored"}}},
			{"statuses", [][2]string{{"mirrored", flag}}, [][2]string{{"mirrored", "source_id, mirrored"}}},
		})
	})
}
