package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// The decoders here trust nothing: each length is checked against the bytes that
// are there before anything is allocated by it.

var (
	errTruncated  = errors.New("page ends early")
	errPageHeader = errors.New("page header is damaged")
	errValues     = errors.New("page's values are damaged")
)

// maxExpansion is more than zstd ever compresses: a block of 128 KiB takes 4 bytes.
const maxExpansion = 1 << 15

// pageHeader is what a page says of itself.
type pageHeader struct {
	kind         format.PageType
	raw, size    int64 // bytes of the page, uncompressed and as stored
	crc          int64
	hasCRC       bool
	values       int64
	nulls        int64
	encoding     format.Encoding
	levels       int64 // bytes of the definition levels
	isCompressed bool
}

func (t *thriftReader) pageHeader() (h pageHeader, err error) {
	h.isCompressed = true // unless said otherwise
	for last := int16(0); ; {
		kind, ok, err := t.next(&last)
		if err != nil || !ok {
			return h, err
		}
		var n int64
		switch last {
		case 1:
			n, err = t.int(kind)
			h.kind = format.PageType(n) //nolint:gosec // compared with the known ones
		case 2:
			h.raw, err = t.int(kind)
		case 3:
			h.size, err = t.int(kind)
		case 4:
			h.crc, err = t.int(kind)
			h.hasCRC = true
		case 7, 8:
			if kind != thriftStruct {
				return h, errPageHeader
			}
			err = t.dataPageHeader(&h, last == 7)
		default:
			err = t.skip(kind, 0)
		}
		if err != nil {
			return h, err
		}
	}
}

// dataPageHeader reads the header of a data page of version 2 or a dictionary page.
func (t *thriftReader) dataPageHeader(h *pageHeader, dictionary bool) error {
	for last := int16(0); ; {
		kind, ok, err := t.next(&last)
		if err != nil || !ok {
			return err
		}
		var n int64
		switch {
		case last == 1:
			h.values, err = t.int(kind)
		case last == 2 && dictionary, last == 4 && !dictionary:
			n, err = t.int(kind)
			h.encoding = format.Encoding(n) //nolint:gosec // compared with the known ones
		case last == 2:
			h.nulls, err = t.int(kind)
		case last == 5 && !dictionary:
			h.levels, err = t.int(kind)
		case last == 7 && !dictionary:
			h.isCompressed = kind == thriftTrue
		default:
			err = t.skip(kind, 0)
		}
		if err != nil {
			return err
		}
	}
}

// columnReader collects a column's values of one row group.
type columnReader struct {
	*column
	rows int // read so far

	null  []bool   // by row; nil when none is NULL
	bits  []int64  // by row; typed columns
	texts [][]byte // by row; byte arrays and fixed-length values

	dictRaw    []byte // the dictionary page as stored, until a data page says how
	dictHeader pageHeader
	hasDict    bool
	dictBits   []int64
	dictTexts  [][]byte
	index      []int32

	pages *pages // memory of uncompressed pages, which texts point into
}

// read reads the column chunk at the start of data and gives the rest of data.
func (c *columnReader) read(z *zstd.Decoder, data []byte, rows int) (rest []byte, err error) {
	for c.rows < rows {
		t := thriftReader{b: data}
		h, err := t.pageHeader()
		if err != nil {
			return nil, err
		}
		data = data[t.pos:]
		if h.size < 0 || h.raw < 0 || h.raw > maxPage || rows > 1 && h.raw > 2*maxGroupRaw {
			return nil, errPageHeader
		}
		if h.size > int64(len(data)) {
			return nil, errTruncated
		}
		body := data[:h.size]
		data = data[h.size:]
		if h.hasCRC && uint32(h.crc) != crc32.ChecksumIEEE(body) { //nolint:gosec // the bits are meant
			return nil, errors.New("page's own checksum is wrong")
		}
		switch h.kind {
		case format.DictionaryPage:
			if c.hasDict || c.rows > 0 || h.encoding != format.Plain {
				return nil, errPageHeader
			}
			c.dictRaw, c.dictHeader, c.hasDict = body, h, true
		case format.DataPageV2:
			if h.values <= 0 || h.values > int64(rows-c.rows) {
				return nil, errPageHeader
			}
			if err := c.dataPage(z, h, body); err != nil {
				return nil, err
			}
		default:
			return nil, errPageHeader
		}
	}
	return data, nil
}

// uncompress gives the values' bytes of a page.
func (c *columnReader) uncompress(z *zstd.Decoder, body []byte, raw int64, compressed bool) ([]byte, error) {
	if !compressed {
		if int64(len(body)) != raw {
			return nil, errPageHeader
		}
		return body, nil
	}
	// Both the page and the frame say how long the content is (frames below 256
	// bytes may leave it out); nothing is allocated unless they agree.
	var frame zstd.Header
	if err := frame.Decode(body); err != nil {
		return nil, fmt.Errorf("compressed page: %w", err)
	}
	if frame.HasFCS && frame.FrameContentSize != uint64(raw) || !frame.HasFCS && raw >= 256 || raw > int64(len(body))*maxExpansion { //nolint:gosec // not negative
		return nil, errPageHeader
	}
	out, err := z.DecodeAll(body, c.pages.take(int(raw)))
	if err != nil {
		return nil, fmt.Errorf("compressed page: %w", err)
	}
	if int64(len(out)) != raw {
		return nil, errPageHeader
	}
	return out, nil
}

