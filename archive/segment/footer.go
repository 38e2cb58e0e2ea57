package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"

	"github.com/parquet-go/parquet-go/format"

	"github.com/coldtier/coldtier/archive/message"
)

// FormatVersion is the version of the files that Writer makes. A Reader reads it
// and all before it.
const FormatVersion = 1

// Keys of the file's key-value metadata.
const (
	metaKey   = "coldtier.segment" // JSON: version and Meta
	schemaKey = "coldtier.schema"  // JSON of message.Schema
)

type metaJSON struct {
	Version int `json:"version"`
	Meta
}

// chunk is a finished column chunk. Its metadata lies encoded in Writer.chunkBuf;
// the places of its indexes are known only when all row groups are written.
type chunk struct {
	end            int // of its metadata in chunkBuf
	ciAt, ciLength int // in Writer.ciBuf
	oiAt, oiLength int // in Writer.oiBuf
	raw            int64
	size           int64
}

// addChunk records a column's chunk that begins at offset with its dictionary page.
func (w *Writer) addChunk(c *columnWriter, offset int64, dict []byte, dictRaw int64) {
	ch := chunk{raw: c.raw + dictRaw, size: int64(len(dict) + len(c.out))}
	data := offset + int64(len(dict))

	// Indexes: always of the ID columns, of the others only when there are pages to
	// choose from.
	if c.index && c.allBounded() {
		ch.ciAt = len(w.ciBuf)
		w.ciBuf = c.columnIndex(w.ciBuf)
		ch.ciLength = len(w.ciBuf) - ch.ciAt
	}
	if c.index || len(c.pages) > 1 {
		ch.oiAt = len(w.oiBuf)
		w.oiBuf = c.offsetIndex(w.oiBuf, data)
		ch.oiLength = len(w.oiBuf) - ch.oiAt
	}

	t := thriftWriter{b: w.chunkBuf}
	t.i64(2, 0) // file_offset: obsolete, and required
	t.field(3, thriftStruct)
	outer := t.begin()
	t.i32(1, int32(c.physical))
	encodings := make([]format.Encoding, 0, 4)
	for e, used := range c.used {
		// The dictionary page is PLAIN, levels are RLE.
		if used || e == int(format.Plain) && dict != nil || e == int(format.RLE) && c.optional {
			encodings = append(encodings, format.Encoding(e))
		}
	}
	t.list(2, thriftI32, len(encodings))
	for _, e := range encodings {
		t.varint(int64(e))
	}
	t.list(3, thriftBinary, 1)
	t.raw(c.Name)
	t.i32(4, int32(c.codec))
	rows := int64(0)
	for _, p := range c.pages {
		rows += int64(p.rows)
	}
	t.i64(5, rows)
	t.i64(6, ch.raw)
	t.i64(7, ch.size)
	t.i64(9, data)
	if dict != nil {
		t.i64(11, offset)
	}
	if c.bounds {
		t.field(12, thriftStruct)
		stats := t.begin()
		t.i64(3, int64(c.nulls))
		if low, high := c.chunkBounds(); low != nil {
			t.binary(5, high)
			t.binary(6, low)
		}
		t.end(stats)
	}
	t.end(outer)
	w.chunkBuf, ch.end = t.b, len(t.b)
	w.chunks = append(w.chunks, ch)
}

// allBounded says that every page has bounds or only NULLs: a column index cannot
// leave a page's bounds out.
func (c *columnWriter) allBounded() bool {
	for _, p := range c.pages {
		if p.min == nil && p.nulls < p.rows {
			return false
		}
	}
	return true
}

// chunkBounds are those of all pages; nil when there are none.
func (c *columnWriter) chunkBounds() (low, high []byte) {
	if !c.allBounded() {
		return nil, nil
	}
	for _, p := range c.pages {
		if p.min == nil {
			continue
		}
		if low == nil || c.boundLess(p.min, low) {
			low = p.min
		}
		if high == nil || c.boundLess(high, p.max) {
			high = p.max
		}
	}
	return low, high
}

