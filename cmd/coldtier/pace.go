package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
)

// pace holds a job back: it asks the warm servers and whether somebody has stopped the job,
// and tells the manifest and whoever measures of its pauses.
type pace struct {
	*warm.Pace
	tables map[manifest.Shard]*warm.Table
	notes  *pauseNotes
	limit  *timeLimit
}

// newPace makes the pace of a job, manifest.StopArchive or manifest.StopPurge. It is closed
// with the parts.
func (a *app) newPace(p *parts, job string, c config.Pace) (*pace, error) {
	x := &pace{tables: map[manifest.Shard]*warm.Table{}, notes: newPauseNotes(p.manifest, p.owner, a.now, a.log), limit: p.limit}
	for _, t := range p.tables {
		x.tables[t.Shard()] = t
	}
	var err error
	x.Pace, err = p.warm.Pace(warm.PaceConfig{
		Job: job, Now: a.now, Sleep: sleep, Stopped: newStopWatch(p.manifest, job, a.now, sleep).check,
		Limits: warm.Limits{
			RowsPerSecond: int64(c.RowsPerSecond), BytesPerSecond: c.BytesPerSecond, MaxReplicaLag: c.MaxReplicaLag, MaxThreadsRunning: c.MaxThreadsRunning,
			MaxHistoryLength: int64(c.MaxHistoryLength), PauseQuery: c.PauseQuery, Hours: c.Hours, Zone: p.cfg.Source.Zone, MaxImpact: c.MaxImpact, MaxPause: c.MaxPause,
		},
		OnLag: a.telemetry.lagged,
		OnPause: func(w warm.Pause) {
			x.notes.take(w)
			if a.onPause != nil {
				a.onPause(w)
			}
		},
	}, a.log)
	if err != nil {
		return nil, errors.Join(err, x.notes.close())
	}
	p.closers, p.pace = append(p.closers, x), x
	return x, nil
}

// Close ends the pauses, and what the manifest says of them.
func (x *pace) Close() error { return errors.Join(x.Pace.Close(), x.notes.close()) }

func (x *pace) wait(ctx context.Context, s manifest.Shard) error {
	if err := x.limit.Up(); err != nil {
		return err
	}
	ctx, end := x.limit.waiting(ctx)
	defer end()
	t, ok := x.tables[s]
	if !ok {
		return x.Pace.Stopped(ctx) // a table that is gone: the job finds that out itself
	}
	return x.Pace.Wait(ctx, t)
}

func (x *pace) ready(ctx context.Context, s manifest.Shard) (time.Duration, error) {
	if err := x.limit.Up(); err != nil {
		return 0, err
	}
	t, ok := x.tables[s]
	if !ok {
		return 0, x.Pace.Stopped(ctx)
	}
	return x.Pace.Ready(ctx, t)
}

// seconds is for how long steps were held back, by cause.
func (x *pace) seconds() map[string]float64 {
	all := map[string]float64{}
	for c, d := range x.Throttled() {
		all[string(c)] = d.Round(time.Millisecond).Seconds()
	}
	return all
}

// archivePace is a pace for archive.
type archivePace struct{ *pace }

func (x archivePace) told(err error) error {
	return also(err, [2]error{warm.ErrBusy, archive.ErrPaused}, [2]error{warm.ErrHours, archive.ErrPaused}, [2]error{errStopped, archive.ErrStopped})
}

func (x archivePace) Wait(ctx context.Context, s manifest.Shard) error { return x.told(x.wait(ctx, s)) }

func (x archivePace) Ready(ctx context.Context, s manifest.Shard) (time.Duration, error) {
	d, err := x.ready(ctx, s)
	return d, x.told(err)
}

func (x archivePace) Stopped(ctx context.Context) error { return x.told(x.Pace.Stopped(ctx)) }

func (x archivePace) Read(s manifest.Shard, rows, bytes int) {
	if t, ok := x.tables[s]; ok {
		x.Spent(t, int64(rows), int64(bytes))
	}
}

// purgePace is a pace for purge.
type purgePace struct{ *pace }

func (x purgePace) told(err error) error {
	return also(err, [2]error{warm.ErrBusy, purge.ErrThrottled}, [2]error{warm.ErrHours, purge.ErrHours}, [2]error{errStopped, purge.ErrStopped})
}

