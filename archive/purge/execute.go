package purge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// Purger deletes from warm tables what is proven to be cold. It is not safe for
// concurrent use; any number of Purgers, in any number of processes, may work on
// the same tables.
type Purger struct {
	cfg    Config
	store  *manifest.Store
	tables map[manifest.Shard]Table
	cold   Cold
	marks  Marks
	log    *slog.Logger
}

// New makes a Purger of the given tables.
func New(cfg Config, store *manifest.Store, tables []Table, cold Cold, marks Marks, log *slog.Logger) (*Purger, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Purger{cfg: cfg, store: store, tables: map[manifest.Shard]Table{}, cold: cold, marks: marks, log: log}
	for _, t := range tables {
		p.tables[t.Shard()] = t
	}
	return p, nil
}

// manifestNow is the manifest database's clock, unless the worker's is skewed.
func (p *Purger) manifestNow(ctx context.Context) (time.Time, error) {
	return p.clock(ctx, "the manifest database", p.store.Now)
}

// clock reads a server's clock and refuses when the worker's is off by more than
// MaxSkew. The time that asking took is not counted as skew.
func (p *Purger) clock(ctx context.Context, whose string, read func(context.Context) (time.Time, error)) (time.Time, error) {
	before := p.cfg.Now()
	now, err := read(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("clock of %s: %w", whose, err)
	}
	after := p.cfg.Now()
	var skew time.Duration
	switch {
	case now.Before(before):
		skew = before.Sub(now)
	case now.After(after):
		skew = now.Sub(after)
	}
	if skew > MaxSkew {
		return time.Time{}, fmt.Errorf("%w: the clocks of this machine and of %s differ by %s, more than %s: set them right",
			ErrRefused, whose, skew.Round(time.Second), MaxSkew)
	}
	return now, nil
}

// Execute does what the plan lists, oldest first, and touches nothing else. A plan
// is executed once. The report is never nil; the error is Report.Err with the
// causes of failures, or what ended the run before its end.
func (p *Purger) Execute(ctx context.Context, plan *Plan) (*Report, error) {
	rep := &Report{Approved: plan.Approved, Warnings: p.warnings(), Slices: []Result{}, Left: plan.Left}
	if plan.used.Swap(true) {
		return rep, ErrPlanUsed
	}
	for _, w := range rep.Warnings {
		p.log.WarnContext(ctx, w)
	}
	began := p.cfg.Now()
	defer func() { rep.Seconds = p.cfg.Now().Sub(began).Seconds() }()
	if _, err := p.manifestNow(ctx); err != nil {
		return rep, err
	}
	p.cfg.Progress.Slices(plan.listed())
	e := &execution{Purger: p, rep: rep, halted: map[string]error{}, before: map[uint64]uint64{}}
	locked, err := e.jobs(ctx, plan.Jobs, true)
	if err == nil && len(locked) > 0 {
		_ = p.cfg.Sleep(ctx, lockPause) // an end of ctx is seen by the jobs
		_, err = e.jobs(ctx, locked, false)
	}
	if err != nil {
		return rep, err
	}
	return rep, errors.Join(append([]error{rep.Err()}, e.causes...)...)
}

// lockPause is how long a job that met a lock waits at least before its second try.
const lockPause = time.Second

// execution is a plan at work.
type execution struct {
	*Purger
	rep    *Report
	causes []error
	inRow  int               // jobs in a row that failed
	halted map[string]error  // why nothing more is done in a database
	before map[uint64]uint64 // rows of a slice that its first try deleted
}

// jobs does jobs in order; one whose server pauses lets those of other servers go first.
// Those that met a lock are given back when there is to be another try, and named in the
// report when not. The error is a crash.
func (e *execution) jobs(ctx context.Context, jobs []Job, another bool) (locked []Job, err error) {
	for len(jobs) > 0 {
		var later []Job
		pause := time.Duration(0)
		held := map[string]bool{} // databases
		for _, job := range jobs {
			db := job.Slices[0].Shard.Database
			if held[db] {
				later = append(later, job)
				continue
			}
			wait, err := e.stopped(ctx, job)
			switch {
			case err != nil:
				for _, s := range job.Slices {
					e.rep.add(Result{SliceKey: s.SliceKey, Strategy: job.Strategy, Outcome: outcome(err), Reason: err.Error(), Rows: e.before[s.ID]})
					e.cfg.Progress.SliceDone(0)
				}
				continue
			case wait > 0:
				held[db], later = true, append(later, job)
				if pause == 0 || wait < pause {
					pause = wait
				}
				continue
			}
			lock, err := e.job(ctx, job, another)
			if err != nil {
				return nil, err
			}
			if lock {
				locked = append(locked, job)
			}
		}
		if len(later) > 0 && len(later) == len(jobs) {
			_ = e.cfg.Sleep(ctx, pause) // an end of ctx is seen by the jobs
		}
		jobs = later
	}
	return locked, nil
}

