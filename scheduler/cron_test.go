package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// diary is what jobs were done when.
type diary struct {
	mu      sync.Mutex
	clock   Clock
	lines   []string
	running map[string]int
	most    int // runs at the same time
}

func newDiary(clock Clock) *diary { return &diary{clock: clock, running: map[string]int{}} }

func (d *diary) entry(t *testing.T, name, text, zone string, takes time.Duration) Entry {
	return Entry{Name: name, Spec: spec(t, text, zone), Do: func(ctx context.Context, scheduled time.Time) error {
		d.mu.Lock()
		d.lines = append(d.lines, fmt.Sprintf("%s %s at %s", name, scheduled.UTC().Format("02T15:04"), d.clock.Now().UTC().Format("02T15:04:05")))
		if d.running[name]++; d.running[name] > 1 {
			t.Errorf("%s runs twice at once", name)
		}
		total := 0
		for _, n := range d.running {
			total += n
		}
		d.most = max(d.most, total)
		d.mu.Unlock()
		defer func() {
			d.mu.Lock()
			d.running[name]--
			d.mu.Unlock()
		}()
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

func (d *diary) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// atOnce is how many runs there were at the same time.
func (d *diary) atOnce() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

func (d *diary) want(t *testing.T, lines ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, lines) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(d.lines, "\n"), strings.Join(lines, "\n"))
	}
}

// bubble runs a test in a bubble whose clock shows at; time passes by itself there.
func bubble(t *testing.T, at string, test func(t *testing.T, clock *wall, m *memory, d *diary)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := wallAt(instant(t, at))
		test(t, clock, newMemory(clock), newDiary(clock))
	})
}

