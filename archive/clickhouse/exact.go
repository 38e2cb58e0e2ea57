package clickhouse

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

func appendInt(dst []byte, x int64) []byte   { return strconv.AppendInt(dst, x, 10) }
func appendUint(dst []byte, x uint64) []byte { return strconv.AppendUint(dst, x, 10) }

// exact collects, for the rows of a block, the canonical texts that have no typed form:
// for each row the JSON object {"column": "text"}.
type exact struct {
	rows map[int]map[string]string
}

func (e *exact) add(row int, column string, text []byte) error {
	if !utf8.Valid(text) { // JSON would change it; no number or time has such a text
		return fmt.Errorf("%w: %d bytes that are neither of the column's type nor UTF-8", ErrBadValue, len(text))
	}
	if e.rows == nil {
		e.rows = map[int]map[string]string{}
	}
	if e.rows[row] == nil {
		e.rows[row] = map[string]string{}
	}
	e.rows[row][column] = string(text)
	return nil
}

// column is the _exact column of n rows.
func (e *exact) column(dst []string, n int) ([]string, error) {
	dst = append(dst[:0], make([]string, n)...)
	for row, texts := range e.rows {
		j, err := json.Marshal(texts)
		if err != nil {
			return nil, fmt.Errorf("%s of row %d: %w", colExact, row, err)
		}
		dst[row] = string(j)
	}
	return dst, nil
}

// parseExact reads one row's _exact.
func parseExact(text string) (map[string]string, error) {
	var m map[string]string
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("%s %q: %w", colExact, text, err)
	}
	return m, nil
}
