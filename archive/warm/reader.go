package warm

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// reader is a session for one read that somebody waits for, from a pool of its own. The
// pool of database/sql opens connections for those who wait in it one after the other, without
// their contexts: a server that hangs for a second would keep them waiting for many more. So nobody
// waits in it: who has no turn at the gate waits there.
func (d *database) reader(ctx context.Context) (*session, error) {
	select {
	case d.gate <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("database %s: all %d connections are busy: %w", d.where, cap(d.gate), context.Cause(ctx))
	}
	s, err := d.connect(ctx, d.reads)
	if err != nil {
		<-d.gate
		return nil, err
	}
	return s, nil
}

// release gives a reader back.
func (s *session) release() {
	s.leave()
	<-s.d.gate
}

// leave is close that does not wait until what was cut off is killed.
func (s *session) leave() {
	if s.cut {
		s.drop()
		s.d.kills.add(s.id)
	} else {
		_ = s.conn.Close() // gives it back to the pool
	}
}

// readGrace is for how long a statement may go on in the server after its reader has
// gone, should it not be killed.
const readGrace = 100 * time.Millisecond

// limited writes a statement that the server itself ends soon after ctx's deadline, so that a
// server that hung does not come back to work that nobody waits for.
func (d *database) limited(ctx context.Context, st statement) string {
	limit := d.cfg.StatementLimit
	if deadline, ok := ctx.Deadline(); ok {
		if left := deadline.Sub(d.cfg.Now()) + readGrace; left > 0 {
			limit = min(limit, left)
		}
	}
	ms := max(limit.Milliseconds(), 1)
	return fmt.Sprintf("/*M!100100 SET STATEMENT max_statement_time = %d.%03d FOR */ %sSELECT /*+ MAX_EXECUTION_TIME(%d) */ %s", ms/1000, ms%1000, st.open, ms, st.body)
}

// upkeep is work that nobody waits for. It ends with the Warm.
type upkeep struct {
	mu     sync.Mutex
	ended  bool
	wg     sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

func newUpkeep() *upkeep {
	u := &upkeep{}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	return u
}

// do runs fn, which must return soon after its context ends, within limit.
func (u *upkeep) do(limit time.Duration, fn func(ctx context.Context)) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return false
	}
	u.wg.Go(func() {
		ctx, cancel := context.WithTimeout(u.ctx, limit)
		defer cancel()
		fn(ctx)
	})
	return true
}

func (u *upkeep) end() {
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
	u.cancel()
	u.wg.Wait()
}

// kills are the cut-off statements of a database that are still to be killed, one after
// the other. They end at their time limit too.
type kills struct {
	d       *database
	mu      sync.Mutex
	ids     []uint64 // of connections
	running bool
}

// maxKills bounds those that wait: a server that does not take them is in no state to be told more.
const maxKills = 1000

func (k *kills) add(id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.ids) < maxKills {
		k.ids = append(k.ids, id)
	}
	if !k.running {
		k.running = k.d.upkeep.do(killTime, k.run)
	}
}

func (k *kills) run(ctx context.Context) {
	for {
		k.mu.Lock()
		n := len(k.ids)
		if n == 0 {
			k.running = false
			k.mu.Unlock()
			return
		}
		id := k.ids[0]
		k.ids = k.ids[1:]
		k.mu.Unlock()
		if err := k.d.killQuery(ctx, id); err != nil && !answered(err) {
			k.mu.Lock()
			k.d.log.Warn("cut-off statements could not be killed and may run on to their time limit", "database", k.d.where, "statements", 1+len(k.ids), "error", err)
			k.ids, k.running = nil, false
			k.mu.Unlock()
			return
		}
	}
}

func (d *database) killQuery(ctx context.Context, id uint64) error {
	_, err := d.killer.ExecContext(ctx, fmt.Sprintf("KILL QUERY %d", id))
	if number(err) == erNoThread { // it has ended
		return nil
	}
	return err
}
