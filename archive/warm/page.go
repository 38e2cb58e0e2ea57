package warm

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coldtier/coldtier/archive/message"
)

// PageQuery asks for rows of one conversation.
type PageQuery struct {
	Conversation  []byte  // canonical text of its ID
	Before, After *uint64 // cursors, exclusive
	Limit         int
	Newest        bool   // those nearest to the newest end, not to the oldest
	Staging       string // a staging table of the same database to read instead of the table; "" for the table
}

// Page reads at most Limit rows of a conversation, in the order of message.Compare
// whichever end they are taken from. Fewer are all there are.
//
// It is one statement and so one snapshot, and walks PageIndex: what it costs does not
// depend on how many rows the conversation or the table has. It returns when ctx ends, whatever
// the server does. ErrGone: there is no such staging table. ErrNoPageIndex: no index will do.
func (t *Table) Page(ctx context.Context, q PageQuery) (*message.Batch, error) {
	if q.Limit < 1 {
		return nil, fmt.Errorf("table %s: page of %d rows: want at least 1", t.shard, q.Limit)
	}
	b, err := t.readRows(ctx, q.Staging, func(def *definition, table string) (statement, error) {
		name, err := t.pageIndex(def)
		if err != nil {
			return statement{}, err
		}
		return def.pageStatement(table+" FORCE INDEX ("+quote(name)+")", q), nil
	})
	if err != nil {
		return nil, fmt.Errorf("table %s: page of conversation %.64q: %w", t.shard, q.Conversation, err)
	}
	return arrange(b, q.Limit, q.Newest)
}

