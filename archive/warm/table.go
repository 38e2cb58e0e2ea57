package warm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// Table is one warm table. It is safe for concurrent use.
type Table struct {
	d     *database
	shard manifest.Shard
	name  string // quoted, with its database
	def   atomic.Pointer[definition]
	// references are the foreign keys of other tables that point here.
	references []string
	refresher  refresher
}

// definition is what a table's columns and keys were when it was last read.
type definition struct {
	schema     *message.Schema
	id         string // message-ID column, quoted
	key        string // the unique key on it, quoted
	page       pageIndex
	convExpr   string // canonical text of the conversation ID
	selects    string // canonical text of each column
	preimage   string // of the fingerprint, see preimage
	insertable string // columns that are not generated
	showCreate string
	read       time.Time // when reading it began, by Config.Now
}

// Shard names the table.
func (t *Table) Shard() manifest.Shard { return t.shard }

// Schema is the table's columns as last read.
func (t *Table) Schema() *message.Schema { return t.def.Load().schema }

// ShowCreate is the table's definition as last read.
func (t *Table) ShowCreate() string { return t.def.Load().showCreate }

// Reload reads the table's definition anew. Scans under way keep the one they began with.
func (t *Table) Reload(ctx context.Context) error {
	return t.reload(ctx, t.d.db)
}

func (t *Table) reload(ctx context.Context, pool *sql.DB) error {
	s, err := t.d.connect(ctx, pool)
	if err != nil {
		return err
	}
	defer s.leave()
	def, err := t.d.define(ctx, s, t.shard.Table)
	if err != nil {
		return fmt.Errorf("table %s: %w", t.shard, err)
	}
	t.def.Store(def)
	return nil
}

func (d *database) table(name string, def *definition) *Table {
	t := &Table{d: d, shard: manifest.Shard{Database: d.name, Table: name}, name: quote(d.name) + "." + quote(name)}
	t.def.Store(def)
	return t
}

// define reads a table's definition. All that is wrong with it is in the error, a
// line for each column.
func (d *database) define(ctx context.Context, s *session, table string) (*definition, error) {
	now := d.cfg.Now()
	schema, exprs, showCreate, err := d.columns(ctx, s, table)
	if err != nil {
		return nil, err
	}
	def := &definition{read: now, schema: schema, convExpr: exprs[schema.Role(message.ConversationID)], selects: strings.Join(exprs, ", "), preimage: preimage(schema.Columns(), exprs), showCreate: showCreate}
	var insertable []string
	for _, c := range schema.Columns() {
		if !c.Generated {
			insertable = append(insertable, quote(c.Name))
		}
	}
	def.insertable = strings.Join(insertable, ", ")
	id := schema.Columns()[schema.Role(message.MessageID)].Name
	def.id = quote(id)
	rows, err := s.named(ctx, "SHOW INDEX FROM "+quote(d.name)+"."+quote(table))
	if err != nil {
		return nil, err
	}
	indexes, partitioned := readIndexes(rows), strings.Contains(showCreate, " PARTITION BY ")
	// MySQL writes what not every server knows as a comment, as MariaDB does not.
	def.page = findPageIndex(indexes, schema, !strings.Contains(showCreate, "\n PARTITION BY "))
	if def.key, err = uniqueKey(indexes, id); err != nil {
		if partitioned {
			err = fmt.Errorf("%w, which the server takes only where the table is partitioned by %s alone", err, id)
		}
		return nil, err
	}
	return def, nil
}

// columns reads a table's columns, the expression of each one's canonical text, and
// the table's definition. It refuses a table of which the account may see only some
// columns: information_schema has no others, so that neither a copy nor the
// fingerprint before a delete would hold what the delete takes away.
func (d *database) columns(ctx context.Context, s *session, table string) (*message.Schema, []string, string, error) {
	var unseen []string
	for range 2 { // again, since a column may have been added between the two readings
		columns, exprs, err := d.described(ctx, s, table)
		if err != nil {
			return nil, nil, "", err
		}
		var name, showCreate string
		if err := s.row(ctx, "SHOW CREATE TABLE "+quote(d.name)+"."+quote(table), &name, &showCreate); err != nil {
			return nil, nil, "", err
		}
		if unseen = without(defined(showCreate), columns); len(unseen) == 0 {
			schema, err := message.NewSchema(columns, d.cfg.Columns)
			return schema, exprs, showCreate, err
		}
	}
	return nil, nil, "", fmt.Errorf("this account may not see the columns %s, so that no copy would hold all that a purge deletes: GRANT SELECT ON %s.%s",
		strings.Join(unseen, ", "), quote(d.name), quote(table))
}

