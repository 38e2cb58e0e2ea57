package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// What a caller may have to tell apart; errors wrap them. ErrDeadline and ErrLost come as
// causes of a job's context, and count as its cancellation, too.
var (
	// ErrAgain marks the error of a run that may go well when it is tried again.
	ErrAgain = errors.New("worth another try")
	// ErrHeld says that another process has the job's lease.
	ErrHeld = errors.New("another process does the job")
	// ErrDone says that the occurrence, or a later one, was done already.
	ErrDone = errors.New("the occurrence was done")
	// ErrLost says that the lease went to another process, or could not be renewed.
	ErrLost = errors.New("the job's lease is lost")
	// ErrDeadline says that a job took longer than it may.
	ErrDeadline = errors.New("the job's deadline has passed")
	// ErrPanic says that a job panicked.
	ErrPanic = errors.New("the job panicked")
)

// Claim says which lease is wanted, and for whom.
type Claim struct {
	Name, Owner string
	Own         bool      // the name is this process's alone
	Scheduled   time.Time // the occurrence that is to be done; zero: none
}

// Lease is the right to do a job.
type Lease interface {
	// Fence is the lease's fencing number.
	Fence() uint64
	// Renew prolongs the lease. ErrLost: another has it.
	Renew(ctx context.Context) error
	// Release gives the lease back. done, if not zero, is the job's new mark.
	Release(ctx context.Context, done time.Time) error
}

// Leases gives leases, judged by one clock for all processes.
type Leases interface {
	// Claim takes a lease. ErrHeld: another has it; ErrDone: the mark is not before the occurrence.
	Claim(ctx context.Context, c Claim) (Lease, error)
}

// Begin is the begin of a run, for its record.
type Begin struct {
	Job, Owner, Lease string
	Args              []string
	Fence             uint64
	Scheduled         time.Time
}

// Runs records runs.
type Runs interface {
	Begin(ctx context.Context, b Begin) (id uint64, err error)
	End(ctx context.Context, id uint64, outcome, why string, report any) error
}

// Clock tells the time and waits.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

// Job is one thing to do.
type Job struct {
	Name  string   // in records, metrics and logs
	Args  []string // in its record
	Lease string
	Own   bool // nobody else takes a lease of this name: it only shows that the job lives
	// Deadline is how long it may take; 0: as long as it takes.
	Deadline time.Duration
	// Scheduled is the occurrence that is done; zero: none.
	Scheduled time.Time
	// Done gives, once the work has ended so, up to when the schedule is done; nil or zero: no
	// mark moves. It is not asked when the run was cut off from outside.
	Done func(error) time.Time
	Do   func(ctx context.Context) (report any, err error)
}

// Deps are what a run works with.
type Deps struct {
	Owner  string
	Leases Leases
	TTL    time.Duration // how long a lease lasts that is not renewed
	Runs   Runs          // nil: the job records its runs itself
	// Outcome is one word for how a run ended, of Outcomes that Metrics knows; it is asked for nil, too.
	Outcome func(error) string
	// Text is an error as it may be kept: without secrets.
	Text    func(error) string
	Metrics *Metrics // nil: none
	Clock   Clock
	Log     *slog.Logger
}

// Result is how a run went.
type Result struct {
	Claimed bool // it had the lease: work may have been done
	Run     uint64
	Fence   uint64
	Outcome string
	Took    time.Duration
}

// EndTime is how long the note of a run's end and the release of its lease may take, also
// after a signal.
const EndTime = 5 * time.Second

