package patrol

import (
	"context"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// day compares what the three stores have of one day.
type day struct {
	p      *patrol
	day    snowflake.Day
	rows   bool // ClickHouse was counted
	counts map[manifest.CopyID]uint64

	now     time.Time        // by the manifest's clock
	named   []manifest.Named // by shard
	shards  map[string]int   // of named, by their names in keys
	records map[string]generations
	foreign map[string]bool // shards that other sources have commit records of
	spoken  map[string]bool // prefixes of attempts that a commit record names which the manifest does not know, or may name
	bad     map[string]bool // prefixes of generations of which an object is not as it should be, or was not seen
	groups  map[string]*group
	listed  bool // groups are all that the bucket has
	blind   bool // the commit records could not be listed: what none names cannot be told
	found   []Finding
}

// generations are the sizes of what is beside each other in the bucket, by generation and kind.
type generations map[uint32]map[string]int64

func (d *day) patrol(ctx context.Context) (err error) {
	p := d.p
	if d.now, err = p.Manifest.Now(ctx); err != nil {
		return err
	}
	f := p.cfg.Filter
	f.From, f.To = &d.day, &d.day
	if d.named, err = p.Manifest.Named(ctx, f); err != nil {
		return err
	}
	p.Progress.Slices(len(d.named))
	d.shards, d.foreign, d.spoken, d.bad, d.groups = map[string]int{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]*group{}
	for i := range d.named {
		d.shards[manifest.ShardName(d.named[i].Shard)] = i
	}
	if err := d.beside(ctx); err != nil {
		return err
	}
	if err := d.objects(ctx); err != nil {
		return err
	}
	if err := d.orphans(ctx); err != nil {
		return err
	}
	if d.rows {
		if err := d.clickhouse(ctx); err != nil {
			return err
		}
	}
	for i := range d.found {
		p.settle(ctx, &d.found[i])
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	for i := range d.named {
		n := &d.named[i]
		p.count(func(r *Report) { r.Slices, r.Generations = r.Slices+1, r.Generations+len(n.Copies) })
		p.Progress.SliceDone(int(n.Rows)) //nolint:gosec // a count
	}
	return nil
}

func (d *day) find(f Finding) { d.found = append(d.found, f) }

func of(n *manifest.Named, generation uint32) Finding {
	return Finding{Slice: &n.SliceKey, Generation: generation}
}

// relied says whether a generation serves reads, or is to.
func relied(n *manifest.Named, generation uint32) bool {
	return generation == n.Live || generation == n.Generation
}

// gone says that warm may no longer have all rows of the slice.
func gone(n *manifest.Named) bool {
	return n.State == manifest.Purging || n.State == manifest.Purged || n.Touched
}

// still reads a slice again: ok is false when a worker has it now or has moved it on since
// it was listed, so that what is seen of it may be of two moments.
func (d *day) still(ctx context.Context, n *manifest.Named) (ok bool, err error) {
	s, known, err := d.p.Manifest.NamedSlice(ctx, n.SliceKey)
	if err != nil {
		return false, err
	}
	now, err := d.p.Manifest.Now(ctx)
	if err != nil {
		return false, err
	}
	return known && !leased(&s, now) && s.State == n.State && s.Live == n.Live && s.Generation == n.Generation && s.Touched == n.Touched, nil
}

func leased(n *manifest.Named, now time.Time) bool {
	return n.LeaseUntil != nil && n.LeaseUntil.After(now)
}

func (d *day) inFlight() { d.p.count(func(r *Report) { r.InFlight++ }) }

// verb names a slice on a command line.
func verb(n *manifest.Named) string { return fmt.Sprintf("--day %s --shard %s", n.Day, n.Shard) }

// remedyOfObject says how rows of a lost or damaged object come back.
func remedyOfObject(n *manifest.Named) string {
	const first = "restore it from a former version or a replica of the bucket"
	if !gone(n) {
		return fmt.Sprintf("%s; or, since the rows are still in MySQL: coldtier verify %s, then coldtier archive, which copies the slice again", first, verb(n))
	}
	return fmt.Sprintf("%s; if there is none, its rows may still be in ClickHouse: coldtier restore %s --into DSN_OF_%s --into-warm, then coldtier archive, which makes a further generation of them. Leave ClickHouse's rows as they are until then",
		first, verb(n), n.Shard.Database)
}
