package message

import "fmt"

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
