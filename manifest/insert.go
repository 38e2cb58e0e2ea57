package manifest

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
)

// statementBytes is the size at which a multi-row INSERT is sent.
const statementBytes = 1 << 20

// inserter sends rows in multi-row INSERTs written out as literals: numbers in
// decimal, everything else in hexadecimal, so nothing needs escaping and there is
// no limit on placeholders.
type inserter struct {
	ctx   context.Context
	q     reader
	head  string // INSERT INTO t (...) VALUES
	tail  string // ON DUPLICATE KEY UPDATE ..., or nothing
	limit int
	buf   []byte
	row   []byte
}

func (in *inserter) num(n uint64) {
	in.sep()
	in.row = strconv.AppendUint(in.row, n, 10)
}

func (in *inserter) bytes(b []byte) {
	in.sep()
	in.row = append(in.row, "x'"...)
	in.row = hex.AppendEncode(in.row, b)
	in.row = append(in.row, '\'')
}

func (in *inserter) null() {
	in.sep()
	in.row = append(in.row, "NULL"...)
}

func (in *inserter) sep() {
	if len(in.row) == 0 {
		in.row = append(in.row, '(')
	} else {
		in.row = append(in.row, ',')
	}
}

// end ends a row.
func (in *inserter) end() error {
	if len(in.buf) > 0 && len(in.buf)+len(in.row)+len(in.tail)+2 > in.limit {
		if err := in.flush(); err != nil {
			return err
		}
	}
	if len(in.buf) == 0 {
		in.buf = append(in.buf, in.head...)
	} else {
		in.buf = append(in.buf, ',')
	}
	in.buf = append(append(in.buf, in.row...), ')')
	in.row = in.row[:0]
	return nil
}

// flush sends what was not sent yet.
func (in *inserter) flush() error {
	if len(in.buf) == 0 {
		return nil
	}
	_, err := in.q.ExecContext(in.ctx, string(in.buf)+in.tail)
	in.buf = in.buf[:0]
	return err
}

// maxPacket reads how long a statement the server takes.
func (s *Store) maxPacket(ctx context.Context) (int, error) {
	s.mu.Lock()
	n := s.packet
	s.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	if err := s.db.QueryRowContext(ctx, "SELECT @@max_allowed_packet").Scan(&n); err != nil {
		return 0, fmt.Errorf("read max_allowed_packet: %w", err)
	}
	s.mu.Lock()
	s.packet = n
	s.mu.Unlock()
	return n, nil
}
