package message

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// StatusColumn is the place of the column that a status may be written into, or -1.
// Columns by which a message is found are none, whatever the configuration says.
func (s *Schema) StatusColumn() int {
	col := s.roles[Status]
	for _, r := range []Role{MessageID, ConversationID, Sequence, TenantID, Content} {
		if s.roles[r] == col {
			return -1
		}
	}
	return col
}

// Fits says whether a column can hold a text, as its canonical text, as far as the
// source's own words for it tell.
func (c Column) Fits(text []byte) (ok bool) {
	if text == nil {
		return c.Nullable
	}
	unsigned := strings.Contains(c.SourceType, "unsigned")
	bits := c.Bits
	if strings.HasPrefix(c.SourceType, "mediumint") { // carried as 32 bits
		bits = 24
	}
	switch c.Kind {
	case Int:
		n, ok := ParseInt(text)
		return ok && n<<(64-bits)>>(64-bits) == n
	case Uint, Bit:
		n, ok := ParseUint(text)
		return ok && (bits >= 64 || n < 1<<bits)
	case Decimal:
		n, ok := ParseDecimal(text, c.Scale)
		return ok && len(n.Text(10))-max(-n.Sign(), 0) <= c.Precision && (!unsigned || n.Sign() >= 0)
	case Float:
		x, ok := ParseFloat(text)
		return ok && (!unsigned || x >= 0)
	case Double:
		x, ok := ParseDouble(text)
		return ok && (!unsigned || x >= 0)
	case Date:
		_, ok = ParseDate(text)
	case DateTime, Timestamp:
		_, ok = ParseDateTime(text, c.Scale)
	case Time:
		_, ok = ParseTime(text, c.Scale)
	case Year:
		_, ok = ParseYear(text)
	case Text, Bytes:
		ok = c.opaqueFits(text)
	}
	return ok
}

// opaqueFits goes by the source's own words for the column, as far as they bound a
// short text: its length, its members, its character set.
func (c Column) opaqueFits(text []byte) bool {
	length := len(text)
	if c.Kind == Text {
		ascii := !slices.ContainsFunc(text, func(b byte) bool { return b >= utf8.RuneSelf })
		if !utf8.Valid(text) || !ascii && c.Charset != "" && !strings.HasPrefix(c.Charset, "utf8") {
			return false
		}
		length = utf8.RuneCount(text)
	}
	name, rest, _ := strings.Cut(c.SourceType, "(")
	switch name {
	case "enum":
		return slices.Contains(members(rest), string(text))
	case "set":
		at, all := 0, members(rest) // in the order of the definition
		for m := range strings.SplitSeq(string(text), ",") {
			i := slices.Index(all[at:], m)
			if i < 0 {
				return len(text) == 0
			}
			at += i + 1
		}
		return true
	case "json":
		return json.Valid(text)
	case "char", "varchar", "binary", "varbinary":
		n, err := strconv.Atoi(strings.TrimRight(rest, ")"))
		return err != nil || length <= n && (name != "binary" || length == n) && (name != "char" || !bytes.HasSuffix(text, []byte(" ")))
	}
	return true
}

// members reads 'a','it”s') of an enum or a set.
func members(text string) (all []string) {
	for text != "" && text[0] != ')' {
		_, rest, _ := strings.Cut(text, "'")
		m, rest, _ := strings.Cut(rest, "'")
		for strings.HasPrefix(rest, "'") {
			var more string
			more, rest, _ = strings.Cut(rest[1:], "'")
			m += "'" + more
		}
		all, text = append(all, m), rest
	}
	return all
}
