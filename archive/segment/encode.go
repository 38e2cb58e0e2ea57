package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/format"

	"github.com/coldtier/coldtier/archive/message"
)

const (
	minEncoded    = 16       // fewer values of a page are PLAIN: the other encodings cost more than they save
	minCompressed = 64       // bytes; smaller pages are stored as they are
	maxDictionary = 32 << 10 // bytes of a dictionary's values
)

// page is what the page indexes say of one data page.
type page struct {
	offset   int64 // in the column chunk, dictionary page aside
	size     int   // with its header
	rows     int
	nulls    int
	min, max []byte // nil when the page has no bounds
}

// columnWriter collects a column's values of the page that is being filled, and
// the finished pages of the row group that is being filled.
type columnWriter struct {
	column

	// The page being filled: a value for each row that is not NULL.
	rows   int
	levels []byte  // a definition level for each row of an optional column
	bits   []int64 // typed values
	data   []byte  // byte arrays, in PLAIN form; fixed-length values
	count  int     // values in data
	long   bool    // a value of data is too long for bounds and dictionaries

	// The codec is one for all chunks of the file, chosen at its first page: some readers
	// take the first row group's for all, and give wrong values where another has another.
	coded bool
	codec format.CompressionCodec

	// The column chunk: the finished pages of the row group.
	decided  bool // the encoding is chosen at the chunk's first page
	encoding format.Encoding
	used     [9]bool // encodings
	pages    []page
	out      []byte // finished data pages
	raw      int64  // uncompressed bytes of out, headers included
	nulls    int

	ints  map[int64]int32  // dictionary of typed values
	texts map[string]int32 // dictionary of byte arrays
	dict  []byte           // the dictionary in PLAIN form

	scratch32 []int32
	scratch   []byte
}

// reset forgets everything and keeps the memory.
func (c *columnWriter) reset() {
	c.resetPage()
	c.resetChunk()
	c.coded = false
}

func (c *columnWriter) resetPage() {
	c.rows, c.levels, c.bits, c.data, c.count, c.long = 0, c.levels[:0], c.bits[:0], c.data[:0], 0, false
}

func (c *columnWriter) resetChunk() {
	c.decided, c.used, c.pages, c.out, c.raw, c.nulls, c.dict = false, [9]bool{}, c.pages[:0], c.out[:0], 0, 0, c.dict[:0]
	clear(c.ints)
	clear(c.texts)
}

// add takes the values of rows [from, to) of a batch. Values that their typed form
// does not hold exactly are reported by the row's place in the batch.
func (c *columnWriter) add(b *message.Batch, from, to int, inexact func(row int, text []byte) error) error {
	for i := from; i < to; i++ {
		text := b.Value(c.at, i)
		if text == nil {
			if err := c.addNull(); err != nil {
				return fmt.Errorf("message %d: %w", b.MessageID(i), err)
			}
			continue
		}
		switch c.physical {
		case format.ByteArray:
			c.addBytes(text)
			continue
		case format.FixedLenByteArray:
			var ok bool
			if c.data, ok = c.parseFixed(c.data, text); ok {
				c.count++
				c.present(true)
				continue
			}
		default:
			v, typed, exact := c.parse(text)
			if typed {
				c.bits = append(c.bits, v)
				c.present(true)
			}
			if exact && typed {
				continue
			}
			if typed {
				if err := inexact(i, text); err != nil {
					return err
				}
				continue
			}
		}
		if !c.optional {
			return fmt.Errorf("message %d: %q in column %s is no %s", b.MessageID(i), text, c.Name, c.SourceType)
		}
		c.present(false)
		if err := inexact(i, text); err != nil {
			return err
		}
	}
	return nil
}

func (c *columnWriter) present(is bool) {
	c.rows++
	if !c.optional {
		return
	}
	level := byte(0)
	if is {
		level = 1
	}
	c.levels = append(c.levels, level)
}

func (c *columnWriter) addNull() error {
	if !c.optional {
		return fmt.Errorf("column %s is NULL, although its schema says NOT NULL", c.Name)
	}
	c.present(false)
	return nil
}

func (c *columnWriter) addBytes(v []byte) {
	c.data = append(binary.LittleEndian.AppendUint32(c.data, uint32(len(v))), v...) //nolint:gosec // at most maxValue
	c.count++
	c.long = c.long || len(v) > maxBound
	c.present(true)
}