// start runs a scheduler until the returned function is called, which waits for its end.
func start(t *testing.T, m *memory, owner string, entries ...Entry) (c *Cron, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c = NewCron(entries, m, deps(t, m, owner))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	return c, sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

func TestByTheClock(t *testing.T) {
	bubble(t, "2026-12-01T01:00:00Z", func(t *testing.T, _ *wall, m *memory, d *diary) {
		c, stop := start(t, m, "a", d.entry(t, "archive", "0 2 * * *", "UTC", time.Hour), d.entry(t, "purge", "30 2 * * *", "UTC", time.Hour))
		time.Sleep(49*time.Hour + time.Minute)
		if err := c.Alive(); err != nil {
			t.Error(err)
		}
		stop()
		if c.Alive() == nil {
			t.Error("it is alive when it has ended")
		}
		d.want(t, "archive 01T02:00 at 01T02:00:00", "purge 01T02:30 at 01T02:30:00", "archive 02T02:00 at 02T02:00:00", "purge 02T02:30 at 02T02:30:00", "archive 03T02:00 at 03T02:00:00")
		if d.atOnce() != 2 {
			t.Errorf("%d at once; two jobs do not wait for each other", d.atOnce())
		}
	})
}

// What passes while a job runs is skipped, and not done when it has ended.
func TestSkipIfRunning(t *testing.T) {
	bubble(t, "2026-12-01T01:30:00Z", func(t *testing.T, _ *wall, m *memory, d *diary) {
		_, stop := start(t, m, "a", d.entry(t, "archive", "0 * * * *", "UTC", 150*time.Minute))
		_, stop2 := start(t, m, "b", d.entry(t, "archive", "0 * * * *", "UTC", 150*time.Minute))
		time.Sleep(5*time.Hour + 45*time.Minute + 30*time.Second)
		stop()
		stop2()
		d.want(t, "archive 01T02:00 at 01T02:00:00", "archive 01T05:00 at 01T05:00:00")
	})
}

// A run that failed and is worth it is tried again, after pauses that double; then not before
// the next occurrence. One that goes well is not repeated, and others do not wait.
func TestFailedRunsAreTriedAgain(t *testing.T) {
	bubble(t, "2026-12-01T01:00:00Z", func(t *testing.T, _ *wall, m *memory, d *diary) {
		failing := func(name, text string, tries, good int, err error) Entry {
			e := d.entry(t, name, text, "UTC", 0)
			do, n := e.Do, 0
			e.Tries, e.Do = tries, func(ctx context.Context, at time.Time) error {
				_ = do(ctx, at)
				if n++; n == good {
					return nil
				}
				return err
			}
			return e
		}
		again := fmt.Errorf("no answer: %w", ErrAgain)
		_, stop := start(t, m, "a", failing("archive", "0 2 * * *", 0, 0, again), failing("purge", "0 4 * * *", 0, 2, again), failing("patrol", "0 5 * * *", 2, 0, again), failing("job", "0 6 * * *", 0, 0, errors.New("refused")))
		time.Sleep(25*time.Hour + 30*time.Second)
		stop()
		d.want(t, "archive 01T02:00 at 01T02:00:00", "archive 01T02:00 at 01T02:01:00", "archive 01T02:00 at 01T02:03:00", "archive 01T02:00 at 01T02:07:00", "archive 01T02:00 at 01T02:15:00",
			"purge 01T04:00 at 01T04:00:00", "purge 01T04:00 at 01T04:01:00",
			"patrol 01T05:00 at 01T05:00:00", "patrol 01T05:00 at 01T05:01:00",
			"job 01T06:00 at 01T06:00:00",
			"archive 02T02:00 at 02T02:00:00")
	})
}

// Two schedulers: each occurrence is done by one of them.
func TestDoubleStart(t *testing.T) {
	bubble(t, "2026-12-01T01:30:00Z", func(t *testing.T, _ *wall, m *memory, d *diary) {
		_, stop := start(t, m, "a", d.entry(t, "archive", "*/10 * * * *", "UTC", 5*time.Minute))
		_, stop2 := start(t, m, "b", d.entry(t, "archive", "*/10 * * * *", "UTC", 5*time.Minute))
		time.Sleep(30*time.Minute + time.Second)
		stop()
		stop2()
		d.want(t, "archive 01T01:40 at 01T01:40:00", "archive 01T01:50 at 01T01:50:00", "archive 01T02:00 at 01T02:00:00")
	})
}

// One that is told to end in the middle of a job leaves it to the other, within a minute; so
// does one that dies, once its lease is over.
func TestTakenOver(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprint(dies), func(t *testing.T) {
			bubble(t, "2026-12-01T01:59:30Z", func(t *testing.T, _ *wall, m *memory, d *diary) {
				_, stop := start(t, m, "a", d.entry(t, "archive", "0 2 * * *", "UTC", time.Hour))
				time.Sleep(time.Minute) // it has begun
				_, stop2 := start(t, m, "b", d.entry(t, "archive", "0 2 * * *", "UTC", time.Hour))
				time.Sleep(10 * time.Minute)
				if dies {
					m.mu.Lock() // its lease is not renewed any more, nor released
					m.leases["schedule/archive"].fence++
					m.mu.Unlock()
				}
				stop()
				time.Sleep(2 * time.Hour)
				stop2()
				if len(d.seen()) != 2 || !strings.HasPrefix(d.seen()[1], "archive 01T02:00 at 01T02:1") {
					t.Errorf("%q", d.seen())
				}
				if mark := m.leases["schedule/archive"].mark; !mark.Equal(instant(t, "2026-12-01T02:00:00Z")) {
					t.Errorf("done up to %s", mark)
				}
			})
		})
	}
}

