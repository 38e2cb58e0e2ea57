package clickhouse

import (
	"context"
	"fmt"
	"time"
)

// Drop removes a copy's rows and waits until they are gone. It may be called again, also
// for a copy that was never there.
func (d *DB) Drop(ctx context.Context, id CopyID) error {
	if err := d.drop(ctx, id); err != nil {
		return fmt.Errorf("dropping the ClickHouse rows of %s: %w", id, err)
	}
	return nil
}

func (d *DB) drop(ctx context.Context, id CopyID) error {
	cols, err := d.tableColumns(ctx, tableName)
	if err != nil || len(cols) == 0 { // without a table there are no rows
		return err
	}
	rows := "SELECT count() FROM " + d.qualified(tableName) + " PREWHERE " + condition(id)
	n, err := d.count(ctx, rows)
	if err != nil || n == 0 {
		return err
	}
	table, mutations := tableName, "system.mutations"
	if d.cfg.Cluster != "" { // a Distributed table has no mutations; each shard's first replica tells of its own
		table, mutations = localName, fmt.Sprintf("cluster(%s, system.mutations)", ident(d.cfg.Cluster))
	}
	if err := d.exec(ctx, fmt.Sprintf("ALTER TABLE %s%s DELETE WHERE %s", d.qualified(table), d.onCluster(), condition(id))); err != nil {
		return err
	}
	// Deleting goes on in the background. The attempt is unique, so a mutation that
	// names it is ours or that of someone who drops the same copy.
	running := fmt.Sprintf("SELECT count() FROM %s WHERE database = %s AND table = %s AND is_done = 0 AND position(command, %s) > 0",
		mutations, quote(d.cfg.Database), quote(table), quote(id.Attempt))
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		left, err := d.count(ctx, running)
		if err != nil {
			return err
		}
		if left == 0 {
			break
		}
		if err := sleep(ctx, wait); err != nil {
			return fmt.Errorf("waiting for the deletion, which goes on in the server: %w", tell(ctx, err))
		}
	}
	if n, err = d.count(ctx, rows); err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%w: %d rows are still there: an insert of the same attempt came in between; drop it again", ErrBusy, n)
	}
	return nil
}
