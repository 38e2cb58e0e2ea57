package manifest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// Identity tells this manifest of the source from all others of a source of the same
// name: random, made when the source was entered, and the same in every restored
// backup. It is "" when the source is not in the manifest yet, or no table is.
func (s *Store) Identity(ctx context.Context) (id string, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT identity FROM sources WHERE name = ?", s.source).Scan(&id)
	var answer *mysql.MySQLError
	if errors.Is(err, sql.ErrNoRows) || errors.As(err, &answer) && answer.Number == noSuchTable {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the identity of source %s in the manifest: %w", s.source, err)
	}
	return id, nil
}

const noSuchTable = 1146

// newIdentity makes a random UUID (version 4).
func newIdentity() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