// J2: what was missed in five days is caught up by one run of each job, one after the other in
// their order, and then all goes on by the clock.
func TestCatchUp(t *testing.T) {
	bubble(t, "2026-11-25T12:00:00Z", func(t *testing.T, clock *wall, m *memory, d *diary) {
		entries := []Entry{d.entry(t, "archive", "0 2 * * *", "UTC", 3*time.Hour), d.entry(t, "purge", "0 4 * * *", "UTC", time.Hour), d.entry(t, "patrol", "0 5 * * 0", "UTC", time.Hour),
			d.entry(t, "drill", "0 6 1 1,4,7,10 *", "UTC", time.Hour)}
		_, stop := start(t, m, "a", entries...)
		time.Sleep(time.Minute)
		stop()
		d.want(t) // nothing was to be done before the first start
		clock.set(5 * 24 * time.Hour)
		_, stop = start(t, m, "a", entries...)
		time.Sleep(24 * time.Hour)
		stop()
		d.want(t, "archive 30T02:00 at 30T12:01:00", "purge 30T04:00 at 30T15:01:00", "patrol 29T05:00 at 30T16:01:00",
			"archive 01T02:00 at 01T02:00:00", "purge 01T04:00 at 01T04:00:00")
		if d.atOnce() != 2 { // the archive of the 1st takes until after the purge has begun
			t.Errorf("%d at once", d.atOnce())
		}
	})
}

// Catching up begins also when the first missed occurrence is long ago and the last just now.
func TestCatchUpJustInTime(t *testing.T) {
	bubble(t, "2026-11-25T12:00:00Z", func(t *testing.T, clock *wall, m *memory, d *diary) {
		entries := []Entry{d.entry(t, "archive", "0 2 * * *", "UTC", 3*time.Hour), d.entry(t, "purge", "0 4 * * *", "UTC", time.Hour)}
		_, stop := start(t, m, "a", entries...)
		time.Sleep(time.Minute)
		stop()
		clock.set(instant(t, "2026-11-30T02:00:30Z").Sub(clock.Now()))
		_, stop = start(t, m, "a", entries...)
		time.Sleep(time.Hour)
		if d.atOnce() != 1 {
			t.Error("the purge did not wait for the archive")
		}
		stop()
	})
}

// A machine that slept, or whose clock is set forward, catches up within a minute; one whose
// clock is set back does nothing twice.
func TestClockSteps(t *testing.T) {
	bubble(t, "2026-12-01T01:30:00Z", func(t *testing.T, clock *wall, m *memory, d *diary) {
		_, stop := start(t, m, "a", d.entry(t, "archive", "0 2 * * *", "UTC", time.Minute))
		time.Sleep(10 * time.Minute)
		clock.set(5 * time.Hour) // 06:40
		time.Sleep(10 * time.Minute)
		if len(d.seen()) != 1 || !strings.HasPrefix(d.seen()[0], "archive 01T02:00 at 01T06:4") {
			t.Errorf("after a step forward: %q", d.seen())
		}
		clock.set(-5 * time.Hour) // 01:50
		time.Sleep(20 * time.Hour)
		if len(d.seen()) != 1 {
			t.Errorf("after a step back: %q", d.seen())
		}
		time.Sleep(5 * time.Hour)
		stop()
		if len(d.seen()) != 2 || d.seen()[1] != "archive 02T02:00 at 02T02:00:00" {
			t.Errorf("the day after: %q", d.seen())
		}
	})
}

// A clock that is far ahead when a job ends, and is set right afterwards, does not keep the
// job from its next occurrences: the database's clock judges.
func TestClockJumpsWhileAJobRuns(t *testing.T) {
	bubble(t, "2026-12-01T01:30:00Z", func(t *testing.T, clock *wall, _ *memory, d *diary) {
		m := newMemory(wallAt(clock.Now())) // of another clock
		x := deps(t, m, "a")
		x.Clock = clock
		c := NewCron([]Entry{d.entry(t, "archive", "0 2 * * *", "UTC", time.Hour)}, m, x)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Run(ctx)
		}()
		time.Sleep(time.Hour)
		clock.set(400 * 24 * time.Hour)
		time.Sleep(time.Hour)
		clock.set(-400 * 24 * time.Hour)
		time.Sleep(48 * time.Hour)
		cancel()
		<-done
		d.want(t, "archive 01T02:00 at 01T02:00:00", "archive 02T02:00 at 02T02:00:00", "archive 03T02:00 at 03T02:00:00")
	})
}

