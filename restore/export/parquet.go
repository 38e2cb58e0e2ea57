package export

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	codec "github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/coldtier/coldtier/archive/message"
)

// A row group has this size before it is compressed, and Parquet numbers them by an
// int16: a file holds 1 TiB of rows.
const (
	groupBytes = 32 << 20
	maxGroups  = 32767
)

// bufferBytes is the grain of what holds a row group's pages. The default is as large as a
// page, and one that cannot be compressed, being a little larger, takes two.
const bufferBytes = 32 << 10

// rowBytes is about what a row takes beside its texts.
const rowBytes = 64

type parquetRows struct {
	w         *parquet.GenericWriter[any]
	cols      []parquetColumn
	line      parquet.Row
	exact     map[string]string
	group     int // bytes
	groups    int
	groupSize int
}

// pageCodec compresses pages in the memory that a page needs; the library's own takes 16 MiB
// for each of its encoders.
type pageCodec struct {
	codec.Codec
	z *zstd.Encoder
}

const window = 1 << 20

func newCodec() (*pageCodec, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(window))
	if err != nil {
		return nil, fmt.Errorf("compressor: %w", err)
	}
	return &pageCodec{z: z}, nil
}

// Encode implements compress.Codec.
func (c *pageCodec) Encode(dst, src []byte) ([]byte, error) { return c.z.EncodeAll(src, dst[:0]), nil }

// ordered is a group whose fields are in the order of the table.
type ordered struct {
	parquet.Group
	fields []parquet.Field
}

func (o *ordered) Fields() []parquet.Field { return o.fields }

// GoType is of no use here, and a column's name need not be one that a Go field can have.
func (o *ordered) GoType() reflect.Type { return reflect.TypeFor[struct{}]() }

func newOrdered(names []string, nodes []parquet.Node) *ordered {
	o := &ordered{Group: parquet.Group{}}
	for i, name := range names {
		o.Group[name] = parquet.Optional(nodes[i])
	}
	by := map[string]parquet.Field{}
	for _, f := range o.Group.Fields() {
		by[f.Name()] = f
	}
	for _, name := range names {
		o.fields = append(o.fields, by[name])
	}
	return o
}

func newParquet(w io.Writer, c *columns) (*parquetRows, error) {
	p := &parquetRows{exact: map[string]string{}, groupSize: groupBytes}
	z, err := newCodec()
	if err != nil {
		return nil, err
	}
	var names []string
	var nodes []parquet.Node
	for _, col := range c.all {
		pc := parquetColumn{Column: col}
		node, err := pc.node()
		if err != nil {
			return nil, err
		}
		p.cols, names, nodes = append(p.cols, pc), append(names, col.Name), append(nodes, node)
	}
	names = append(names, c.own("_status"), c.own("_status_at"), c.own("_withheld"), c.own("_exact"))
	nodes = append(nodes, parquet.String(), parquet.TimestampAdjusted(parquet.Microsecond, true), parquet.Leaf(parquet.BooleanType), parquet.String())
	options := []parquet.WriterOption{
		parquet.NewSchema("message", newOrdered(names, nodes)), parquet.Compression(z), parquet.CreatedBy("coldtier", "1", "export"),
		parquet.ColumnPageBuffers(parquet.NewChunkBufferPool(bufferBytes)),
	}
	for _, col := range c.all {
		if col.Kind.Opaque() { // its bounds would be whole values, twice in each page
			options = append(options, parquet.SkipPageBounds(col.Name), parquet.SkipPageStatistics(col.Name))
		}
	}
	cfg, err := parquet.NewWriterConfig(options...)
	if err != nil {
		return nil, fmt.Errorf("parquet writer: %w", err)
	}
	p.w = parquet.NewGenericWriter[any](w, cfg)
	return p, nil
}

func (p *parquetRows) row(r *row) error {
	p.line = p.line[:0]
	add := func(v parquet.Value, null bool) {
		if null {
			p.line = append(p.line, parquet.NullValue().Level(0, 0, len(p.line)))
			return
		}
		p.line = append(p.line, v.Level(0, 1, len(p.line)))
	}
	clear(p.exact)
	for i, text := range r.values {
		if text == nil {
			add(parquet.Value{}, true)
			continue
		}
		c := &p.cols[i]
		v, typed, exact := c.value(r.source[i], text)
		if !exact {
			p.exact[c.Name] = string(text)
		}
		add(v, !typed)
		p.group += len(text)
	}
	if r.status != nil {
		add(parquet.ByteArrayValue([]byte(r.status.Kind)), false)
		add(parquet.Int64Value(r.status.At.UnixMicro()), false)
	} else {
		add(parquet.Value{}, true)
		add(parquet.Value{}, true)
	}
	add(parquet.BooleanValue(len(r.withheld) > 0), false)
	if len(p.exact) == 0 {
		add(parquet.Value{}, true)
	} else {
		text, err := json.Marshal(p.exact)
		if err != nil {
			return err
		}
		add(parquet.ByteArrayValue(text), false)
	}
	if _, err := p.w.WriteRows([]parquet.Row{p.line}); err != nil {
		return err
	}
	if p.group += rowBytes; p.group < p.groupSize {
		return nil
	}
	p.group = 0
	if p.groups++; p.groups == maxGroups {
		return fmt.Errorf("the file has %d row groups, as many as Parquet can number: export fewer days or shards at a time", p.groups)
	}
	return p.w.Flush()
}

func (p *parquetRows) close() error { return p.w.Close() }

// parquetColumn is how a column lies in a Parquet file: as in the archive's own, save
// that all are optional.
type parquetColumn struct {
	message.Column
	width  int  // of a decimal of more than 18 digits
	asText bool // a decimal of more digits than readers take
}

func (c *parquetColumn) node() (parquet.Node, error) {
	unit := parquet.Millisecond
	if c.Scale > 3 {
		unit = parquet.Microsecond
	}
	switch c.Kind {
	case message.Int:
		return parquet.Int(width(c.Bits)), nil
	case message.Uint:
		return parquet.Uint(width(c.Bits)), nil
	case message.Bit:
		return parquet.Uint(64), nil
	case message.Year:
		return parquet.Uint(16), nil
	case message.Float:
		return parquet.Leaf(parquet.FloatType), nil
	case message.Double:
		return parquet.Leaf(parquet.DoubleType), nil
	case message.Text:
		return parquet.String(), nil
	case message.Bytes:
		return parquet.Leaf(parquet.ByteArrayType), nil
	case message.Date:
		return parquet.Date(), nil
	case message.DateTime:
		return parquet.TimestampAdjusted(unit, false), nil
	case message.Timestamp:
		return parquet.TimestampAdjusted(unit, true), nil
	case message.Time:
		return parquet.TimeAdjusted(unit, false), nil
	case message.Decimal:
		return c.decimalNode(), nil
	}
	return nil, fmt.Errorf("column %s: kind %s has no form in a Parquet export", c.Name, c.Kind)
}

// width is the number of bits of an integer as Parquet names them.
func width(bits int) int {
	switch {
	case bits <= 8:
		return 8
	case bits <= 16:
		return 16
	case bits <= 32:
		return 32
	}
	return 64
}
