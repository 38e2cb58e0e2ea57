package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

const (
	tableName = "messages"
	localName = "messages_local" // on each shard, when there is a cluster
	// Rows of a granule, the least that is read: a page is some dozens of rows, each
	// perhaps of a kilobyte.
	granularity = 2048
)

// maxRounds is how often Migrate looks again for what is lacking.
const maxRounds = 5

// tableColumn is a column as ClickHouse has it.
type tableColumn struct {
	name, kind string
	inKey      bool
}

// Migrate makes the table fit the schemas of all warm tables: it creates the database
// and the table, adds columns, and widens columns. It never drops or narrows one. It
// gives the statements in order; with dryRun it only says them.
func (d *DB) Migrate(ctx context.Context, schemas []*message.Schema, dryRun bool) (statements []string, err error) {
	u, err := unite(schemas)
	if err != nil {
		return nil, fmt.Errorf("ClickHouse table %s.%s: %w", d.cfg.Database, tableName, err)
	}
	todo, err := d.lacking(ctx, u)
	if err != nil || dryRun {
		return todo, err
	}
	// Where another process makes the table at the same moment, a CREATE IF NOT EXISTS succeeds
	// and does nothing, so that columns are still lacking: look again until none is.
	for range maxRounds {
		if len(todo) == 0 {
			d.forgetTypes()
			return statements, nil
		}
		for len(todo) > 0 {
			s := todo[0]
			if err := d.exec(ctx, s); err != nil {
				// Another process may just have done it.
				if now, e := d.lacking(ctx, u); e == nil && !slices.Contains(now, s) {
					todo = now
					continue
				}
				return nil, fmt.Errorf("%s: %w", firstWords(s), err)
			}
			statements, todo = append(statements, s), todo[1:]
		}
		if todo, err = d.lacking(ctx, u); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("ClickHouse table %s.%s: %w after %d rounds of statements that succeeded: another process changes it, or the server takes long to show what it did; try again: %s",
		d.cfg.Database, tableName, ErrNoTable, maxRounds, strings.Join(todo, "; "))
}

// lacking are the statements for what is not there as it should be.
func (d *DB) lacking(ctx context.Context, u union) (statements []string, err error) {
	exists, err := d.count(ctx, "SELECT count() FROM system.databases WHERE name = "+quote(d.cfg.Database))
	if err != nil {
		return nil, fmt.Errorf("looking for ClickHouse database %s: %w", d.cfg.Database, err)
	}
	if exists == 0 {
		statements = append(statements, fmt.Sprintf("CREATE DATABASE IF NOT EXISTS %s%s", ident(d.cfg.Database), d.onCluster()))
	}
	tables := []string{tableName}
	if d.cfg.Cluster != "" {
		tables = []string{localName, tableName} // the Distributed one last: it has no rows, so a crash between the two costs nothing
	}
	for _, t := range tables {
		have, err := d.tableColumns(ctx, t)
		if err != nil {
			return nil, err
		}
		more := []string{d.createTable(u, t)}
		if len(have) > 0 {
			if more, err = d.alterTable(u, t, have); err != nil {
				return nil, err
			}
			if len(more) > 0 && t != tables[0] && !d.srv.altersDistributed() {
				more = d.remakeDistributed(u, have)
			}
		}
		statements = append(statements, more...)
	}
	return statements, nil
}

func firstWords(statement string) string {
	if i := strings.IndexByte(statement, '('); i > 0 {
		statement = statement[:i]
	}
	return strings.TrimSpace(statement)
}

func (d *DB) qualified(table string) string { return ident(d.cfg.Database) + "." + ident(table) }

func (d *DB) onCluster() string {
	if d.cfg.Cluster == "" {
		return ""
	}
	return " ON CLUSTER " + ident(d.cfg.Cluster)
}

// createTable is the statement for the table that holds rows, or the Distributed one
// over it.
func (d *DB) createTable(u union, table string) string {
	text := d.srv.serviceText()
	lines := []string{colDay + " Date", colShard + " " + text, colGeneration + " UInt32", colAttempt + " " + text, colExact + " String"}
	holdsRows := d.cfg.Cluster == "" || table == localName
	for _, c := range u.columns {
		line := ident(c.Name) + " " + d.srv.columnType(c, false)
		if holdsRows {
			line += d.srv.codecClause(c, slices.Contains(u.key, c.Name))
		}
		lines = append(lines, line)
	}
	engine := "ReplacingMergeTree()"
	if d.cfg.Cluster != "" {
		// {shard} and {replica} are the server's own macros.
		engine = fmt.Sprintf("ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/%s/%s', '{replica}')", d.cfg.Database, table)
	}
	if !holdsRows {
		return d.createDistributed(u, lines)
	}
	// The shard comes first: a copy is one shard's, and so are a conversation's rows, mostly.
	return d.createColumns(table, lines) + fmt.Sprintf("ENGINE = %s PARTITION BY toYYYYMM(%s) ORDER BY (%s, %s, %s, %s, %s) SETTINGS index_granularity = %d",
		engine, colDay, colShard, idents(u.key), colDay, colGeneration, colAttempt, granularity)
}

func (d *DB) createColumns(table string, lines []string) string {
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s%s (\n  %s\n) ", d.qualified(table), d.onCluster(), strings.Join(lines, ",\n  "))
}

// createDistributed is sharded by conversation, so that a page is one shard's, and a block
// that is sent twice meets its first sending.
func (d *DB) createDistributed(u union, lines []string) string {
	return d.createColumns(tableName, lines) +
		fmt.Sprintf("ENGINE = Distributed(%s, %s, %s, cityHash64(%s))", ident(d.cfg.Cluster), ident(d.cfg.Database), ident(localName), ident(u.key[0]))
}

// remakeDistributed drops the Distributed table, which has no rows of its own, and makes it
// with the columns it had and those it lacks. Between the two, readers miss the table.
func (d *DB) remakeDistributed(u union, have []tableColumn) []string {
	var lines []string
	had := map[string]bool{}
	for _, c := range have {
		had[c.name] = true
		kind := c.kind
		if i := slices.IndexFunc(u.columns, func(w message.Column) bool { return w.Name == c.name }); i >= 0 && !parseType(kind).holds(u.columns[i]) {
			kind = d.widened(u.columns[i], parseType(kind))
		}
		lines = append(lines, ident(c.name)+" "+kind)
	}
	for _, c := range u.columns {
		if !had[c.Name] {
			lines = append(lines, ident(c.Name)+" "+d.srv.columnType(c, true))
		}
	}
	return []string{"DROP TABLE IF EXISTS " + d.qualified(tableName) + d.onCluster(), d.createDistributed(u, lines)}
}

// widened is the type that a column gets which cannot hold the source's values.
func (d *DB) widened(c message.Column, was typeName) string {
	if was.base == "String" { // holds everything but NULL
		return nullable("String")
	}
	return d.srv.columnType(c, was.nullable)
}

// alterTable gives the statements that make an existing table fit.
func (d *DB) alterTable(u union, table string, have []tableColumn) (statements []string, err error) {
	var bad []error
	complain := func(format string, args ...any) {
		bad = append(bad, fmt.Errorf("ClickHouse table %s.%s: "+format, append([]any{d.cfg.Database, table}, args...)...))
	}
	find := func(name string) (tableColumn, bool) {
		i := slices.IndexFunc(have, func(c tableColumn) bool { return c.name == name })
		if i < 0 {
			return tableColumn{}, false
		}
		return have[i], true
	}
	for _, name := range []string{colDay, colShard, colGeneration, colAttempt, colExact} {
		if _, ok := find(name); !ok {
			complain("%w: column %s is missing, so coldtier did not make it: name another clickhouse.database", ErrNoTable, name)
		}
	}
	holdsRows := d.cfg.Cluster == "" || table == localName
	for _, c := range u.columns {
		isKey := slices.Contains(u.key, c.Name)
		old, ok := find(c.Name)
		if !ok {
			if isKey {
				complain("%w: column %s, which is to be part of its key, is missing: name another clickhouse.database", ErrNoTable, c.Name)
				continue
			}
			add := fmt.Sprintf("ALTER TABLE %s%s ADD COLUMN %s %s", d.qualified(table), d.onCluster(), ident(c.Name), d.srv.columnType(c, true))
			if holdsRows {
				add += d.srv.codecClause(c, false)
			}
			statements = append(statements, add)
			continue
		}
		if holdsRows && old.inKey != isKey {
			complain("%w: its key and the roles of column %s disagree: name another clickhouse.database", ErrNoTable, c.Name)
			continue
		}
		was := parseType(old.kind)
		if was.holds(c) {
			continue
		}
		kind := d.widened(c, was)
		switch {
		case !was.canBecome(parseType(kind)):
			complain("%w: column %s is %s there and %s in the source: make the types alike, or name another clickhouse.database", ErrNoTable, c.Name, old.kind, describe(c))
		case isKey:
			complain("%w: column %s is %s there and %s in the source, and a key column cannot be changed: name another clickhouse.database", ErrNoTable, c.Name, old.kind, describe(c))
		default:
			statements = append(statements, fmt.Sprintf("ALTER TABLE %s%s MODIFY COLUMN %s %s", d.qualified(table), d.onCluster(), ident(c.Name), kind))
		}
	}
	return statements, errors.Join(bad...)
}

// tableColumns reads a table's columns; none means that there is no such table.
func (d *DB) tableColumns(ctx context.Context, table string) (cols []tableColumn, err error) {
	what := fmt.Sprintf("reading the columns of ClickHouse table %s.%s", d.cfg.Database, table)
	err = d.query(ctx, nil, fmt.Sprintf("SELECT name, type, is_in_sorting_key FROM system.columns WHERE database = %s AND table = %s", quote(d.cfg.Database), quote(table)),
		func(scan func(...any) error) error {
			var c tableColumn
			var key uint8
			if err := scan(&c.name, &c.kind, &key); err != nil {
				return err
			}
			c.inKey = key == 1
			cols = append(cols, c)
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return cols, nil
}
