package warm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/manifest"
)

const (
	sampleMost   = 128 // conversations, and IDs, that are looked for in all tables
	sampleTable  = 8   // of one table at most
	sampleChunk  = 32  // conversations that one statement looks for
	sampleNewest = 4   // rows that are read for each that is wanted, since conversations repeat
)

// Sample is which of some conversations and message IDs were found in more than one table.
type Sample struct {
	Conversations, IDs int                         // that were looked for
	Shared             map[string][]manifest.Shard // conversations, with the tables that have rows of each
	Twice              map[uint64][]manifest.Shard // message IDs, likewise
	NoIndex            []manifest.Shard            // tables in which conversations cannot be looked for
	Tables             int                         // in which they were
}

// drawn is what was drawn of one table.
type drawn struct {
	conversations [][]byte
	ids           []uint64
}

// Sample draws the newest conversations and message IDs of tables, a bounded number over
// all, and looks for them in every table by its indexes. Of many tables only some are
// drawn from: those that pick puts first. What could not be looked at is in the error.
func (w *Warm) Sample(ctx context.Context, tables []*Table, pick func(n int) []int) (*Sample, error) {
	out := &Sample{Shared: map[string][]manifest.Shard{}, Twice: map[uint64][]manifest.Shard{}}
	if len(tables) < 2 {
		return out, nil
	}
	order := pick(len(tables))
	order = order[:min(len(order), sampleMost)]
	each := min(sampleTable, max(1, sampleMost/len(order)))
	lists, problems := make([]drawn, len(order)), make([]error, 2*len(tables))
	var g errgroup.Group
	g.SetLimit(checkTables)
	for i, n := range order {
		g.Go(func() error {
			lists[i], problems[i] = tables[n].draw(ctx, each)
			return nil
		})
	}
	_ = g.Wait() // the problems are in their slice
	var all drawn
	for _, l := range lists {
		for _, c := range l.conversations {
			if !slices.ContainsFunc(all.conversations, func(have []byte) bool { return string(have) == string(c) }) {
				all.conversations = append(all.conversations, c)
			}
		}
		for _, id := range l.ids {
			if !slices.Contains(all.ids, id) {
				all.ids = append(all.ids, id)
			}
		}
	}
	out.Conversations, out.IDs = len(all.conversations), len(all.ids)
	has := make([]drawn, len(tables))
	for i, t := range tables {
		if _, err := t.PageIndex(); err != nil {
			out.NoIndex = append(out.NoIndex, t.shard)
		}
		g.Go(func() error {
			has[i], problems[len(tables)+i] = t.among(ctx, all)
			return nil
		})
	}
	_ = g.Wait()
	for i, t := range tables {
		for _, c := range has[i].conversations {
			out.Shared[string(c)] = append(out.Shared[string(c)], t.shard)
		}
		for _, id := range has[i].ids {
			out.Twice[id] = append(out.Twice[id], t.shard)
		}
	}
	for c, in := range out.Shared {
		if len(in) < 2 {
			delete(out.Shared, c)
		}
	}
	for id, in := range out.Twice {
		if len(in) < 2 {
			delete(out.Twice, id)
		}
	}
	out.Tables = len(tables) - len(out.NoIndex)
	return out, errors.Join(problems...)
}

// draw reads some of the newest conversations and IDs.
func (t *Table) draw(ctx context.Context, n int) (d drawn, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	s, err := t.d.session(ctx)
	if err != nil {
		return d, err
	}
	defer s.close(ctx)
	def := t.def.Load()
	err = s.rows(ctx, fmt.Sprintf("SELECT CAST(%s AS CHAR), %s FROM %s FORCE INDEX (%s) ORDER BY %s DESC LIMIT %d", def.id, def.convExpr, t.name, def.key, def.id, n*sampleNewest),
		func(v [][]byte) error {
			id, err := strconv.ParseUint(string(v[0]), 10, 64)
			if err == nil && len(d.ids) < n { // an ID below zero is a finding of its own
				d.ids = append(d.ids, id)
			}
			known := slices.ContainsFunc(d.conversations, func(have []byte) bool { return string(have) == string(v[1]) })
			if v[1] != nil && !known && len(d.conversations) < n {
				d.conversations = append(d.conversations, append([]byte{}, v[1]...))
			}
			return nil
		})
	if err != nil {
		return d, fmt.Errorf("table %s: draw a sample: %w", t.shard, err)
	}
	return d, nil
}

