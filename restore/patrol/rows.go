package patrol

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/coldtier/coldtier/manifest"
)

func copyID(n *manifest.Named, c manifest.NamedCopy) manifest.CopyID {
	return manifest.CopyID{Shard: n.Shard, Day: n.Day, Generation: c.Generation, Attempt: c.Attempt}
}

// clickhouse compares what ClickHouse has of the day with the live generations.
func (d *day) clickhouse(ctx context.Context) error {
	for i := range d.named {
		n := &d.named[i]
		c, ok := n.Copy(n.Live)
		if !ok {
			continue
		}
		if err := d.copyRows(ctx, n, c); err != nil {
			return err
		}
	}
	if !d.listed || d.blind {
		return nil
	}
	return d.orphanRows(ctx)
}

// copyRows compares the number of a live generation's rows.
func (d *day) copyRows(ctx context.Context, n *manifest.Named, c manifest.NamedCopy) error {
	p, id := d.p, copyID(n, c)
	have := d.counts[id]
	if have != c.Rows { // it may be counted twice, or have come since
		head, err := p.Manifest.LoadHead(ctx, n.ID, c.Generation)
		if err != nil {
			return err
		}
		have, err = p.Rows.Messages(ctx, id, head.Schema)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			p.unlooked("ClickHouse's rows of "+id.String(), err)
			return nil
		}
	}
	if have == c.Rows {
		p.count(func(r *Report) { r.Rows += have })
		return nil
	}
	ok, err := d.still(ctx, n)
	if err != nil {
		return err
	}
	if !ok {
		d.inFlight()
		return nil
	}
	f := of(n, c.Generation)
	f.Code, f.Severity, f.Attempt, f.Count = RowsDifferent, Different, c.Attempt, int(c.Rows) //nolint:gosec // a count
	f.What = fmt.Sprintf("ClickHouse has %d messages of it, the manifest says %d", have, c.Rows)
	if have == 0 {
		f.Code, f.What = RowsMissing, fmt.Sprintf("ClickHouse has none of its %d rows", c.Rows)
	}
	if d.bad[manifest.ObjectPrefix(n.SliceKey, c.Generation, c.Attempt)] || !d.listed {
		f.Remedy = "first see to its objects, from which the rows come; what ClickHouse still has may be all that is left of them"
	} else {
		f.Remedy = "coldtier patrol --heal, or coldtier rebuild clickhouse " + verb(n)
		if p.Healer != nil {
			f.mend = func(ctx context.Context) (string, error) { return p.rebuildRows(ctx, n) }
		}
	}
	d.find(f)
	return nil
}

// orphanRows finds copies that no generation names.
func (d *day) orphanRows(ctx context.Context) error {
	p := d.p
	ids := make([]manifest.CopyID, 0)
	for id := range d.counts {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b manifest.CopyID) int {
		return cmp.Or(cmp.Compare(a.Shard.String(), b.Shard.String()), cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Attempt, b.Attempt))
	})
	for _, id := range ids {
		shard := manifest.ShardName(id.Shard)
		i, known := d.shards[shard]
		if known && d.named[i].Has(id.Generation, id.Attempt) || !known && !p.selected(id.Shard.String()) || d.foreign[shard] {
			continue
		}
		k := manifest.SliceKey{Source: p.Manifest.Source(), Shard: id.Shard, Day: id.Day}
		prefix := manifest.ObjectPrefix(k, id.Generation, id.Attempt)
		if d.spoken[prefix] || d.spoken[doubtful(shard, id.Generation)] {
			continue
		}
		n, now, err := p.Manifest.NamedSlice(ctx, k)
		if err != nil {
			return err
		}
		if now && n.Has(id.Generation, id.Attempt) {
			continue // committed since
		}
		g := d.groups[prefix]
		if now && (n.State == manifest.Copying || leased(&n, d.now)) || g != nil && g.newest.Add(p.cfg.Grace).After(d.now) {
			d.inFlight()
			continue
		}
		rows := d.counts[id]
		f := Finding{Code: RowsOrphans, Severity: Note, Slice: &k, Generation: id.Generation, Attempt: id.Attempt, Count: int(rows), //nolint:gosec // a count
			What: fmt.Sprintf("ClickHouse has %d rows of attempt %s, which no committed generation names; no reader is given them", rows, id.Attempt)}
		switch {
		case !now:
			f.Remedy = "the manifest does not have the slice: is another installation using this ClickHouse database, or was the manifest set back? Nothing drops them"
		case g == nil:
			f.Remedy = "the bucket has no object of the attempt, so it cannot be told whose rows they are, and since when: they cost room, and nothing drops them"
		default:
			f.Remedy = "coldtier patrol --heal drops them"
			if p.Healer != nil {
				f.mend = func(ctx context.Context) (string, error) { return p.dropRows(ctx, &n, id, rows) }
			}
		}
		d.find(f)
	}
	return nil
}
