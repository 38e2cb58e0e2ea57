package clickhouse

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/shopspring/decimal"

	"github.com/coldtier/coldtier/archive/message"
)

// codec moves the values of one column between canonical text and the typed slices
// that the driver takes. It keeps its slices from block to block.
type codec interface {
	// column makes the slice for batch.Column(i).Append; what has no typed form is added to ex.
	column(b *message.Batch, col int, ex *exact) (any, error)
	// dest is what a row is scanned into, and text the canonical text of what was.
	dest() any
	text(dst []byte) (t []byte, null bool)
}

// typed is a codec for columns whose driver type is T.
type typed[T any] struct {
	name     string
	nullable bool
	nearest  bool // what parse gives without ok is the nearest value, better than NULL
	intern   bool // the driver keys its dictionary by pointer
	parse    func([]byte) (T, bool)
	format   func([]byte, T) []byte

	vals []T
	ptrs []*T
	in   T
	pin  *T
}

func (c *typed[T]) column(b *message.Batch, col int, ex *exact) (any, error) {
	n := b.Len()
	c.vals = append(c.vals[:0], make([]T, n)...)
	if c.nullable {
		c.ptrs = append(c.ptrs[:0], make([]*T, n)...)
	}
	for i := range n {
		v := b.Value(col, i)
		if v == nil {
			if !c.nullable {
				return nil, fmt.Errorf("message %d, column %s: %w: NULL in a column that has none", b.MessageID(i), c.name, ErrBadValue)
			}
			continue
		}
		x, ok := c.parse(v)
		if !ok {
			if err := ex.add(i, c.name, v); err != nil {
				return nil, fmt.Errorf("message %d, column %s: %w", b.MessageID(i), c.name, err)
			}
		}
		c.vals[i] = x
		if c.nullable && (ok || c.nearest) {
			c.ptrs[i] = &c.vals[i]
		}
	}
	if !c.nullable {
		return c.vals, nil
	}
	if c.intern {
		internPointers(c.ptrs)
	}
	return c.ptrs, nil
}

// internPointers makes pointers to equal strings equal.
func internPointers[T any](ptrs []*T) {
	seen := map[string]*T{}
	for i, p := range ptrs {
		s, ok := any(p).(*string)
		if !ok || s == nil {
			continue
		}
		if q, ok := seen[*s]; ok {
			ptrs[i] = q
		} else {
			seen[*s] = p
		}
	}
}

func (c *typed[T]) dest() any {
	if c.nullable {
		c.pin = nil
		return &c.pin
	}
	return &c.in
}

func (c *typed[T]) text(dst []byte) ([]byte, bool) {
	if !c.nullable {
		return c.format(dst, c.in), false
	}
	if c.pin == nil {
		return dst, true
	}
	return c.format(dst, *c.pin), false
}

// newCodec is the codec for a column of the schema in a ClickHouse column of type t.
func newCodec(c message.Column, t string) (codec, error) {
	n := parseType(t)
	if !n.holds(c) {
		return nil, fmt.Errorf("column %s is %s, which cannot hold %s: %w: run coldtier migrate", c.Name, t, describe(c), ErrNoTable)
	}
	if n.base == "String" {
		return &typed[string]{name: c.Name, nullable: n.nullable, intern: n.dictionary, parse: viewText,
			format: func(dst []byte, s string) []byte { return append(dst, s...) }}, nil
	}
	switch c.Kind {
	case message.Int:
		return intCodec(c, n), nil
	case message.Uint, message.Bit:
		return uintCodec(c, n), nil
	case message.Year:
		return yearCodec(c, n), nil
	case message.Time:
		return &typed[int64]{name: c.Name, nullable: n.nullable, nearest: true,
			parse:  func(b []byte) (int64, bool) { return message.ParseTime(b, c.Scale) },
			format: func(dst []byte, x int64) []byte { return message.AppendTime(dst, x, c.Scale) }}, nil
	case message.Float, message.Double:
		if n.bits == 32 {
			return &typed[float32]{name: c.Name, nullable: n.nullable, nearest: true, parse: message.ParseFloat, format: message.AppendFloat}, nil
		}
		return &typed[float64]{name: c.Name, nullable: n.nullable, nearest: true, parse: message.ParseDouble, format: message.AppendDouble}, nil
	case message.Decimal:
		return decimalCodec(c, n), nil
	case message.Date:
		return dateCodec(c, n), nil
	case message.DateTime, message.Timestamp:
		return instantCodec(c, n), nil
	}
	return nil, fmt.Errorf("column %s: kind %s in type %s: %w", c.Name, c.Kind, t, ErrNoTable)
}

// viewText is the text without a copy. The driver copies it when it is appended, which
// is before the batch is reset.
func viewText(b []byte) (string, bool) {
	return unsafe.String(unsafe.SliceData(b), len(b)), true //nolint:gosec // see above
}

type signed interface{ int8 | int16 | int32 | int64 }

