package export

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/coldtier/coldtier/archive/message"
)

// null is NULL in a CSV file.
const null = `\N`

type csvRows struct {
	w     *csv.Writer
	bytes []bool // columns in base64
	line  []string
}

func newCSV(w io.Writer, c *columns) (*csvRows, error) {
	x := &csvRows{w: csv.NewWriter(w)}
	var header []string
	for _, col := range c.all {
		name := col.Name
		if col.Kind == message.Bytes {
			name += ":base64"
		}
		header, x.bytes = append(header, name), append(x.bytes, col.Kind == message.Bytes)
	}
	return x, x.w.Write(append(header, c.own("_status"), c.own("_status_at"), c.own("_withheld")))
}

func (x *csvRows) row(r *row) error {
	x.line = x.line[:0]
	for i, v := range r.values {
		switch {
		case v == nil:
			x.line = append(x.line, null)
		case x.bytes[i]:
			x.line = append(x.line, base64.StdEncoding.EncodeToString(v))
		case likeNull(v):
			x.line = append(x.line, `\`+string(v))
		default:
			x.line = append(x.line, string(v))
		}
	}
	kind, at := null, null
	if r.status != nil {
		kind, at = string(r.status.Kind), r.status.At.UTC().Format(time.RFC3339Nano)
	}
	x.line = append(x.line, kind, at, strconv.FormatBool(len(r.withheld) > 0))
	return x.w.Write(x.line)
}

// likeNull says that a text would be read as NULL, or as one that was escaped for that.
func likeNull(v []byte) bool {
	n := len(v) - 1
	return n > 0 && v[n] == 'N' && len(bytes.TrimLeft(v[:n], `\`)) == 0
}

func (x *csvRows) close() error {
	x.w.Flush()
	return x.w.Error()
}