// J1: the night in which Berlin's clocks skip 02:30, and the one that has it twice.
func TestNightsOfClockChanges(t *testing.T) {
	bubble(t, "2026-03-28T12:00:00Z", func(t *testing.T, _ *wall, m *memory, d *diary) {
		_, stop := start(t, m, "a", d.entry(t, "archive", "30 2 * * *", "Europe/Berlin", time.Minute))
		time.Sleep(48 * time.Hour)
		stop()
		d.want(t, "archive 29T01:00 at 29T01:00:00", "archive 30T00:30 at 30T00:30:00")
	})
	bubble(t, "2026-10-24T12:00:00Z", func(t *testing.T, _ *wall, m *memory, d *diary) {
		_, stop := start(t, m, "a", d.entry(t, "archive", "30 2 * * *", "Europe/Berlin", time.Minute))
		time.Sleep(48 * time.Hour)
		stop()
		d.want(t, "archive 25T00:30 at 25T00:30:00", "archive 26T01:30 at 26T01:30:00")
	})
}

// While the database is away nothing is begun; when it is back, what was due is done.
func TestDatabaseIsAway(t *testing.T) {
	bubble(t, "2026-12-01T01:30:00Z", func(t *testing.T, _ *wall, m *memory, d *diary) {
		m.broken(errors.New("no database"))
		c, stop := start(t, m, "a", d.entry(t, "archive", "0 2 * * *", "UTC", time.Minute))
		time.Sleep(10 * time.Minute)
		m.broken(nil)
		time.Sleep(10 * time.Minute) // now it knows how far the job is
		m.broken(errors.New("no database"))
		time.Sleep(time.Hour)
		if err := c.Alive(); err != nil {
			t.Error(err)
		}
		m.broken(nil)
		time.Sleep(2 * time.Minute)
		stop()
		if len(d.seen()) != 1 || !strings.HasPrefix(d.seen()[0], "archive 01T02:00 at 01T02:5") {
			t.Errorf("%q", d.seen())
		}
	})
}

// A job whose own lease another process has, as one that died does for a while, is tried again
// until that must be over; then its occurrence counts as done.
func TestWorkIsHeld(t *testing.T) {
	for _, held := range []int{2, 1000} {
		t.Run(fmt.Sprint(held), func(t *testing.T) {
			bubble(t, "2026-12-01T01:59:00Z", func(t *testing.T, _ *wall, m *memory, _ *diary) {
				tries := 0
				_, stop := start(t, m, "a", Entry{Name: "patrol", Spec: spec(t, "0 2 * * *", "UTC"), Do: func(context.Context, time.Time) error {
					if tries++; tries <= held {
						return ErrHeld
					}
					return nil
				}})
				time.Sleep(3 * time.Hour)
				stop()
				if want := min(held+1, 5); tries < 3 || tries > want {
					t.Errorf("%d tries, want %d", tries, want)
				}
				if mark := m.leases["schedule/patrol"].mark; !mark.Equal(instant(t, "2026-12-01T02:00:00Z")) {
					t.Errorf("done up to %s", mark)
				}
			})
		})
	}
}

// A job that panics, or takes too long, does not end the scheduler.
func TestPanicOfOneJob(t *testing.T) {
	bubble(t, "2026-12-01T01:59:00Z", func(t *testing.T, _ *wall, m *memory, d *diary) {
		_, stop := start(t, m, "a", Entry{Name: "patrol", Spec: spec(t, "0 2 * * *", "UTC"), Do: func(context.Context, time.Time) error { panic("oh no") }},
			d.entry(t, "archive", "5 2 * * *", "UTC", time.Minute))
		time.Sleep(10 * time.Minute)
		stop()
		d.want(t, "archive 01T02:05 at 01T02:05:00")
		if r := m.runs[0]; r.Job != "patrol" || r.outcome != "panic" {
			t.Errorf("%+v", r)
		}
	})
}
