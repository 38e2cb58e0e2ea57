package clickhouse

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// union is the columns of all warm tables by name, and the key of the one table in
// ClickHouse that holds the rows of all of them.
type union struct {
	columns []message.Column
	key     []string // conversation, cursor, message ID; the latter two may be one
}

// describe names a column's type in the source's words, for errors.
func describe(c message.Column) string {
	t := c.SourceType
	if t == "" {
		t = c.Kind.String()
	}
	if c.Nullable {
		return t + " NULL"
	}
	return t + " NOT NULL"
}

func keyOf(s *message.Schema) []string {
	cols := s.Columns()
	key := []string{cols[s.Role(message.ConversationID)].Name, cols[s.Cursor()].Name, cols[s.Role(message.MessageID)].Name}
	if key[1] == key[2] {
		key = key[:2]
	}
	return key
}

// unite merges schemas. All its problems come in one error, one line each.
func unite(schemas []*message.Schema) (union, error) {
	if len(schemas) == 0 {
		return union{}, errors.New("no warm tables, so it is unknown which columns ClickHouse needs")
	}
	u := union{key: keyOf(schemas[0])}
	var bad []error
	at := map[string]int{}
	reported := map[string]bool{}
	complain := func(name string, err error) {
		if !reported[name] {
			reported[name] = true
			bad = append(bad, fmt.Errorf("column %s: %w", name, err))
		}
	}
	inAll := map[string]int{}
	for _, s := range schemas {
		if k := keyOf(s); !slices.Equal(k, u.key) {
			bad = append(bad, fmt.Errorf("conversation, sequence and message ID are %s in one table and %s in another: all tables must name them alike",
				strings.Join(u.key, ", "), strings.Join(k, ", ")))
		}
		for _, c := range s.Columns() {
			inAll[c.Name]++
			i, known := at[c.Name]
			if !known {
				if isService(c.Name) {
					complain(c.Name, errors.New("the name belongs to coldtier's own columns in ClickHouse: rename it in the source"))
				} else if err := plainName(c.Name); err != nil {
					complain(c.Name, err)
				}
				at[c.Name] = len(u.columns)
				u.columns = append(u.columns, c)
				continue
			}
			merged, err := merge(u.columns[i], c)
			if err != nil {
				complain(c.Name, err)
				continue
			}
			u.columns[i] = merged
		}
	}
	// A column that only some tables have has no value in the others' rows.
	for i, c := range u.columns {
		u.columns[i].Nullable = c.Nullable || inAll[c.Name] < len(schemas)
	}
	return u, errors.Join(bad...)
}

// merge is the column that holds the values of both, or an error that names both.
func merge(a, b message.Column) (message.Column, error) {
	conflict := fmt.Errorf("%s in one table and %s in another: make the types alike, or archive the tables into different ClickHouse databases", describe(a), describe(b))
	m := a
	m.Nullable = a.Nullable || b.Nullable
	m.Enumerated = a.Enumerated && b.Enumerated
	m.Bits, m.Precision = max(a.Bits, b.Bits), max(a.Precision, b.Precision)
	switch {
	case a.Kind.Opaque() && b.Kind.Opaque():
		return m, nil // both are String, byte for byte
	case a.Kind != b.Kind:
		return a, conflict
	case a.Scale != b.Scale && a.Kind == message.Decimal:
		return a, conflict
	}
	m.Scale = max(a.Scale, b.Scale)
	return m, nil
}
