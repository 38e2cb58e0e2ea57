package segment

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/coldtier/coldtier/archive/message"
)

// exactName is the column that holds, as a JSON object {"column": "text"}, the
// canonical text of a row's values that their typed columns cannot hold exactly.
const exactName = "_exact"

// maxBound is the longest text or binary value whose bounds are written.
const maxBound = 64

// column says how one column lies in the file.
type column struct {
	message.Column
	at       int // in the schema; -1 for exactName
	physical format.Type
	width    int  // bytes of a value; 0 for byte arrays
	optional bool // definition level 0 is NULL
	bounds   bool // has statistics
	index    bool // has a page index even if there is one page
	ordered  bool // values tend to rise row by row
	content  bool // message bodies: never in a dictionary
}

// layout maps a schema to the file's columns: the schema's own in their order,
// then exactName.
func layout(s *message.Schema) ([]column, error) {
	cols := make([]column, 0, s.Len()+1)
	for i, c := range s.Columns() {
		if c.Name == exactName {
			return nil, fmt.Errorf("column %s: the name is taken by the segment format; rename the column", exactName)
		}
		f := column{Column: c, at: i, optional: c.Nullable}
		switch c.Kind {
		case message.Int, message.Uint:
			f.physical, f.width = format.Int64, 8
			if c.Bits <= 32 {
				f.physical, f.width = format.Int32, 4
			}
		case message.Bit:
			f.physical, f.width = format.Int64, 8
		case message.Float:
			f.physical, f.width = format.Float, 4
		case message.Double:
			f.physical, f.width = format.Double, 8
		case message.Text, message.Bytes:
			f.physical = format.ByteArray
		case message.Decimal:
			switch {
			case f.decimalAsText():
				f.physical = format.ByteArray
			case c.Precision <= 9:
				// Not INT64: ClickHouse 26.7 reads a DECIMAL(9) of 8 bytes as twice 4.
				f.physical, f.width, f.optional = format.Int32, 4, true
			case c.Precision <= 18:
				f.physical, f.width, f.optional = format.Int64, 8, true
			default:
				f.physical, f.width, f.optional = format.FixedLenByteArray, decimalWidth(c.Precision), true
			}
		case message.Date, message.Year:
			f.physical, f.width, f.optional = format.Int32, 4, true
		case message.DateTime, message.Timestamp:
			f.physical, f.width, f.optional = format.Int64, 8, true
		case message.Time:
			f.physical, f.width, f.optional = format.Int64, 8, true
			if c.Scale <= 3 {
				f.physical, f.width = format.Int32, 4
			}
		default:
			return nil, fmt.Errorf("column %s: kind %s has no form in a segment", c.Name, c.Kind)
		}
		switch i {
		case s.Role(message.MessageID), s.Role(message.Sequence), s.Role(message.ConversationID):
			f.bounds, f.index, f.ordered = true, true, true
		case s.Role(message.CreatedAt):
			f.bounds, f.ordered = f.width == 4 || f.width == 8, true
		case s.Role(message.Content):
			f.content = true
		default:
			f.ordered = c.Kind == message.Date || c.Kind == message.DateTime || c.Kind == message.Timestamp
		}
		if f.physical == format.Float || f.physical == format.Double || f.physical == format.FixedLenByteArray {
			f.bounds = false
		}
		cols = append(cols, f)
	}
	return append(cols, column{Column: message.Column{Name: exactName, Kind: message.Text, Nullable: true},
		at: -1, physical: format.ByteArray, optional: true, content: true}), nil
}

// decimalAsText says that a DECIMAL has more digits than Parquet readers take.
func (c *column) decimalAsText() bool {
	return c.Precision < 1 || c.Precision > 38 || c.Scale < 0 || c.Scale > c.Precision
}

// decimalWidth is the number of bytes that hold any decimal of a precision.
func decimalWidth(precision int) int {
	most := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)
	return most.BitLen()/8 + 1
}

func (c *column) unsigned() bool { return c.Kind == message.Uint || c.Kind == message.Bit }

// opaque says that the canonical text is stored as it is.
func (c *column) opaque() bool { return c.physical == format.ByteArray }

// inTexts says that a columnReader has the values in texts, not in bits.
func (c *column) inTexts() bool {
	return c.physical == format.ByteArray || c.physical == format.FixedLenByteArray
}

