package warm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// TargetTable is a table of a target, as it was when it was looked at.
type TargetTable struct {
	t          *Target
	name       string // as the server spells it
	quoted     string // with its database
	columns    []message.Column
	exprs      []string // canonical text of each column
	defaults   map[string]bool
	indexes    []*index
	showCreate string
}

// Table looks at a table. ErrNoTable: there is none. ErrUnfit: no rows can be written into
// it, whatever they are.
func (t *Target) Table(ctx context.Context, name string) (*TargetTable, error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close(ctx)
	x, err := t.look(ctx, s, name)
	if err != nil {
		return nil, fmt.Errorf("table %s.%s: %w", t.d.name, name, err)
	}
	return x, nil
}

func (t *Target) look(ctx context.Context, s *session, name string) (*TargetTable, error) {
	x := &TargetTable{t: t, defaults: map[string]bool{}}
	var kind, engine string
	err := s.rows(ctx, "SELECT TABLE_NAME AS n, TABLE_TYPE AS ty, ENGINE AS en FROM information_schema.TABLES WHERE TABLE_SCHEMA = "+literal(t.d.name), func(v [][]byte) error {
		if t.SameName(string(v[0]), name) {
			x.name, kind, engine = string(v[0]), string(v[1]), string(v[2])
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case x.name == "":
		return nil, ErrNoTable
	case kind != "BASE TABLE":
		return nil, fmt.Errorf("%w: it is a %s: rows are written into plain tables alone", ErrUnfit, strings.ToLower(kind))
	case !strings.EqualFold(engine, "InnoDB"):
		return nil, fmt.Errorf("%w: its engine %s has no transactions, so a statement that is cut off could leave a part of its rows: make it InnoDB", ErrUnfit, engine)
	}
	x.quoted = quote(t.d.name) + "." + quote(x.name)
	if x.columns, x.exprs, err = t.d.described(ctx, s, x.name); err != nil {
		return nil, err
	}
	var again string
	if err := s.row(ctx, "SHOW CREATE TABLE "+x.quoted, &again, &x.showCreate); err != nil {
		return nil, err
	}
	if unseen := without(defined(x.showCreate), x.columns); len(unseen) > 0 {
		return nil, fmt.Errorf("%w: this account may not see the columns %s: grant SELECT", ErrUnfit, strings.Join(unseen, ", "))
	}
	rows, err := s.named(ctx, "SHOW INDEX FROM "+x.quoted)
	if err != nil {
		return nil, err
	}
	x.indexes = readIndexes(rows)
	err = s.rows(ctx, "SELECT COLUMN_NAME AS n, COLUMN_DEFAULT IS NOT NULL OR IS_NULLABLE = 'YES' OR EXTRA LIKE '%auto_increment%' AS d FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = "+
		literal(t.d.name)+" AND TABLE_NAME = "+literal(x.name), func(v [][]byte) error {
		x.defaults[string(v[0])] = string(v[1]) == "1"
		return nil
	})
	if err != nil {
		return nil, err
	}
	return x, x.triggers(ctx, s)
}

// triggers refuses a table whose triggers a restore would fire: they would act a second
// time on messages that were sent long ago.
func (x *TargetTable) triggers(ctx context.Context, s *session) error {
	var names []string
	err := s.rows(ctx, "SELECT TRIGGER_NAME AS n FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = "+literal(x.t.d.name)+" AND EVENT_OBJECT_TABLE = "+literal(x.name)+
		" AND EVENT_MANIPULATION = 'INSERT'", func(v [][]byte) error {
		names = append(names, string(v[0]))
		return nil
	})
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("%w: each row that is written would fire the trigger %s: drop it, or restore into a table without", ErrUnfit, strings.Join(names, ", "))
	}
	return err
}

// Name is the table's name as the server spells it.
func (x *TargetTable) Name() string { return x.name }

// Sink takes rows of one archived schema into a table, by the columns' names. It is safe
// for concurrent use.
type Sink struct {
	x       *TargetTable
	schema  *message.Schema // of the rows
	at      []int           // the table's column for each archived one, -1: none
	missing []string
	exact   bool // each value that the archived columns can have fits the table's
	key     string
	id      string // message-ID column, quoted
	def     *definition
	insert  []int  // archived columns that are written
	into    string // their names in the table, quoted
	vars    []string
	sets    string
}

// Sink says how rows of a schema go into the table. ErrUnfit: they do not, and the error
// names each column that stands in the way.
func (x *TargetTable) Sink(s *message.Schema) (*Sink, error) {
	k := &Sink{x: x, schema: s, at: make([]int, s.Len()), exact: true}
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("table %s.%s: %w: "+format, append([]any{x.t.d.name, x.name, ErrUnfit}, args...)...))
	}
	used := map[int]bool{}
	for i, c := range s.Columns() {
		j := slices.IndexFunc(x.columns, func(o message.Column) bool { return strings.EqualFold(o.Name, c.Name) })
		k.at[i] = j
		if j < 0 {
			if !c.Nullable {
				bad("it has no column %s (%s), of which each archived row has a value: add it, or restore into another table", c.Name, c.SourceType)
			}
			k.missing = append(k.missing, c.Name)
			continue
		}
		used[j] = true
		exact, err := carries(c, x.columns[j])
		if err != nil {
			bad("column %s: %w", c.Name, err)
			continue
		}
		k.exact = k.exact && exact
		if !x.columns[j].Generated {
			k.insert = append(k.insert, i)
		}
	}
	for j, c := range x.columns {
		if !used[j] && !c.Generated && !x.defaults[c.Name] {
			bad("its column %s (%s) is not in the archive and has no default: give it one", c.Name, c.SourceType)
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if err := k.define(); err != nil {
		return nil, fmt.Errorf("table %s.%s: %w: %w", x.t.d.name, x.name, ErrUnfit, err)
	}
	return k, nil
}

// Missing are the archived columns that the table lacks: rows with a value in one of them
// must not be written.
func (k *Sink) Missing() []string { return k.missing }

// define makes the expressions by which the rows in the table are read and compared as
// archived ones.
func (k *Sink) define() error {
	x := k.x
	var columns []message.Column
	roles := map[message.Role]string{}
	var selects, into, parts []string
	for i, j := range k.at {
		if j < 0 {
			selects = append(selects, "NULL")
			parts = append(parts, "'~'")
			continue
		}
		c, e := x.columns[j], x.exprs[j]
		columns, selects = append(columns, c), append(selects, e)
		for _, r := range message.Roles() {
			if k.schema.Role(r) == i {
				roles[r] = c.Name
			}
		}
		parts = append(parts, preimageOf(c, e))
	}
	schema, err := message.NewSchema(columns, roles)
	if err != nil {
		return err
	}
	id := schema.Columns()[schema.Role(message.MessageID)].Name
	if k.key, err = uniqueKey(x.indexes, id); err != nil {
		return err
	}
	conv := x.exprs[k.at[k.schema.Role(message.ConversationID)]]
	k.id = quote(id)
	k.def = &definition{schema: schema, id: k.id, key: k.key, convExpr: conv, selects: strings.Join(selects, ", "), preimage: preimageOfParts(parts)}
	var sets []string
	for _, i := range k.insert {
		c := x.columns[k.at[i]]
		name := quote(c.Name)
		into = append(into, name)
		if e := loadExpr(c); e != "" { // not as LOAD DATA itself would write it
			v := fmt.Sprintf("@v%d", i)
			k.vars = append(k.vars, v)
			sets = append(sets, name+" = "+fmt.Sprintf(e, v))
		} else {
			k.vars = append(k.vars, name)
		}
	}
	k.into = strings.Join(into, ", ")
	if len(sets) > 0 {
		k.sets = " SET " + strings.Join(sets, ", ")
	}
	return nil
}

// carries says whether a column holds an archived column's values so that they read the
// same. exact: each of them, for certain. Not exact: it may, and what was written is to be
// read back. An error: it cannot.
func carries(from, to message.Column) (exact bool, err error) {
	unfit := fmt.Errorf("it is %s there and was archived as %s: make it that", to.SourceType, from.SourceType)
	if from.Kind != to.Kind {
		pair := func(a, b message.Kind) bool {
			return from.Kind == a && to.Kind == b || from.Kind == b && to.Kind == a
		}
		switch {
		case pair(message.Int, message.Uint), pair(message.Text, message.Bytes):
			return false, nil
		case pair(message.DateTime, message.Timestamp) && from.Scale == to.Scale:
			return false, nil
		}
		return false, unfit
	}
	switch from.Kind {
	case message.Decimal, message.DateTime, message.Timestamp, message.Time:
		if from.Scale != to.Scale {
			return false, unfit
		}
	}
	if from.Generated || to.Generated {
		return false, nil
	}
	same := from.Charset == to.Charset || to.Charset == "utf8mb4" && slices.Contains([]string{"utf8mb3", "utf8", "ascii"}, from.Charset) // the same bytes
	return same && sourceType(from) == sourceType(to), nil
}

// sourceType is a column's type without what the server kinds write differently and no
// value depends on: the width with which integers are shown.
func sourceType(c message.Column) string {
	t := c.SourceType
	switch c.Kind {
	case message.Int, message.Uint, message.Year:
		if name, rest, ok := strings.Cut(t, "("); ok {
			_, rest, _ = strings.Cut(rest, ")")
			t = name + rest
		}
	}
	return t
}