// job does a job. It is locked when it met a lock and there is to be another try.
func (e *execution) job(ctx context.Context, job Job, another bool) (locked bool, err error) {
	jctx, done := e.cfg.Observer.Job(ctx, job.keys())
	results, tidy, err := e.run(jctx, job)
	done(results)
	var c crash
	if errors.As(err, &c) {
		return false, err
	}
	if another && tidy && job.Staging == "" && allLocked(results) {
		for i, r := range results {
			e.before[job.Slices[i].ID] = r.Rows
		}
		return true, nil
	}
	for i, r := range results {
		r.Rows += e.before[job.Slices[i].ID]
		e.rep.add(r)
		e.logResult(jctx, r)
		e.cfg.Progress.SliceDone(int(r.Rows)) //nolint:gosec // a count of rows
	}
	switch {
	case errors.Is(err, ErrThrottled) || errors.Is(err, ErrHours) || errors.Is(err, ErrStopped):
		e.halted[job.Slices[0].Shard.Database] = err
		e.inRow = 0
	case err != nil && outcome(err) == Failed:
		e.causes = append(e.causes, err)
		e.inRow++
	default:
		e.inRow = 0
	}
	return false, nil
}

func (j Job) keys() (all []manifest.SliceKey) {
	for _, s := range j.Slices {
		all = append(all, s.SliceKey)
	}
	return all
}

func allLocked(results []Result) bool {
	return !slices.ContainsFunc(results, func(r Result) bool { return r.Outcome != Locked })
}

// stopped says why a job is not begun, or for how long it is not.
func (e *execution) stopped(ctx context.Context, job Job) (time.Duration, error) {
	if ctx.Err() != nil {
		return 0, fmt.Errorf("%w: the run was stopped: %w", errLeft, context.Cause(ctx))
	}
	if e.inRow >= maxFailures {
		return 0, fmt.Errorf("%w: %d slices in a row failed", errLeft, e.inRow)
	}
	if err := e.halted[job.Slices[0].Shard.Database]; err != nil {
		return 0, err
	}
	return e.cfg.Pace.Ready(ctx, job.Slices[0].Shard) // while no lease is held
}

func (p *Purger) logResult(ctx context.Context, r Result) {
	level := slog.LevelDebug // the report has it
	if r.Outcome != Purged {
		level = slog.LevelWarn
	}
	p.log.Log(ctx, level, "purge of slice", "day", r.Day.String(), "shard", r.Shard.String(), "outcome", string(r.Outcome),
		"strategy", string(r.Strategy), "rows", r.Rows, "seconds", r.Seconds, "reason", r.Reason)
}

// unit is a slice at work.
type unit struct {
	Item
	lease   *manifest.Lease
	grant   *manifest.PurgeGrant
	by      Strategy
	purge   string           // names this purge in its marks; "" when none was put
	chunks  []manifest.Chunk // of the grant's copy, with their states as they are now
	rows    uint64           // deleted by this run
	err     error
	settled bool // the manifest knows the end: purged, drifted or given back
}

// begun says whether a delete of any of the slice's chunks was begun.
func (u *unit) begun() bool {
	return slices.ContainsFunc(u.chunks, func(c manifest.Chunk) bool { return c.State != manifest.ChunkPresent })
}

// work is a job at work.
type work struct {
	*Purger
	table Table
	job   Job
	units []*unit
	// planned is the staging table that the units' marks name already; "": they name none.
	planned string
	// isolated: the staging table may hold rows, so that the slices stay in
	// purging, for a later run to put them right.
	isolated bool
	// pending: the server may still be at what it was told, so that the lease
	// is left to run out before another run looks.
	pending bool
}

