package restore

import (
	"context"
	"slices"

	"github.com/coldtier/coldtier/manifest"
)

// A conversation is hot when it was asked for hotAt times of late. The sketch forgets by
// halves, so that "of late" is some tens of thousands of requests.
const (
	hotWidth = 1 << 14
	hotDepth = 4
	hotHalve = 50_000
	hotAt    = 5
)

// newestRows is how many cold rows of a hot conversation are kept.
const newestRows = 100

// newest are a conversation's newest cold rows, without statuses.
type newest struct {
	rows  []Row // newest first
	all   bool  // there are no others
	at    manifest.Versions
	bytes int
}

// fromNewest answers from the newest rows of a hot conversation, if they are kept, still
// hold and reach far enough; nil if not.
func (f *Fetcher) fromNewest(ctx context.Context, n *now, q Query, limit int) *Page {
	if !q.newest() || q.from() != FromAny || f.Warm != nil {
		return nil
	}
	hot := f.hot.Add(q.Conversation) >= hotAt
	kept, ok := f.caches.newest.GetIfPresent(string(q.Conversation))
	if !ok {
		if hot {
			f.m.miss(cacheNewest)
			f.keepNewest(q.Conversation)
		}
		return nil
	}
	w := &walk{f: f, q: q, limit: limit, newest: true, looked: true}
	w.rows = slices.DeleteFunc(slices.Clone(kept.rows), func(r Row) bool { return !w.inside(r.Cursor()) })
	if !kept.all {
		far := kept.rows[len(kept.rows)-1].Cursor() - 1 // of the last cursor all rows are there
		w.more, w.reach = true, &far
	}
	if !kept.all && len(w.rows) < limit {
		return nil
	}
	v, err := n.wait(ctx)
	if err != nil || v.Live != kept.at.Live {
		f.m.miss(cacheNewest)
		if err == nil && hot {
			f.keepNewest(q.Conversation)
		}
		return nil
	}
	f.m.hit(cacheNewest)
	p := w.cut()
	if !kept.all && len(w.rows) < 2*limit { // the page after this one is not among them
		f.prefetch(q, p, limit)
	}
	return p
}

// keepNewest reads a conversation's newest rows in the background.
func (f *Fetcher) keepNewest(conversation []byte) {
	f.aside(func(ctx context.Context) {
		at := f.known.Load() // before the rows are read
		w := &walk{f: f, q: Query{Conversation: conversation}, limit: newestRows, newest: true, coldOnly: true}
		if at == nil || w.read(ctx) != nil {
			return
		}
		p := w.cut()
		if p.State != Complete || len(p.Rows) == 0 {
			return
		}
		n := &newest{rows: p.Rows, all: !p.HasMore, at: *at}
		for i, r := range p.Rows {
			if i == 0 || r.Batch != p.Rows[i-1].Batch {
				n.bytes += batchBytes(r.Batch)
			}
		}
		if last := p.Rows[len(p.Rows)-1].Cursor(); last == 0 {
			n.all = true // nothing comes before cursor 0
		}
		f.caches.newest.Set(string(conversation), n)
	})
}

// prefetch reads what the page after this one needs: who reads back goes on.
func (f *Fetcher) prefetch(q Query, p *Page, limit int) {
	if q.from() != FromAny || p.Next == nil {
		return
	}
	f.aside(func(ctx context.Context) {
		w := &walk{f: f, q: Query{Conversation: q.Conversation, Before: p.Next}, limit: limit, newest: true, coldOnly: true}
		if w.read(ctx) == nil {
			f.m.prefetched.Inc()
		}
	})
}

// asideAtOnce is how many reads that nobody waits for run at once.
const asideAtOnce = 16

// aside runs work in the background, unless there is much to do or a store is unwell.
func (f *Fetcher) aside(run func(ctx context.Context)) {
	if !f.cfg.Ahead || f.limits.InFlight() > asideAtOnce || !f.well() || !f.asideSlots.TryAcquire(1) {
		return
	}
	f.wg.Go(func() {
		defer f.asideSlots.Release(1)
		ctx, cancel := context.WithTimeoutCause(f.base, f.cfg.FillAfter, errFill)
		defer cancel()
		run(ctx)
	})
}
