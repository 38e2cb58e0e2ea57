package warm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// holdingDatabases is how many databases are asked at a time.
const holdingDatabases = 16

// Holding finds those of the tables that have rows of the conversation now, by one
// statement for each database. Those that were found are returned with an error too: it
// names the databases of which it is not known.
func (w *Warm) Holding(ctx context.Context, tables []*Table, conversation []byte) ([]*Table, error) {
	of := map[*database][]*Table{}
	for _, t := range tables {
		of[t.d] = append(of[t.d], t)
	}
	holds := make([][]*Table, len(w.databases))
	problems := make([]error, len(w.databases))
	var g errgroup.Group
	g.SetLimit(holdingDatabases)
	for i, d := range w.databases {
		if len(of[d]) == 0 {
			continue
		}
		g.Go(func() error {
			if holds[i], problems[i] = d.holding(ctx, of[d], conversation); problems[i] != nil {
				problems[i] = fmt.Errorf("database %s: tables of conversation %.64q: %w", d.where, conversation, problems[i])
			}
			return nil
		})
	}
	_ = g.Wait() // the problems are in their slice
	return slices.Concat(holds...), errors.Join(problems...)
}

func (d *database) holding(ctx context.Context, tables []*Table, conversation []byte) ([]*Table, error) {
	s, err := d.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer s.release()
	defs := make([]*definition, len(tables))
	ask := func() (found []*Table, err error) {
		var st statement
		var parts []string
		for i, t := range tables {
			defs[i] = t.def.Load()
			name, err := t.pageIndex(defs[i])
			if err != nil {
				return nil, err
			}
			if c, possible := defs[i].conversation(conversation); possible {
				parts = append(parts, fmt.Sprintf("%d FROM %s FORCE INDEX (%s) WHERE %s LIMIT 1)", i, t.name, quote(name), c.search))
			}
		}
		if len(parts) == 0 {
			return nil, nil
		}
		st.open, st.body = "(", strings.Join(parts, " UNION ALL (SELECT ")
		err = s.rows(ctx, d.limited(ctx, st), func(v [][]byte) error {
			i, err := strconv.Atoi(string(v[0]))
			if err == nil {
				found = append(found, tables[i])
			}
			return err
		})
		return found, err
	}
	found, err := ask()
	if outdated(err) { // the error does not say whose
		for i, t := range tables {
			if _, err := t.renewed(ctx, s, defs[i]); err != nil {
				return nil, fmt.Errorf("table %s: its columns or keys have changed: %w", t.shard, err)
			}
		}
		found, err = ask()
	}
	return found, err
}