// RunOnce does a job once under its lease, and records it. The error is the job's, with the
// reason for which it was ended early, if it was.
func RunOnce(ctx context.Context, j Job, d Deps) (r Result, err error) {
	lease, err := d.Leases.Claim(ctx, Claim{j.Lease, d.Owner, j.Own, j.Scheduled})
	if err != nil {
		return r, err
	}
	r.Claimed, r.Fence = true, lease.Fence()
	began := d.Clock.Now()
	d.Metrics.begin(j.Name)
	ended := func(err error) {
		r.Outcome, r.Took = d.Outcome(err), max(d.Clock.Now().Sub(began), 0)
		d.Metrics.end(j.Name, r.Outcome, r.Took, d.Clock.Now())
	}
	release := func(ctx context.Context, done time.Time) {
		if err := lease.Release(ctx, done); err != nil && !errors.Is(err, ErrLost) {
			d.Log.Warn("the job's lease was not released; it runs out", "job", j.Name, "lease", j.Lease, "error", err)
		}
	}
	if d.Runs != nil {
		if r.Run, err = d.Runs.Begin(ctx, Begin{j.Name, d.Owner, j.Lease, j.Args, r.Fence, j.Scheduled}); err != nil {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), EndTime)
			defer cancel()
			release(end, time.Time{})
			ended(err)
			return r, err
		}
	}
	inner, stop := limited(ctx, j, d, lease)
	report, err := protected(inner, j)
	cause := context.Cause(inner)
	stop()
	lost := errors.Is(cause, ErrLost)
	if err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	var p *PanicError
	if errors.As(err, &p) {
		d.Log.Error("the job panicked", "job", j.Name, "run", r.Run, "panic", fmt.Sprint(p.Value), "stack", p.Stack)
	}
	ended(err)

	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), EndTime)
	defer cancel()
	var noted error
	if d.Runs != nil {
		noted = d.Runs.End(end, r.Run, r.Outcome, d.why(err), report)
	}
	if !lost {
		var done time.Time
		// What was cut off from outside is to be done again.
		if j.Done != nil && ctx.Err() == nil {
			done = j.Done(err)
		}
		release(end, done)
	}
	switch {
	case noted == nil:
	case err == nil:
		return r, noted
	default:
		d.Log.Warn("the run's end could not be noted", "job", j.Name, "run", r.Run, "error", noted)
	}
	return r, err
}

// why says why a run stopped, for its record; a panic with its stack.
func (d *Deps) why(err error) string {
	if err == nil {
		return ""
	}
	text := d.Text(err)
	var p *PanicError
	if errors.As(err, &p) {
		text += "\n" + d.Text(errors.New(p.Stack))
	}
	return text
}

// stopped is why a job was ended; it counts as a cancellation, which is no fault of what was
// being worked on.
type stopped struct{ error }

func (s stopped) Unwrap() []error { return []error{s.error, context.Canceled} }

// limited gives the context of a job: it ends with the deadline, and when the lease is lost.
// stop waits for what it began.
func limited(ctx context.Context, j Job, d Deps, lease Lease) (inner context.Context, stop func()) {
	inner, cancel := context.WithCancelCause(ctx)
	// A job that was told to end has the lease until it has ended.
	working, over := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		keep(working, j, d, lease, cancel)
	}()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	if j.Deadline > 0 {
		timer = time.AfterFunc(j.Deadline, func() {
			cancel(stopped{fmt.Errorf("%w: %s took longer than %s", ErrDeadline, j.Name, j.Deadline)})
		})
	}
	return inner, func() {
		timer.Stop()
		cancel(context.Canceled)
		over()
		<-ended
	}
}

// keep renews a lease until the context ends, and ends it when the lease is lost. A process
// that was stopped beyond its lease looks first whether another has it.
func keep(ctx context.Context, j Job, d Deps, lease Lease, cancel context.CancelCauseFunc) {
	every := d.TTL / 3
	renewed := d.Clock.Now() // from before the renewal was sent: the server may have judged it any time after
	wait := every
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.Clock.After(wait):
		}
		sent := d.Clock.Now()
		left := d.TTL - sent.Sub(renewed)
		limit := every
		if left > 0 && !j.Own {
			limit = min(every, left)
		}
		once, done := context.WithTimeout(ctx, max(limit, 10*time.Millisecond))
		err := lease.Renew(once)
		done()
		switch now := d.Clock.Now(); {
		case err == nil:
			renewed, wait = sent, every
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrLost):
			cancel(stopped{err})
			return
		case !j.Own && now.Sub(renewed) >= d.TTL:
			cancel(stopped{fmt.Errorf("%w: not renewed for %s: %w", ErrLost, d.TTL, err)})
			return
		default:
			d.Log.Warn("the job's lease was not renewed, trying again", "job", j.Name, "lease", j.Lease, "error", err)
			wait = max(min(every/3, d.TTL-now.Sub(renewed)), 10*time.Millisecond)
			if j.Own {
				wait = every
			}
		}
	}
}

// PanicError is a panic of a job.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("%v: %v", ErrPanic, e.Value) }

func (e *PanicError) Unwrap() error { return ErrPanic }

// protected does the work; a panic becomes an error. One in a goroutine that the work has
// started ends the process, as nothing can recover it.
func protected(ctx context.Context, j Job) (report any, err error) {
	defer func() {
		if v := recover(); v != nil {
			report, err = nil, &PanicError{v, string(debug.Stack())}
		}
	}()
	return j.Do(ctx)
}
