package segment

import (
	"encoding/binary"
	"errors"

	"github.com/coldtier/coldtier/archive/message"
)

// bound is the lowest and highest value of a column in a row group, as in the footer.
type bound struct{ low, high []byte }

// MessageIDs are the lowest and highest message ID of a row group. known is false when
// the footer does not tell, and for a reader that was opened without one.
func (r *Reader) MessageIDs(group int) (low, high uint64, known bool) {
	if group < 0 || group >= len(r.bounds) {
		return 0, 0, false
	}
	b := r.bounds[group]
	if len(b.low) != len(b.high) {
		return 0, 0, false
	}
	switch len(b.low) {
	case 4:
		low, high = uint64(binary.LittleEndian.Uint32(b.low)), uint64(binary.LittleEndian.Uint32(b.high))
	case 8:
		low, high = binary.LittleEndian.Uint64(b.low), binary.LittleEndian.Uint64(b.high)
	default:
		return 0, 0, false
	}
	return low, high, low <= high // unsigned IDs may have been ordered as signed ones
}

var errGroups = errors.New("footer: its row groups are not those of the manifest")

// rowGroups reads from the list of row groups the bounds of each one's columns.
func (t *thriftReader) rowGroups(kind byte) (all [][]bound, err error) {
	err = t.structs(kind, func() error {
		var columns []bound
		err := t.fields(func(id int16, kind byte) error {
			if id != 1 {
				return t.skip(kind, 0)
			}
			return t.structs(kind, func() error {
				var b bound
				err := t.fields(func(id int16, kind byte) error {
					if id != 3 { // meta_data
						return t.skip(kind, 0)
					}
					return t.statistics(&b)
				})
				columns = append(columns, b)
				return err
			})
		})
		all = append(all, columns)
		return err
	})
	return all, err
}

// statistics reads the bounds out of a column chunk's metadata.
func (t *thriftReader) statistics(b *bound) error {
	return t.fields(func(id int16, kind byte) error {
		if id != 12 {
			return t.skip(kind, 0)
		}
		return t.fields(func(id int16, kind byte) (err error) {
			switch id {
			case 5:
				b.high, err = t.bytes(kind)
			case 6:
				b.low, err = t.bytes(kind)
			default:
				err = t.skip(kind, 0)
			}
			return err
		})
	})
}

// structs reads a list of structs.
func (t *thriftReader) structs(kind byte, each func() error) error {
	elem, n, err := t.list(kind)
	if err != nil || elem != thriftStruct {
		return errThrift
	}
	for range n {
		if err := each(); err != nil {
			return err
		}
	}
	return nil
}

// fields reads the fields of a struct.
func (t *thriftReader) fields(each func(id int16, kind byte) error) error {
	for last := int16(0); ; {
		kind, ok, err := t.next(&last)
		if err != nil || !ok {
			return err
		}
		if err := each(last, kind); err != nil {
			return err
		}
	}
}

// boundsOf are the message ID's bounds in each row group.
func boundsOf(f File, s *message.Schema, groups [][]bound) ([]bound, error) {
	if len(groups) != len(f.RowGroups) {
		return nil, errGroups
	}
	out := make([]bound, len(groups))
	id := s.Role(message.MessageID)
	for g, columns := range groups {
		if id >= len(columns) {
			return nil, errGroups
		}
		out[g] = columns[id]
	}
	return out, nil
}
