package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
)

// RecordVersion is the version of the commit record's format.
const RecordVersion = 1

// The commit record is a Parquet file that any tool reads. Its rows are chunks,
// then objects, each followed by its segments; what there is once is JSON in the
// key-value metadata under recordKey. Under sumKey there is the checksum of the
// whole file, computed with its own digits as zeros.
const (
	recordKey = "coldtier.copy"
	sumKey    = "coldtier.checksum"
	sumMark   = "coldtier-record-sha256:" // the digits follow
	sumDigits = 2 * sha256.Size
)

const (
	kindChunk   = "chunk"
	kindObject  = "object"
	kindSegment = "segment"
)

// recordRow is a row of the record; what its kind does not have is NULL.
type recordRow struct {
	Kind string `parquet:"kind,dict"`
	Seq  int32  `parquet:"seq"` // among the chunks, the objects, the object's segments

	From        *uint64 `parquet:"from_id,optional"` // chunk
	To          *uint64 `parquet:"to_id,optional"`   // chunk
	Carried     *string `parquet:"carried,optional"` // chunk
	Fingerprint *string `parquet:"fingerprint,optional"`

	Key       *string       `parquet:"key,optional"` // object
	Version   *int32        `parquet:"version,optional"`
	Size      *int64        `parquet:"size,optional"`
	SHA256    []byte        `parquet:"sha256,optional"`
	Footer    *recordExtent `parquet:"footer,optional"`
	RowGroups []recordGroup `parquet:"row_groups,list"`

	Rows         *int64  `parquet:"rows,optional"`         // object, segment
	Conversation []byte  `parquet:"conversation,optional"` // segment
	MinCursor    *uint64 `parquet:"min_cursor,optional"`
	MaxCursor    *uint64 `parquet:"max_cursor,optional"`
	FirstRow     *int64  `parquet:"first_row,optional"`
	FirstGroup   *int32  `parquet:"first_group,optional"`
	LastGroup    *int32  `parquet:"last_group,optional"`
}

type recordExtent struct {
	Offset int64  `parquet:"offset"`
	Length int64  `parquet:"length"`
	Sum    []byte `parquet:"sum"`
}

type recordGroup struct {
	Offset    int64  `parquet:"offset"`
	Length    int64  `parquet:"length"`
	Sum       []byte `parquet:"sum"`
	Rows      int64  `parquet:"rows"`
	MinCursor uint64 `parquet:"min_cursor"`
	MaxCursor uint64 `parquet:"max_cursor"`
}

// recordHead is what a record says once.
type recordHead struct {
	FormatVersion int `json:"format_version"`
	SliceKey
	Lo          uint64              `json:"lo,string"`
	Hi          uint64              `json:"hi,string"`
	Generation  uint32              `json:"generation"`
	Attempt     string              `json:"attempt"`
	Schema      *message.Schema     `json:"schema"`
	ShowCreate  string              `json:"show_create"`
	CopiedAt    time.Time           `json:"copied_at"`
	Chunks      int                 `json:"chunks"`
	Objects     int                 `json:"objects"`
	Segments    int                 `json:"segments"`
	Bytes       int64               `json:"bytes"`
	Fingerprint message.Fingerprint `json:"fingerprint"`
	Statuses    []FoldedStatus      `json:"statuses,omitempty"`
}

// EncodeRecord writes the commit record of a copy. The states of chunks are no
// part of it: they are what happens after the commit.
func EncodeRecord(w io.Writer, c *Copy) error {
	fail := func(err error) error {
		return fmt.Errorf("encode the record of slice %s generation %d: %w", c.SliceKey, c.Generation, err)
	}
	if err := c.check(); err != nil {
		return fail(err)
	}
	h := recordHead{FormatVersion: RecordVersion, SliceKey: c.SliceKey, Lo: c.Lo, Hi: c.Hi, Generation: c.Generation, Attempt: c.Attempt, Schema: c.Schema,
		ShowCreate: c.ShowCreate, CopiedAt: c.CopiedAt.UTC(), Chunks: len(c.Chunks), Objects: len(c.Objects), Bytes: c.Bytes(), Fingerprint: c.Fingerprint(), Statuses: c.Statuses}
	for i := range c.Objects {
		h.Segments += len(c.Objects[i].Segs)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return fail(err)
	}
	// The mark must occur but once, whatever the table's definition says.
	safe := strings.ReplaceAll(string(head), sumMark, `\u0063`+sumMark[1:])
	var buf bytes.Buffer
	pw := parquet.NewGenericWriter[recordRow](&buf,
		parquet.Compression(&zstd.Codec{}),
		parquet.CreatedBy("coldtier", "1", ""),
		parquet.SkipPageBounds("key"), parquet.SkipPageBounds("conversation"),
		parquet.KeyValueMetadata(recordKey, safe),
		parquet.KeyValueMetadata(sumKey, sumMark+strings.Repeat("0", sumDigits)))
	if err := writeRows(pw, c); err != nil {
		return fail(err)
	}
	if err := pw.Close(); err != nil {
		return fail(err)
	}
	b := buf.Bytes()
	if n := bytes.Count(b, []byte(sumMark)); n != 1 {
		return fail(fmt.Errorf("the checksum's mark occurs %d times", n))
	}
	at := bytes.Index(b, []byte(sumMark)) + len(sumMark)
	sum := sha256.Sum256(b)
	hex.Encode(b[at:at+sumDigits], sum[:])
	if _, err := w.Write(b); err != nil {
		return fail(err)
	}
	return nil
}

