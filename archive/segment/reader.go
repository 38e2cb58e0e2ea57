package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/coldtier/coldtier/archive/message"
)

// ErrCorrupt says that bytes differ from their checksum, or cannot be decoded.
var ErrCorrupt = errors.New("segment is corrupt")

// Reader reads the row groups of one file. It is not safe for concurrent use.
type Reader struct {
	file   File
	schema *message.Schema
	meta   Meta
	bounds []bound // of the message ID, by row group; nil without the footer
	cols   []column
	z      *zstd.Decoder

	// Memory that one row group after another uses.
	columns []columnReader
	pages   pages
	buf     []byte
	row     [][]byte
	sizes   []int
}

// OpenFooter reads a file's metadata and schema out of the bytes of f.Footer.
func OpenFooter(f File, footer []byte) (*Reader, error) {
	if err := check(f); err != nil {
		return nil, err
	}
	if err := verify(f.Footer, footer, "footer"); err != nil {
		return nil, err
	}
	said, err := parseFooter(footer)
	if err != nil {
		return nil, fmt.Errorf("footer: %w: %w", ErrCorrupt, err)
	}
	if said.meta.Version != f.Version || said.rows != f.Rows {
		return nil, fmt.Errorf("footer: %w: it speaks of version %d and %d rows, the manifest of version %d and %d", ErrCorrupt,
			said.meta.Version, said.rows, f.Version, f.Rows)
	}
	bounds, err := boundsOf(f, said.schema, said.groups)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	r, err := Open(f, said.schema)
	if err != nil {
		return nil, err
	}
	r.meta, r.bounds = said.meta.Meta, bounds
	return r, nil
}

// Open is OpenFooter for those who know the file's schema, which must be the one
// it was written with: row groups can be read without the footer, so that a page
// costs one ranged read. The reader's Meta is empty.
func Open(f File, s *message.Schema) (*Reader, error) {
	if err := check(f); err != nil {
		return nil, err
	}
	cols, err := layout(s)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxPage), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("decompressor: %w", err)
	}
	return &Reader{file: f, schema: s, cols: cols, z: z}, nil
}

// Reset makes the reader one of another file, of the same schema, as Open would: its
// memory serves on.
func (r *Reader) Reset(f File) error {
	if err := check(f); err != nil {
		return err
	}
	r.file, r.meta, r.bounds = f, Meta{}, nil
	return nil
}

// check refuses descriptions that no writer makes, before anything is sized by them.
func check(f File) error {
	if f.Version < 1 || f.Version > FormatVersion {
		return fmt.Errorf("segment has format version %d, this program reads 1..%d: use a newer one", f.Version, FormatVersion)
	}
	at, rows := int64(len(magic)), int64(0)
	for i, g := range f.RowGroups {
		if g.Offset != at || g.Length <= 0 || g.Length > f.Size-at || g.Rows <= 0 || g.Rows > maxGroupRows {
			return fmt.Errorf("description of row group %d: %w", i, ErrCorrupt)
		}
		at, rows = at+g.Length, rows+g.Rows
	}
	if f.Footer.Offset != at || f.Footer.Length <= 0 || f.Footer.Length != f.Size-at || rows != f.Rows {
		return fmt.Errorf("description of the file: %w", ErrCorrupt)
	}
	return nil
}

func verify(e Extent, b []byte, what string) error {
	if int64(len(b)) != e.Length {
		return fmt.Errorf("%s: %w: %d bytes instead of %d", what, ErrCorrupt, len(b), e.Length)
	}
	if sum := sha256.Sum256(b); !bytes.Equal(sum[:16], e.Sum[:]) {
		return fmt.Errorf("%s: %w: wrong checksum", what, ErrCorrupt)
	}
	return nil
}

// Schema is the schema the file was written with.
func (r *Reader) Schema() *message.Schema { return r.schema }

// Meta says where the file came from.
func (r *Reader) Meta() Meta { return r.meta }

// ReadGroup decodes row group i out of its bytes, those of File.RowGroups[i]. The
// batch is new and the caller's.
func (r *Reader) ReadGroup(i int, data []byte) (b *message.Batch, err error) {
	g := r.file.RowGroups[i]
	if err := verify(g.Extent, data, fmt.Sprintf("row group %d", i)); err != nil {
		return nil, err
	}
	defer func() {
		// The checksum is right, so this is a fault of the writer or of a decoder;
		// neither may end a server.
		if p := recover(); p != nil {
			b, err = nil, fmt.Errorf("row group %d: %w: %v", i, ErrCorrupt, p)
		}
	}()
	if b, err = r.decode(data, int(g.Rows)); err != nil {
		return nil, fmt.Errorf("row group %d: %w: %w", i, ErrCorrupt, err)
	}
	return b, nil
}

