package scratch

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/coldtier/coldtier/archive/message"
)

// Facts are what a table's rows of a range of message IDs say of themselves, computed by
// the server.
type Facts struct {
	Rows          uint64 `json:"rows"`
	IDs           uint64 `json:"message_ids"` // different ones
	Conversations uint64 `json:"conversations"`
	Ties          uint64 `json:"ties"`       // rows with the cursor of the row before, in their conversation
	Inversions    uint64 `json:"inversions"` // rows with a lower ID than the row before, by cursor
}

// Facts computes those of the rows of the message IDs [from, to).
func (s *Server) Facts(ctx context.Context, database, table string, schema *message.Schema, from, to uint64) (f Facts, err error) {
	id, conv, cursor := columns(schema)
	over := " OVER (PARTITION BY CAST(" + conv + " AS BINARY) ORDER BY " + cursor + ", " + id + ")"
	q := "SELECT COUNT(*), COUNT(DISTINCT id), COUNT(DISTINCT conv), COALESCE(SUM(cur = prev), 0), COALESCE(SUM(id < prev_id), 0) FROM (SELECT " +
		id + " AS id, CAST(" + conv + " AS BINARY) AS conv, " + cursor + " AS cur, LAG(" + cursor + ")" + over + " AS prev, LAG(" + id + ")" + over + " AS prev_id FROM " +
		quote(database) + "." + quote(table) + " WHERE " + id + " >= " + message.FormatID(from) + " AND " + id + " < " + message.FormatID(to) + ") AS x"
	if err := s.db.QueryRowContext(ctx, q).Scan(&f.Rows, &f.IDs, &f.Conversations, &f.Ties, &f.Inversions); err != nil {
		return f, fmt.Errorf("scratch table %s.%s: count its rows: %w", database, table, err)
	}
	return f, nil
}

func columns(s *message.Schema) (id, conv, cursor string) {
	c := s.Columns()
	return quote(c[s.Role(message.MessageID)].Name), quote(c[s.Role(message.ConversationID)].Name), quote(c[s.Cursor()].Name)
}

// Place is where a message lies in its conversation.
type Place struct {
	Cursor, ID uint64
}

// Places lists the messages of a conversation, of the message IDs [from, to), in order.
func (s *Server) Places(ctx context.Context, database, table string, schema *message.Schema, conversation []byte, from, to uint64) (all []Place, err error) {
	fail := func(err error) ([]Place, error) {
		return nil, fmt.Errorf("scratch table %s.%s: list a conversation's messages: %w", database, table, err)
	}
	id, conv, cursor := columns(schema)
	is := ""
	switch c := schema.Columns()[schema.Role(message.ConversationID)]; c.Kind {
	case message.Int, message.Uint:
		// As a literal: a text would be compared as a double.
		if _, err := strconv.ParseInt(string(conversation), 10, 64); err != nil {
			if _, err := strconv.ParseUint(string(conversation), 10, 64); err != nil {
				return fail(err)
			}
		}
		is = conv + " = " + string(conversation)
	case message.Text: // whatever the collation takes for the same
		is = "CAST(CONVERT(" + conv + " USING utf8mb4) AS BINARY) = X'" + hex.EncodeToString(conversation) + "'"
	default:
		is = "CAST(" + conv + " AS BINARY) = X'" + hex.EncodeToString(conversation) + "'"
	}
	rows, err := s.db.QueryContext(ctx, "SELECT CAST("+cursor+" AS UNSIGNED), CAST("+id+" AS UNSIGNED) FROM "+quote(database)+"."+quote(table)+" WHERE "+is+
		" AND "+id+" >= "+message.FormatID(from)+" AND "+id+" < "+message.FormatID(to)+" ORDER BY "+cursor+", "+id)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		var p Place
		if err := rows.Scan(&p.Cursor, &p.ID); err != nil {
			return fail(err)
		}
		all = append(all, p)
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return all, nil
}
