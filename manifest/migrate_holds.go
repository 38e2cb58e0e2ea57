package manifest

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"
)

// holdsMigration lets a hold end by itself. In Go, since a migration that stopped half-way
// is run again, and MySQL cannot be told to add a column only where it is missing.
func holdsMigration() *goose.Migration {
	return goMigration(3, "holds", func(ctx context.Context, db *sql.DB) error {
		n, err := count(ctx, db, "information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'holds' AND column_name = 'expires_at'")
		if err != nil || n > 0 {
			return err
		}
		if _, err := db.ExecContext(ctx, "ALTER TABLE holds ADD COLUMN expires_at DATETIME(6) NULL"); err != nil {
			return fmt.Errorf("add holds.expires_at: %w", err)
		}
		return nil
	})
}