// among finds which of a sample the table has.
func (t *Table) among(ctx context.Context, of drawn) (has drawn, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	s, err := t.d.session(ctx)
	if err != nil {
		return has, err
	}
	defer s.close(ctx)
	def := t.def.Load()
	defer func() {
		if err != nil {
			err = fmt.Errorf("table %s: look for a sample: %w", t.shard, err)
		}
	}()
	if len(of.ids) > 0 {
		list := make([]string, len(of.ids))
		for i, id := range of.ids {
			list[i] = strconv.FormatUint(id, 10)
		}
		err = s.rows(ctx, fmt.Sprintf("SELECT CAST(%s AS CHAR) FROM %s FORCE INDEX (%s) WHERE %s IN (%s)", def.id, t.name, def.key, def.id, strings.Join(list, ", ")),
			func(v [][]byte) error {
				id, err := strconv.ParseUint(string(v[0]), 10, 64)
				has.ids = append(has.ids, id)
				return err
			})
		if err != nil {
			return has, err
		}
	}
	if def.page.name == "" {
		return has, nil
	}
	for chunk := range slices.Chunk(of.conversations, sampleChunk) {
		var parts []string
		for i, c := range chunk {
			if cond, possible := def.conversation(c); possible {
				parts = append(parts, fmt.Sprintf("(SELECT %d FROM %s FORCE INDEX (%s) WHERE %s LIMIT 1)", i, t.name, quote(def.page.name), cond.search))
			}
		}
		if len(parts) == 0 {
			continue
		}
		err = s.rows(ctx, strings.Join(parts, " UNION ALL "), func(v [][]byte) error {
			i, err := strconv.Atoi(string(v[0]))
			if err == nil {
				has.conversations = append(has.conversations, chunk[i])
			}
			return err
		})
		if err != nil {
			return has, err
		}
	}
	return has, nil
}

// Size is what is known of a table without reading it: the server's estimates.
type Size struct {
	Rows, Bytes uint64
	Days        int // between its oldest and its newest row, at least 1
}

// Size asks for the server's estimates of a table's size, and for its oldest and newest row.
func (t *Table) Size(ctx context.Context) (z Size, err error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return z, err
	}
	defer s.close(ctx)
	def := t.def.Load()
	var rows, bytes, lo, hi *string
	err = s.row(ctx, fmt.Sprintf(`SELECT CAST(SUM(TABLE_ROWS) AS CHAR), CAST(SUM(DATA_LENGTH) AS CHAR), (SELECT CAST(MIN(%s) AS CHAR) FROM %s FORCE INDEX (%s)), (SELECT CAST(MAX(%s) AS CHAR) FROM %s FORCE INDEX (%s))
		FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s`, def.id, t.name, def.key, def.id, t.name, def.key, literal(t.shard.Database), literal(t.shard.Table)), &rows, &bytes, &lo, &hi)
	if err != nil {
		return z, fmt.Errorf("table %s: size: %w", t.shard, err)
	}
	number := func(text *string) (n uint64) {
		if text != nil {
			n, _ = strconv.ParseUint(*text, 10, 64) // below zero: a finding of its own
		}
		return n
	}
	layout := t.d.cfg.Layout
	z.Rows, z.Bytes = number(rows), number(bytes)
	z.Days = max(1, int(layout.Time(number(hi)).Sub(layout.Time(number(lo))).Hours()/24)+1)
	return z, nil
}