func writeRows(w *parquet.GenericWriter[recordRow], c *Copy) error {
	const batch = 1024
	rows := make([]recordRow, 0, batch)
	flush := func() error {
		_, err := w.Write(rows)
		rows = rows[:0]
		return err
	}
	add := func(r recordRow) error {
		rows = append(rows, r)
		if len(rows) < batch {
			return nil
		}
		return flush()
	}
	for i := range c.Chunks {
		if err := add(chunkRow(i, &c.Chunks[i])); err != nil {
			return err
		}
	}
	for i := range c.Objects {
		o := &c.Objects[i]
		if err := add(objectRow(i, o)); err != nil {
			return err
		}
		for j := range o.Segs {
			if err := add(segmentRow(j, &o.Segs[j])); err != nil {
				return err
			}
		}
	}
	return flush()
}

func chunkRow(i int, ch *Chunk) recordRow {
	return recordRow{Kind: kindChunk, Seq: int32(i), From: &ch.From, To: &ch.To, Fingerprint: new(ch.Warm.String()), Carried: new(ch.Carried.String())} //nolint:gosec // an index
}

func objectRow(i int, o *Object) recordRow {
	f := &o.File
	r := recordRow{Kind: kindObject, Seq: int32(i), Key: &o.Key, Version: new(int32(f.Version)), Size: &f.Size, SHA256: f.SHA256[:], Rows: &f.Rows, //nolint:gosec // small
		Footer: &recordExtent{f.Footer.Offset, f.Footer.Length, f.Footer.Sum[:]}}
	for k := range f.RowGroups {
		g := &f.RowGroups[k]
		r.RowGroups = append(r.RowGroups, recordGroup{g.Offset, g.Length, g.Sum[:], g.Rows, g.MinCursor, g.MaxCursor})
	}
	return r
}

func segmentRow(j int, s *segment.Span) recordRow {
	return recordRow{Kind: kindSegment, Seq: int32(j), Conversation: s.Conversation, Rows: &s.Rows, MinCursor: &s.MinCursor, MaxCursor: &s.MaxCursor, //nolint:gosec // an index
		FirstRow: &s.FirstRow, FirstGroup: new(int32(s.FirstGroup)), LastGroup: new(int32(s.LastGroup)), Fingerprint: new(s.Fingerprint.String())} //nolint:gosec // small
}

// DecodeRecord reads a commit record. One that differs from its checksum in any
// bit, or is none, is ErrCorrupt; nothing of it is parsed before.
func DecodeRecord(b []byte) (c *Copy, err error) {
	defer func() {
		// The bytes are as they were written, so this is one that was written wrong.
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("commit record: %w: %v", ErrCorrupt, r)
		}
	}()
	if err := checkSum(b); err != nil {
		return nil, fmt.Errorf("commit record: %w", err)
	}
	if c, err = decodeRecord(b); err != nil {
		return nil, fmt.Errorf("commit record: %w", err)
	}
	return c, nil
}

func checkSum(b []byte) error {
	at := bytes.LastIndex(b, []byte(sumMark)) + len(sumMark)
	if at < len(sumMark) || at+sumDigits > len(b) {
		return fmt.Errorf("%w: no checksum in %d bytes", ErrCorrupt, len(b))
	}
	sum := sha256.New()
	sum.Write(b[:at])
	sum.Write(bytes.Repeat([]byte("0"), sumDigits))
	sum.Write(b[at+sumDigits:])
	if hex.EncodeToString(sum.Sum(nil)) != string(b[at:at+sumDigits]) {
		return fmt.Errorf("%w: the checksum is wrong", ErrCorrupt)
	}
	return nil
}

