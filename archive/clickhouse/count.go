package clickhouse

import (
	"context"
	"fmt"

	"github.com/coldtier/coldtier/archive/message"
)

// Messages counts the different messages of a copy.
func (d *DB) Messages(ctx context.Context, id CopyID, s *message.Schema) (uint64, error) {
	n, err := d.count(ctx, fmt.Sprintf("SELECT uniqExact(%s) FROM %s PREWHERE %s", ident(s.Columns()[s.Role(message.MessageID)].Name), d.qualified(tableName), condition(id)))
	if err != nil {
		return 0, fmt.Errorf("counting the ClickHouse rows of %s: %w", id, err)
	}
	return n, nil
}
