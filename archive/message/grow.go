package message

import "slices"

// Grow makes room for so many more rows, and in each column for so many more bytes. It
// changes nothing that can be seen but Memory.
func (b *Batch) Grow(rows int, bytes []int) {
	for i := range b.cols {
		c := &b.cols[i]
		c.data, c.ends = slices.Grow(c.data, bytes[i]), slices.Grow(c.ends, rows)
	}
	b.ids, b.cursors = slices.Grow(b.ids, rows), slices.Grow(b.cursors, rows)
}
