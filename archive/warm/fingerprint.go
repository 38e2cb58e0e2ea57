package warm

import (
	"context"
	"fmt"
	"math/big"

	"github.com/coldtier/coldtier/archive/message"
)

// Fingerprint computes the fingerprint of the rows [from, to) in the server, in as
// many statements as chunks: each sees its own snapshot.
func (t *Table) Fingerprint(ctx context.Context, from, to uint64) (message.Fingerprint, error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return message.Fingerprint{}, err
	}
	defer s.close(ctx)
	f, err := t.fingerprintRange(ctx, s, t.name, t.def.Load(), from, to)
	if err != nil {
		return f, fmt.Errorf("table %s: fingerprint of message IDs [%d, %d): %w", t.shard, from, to, err)
	}
	return f, nil
}

// fingerprintRange goes through a range of a table chunk by chunk.
func (t *Table) fingerprintRange(ctx context.Context, s *session, table string, def *definition, from, to uint64) (f message.Fingerprint, err error) {
	for from < to {
		end, ok, err := t.next(ctx, s, table, def, from, t.d.cfg.ChunkRows)
		if err != nil {
			return f, err
		}
		if !ok || end > to {
			end = to
		}
		part, err := t.fingerprint(ctx, s, rows{table: table, def: def, where: def.between(from, end)})
		if err != nil {
			return f, err
		}
		f, from = f.Add(part), end
	}
	return f, nil
}

func (d *definition) between(from, to uint64) string {
	return fmt.Sprintf("%s >= %d AND %s < %d", d.id, from, d.id, to)
}

// rows is a set of rows of one table, a chunk or less.
type rows struct {
	table string // quoted
	def   *definition
	where string
	lock  string // " FOR UPDATE", or "" for none
}

// fingerprint computes the fingerprint of a set of rows in one statement.
//
// The LIMIT keeps the server from merging the inner query into the outer one, where
// it would compute the hash once for each use. It belongs inside, as does the lock,
// which an outer FOR UPDATE would not pass on to the inner query's rows.
func (t *Table) fingerprint(ctx context.Context, s *session, r rows) (message.Fingerprint, error) {
	q := fmt.Sprintf("SELECT COUNT(*), COUNT(h), COALESCE(SUM(CAST(CONV(LEFT(h, 16), 16, 10) AS UNSIGNED)), 0), COALESCE(SUM(CAST(CONV(SUBSTR(h, 17, 16), 16, 10) AS UNSIGNED)), 0) "+
		"FROM (SELECT SHA2(%s, 256) AS h FROM %s FORCE INDEX (%s) WHERE %s LIMIT 18446744073709551615%s) AS r", r.def.preimage, r.table, r.def.key, r.where, r.lock)
	var count, hashed uint64
	var hi, lo string
	if err := s.row(ctx, q, &count, &hashed, &hi, &lo); err != nil {
		return message.Fingerprint{}, err
	}
	if count != hashed {
		// A row whose texts are longer than max_allowed_packet together has no hash there.
		return t.fingerprintHere(ctx, s, r)
	}
	f := message.Fingerprint{Rows: count}
	var err error
	if f.Hi, err = mod64(hi); err != nil {
		return f, err
	}
	f.Lo, err = mod64(lo)
	return f, err
}

// fingerprintHere reads the rows and hashes them on this side, on the same
// connection and so in the same transaction, with the same lock.
func (t *Table) fingerprintHere(ctx context.Context, s *session, r rows) (f message.Fingerprint, err error) {
	var h message.Hasher
	err = s.rows(ctx, fmt.Sprintf("SELECT %s FROM %s FORCE INDEX (%s) WHERE %s%s", r.def.selects, r.table, r.def.key, r.where, r.lock), func(row [][]byte) error {
		f = f.Add(h.Row(row))
		return nil
	})
	return f, err
}

// mod64 reduces an exact sum to 64 bits. MySQL's sum of integers is a decimal of
// 65 digits, so that it cannot overflow in a chunk.
func mod64(sum string) (uint64, error) {
	n, ok := new(big.Int).SetString(sum, 10)
	if !ok {
		return 0, fmt.Errorf("sum of hashes %q is no number", sum)
	}
	return n.And(n, new(big.Int).SetUint64(1<<64-1)).Uint64(), nil
}
