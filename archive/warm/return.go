package warm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// moveBack moves a staging table's rows into the table, a chunk in a transaction.
// Rows that are in conflict stay; they are in the error.
func (t *Table) moveBack(ctx context.Context, s *session, name string) error {
	def := t.def.Load()
	var conflicts []uint64
	for from := uint64(0); ; {
		first, ok, err := t.next(ctx, s, t.staging(name), def, from, 0)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		end, ok, err := t.next(ctx, s, t.staging(name), def, first, t.d.cfg.ChunkRows)
		if err != nil {
			return err
		}
		if !ok {
			end = math.MaxUint64
		}
		kept, err := t.moveChunk(ctx, s, def, name, first, end)
		if err != nil {
			return fmt.Errorf("return message IDs [%d, %d): %w", first, end, err)
		}
		conflicts = append(conflicts, kept...)
		from = end
	}
	if len(conflicts) > 0 {
		return fmt.Errorf("%w: message IDs %s: compare both tables' rows, delete the wrong ones and purge again", ErrConflict, some(conflicts))
	}
	return nil
}

// moveChunk moves the rows [from, to) in one transaction: those that the table
// lacks are inserted, and those that the table then has, with the same hash, leave
// the staging table. The IDs of the others are returned.
func (t *Table) moveChunk(ctx context.Context, s *session, def *definition, name string, from, to uint64) (kept []uint64, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	committed := false
	defer func() {
		if !committed {
			s.rollback(ctx)
		}
	}()
	staging, between := t.staging(name), def.between(from, to)
	isolated, err := t.hashes(ctx, s, def, staging, between)
	if err != nil {
		return nil, err
	}
	both := fmt.Sprintf("%s AND %s IN (SELECT %s FROM %s WHERE %s)", between, def.id, def.id, staging, between)
	before, err := t.hashes(ctx, s, def, t.name, both)
	if err != nil {
		return nil, err
	}
	if _, err := s.exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s WHERE %s AND %s", t.name, def.insertable, def.insertable,
		staging, between, def.without(before))); err != nil {
		return nil, err
	}
	now, err := t.hashes(ctx, s, def, t.name, both)
	if err != nil {
		return nil, err
	}
	conflicts := map[uint64]message.Fingerprint{}
	for id, f := range isolated {
		if now[id] == f {
			continue
		}
		if _, was := before[id]; !was {
			return nil, fmt.Errorf("message ID %d became another row when it was inserted: look for triggers on %s", id, t.shard)
		}
		conflicts[id] = f
		kept = append(kept, id)
	}
	result, err := s.exec(ctx, fmt.Sprintf("DELETE FROM %s WHERE %s AND %s", staging, between, def.without(conflicts)))
	if err != nil {
		return nil, err
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(len(isolated)-len(kept)) {
		return nil, errors.Join(err, fmt.Errorf("took %d rows out of the staging table, want %d", n, len(isolated)-len(kept)))
	}
	slices.Sort(kept)
	committed = true // from here on the outcome is the server's
	return kept, s.commit(ctx)
}

// hashes locks rows and reads each one's hash by message ID. They are hashed here,
// so that a row of any length has one.
func (t *Table) hashes(ctx context.Context, s *session, def *definition, table, where string) (map[uint64]message.Fingerprint, error) {
	var h message.Hasher
	out, at := map[uint64]message.Fingerprint{}, def.schema.Role(message.MessageID)
	err := s.rows(ctx, fmt.Sprintf("SELECT %s FROM %s FORCE INDEX (%s) WHERE %s FOR UPDATE", def.selects, table, def.key, where), func(row [][]byte) error {
		id, ok := message.ParseUint(row[at])
		if !ok {
			return fmt.Errorf("message ID %q is no number in 0..2^64-1", row[at])
		}
		out[id] = h.Row(row)
		return nil
	})
	return out, err
}

// without is the condition that an ID is none of a set.
func (d *definition) without(ids map[uint64]message.Fingerprint) string {
	if len(ids) == 0 {
		return "TRUE"
	}
	var b strings.Builder
	for id := range ids {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(message.FormatID(id))
	}
	return d.id + " NOT IN (" + b.String() + ")"
}

// some writes the first of many IDs.
func some(ids []uint64) string {
	const most = 5
	var b strings.Builder
	for i, id := range ids[:min(most, len(ids))] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(message.FormatID(id))
	}
	if len(ids) > most {
		fmt.Fprintf(&b, " and %d more", len(ids)-most)
	}
	return b.String()
}
