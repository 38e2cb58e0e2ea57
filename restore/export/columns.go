package export

import (
	"fmt"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore/selection"
)

// columns are those of an export: of all selected generations.
type columns struct {
	all  []message.Column
	rows map[string]*mapped // by hash of the schema
}

// mapped is how a schema's rows become the export's.
type mapped struct {
	row *row
	at  []int // places in the schema of the export's columns; -1: it lacks it
}

// columnsOf gives the columns of slices, which come oldest first.
func columnsOf(list []selection.Slice) *columns {
	c := &columns{rows: map[string]*mapped{}}
	seen := map[string]bool{}
	for _, s := range slices.Backward(list) {
		if seen[s.Schema.Hash()] {
			continue
		}
		seen[s.Schema.Hash()] = true
		for _, col := range s.Schema.Columns() {
			if i := c.index(col.Name); i >= 0 {
				c.all[i] = wider(c.all[i], col)
			} else {
				c.all = append(c.all, col)
			}
		}
	}
	return c
}

func (c *columns) index(name string) int {
	return slices.IndexFunc(c.all, func(o message.Column) bool { return o.Name == name })
}

// own is the name of a column of the export itself, which no column of the table has.
func (c *columns) own(name string) string {
	for c.index(name) >= 0 {
		name = "_" + name
	}
	return name
}

// wider gives the type that holds all values of both.
func wider(a, b message.Column) message.Column {
	signed := func(i, u message.Column) bool { return i.Kind == message.Int && u.Kind == message.Uint && u.Bits < 64 }
	switch {
	case a.Kind == b.Kind:
		whole := max(a.Precision-a.Scale, b.Precision-b.Scale)
		a.Bits, a.Scale = max(a.Bits, b.Bits), max(a.Scale, b.Scale)
		if a.Kind == message.Decimal {
			a.Precision = whole + a.Scale
		}
	case signed(a, b), signed(b, a):
		a.Kind, a.Bits = message.Int, 64
	case a.Kind == message.Bytes || b.Kind == message.Bytes:
		a.Kind = message.Bytes
	default:
		a.Kind = message.Text
	}
	return a
}

// row gives a row to fill with the rows of a schema, and from which of its columns.
func (c *columns) row(s *message.Schema) (*row, []int, error) {
	if m := c.rows[s.Hash()]; m != nil {
		return m.row, m.at, nil
	}
	m := &mapped{&row{values: make([][]byte, len(c.all)), source: slices.Clone(c.all)}, make([]int, len(c.all))}
	for i, col := range c.all {
		if m.at[i] = s.Index(col.Name); m.at[i] >= 0 {
			m.row.source[i] = s.Columns()[m.at[i]]
		}
	}
	for _, col := range s.Columns() {
		if c.index(col.Name) < 0 {
			return nil, nil, fmt.Errorf("column %s came with a generation that was committed while the export ran: export again", col.Name)
		}
	}
	c.rows[s.Hash()] = m
	return m.row, m.at, nil
}
