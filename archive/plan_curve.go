package archive

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/manifest"
)

// curve is what the servers take known numbers of rows for, ascending.
type curve []struct{ taken, really float64 }

// calibrate counts off some rows of some tables.
func (e *estimation) calibrate(ctx context.Context, p *Plan, byShard map[manifest.Shard][]int) error {
	shards := slices.SortedFunc(maps.Keys(byShard), func(a, b manifest.Shard) int { return cmp.Compare(a.String(), b.String()) })
	var mu sync.Mutex
	taken, times := map[uint64]float64{}, map[uint64]float64{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(estimateAtOnce / 2)
	for _, shard := range spread(shards, knownTables) {
		all := byShard[shard]
		g.Go(func() error {
			known, err := e.of(shard).KnownRows(ctx, p.Work[all[len(all)/3]].Lo, p.Work[all[len(all)-1]].Hi)
			mu.Lock()
			defer mu.Unlock()
			for _, k := range known {
				taken[k[0]], times[k[0]] = taken[k[0]]+math.Log(float64(k[1])), times[k[0]]+1
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(taken)) {
		e.curve = append(e.curve, struct{ taken, really float64 }{math.Exp(taken[n] / times[n]), float64(n)})
	}
	return nil
}

// rows is how many rows there are in parts that a server takes for so many each: as the
// number nearest to it that is known.
func (c curve) rows(parts []uint64) uint64 {
	var sum float64
	for _, n := range parts {
		if n == 0 {
			continue
		}
		factor, nearest := 1.0, math.Inf(1)
		for _, k := range c {
			if d := math.Abs(math.Log(float64(n) / k.taken)); d < nearest {
				factor, nearest = k.really/k.taken, d
			}
		}
		sum += float64(n) * factor
	}
	return max(1, uint64(sum+.5)) // a row was seen
}