// boundLess orders bounds.
func (c *columnWriter) boundLess(a, b []byte) bool {
	switch c.width {
	case 4:
		return c.less(int64(int32(binary.LittleEndian.Uint32(a))), int64(int32(binary.LittleEndian.Uint32(b)))) //nolint:gosec // the bits are meant; sign extension keeps the unsigned order
	case 8:
		return c.less(int64(binary.LittleEndian.Uint64(a)), int64(binary.LittleEndian.Uint64(b))) //nolint:gosec // the bits are meant
	}
	return bytes.Compare(a, b) < 0
}

func (c *columnWriter) columnIndex(dst []byte) []byte {
	t := thriftWriter{b: dst}
	outer := t.begin()
	t.list(1, thriftTrue, len(c.pages))
	rising := true
	var before *page
	for i := range c.pages {
		p := &c.pages[i]
		if p.min == nil {
			t.b = append(t.b, thriftTrue) // a page of NULLs
			continue
		}
		t.b = append(t.b, thriftFalse)
		if before != nil && (c.boundLess(p.min, before.min) || c.boundLess(p.max, before.max)) {
			rising = false
		}
		before = p
	}
	t.list(2, thriftBinary, len(c.pages))
	for _, p := range c.pages {
		t.bytes(p.min)
	}
	t.list(3, thriftBinary, len(c.pages))
	for _, p := range c.pages {
		t.bytes(p.max)
	}
	order := format.Unordered
	if rising {
		order = format.Ascending
	}
	t.i32(4, int32(order))
	t.list(5, thriftI64, len(c.pages))
	for _, p := range c.pages {
		t.varint(int64(p.nulls))
	}
	t.end(outer)
	return t.b
}

func (c *columnWriter) offsetIndex(dst []byte, data int64) []byte {
	t := thriftWriter{b: dst}
	outer := t.begin()
	t.list(1, thriftStruct, len(c.pages))
	row := int64(0)
	for _, p := range c.pages {
		inner := t.begin()
		t.i64(1, data+p.offset)
		t.i32(2, int32(p.size)) //nolint:gosec // at most maxPage and a header
		t.i64(3, row)
		t.end(inner)
		row += int64(p.rows)
	}
	t.end(outer)
	return t.b
}

// writeFooter writes the page indexes and the footer.
func (w *Writer) writeFooter() (Extent, error) {
	meta, err := json.Marshal(metaJSON{FormatVersion, w.meta})
	if err != nil {
		return Extent{}, fmt.Errorf("segment metadata: %w", err)
	}
	start := w.size
	sum := sha256.New()
	ciStart, oiStart := start, start+int64(len(w.ciBuf))
	for _, b := range [][]byte{w.ciBuf, w.oiBuf} {
		w.out = append(w.out, b...)
		w.size += int64(len(b))
		sum.Write(b)
	}
	length := int64(0)
	t := thriftWriter{}
	// emit moves what is encoded to the output; the footer of a large file is never
	// held as a whole.
	emit := func() error {
		w.out = append(w.out, t.b...)
		w.size, length = w.size+int64(len(t.b)), length+int64(len(t.b))
		sum.Write(t.b)
		t.b = t.b[:0]
		return w.flush(flushOut)
	}

	t.i32(1, 2) // version
	t.list(2, thriftStruct, len(w.cols)+1)
	root := t.begin()
	t.string(4, "message")
	t.i32(5, int32(len(w.cols))) //nolint:gosec // MySQL has at most 4096 columns
	t.end(root)
	for i := range w.cols {
		w.cols[i].schemaElement(&t)
	}
	t.i64(3, w.rows)
	t.list(4, thriftStruct, len(w.groups))
	at := 0
	for g := range w.groups {
		w.rowGroup(&t, g, &at, ciStart, oiStart)
		if err := emit(); err != nil {
			return Extent{}, err
		}
	}
	t.list(5, thriftStruct, 2)
	for _, kv := range [][2][]byte{{[]byte(metaKey), meta}, {[]byte(schemaKey), w.json}} {
		outer := t.begin()
		t.binary(1, kv[0])
		t.binary(2, kv[1])
		t.end(outer)
	}
	t.string(6, "coldtier version 1 (build 1)")
	t.list(7, thriftStruct, len(w.cols))
	for range w.cols {
		outer := t.begin()
		t.emptyStruct(1) // the order of the logical type
		t.end(outer)
	}
	t.end(0)
	if err := emit(); err != nil {
		return Extent{}, err
	}
	t.b = append(binary.LittleEndian.AppendUint32(t.b, uint32(length)), magic...)
	if err := emit(); err != nil {
		return Extent{}, err
	}
	return Extent{Offset: start, Length: w.size - start, Sum: sum16(sum)}, w.flush(0)
}