// schemaElement writes the column's element of the footer's schema.
func (c *column) schemaElement(t *thriftWriter) {
	outer := t.begin()
	t.i32(1, int32(c.physical))
	if c.physical == format.FixedLenByteArray {
		t.i32(2, int32(c.width)) //nolint:gosec // at most 16
	}
	repetition := format.Required
	if c.optional {
		repetition = format.Optional
	}
	t.i32(3, int32(repetition))
	t.string(4, c.Name)
	switch c.Kind {
	case message.Int, message.Uint:
		c.integerType(t, c.Bits, c.Kind == message.Int)
	case message.Bit:
		c.integerType(t, 64, false)
	case message.Year:
		c.integerType(t, 16, false)
	case message.Text:
		stringType(t)
	case message.Decimal:
		if c.decimalAsText() {
			stringType(t)
			break
		}
		t.i32(6, int32(deprecated.Decimal))
		t.i32(7, int32(c.Scale))     //nolint:gosec // at most 38
		t.i32(8, int32(c.Precision)) //nolint:gosec // at most 38
		logicalType(t, 5, func() {
			t.i32(1, int32(c.Scale))     //nolint:gosec // at most 38
			t.i32(2, int32(c.Precision)) //nolint:gosec // at most 38
		})
	case message.Date:
		t.i32(6, int32(deprecated.Date))
		logicalType(t, 6, func() {})
	case message.Time:
		logicalType(t, 7, func() { c.timeUnit(t, false) })
	case message.DateTime:
		// No converted type: the old annotations all mean UTC.
		logicalType(t, 8, func() { c.timeUnit(t, false) })
	case message.Timestamp:
		converted := deprecated.TimestampMicros
		if c.Scale <= 3 {
			converted = deprecated.TimestampMillis
		}
		t.i32(6, int32(converted))
		logicalType(t, 8, func() { c.timeUnit(t, true) })
	}
	t.end(outer)
}

func stringType(t *thriftWriter) {
	t.i32(6, int32(deprecated.UTF8))
	logicalType(t, 1, func() {})
}

// logicalType writes member id of the LogicalType union.
func logicalType(t *thriftWriter, id int16, body func()) {
	t.field(10, thriftStruct)
	union := t.begin()
	t.field(id, thriftStruct)
	inner := t.begin()
	body()
	t.end(inner)
	t.end(union)
}

func (c *column) integerType(t *thriftWriter, bits int, signed bool) {
	n, converted := int8(64), deprecated.Int64
	switch {
	case bits <= 8:
		n, converted = 8, deprecated.Int8
	case bits <= 16:
		n, converted = 16, deprecated.Int16
	case bits <= 32:
		n, converted = 32, deprecated.Int32
	}
	if !signed {
		converted -= deprecated.Int8 - deprecated.Uint8
	}
	t.i32(6, int32(converted))
	logicalType(t, 10, func() {
		t.field(1, thriftByte)
		t.b = append(t.b, byte(n)) //nolint:gosec // 8..64
		t.bool(2, signed)
	})
}

// timeUnit writes the two fields that TIME and TIMESTAMP share.
func (c *column) timeUnit(t *thriftWriter, utc bool) {
	t.bool(1, utc)
	t.field(2, thriftStruct)
	unit := t.begin()
	if c.Scale <= 3 {
		t.emptyStruct(1) // milliseconds
	} else {
		t.emptyStruct(2) // microseconds
	}
	t.end(unit)
}

const microsPerDay = 86_400_000_000

// parse gives the typed form of a canonical text as the bits of its physical type
// (sign-extended; the IEEE bits of floating point). typed is false when there is
// no such form; exact when text gives the very text back.
func (c *column) parse(text []byte) (bits int64, typed, exact bool) {
	switch c.Kind {
	case message.Int:
		if n, ok := message.ParseInt(text); ok {
			return n, fits(n, c.Bits), true
		}
		n, err := strconv.ParseInt(string(text), 10, 64) // zero-filled: 0042
		return n, err == nil && fits(n, c.Bits), false
	case message.Uint, message.Bit:
		bits := c.Bits
		if c.Kind == message.Bit {
			bits = 64
		}
		if n, ok := message.ParseUint(text); ok {
			return int64(n), fitsUnsigned(n, bits), true //nolint:gosec // the bits are meant
		}
		n, err := strconv.ParseUint(string(text), 10, 64)
		return int64(n), err == nil && fitsUnsigned(n, bits), false //nolint:gosec // the bits are meant
	case message.Decimal:
		n, ok := message.ParseDecimal64(text, c.Scale)
		if !ok { // -0.999999999999999999 has 18 digits and is too long for it
			var wide *big.Int
			if wide, ok = message.ParseDecimal(text, c.Scale); ok {
				n = wide.Int64()
			}
		}
		ok = ok && digitsOf(text) <= c.Precision
		return n, ok, ok
	case message.Date:
		n, ok := message.ParseDate(text)
		return int64(n), ok, ok
	case message.DateTime, message.Timestamp:
		n, ok := message.ParseDateTime(text, c.Scale)
		if c.Scale <= 3 {
			n /= 1000
		}
		return n, ok, ok
	case message.Time:
		n, ok := message.ParseTime(text, c.Scale)
		ok = ok && n >= 0 && n < microsPerDay // MySQL's TIME is a duration, Parquet's is of a day
		if c.Scale <= 3 {
			n /= 1000
		}
		return n, ok, ok
	case message.Year:
		n, ok := message.ParseYear(text)
		return int64(n), ok, ok
	case message.Float:
		if f, ok := message.ParseFloat(text); ok {
			return int64(math.Float32bits(f)), true, true
		}
		f, err := strconv.ParseFloat(string(text), 32)
		return int64(math.Float32bits(float32(f))), err == nil, false
	case message.Double:
		if f, ok := message.ParseDouble(text); ok {
			return int64(math.Float64bits(f)), true, true //nolint:gosec // the bits are meant
		}
		f, err := strconv.ParseFloat(string(text), 64)
		return int64(math.Float64bits(f)), err == nil, false //nolint:gosec // the bits are meant
	}
	return 0, false, false
}

