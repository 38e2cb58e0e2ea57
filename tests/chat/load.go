package chat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Target is a table to load into.
type Target struct {
	DB    *sql.DB
	Table string // "database.table" or "table"
}

// Stats is what was loaded.
type Stats struct {
	Messages  int
	BodyBytes int64
}

const (
	insertBytes = 1 << 20 // of a statement, before it is sent; well below max_allowed_packet with the largest body
	inserters   = 4
)

// Load inserts all messages of a source, each conversation into one of the targets.
// Memory is bounded. After an error some rows are in.
func Load(ctx context.Context, s Source, targets ...Target) (Stats, error) {
	if len(targets) == 0 {
		return Stats{}, errors.New("load chat: no table to load into")
	}
	var stats Stats
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inserters)
	pool := sync.Pool{New: func() any { return new([]byte) }}
	bufs := make([]*[]byte, len(targets))
	flush := func(i int) {
		b := bufs[i]
		bufs[i] = nil
		if b == nil {
			return
		}
		g.Go(func() error {
			defer pool.Put(b)
			if _, err := targets[i].DB.ExecContext(ctx, string(*b)); err != nil {
				return fmt.Errorf("insert into %s: %w", targets[i].Table, err)
			}
			return nil
		})
	}
	err := s.Each(func(m *Message) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		i := int(mix(uint64(m.Conversation)) % uint64(len(targets)))
		if bufs[i] == nil {
			bufs[i], _ = pool.Get().(*[]byte)
			*bufs[i] = append((*bufs[i])[:0], "INSERT INTO "+quote(targets[i].Table)+" ("+columns+") VALUES "...)
		} else {
			*bufs[i] = append(*bufs[i], ',')
		}
		*bufs[i] = m.appendSQL(*bufs[i])
		stats.Messages++
		stats.BodyBytes += int64(len(m.Content))
		if len(*bufs[i]) >= insertBytes {
			flush(i)
		}
		return nil
	})
	if err == nil {
		for i := range bufs {
			flush(i)
		}
	}
	if insert := g.Wait(); insert != nil { // the cause; err is then only its cancelled context
		return stats, insert
	}
	return stats, err
}

// appendSQL writes the message as a tuple of literals.
func (m *Message) appendSQL(b []byte) []byte {
	number := func(n int64) {
		b = strconv.AppendInt(b, n, 10)
		b = append(b, ',')
	}
	b = append(b, '(')
	b = strconv.AppendUint(b, m.ID, 10)
	b = append(b, ',')
	number(m.Conversation)
	number(m.Sender)
	number(int64(m.ReceiverType))
	number(m.Receiver)
	number(int64(m.Type))
	b = append(b, "_binary"...)
	b = appendText(b, m.Content)
	b = append(b, ',')
	b = appendText(b, m.ClientID)
	b = append(b, ',')
	number(int64(m.Status))
	b = append(b, '\'')
	b = m.Created.AppendFormat(b, "2006-01-02 15:04:05.000")
	b = append(b, "',"...)
	b = strconv.AppendUint(b, m.Seq, 10)
	return append(b, ')')
}

// appendText quotes; it needs the server's default sql_mode, without NO_BACKSLASH_ESCAPES.
func appendText[T string | []byte](b []byte, s T) []byte {
	b = append(b, '\'')
	for i := range len(s) {
		switch c := s[i]; c {
		case 0:
			b = append(b, '\\', '0')
		case '\'', '\\':
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '\'')
}
