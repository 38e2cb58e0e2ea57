package adversary

import (
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
)

// A column added NOT NULL, by rebuilding the table so that its partitions can still
// be exchanged: the next generation, whose schema is wider than the table's, can be
// purged by partition.
func TestWiderCopyIsPurgedByPartition(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Partitioned: true, Strategy: "partition", Seed: 72, Messages: 200})
	e.Must("archive")
	e.SQL("ALTER TABLE " + e.Tables[0] + " ADD COLUMN lang VARCHAR(8) NOT NULL DEFAULT 'en', ALGORITHM=COPY")
	want := e.Truth()
	e.Expect(4, []string{"columns"}, "purge")
	gone(e, want)
}
