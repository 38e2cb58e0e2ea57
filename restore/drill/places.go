package drill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/rehydrate"
	"github.com/coldtier/coldtier/restore/selection"
)

// places are the scratch databases of a run. Each holds tables of one warm database, by
// their own names, each of one definition.
type places struct {
	r  *run
	mu sync.Mutex
	by map[string]*place
	n  int
}

// place is a scratch database.
type place struct {
	key      string
	database string
	target   *Target
}

// get gives the place of a kind for a warm database; of several definitions of a table each
// has a place of its own.
func (x *places) get(ctx context.Context, kind, database string, definition int) (*place, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := fmt.Sprintf("%s %d %s", kind, definition, database)
	if p := x.by[key]; p != nil {
		return p, nil
	}
	name, err := x.r.Scratch.Make(ctx, fmt.Sprintf("%s%d", kind, x.n))
	if err != nil {
		return nil, err
	}
	x.n++
	t, err := x.r.Open(ctx, x.r.Scratch.DSN(name))
	if err != nil {
		return nil, err
	}
	p := &place{key: key, database: name, target: t}
	x.by[key] = p
	return p, nil
}

// drop drops one whose rows are not needed any more.
func (x *places) drop(ctx context.Context, p *place) error {
	x.mu.Lock()
	delete(x.by, p.key)
	x.mu.Unlock()
	return errors.Join(p.target.Close(), x.r.Scratch.Drop(ctx, p.database))
}

// close closes the connections. The databases are dropped with the others.
func (x *places) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, p := range x.by {
		errs = append(errs, p.target.Close())
	}
	return errors.Join(errs...)
}

// bring restores a selection into a place, as coldtier restore does.
func (r *run) bring(ctx context.Context, p *place, sel selection.Selection, progress rehydrate.Progress) (*rehydrate.Report, error) {
	x, err := rehydrate.New(rehydrate.Deps{Reader: r.reader, Manifest: r.Deps.Manifest, Target: p.target, Server: p.target.Server, Progress: progress},
		rehydrate.Config{Create: true, Memory: r.cfg.Memory, Slices: 1, Now: r.cfg.Now, Sleep: r.cfg.Sleep, Step: r.cfg.Step})
	if err != nil {
		return nil, err
	}
	plan, err := x.Plan(ctx, sel)
	if err != nil {
		return nil, err
	}
	return x.Execute(ctx, plan)
}

// slice selects one slice.
func slice(k manifest.SliceKey) selection.Selection {
	day := k.Day
	return selection.Selection{From: &day, To: &day, Shard: exactly(k.Shard.String())}
}

// exactly is the pattern that fits one name alone.
func exactly(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// sinkOf looks at a table of a place as rows of a schema see it.
func (p *place) sinkOf(ctx context.Context, table string, s *message.Schema) (rehydrate.Sink, error) {
	t, err := p.target.Table(ctx, table)
	if err != nil {
		return nil, err
	}
	return t.Sink(s)
}

// patiently does a step of the scratch server that may be repeated, a few times.
func patiently[T any](ctx context.Context, r *run, do func() (T, error)) (out T, err error) {
	pause := 100 * time.Millisecond
	for n := 1; ; n++ {
		if out, err = do(); err == nil || !errors.Is(err, rehydrate.ErrAgain) || n == 6 || ctx.Err() != nil {
			return out, err
		}
		if e := r.cfg.Sleep(ctx, pause); e != nil {
			return out, errors.Join(err, e)
		}
		pause *= 2
	}
}
