package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
)

// tablesKept is after how long the warm tables are looked for anew, so that a server
// sees those that were added. Until then rows in them are not seen.
const (
	tablesKept = time.Minute
	tablesSoon = time.Second
)

// vanishedKept is how long a table that is no longer listed is still read for the
// conversations that the cold tier has from it. Their pages are PENDING meanwhile: while
// a table is renamed, or altered by a tool that does so, none may be answered as if it
// had never been.
const vanishedKept = 10 * time.Minute

// warmReader is the warm tables for restore.
type warmReader struct {
	a      *app
	w      *warm.Warm
	tables atomic.Pointer[map[manifest.Shard]warmTable]
	base   context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	asked time.Time                    // when they were last looked for
	seen  map[manifest.Shard]time.Time // when each was last among them
	wg    sync.WaitGroup
}

// warmTable is a table, and whether it was there when they were last looked for.
type warmTable struct {
	*warm.Table
	listed bool
}

// openWarmReader finds the warm tables and insists that pages can be read from each.
func (a *app) openWarmReader(ctx context.Context, p *parts) (*warmReader, error) {
	if err := a.openWarm(ctx, p); err != nil {
		return nil, err
	}
	r := &warmReader{a: a, w: p.warm, asked: a.now(), seen: map[manifest.Shard]time.Time{}}
	if err := r.take(p.tables); err != nil {
		return nil, err
	}
	r.base, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.closers = append(p.closers, r)
	return r, nil
}

func (r *warmReader) take(tables []*warm.Table) error {
	m := make(map[manifest.Shard]warmTable, len(tables))
	now := r.a.now()
	var errs []error
	for _, t := range tables {
		if _, err := t.PageIndex(); err != nil {
			errs = append(errs, fmt.Errorf("fetch.warm: %w", err))
		}
		m[t.Shard()] = warmTable{t, true}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for shard := range m {
		r.seen[shard] = now
	}
	if old := r.tables.Load(); old != nil {
		for shard, t := range *old {
			if _, ok := m[shard]; !ok && now.Sub(r.seen[shard]) < vanishedKept {
				m[shard] = warmTable{t.Table, false}
			}
		}
	}
	r.tables.Store(&m)
	return nil
}

// Close ends what runs in the background.
func (r *warmReader) Close() error {
	r.cancel()
	r.wg.Wait()
	return nil
}

// refresh looks for the tables anew, in the background: when that was long ago, or soon
// because one seems to be gone.
func (r *warmReader) refresh(soon bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.a.now()
	if age := now.Sub(r.asked); r.base.Err() != nil || age < tablesKept && !(soon && age > tablesSoon) {
		return
	}
	r.asked = now
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(r.base, tablesKept/2)
		defer cancel()
		tables, err := r.w.Discover(ctx)
		if err == nil {
			err = r.take(tables)
		}
		if err != nil && r.base.Err() == nil {
			r.a.log.Warn("the warm tables could not be listed; those known before are read", "error", err)
		}
	})
}

func (r *warmReader) Holding(ctx context.Context, conversation []byte) ([]manifest.Shard, error) {
	r.refresh(false)
	var all []*warm.Table
	for _, t := range *r.tables.Load() {
		if t.listed {
			all = append(all, t.Table)
		}
	}
	found, err := r.w.Holding(ctx, all, conversation)
	if err != nil {
		r.refresh(true) // it may be that a table was dropped
		return nil, err
	}
	shards := make([]manifest.Shard, len(found))
	for i, t := range found {
		shards[i] = t.Shard()
	}
	return shards, nil
}

func (r *warmReader) table(shard manifest.Shard) (*warm.Table, error) {
	t, ok := (*r.tables.Load())[shard]
	if !ok {
		return nil, fmt.Errorf("warm table %s: %w", shard, restore.ErrGone)
	}
	return t.Table, nil
}

func goneError(err error) error { return also(err, [2]error{warm.ErrGone, restore.ErrGone}) }

func (r *warmReader) Page(ctx context.Context, shard manifest.Shard, q restore.WarmQuery) (*message.Batch, error) {
	t, err := r.table(shard)
	if err != nil {
		return nil, err
	}
	b, err := t.Page(ctx, warm.PageQuery(q))
	return b, goneError(err)
}

func (r *warmReader) Messages(ctx context.Context, shard manifest.Shard, conversation []byte, ids []uint64, staging string) (*message.Batch, error) {
	t, err := r.table(shard)
	if err != nil {
		return nil, err
	}
	b, err := t.Messages(ctx, conversation, ids, staging)
	return b, goneError(err)
}
