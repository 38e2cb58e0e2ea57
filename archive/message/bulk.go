package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Chunk is a run of message IDs [From, To) of a warm table as a scan gives it:
// its rows, in the order of their IDs, and their fingerprint.
type Chunk struct {
	From, To    uint64
	Batch       *Batch
	Fingerprint Fingerprint
}

// Clone is a copy of the batch that takes no more memory than it needs.
func (b *Batch) Clone() *Batch {
	c := &Batch{schema: b.schema, cols: make([]column, len(b.cols)), ids: slices.Clone(b.ids), cursors: slices.Clone(b.cursors), bytes: b.bytes}
	for i, col := range b.cols {
		c.cols[i] = column{data: slices.Clone(col.data), ends: slices.Clone(col.ends), null: slices.Clone(col.null)}
	}
	return c
}

// Memory is the bytes the batch holds, used or not.
func (b *Batch) Memory() (n int) {
	for _, c := range b.cols {
		n += cap(c.data) + 4*cap(c.ends) + 8*cap(c.null)
	}
	return n + 8*cap(b.ids) + 8*cap(b.cursors)
}

var errTruncated = errors.New("batch is cut short")

// AppendBinary writes the batch for DecodeBatch. The form is for files that live
// no longer than the process: it has no version and no checksum.
func (b *Batch) AppendBinary(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(b.Len())) //nolint:gosec // a length
	for i := range b.ids {
		dst = binary.LittleEndian.AppendUint64(dst, b.ids[i])
		dst = binary.LittleEndian.AppendUint64(dst, b.cursors[i])
	}
	for i := range b.cols {
		c := &b.cols[i]
		dst = binary.AppendUvarint(dst, uint64(len(c.data)))
		dst = append(dst, c.data...)
		from := uint32(0)
		for _, end := range c.ends {
			dst = binary.AppendUvarint(dst, uint64(end-from))
			from = end
		}
		dst = binary.AppendUvarint(dst, uint64(len(c.null)))
		for _, w := range c.null {
			dst = binary.LittleEndian.AppendUint64(dst, w)
		}
	}
	return dst
}

// DecodeBatch reads what AppendBinary wrote into b, whose rows are replaced. The
// batch keeps no part of src.
func (b *Batch) DecodeBatch(src []byte) error {
	b.Reset()
	n, src, err := uvarint(src)
	if err != nil {
		return err
	}
	if uint64(len(src)) < 16*n {
		return errTruncated
	}
	for range n {
		b.ids = append(b.ids, binary.LittleEndian.Uint64(src))
		b.cursors = append(b.cursors, binary.LittleEndian.Uint64(src[8:]))
		src = src[16:]
	}
	for i := range b.cols {
		if src, err = b.cols[i].decode(src, int(n)); err != nil { //nolint:gosec // n is less than len(src)
			return fmt.Errorf("column %s: %w", b.schema.columns[i].Name, err)
		}
		b.bytes += len(b.cols[i].data) + 4*len(b.ids)
	}
	b.bytes += 16 * len(b.ids)
	if len(src) != 0 {
		return fmt.Errorf("batch has %d bytes too many", len(src))
	}
	return nil
}

func (c *column) decode(src []byte, rows int) ([]byte, error) {
	size, src, err := uvarint(src)
	if err != nil || uint64(len(src)) < size {
		return nil, errTruncated
	}
	c.data, src = append(c.data, src[:size]...), src[size:]
	end := uint64(0)
	for range rows {
		var n uint64
		if n, src, err = uvarint(src); err != nil {
			return nil, err
		}
		if end += n; end > size {
			return nil, errTruncated
		}
		c.ends = append(c.ends, uint32(end)) //nolint:gosec // at most size, which a batch's column bounds
	}
	words, src, err := uvarint(src)
	if err != nil || uint64(len(src)) < 8*words {
		return nil, errTruncated
	}
	for range words {
		c.null, src = append(c.null, binary.LittleEndian.Uint64(src)), src[8:]
	}
	return src, nil
}

func uvarint(src []byte) (uint64, []byte, error) {
	n, size := binary.Uvarint(src)
	if size <= 0 || n > 1<<40 {
		return 0, nil, errTruncated
	}
	return n, src[size:], nil
}