func decodeRecord(b []byte) (*Copy, error) {
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)), parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	text, ok := f.Lookup(recordKey)
	if !ok {
		return nil, fmt.Errorf("%w: no %s in its metadata", ErrCorrupt, recordKey)
	}
	var version struct {
		FormatVersion int `json:"format_version"`
	}
	if err := json.Unmarshal([]byte(text), &version); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if version.FormatVersion != RecordVersion {
		return nil, fmt.Errorf("format version %d: this coldtier knows version %d: use a newer coldtier", version.FormatVersion, RecordVersion)
	}
	var h recordHead
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	c := &Copy{SliceKey: h.SliceKey, Lo: h.Lo, Hi: h.Hi, Generation: h.Generation, Attempt: h.Attempt, Schema: h.Schema, ShowCreate: h.ShowCreate, CopiedAt: h.CopiedAt, Statuses: h.Statuses}
	segments, err := readRows(f, c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if len(c.Chunks) != h.Chunks || len(c.Objects) != h.Objects || segments != h.Segments || c.Bytes() != h.Bytes || c.Fingerprint() != h.Fingerprint {
		return nil, fmt.Errorf("%w: its rows are not what its head says", ErrCorrupt)
	}
	return c, nil
}

func readRows(f *parquet.File, c *Copy) (segments int, err error) {
	r := parquet.NewGenericReader[recordRow](f)
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		rows := make([]recordRow, 1024) // new each time: the rows' values are kept
		n, err := r.Read(rows)
		for i := range rows[:n] {
			if err := addRow(c, &rows[i]); err != nil {
				return segments, fmt.Errorf("%s %d: %w", rows[i].Kind, rows[i].Seq, err)
			}
			if rows[i].Kind == kindSegment {
				segments++
			}
		}
		if errors.Is(err, io.EOF) {
			return segments, nil
		}
		if err != nil {
			return segments, err
		}
	}
}

var errRow = errors.New("a value is missing, or the order is wrong")

func addRow(c *Copy, r *recordRow) error {
	switch r.Kind {
	case kindChunk:
		if r.From == nil || r.To == nil || r.Fingerprint == nil || r.Carried == nil || int(r.Seq) != len(c.Chunks) {
			return errRow
		}
		ch := Chunk{Seq: int(r.Seq), From: *r.From, To: *r.To, State: ChunkPresent}
		c.Chunks = append(c.Chunks, ch)
		last := &c.Chunks[len(c.Chunks)-1]
		return errors.Join(last.Warm.UnmarshalText([]byte(*r.Fingerprint)), last.Carried.UnmarshalText([]byte(*r.Carried)))
	case kindObject:
		if r.Key == nil || r.Version == nil || r.Size == nil || r.Rows == nil || r.Footer == nil || len(r.SHA256) != 32 || int(r.Seq) != len(c.Objects) {
			return errRow
		}
		o := Object{Key: *r.Key, File: segment.File{Version: int(*r.Version), Size: *r.Size, SHA256: [32]byte(r.SHA256), Rows: *r.Rows}}
		var err error
		if o.File.Footer, err = extent(r.Footer.Offset, r.Footer.Length, r.Footer.Sum); err != nil {
			return err
		}
		for _, g := range r.RowGroups {
			e, err := extent(g.Offset, g.Length, g.Sum)
			if err != nil {
				return err
			}
			o.File.RowGroups = append(o.File.RowGroups, segment.RowGroup{Extent: e, Rows: g.Rows, MinCursor: g.MinCursor, MaxCursor: g.MaxCursor})
		}
		c.Objects = append(c.Objects, o)
		return nil
	case kindSegment:
		if len(c.Objects) == 0 || r.Rows == nil || r.MinCursor == nil || r.MaxCursor == nil || r.FirstRow == nil || r.FirstGroup == nil || r.LastGroup == nil || r.Fingerprint == nil {
			return errRow
		}
		o := &c.Objects[len(c.Objects)-1]
		if int(r.Seq) != len(o.Segs) {
			return errRow
		}
		o.Segs = append(o.Segs, segment.Span{Conversation: r.Conversation, FirstRow: *r.FirstRow, Rows: *r.Rows, MinCursor: *r.MinCursor, MaxCursor: *r.MaxCursor,
			FirstGroup: int(*r.FirstGroup), LastGroup: int(*r.LastGroup)})
		return o.Segs[len(o.Segs)-1].Fingerprint.UnmarshalText([]byte(*r.Fingerprint))
	}
	return errRow
}

func extent(off, n int64, sum []byte) (segment.Extent, error) {
	if len(sum) != 16 || off < 0 || n < 0 {
		return segment.Extent{}, errRow
	}
	return segment.Extent{Offset: off, Length: n, Sum: [16]byte(sum)}, nil
}
