package restore

import (
	"math"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/coldtier/coldtier/archive/message"
)

// The caches by role, as the metrics name them, with their shares of Config.Cache in
// per cent. Pages need no footer: the manifest has what it says. Only a message that is
// looked for by its ID in a big object is found by one.
const (
	cacheManifest = "manifest"
	cacheStatuses = "statuses"
	cacheFooters  = "footers"
	cacheGroups   = "row_groups"
	cacheNewest   = "newest"

	shareManifest = 12
	shareStatuses = 3
	shareFooters  = 2
	shareNewest   = 15
)

// loaded is a part that was read.
type loaded struct {
	batch *message.Batch // rows of one conversation, in message.Compare order
	store Store
}

type caches struct {
	looks    *otter.Cache[lookKey, *looked]
	statuses *otter.Cache[string, *seen]
	footers  *otter.Cache[string, []bounds]
	groups   *otter.Cache[partKey, *loaded]
	newest   *otter.Cache[string, *newest]
	shards   *otter.Cache[string, *holding]
}

// holdings is of how many conversations it is known which tables hold them.
const holdings = 100_000

// entryOverhead is about what a cache and a batch need beside the bytes of values.
const entryOverhead = 256

func newCaches(bytes int64) (c *caches, err error) {
	share := func(percent int64) uint64 { return uint64(max(bytes*percent/100, 1)) }
	c = &caches{}
	if c.looks, err = otter.New(&otter.Options[lookKey, *looked]{MaximumWeight: share(shareManifest),
		Weigher: func(k lookKey, l *looked) uint32 { return weight(len(k) + l.weight()) }}); err != nil {
		return nil, err
	}
	if c.statuses, err = otter.New(&otter.Options[string, *seen]{MaximumWeight: share(shareStatuses),
		Weigher: func(k string, s *seen) uint32 { return weight(len(k) + s.weight()) }}); err != nil {
		return nil, err
	}
	if c.footers, err = otter.New(&otter.Options[string, []bounds]{MaximumWeight: share(shareFooters),
		Weigher: func(k string, b []bounds) uint32 { return weight(len(k) + 24*len(b)) }}); err != nil {
		return nil, err
	}
	if c.newest, err = otter.New(&otter.Options[string, *newest]{MaximumWeight: share(shareNewest),
		Weigher: func(k string, n *newest) uint32 { return weight(len(k) + n.bytes) }}); err != nil {
		return nil, err
	}
	if c.shards, err = otter.New(&otter.Options[string, *holding]{MaximumSize: holdings}); err != nil {
		return nil, err
	}
	c.groups, err = otter.New(&otter.Options[partKey, *loaded]{MaximumWeight: share(100 - shareManifest - shareStatuses - shareFooters - shareNewest),
		Weigher: func(k partKey, l *loaded) uint32 {
			return weight(len(k.object) + len(k.conversation) + batchBytes(l.batch))
		}})
	return c, err
}

func (c *caches) close() {
	c.looks.StopAllGoroutines()
	c.statuses.StopAllGoroutines()
	c.footers.StopAllGoroutines()
	c.groups.StopAllGoroutines()
	c.newest.StopAllGoroutines()
	c.shards.StopAllGoroutines()
}

// batchBytes is about the memory of a batch: its values, and for each the places of it.
func batchBytes(b *message.Batch) int { return b.Bytes() + b.Len()*(16+8*b.Schema().Len()) }

func weight(n int) uint32 {
	return uint32(min(n+entryOverhead, math.MaxUint32)) //nolint:gosec // bounded
}

// damageLog remembers which damage was reported, so that a damaged object that is read
// a thousand times is one line in the log. The metric counts each time.
type damageLog struct {
	clock func() time.Time
	every time.Duration
	mu    sync.Mutex
	until map[string]time.Time
}

const (
	damageEvery  = 10 * time.Minute
	failureEvery = 10 * time.Second
	damageKept   = 10_000
)

func newDamageLog(clock func() time.Time, every time.Duration) *damageLog {
	return &damageLog{clock: clock, every: every, until: map[string]time.Time{}}
}

// first says whether it is to be reported now.
func (d *damageLog) first(what string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.clock()
	if t.Before(d.until[what]) {
		return false
	}
	if len(d.until) >= damageKept {
		clear(d.until)
	}
	d.until[what] = t.Add(d.every)
	return true
}
