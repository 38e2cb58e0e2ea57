package message

import (
	"fmt"
	"slices"
)

// Project gives the rows of a batch the columns of another schema, by name; texts
// are carried over unchanged. A column that the batch lacks becomes NULL; where it
// may not be NULL, or where the batch has a column whose values the other schema
// would lose, Project refuses and names the column.
func Project(b *Batch, to *Schema) (*Batch, error) {
	if b.schema.Equal(to) {
		return b, nil
	}
	from := make([]int, to.Len())
	for i, c := range to.columns {
		if from[i] = b.schema.Index(c.Name); from[i] < 0 && !c.Nullable {
			return nil, fmt.Errorf("column %s is NOT NULL and was not there when the rows were archived", c.Name)
		}
	}
	for i, c := range b.schema.columns {
		if to.Index(c.Name) >= 0 {
			continue
		}
		for row := range b.Len() {
			if !b.cols[i].isNull(row) {
				return nil, fmt.Errorf("message %d: its archived value of column %s would be lost: the table has no such column any more", b.ids[row], c.Name)
			}
		}
	}
	out := NewBatch(to)
	values := make([][]byte, to.Len())
	for row := range b.Len() {
		for i, c := range from {
			if values[i] = nil; c >= 0 {
				values[i] = b.cols[c].value(row)
			}
			if values[i] == nil && !to.columns[i].Nullable {
				return nil, fmt.Errorf("message %d: column %s became NOT NULL after its NULL was archived", b.ids[row], to.columns[i].Name)
			}
		}
		if err := out.Append(values); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Widen is s with those columns nullable that the older schema lacks or has as
// nullable: the schema that rows of both can be carried in.
func (s *Schema) Widen(older *Schema) (*Schema, error) {
	cols := slices.Clone(s.columns)
	roles := map[Role]string{}
	for r, i := range s.roles {
		if i >= 0 {
			roles[Role(r)] = s.columns[i].Name
		}
	}
	for i := range cols {
		if j := older.Index(cols[i].Name); j < 0 || older.columns[j].Nullable {
			cols[i].Nullable = true
		}
	}
	return NewSchema(cols, roles)
}

// SameColumns says whether two schemas differ in nothing but which columns may be
// NULL. That does not touch any value: a copy may be of a wider schema than its
// table (see Widen), and a constraint that was dropped or added since changes no row.
func (s *Schema) SameColumns(o *Schema) bool {
	if s.roles != o.roles || len(s.columns) != len(o.columns) {
		return false
	}
	for i, c := range s.columns {
		if c.Nullable = o.columns[i].Nullable; c != o.columns[i] {
			return false
		}
	}
	return true
}
