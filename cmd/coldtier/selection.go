package main

import (
	"context"
	"errors"
	"path"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// selection is the days and shards a verb is narrowed to.
type selection struct {
	day, fromText, toText, shard string
	plan                         string // of a purge: the approved plan that is done

	from, to *snowflake.Day // inclusive
}

func (s *selection) flags(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&s.day, "day", "", "one `DAY`, such as 2026-05-01")
	f.StringVar(&s.fromText, "from", "", "first `DAY`")
	f.StringVar(&s.toText, "to", "", "last `DAY`, inclusive")
	f.StringVar(&s.shard, "shard", "", "`GLOB` of DATABASE.TABLE")
	c.MarkFlagsMutuallyExclusive("day", "from")
	c.MarkFlagsMutuallyExclusive("day", "to")
}

// matches refuses a pattern that fits no table and no slice: a slip of the pen must not
// look like work well done.
func (s *selection) matches(ctx context.Context, p *parts) error {
	if s.shard == "" {
		return nil
	}
	for _, t := range p.tables {
		if ok, _ := path.Match(s.shard, t.Shard().String()); ok { // parse tried it
			return nil
		}
	}
	return knownShard(ctx, p, s.shard)
}

// knownShard refuses a pattern that fits no table of the manifest's slices.
func knownShard(ctx context.Context, p *parts, shard string) error {
	if known, err := p.manifest.Shards(ctx, shard); err != nil || len(known) > 0 {
		return err
	}
	return usage("--shard %q: the manifest has no slice of such a table: want DATABASE.TABLE, with * for any text", shard)
}

// parse reads the flags' texts.
func (s *selection) parse() error {
	if _, err := path.Match(s.shard, ""); err != nil {
		return usage("--shard %q: not a pattern: want DATABASE.TABLE with *, ? or [a-z] in it", s.shard)
	}
	if s.day != "" {
		s.fromText, s.toText = s.day, s.day
	}
	var errs []error
	for _, d := range []struct {
		text string
		into **snowflake.Day
	}{{s.fromText, &s.from}, {s.toText, &s.to}} {
		if d.text == "" {
			continue
		}
		day, err := snowflake.ParseDay(d.text)
		errs = append(errs, err)
		*d.into = &day
	}
	if err := errors.Join(errs...); err != nil {
		return usage("%w", errs[0])
	}
	if s.from != nil && s.to != nil && s.to.Before(*s.from) {
		return usage("--from %s is after --to %s", s.from, s.to)
	}
	return nil
}
