package segment

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/parquet-go/parquet-go/format"
)

// appendOf appends the values of a dictionary at the places of index.
func appendOf[T any](dst, dictionary []T, index []int32) ([]T, error) {
	dst = slices.Grow(dst, len(index))
	for _, i := range index {
		if i < 0 || int(i) >= len(dictionary) {
			return dst, errValues
		}
		dst = append(dst, dictionary[i])
	}
	return dst, nil
}

// unpack appends n values of width bits in the hybrid of run lengths and bit
// packing.
func unpack(dst []int32, b []byte, width, n int) ([]int32, error) {
	if width < 0 || width > 24 {
		return nil, errValues
	}
	mask := uint64(1)<<width - 1
	for n > 0 {
		head, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, errValues
		}
		b = b[size:]
		if head&1 == 0 { // a run of one value
			run, size := head>>1, (width+7)/8
			if run == 0 || len(b) < size {
				return nil, errValues
			}
			v := int32(0)
			for i := range size {
				v |= int32(b[i]) << (8 * i)
			}
			b = b[size:]
			for k := min(run, uint64(n)); k > 0; k-- {
				dst = append(dst, v)
				n--
			}
			continue
		}
		groups := head >> 1 // of 8 values in width bytes
		if groups == 0 || groups > uint64(len(b)) && width > 0 || groups*uint64(width) > uint64(len(b)) {
			return nil, errValues
		}
		packed := b[:groups*uint64(width)]
		b = b[len(packed):]
		have, held := uint64(0), 0
		for k := min(groups, uint64(n+7)/8) * 8; k > 0 && n > 0; k-- {
			for held < width {
				have |= uint64(packed[0]) << held
				packed, held = packed[1:], held+8
			}
			dst = append(dst, int32(have&mask)) //nolint:gosec // at most 24 bits
			have, held, n = have>>width, held-width, n-1
		}
	}
	return dst, nil
}

// deltaValues reads DELTA_BINARY_PACKED.
func (c *columnReader) deltaValues(b []byte, n int) error {
	if c.physical != format.Int32 && c.physical != format.Int64 {
		return errValues
	}
	t := thriftReader{b: b} // the same varints
	block, err1 := t.uvarint()
	minis, err2 := t.uvarint()
	count, err3 := t.uvarint()
	value, err4 := t.varint()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return errValues
	}
	if count != uint64(n) || minis == 0 || minis > 512 || block > 1<<16 || block%minis != 0 || block/minis%32 != 0 || block == 0 { //nolint:gosec // not negative
		return errValues
	}
	per := int(block / minis) //nolint:gosec // at most 1<<16
	narrow := func(v int64) int64 {
		if c.width == 4 {
			return int64(int32(v)) //nolint:gosec // INT32 differences wrap around
		}
		return v
	}
	c.bits = slices.Grow(c.bits, n) // at most the row group's rows
	if n > 0 {
		value = narrow(value)
		c.bits = append(c.bits, value)
		n--
	}
	for n > 0 {
		least, err := t.varint()
		if err != nil || uint64(len(b)-t.pos) < minis { //nolint:gosec // not negative
			return errValues
		}
		widths := b[t.pos : t.pos+int(minis)]
		t.pos += len(widths)
		for _, width := range widths {
			if n == 0 {
				break
			}
			size := per / 8 * int(width)
			if width > 64 || len(b)-t.pos < size {
				return errValues
			}
			packed := b[t.pos : t.pos+size]
			t.pos += size
			bit := 0
			for k := min(per, n); k > 0; k-- {
				value = narrow(value + least + int64(bitsAt(packed, bit, int(width)))) //nolint:gosec // the bits are meant
				bit += int(width)
				c.bits = append(c.bits, value)
				n--
			}
		}
	}
	return nil
}

// bitsAt reads width bits (at most 64) of b from a bit on, lowest first.
func bitsAt(b []byte, bit, width int) uint64 {
	if width == 0 {
		return 0
	}
	i, shift := bit/8, bit%8
	var v uint64
	if i+8 <= len(b) {
		v = binary.LittleEndian.Uint64(b[i:]) >> shift
	} else {
		for k, x := range b[i:] {
			v |= uint64(x) << (8 * k)
		}
		v >>= shift
	}
	if shift+width > 64 {
		v |= uint64(b[i+8]) << (64 - shift)
	}
	return v & (1<<width - 1) // 1<<64 is 0, so that 64 bits keep all
}
