package export

import (
	"encoding/base64"
	"io"
	"time"
	"unicode/utf8"
)

type ndjson struct {
	w        io.Writer
	keys     [][]byte // of each column, with what stands around it
	names    []string
	base64   []byte // the same of the export's own
	status   []byte
	withheld []byte
	line     []byte
	encoded  []string
}

func newNDJSON(w io.Writer, c *columns) *ndjson {
	key := func(name string) []byte { return append(appendString([]byte(`,`), []byte(name)), ':') }
	n := &ndjson{w: w, base64: key(c.own("_base64")), status: key(c.own("_status")), withheld: key(c.own("_withheld"))}
	for _, col := range c.all {
		n.keys, n.names = append(n.keys, key(col.Name)), append(n.names, col.Name)
	}
	return n
}

func (n *ndjson) row(r *row) error {
	b := n.line[:0]
	n.encoded = n.encoded[:0]
	for i, v := range r.values {
		b = append(b, n.keys[i]...)
		switch {
		case v == nil:
			b = append(b, "null"...)
		case utf8.Valid(v):
			b = appendString(b, v)
		default:
			n.encoded = append(n.encoded, n.names[i])
			b = append(base64.StdEncoding.AppendEncode(append(b, '"'), v), '"')
		}
	}
	b = appendList(b, n.base64, n.encoded)
	if r.status != nil {
		b = append(append(b, n.status...), `{"kind":`...)
		b = appendString(b, []byte(r.status.Kind))
		b = append(b, `,"at":"`...)
		b = append(r.status.At.UTC().AppendFormat(b, time.RFC3339Nano), `"}`...)
	}
	b = append(appendList(b, n.withheld, r.withheld), "}\n"...)
	b[0] = '{' // the comma before the first key: a table has columns
	n.line = b
	_, err := n.w.Write(b)
	return err
}

func (n *ndjson) close() error { return nil }

// appendList appends a member that is a list of names, unless it is empty.
func appendList(b, key []byte, names []string) []byte {
	if len(names) == 0 {
		return b
	}
	b = append(append(b, key...), '[')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, []byte(name))
	}
	return append(b, ']')
}

// appendString appends valid UTF-8 as a JSON string.
func appendString(b, text []byte) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, text[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, text[from:]...), '"')
}