// Messages reads the rows with these message IDs that belong to the conversation, in
// the order of message.Compare, in one statement by the unique key on the message ID.
func (t *Table) Messages(ctx context.Context, conversation []byte, ids []uint64, staging string) (*message.Batch, error) {
	b, err := t.readRows(ctx, staging, func(def *definition, table string) (statement, error) {
		column := def.schema.Columns()[def.schema.Role(message.MessageID)]
		var list []string
		for _, id := range ids {
			// For a number that the column cannot hold in the list MariaDB reads the whole table.
			if id <= highest(column) {
				list = append(list, message.FormatID(id))
			}
		}
		c, possible := def.conversation(conversation)
		if !possible || len(list) == 0 {
			return statement{}, nil
		}
		return statement{body: fmt.Sprintf("%s FROM %s FORCE INDEX (%s) WHERE %s IN (%s) AND %s", def.selects, table, def.key, def.id, strings.Join(list, ", "), c.exact)}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("table %s: %d messages of conversation %.64q: %w", t.shard, len(ids), conversation, err)
	}
	return arrange(b, math.MaxInt, false)
}

// statement is a SELECT: "" where it could find nothing.
type statement struct {
	open, body string // between them come SELECT and its time limit
}

// pageStatement reads a page from a table with its index hint.
//
// Where the index does not say the order of rows with equal cursors, those it gives first
// may be the wrong ones of the last cursor. So all rows of that cursor are read too,
// in the same statement; arrange chooses.
func (d *definition) pageStatement(table string, q PageQuery) statement {
	c, possible := d.conversation(q.Conversation)
	if !possible {
		return statement{}
	}
	cursor, where := quote(d.schema.Columns()[d.schema.Cursor()].Name), c.search
	if q.After != nil {
		where += " AND " + cursor + " > " + message.FormatID(*q.After)
	}
	if q.Before != nil {
		where += " AND " + cursor + " < " + message.FormatID(*q.Before)
	}
	direction := ""
	if q.Newest {
		direction = " DESC"
	}
	order := " ORDER BY " + cursor + direction
	if d.page.byID {
		order += ", " + d.id + direction
	}
	page := fmt.Sprintf(" FROM %s WHERE %s%s LIMIT ", table, where, order)
	if !d.page.ties {
		return statement{body: d.selects + page + strconv.Itoa(q.Limit)}
	}
	return statement{open: "(", body: fmt.Sprintf("%s%s%d) UNION ALL (SELECT %s FROM %s WHERE %s AND %s = (SELECT %s%s1 OFFSET %d) ORDER BY %s%s LIMIT %d)",
		d.selects, page, q.Limit, d.selects, table, c.search, cursor, cursor, page, q.Limit-1, d.id, direction, q.Limit)}
}

// highest is the highest number of an integer of so many bits.
func highest(c message.Column) uint64 {
	bits := c.Bits
	if c.Kind == message.Int {
		bits--
	}
	return math.MaxUint64 >> (64 - bits)
}

// condition is that a row belongs to a conversation: that which an index can be searched
// for, and that which holds of no other conversation.
type condition struct{ search, exact string }

// conversation makes the condition of a conversation ID. It is not possible when no
// row can have such an ID.
//
// A collation may take other texts for the same: of another case, with accents or with
// blanks at the end. So the bytes are compared too.
func (d *definition) conversation(text []byte) (condition, bool) {
	column := d.schema.Columns()[d.schema.Role(message.ConversationID)]
	q := quote(column.Name)
	bytes := "X'" + hex.EncodeToString(text) + "'"
	exact := "CAST(" + d.convExpr + " AS BINARY) = " + bytes
	switch column.Kind {
	case message.Int:
		n, ok := message.ParseInt(text)
		same := q + " = " + strconv.FormatInt(n, 10)
		return condition{same, same}, ok
	case message.Uint:
		n, ok := message.ParseUint(text)
		same := q + " = " + message.FormatID(n)
		return condition{same, same}, ok
	case message.Bytes:
		same := q + " = " + bytes
		return condition{same, same}, true
	}
	// Characters that the column's set lacks become "?" here, and the bytes differ.
	return condition{fmt.Sprintf("%s = CONVERT(_utf8mb4 %s USING %s) COLLATE %s AND %s", q, bytes, column.Charset, column.Collation, exact), exact}, utf8.Valid(text)
}

// arrange puts rows in order, each once, and keeps the limit of them at one end.
func arrange(b *message.Batch, limit int, newest bool) (*message.Batch, error) {
	rows := make([]int, b.Len())
	for i := range rows {
		rows[i] = i
	}
	order := func(i, j int) int { return message.Compare(b, i, b, j) }
	if b.Len() <= limit && slices.IsSortedFunc(rows, order) {
		return b, nil
	}
	slices.SortFunc(rows, order)
	rows = slices.CompactFunc(rows, func(i, j int) bool { return order(i, j) == 0 })
	if cut := len(rows) - limit; cut > 0 {
		if newest {
			rows = rows[cut:]
		} else {
			rows = rows[:limit]
		}
	}
	out := message.NewBatch(b.Schema())
	for _, i := range rows {
		if err := out.AppendFrom(b, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readRows reads rows by one statement, which is made for a definition and a quoted table. When the
// columns or keys turn out to be others than the definition's, that is read anew, once.
func (t *Table) readRows(ctx context.Context, staging string, build func(def *definition, table string) (statement, error)) (*message.Batch, error) {
	table := t.name
	if staging != "" {
		if err := checkStaging(staging); err != nil {
			return nil, err
		}
		table = t.staging(staging)
	}
	t.refresh(ctx)
	s, err := t.d.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer s.release()
	read := func(def *definition) (*message.Batch, error) {
		b := message.NewBatch(def.schema)
		st, err := build(def, table)
		if err != nil || st.body == "" {
			return b, err
		}
		return b, s.rows(ctx, t.d.limited(ctx, st), b.Append)
	}
	def := t.def.Load()
	b, err := read(def)
	if outdated(err) {
		if staging == "" {
			def, err = t.renewed(ctx, s, def)
		} else { // made when the table had other columns
			def, err = t.d.define(ctx, s, staging)
		}
		if err != nil {
			return nil, fmt.Errorf("its columns or keys have changed: %w", err)
		}
		b, err = read(def)
	}
	if staging != "" && number(err) == erNoTable {
		err = fmt.Errorf("staging table %s: %w: %w", staging, ErrGone, err)
	}
	return b, err
}

// outdated says whether a statement failed because the table is no longer as it was
// when its definition was read.
func outdated(err error) bool {
	return slices.Contains([]uint16{erNoColumn, erNoKey, erTableChanged}, number(err))
}