func sum16(h hash.Hash) [16]byte { return [16]byte(h.Sum(nil)[:16]) }

// rowGroup writes the metadata of row group g; at is the place of its first chunk's
// metadata in chunkBuf.
func (w *Writer) rowGroup(t *thriftWriter, g int, at *int, ciStart, oiStart int64) {
	outer := t.begin()
	t.list(1, thriftStruct, len(w.cols))
	raw, size := int64(0), int64(0)
	for _, ch := range w.chunks[g*len(w.cols) : (g+1)*len(w.cols)] {
		inner := t.begin()
		t.b, t.last = append(t.b, w.chunkBuf[*at:ch.end]...), 3
		*at = ch.end
		if ch.oiLength > 0 {
			t.i64(4, oiStart+int64(ch.oiAt))
			t.i32(5, int32(ch.oiLength)) //nolint:gosec // a few bytes a page
		}
		if ch.ciLength > 0 {
			t.i64(6, ciStart+int64(ch.ciAt))
			t.i32(7, int32(ch.ciLength)) //nolint:gosec // a few bytes a page
		}
		t.end(inner)
		raw, size = raw+ch.raw, size+ch.size
	}
	t.i64(2, raw)
	t.i64(3, w.groups[g].Rows)
	t.i64(5, w.groups[g].Offset)
	t.i64(6, size)
	t.field(7, thriftI16)
	t.varint(int64(g))
	t.end(outer)
}

// footer is what a reader needs of one.
type footer struct {
	meta   metaJSON
	schema *message.Schema
	rows   int64
	groups [][]bound
}

// parseFooter reads the metadata and the schema of a file out of its last bytes.
func parseFooter(b []byte) (f footer, err error) {
	n := len(b) - 8
	if n < 0 || string(b[n+4:]) != magic {
		return f, errors.New("not the end of a Parquet file")
	}
	length := int64(binary.LittleEndian.Uint32(b[n:]))
	if length > int64(n) {
		return f, fmt.Errorf("footer of %d bytes is longer than the %d that are there", length, n)
	}
	t := thriftReader{b: b[int64(n)-length : n]}
	for last := int16(0); ; {
		kind, ok, err := t.next(&last)
		if err != nil {
			return f, err
		}
		if !ok {
			break
		}
		switch last {
		case 3:
			f.rows, err = t.int(kind)
		case 4:
			f.groups, err = t.rowGroups(kind)
		case 5:
			err = t.keyValues(kind, func(key, value []byte) error {
				switch string(key) {
				case metaKey:
					return json.Unmarshal(value, &f.meta)
				case schemaKey:
					f.schema, err = message.ParseSchema(value)
					return err
				}
				return nil
			})
		default:
			err = t.skip(kind, 0)
		}
		if err != nil {
			return f, err
		}
	}
	if f.schema == nil || f.meta.Version == 0 {
		return f, fmt.Errorf("footer without %s and %s: the file was not written by coldtier", metaKey, schemaKey)
	}
	return f, nil
}

// keyValues reads a list of key-value pairs.
func (t *thriftReader) keyValues(kind byte, fn func(key, value []byte) error) error {
	return t.structs(kind, func() error {
		var pair [2][]byte
		err := t.fields(func(id int16, kind byte) (err error) {
			if id == 1 || id == 2 {
				pair[id-1], err = t.bytes(kind)
				return err
			}
			return t.skip(kind, 0)
		})
		if err != nil {
			return err
		}
		return fn(pair[0], pair[1])
	})
}
