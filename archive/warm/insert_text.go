package warm

import (
	"bytes"

	"github.com/coldtier/coldtier/archive/message"
)

// appendValue writes a canonical text as a literal of a column of the target.
func appendValue(dst []byte, c message.Column, v []byte) []byte {
	if v == nil {
		return append(dst, "NULL"...)
	}
	switch c.Kind {
	case message.Int, message.Uint, message.Decimal, message.Bit, message.Year:
		// Bare: a BIT takes the bytes of a string, and a YEAR '0' is 2000. A FLOAT or DOUBLE
		// is not: its literal without an exponent would be a decimal.
		if numeric(v) {
			return append(dst, v...)
		}
	case message.Bytes:
		dst = append(dst, "_binary"...)
	}
	dst = append(dst, '\'')
	for len(v) > 0 {
		i := bytes.IndexAny(v, `\'`)
		if i < 0 {
			dst = append(dst, v...)
			break
		}
		dst = append(append(dst, v[:i]...), '\\', v[i])
		v = v[i+1:]
	}
	return append(dst, '\'')
}

// numeric says whether a text is digits, with a sign and a point.
func numeric(v []byte) bool {
	digits := 0
	for i, d := range v {
		switch {
		case d >= '0' && d <= '9':
			digits++
		case d == '-' && i == 0, d == '.' && digits > 0:
		default:
			return false
		}
	}
	return digits > 0
}

// appendField writes a canonical text as a field of LOAD DATA's default format.
func appendField(dst, v []byte) []byte {
	if v == nil {
		return append(dst, '\\', 'N')
	}
	if bytes.IndexByte(v, '\\') < 0 && bytes.IndexByte(v, '\t') < 0 && bytes.IndexByte(v, '\n') < 0 {
		return append(dst, v...)
	}
	for _, c := range v {
		if c == '\\' || c == '\t' || c == '\n' {
			dst = append(dst, '\\') // behind it a tab and a line's end stand for themselves
		}
		dst = append(dst, c)
	}
	return dst
}

// loadExpr makes a column's value of a field, %s, that LOAD DATA reads as bytes without a
// character set; "" where the column takes the bytes as they are.
func loadExpr(c message.Column) string {
	switch {
	case c.Kind == message.Bit:
		return "CAST(%s AS UNSIGNED)"
	case c.Kind == message.Text && (c.Charset != "utf8mb4" || c.SourceType == "json"):
		return "CONVERT(%s USING utf8mb4)"
	}
	return ""
}

// bindExpr is the placeholder of a column's value that is sent beside the statement.
func bindExpr(c message.Column) string {
	if c.Kind == message.Bit {
		return "CAST(? AS UNSIGNED)"
	}
	return "?"
}
