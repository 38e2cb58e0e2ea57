package warm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// sourceColumn is a column as information_schema describes it.
type sourceColumn struct {
	name, dataType, columnType string
	charset, collation         string
	precision, scale, fraction int // 0 where there is none
	nullable, generated        bool
}

// losslessCharsets are the character sets in which each string has one UTF-8 form
// that no other has. In all others some codes become '?', so that two values could
// look alike. TestCharsetsAreLossless proves it of each single-byte one.
func losslessCharset(name string) (convert, ok bool) {
	switch name {
	case "utf8mb4", "utf8mb3", "utf8", "ascii":
		return false, true // the bytes are UTF-8 already
	case "latin1", "latin2", "latin5", "latin7", "cp850", "cp852", "cp866", "koi8r", "koi8u", "keybcs2", "macce", "macroman",
		"utf16", "utf16le", "utf32":
		return true, true
	}
	return false, false
}

// describe says what kind of column it is and the SQL expression of its canonical
// text. The one expression is both what a scan selects and what the fingerprint
// hashes. What the driver would parse as a number is made text by CONCAT, which
// costs the server less than CAST ... AS CHAR.
func describe(s sourceColumn) (message.Column, string, error) {
	c := message.Column{Name: s.name, Nullable: s.nullable, Generated: s.generated, SourceType: s.columnType}
	q := quote(s.name)
	unsigned := strings.Contains(s.columnType, "unsigned")
	zerofill := strings.Contains(s.columnType, "zerofill")
	switch s.dataType {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		c.Kind, c.Bits = message.Int, map[string]int{"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}[s.dataType]
		if unsigned {
			c.Kind = message.Uint
		}
		if zerofill { // shown with leading zeros, which are no part of the value
			return c, "CONCAT(CAST(" + q + " AS UNSIGNED))", nil
		}
		return c, "CONCAT(" + q + ")", nil
	case "decimal":
		c.Kind, c.Precision, c.Scale = message.Decimal, s.precision, s.scale
		if zerofill {
			return c, fmt.Sprintf("CAST(%s AS DECIMAL(%d,%d))", q, s.precision, s.scale), nil
		}
		return c, q, nil
	case "float":
		// A FLOAT's own text has six digits. As a double it has 22 characters on MySQL, which
		// is at least 15 digits of the 9 that tell every FLOAT from the next.
		c.Kind = message.Float
		return c, "CAST(CAST(" + q + " AS DOUBLE) AS CHAR)", nil
	case "double":
		// Only the column itself has an exact text: MySQL cuts the text of any computed
		// double, also of a mere cast, to 22 characters. The text of DOUBLE(M,D) has D digits,
		// but its value need not.
		if strings.Contains(s.columnType, "(") {
			return c, "", fmt.Errorf("column %s: type %s has values without an exact text: make it DOUBLE or DECIMAL", s.name, s.columnType)
		}
		c.Kind = message.Double
		if zerofill {
			return c, "", fmt.Errorf("column %s: type %s has no exact text: drop the ZEROFILL", s.name, s.columnType)
		}
		return c, "CAST(" + q + " AS CHAR)", nil
	case "bit":
		c.Kind, c.Bits = message.Bit, s.precision
		return c, "CONCAT(CAST(" + q + " AS UNSIGNED))", nil
	case "date":
		c.Kind = message.Date
		return c, q, nil
	case "datetime", "timestamp", "time":
		c.Kind, c.Scale = map[string]message.Kind{"datetime": message.DateTime, "timestamp": message.Timestamp, "time": message.Time}[s.dataType], s.fraction
		return c, q, nil
	case "year":
		c.Kind = message.Year
		return c, "CONCAT(" + q + ")", nil
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		c.Kind = message.Bytes
		return c, q, nil
	case "json": // MariaDB's JSON is a LONGTEXT
		c.Kind, c.Charset, c.Collation = message.Text, "utf8mb4", "utf8mb4_bin"
		return c, q, nil
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set":
		return describeText(s, c)
	}
	return c, "", fmt.Errorf("column %s: type %s cannot be carried exactly: change its type or leave the table out", s.name, s.columnType)
}

func describeText(s sourceColumn, c message.Column) (message.Column, string, error) {
	c.Kind, c.Charset, c.Collation = message.Text, s.charset, s.collation
	q := quote(s.name)
	if s.charset == "binary" { // CHAR CHARACTER SET binary
		c.Kind = message.Bytes
	} else if convert, ok := losslessCharset(s.charset); !ok {
		return c, "", fmt.Errorf("column %s: character set %s has codes without a UTF-8 form of their own: convert the column to utf8mb4", s.name, s.charset)
	} else if convert {
		q = "CONVERT(" + q + " USING utf8mb4)"
	}
	if s.dataType == "enum" || s.dataType == "set" {
		c.Enumerated = true
		// The error value 0 of an ENUM and the empty SET read as ''. With a member ''
		// two values would have one text.
		if hasEmptyMember(s.columnType) {
			return c, "", fmt.Errorf("column %s: the %s has a member '', which reads like its value 0: rename the member", s.name, strings.ToUpper(s.dataType))
		}
	}
	return c, q, nil
}

// hasEmptyMember reads enum('a','it”s',”).
func hasEmptyMember(columnType string) bool {
	_, rest, ok := strings.Cut(columnType, "(")
	for ok {
		var member strings.Builder
		if _, rest, ok = strings.Cut(rest, "'"); !ok {
			return false
		}
		for {
			var part string
			if part, rest, ok = strings.Cut(rest, "'"); !ok {
				return false
			}
			member.WriteString(part)
			if !strings.HasPrefix(rest, "'") {
				break
			}
			member.WriteByte('\'')
			rest = rest[1:]
		}
		if member.Len() == 0 {
			return true
		}
	}
	return false
}

// number reads a number of information_schema, 0 for NULL.
func atoi(text []byte) int {
	n, _ := strconv.Atoi(string(text)) // NULL and what is no number are "none"
	return n
}

// preimage is the SQL expression of the bytes whose SHA-256 is a row's
// fingerprint. It is NULL when it would be longer than max_allowed_packet: a
// nullable column is written with IF and not with IFNULL, which would turn the NULL
// of an inner CONCAT that is too long into the mark of a NULL value.
func preimage(columns []message.Column, exprs []string) string {
	var parts []string
	for i, e := range exprs {
		parts = append(parts, preimageOf(columns[i], e))
	}
	return preimageOfParts(parts)
}

// preimageOfParts is the preimage of parts. The collation makes the result binary
// whatever the columns' are. Without it, where two texts have different ones, MariaDB
// makes it a text, and of the bytes of binary columns that are none "?".
func preimageOfParts(parts []string) string {
	return "CONCAT(_binary'' COLLATE `binary`," + strings.Join(parts, ",") + ")"
}

// preimageOf is one column's part.
func preimageOf(c message.Column, expr string) string {
	if c.Nullable {
		return fmt.Sprintf("IF(%s IS NULL,'~',CONCAT(_binary'',LENGTH(%s),':',%s))", quote(c.Name), expr, expr)
	}
	return fmt.Sprintf("LENGTH(%s),':',%s", expr, expr)
}
