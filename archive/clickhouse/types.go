package clickhouse

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// mayNeedExact says that a column's values may have no typed form: zero dates, and
// dates out of the type's range. Such a column can be NULL in ClickHouse.
func mayNeedExact(k message.Kind) bool {
	return k == message.Date || k == message.DateTime || k == message.Timestamp
}

// baseType is the type, without Nullable, that a column gets on this server: a typed
// one where each value that fits is exact, else String of the canonical text.
func (s server) baseType(c message.Column) string {
	switch c.Kind {
	case message.Int:
		return "Int" + strconv.Itoa(c.Bits)
	case message.Uint:
		return "UInt" + strconv.Itoa(c.Bits)
	case message.Decimal:
		if c.Precision <= 38 || (c.Precision <= 76 && s.dateTime64()) {
			return fmt.Sprintf("Decimal(%d, %d)", c.Precision, c.Scale)
		}
	case message.Float:
		return "Float32"
	case message.Double:
		return "Float64"
	case message.Bit:
		return "UInt64"
	case message.Date:
		if s.dateTime64() {
			return "Date32"
		}
		return "Date"
	case message.Timestamp, message.DateTime:
		if s.dateTime64() && (c.Scale > 0 || c.Kind == message.DateTime) {
			return fmt.Sprintf("DateTime64(%d, 'UTC')", c.Scale)
		}
		if c.Scale == 0 {
			return "DateTime('UTC')"
		}
	case message.Time:
		return "Int64" // microseconds
	case message.Year:
		return "UInt16"
	case message.Text:
		if c.Enumerated && s.lowCardinality() {
			return "LowCardinality(String)"
		}
	}
	return "String"
}

// columnType is the whole type. A column added to a table that has rows is nullable
// always: the rows that were there have no value, and must not read as 0 or ”.
func (s server) columnType(c message.Column, added bool) string {
	base := s.baseType(c)
	if c.Nullable || added || (mayNeedExact(c.Kind) && base != "String") {
		return nullable(base)
	}
	return base
}

func nullable(base string) string {
	if inner, ok := strings.CutPrefix(base, "LowCardinality("); ok {
		return "LowCardinality(Nullable(" + inner + ")"
	}
	return "Nullable(" + base + ")"
}

// serviceText is the type of _shard and _attempt, which have few values.
func (s server) serviceText() string {
	if s.lowCardinality() {
		return "LowCardinality(String)"
	}
	return "String"
}

// codecClause is how a new column is compressed, where the server can be told.
func (s server) codecClause(c message.Column, isKey bool) string {
	if !s.codecs() {
		return ""
	}
	switch {
	case c.Kind.Opaque():
		return " CODEC(ZSTD(1))"
	case isKey, c.Kind == message.DateTime, c.Kind == message.Timestamp:
		return " CODEC(Delta, ZSTD(1))"
	}
	return ""
}

// typeName is a ClickHouse type taken apart.
type typeName struct {
	base        string // "DateTime64"
	args        []string
	nullable    bool
	dictionary  bool // LowCardinality
	bits, scale int  // of Int, UInt, Float; of Decimal and DateTime64
	precision   int  // of Decimal
}

// parseType takes a type apart; what it doesn't know has an empty base.
func parseType(t string) (n typeName) {
	if inner, ok := unwrap(t, "LowCardinality"); ok {
		n.dictionary, t = true, inner
	}
	if inner, ok := unwrap(t, "Nullable"); ok {
		n.nullable, t = true, inner
	}
	base, args, ok := strings.Cut(t, "(")
	if ok {
		for _, a := range strings.Split(strings.TrimSuffix(args, ")"), ",") {
			n.args = append(n.args, strings.TrimSpace(a))
		}
	}
	number := func(i int) int {
		if i >= len(n.args) {
			return 0
		}
		v, err := strconv.Atoi(n.args[i])
		if err != nil {
			return 0
		}
		return v
	}
	switch base {
	case "String", "Date", "Date32":
		n.base = base
	case "DateTime":
		n.base = base
	case "DateTime64":
		n.base, n.scale = base, number(0)
	case "Decimal":
		n.base, n.precision, n.scale = base, number(0), number(1)
	default:
		for _, family := range []string{"UInt", "Int", "Float"} {
			if bits, ok := strings.CutPrefix(base, family); ok {
				if v, err := strconv.Atoi(bits); err == nil && v <= 64 {
					n.base, n.bits = family, v
				}
				break
			}
		}
	}
	return n
}

func unwrap(t, name string) (string, bool) {
	inner, ok := strings.CutPrefix(t, name+"(")
	if !ok || !strings.HasSuffix(inner, ")") {
		return t, false
	}
	return inner[:len(inner)-1], true
}

// holds says whether a column of ClickHouse type n can hold the values of c (those that
// do not fit its range go through _exact) and its NULLs.
func (n typeName) holds(c message.Column) bool {
	if c.Nullable && !n.nullable {
		return false
	}
	if n.base == "String" {
		return true
	}
	switch c.Kind {
	case message.Int:
		return n.base == "Int" && n.bits >= c.Bits
	case message.Uint:
		return n.base == "UInt" && n.bits >= c.Bits
	case message.Bit:
		return n.base == "UInt" && n.bits >= c.Bits
	case message.Year:
		return n.base == "UInt" && n.bits >= 16
	case message.Time:
		return n.base == "Int" && n.bits == 64
	case message.Float:
		return n.base == "Float"
	case message.Double:
		return n.base == "Float" && n.bits == 64
	case message.Decimal:
		return n.base == "Decimal" && n.scale == c.Scale && n.precision >= c.Precision
	case message.Date:
		return n.base == "Date" || n.base == "Date32"
	case message.DateTime, message.Timestamp:
		return (n.base == "DateTime" && c.Scale == 0) || (n.base == "DateTime64" && n.scale >= c.Scale && n.scale <= 6)
	}
	return false
}

// canBecome says whether ALTER TABLE MODIFY COLUMN takes n to o without loss.
func (n typeName) canBecome(o typeName) bool {
	if n.nullable && !o.nullable {
		return false
	}
	switch {
	case n.base == "" || o.base == "":
		return false
	case o.base == "DateTime64":
		return n.base == "DateTime" || (n.base == o.base && o.scale >= n.scale)
	case o.base == "Date32":
		return n.base == "Date" || n.base == "Date32"
	}
	return n.base == o.base && o.bits >= n.bits && o.scale == n.scale && o.precision >= n.precision
}
