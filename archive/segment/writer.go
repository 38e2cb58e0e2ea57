package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/coldtier/coldtier/archive/message"
)

// Limits of a file.
const (
	maxValue      = 1 << 30          // bytes of a value; more than MySQL's largest packet
	maxPage       = maxValue + 1<<21 // uncompressed
	maxGroupRows  = 1 << 16
	maxGroupRaw   = 16 << 20 // uncompressed bytes of a row group of more than one row: bounds a reader's memory
	maxGroups     = 32767    // Parquet numbers row groups by an int16
	pageRaw       = 256 << 10
	minPageRaw    = 8 << 10
	growEvery     = 4096 // row groups after which their size doubles, so that maxGroups is far
	flushOut      = 256 << 10
	magic         = "PAR1"
	defaultGroup  = 256 << 10
	smallestGroup = 1 << 10
)

// Options are a writer's settings; the zero value is good.
type Options struct {
	// RowGroupBytes is the compressed size that row groups are to have: what a
	// reader of a few rows of a large conversation must fetch. 0 means 256 KiB.
	RowGroupBytes int
}

// Meta says where a file came from. It is kept in the file.
type Meta struct {
	Source     string `json:"source"`
	Shard      string `json:"shard"`
	Day        string `json:"day"`
	Attempt    string `json:"attempt"`
	Generation uint32 `json:"generation"`
	Lo         uint64 `json:"lo,string"` // message IDs [Lo, Hi) of the slice
	Hi         uint64 `json:"hi,string"`
}

// Writer writes one file, and after Reset another. It is not safe for concurrent
// use; any number of writers may work at once.
type Writer struct {
	w      io.Writer
	schema *message.Schema
	json   []byte // the schema's
	meta   Meta
	target int
	limit  int            // bytes of a value: maxValue
	cols   []columnWriter // the last is exactName
	z      *zstd.Encoder
	hasher message.Hasher
	err    error // the writer is broken by an error

	opaque   []int // places of opaque columns in the schema
	rowFixed int   // bytes of a row's other columns

	// Progress.
	file     hash.Hash
	out      []byte // bytes not yet given to w
	size     int64  // bytes of the file so far, out included
	groups   []RowGroup
	chunks   []chunk // of each row group, each column
	chunkBuf []byte  // the metadata of chunks, encoded
	ciBuf    []byte  // column indexes, encoded
	oiBuf    []byte  // offset indexes, encoded
	rows     int64

	// The row group and the page being filled.
	group    RowGroup
	groupRaw int     // uncompressed bytes of the group's finished pages
	pageRaw  int     // about the uncompressed bytes of the page
	pageRows int     // rows in it
	ratio    float64 // compressed by uncompressed size of the page before

	// The conversation being written, and the last row.
	spans  []Span
	span   *Span
	conv   []byte
	lastID uint64
	exact  map[int][]exactValue // by row of the batch
}

type exactValue struct{ column, text string }

// NewWriter begins a file with rows of a schema.
func NewWriter(w io.Writer, s *message.Schema, m Meta, o Options) (*Writer, error) {
	if o.RowGroupBytes == 0 {
		o.RowGroupBytes = defaultGroup
	}
	if o.RowGroupBytes < smallestGroup || o.RowGroupBytes > maxGroupRaw {
		return nil, fmt.Errorf("row groups of %d bytes: want %d..%d", o.RowGroupBytes, smallestGroup, maxGroupRaw)
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("compressor: %w", err)
	}
	wr := &Writer{target: o.RowGroupBytes, limit: maxValue, z: z, file: sha256.New(), exact: map[int][]exactValue{}}
	if err := wr.Reset(w, s, m); err != nil {
		return nil, err
	}
	return wr, nil
}

// Reset begins another file and keeps the memory; many small files are cheaper
// with one writer. What Close returned stays valid.
func (w *Writer) Reset(out io.Writer, s *message.Schema, m Meta) error {
	if w.schema == nil || !w.schema.Equal(s) {
		cols, err := layout(s)
		if err != nil {
			w.err = err
			return err
		}
		if w.json, err = json.Marshal(s); err != nil {
			w.err = fmt.Errorf("segment schema: %w", err)
			return w.err
		}
		w.cols, w.opaque, w.rowFixed = make([]columnWriter, len(cols)), nil, 0
		for i, c := range cols {
			w.cols[i].column = c
			if c.opaque() && c.at >= 0 {
				w.opaque = append(w.opaque, c.at)
			}
			w.rowFixed += c.width
		}
	}
	for i := range w.cols {
		w.cols[i].reset()
	}
	w.w, w.schema, w.meta, w.err = out, s, m, nil
	w.file.Reset()
	w.out, w.size = append(w.out[:0], magic...), int64(len(magic))
	w.groups, w.chunks, w.chunkBuf, w.ciBuf, w.oiBuf, w.rows = nil, w.chunks[:0], w.chunkBuf[:0], w.ciBuf[:0], w.oiBuf[:0], 0
	w.group, w.groupRaw, w.pageRaw, w.pageRows, w.ratio = RowGroup{}, 0, 0, 0, 1
	w.spans, w.span, w.conv, w.lastID = nil, nil, w.conv[:0], 0
	clear(w.exact)
	return nil
}