// finishPage encodes the page being filled and begins the next.
func (c *columnWriter) finishPage(z *zstd.Encoder) error {
	values := len(c.bits) + c.count
	nulls := c.rows - values
	var levels []byte
	if c.optional {
		var err error
		if levels, err = (&rle.Encoding{BitWidth: 1}).EncodeLevels(c.scratch[:0], c.levels); err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
		c.scratch = levels
	}
	if !c.decided {
		c.encoding = format.Plain
		if values >= minEncoded {
			c.encoding = c.choose()
		}
	}
	body, encoding, err := c.encode()
	if err != nil {
		return fmt.Errorf("column %s: %w", c.Name, err)
	}
	raw := len(levels) + len(body)
	if raw > maxPage {
		return fmt.Errorf("column %s: page of %d bytes is too large", c.Name, raw)
	}
	// Levels of a version 2 page are never compressed. All pages have the codec, so
	// that a reader may look at either flag or metadata.
	packed := false // a page without values has nothing to compress
	if small := len(body) < minCompressed && len(c.dict) < minCompressed; !c.coded && small {
		c.codec = format.Uncompressed
	} else if !c.coded || c.codec == format.Zstd {
		shorter := z.EncodeAll(body, nil)
		if !c.coded {
			c.codec = format.Uncompressed
			if len(shorter) < len(body)-len(body)/16 || len(c.dict) >= minCompressed {
				c.codec = format.Zstd
			}
		}
		if packed = c.codec == format.Zstd && len(body) > 0; packed {
			body = shorter
		}
	}
	c.decided, c.coded, c.used[encoding] = true, true, true
	c.nulls += nulls

	crc := crc32.Update(crc32.ChecksumIEEE(levels), crc32.IEEETable, body)
	head := thriftWriter{b: c.out}
	outer := head.begin()
	head.i32(1, int32(format.DataPageV2))
	head.i32(2, int32(raw))
	head.i32(3, int32(len(levels)+len(body))) //nolint:gosec // at most maxPage and a little
	head.i32(4, int32(crc))                   //nolint:gosec // the bits are meant
	head.field(8, thriftStruct)
	inner := head.begin()
	head.i32(1, int32(c.rows)) //nolint:gosec // at most maxGroupRows
	head.i32(2, int32(nulls))  //nolint:gosec // at most maxGroupRows
	head.i32(3, int32(c.rows)) //nolint:gosec // at most maxGroupRows
	head.i32(4, int32(encoding))
	head.i32(5, int32(len(levels))) //nolint:gosec // at most maxPage
	head.i32(6, 0)
	head.bool(7, packed)
	head.end(inner)
	head.end(outer)
	p := page{offset: int64(len(c.out)), rows: c.rows, nulls: nulls}
	c.raw += int64(len(head.b)-len(c.out)) + int64(raw)
	c.out = append(append(head.b, levels...), body...)
	p.size = len(c.out) - int(p.offset)
	if c.bounds && values > 0 {
		p.min, p.max = c.pageBounds()
	}
	c.pages = append(c.pages, p)
	c.resetPage()
	return nil
}

// choose picks the chunk's encoding by its first page. Columns that tend to rise
// are worth their differences, others a dictionary when values repeat.
func (c *columnWriter) choose() format.Encoding {
	switch c.physical {
	case format.ByteArray:
		if c.content || c.long {
			return format.Plain
		}
		if _, ok := c.indexes(len(c.data) / 2); ok && len(c.texts) <= c.count/4 {
			return format.RLEDictionary
		}
	case format.Int32, format.Int64:
		if !c.ordered {
			if _, ok := c.indexes(min(maxDictionary, len(c.bits)*c.width/4)); ok {
				return format.RLEDictionary
			}
		}
		if len(c.delta()) < len(c.bits)*c.width*3/4 {
			return format.DeltaBinaryPacked
		}
	}
	c.dict = c.dict[:0]
	clear(c.ints)
	clear(c.texts)
	return format.Plain
}

// encode gives the values of the page in the chunk's encoding. A page whose values
// no longer fit the dictionary is PLAIN.
func (c *columnWriter) encode() ([]byte, format.Encoding, error) {
	switch c.encoding {
	case format.DeltaBinaryPacked:
		return c.delta(), format.DeltaBinaryPacked, nil
	case format.RLEDictionary:
		if index, ok := c.indexes(maxDictionary); ok {
			n := len(c.ints) + len(c.texts)
			width := max(1, bits.Len(uint(n-1)))
			body, err := (&rle.Encoding{BitWidth: width}).EncodeInt32(nil, index)
			return append([]byte{byte(width)}, body...), format.RLEDictionary, err //nolint:gosec // at most 16 bits
		}
	}
	if c.physical == format.ByteArray || c.physical == format.FixedLenByteArray {
		return c.data, format.Plain, nil
	}
	body := make([]byte, 0, len(c.bits)*c.width)
	for _, v := range c.bits {
		body = c.plain(body, v)
	}
	return body, format.Plain, nil
}

