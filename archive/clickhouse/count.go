package clickhouse

import (
	"context"
	"fmt"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Messages counts the different messages of a copy.
func (d *DB) Messages(ctx context.Context, id CopyID, s *message.Schema) (uint64, error) {
	n, err := d.count(ctx, fmt.Sprintf("SELECT uniqExact(%s) FROM %s PREWHERE %s", ident(s.Columns()[s.Role(message.MessageID)].Name), d.qualified(tableName), condition(id)))
	if err != nil {
		return 0, fmt.Errorf("counting the ClickHouse rows of %s: %w", id, err)
	}
	return n, nil
}

// Days lists the days that have rows, in order. No table means none.
func (d *DB) Days(ctx context.Context) (days []snowflake.Day, err error) {
	if cols, err := d.tableColumns(ctx, tableName); err != nil || len(cols) == 0 {
		return nil, err
	}
	err = d.query(ctx, nil, fmt.Sprintf("SELECT DISTINCT toString(%s) AS d FROM %s ORDER BY d", colDay, d.qualified(tableName)), func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		day, err := snowflake.ParseDay(text)
		days = append(days, day)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the days of ClickHouse table %s.%s: %w", d.cfg.Database, tableName, err)
	}
	return days, nil
}

// Counts tells fn how many rows each copy of the days has, first and last among them: all
// that are in the table, whether anything names them or not. A row that was inserted
// twice may count twice until it is merged, so the count says for sure only what is
// missing; Messages is exact.
func (d *DB) Counts(ctx context.Context, first, last snowflake.Day, fn func(id CopyID, rows uint64) error) error {
	if cols, err := d.tableColumns(ctx, tableName); err != nil || len(cols) == 0 {
		return err
	}
	err := d.query(ctx, nil, fmt.Sprintf("SELECT toString(%[1]s) AS d, toString(%[2]s) AS s, %[3]s, toString(%[4]s) AS a, count() FROM %[5]s PREWHERE %[1]s >= toDate(%[6]s) AND %[1]s <= toDate(%[7]s) GROUP BY %[1]s, %[2]s, %[3]s, %[4]s",
		colDay, colShard, colGeneration, colAttempt, d.qualified(tableName), quote(first.String()), quote(last.String())), func(scan func(...any) error) error {
		var day, shard string
		var id CopyID
		var rows uint64
		if err := scan(&day, &shard, &id.Generation, &id.Attempt, &rows); err != nil {
			return err
		}
		var err error
		if id.Day, err = snowflake.ParseDay(day); err != nil {
			return err
		}
		if id.Shard, err = manifest.ParseShard(shard); err != nil {
			return err
		}
		return fn(id, rows)
	})
	if err != nil {
		return fmt.Errorf("counting the ClickHouse rows of %s to %s: %w", first, last, err)
	}
	return nil
}