// defined are the columns that SHOW CREATE TABLE names, one in each line that begins
// with a quoted name: also those that an account may not see. Only behind the columns
// does it write texts that have lines of their own.
func defined(showCreate string) (names []string) {
	for _, c := range columnTexts(showCreate) {
		names = append(names, c.name)
	}
	return names
}

func columnTexts(showCreate string) (all []columnText) {
	for line := range strings.SplitSeq(showCreate, "\n") {
		if strings.HasPrefix(line, ")") {
			break
		}
		if name, ok := strings.CutPrefix(line, "  `"); ok {
			if end := strings.Index(strings.ReplaceAll(name, "``", "xx"), "`"); end >= 0 {
				all = append(all, columnText{strings.ReplaceAll(name[:end], "``", "`"), strings.TrimSuffix(strings.TrimSpace(line), ",")})
			}
		}
	}
	return all
}

// without are the names that no column has.
func without(names []string, columns []message.Column) (missing []string) {
	for _, n := range names {
		if !slices.ContainsFunc(columns, func(c message.Column) bool { return c.Name == n }) {
			missing = append(missing, n)
		}
	}
	return missing
}

// described reads a table's columns from information_schema.
func (d *database) described(ctx context.Context, s *session, table string) ([]message.Column, []string, error) {
	var columns []message.Column
	var exprs []string
	var problems []error
	// Aliases, since the headings are in lower case on one server kind and in upper case on the other.
	err := s.rows(ctx, `SELECT COLUMN_NAME AS n, DATA_TYPE AS dt, COLUMN_TYPE AS ct, CHARACTER_SET_NAME AS cs, COLLATION_NAME AS co,
		NUMERIC_PRECISION AS np, NUMERIC_SCALE AS ns, DATETIME_PRECISION AS dp, IS_NULLABLE AS nu, GENERATION_EXPRESSION AS ge
		FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = `+literal(d.name)+` AND TABLE_NAME = `+literal(table)+` ORDER BY ORDINAL_POSITION`,
		func(v [][]byte) error {
			c, expr, err := describe(sourceColumn{
				name: string(v[0]), dataType: strings.ToLower(string(v[1])), columnType: string(v[2]),
				charset: string(v[3]), collation: string(v[4]), precision: atoi(v[5]), scale: atoi(v[6]), fraction: atoi(v[7]),
				nullable: string(v[8]) == "YES", generated: len(v[9]) > 0,
			})
			if err != nil {
				problems = append(problems, err)
				return nil
			}
			columns, exprs = append(columns, c), append(exprs, expr)
			return nil
		})
	if err != nil {
		return nil, nil, err
	}
	if len(problems) > 0 {
		return nil, nil, errors.Join(problems...)
	}
	if len(columns) == 0 {
		return nil, nil, errors.New("has no columns that this account may see: it does not exist, or SELECT is not granted")
	}
	return columns, exprs, nil
}

// literal makes a string literal, for a session whose sql_mode knows backslash escapes.
func literal(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\x00", `\0`).Replace(text) + "'"
}

// named reads a whole small result by column names in lower case; nil is NULL.
func (s *session) named(ctx context.Context, q string) ([]map[string][]byte, error) {
	rows, err := s.conn.QueryContext(ctx, q)
	if err != nil {
		return nil, s.note(ctx, err)
	}
	out, err := namedRows(rows)
	return out, s.note(ctx, err)
}

func namedRows(rows *sql.Rows) (out []map[string][]byte, err error) {
	names, err := rows.Columns()
	if err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	_, err = eachRow(rows, func(values [][]byte) error {
		r := map[string][]byte{}
		for i, v := range values {
			if v != nil {
				r[strings.ToLower(names[i])] = append([]byte{}, v...)
			}
		}
		out = append(out, r)
		return nil
	})
	return out, err
}
