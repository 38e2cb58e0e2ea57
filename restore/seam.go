package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// Warm is the warm tables as a reader uses them.
type Warm interface {
	// Holding gives the tables that have rows of a conversation now.
	Holding(ctx context.Context, conversation []byte) ([]manifest.Shard, error)
	// Page reads rows of a conversation, in message.Compare order. ErrGone: there is no
	// such table.
	Page(ctx context.Context, shard manifest.Shard, q WarmQuery) (*message.Batch, error)
	// Messages reads a conversation's messages by their IDs.
	Messages(ctx context.Context, shard manifest.Shard, conversation []byte, ids []uint64, staging string) (*message.Batch, error)
}

// WarmQuery asks a warm table for a page.
type WarmQuery struct {
	Conversation  []byte
	Before, After *uint64 // cursors, exclusive
	Limit         int
	Newest        bool   // the newest of them instead of the oldest
	Staging       string // "", or the staging table of a purge that is read instead; ErrGone when there is none
}

// ErrGone says that a table, or a staging table, is not there.
var ErrGone = errors.New("table is not there")

// seam is what a page has from the warm tables.
//
// Rows move from warm to cold alone, and are in the cold tier before they leave warm. So
// warm is read first and the manifest after it: what warm had no longer, the manifest
// knows. Two things are not as simple.
//
// A slice on which no purge was ever begun is in warm as a whole, and as it is now; its
// copy may be older. So its segments are left out.
//
// A purge by partition moves rows into a staging table, and back if they differ from the
// copy: then rows are neither in the table nor, as they are, in the cold tier. The manifest
// knows the staging table from before the exchange until after the rows' return, and
// counts both. So manifest.Moving is read before the table, and its version again after
// it. If that has changed the page is read anew. Staging tables that are in use are read
// as well, between two readings of the table: wherever a row was moved meanwhile, one of
// the three has it.
type seam struct {
	f      *Fetcher
	shards []manifest.Shard
	moving manifest.Moving
	ids    map[uint64]bool         // messages that warm gave
	gone   map[manifest.Shard]bool // tables that are not there
	far    *uint64                 // nearest cursor that warm may have and was not read
	ok     bool
}

func (s *seam) read() bool { return s == nil || s.ok }

func (s *seam) edge() (uint64, bool) {
	if s == nil || s.far == nil {
		return 0, false
	}
	return *s.far, true
}

// has says whether warm has the whole of a segment.
func (s *seam) has(ref manifest.SegmentRef) bool {
	return s != nil && !ref.PurgeBegun && slices.Contains(s.shards, ref.Slice.Shard) && !s.gone[ref.Slice.Shard]
}

// settled says errMoved when rows went out or came back since the seam was opened.
// now must have begun after warm was read.
func (s *seam) settled(ctx context.Context, now *now) error {
	if s == nil {
		return nil
	}
	v, err := now.wait(ctx)
	if err == nil && v.Moves != s.moving.Version {
		err = errMoved
	}
	return err
}

