package rehydrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/selection"
)

// Plan is what a restore would do. Making it writes nothing.
type Plan struct {
	Slices []Slice `json:"slices"` // oldest day first
	Tables []Made  `json:"tables"`
	Rows   uint64  `json:"rows"`  // of the slices; those of a part of them are fewer
	Bytes  int64   `json:"bytes"` // in the bucket
	sel    selection.Selection
}

// Slice is a slice of a plan.
type Slice struct {
	selection.Slice
	Table string `json:"table"` // in the target
	Held  bool   `json:"keep"`  // a purge will leave it, since its table is live
}

// Made is a table of a plan.
type Made struct {
	Table  string         `json:"table"`
	Shard  manifest.Shard `json:"shard"`
	Create bool           `json:"create"`               // it is not there, and would be made
	Define string         `json:"definition,omitempty"` // the archived one, where it would be
	Notes  []string       `json:"notes,omitempty"`
}

// Plan lists what a selection's restore would do, and refuses one that would go wrong,
// with all that stands in its way.
func (r *Restorer) Plan(ctx context.Context, sel selection.Selection) (*Plan, error) {
	list, err := r.Reader.Slices(ctx, sel)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: no archived and verified slice has rows of this selection", ErrNothing)
	}
	p := &Plan{sel: sel}
	newest := map[manifest.Shard]selection.Slice{}
	var shards []manifest.Shard
	for _, s := range list {
		if _, seen := newest[s.Shard]; !seen {
			shards = append(shards, s.Shard)
		}
		newest[s.Shard] = s // the list is by day
		p.Slices = append(p.Slices, Slice{Slice: s, Table: r.cfg.Names.Of(s.Shard)})
		p.Rows, p.Bytes = p.Rows+s.Rows, p.Bytes+s.Bytes
	}
	if err := r.cfg.Names.check(shards); err != nil {
		return nil, err
	}
	var problems []error
	for _, shard := range shards {
		m, err := r.table(ctx, newest[shard])
		if err == nil {
			err = r.live(shard, m.Table)
		}
		if errors.Is(err, ErrRefused) {
			problems = append(problems, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		p.Tables = append(p.Tables, m)
		for i := range p.Slices {
			if s := &p.Slices[i]; s.Shard == shard {
				s.Table, s.Held = m.Table, r.cfg.Live != nil && r.cfg.Live.Is(m.Table)
			}
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	_, err = r.sinks(ctx, p)
	return p, err
}

// table looks at a shard's table, or finds the definition to make it of.
func (r *Restorer) table(ctx context.Context, newest selection.Slice) (Made, error) {
	m := Made{Table: r.cfg.Names.Of(newest.Shard), Shard: newest.Shard}
	t, err := r.Target.Table(ctx, m.Table)
	switch {
	case err == nil:
		m.Table = t.Name()
		return m, nil
	case errors.Is(err, ErrUnfit):
		return m, fmt.Errorf("%w: %w", ErrRefused, err)
	case !errors.Is(err, ErrNoTable):
		return m, err
	case !r.cfg.Create:
		return m, fmt.Errorf("%w: %w: make it, or have it made of the archived definition by --create", ErrRefused, err)
	}
	c, err := r.Manifest.LoadHead(ctx, newest.ID, newest.Live.Live)
	if err != nil {
		return m, err
	}
	m.Create, m.Define = true, c.ShowCreate
	return m, nil
}

// live refuses to write into a live table without leave, or rows of another shard.
func (r *Restorer) live(shard manifest.Shard, table string) error {
	l := r.cfg.Live
	if l == nil || !l.Is(table) {
		return nil
	}
	into := manifest.Shard{Database: l.Database, Table: table}
	if l.Keeper == nil {
		return fmt.Errorf("%w: %s is a live warm table of this configuration: restore into another database, or say with --into-warm that it is meant", ErrRefused, into)
	}
	if shard != into {
		return fmt.Errorf("%w: rows of %s would go into the live table %s, another shard's: narrow the shards to %s, or restore into another database", ErrRefused, shard, into, into)
	}
	return nil
}

// sinkKey is a table and a schema of the rows that go there.
type sinkKey struct {
	table, schema string
}

// sinks looks at all tables that are there, as the rows of each slice's schema see them.
// Where a table lacks a column that may be NULL, the rows are read: none may have a
// value in it.
func (r *Restorer) sinks(ctx context.Context, p *Plan) (map[sinkKey]Sink, error) {
	made := map[string]bool{}
	for _, m := range p.Tables {
		made[m.Table] = m.Create
	}
	tables, out := map[string]Table{}, map[sinkKey]Sink{}
	var problems []error
	for _, s := range p.Slices {
		k := sinkKey{s.Table, s.Schema.Hash()}
		if _, seen := out[k]; seen || made[s.Table] {
			continue
		}
		t := tables[s.Table]
		if t == nil {
			var err error
			if t, err = r.Target.Table(ctx, s.Table); err != nil {
				return nil, err
			}
			tables[s.Table] = t
		}
		sink, err := t.Sink(s.Schema)
		if errors.Is(err, ErrUnfit) {
			problems = append(problems, fmt.Errorf("%w: as archived on %s: %w", ErrRefused, s.Day, err))
		} else if err != nil {
			return nil, err
		}
		out[k] = sink
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, s := range p.Slices {
		sink := out[sinkKey{s.Table, s.Schema.Hash()}]
		if sink == nil || len(sink.Missing()) == 0 {
			continue
		}
		if err := r.without(ctx, p, s, sink.Missing()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// without refuses a slice of which a selected row has a value in a column that the table
// lacks.
func (r *Restorer) without(ctx context.Context, p *Plan, s Slice, missing []string) error {
	var at []int
	for _, name := range missing {
		at = append(at, s.Schema.Index(name))
	}
	_, err := r.Reader.Read(ctx, p.sel, s.Slice, func(b *message.Batch) error {
		for i := range b.Len() {
			if j := slices.IndexFunc(at, func(c int) bool { return !b.IsNull(c, i) }); j >= 0 {
				return fmt.Errorf("%w: table %s has no column %s, in which message %d of %s has a value: add the column", ErrRefused, s.Table, missing[j], b.MessageID(i), s.SliceKey)
			}
		}
		return nil
	})
	if errors.Is(err, selection.ErrLost) { // Execute says so, of what it restores
		return nil
	}
	return err
}