func (c *columnReader) dataPage(z *zstd.Decoder, h pageHeader, body []byte) error {
	if c.dictRaw != nil {
		if err := c.dictionary(z, h.isCompressed); err != nil {
			return err
		}
	}
	n := int(h.values)
	if h.levels < 0 || h.levels > int64(len(body)) || h.levels > h.raw {
		return errPageHeader
	}
	present := n
	if c.optional {
		nulls, err := c.definitionLevels(body[:h.levels], n)
		if err != nil {
			return err
		}
		present -= nulls
	} else if h.levels != 0 {
		return errPageHeader
	}
	if int64(n-present) != h.nulls {
		return errPageHeader
	}
	values, err := c.uncompress(z, body[h.levels:], h.raw-h.levels, h.isCompressed)
	if err != nil {
		return err
	}
	switch h.encoding {
	case format.Plain:
		err = c.plainValues(values, present)
	case format.DeltaBinaryPacked:
		err = c.deltaValues(values, present)
	case format.RLEDictionary:
		err = c.dictionaryValues(values, present)
	default:
		err = fmt.Errorf("encoding %s is not one of the format's", h.encoding)
	}
	if err != nil {
		return err
	}
	c.spread(n, present)
	return nil
}

// definitionLevels reads n levels and says how many are NULL.
func (c *columnReader) definitionLevels(b []byte, n int) (nulls int, err error) {
	if c.index, err = unpack(c.index[:0], b, 1, n); err != nil {
		return 0, err
	}
	for _, l := range c.index {
		if l == 0 {
			nulls++
		}
	}
	if nulls == 0 {
		if c.null != nil {
			c.null = append(c.null, make([]bool, n)...)
		}
		return 0, nil
	}
	if c.null == nil {
		c.null = make([]bool, c.rows, c.rows+n)
	}
	for _, l := range c.index {
		c.null = append(c.null, l == 0)
	}
	return nulls, nil
}

// spread moves the values of a page's rows that are not NULL, which lie together at
// the end of the column, to their rows.
func (c *columnReader) spread(n, present int) {
	first := c.rows
	c.rows += n
	if present == n {
		return
	}
	if c.inTexts() {
		c.texts = append(c.texts, make([][]byte, n-present)...)
		spread(c.texts[first:], c.null[first:], present)
	} else {
		c.bits = append(c.bits, make([]int64, n-present)...)
		spread(c.bits[first:], c.null[first:], present)
	}
}

func spread[T any](v []T, null []bool, present int) {
	var zero T
	for i := len(v) - 1; i >= 0; i-- {
		if null[i] {
			v[i] = zero
		} else {
			present--
			v[i] = v[present]
		}
	}
}

func (c *columnReader) dictionary(z *zstd.Decoder, compressed bool) error {
	body, err := c.uncompress(z, c.dictRaw, c.dictHeader.raw, compressed)
	if err != nil {
		return err
	}
	c.dictRaw = nil
	n := c.dictHeader.values
	if n < 0 || n > int64(len(body)) {
		return errPageHeader
	}
	texts, values := c.texts, c.bits
	c.texts, c.bits = c.dictTexts[:0], c.dictBits[:0]
	err = c.plainValues(body, int(n))
	c.dictTexts, c.dictBits = c.texts, c.bits
	c.texts, c.bits = texts, values
	return err
}

func (c *columnReader) plainValues(b []byte, n int) error {
	switch c.physical {
	case format.ByteArray:
		if len(b) < 4*n {
			return errTruncated
		}
		c.texts = slices.Grow(c.texts, n)
		for range n {
			if len(b) < 4 {
				return errTruncated
			}
			size := binary.LittleEndian.Uint32(b)
			b = b[4:]
			if uint64(size) > uint64(len(b)) {
				return errTruncated
			}
			c.texts = append(c.texts, b[:size:size])
			b = b[size:]
		}
	case format.FixedLenByteArray:
		if len(b) != n*c.width {
			return errTruncated
		}
		c.texts = slices.Grow(c.texts, n)
		for ; len(b) > 0; b = b[c.width:] {
			c.texts = append(c.texts, b[:c.width:c.width])
		}
		return nil
	default:
		if len(b) != n*c.width {
			return errTruncated
		}
		c.bits = slices.Grow(c.bits, n)
		if c.width == 4 {
			for ; len(b) > 0; b = b[4:] {
				c.bits = append(c.bits, int64(int32(binary.LittleEndian.Uint32(b)))) //nolint:gosec // the bits are meant
			}
		} else {
			for ; len(b) > 0; b = b[8:] {
				c.bits = append(c.bits, int64(binary.LittleEndian.Uint64(b))) //nolint:gosec // the bits are meant
			}
		}
		return nil
	}
	if len(b) != 0 {
		return errValues
	}
	return nil
}

func (c *columnReader) dictionaryValues(b []byte, n int) (err error) {
	if !c.hasDict || len(b) == 0 && n > 0 {
		return errValues
	}
	if n == 0 {
		return nil
	}
	if c.index, err = unpack(c.index[:0], b[1:], int(b[0]), n); err != nil {
		return err
	}
	if c.inTexts() {
		c.texts, err = appendOf(c.texts, c.dictTexts, c.index)
	} else {
		c.bits, err = appendOf(c.bits, c.dictBits, c.index)
	}
	return err
}
