package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// look is how often the clock on the wall is looked at again: it may be set, and the
	// machine may have slept.
	look = time.Minute
	// lateness is by how much an occurrence that is not begun counts as missed.
	lateness = 2 * time.Minute
	// firstPause is after what time a run that failed and is worth another try is tried
	// again; it doubles with each.
	firstPause = time.Minute
	// defaultTries is how often an occurrence is tried.
	defaultTries = 5
	// stuck is after which time without a look the loop is taken for dead.
	stuck = 5 * look
)

// Marks remember up to when schedules are done.
type Marks interface {
	// Mark is the job's mark by the name of its lease; now, which is kept, if it has none yet
	// or one that is in the future.
	Mark(ctx context.Context, lease string) (time.Time, error)
}

// Entry is a job with its schedule.
type Entry struct {
	Name string
	Spec *Spec
	// Do does the job for an occurrence. An error that is ErrHeld asks for another try soon, one
	// that is ErrAgain for another after a while.
	Do func(ctx context.Context, scheduled time.Time) error
	// Tries is how often an occurrence is tried at most, whose errors are ErrAgain; 0: five times.
	Tries int
}

// Cron does jobs when they are due: each in one process of many at a time, each occurrence
// once. Occurrences that pass while the job runs are skipped. Those that were missed before
// are caught up by one run, one job after the other in the order of the entries.
type Cron struct {
	d     Deps
	marks Marks
	jobs  []*job
	ended chan ended
	beat  atomic.Int64 // when the loop last looked, in Unix nanoseconds; 0: it does not run
}

// job is an entry's state, which the loop alone has.
type job struct {
	Entry
	lease    string
	known    bool // mark is; one that is far ahead of now is asked for again
	mark     time.Time
	running  bool
	late     bool      // it catches up, or is to
	again    bool      // it is tried again with the next look
	refused  time.Time // since when the work itself says that another does it; zero: it does not
	failed   int       // tries of the occurrence that ended with ErrAgain
	pause    time.Time // it is not tried before, after such a try
	told     time.Time // of which occurrence it was said that another process does it
	nextTold time.Time // which next occurrence was logged
}

// rests says whether the job waits after a try that failed. A clock that was set back since
// does not make it wait longer.
func (j *job) rests(now time.Time) bool {
	wait := j.pause.Sub(now)
	return wait > 0 && wait <= firstPause<<j.failed
}

// another says whether a try that failed is followed by another.
func (j *job) another(err error) bool {
	tries := j.Tries
	if tries == 0 {
		tries = defaultTries
	}
	return errors.Is(err, ErrAgain) && j.failed+1 < tries
}

// ended is how an attempt at a job ended.
type ended struct {
	job       *job
	scheduled time.Time
	done      time.Time // the new mark
	result    Result
	err       error
}

// LeaseOf is the name of the lease under which a schedule's job is done.
func LeaseOf(name string) string { return "schedule/" + name }

// NewCron makes a loop for jobs. The runs of d may be nil: the jobs then record themselves.
func NewCron(entries []Entry, marks Marks, d Deps) *Cron {
	c := &Cron{d: d, marks: marks, ended: make(chan ended)}
	for _, e := range entries {
		c.jobs = append(c.jobs, &job{Entry: e, lease: LeaseOf(e.Name)})
	}
	return c
}

// Run does jobs until the context ends, and then waits for those that run, whose context has
// ended as well.
func (c *Cron) Run(ctx context.Context) {
	tick := c.d.Clock.After(look)
	running, looked := 0, true // a look was due
	for {
		now := c.d.Clock.Now().Round(0) // the clock on the wall
		c.beat.Store(now.UnixNano())
		running += c.begin(ctx, now, looked)
		looked = false
		select {
		case <-ctx.Done():
			for ; running > 0; running-- {
				<-c.ended
			}
			c.beat.Store(0)
			return
		case e := <-c.ended:
			running--
			c.end(e)
		case <-tick:
			tick, looked = c.d.Clock.After(look), true
		case <-c.soon(now):
		}
	}
}

// soon fires when the next job is due before the next look; else never.
func (c *Cron) soon(now time.Time) <-chan time.Time {
	wait := look
	for _, j := range c.jobs {
		if !j.known || j.running || j.again {
			continue
		}
		if next := j.Spec.Next(j.mark); !next.IsZero() && next.After(now) {
			wait = min(wait, next.Sub(now))
		}
	}
	if wait >= look {
		return nil
	}
	return c.d.Clock.After(wait)
}

// Alive says whether the loop looks at its jobs; it does so at least once a minute.
func (c *Cron) Alive() error {
	beat := c.beat.Load()
	if beat == 0 {
		return errors.New("the scheduler does not run")
	}
	if silent := c.d.Clock.Now().Round(0).Sub(time.Unix(0, beat)); silent > stuck {
		return fmt.Errorf("the scheduler has not looked at its jobs for %s", silent.Round(time.Second))
	}
	return nil
}

