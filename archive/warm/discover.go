package warm

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/manifest"
)

// StagingPrefix begins the name of every staging table, so that no glob takes one
// for a warm table and nothing else is ever dropped.
const StagingPrefix = "coldtier_purge_"

// Discover finds the tables. Those that cannot be archived are left out and named
// in the error, one line for each problem; the others are returned all the same.
func (w *Warm) Discover(ctx context.Context) ([]*Table, error) {
	tables := make([][]*Table, len(w.databases))
	problems := make([]error, len(w.databases))
	var g errgroup.Group
	g.SetLimit(8)
	for i, d := range w.databases {
		g.Go(func() error {
			tables[i], problems[i] = d.discover(ctx)
			return nil
		})
	}
	_ = g.Wait() // the problems are in their slice
	var all []*Table
	seen := map[manifest.Shard]string{}
	for i, ts := range tables {
		for _, t := range ts {
			if where, twice := seen[t.shard]; twice {
				problems = append(problems, fmt.Errorf("table %s is on %s and on %s: databases need names of their own", t.shard, where, w.databases[i].where))
				continue
			}
			seen[t.shard] = w.databases[i].where
			all = append(all, t)
		}
	}
	return all, errors.Join(problems...)
}

func (d *database) discover(ctx context.Context) ([]*Table, error) {
	s, err := d.session(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close(ctx)
	var names []string
	var problems []error
	matched := make([]bool, len(d.cfg.Tables))
	err = s.rows(ctx, "SELECT TABLE_NAME AS n, TABLE_TYPE AS ty, ENGINE AS en FROM information_schema.TABLES WHERE TABLE_SCHEMA = "+literal(d.name)+" ORDER BY TABLE_NAME",
		func(v [][]byte) error {
			name, kind, engine := string(v[0]), string(v[1]), string(v[2])
			ours := false
			for i, g := range d.cfg.Tables {
				if ok, _ := path.Match(g, name); ok { // validated by Open
					matched[i], ours = true, true
				}
			}
			switch {
			case !ours || strings.HasPrefix(name, StagingPrefix):
			case kind != "BASE TABLE":
				problems = append(problems, fmt.Errorf("table %s.%s is a %s: only plain tables are archived; narrow source.tables", d.name, name, strings.ToLower(kind)))
			case !strings.EqualFold(engine, "InnoDB"):
				problems = append(problems, fmt.Errorf("table %s.%s has engine %s, which has no transactions and row locks: convert it to InnoDB", d.name, name, engine))
			default:
				names = append(names, name)
			}
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("database %s: list tables: %w", d.where, err)
	}
	for i, g := range d.cfg.Tables {
		if !matched[i] {
			problems = append(problems, fmt.Errorf("database %s has no table %s that this account may see: correct source.tables, or grant SELECT", d.where, g))
		}
	}
	references, err := d.references(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("database %s: foreign keys: %w", d.where, err)
	}
	var tables []*Table
	for _, name := range names {
		def, err := d.define(ctx, s, name)
		if err != nil {
			problems = append(problems, lines("table "+d.name+"."+name, err))
			if s.cut {
				break
			}
			continue
		}
		t := d.table(name, def)
		acts := false
		for _, r := range references[name] {
			t.references = append(t.references, r.by)
			if r.acts {
				acts = true
				problems = append(problems, fmt.Errorf("table %s.%s is referenced by a foreign key of %s whose ON DELETE changes rows there: make it RESTRICT or drop it", d.name, name, r.by))
			}
		}
		if !acts {
			tables = append(tables, t)
		}
	}
	return tables, errors.Join(problems...)
}

// reference is a foreign key that points to a warm table.
type reference struct {
	by   string
	acts bool // a delete here deletes or changes rows there
}

// references lists the database's foreign keys that point to its own tables, by
// table. Those of other databases are not looked for: without this condition the
// server would open every table of every database, each time, and MariaDB 10.11 was
// seen to crash over a database that was dropped meanwhile.
func (d *database) references(ctx context.Context, s *session) (map[string][]reference, error) {
	out := map[string][]reference{}
	err := s.rows(ctx, "SELECT REFERENCED_TABLE_NAME AS r, CONSTRAINT_SCHEMA AS s, TABLE_NAME AS t, DELETE_RULE AS d FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = "+literal(d.name)+" AND UNIQUE_CONSTRAINT_SCHEMA = "+literal(d.name),
		func(v [][]byte) error {
			rule := string(v[3])
			out[string(v[0])] = append(out[string(v[0])], reference{string(v[1]) + "." + string(v[2]), rule != "RESTRICT" && rule != "NO ACTION"})
			return nil
		})
	return out, err
}

// lines puts a prefix before each of joined errors.
func lines(prefix string, err error) error {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || !strings.Contains(err.Error(), "\n") {
		return fmt.Errorf("%s: %w", prefix, err)
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, fmt.Errorf("%s: %w", prefix, e))
	}
	return errors.Join(out...)
}