// openSeam finds the tables of a conversation and what is being moved in them.
func (f *Fetcher) openSeam(ctx context.Context, conversation []byte) (*seam, error) {
	s := &seam{f: f, ids: map[uint64]bool{}, gone: map[manifest.Shard]bool{}}
	err := again(ctx, func() (err error) {
		s.moving, err = f.Manifest.Moving(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.shards, err = f.shardsOf(ctx, conversation); err != nil {
		return nil, err
	}
	for _, st := range s.moving.InUse { // all that the conversation has of a table may be in one
		if !slices.Contains(s.shards, st.Shard) {
			s.shards = append(slices.Clone(s.shards), st.Shard)
		}
	}
	return s, nil
}

// stagings are the staging tables of a shard that are in use.
func (s *seam) stagings(shard manifest.Shard) (names []string) {
	for _, st := range s.moving.InUse {
		if st.Shard == shard && !slices.Contains(names, st.Table) { // several slices of one partition share it
			names = append(names, st.Table)
		}
	}
	return names
}

// each reads every table, the staging tables in use, and those tables again.
func (s *seam) each(ctx context.Context, read func(ctx context.Context, shard manifest.Shard, staging string) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	for _, shard := range s.shards {
		g.Go(func() error {
			order := []string{""}
			for _, name := range s.stagings(shard) {
				order = append(order, name, "")
			}
			for _, staging := range order {
				err := read(ctx, shard, staging)
				switch {
				case errors.Is(err, ErrGone) && staging == "":
					mu.Lock()
					s.gone[shard] = true
					mu.Unlock()
				case err != nil && !errors.Is(err, ErrGone):
					return fmt.Errorf("warm table %s: %w", shard, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// readWarm reads the page's rows from the warm tables.
func (w *walk) readWarm(ctx context.Context) error {
	if w.f.Warm == nil || w.coldOnly {
		return nil
	}
	var err error
	if w.warm, err = w.f.openSeam(ctx, w.q.Conversation); err != nil {
		return w.warmMiss(ctx, err)
	}
	var mu sync.Mutex
	var all [][]Row
	err = w.warm.each(ctx, func(ctx context.Context, shard manifest.Shard, staging string) error {
		rows, far, err := w.warmRows(ctx, shard, staging)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, rows)
		if far != nil && (w.warm.far == nil || w.nearer(*far, *w.warm.far)) {
			w.warm.far = far
		}
		return nil
	})
	if err != nil {
		return w.warmMiss(ctx, err)
	}
	w.warm.ok = true
	for _, rows := range all {
		w.merge(rows)
		for _, r := range rows {
			w.warm.ids[r.MessageID()] = true
		}
	}
	return nil
}

// warmRows reads as many rows of one table as fill the page, and the cursor from which
// on there may be more.
func (w *walk) warmRows(ctx context.Context, shard manifest.Shard, staging string) ([]Row, *uint64, error) {
	for limit := w.limit + 2; ; limit *= 2 {
		b, err := w.f.Warm.Page(ctx, shard, WarmQuery{Conversation: w.q.Conversation, Before: w.q.Before, After: w.q.After, Limit: limit, Newest: w.newest, Staging: staging})
		if err != nil {
			return nil, nil, err
		}
		rows := w.inPage(b, FromWarm)
		if b.Len() < limit {
			return rows, nil, nil
		}
		far := rows[len(rows)-1].Cursor()
		if n, _ := slices.BinarySearchFunc(rows, far, func(r Row, far uint64) int {
			if w.nearer(r.Cursor(), far) {
				return -1
			}
			return 1
		}); n > w.limit {
			return rows, &far, nil
		}
	}
}

// warmMiss notes that the warm tables did not answer; errMoved it gives back.
func (w *walk) warmMiss(ctx context.Context, err error) error {
	if errors.Is(err, errMoved) {
		return err
	}
	w.miss(Missing{Cause: CauseWarm, Reason: "the warm tables do not answer: " + plain(ctx, err)})
	w.looked = false
	return nil
}

// How long it is known which tables hold a conversation: it is used, and looked up anew
// in the background, and no longer used. Rows that a conversation gets in a table that had
// none of it before, as when a platform moves conversations or begins a table each
// month, are seen when it was looked up again. That none does is never kept.
const (
	shardsFresh = 10 * time.Second
	shardsKept  = time.Minute
	probes      = 8 // at once
)

type holding struct {
	shards []manifest.Shard
	at     time.Time
}

// shardsOf are the tables that hold rows of a conversation, or from which the cold tier
// has some: of those all rows may be in a staging table.
func (f *Fetcher) shardsOf(ctx context.Context, conversation []byte) ([]manifest.Shard, error) {
	key := string(conversation)
	probe := func(ctx context.Context) (*holding, error) { return f.probe(ctx, conversation) }
	if kept, ok := f.caches.shards.GetIfPresent(key); ok {
		switch age := f.cfg.Clock().Sub(kept.at); {
		case age < shardsFresh:
			return kept.shards, nil
		case age < shardsKept:
			f.wg.Go(func() { _, _, _ = f.probing.Do(f.base, key, probe) }) // who finds it out of date asks again, and hears the error
			return kept.shards, nil
		}
	}
	for {
		h, shared, err := f.probing.Do(ctx, key, probe)
		if err != nil {
			return nil, err
		}
		if len(h.shards) > 0 || !shared { // another request may have begun it before the first message came
			return h.shards, nil
		}
	}
}

// probe asks all tables for a conversation, and the manifest.
func (f *Fetcher) probe(ctx context.Context, conversation []byte) (*holding, error) {
	h := &holding{at: f.cfg.Clock()}
	var refs []manifest.SegmentRef
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		h.shards, err = f.Warm.Holding(gctx, conversation)
		return err
	})
	g.Go(func() error {
		return f.again(gctx, "segments", func() (err error) {
			refs, err = f.Manifest.Segments(gctx, manifest.SegmentQuery{Conversation: conversation, Limit: segmentsAtOnce})
			return err
		})
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, r := range refs {
		if !slices.Contains(h.shards, r.Slice.Shard) {
			h.shards = append(h.shards, r.Slice.Shard)
		}
	}
	slices.SortFunc(h.shards, func(a, b manifest.Shard) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(a.Table, b.Table))
	})
	if len(h.shards) > 0 {
		f.caches.shards.Set(string(conversation), h)
	}
	return h, nil
}