// text appends the canonical text of a typed value: the reverse of parse.
func (c *column) text(dst []byte, bits int64) []byte {
	switch c.Kind {
	case message.Int:
		return strconv.AppendInt(dst, bits, 10)
	case message.Uint, message.Bit:
		n := uint64(bits) //nolint:gosec // the bits are meant
		if c.width == 4 {
			n = uint64(uint32(n)) //nolint:gosec // the low half is meant
		}
		return strconv.AppendUint(dst, n, 10)
	case message.Decimal:
		return message.AppendDecimal64(dst, bits, c.Scale)
	case message.Date:
		return message.AppendDate(dst, int32(bits)) //nolint:gosec // an INT32 column
	case message.DateTime, message.Timestamp:
		if c.Scale <= 3 {
			bits *= 1000
		}
		return message.AppendDateTime(dst, bits, c.Scale)
	case message.Time:
		if c.Scale <= 3 {
			bits *= 1000
		}
		return message.AppendTime(dst, bits, c.Scale)
	case message.Year:
		return message.AppendYear(dst, uint16(bits)) //nolint:gosec // four digits
	case message.Float:
		return message.AppendFloat(dst, math.Float32frombits(uint32(bits))) //nolint:gosec // the bits are meant
	case message.Double:
		return message.AppendDouble(dst, math.Float64frombits(uint64(bits))) //nolint:gosec // the bits are meant
	}
	return dst
}

// parseFixed gives a decimal of more than 18 digits as big-endian two's complement.
func (c *column) parseFixed(dst, text []byte) ([]byte, bool) {
	n, ok := message.ParseDecimal(text, c.Scale)
	if !ok || digitsOf(text) > c.Precision {
		return dst, false
	}
	if n.Sign() < 0 {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*c.width)))
	}
	at := len(dst)
	dst = append(dst, make([]byte, c.width)...)
	n.FillBytes(dst[at:])
	return dst, true
}

// textFixed is the reverse of parseFixed.
func (c *column) textFixed(dst, value []byte) []byte {
	n := new(big.Int).SetBytes(value)
	if value[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(value))))
	}
	return message.AppendDecimal(dst, n, c.Scale)
}

// digitsOf counts a decimal's digits, without a lone 0 before the point.
func digitsOf(text []byte) (n int) {
	for i, d := range text {
		if d >= '0' && d <= '9' && (n > 0 || d != '0' || i+1 == len(text) || text[i+1] != '.') {
			n++
		}
	}
	return n
}

func fits(n int64, bits int) bool {
	if bits <= 0 || bits >= 64 {
		return true
	}
	return n >= -1<<(bits-1) && n < 1<<(bits-1)
}

func fitsUnsigned(n uint64, bits int) bool { return bits <= 0 || bits >= 64 || n>>bits == 0 }

// less orders typed values as the column's logical type does.
func (c *column) less(a, b int64) bool {
	if c.unsigned() {
		return uint64(a) < uint64(b) //nolint:gosec // the bits are meant
	}
	return a < b
}

// plain appends the PLAIN form of a typed value.
func (c *column) plain(dst []byte, bits int64) []byte {
	if c.width == 4 {
		return binary.LittleEndian.AppendUint32(dst, uint32(bits)) //nolint:gosec // an INT32 column
	}
	return binary.LittleEndian.AppendUint64(dst, uint64(bits)) //nolint:gosec // the bits are meant
}