func signedOf[T signed](c message.Column, n typeName) codec {
	return &typed[T]{name: c.Name, nullable: n.nullable,
		parse: func(b []byte) (T, bool) {
			x, ok := message.ParseInt(b)
			return T(x), ok && int64(T(x)) == x
		},
		format: func(dst []byte, x T) []byte { return appendInt(dst, int64(x)) }}
}

func intCodec(c message.Column, n typeName) codec {
	switch n.bits {
	case 8:
		return signedOf[int8](c, n)
	case 16:
		return signedOf[int16](c, n)
	case 32:
		return signedOf[int32](c, n)
	}
	return signedOf[int64](c, n)
}

type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}

func unsignedOf[T unsigned](c message.Column, n typeName) codec {
	return &typed[T]{name: c.Name, nullable: n.nullable,
		parse: func(b []byte) (T, bool) {
			x, ok := message.ParseUint(b)
			return T(x), ok && uint64(T(x)) == x
		},
		format: func(dst []byte, x T) []byte { return appendUint(dst, uint64(x)) }}
}

func uintCodec(c message.Column, n typeName) codec {
	switch n.bits {
	case 8:
		return unsignedOf[uint8](c, n)
	case 16:
		return unsignedOf[uint16](c, n)
	case 32:
		return unsignedOf[uint32](c, n)
	}
	return unsignedOf[uint64](c, n)
}

func yearOf[T unsigned](c message.Column, n typeName) codec {
	return &typed[T]{name: c.Name, nullable: n.nullable,
		parse: func(b []byte) (T, bool) {
			y, ok := message.ParseYear(b)
			return T(y), ok
		},
		format: func(dst []byte, x T) []byte { return message.AppendYear(dst, uint16(x)) }}
}

func yearCodec(c message.Column, n typeName) codec {
	switch n.bits {
	case 16:
		return yearOf[uint16](c, n)
	case 32:
		return yearOf[uint32](c, n)
	}
	return yearOf[uint64](c, n)
}

func decimalCodec(c message.Column, n typeName) codec {
	return &typed[decimal.Decimal]{name: c.Name, nullable: n.nullable,
		parse: func(b []byte) (decimal.Decimal, bool) {
			if x, ok := message.ParseDecimal64(b, c.Scale); ok {
				return decimal.New(x, int32(-c.Scale)), true //nolint:gosec // at most 30
			}
			x, ok := message.ParseDecimal(b, c.Scale)
			if !ok {
				return decimal.Decimal{}, false
			}
			digits := len(x.Text(10))
			if x.Sign() < 0 {
				digits--
			}
			return decimal.NewFromBigInt(x, int32(-c.Scale)), digits <= n.precision //nolint:gosec // at most 30
		},
		format: func(dst []byte, x decimal.Decimal) []byte {
			return message.AppendDecimal(dst, x.Coefficient(), c.Scale)
		}}
}

const (
	daySeconds = 86400
	// The types' ranges in days since 1970-01-01.
	maxDateDays   = math.MaxUint16
	minDate32Days = -25567 // 1900-01-01
	maxDate32Days = 120529 // 2299-12-31
	// The range of DateTime64 here, in seconds: the server's own begins in 1900; the
	// driver counts nanoseconds in an int64, which ends on 2262-04-11.
	minInstant = minDate32Days * daySeconds
	maxInstant = math.MaxInt64/int64(time.Second) - 1
)

// dateCodec gives the driver midnights in UTC; it gives back midnights of the same date
// in whatever zone it likes, so only their calendar date counts.
func dateCodec(c message.Column, n typeName) codec {
	lo, hi := int32(0), int32(maxDateDays)
	if n.base == "Date32" {
		lo, hi = minDate32Days, maxDate32Days
	}
	return &typed[time.Time]{name: c.Name, nullable: n.nullable,
		parse: func(b []byte) (time.Time, bool) {
			days, ok := message.ParseDate(b)
			if !ok || days < lo || days > hi {
				return time.Unix(0, 0).UTC(), false
			}
			return time.Unix(int64(days)*daySeconds, 0).UTC(), true
		},
		format: func(dst []byte, t time.Time) []byte {
			y, m, d := t.Date()
			return message.AppendDate(dst, int32(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix()/daySeconds)) //nolint:gosec // years 1900..2299
		}}
}

// instantCodec gives and takes instants, never local times or bare numbers, which the
// driver would scale or shift by a zone (C6).
func instantCodec(c message.Column, n typeName) codec {
	lo, hi := int64(0), int64(math.MaxUint32)
	if n.base == "DateTime64" {
		lo, hi = minInstant, maxInstant
	}
	return &typed[time.Time]{name: c.Name, nullable: n.nullable,
		parse: func(b []byte) (time.Time, bool) {
			micros, ok := message.ParseDateTime(b, c.Scale)
			if !ok || micros < lo*1_000_000 || micros >= (hi+1)*1_000_000 {
				return time.Unix(0, 0).UTC(), false
			}
			return time.UnixMicro(micros).UTC(), true
		},
		format: func(dst []byte, t time.Time) []byte { return message.AppendDateTime(dst, t.UnixMicro(), c.Scale) }}
}
