package warm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// estimateParts is in how many parts a range is estimated. A server that looks into an
// index gives for one range never more than half of the table's rows.
const estimateParts = 4

// EstimateRows is what the server's optimizer takes [lo, hi) to have in each of four parts,
// for the cost of a few looks into the index, however many rows there are. It may be off by a
// factor that depends on the size: both kinds of servers double what they have not counted. KnownRows tells it.
func (t *Table) EstimateRows(ctx context.Context, lo, hi uint64) ([]uint64, error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close(ctx)
	var ranges [][2]uint64
	for i := range uint64(estimateParts) {
		from, to := lo+(hi-lo)/estimateParts*i, lo+(hi-lo)/estimateParts*(i+1)
		if i == estimateParts-1 {
			to = hi
		}
		if from < to {
			ranges = append(ranges, [2]uint64{from, to})
		}
	}
	rows, err := t.explain(ctx, s, ranges)
	if err != nil {
		return nil, fmt.Errorf("table %s: estimate of message IDs [%d, %d): %w", t.shard, lo, hi, err)
	}
	return rows, nil
}

// explain asks the optimizer for the rows of ranges.
func (t *Table) explain(ctx context.Context, s *session, ranges [][2]uint64) (rows []uint64, err error) {
	def := t.def.Load()
	parts := make([]string, len(ranges))
	for i, r := range ranges {
		parts[i] = fmt.Sprintf("SELECT 1 FROM %s FORCE INDEX (%s) WHERE %s", t.name, def.key, def.between(r[0], r[1]))
	}
	// MySQL 9 gives a tree of text unless the form is named, and MariaDB has no such name.
	plan, err := s.named(ctx, "EXPLAIN /*!80000 FORMAT=TRADITIONAL */ "+strings.Join(parts, " UNION ALL "))
	if err != nil {
		return nil, err
	}
	for _, r := range plan[:min(len(plan), len(ranges))] { // the union itself comes last
		n, err := strconv.ParseUint(string(r["rows"]), 10, 64)
		if err != nil || n <= 1 { // no row of this table: none were found where at least one is said
			n = 0
		}
		rows = append(rows, n)
	}
	return rows, nil
}

// KnownRows counts off the first rows of [lo, hi), up to 10,000 of them in steps, and gives for
// each step how many there are and what the optimizer takes them for.
func (t *Table) KnownRows(ctx context.Context, lo, hi uint64) (known [][2]uint64, err error) {
	fail := func(err error) ([][2]uint64, error) {
		return nil, fmt.Errorf("table %s: count off message IDs from %d: %w", t.shard, lo, err)
	}
	s, err := t.d.session(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close(ctx)
	def := t.def.Load()
	first, ok, err := t.next(ctx, s, t.name, def, lo, 0)
	if err != nil || !ok {
		return nil, err
	}
	at, n := first, uint64(0)
	var counts []uint64
	var ranges [][2]uint64
	for _, step := range []uint64{50, 150, 500, 1500, 4000, 10_000} {
		id, ok, err := t.next(ctx, s, t.name, def, at, int(step-n)) //nolint:gosec // a small number
		if err != nil {
			return fail(err)
		}
		if !ok || id >= hi {
			break
		}
		at, n = id, step
		counts, ranges = append(counts, n), append(ranges, [2]uint64{first, id})
	}
	if len(ranges) == 0 {
		return nil, nil
	}
	ranges = append(ranges, ranges[0]) // of a single one MySQL says nothing without a union
	rows, err := t.explain(ctx, s, ranges)
	if err != nil {
		return fail(err)
	}
	for i, n := range counts {
		if i < len(rows) && rows[i] > 0 {
			known = append(known, [2]uint64{n, rows[i]})
		}
	}
	return known, nil
}

// Edges are the lowest and the highest message ID in [lo, hi), by two looks into the index.
func (t *Table) Edges(ctx context.Context, lo, hi uint64) (first, last uint64, ok bool, err error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return 0, 0, false, err
	}
	defer s.close(ctx)
	def := t.def.Load()
	for order, into := range map[string]*uint64{"": &first, " DESC": &last} {
		found := false
		err := s.rows(ctx, fmt.Sprintf("SELECT CAST(%s AS CHAR) FROM %s FORCE INDEX (%s) WHERE %s ORDER BY %s%s LIMIT 1", def.id, t.name, def.key, def.between(lo, hi), def.id, order), func(v [][]byte) (err error) {
			found = true
			*into, err = strconv.ParseUint(string(v[0]), 10, 64)
			return err
		})
		if err != nil {
			return 0, 0, false, fmt.Errorf("table %s: edges of message IDs [%d, %d): %w", t.shard, lo, hi, err)
		}
		if !found {
			return 0, 0, false, nil
		}
	}
	return first, last, true, nil
}

// Sample calls fn for the first rows of [lo, hi), at most so many, with the conversation
// and the bytes of the body; without a column of contents they are those of all columns.
func (t *Table) Sample(ctx context.Context, lo, hi uint64, limit int, fn func(conversation string, body int64)) error {
	s, err := t.d.session(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	def := t.def.Load()
	var sizes []string
	for i, c := range def.schema.Columns() {
		if content := def.schema.Role(message.Content); content < 0 || content == i {
			sizes = append(sizes, "COALESCE(LENGTH("+quote(c.Name)+"), 0)")
		}
	}
	err = s.rows(ctx, fmt.Sprintf("SELECT %s, CAST(%s AS CHAR) FROM %s FORCE INDEX (%s) WHERE %s ORDER BY %s LIMIT %d", def.convExpr, strings.Join(sizes, " + "), t.name, def.key, def.between(lo, hi), def.id, limit),
		func(v [][]byte) error {
			n, err := strconv.ParseInt(string(v[1]), 10, 64)
			if err != nil {
				return errors.New("the size of a row is no number")
			}
			fn(string(v[0]), n)
			return nil
		})
	if err != nil {
		return fmt.Errorf("table %s: sample of message IDs [%d, %d): %w", t.shard, lo, hi, err)
	}
	return nil
}