func (r *Reader) decode(data []byte, rows int) (*message.Batch, error) {
	if r.columns == nil {
		r.columns = make([]columnReader, len(r.cols))
	}
	cols := r.columns
	var err error
	r.pages.reset()
	for i := range cols {
		cols[i].reset(&r.cols[i], &r.pages)
		if data, err = cols[i].read(r.z, data, rows); err != nil {
			return nil, fmt.Errorf("column %s: %w", cols[i].Name, err)
		}
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("%d bytes behind the last column", len(data))
	}
	b := message.NewBatch(r.schema)
	last := &cols[len(cols)-1]
	r.sizes = r.sizes[:0]
	for i := range cols[:len(cols)-1] {
		r.sizes = append(r.sizes, cols[i].size(rows, &r.buf))
	}
	b.Grow(rows, r.sizes)
	for row := range rows {
		r.buf, r.row = r.buf[:0], r.row[:0]
		for i := range cols[:len(cols)-1] {
			r.row = append(r.row, cols[i].value(row, &r.buf))
		}
		if exact := last.value(row, nil); exact != nil {
			if err := r.applyExact(exact); err != nil {
				return nil, err
			}
		}
		if err := b.Append(r.row); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// size is the bytes of the texts of all rows: exactly of opaque ones, else guessed by the
// first and the last, which are the shortest and the longest of growing numbers.
func (c *columnReader) size(rows int, buf *[]byte) (n int) {
	if c.opaque() {
		for _, t := range c.texts {
			n += len(t)
		}
		return min(n, 2*maxGroupRaw) // a dictionary may speak of more than was read
	}
	*buf = (*buf)[:0]
	first, last := len(c.value(0, buf)), len(c.value(rows-1, buf))
	return rows * max(first, last)
}

// value is the canonical text of a row's value; buf is where texts are made. A text
// made earlier stays valid when buf has to grow: it keeps the old memory.
func (c *columnReader) value(row int, buf *[]byte) []byte {
	if c.null != nil && c.null[row] {
		return nil
	}
	if c.opaque() {
		return c.texts[row]
	}
	from := len(*buf)
	if c.inTexts() {
		*buf = c.textFixed(*buf, c.texts[row])
	} else {
		*buf = c.text(*buf, c.bits[row])
	}
	return (*buf)[from:]
}

// applyExact puts the texts of the exact column over the typed values of r.row.
func (r *Reader) applyExact(text []byte) error {
	var values map[string]string
	if err := json.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("column %s: %w", exactName, err)
	}
	for name, v := range values {
		i := r.schema.Index(name)
		if i < 0 {
			return fmt.Errorf("column %s speaks of column %q, which does not exist", exactName, name)
		}
		r.row[i] = []byte(v)
	}
	return nil
}

// ReadAll reads and checks a whole file: each row group's checksum before it is
// decoded, and at the end the file's SHA-256. Each byte is read once, the footer
// first. fn gets the row groups in order, each a batch of its own.
func ReadAll(f File, data io.ReaderAt, fn func(*message.Batch) error) (Meta, error) {
	if err := check(f); err != nil {
		return Meta{}, err
	}
	footer, err := readExtent(data, f.Footer.Offset, f.Footer.Length)
	if err != nil {
		return Meta{}, fmt.Errorf("footer: %w", err)
	}
	r, err := OpenFooter(f, footer)
	if err != nil {
		return Meta{}, err
	}
	sum := sha256.New()
	head := int64(len(magic)) // read with the first row group
	for i, g := range f.RowGroups {
		b, err := readExtent(data, g.Offset-head, g.Length+head)
		if err != nil {
			return Meta{}, fmt.Errorf("row group %d: %w", i, err)
		}
		sum.Write(b)
		batch, err := r.ReadGroup(i, b[head:])
		if err != nil {
			return Meta{}, err
		}
		if err := fn(batch); err != nil {
			return Meta{}, err
		}
		head = 0
	}
	if head > 0 {
		b, err := readExtent(data, 0, head)
		if err != nil {
			return Meta{}, err
		}
		sum.Write(b)
	}
	sum.Write(footer)
	if !bytes.Equal(sum.Sum(nil), f.SHA256[:]) {
		return Meta{}, fmt.Errorf("%w: wrong checksum of the whole", ErrCorrupt)
	}
	return r.meta, nil
}

// readExtent reads exactly n bytes. A ReaderAt may give the last ones together with
// io.EOF.
func readExtent(data io.ReaderAt, offset, n int64) ([]byte, error) {
	b := make([]byte, n)
	got, err := data.ReadAt(b, offset)
	if int64(got) == n {
		return b, nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%w: %d bytes at %d, of which only %d are there", ErrCorrupt, n, offset, got)
	}
	return nil, fmt.Errorf("read %d bytes at %d: %w", n, offset, err)
}