// run does a job; its error is the first of its slices', or a crash. It is tidy when
// no staging table is left.
func (p *Purger) run(ctx context.Context, job Job) (results []Result, tidy bool, first error) {
	began := p.cfg.Now()
	w := &work{Purger: p, table: p.tables[job.Slices[0].Shard], job: job}
	for _, s := range job.Slices {
		w.units = append(w.units, &unit{Item: s, by: job.Strategy})
	}
	err := w.guarded(ctx)
	var c crash
	if errors.As(err, &c) {
		return nil, false, err
	}
	seconds := p.cfg.Now().Sub(began).Seconds() / float64(len(w.units))
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	for _, u := range w.units {
		if u.err == nil && !u.settled {
			u.err = err
		}
		w.settle(ending, u)
		r := Result{SliceKey: u.SliceKey, Strategy: u.by, Outcome: Purged, Rows: u.rows, Seconds: seconds}
		if u.err != nil {
			r.Outcome, r.Reason = outcome(u.err), u.err.Error()
			if first == nil {
				first = fmt.Errorf("slice %s: %w", u.SliceKey, u.err)
			}
		} else {
			r.Bytes = u.Bytes
		}
		results = append(results, r)
	}
	return results, !w.isolated, first
}

// guarded claims the job's slices, keeps their leases while it works, and ends the
// work when one is lost.
func (w *work) guarded(ctx context.Context) error {
	for _, u := range w.units {
		l, err := w.store.Claim(ctx, u.ID, w.cfg.Owner, []manifest.State{manifest.Verified, manifest.Purging}, "")
		if err != nil {
			return w.notClaimed(ctx, u, err)
		}
		u.lease = l
		var stop func()
		ctx, stop = l.Keep(ctx)
		defer stop()
	}
	err := w.do(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		var c crash
		if !errors.As(err, &c) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	return err
}

// notClaimed tells a slice that another run purged since the plan was made from one
// that is something else now.
func (w *work) notClaimed(ctx context.Context, u *unit, err error) error {
	err = fmt.Errorf("claim of slice %s: %w", u.SliceKey, err)
	if errors.Is(err, manifest.ErrState) {
		if s, look := w.store.Slice(ctx, u.ID); look == nil && s.State == manifest.Purged && s.Live == u.Generation {
			return fmt.Errorf("%w: %w", errElsewhere, err)
		}
	}
	return err
}

// do works on claimed slices.
func (w *work) do(ctx context.Context) error {
	if err := w.cfg.step(StepClaimed); err != nil {
		return err
	}
	for _, u := range w.units {
		if err := w.asPlanned(u); err != nil {
			return err
		}
	}
	if w.job.Return != "" {
		return w.giveBack(ctx)
	}
	if err := w.safe(ctx); err != nil {
		w.isolated = w.job.Staging != ""
		return err
	}
	if err := w.grants(ctx); err != nil {
		return err
	}
	if err := w.present(ctx); err != nil {
		return err
	}
	if err := w.open(ctx); err != nil {
		return err
	}
	if err := w.cfg.step(StepGranted); err != nil {
		return err
	}
	r := w.job.Partition
	if w.job.Staging != "" {
		var err error
		if r, err = w.recover(ctx); err != nil {
			return err
		}
	}
	if err := w.sameColumns(ctx); err != nil {
		return err
	}
	return w.delete(ctx, r)
}

// asPlanned compares a claimed slice with the plan's.
func (w *work) asPlanned(u *unit) error {
	s := u.lease.Slice()
	if s.SliceKey != u.SliceKey || s.Lo != u.Lo || s.Hi != u.Hi || s.Generation != u.Generation || s.Live != u.Generation || s.Staging != w.job.Staging {
		return fmt.Errorf("slice %s: %w: generation %d, IDs [%d, %d)", u.SliceKey, errChanged, s.Generation, s.Lo, s.Hi)
	}
	return nil
}

// safe refuses when the warm server's clock or the table's IDs can't be right.
func (w *work) safe(ctx context.Context) error {
	if _, err := w.clock(ctx, "the server of "+w.table.Shard().String(), w.table.Now); err != nil {
		return err
	}
	return w.table.EpochFits(ctx)
}

// grants asks for each slice's leave. Rows that an ended run left isolated are put
// back when there is none.
func (w *work) grants(ctx context.Context) error {
	for _, u := range w.units {
		g, err := w.leave(ctx, u)
		if err != nil {
			err = fmt.Errorf("grant for slice %s: %w", u.SliceKey, err)
			if w.job.Staging == "" {
				return err
			}
			return w.withoutGrant(ctx, err)
		}
		u.grant, u.chunks = g, slices.Clone(g.Copy().Chunks)
		if err := tiles(g.Copy()); err != nil {
			return err
		}
	}
	return nil
}

// tiles refuses a copy whose chunks do not cover its range: rows between them
// would be neither compared nor deleted.
func tiles(c *manifest.Copy) error {
	at := c.Lo
	for _, ch := range c.Chunks {
		if ch.From != at || ch.To < ch.From {
			return fmt.Errorf("%w: chunk %d of slice %s begins at %d, the one before ends at %d", ErrRefused, ch.Seq, c.SliceKey, ch.From, at)
		}
		at = ch.To
	}
	if at != c.Hi {
		return fmt.Errorf("%w: the chunks of slice %s end at %d, the slice at %d", ErrRefused, c.SliceKey, at, c.Hi)
	}
	return nil
}

// sameColumns compares the table's columns with those of each copy. A column that
// was added since has values that no copy holds.
func (w *work) sameColumns(ctx context.Context) error {
	if err := w.table.Reload(ctx); err != nil {
		return fmt.Errorf("columns of %s: %w", w.table.Shard(), err)
	}
	for _, u := range w.units {
		if !u.settled && u.err == nil && !u.grant.Copy().Schema.SameColumns(w.table.Schema()) {
			u.err = fmt.Errorf("slice %s: %w: the columns of %s changed since", u.SliceKey, ErrDrift, w.table.Shard())
		}
	}
	return nil
}

// delete deletes the slices that are still to be, by partition if it is possible.
func (w *work) delete(ctx context.Context, r *Range) error {
	var todo []*unit
	whole := r != nil
	for _, u := range w.units {
		if u.settled || u.err != nil {
			whole = whole && u.settled
			continue
		}
		todo = append(todo, u)
		whole = whole && !u.begun() // a purge by rows that was begun is finished by rows
	}
	switch {
	case len(todo) == 0:
		return nil
	case whole:
		err := w.exchange(ctx, *r)
		if !errors.Is(err, ErrIncompatible) || w.isolated || w.cfg.Strategy == Partition {
			return err
		}
		w.log.WarnContext(ctx, "partition can't be exchanged, purging by rows", "shard", w.table.Shard().String(), "partition", r.Name, "error", err)
	case len(todo) < len(w.units) && w.cfg.Strategy == Partition:
		return fmt.Errorf("%w: its partition can't go as a whole", errLeft)
	}
	for _, u := range todo {
		u.by = Rows
		if u.err = w.rows(ctx, u); u.err != nil {
			var c crash
			if errors.As(u.err, &c) || ctx.Err() != nil {
				err := u.err
				u.err = nil // run gives it what guarded makes of it
				return err
			}
		}
	}
	return nil
}

// settleTime is how long telling the manifest of a job's end may take, also after the
// run was stopped: with all else that ends a run, less than the time it is given then.
const settleTime = 15 * time.Second

// settle tells the manifest what became of a slice that was not purged.
func (w *work) settle(ctx context.Context, u *unit) {
	if u.settled || u.lease == nil || w.pending || errors.Is(u.err, manifest.ErrLeaseLost) {
		return
	}
	var err error
	switch {
	case w.isolated || u.lease.Slice().Staging != "" || u.lease.Slice().State != manifest.Purging:
		err = u.lease.Release(ctx, u.lease.Slice().State)
	case u.grant == nil:
		err = u.lease.GiveBack(ctx)
	case errors.Is(u.err, ErrDrift):
		w.stop(ctx, u)
		err = u.grant.Drifted(ctx, u.err.Error())
	default:
		w.stop(ctx, u)
		err = u.grant.GiveBack(ctx)
	}
	u.settled = true
	if err != nil {
		u.err = errors.Join(u.err, fmt.Errorf("slice %s is left in purging: %w", u.SliceKey, err))
	}
}
