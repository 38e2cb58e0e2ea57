package clickhouse

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	driver "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/coldtier/coldtier/archive/message"
)

const (
	groupRows  = 1 << 16 // rows the server sorts at once for ReadCopy, unless one conversation has more
	batchRows  = 4096    // rows given to ReadCopy's caller at once
	batchBytes = 4 << 20
)

// readSettings bound memory on both sides: what the server sorts goes to its disk above
// a limit, and it sends small blocks.
func readSettings() driver.Settings {
	return driver.Settings{"max_block_size": 256,
		"max_bytes_before_external_sort": 256 << 20, "max_bytes_before_external_group_by": 256 << 20}
}

// ReadCopy gives every row of a copy to fn, each once, in the order of message.Compare.
// A batch is valid until fn returns. An error of fn ends the reading and is returned.
//
// The table's order is not that of Compare where conversation IDs are numbers, so the
// copy is read group by group of conversations, each sorted by the server.
func (d *DB) ReadCopy(ctx context.Context, id CopyID, s *message.Schema, fn func(*message.Batch) error) error {
	r, err := d.newReader(ctx, s, true)
	if err != nil {
		return fmt.Errorf("reading %s: %w", id, err)
	}
	groups, err := r.groups(ctx, id)
	if err != nil {
		return fmt.Errorf("listing the conversations of %s: %w", id, err)
	}
	where := " PREWHERE " + condition(id)
	for _, g := range groups {
		err := r.read(ctx, where+" WHERE "+g.condition(r.conversation(), r.conversationKind())+" ORDER BY "+r.order(), func() error {
			if r.batch.Len() < batchRows && r.batch.Bytes() < batchBytes {
				return nil
			}
			return r.give(fn)
		})
		if err != nil {
			return fmt.Errorf("reading %s: %w", id, err)
		}
	}
	if err := r.give(fn); err != nil {
		return fmt.Errorf("reading %s: %w", id, err)
	}
	return nil
}

// reader reads rows of one schema.
type reader struct {
	d      *DB
	schema *message.Schema
	codecs []codec
	batch  *message.Batch
	exact  string
	dests  []any
	row    [][]byte
	buf    []byte
	ends   []int
	last   *message.Batch // the last row that was given away, to see a row that is there twice
}

func (d *DB) newReader(ctx context.Context, s *message.Schema, fresh bool) (*reader, error) {
	types, err := d.columnTypes(ctx, fresh)
	if err != nil {
		return nil, err
	}
	codecs, err := codecsFor(s, types)
	if err != nil {
		return nil, err
	}
	return &reader{d: d, schema: s, codecs: codecs, batch: message.NewBatch(s), last: message.NewBatch(s),
		dests: make([]any, len(codecs)+1), row: make([][]byte, len(codecs))}, nil
}

func (r *reader) column(i int) string  { return ident(r.schema.Columns()[i].Name) }
func (r *reader) conversation() string { return r.column(r.schema.Role(message.ConversationID)) }
func (r *reader) cursor() string       { return r.column(r.schema.Cursor()) }
func (r *reader) messageID() string    { return r.column(r.schema.Role(message.MessageID)) }
func (r *reader) conversationKind() message.Kind {
	return r.schema.Columns()[r.schema.Role(message.ConversationID)].Kind
}

// order is that of message.Compare.
func (r *reader) order() string {
	conv := r.conversation()
	if !r.conversationKind().Opaque() {
		conv = "toString(" + conv + ")"
	}
	return conv + ", " + r.cursor() + ", " + r.messageID()
}

// read runs a SELECT with the given clauses and adds its rows to r.batch; after each it
// calls added. Rows must come in order: one that equals the row before was inserted
// twice and is passed over. Two rows of one key that differ both stay, so that a
// comparison fails.
func (r *reader) read(ctx context.Context, clauses string, added func() error) error {
	names := []string{colExact}
	for _, c := range r.schema.Columns() {
		names = append(names, c.Name)
	}
	return r.d.query(ctx, readSettings(), "SELECT "+idents(names)+" FROM "+r.d.qualified(tableName)+clauses, func(scan func(...any) error) error {
		r.dests[0] = &r.exact
		for i, c := range r.codecs {
			r.dests[i+1] = c.dest()
		}
		if err := scan(r.dests...); err != nil {
			return fmt.Errorf("%w: %w", ErrNoTable, err)
		}
		twice, err := r.add()
		if err != nil || twice {
			return err
		}
		return added()
	})
}

// add takes the scanned row.
func (r *reader) add() (twice bool, err error) {
	r.buf = r.buf[:0]
	ends := r.ends[:0]
	for i, c := range r.codecs {
		var null bool
		if r.buf, null = c.text(r.buf); null {
			r.row[i] = nil
			ends = append(ends, -1)
			continue
		}
		ends = append(ends, len(r.buf))
	}
	r.ends = ends
	from := 0
	for i, end := range ends { // only now does buf no longer move
		if end >= 0 {
			r.row[i] = r.buf[from:end:end]
			from = end
		}
	}
	if r.exact != "" {
		texts, err := parseExact(r.exact)
		if err != nil {
			return false, err
		}
		for i, c := range r.schema.Columns() {
			if t, ok := texts[c.Name]; ok {
				r.row[i] = []byte(t)
			}
		}
	}
	if r.sameAsLast() {
		return true, nil
	}
	return false, r.batch.Append(r.row)
}

// sameAsLast compares the scanned row with the one before it.
func (r *reader) sameAsLast() bool {
	b, at := r.batch, r.batch.Len()-1
	if at < 0 {
		if b, at = r.last, 0; b.Len() == 0 {
			return false
		}
	}
	for i, v := range r.row {
		was := b.Value(i, at)
		if (v == nil) != (was == nil) || !bytes.Equal(v, was) {
			return false
		}
	}
	return true
}

// give hands the batch to fn and empties it.
func (r *reader) give(fn func(*message.Batch) error) error {
	if r.batch.Len() == 0 {
		return nil
	}
	if err := fn(r.batch); err != nil {
		return err
	}
	r.last.Reset()
	err := r.last.AppendFrom(r.batch, r.batch.Len()-1)
	r.batch.Reset()
	return err
}

func join(list []string) string { return strings.Join(list, ", ") }
