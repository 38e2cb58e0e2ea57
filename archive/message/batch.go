package message

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// ErrBatchFull says that a batch's column would pass its 2 GiB; the row was not added.
var ErrBatchFull = errors.New("batch is full")

const maxColumnBytes = math.MaxInt32

// Batch is rows in columns, each value as its canonical text. Rows are added and
// read, never changed. It is not safe for concurrent writing.
type Batch struct {
	schema  *Schema
	cols    []column
	ids     []uint64 // the message ID of each row
	cursors []uint64
	bytes   int
}

type column struct {
	data []byte
	ends []uint32 // end of row i's value in data
	null []uint64 // bitmap; empty when no row is NULL
}

// NewBatch makes an empty batch.
func NewBatch(s *Schema) *Batch { return &Batch{schema: s, cols: make([]column, s.Len())} }

// Schema is the batch's schema.
func (b *Batch) Schema() *Schema { return b.schema }

// Len is the number of rows.
func (b *Batch) Len() int { return len(b.ids) }

// Bytes is the memory the rows take, about.
func (b *Batch) Bytes() int { return b.bytes }

// Reset removes all rows and keeps the memory.
func (b *Batch) Reset() {
	for i := range b.cols {
		c := &b.cols[i]
		c.data, c.ends, c.null = c.data[:0], c.ends[:0], c.null[:0]
	}
	b.ids, b.cursors, b.bytes = b.ids[:0], b.cursors[:0], 0
}

// Append adds a row of canonical texts in the schema's order; nil is NULL. The
// values are copied. A row whose message ID or cursor is no number in 0..2^64-1,
// or whose NOT NULL role is NULL, is an error and not added.
func (b *Batch) Append(row [][]byte) error {
	if len(row) != len(b.cols) {
		return fmt.Errorf("row has %d values, the schema %d columns", len(row), len(b.cols))
	}
	idAt, curAt := b.schema.Role(MessageID), b.schema.Cursor()
	id, err := parseID(row[idAt])
	if err != nil {
		return fmt.Errorf("message ID %q in column %s: %w", row[idAt], b.schema.columns[idAt].Name, err)
	}
	cursor := id
	if curAt != idAt {
		if cursor, err = parseID(row[curAt]); err != nil {
			return fmt.Errorf("message %d: sequence %q in column %s: %w", id, row[curAt], b.schema.columns[curAt].Name, err)
		}
	}
	if at := b.schema.Role(ConversationID); row[at] == nil {
		return fmt.Errorf("message %d: conversation ID in column %s is NULL", id, b.schema.columns[at].Name)
	}
	for i, v := range row {
		if len(b.cols[i].data)+len(v) > maxColumnBytes {
			return fmt.Errorf("message %d, column %s: %w", id, b.schema.columns[i].Name, ErrBatchFull)
		}
	}
	n := len(b.ids)
	for i, v := range row {
		b.cols[i].add(n, v)
		b.bytes += len(v) + 4
	}
	b.ids, b.cursors, b.bytes = append(b.ids, id), append(b.cursors, cursor), b.bytes+16
	return nil
}

func (c *column) add(n int, v []byte) {
	if v == nil {
		for len(c.null) <= n/64 {
			c.null = append(c.null, 0)
		}
		c.null[n/64] |= 1 << (n % 64)
	}
	c.data = append(c.data, v...)
	c.ends = append(c.ends, uint32(len(c.data))) //nolint:gosec // bounded by maxColumnBytes
}

func (c *column) isNull(i int) bool { return len(c.null) > i/64 && c.null[i/64]>>(i%64)&1 == 1 }

func (c *column) value(i int) []byte {
	if c.isNull(i) {
		return nil
	}
	from := uint32(0)
	if i > 0 {
		from = c.ends[i-1]
	}
	if from == c.ends[i] {
		return empty // never nil, even while data is
	}
	return c.data[from:c.ends[i]:c.ends[i]]
}

var empty = []byte{}

// parseID reads an unsigned decimal without allocating.
func parseID(text []byte) (uint64, error) {
	if len(text) == 0 || len(text) > 20 {
		return 0, errors.New("want a number in 0..2^64-1")
	}
	var n uint64
	for _, d := range text {
		if d < '0' || d > '9' || n > math.MaxUint64/10 {
			return 0, errors.New("want a number in 0..2^64-1")
		}
		next := n*10 + uint64(d-'0')
		if next < n*10 {
			return 0, errors.New("want a number in 0..2^64-1")
		}
		n = next
	}
	return n, nil
}

// AppendFrom adds row i of another batch of the same schema.
func (b *Batch) AppendFrom(src *Batch, i int) error {
	for c := range b.cols {
		if len(b.cols[c].data)+len(src.cols[c].value(i)) > maxColumnBytes {
			return fmt.Errorf("message %d: %w", src.ids[i], ErrBatchFull)
		}
	}
	n := len(b.ids)
	for c := range b.cols {
		v := src.cols[c].value(i)
		b.cols[c].add(n, v)
		b.bytes += len(v) + 4
	}
	b.ids, b.cursors, b.bytes = append(b.ids, src.ids[i]), append(b.cursors, src.cursors[i]), b.bytes+16
	return nil
}

// Value is the canonical text of a value: nil for NULL, else non-nil. It is valid
// until Reset; do not change it.
func (b *Batch) Value(col, row int) []byte { return b.cols[col].value(row) }

// IsNull says whether a value is NULL.
func (b *Batch) IsNull(col, row int) bool { return b.cols[col].isNull(row) }

// MessageID is the message ID of a row.
func (b *Batch) MessageID(row int) uint64 { return b.ids[row] }

// Cursor is the cursor of a row.
func (b *Batch) Cursor(row int) uint64 { return b.cursors[row] }

// Conversation is the canonical text of a row's conversation ID.
func (b *Batch) Conversation(row int) []byte {
	return b.cols[b.schema.roles[ConversationID]].value(row)
}

// Row appends the values of a row to dst.
func (b *Batch) Row(dst [][]byte, row int) [][]byte {
	for c := range b.cols {
		dst = append(dst, b.cols[c].value(row))
	}
	return dst
}

// Less orders rows by conversation (bytes of its text), cursor, then message ID:
// the order of rows in every cold copy.
func Less(a *Batch, i int, b *Batch, j int) bool { return Compare(a, i, b, j) < 0 }

// Compare is Less as a three-way comparison.
func Compare(a *Batch, i int, b *Batch, j int) int {
	if c := bytes.Compare(a.Conversation(i), b.Conversation(j)); c != 0 {
		return c
	}
	switch x, y := a.cursors[i], b.cursors[j]; {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	switch x, y := a.ids[i], b.ids[j]; {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// FormatID writes a message ID or cursor in decimal.
func FormatID(id uint64) string { return strconv.FormatUint(id, 10) }
