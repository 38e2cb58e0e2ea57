package segment

import (
	"encoding/binary"
	"errors"
)

// Parquet's page headers and footer are Thrift structs in the compact protocol.
// They are written and read here by hand: row groups of millions of rows stream
// into the footer without being held as structs, and reading never allocates by
// what a (perhaps damaged) length says.

const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftStruct = 12
)

// thriftWriter appends compact-protocol fields to b.
type thriftWriter struct {
	b    []byte
	last int16 // ID of the field before, within the current struct
}

// begin enters a struct; end gets what begin gave.
func (t *thriftWriter) begin() (outer int16) {
	outer, t.last = t.last, 0
	return outer
}

func (t *thriftWriter) end(outer int16) {
	t.b, t.last = append(t.b, 0), outer
}

// field writes the head of a field; IDs must rise by less than 16.
func (t *thriftWriter) field(id int16, kind byte) {
	t.b = append(t.b, byte(id-t.last)<<4|kind) //nolint:gosec // IDs below 16
	t.last = id
}

func (t *thriftWriter) varint(n int64) { t.b = binary.AppendVarint(t.b, n) }

func (t *thriftWriter) i32(id int16, n int32) {
	t.field(id, thriftI32)
	t.varint(int64(n))
}

func (t *thriftWriter) i64(id int16, n int64) {
	t.field(id, thriftI64)
	t.varint(n)
}

func (t *thriftWriter) bool(id int16, v bool) {
	if v {
		t.field(id, thriftTrue)
	} else {
		t.field(id, thriftFalse)
	}
}

func (t *thriftWriter) raw(s string) {
	t.b = append(binary.AppendUvarint(t.b, uint64(len(s))), s...)
}

func (t *thriftWriter) bytes(b []byte) {
	t.b = append(binary.AppendUvarint(t.b, uint64(len(b))), b...)
}

func (t *thriftWriter) string(id int16, s string) {
	t.field(id, thriftBinary)
	t.raw(s)
}

func (t *thriftWriter) binary(id int16, b []byte) {
	t.field(id, thriftBinary)
	t.bytes(b)
}

// list writes the head of a list of n elements, which the caller then writes.
func (t *thriftWriter) list(id int16, kind byte, n int) {
	t.field(id, thriftList)
	if n < 15 {
		t.b = append(t.b, byte(n)<<4|kind) //nolint:gosec // below 15
		return
	}
	t.b = binary.AppendUvarint(append(t.b, 0xf0|kind), uint64(n))
}

// emptyStruct writes a field that is a struct without fields.
func (t *thriftWriter) emptyStruct(id int16) {
	t.field(id, thriftStruct)
	t.b = append(t.b, 0)
}

var errThrift = errors.New("structure is damaged")

// maxThriftDepth is more than any Parquet structure nests.
const maxThriftDepth = 16

// thriftReader reads compact-protocol fields. Its slices alias b.
type thriftReader struct {
	b   []byte
	pos int
}

// next reads the head of the next field of a struct; ok is false at its end. last
// is the ID of the field before, 0 at first.
func (t *thriftReader) next(last *int16) (kind byte, ok bool, err error) {
	if t.pos >= len(t.b) {
		return 0, false, errThrift
	}
	h := t.b[t.pos]
	t.pos++
	if h == 0 {
		return 0, false, nil
	}
	if delta := h >> 4; delta != 0 {
		*last += int16(delta)
	} else {
		n, err := t.varint()
		if err != nil {
			return 0, false, err
		}
		*last = int16(n) //nolint:gosec // an unknown ID is skipped
	}
	return h & 15, true, nil
}

func (t *thriftReader) uvarint() (uint64, error) {
	n, size := binary.Uvarint(t.b[t.pos:])
	if size <= 0 {
		return 0, errThrift
	}
	t.pos += size
	return n, nil
}

func (t *thriftReader) varint() (int64, error) {
	n, size := binary.Varint(t.b[t.pos:])
	if size <= 0 {
		return 0, errThrift
	}
	t.pos += size
	return n, nil
}

// int reads a field's integer.
func (t *thriftReader) int(kind byte) (int64, error) {
	if kind < thriftI16 || kind > thriftI64 {
		return 0, errThrift
	}
	return t.varint()
}

// bytes reads a field's string.
func (t *thriftReader) bytes(kind byte) ([]byte, error) {
	if kind != thriftBinary {
		return nil, errThrift
	}
	n, err := t.uvarint()
	if err != nil || n > uint64(len(t.b)-t.pos) { //nolint:gosec // not negative
		return nil, errThrift
	}
	v := t.b[t.pos : t.pos+int(n)] //nolint:gosec // bounded by the line above
	t.pos += len(v)
	return v, nil
}

// list reads the head of a list. Each element takes at least a byte, so a count
// beyond what is left is refused.
func (t *thriftReader) list(kind byte) (elem byte, n int, err error) {
	if kind != thriftList && kind != thriftSet || t.pos >= len(t.b) {
		return 0, 0, errThrift
	}
	h := t.b[t.pos]
	t.pos++
	count := uint64(h >> 4)
	if count == 15 {
		if count, err = t.uvarint(); err != nil {
			return 0, 0, err
		}
	}
	if count > uint64(len(t.b)-t.pos) { //nolint:gosec // not negative
		return 0, 0, errThrift
	}
	return h & 15, int(count), nil
}

// skip passes over a value.
func (t *thriftReader) skip(kind byte, depth int) error {
	if depth > maxThriftDepth {
		return errThrift
	}
	switch kind {
	case thriftTrue, thriftFalse:
		return nil
	case thriftByte:
		return t.advance(1)
	case thriftI16, thriftI32, thriftI64:
		_, err := t.uvarint()
		return err
	case thriftDouble:
		return t.advance(8)
	case thriftBinary:
		_, err := t.bytes(kind)
		return err
	case thriftList, thriftSet:
		elem, n, err := t.list(kind)
		for ; err == nil && n > 0; n-- {
			if elem == thriftTrue || elem == thriftFalse {
				err = t.advance(1)
			} else {
				err = t.skip(elem, depth+1)
			}
		}
		return err
	case thriftStruct:
		for last := int16(0); ; {
			kind, ok, err := t.next(&last)
			if err != nil || !ok {
				return err
			}
			if err := t.skip(kind, depth+1); err != nil {
				return err
			}
		}
	}
	return errThrift // maps do not occur in Parquet
}

func (t *thriftReader) advance(n int) error {
	if n > len(t.b)-t.pos {
		return errThrift
	}
	t.pos += n
	return nil
}