// begin starts what is due and gives the number of jobs started. looked says that this is one
// of the looks at which what did not work is tried again.
func (c *Cron) begin(ctx context.Context, now time.Time, looked bool) (started int) {
	behind := false // a job before this one is catching up, or is to
	for _, j := range c.jobs {
		if ctx.Err() != nil {
			return started
		}
		if looked {
			j.again = false
		}
		if j.running || j.again || j.rests(now) {
			behind = behind || j.late
			continue
		}
		// A mark in the future is of a clock that was set back since: how far the job is the
		// marks know.
		if !j.known || j.mark.Sub(now) > lateness {
			if err := c.learn(ctx, j); err != nil {
				c.d.Log.Warn("it is not known how far a job is; it waits", "job", j.Name, "error", err)
				j.again, j.late, behind = true, true, true
				continue
			}
		}
		due := j.Spec.Last(j.mark, now)
		if due.IsZero() {
			j.late = false
			c.tell(j, now)
			continue
		}
		missed := j.Spec.Next(j.mark)
		j.late = now.Sub(missed) > lateness
		if j.late && behind {
			continue
		}
		behind = behind || j.late
		if j.late && !j.told.Equal(due) {
			c.d.Log.Warn("catching up by one run what was missed", "job", j.Name, "missed_since", missed.UTC(), "scheduled_for", due.UTC())
		}
		j.running = true
		started++
		go c.attempt(ctx, j, due)
	}
	return started
}

func (c *Cron) learn(ctx context.Context, j *job) error {
	once, cancel := context.WithTimeout(ctx, look/2)
	defer cancel()
	mark, err := c.marks.Mark(once, j.lease)
	if err == nil {
		j.known, j.mark = true, mark
	}
	return err
}

// tell says when a job is due next, whenever that changes.
func (c *Cron) tell(j *job, now time.Time) {
	from := j.mark
	if from.Before(now) {
		from = now
	}
	if next := j.Spec.Next(from); !next.Equal(j.nextTold) {
		j.nextTold = next
		c.d.Log.Info("next run", "job", j.Name, "at", next.In(j.Spec.zone).Format(time.RFC3339))
	}
}

// attempt does a job once and tells the loop of it.
func (c *Cron) attempt(ctx context.Context, j *job, due time.Time) {
	e := ended{job: j, scheduled: due}
	e.result, e.err = RunOnce(ctx, Job{Name: j.Name, Lease: j.lease, Scheduled: due,
		Do: func(ctx context.Context) (any, error) { return nil, j.Do(ctx, due) },
		Done: func(err error) time.Time {
			// The loop alone writes what j has, and not while the job runs.
			if j.another(err) {
				return e.done
			}
			if now := c.d.Clock.Now().Round(0); !errors.Is(err, ErrHeld) || !j.refused.IsZero() && now.Sub(j.refused) > c.d.TTL+lateness {
				e.done = due
				if last := j.Spec.Last(due, now); !last.IsZero() { // passed while it ran
					e.done = last
				}
			}
			return e.done
		},
	}, c.d)
	c.ended <- e
}

// end takes in how an attempt ended.
func (c *Cron) end(e ended) {
	j, log := e.job, c.d.Log.With("job", e.job.Name, "scheduled_for", e.scheduled.UTC())
	j.running = false
	switch {
	case errors.Is(e.err, ErrDone) && !e.result.Claimed:
		log.Info("another scheduler has done it")
		j.known = false
	case errors.Is(e.err, ErrHeld):
		// A scheduler that died has its lease for a while; so has a job that died, which its
		// work tells. It is tried until that must be over.
		if !j.told.Equal(e.scheduled) {
			log.Info("another process does it", "error", e.err)
			j.told = e.scheduled
		}
		if e.result.Claimed && j.refused.IsZero() {
			j.refused = c.d.Clock.Now().Round(0)
		}
		j.again = e.done.IsZero()
	case !e.result.Claimed || e.result.Outcome == "":
		log.Warn("the job could not be begun, trying again", "error", e.err)
		j.again = true
	case j.another(e.err):
		j.failed++
		j.pause = c.d.Clock.Now().Round(0).Add(firstPause << (j.failed - 1))
		log.Warn("run ended, trying again", "outcome", e.result.Outcome, "seconds", e.result.Took.Seconds(), "error", e.err, "not_before", j.pause.UTC())
	case e.done.IsZero():
		log.Warn("the job was cut off", "error", e.err)
		j.again = true
	case e.err != nil:
		log.Warn("run ended", "outcome", e.result.Outcome, "seconds", e.result.Took.Seconds(), "error", e.err)
	default:
		log.Info("run ended", "outcome", e.result.Outcome, "seconds", e.result.Took.Seconds())
	}
	if !e.done.IsZero() {
		j.mark, j.refused, j.failed, j.pause = e.done, time.Time{}, 0, time.Time{}
		if e.done.After(e.scheduled) {
			log.Warn("occurrences passed while the job ran, and are skipped", "until", e.done.UTC())
		}
	}
}
