package export

import (
	"bytes"
	"math/big"
	"strconv"

	"github.com/parquet-go/parquet-go"

	"github.com/coldtier/coldtier/archive/message"
)

// The digits that fit into a decimal of 4, 8 and at most 16 bytes.
const (
	digits32  = 9
	digits64  = 18
	digitsMax = 38
)

func (c *parquetColumn) decimalNode() parquet.Node {
	switch {
	case c.Precision < 1 || c.Precision > digitsMax || c.Scale < 0 || c.Scale > c.Precision:
		c.asText = true
		return parquet.String()
	case c.Precision <= digits32:
		return parquet.Decimal(c.Scale, c.Precision, parquet.Int32Type)
	case c.Precision <= digits64:
		return parquet.Decimal(c.Scale, c.Precision, parquet.Int64Type)
	}
	most := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(c.Precision)), nil)
	c.width = most.BitLen()/8 + 1
	return parquet.Decimal(c.Scale, c.Precision, parquet.FixedLenByteArrayType(c.width))
}

// value gives the typed form of a canonical text of a column as a generation has it.
// typed is false when there is none, exact when it tells the very text.
func (c *parquetColumn) value(of message.Column, text []byte) (v parquet.Value, typed, exact bool) {
	switch c.Kind {
	case message.Text, message.Bytes:
		return parquet.ByteArrayValue(text), true, true
	case message.Int:
		n, ok := message.ParseInt(text)
		exact, typed = ok, ok
		if !ok { // zero-filled: 0042
			var err error
			n, err = strconv.ParseInt(string(text), 10, 64)
			typed = err == nil
		}
		if w := width(c.Bits); n<<(64-w)>>(64-w) != n {
			return v, false, false
		}
		return c.integer(n), typed, exact
	case message.Uint, message.Bit:
		n, ok := message.ParseUint(text)
		exact, typed = ok, ok
		if !ok {
			var err error
			n, err = strconv.ParseUint(string(text), 10, 64)
			typed = err == nil
		}
		if w := width(c.Bits); c.Kind == message.Uint && n<<(64-w)>>(64-w) != n {
			return v, false, false
		}
		return c.integer(int64(n)), typed, exact //nolint:gosec // the bits are meant
	case message.Year:
		n, ok := message.ParseYear(text)
		return parquet.Int32Value(int32(n)), ok, ok
	case message.Float:
		f, ok := message.ParseFloat(text)
		if !ok {
			wide, err := strconv.ParseFloat(string(text), 32)
			return parquet.FloatValue(float32(wide)), err == nil, false
		}
		return parquet.FloatValue(f), true, true
	case message.Double:
		f, ok := message.ParseDouble(text)
		if !ok {
			f, err := strconv.ParseFloat(string(text), 64)
			return parquet.DoubleValue(f), err == nil, false
		}
		return parquet.DoubleValue(f), true, true
	case message.Date:
		n, ok := message.ParseDate(text)
		return parquet.Int32Value(n), ok, ok
	case message.DateTime, message.Timestamp:
		n, ok := message.ParseDateTime(text, of.Scale)
		if c.Scale <= 3 {
			n /= 1000
		}
		return parquet.Int64Value(n), ok, ok
	case message.Time:
		const day = 86_400_000_000 // a TIME of MySQL may be longer, or negative; Parquet's is of a day
		n, ok := message.ParseTime(text, of.Scale)
		if ok = ok && n >= 0 && n < day; c.Scale <= 3 {
			return parquet.Int32Value(int32(n / 1000)), ok, ok //nolint:gosec // less than a day, or not used
		}
		return parquet.Int64Value(n), ok, ok
	case message.Decimal:
		return c.decimal(of, text)
	}
	return v, false, false
}

// integer is a value of an integer's physical type.
func (c *parquetColumn) integer(n int64) parquet.Value {
	if c.Kind != message.Bit && width(c.Bits) <= 32 {
		return parquet.Int32Value(int32(n)) //nolint:gosec // the bits are meant
	}
	return parquet.Int64Value(n)
}

func (c *parquetColumn) decimal(of message.Column, text []byte) (v parquet.Value, typed, exact bool) {
	if c.asText {
		return parquet.ByteArrayValue(text), true, true
	}
	if of.Scale < c.Scale { // of a generation that had fewer digits behind the point
		longer := bytes.Clone(text)
		if of.Scale == 0 {
			longer = append(longer, '.')
		}
		text = append(longer, bytes.Repeat([]byte("0"), c.Scale-of.Scale)...)
	}
	n, ok := message.ParseDecimal(text, c.Scale)
	if !ok || len(new(big.Int).Abs(n).String()) > c.Precision {
		return v, false, false
	}
	switch {
	case c.Precision <= digits32:
		return parquet.Int32Value(int32(n.Int64())), true, true //nolint:gosec // nine digits
	case c.Precision <= digits64:
		return parquet.Int64Value(n.Int64()), true, true
	}
	if n.Sign() < 0 {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*c.width)))
	}
	return parquet.FixedLenByteArrayValue(n.FillBytes(make([]byte, c.width))), true, true
}