func (x purgePace) Wait(ctx context.Context, s manifest.Shard) error { return x.told(x.wait(ctx, s)) }

func (x purgePace) Ready(ctx context.Context, s manifest.Shard) (time.Duration, error) {
	d, err := x.ready(ctx, s)
	return d, x.told(err)
}

func (x purgePace) Stopped(ctx context.Context) error { return x.told(x.Pace.Stopped(ctx)) }

func (x purgePace) Deleted(s manifest.Shard, rows uint64) {
	if t, ok := x.tables[s]; ok {
		x.Pace.Deleted(t, rows)
	}
}

// heldBackText says for how long a run was held back.
func heldBackText(w io.Writer, held map[string]float64) {
	var parts []string
	for _, c := range slices.Sorted(maps.Keys(held)) {
		if held[c] > 0 {
			parts = append(parts, c+" "+seconds(held[c]))
		}
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "held back for the servers' sake: %s\n", strings.Join(parts, ", "))
	}
}

// notePauses is how often the manifest is told of a pause that lasts.
const notePauses = manifest.PauseKept / 4

// pauseNotes tells the manifest of pauses, in the background: a pause is not to wait for it.
type pauseNotes struct {
	store *manifest.Store
	owner string
	now   func() time.Time
	log   *slog.Logger
	news  chan struct{}
	done  chan struct{}
	stop  context.CancelFunc

	mu    sync.Mutex
	last  map[string]warm.Pause // by server
	ended map[string]warm.Pause
}

func newPauseNotes(store *manifest.Store, owner string, now func() time.Time, log *slog.Logger) *pauseNotes {
	ctx, stop := context.WithCancel(context.Background())
	n := &pauseNotes{store: store, owner: owner, now: now, log: log, news: make(chan struct{}, 1), done: make(chan struct{}), stop: stop,
		last: map[string]warm.Pause{}, ended: map[string]warm.Pause{}}
	go func() {
		defer close(n.done)
		tick := time.NewTicker(notePauses)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-n.news:
			case <-tick.C:
			}
			n.tell(ctx)
		}
	}()
	return n
}

func (n *pauseNotes) take(w warm.Pause) {
	if w.Server == "" { // a stop, which the manifest knows
		return
	}
	n.mu.Lock()
	if w.Ended.IsZero() {
		n.last[w.Server] = w
		delete(n.ended, w.Server)
	} else {
		n.ended[w.Server] = w
		delete(n.last, w.Server)
	}
	n.mu.Unlock()
	select {
	case n.news <- struct{}{}:
	default: // it will look
	}
}

// tell writes what lasts and what has ended. What cannot be written is tried again.
func (n *pauseNotes) tell(ctx context.Context) {
	n.mu.Lock()
	last, ended := maps.Clone(n.last), maps.Clone(n.ended)
	n.mu.Unlock()
	var errs []error
	for _, w := range last {
		now := n.now()
		var left *time.Duration
		if !w.Until.IsZero() {
			d := max(w.Until.Sub(now), 0)
			left = &d
		}
		errs = append(errs, n.store.NotePause(ctx, manifest.Pause{Owner: n.owner, Job: w.Job, Server: w.Server, Cause: string(w.Cause), Why: w.Why}, max(now.Sub(w.Since), 0), left))
	}
	for server, w := range ended {
		err := n.store.EndPause(ctx, n.owner, w.Job, server)
		errs = append(errs, err)
		if err == nil {
			n.mu.Lock()
			if n.ended[server] == w {
				delete(n.ended, server)
			}
			n.mu.Unlock()
		}
	}
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		n.log.Warn("status does not show the pauses of this run", "error", err)
	}
}

// close ends the notes. Those that cannot be taken back are seen to be of a process that
// is gone.
func (n *pauseNotes) close() error {
	n.stop()
	<-n.done
	n.mu.Lock()
	for server, w := range n.last {
		n.ended[server] = w
		delete(n.last, server)
	}
	none := len(n.ended) == 0
	n.mu.Unlock()
	if none {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	n.tell(ctx)
	return nil
}