// Write adds the rows [from, to) of a batch of the writer's schema. Rows must come
// in message.Compare order, over all calls. After an error the file is unusable.
func (w *Writer) Write(b *message.Batch, from, to int) error {
	if w.err != nil {
		return w.err
	}
	if !b.Schema().Equal(w.schema) {
		w.err = errors.New("rows have another schema than the file")
		return w.err
	}
	w.err = w.write(b, from, to)
	return w.err
}

func (w *Writer) write(b *message.Batch, from, to int) error {
	for from < to {
		// Take as many rows as the page still holds, then append them column by column.
		i, full, memory := from, false, false
		for ; i < to && !full; i++ {
			raw, err := w.rowBytes(b, i)
			if err != nil {
				return err
			}
			if w.group.Rows > 0 && w.groupRaw+w.pageRaw+raw > maxGroupRaw {
				full, memory = true, true // before this row
				break
			}
			if err := w.note(b, i); err != nil {
				return err
			}
			w.pageRaw += raw
			w.pageRows++
			full = w.pageFull()
		}
		if err := w.addRows(b, from, i); err != nil {
			return err
		}
		if from = i; full {
			if err := w.finishPage(); err != nil {
				return err
			}
			if err := w.maybeFinishGroup(memory); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowBytes is about the uncompressed size of a row.
func (w *Writer) rowBytes(b *message.Batch, i int) (int, error) {
	n := w.rowFixed
	for _, c := range w.opaque {
		size := len(b.Value(c, i))
		if size > w.limit {
			return 0, fmt.Errorf("message %d: %d bytes in column %s are more than a segment holds (%d)",
				b.MessageID(i), size, w.schema.Columns()[c].Name, w.limit)
		}
		n += size + 4
	}
	return n, nil
}

// note checks a row's place in the order and counts it to its conversation.
func (w *Writer) note(b *message.Batch, i int) error {
	conv, cursor, id := b.Conversation(i), b.Cursor(i), b.MessageID(i)
	same := w.span != nil && bytes.Equal(conv, w.conv)
	if w.span != nil {
		if same && (cursor < w.span.MaxCursor || cursor == w.span.MaxCursor && id < w.lastID) || !same && bytes.Compare(conv, w.conv) < 0 {
			return fmt.Errorf("message %d of conversation %q comes after message %d of conversation %q: rows must be in order",
				id, conv, w.lastID, w.conv)
		}
	}
	group := len(w.groups)
	if !same {
		w.conv = append(w.conv[:0], conv...)
		w.spans = append(w.spans, Span{Conversation: append([]byte{}, conv...), FirstRow: w.rows, MinCursor: cursor, FirstGroup: group})
		w.span = &w.spans[len(w.spans)-1]
	}
	w.span.Rows, w.span.MaxCursor, w.span.LastGroup = w.span.Rows+1, cursor, group
	w.span.Fingerprint = w.span.Fingerprint.Add(w.hasher.Batch(b, i, i+1))
	if g := &w.group; g.Rows == 0 {
		g.MinCursor, g.MaxCursor = cursor, cursor
	} else {
		g.MinCursor, g.MaxCursor = min(g.MinCursor, cursor), max(g.MaxCursor, cursor)
	}
	w.group.Rows++
	w.rows++
	w.lastID = id
	return nil
}

// groupTarget is the compressed size at which the row group ends.
func (w *Writer) groupTarget() int { return w.target << (len(w.groups) / growEvery) }

// finished is the size of the row group's finished pages.
func (w *Writer) finished() (n int) {
	for i := range w.cols {
		n += len(w.cols[i].out) + len(w.cols[i].dict)
	}
	return n
}

// pageFull says that the page has its size, or that the row group would have its
// size with it, going by how well the page before could be compressed.
func (w *Writer) pageFull() bool {
	if w.pageRaw >= pageRaw || w.group.Rows >= maxGroupRows {
		return true
	}
	return w.pageRaw >= minPageRaw && float64(w.finished())+float64(w.pageRaw)*w.ratio >= float64(w.groupTarget())
}

// addRows appends the rows [from, to) to the columns.
func (w *Writer) addRows(b *message.Batch, from, to int) error {
	last := len(w.cols) - 1
	for i := range w.cols[:last] {
		c := &w.cols[i]
		err := c.add(b, from, to, func(row int, text []byte) error {
			if !utf8.Valid(text) {
				return fmt.Errorf("message %d: %q in column %s is no %s", b.MessageID(row), text, c.Name, c.SourceType)
			}
			w.exact[row] = append(w.exact[row], exactValue{c.Name, string(text)})
			return nil
		})
		if err != nil {
			return err
		}
	}
	for row := from; row < to; row++ {
		values, ok := w.exact[row]
		if !ok {
			if err := w.cols[last].addNull(); err != nil {
				return err
			}
			continue
		}
		text, err := encodeExact(values)
		if err != nil {
			return fmt.Errorf("message %d: %w", b.MessageID(row), err)
		}
		w.cols[last].addBytes(text)
		w.pageRaw += len(text)
	}
	clear(w.exact)
	return nil
}

// encodeExact writes {"column": "text", ...}.
func encodeExact(values []exactValue) ([]byte, error) {
	m := make(map[string]string, len(values))
	for _, v := range values {
		m[v.column] = v.text
	}
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return nil, fmt.Errorf("exact texts: %w", err)
	}
	return []byte(strings.TrimSuffix(out.String(), "\n")), nil
}

func (w *Writer) finishPage() error {
	if w.pageRows == 0 {
		return nil
	}
	before := w.finished()
	for i := range w.cols {
		if err := w.cols[i].finishPage(w.z); err != nil {
			return err
		}
	}
	w.ratio = float64(w.finished()-before) / float64(max(1, w.pageRaw))
	w.groupRaw, w.pageRaw, w.pageRows = w.groupRaw+w.pageRaw, 0, 0
	return nil
}

// maybeFinishGroup ends the row group when it has its size.
func (w *Writer) maybeFinishGroup(memory bool) error {
	if memory || w.finished() >= w.groupTarget()-w.groupTarget()/32 || w.group.Rows >= maxGroupRows {
		return w.finishGroup()
	}
	return nil
}

// finishGroup writes the row group.
func (w *Writer) finishGroup() error {
	if len(w.groups) == maxGroups {
		return fmt.Errorf("file of %d rows has %d row groups, as many as Parquet can number: write larger ones (RowGroupBytes)", w.rows, maxGroups)
	}
	start, offset := len(w.out), w.size
	for i := range w.cols {
		c := &w.cols[i]
		dict, dictRaw := c.dictionaryPage(w.z)
		w.addChunk(c, w.size, dict, dictRaw)
		w.out = append(append(w.out, dict...), c.out...)
		w.size = offset + int64(len(w.out)-start)
		c.resetChunk()
	}
	w.group.Extent = extent(offset, w.out[start:])
	w.groups = append(w.groups, w.group)
	w.group, w.groupRaw = RowGroup{}, 0
	return w.flush(flushOut)
}

func extent(offset int64, b []byte) Extent {
	sum := sha256.Sum256(b)
	return Extent{Offset: offset, Length: int64(len(b)), Sum: [16]byte(sum[:16])}
}

// flush gives the bytes of out to the output when there are more than least.
func (w *Writer) flush(least int) error {
	if len(w.out) <= least {
		return nil
	}
	w.file.Write(w.out)
	if _, err := w.w.Write(w.out); err != nil {
		return fmt.Errorf("write segment: %w", err)
	}
	w.out = w.out[:0]
	return nil
}

// Close finishes the file and describes it: a Span for each conversation, in order.
func (w *Writer) Close() (File, []Span, error) {
	if w.err != nil {
		return File{}, nil, w.err
	}
	w.err = errors.New("the segment is closed")
	if err := w.finishPage(); err != nil {
		return File{}, nil, err
	}
	if w.group.Rows > 0 {
		if err := w.finishGroup(); err != nil {
			return File{}, nil, err
		}
	}
	f := File{Version: FormatVersion, Rows: w.rows, RowGroups: w.groups}
	var err error
	if f.Footer, err = w.writeFooter(); err != nil {
		return File{}, nil, err
	}
	f.Size = w.size
	w.file.Sum(f.SHA256[:0])
	return f, w.spans, nil
}