func (c *columnWriter) delta() []byte {
	var body []byte
	if c.width == 4 {
		c.scratch32 = c.scratch32[:0]
		for _, v := range c.bits {
			c.scratch32 = append(c.scratch32, int32(v)) //nolint:gosec // an INT32 column
		}
		body, _ = (&delta.BinaryPackedEncoding{}).EncodeInt32(nil, c.scratch32) // always nil
	} else {
		body, _ = (&delta.BinaryPackedEncoding{}).EncodeInt64(nil, c.bits) // always nil
	}
	return body
}

// indexes looks the page's values up in the dictionary, adding those it lacks; ok
// is false when the dictionary would pass limit bytes.
func (c *columnWriter) indexes(limit int) (index []int32, ok bool) {
	index = c.scratch32[:0]
	defer func() { c.scratch32 = index }()
	if c.physical != format.ByteArray {
		if c.ints == nil {
			c.ints = map[int64]int32{}
		}
		for _, v := range c.bits {
			i, known := c.ints[v]
			if !known {
				if len(c.dict)+c.width > limit {
					return index, false
				}
				i = int32(len(c.ints)) //nolint:gosec // bounded by limit
				c.ints[v] = i
				c.dict = c.plain(c.dict, v)
			}
			index = append(index, i)
		}
		return index, true
	}
	if c.texts == nil {
		c.texts = map[string]int32{}
	}
	for rest := c.data; len(rest) > 0; {
		n := 4 + int(binary.LittleEndian.Uint32(rest))
		v := rest[:n]
		rest = rest[n:]
		i, known := c.texts[string(v)]
		if !known {
			if n > maxBound+4 || len(c.dict)+n > min(limit, maxDictionary) {
				return index, false
			}
			i = int32(len(c.texts)) //nolint:gosec // bounded by limit
			c.texts[string(v)] = i
			c.dict = append(c.dict, v...)
		}
		index = append(index, i)
	}
	return index, true
}

// dictionaryPage gives the chunk's dictionary page, which precedes its data pages;
// none when no page refers to it.
func (c *columnWriter) dictionaryPage(z *zstd.Encoder) (out []byte, raw int64) {
	if !c.used[format.RLEDictionary] {
		return nil, 0
	}
	body := c.dict
	if c.codec == format.Zstd {
		body = z.EncodeAll(c.dict, nil)
	}
	var head thriftWriter
	outer := head.begin()
	head.i32(1, int32(format.DictionaryPage))
	head.i32(2, int32(len(c.dict)))              //nolint:gosec // at most maxDictionary
	head.i32(3, int32(len(body)))                //nolint:gosec // at most maxDictionary
	head.i32(4, int32(crc32.ChecksumIEEE(body))) //nolint:gosec // the bits are meant
	head.field(7, thriftStruct)
	inner := head.begin()
	head.i32(1, int32(len(c.ints)+len(c.texts))) //nolint:gosec // at most maxDictionary
	head.i32(2, int32(format.Plain))
	head.end(inner)
	head.end(outer)
	return append(head.b, body...), int64(len(head.b) + len(c.dict))
}

// pageBounds are the lowest and highest value of the page being filled, in the form
// of statistics; nil when a value is too long. There is at least one value.
func (c *columnWriter) pageBounds() (low, high []byte) {
	if c.physical == format.ByteArray {
		// Bounds are never cut: a cut upper bound would have to be raised, and FF
		// bytes cannot be.
		if c.long {
			return nil, nil
		}
		for rest := c.data; len(rest) > 0; {
			n := 4 + int(binary.LittleEndian.Uint32(rest))
			v := rest[4:n:n]
			rest = rest[n:]
			if low == nil || bytes.Compare(v, low) < 0 {
				low = v
			}
			if high == nil || bytes.Compare(v, high) > 0 {
				high = v
			}
		}
		return append([]byte{}, low...), append([]byte{}, high...)
	}
	lo, hi := c.bits[0], c.bits[0]
	for _, v := range c.bits[1:] {
		if c.less(v, lo) {
			lo = v
		}
		if c.less(hi, v) {
			hi = v
		}
	}
	return c.plain(nil, lo), c.plain(nil, hi)
}
