package warm

import (
	"context"
	"sync"
	"time"
)

// definitionAge is for how long pages trust a definition. It need not be short for their
// sake: a column that is gone is an error, which has it read anew. Only a column
// that was added is not seen until then.
const definitionAge = time.Minute

// refreshing is how many definitions of a database are read anew at a time. Who finds no
// turn reads by the old one.
const refreshing = 2

// refresher reads a table's definition anew, once at a time.
type refresher struct {
	mu    sync.Mutex
	done  chan struct{} // closed when the reading under way ends; nil: none is
	tried time.Time
}

// refresh reads the definition anew when it is old. It waits for at most a quarter of
// the time that ctx has left: the old one will do.
func (t *Table) refresh(ctx context.Context) {
	done := t.startRefresh()
	if done == nil {
		return
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deadline.Sub(t.d.cfg.Now())/4)
		defer cancel()
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// startRefresh is nil when nothing is to be waited for.
func (t *Table) startRefresh() chan struct{} {
	now := t.d.cfg.Now()
	fresh := func(at time.Time) bool { return now.Sub(at) < definitionAge }
	r := &t.refresher
	if fresh(t.def.Load().read) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done != nil || fresh(r.tried) {
		return nil
	}
	select {
	case t.d.refreshes <- struct{}{}:
	default:
		return nil
	}
	done := make(chan struct{})
	if !t.d.upkeep.do(killTime, func(ctx context.Context) {
		if err := t.reload(ctx, t.d.reads); err != nil {
			t.d.log.Warn("a table's definition could not be read anew: pages go on with the old one", "table", t.shard.String(), "error", err)
		}
		<-t.d.refreshes
		r.mu.Lock()
		r.done = nil
		r.mu.Unlock()
		close(done)
	}) {
		<-t.d.refreshes
		return nil
	}
	r.done, r.tried = done, now
	return done
}

// renewed is a definition other than old, which was found outdated: the one that
// somebody else has read meanwhile, or that is read now.
func (t *Table) renewed(ctx context.Context, s *session, old *definition) (*definition, error) {
	r := &t.refresher
	for {
		r.mu.Lock()
		if def := t.def.Load(); def != old {
			r.mu.Unlock()
			return def, nil
		}
		busy := r.done
		if busy == nil {
			r.done = make(chan struct{})
			r.mu.Unlock()
			break
		}
		r.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	def, err := t.d.define(ctx, s, t.shard.Table)
	if err == nil {
		t.def.Store(def)
	}
	r.mu.Lock()
	close(r.done)
	r.done = nil
	r.mu.Unlock()
	return def, err
}
