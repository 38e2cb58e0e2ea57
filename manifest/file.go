package manifest

import (
	"encoding/binary"
	"fmt"

	"github.com/coldtier/coldtier/archive/segment"
)

// fileForm is the version of the binary form of segment.File: uvarints, sums as
// they are. 50 bytes for a file of one row group, where JSON takes 400.
const fileForm = 1

const minGroupForm = 21 // bytes of the shortest row group

func appendFile(b []byte, f *segment.File) []byte {
	b = append(b, fileForm)
	b = binary.AppendUvarint(b, uint64(f.Version)) //nolint:gosec // not negative
	b = binary.AppendUvarint(b, uint64(f.Size))    //nolint:gosec // not negative
	b = append(b, f.SHA256[:]...)
	b = binary.AppendUvarint(b, uint64(f.Rows)) //nolint:gosec // not negative
	b = appendExtent(b, f.Footer)
	b = binary.AppendUvarint(b, uint64(len(f.RowGroups)))
	for i := range f.RowGroups {
		g := &f.RowGroups[i]
		b = appendExtent(b, g.Extent)
		b = binary.AppendUvarint(b, uint64(g.Rows)) //nolint:gosec // not negative
		b = binary.AppendUvarint(b, g.MinCursor)
		b = binary.AppendUvarint(b, g.MaxCursor)
	}
	return b
}

func appendExtent(b []byte, e segment.Extent) []byte {
	b = binary.AppendUvarint(b, uint64(e.Offset)) //nolint:gosec // not negative
	b = binary.AppendUvarint(b, uint64(e.Length)) //nolint:gosec // not negative
	return append(b, e.Sum[:]...)
}

// fileReader takes a binary form apart; bad is set by the first thing that is
// wrong, and all that follows is zero.
type fileReader struct {
	b   []byte
	bad bool
}

func (r *fileReader) uint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *fileReader) int() int64 {
	n := int64(r.uint()) //nolint:gosec // a wrap is seen as negative
	if n < 0 {
		r.bad = true
	}
	return n
}

func (r *fileReader) bytes(dst []byte) {
	if copy(dst, r.b) < len(dst) {
		r.bad, r.b = true, nil
		return
	}
	r.b = r.b[len(dst):]
}

func (r *fileReader) extent() (e segment.Extent) {
	e.Offset, e.Length = r.int(), r.int()
	r.bytes(e.Sum[:])
	return e
}

func parseFile(b []byte) (f segment.File, err error) {
	if len(b) == 0 || b[0] != fileForm {
		return f, fmt.Errorf("file description: %w: unknown form", ErrCorrupt)
	}
	r := &fileReader{b: b[1:]}
	f.Version, f.Size = int(r.int()), r.int()
	r.bytes(f.SHA256[:])
	f.Rows, f.Footer = r.int(), r.extent()
	n := r.uint()
	if n > uint64(len(r.b)/minGroupForm) {
		return segment.File{}, fmt.Errorf("file description: %w: %d row groups in %d bytes", ErrCorrupt, n, len(r.b))
	}
	if n > 0 {
		f.RowGroups = make([]segment.RowGroup, n)
	}
	for i := range f.RowGroups {
		g := &f.RowGroups[i]
		g.Extent, g.Rows = r.extent(), r.int()
		g.MinCursor, g.MaxCursor = r.uint(), r.uint()
	}
	if r.bad || len(r.b) > 0 {
		return segment.File{}, fmt.Errorf("file description: %w", ErrCorrupt)
	}
	return f, nil
}
