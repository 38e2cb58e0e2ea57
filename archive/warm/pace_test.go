package warm

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// paceClock moves only when someone sleeps.
type paceClock struct {
	mu     sync.Mutex
	t      time.Time
	slept  time.Duration
	onWait func()
}

func (c *paceClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *paceClock) sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	c.t, c.slept = c.t.Add(d), c.slept+d
	c.mu.Unlock()
	if c.onWait != nil {
		c.onWait()
	}
	return context.Cause(ctx)
}

// fakeLook is a server whose state the test sets.
type fakeLook struct {
	replicas []replicaLag
	running  int
	list     int64
	answer   string
	latency  time.Duration
	err      error // of threads, history and probes
	askErr   error
	looks    int
	probes   int
}

func (f *fakeLook) lags(context.Context) []replicaLag {
	f.looks++
	return f.replicas
}
func (f *fakeLook) threads(context.Context) (int, error)        { return f.running, f.err }
func (f *fakeLook) history(context.Context) (int64, error)      { return f.list, f.err }
func (f *fakeLook) ask(context.Context, string) (string, error) { return f.answer, f.askErr }
func (f *fakeLook) probe(context.Context, *Table) (time.Duration, error) {
	f.probes++
	return f.latency, f.err
}
func (f *fakeLook) rowBytes(context.Context, *Table) (int64, error) { return 10, nil }
func (f *fakeLook) close() error                                    { return nil }

const paceServer = "10.0.0.1:3306"

// testPace is a pace of one server, a table on it, and what was told of pauses.
type testPace struct {
	*Pace
	clock *paceClock
	look  *fakeLook
	table *Table
	told  []Pause
	stop  error
}

func newTestPace(t *testing.T, l Limits) *testPace {
	t.Helper()
	p := &testPace{clock: &paceClock{t: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}, look: &fakeLook{}}
	var err error
	p.Pace, err = newPace(PaceConfig{Job: "purge", Limits: l, Now: p.clock.now, Sleep: p.clock.sleep,
		Stopped: func(context.Context) error { return p.stop }, OnPause: func(x Pause) { p.told = append(p.told, x) }}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.add(paceServer, p.look)
	d := &database{addr: paceServer}
	p.table = &Table{d: d}
	return p
}

func (p *testPace) wait(t *testing.T) {
	t.Helper()
	if err := p.Wait(t.Context(), p.table); err != nil {
		t.Fatal(err)
	}
}

// M14: a million rows in chunks of 5,000, at 20,000 rows/s, take 50 s; chunks bigger
// than a second's worth are no error. The same with bytes.
func TestPaceKeepsToRates(t *testing.T) {
	t.Parallel()
	for _, chunk := range []int64{5_000, 50_000} {
		for name, l := range map[string]Limits{"rows": {RowsPerSecond: 20_000}, "bytes": {BytesPerSecond: 200_000}} {
			p := newTestPace(t, l)
			for rows := int64(0); rows < 1_000_000; rows += chunk {
				p.wait(t)
				p.Spent(p.table, chunk, 10*chunk)
			}
			p.wait(t)
			if p.clock.slept < 48*time.Second || p.clock.slept > 51*time.Second {
				t.Errorf("%s, chunks of %d: waited %s, want about 49s", name, chunk, p.clock.slept)
			}
			if d := p.Throttled()[Cause(name)]; d != p.clock.slept {
				t.Errorf("%s: counted %s of %s", name, d, p.clock.slept)
			}
			if len(p.told) != 0 {
				t.Errorf("%s: waits of seconds are told as pauses: %+v", name, p.told)
			}
		}
	}
	p := newTestPace(t, Limits{RowsPerSecond: 10})
	p.Spent(p.table, 1_000, 0)
	p.wait(t)
	if len(p.told) != 2 || p.told[0].Cause != CauseRows || p.told[0].Until.Sub(p.told[0].Since) != 99*time.Second || p.told[1].Ended.IsZero() {
		t.Errorf("a wait of 99s was told so: %+v", p.told)
	}
}

// Ready does not wait, and is told, counted and ended as Wait is.
func TestReadyDoesNotWait(t *testing.T) {
	t.Parallel()
	p := newTestPace(t, Limits{MaxThreadsRunning: 5, RowsPerSecond: 10, MaxPause: time.Minute})
	ready := func() time.Duration {
		t.Helper()
		d, err := p.Ready(t.Context(), p.table)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := ready(); d != 0 {
		t.Errorf("a server that is well: %s", d)
	}
	p.Spent(p.table, 15, 0)
	wait := ready()
	if wait <= 0 || wait > lookEvery {
		t.Errorf("more than a second's rows: %s", wait)
	}
	_ = p.clock.sleep(t.Context(), wait)
	if d := ready(); d != 0 {
		t.Errorf("after %s: %s", wait, d)
	}
	p.look.running = 9
	_ = p.clock.sleep(t.Context(), lookEvery)
	for range 3 {
		if d := ready(); d != lookEvery {
			t.Errorf("too many threads: %s", d)
		}
		_ = p.clock.sleep(t.Context(), lookEvery)
	}
	if held := p.Throttled(); held[CauseThreads] != 3*lookEvery || held[CauseRows] != wait {
		t.Errorf("counted %v", held)
	}
	if len(p.Pauses()) != 1 || len(p.told) != 1 {
		t.Errorf("pauses %+v, told %+v", p.Pauses(), p.told)
	}
	p.look.running = 1
	_ = p.clock.sleep(t.Context(), lookEvery)
	if d := ready(); d != 0 || len(p.Pauses()) != 0 || len(p.told) != 2 {
		t.Errorf("%s after the pause: %+v", d, p.told)
	}
	if held := p.Throttled(); held[CauseThreads] != 4*lookEvery {
		t.Errorf("counted %v", held)
	}
	p.look.running = 9
	_ = p.clock.sleep(t.Context(), lookEvery)
	_ = ready()
	_ = p.clock.sleep(t.Context(), 2*time.Minute)
	if _, err := p.Ready(t.Context(), p.table); !errors.Is(err, ErrBusy) {
		t.Errorf("a pause of longer than max_pause: %v", err)
	}
	p.stop = errors.New("stopped by Ada")
	if _, err := p.Ready(t.Context(), p.table); !errors.Is(err, p.stop) {
		t.Errorf("stopped: %v", err)
	}
}

// M14: replica lag and the like stop the steps until they are over.
func TestPaceWaitsUntilTheServerIsWell(t *testing.T) {
	t.Parallel()
	lag := func(d time.Duration, err error) []replicaLag {
		return []replicaLag{{"10.0.0.2:3306", 0, nil}, {"10.0.0.3:3306", d, err}}
	}
	all := Limits{MaxReplicaLag: 5 * time.Second, MaxThreadsRunning: 50, MaxHistoryLength: 1000, PauseQuery: "SELECT 1", MaxPause: time.Minute}
	for _, c := range []struct {
		name  string
		bad   func(*fakeLook)
		cause Cause
		why   []string
	}{
		{"a lagging replica", func(f *fakeLook) { f.replicas = lag(12*time.Second, nil) }, CauseLag, []string{"10.0.0.3:3306", "12s > purge.max_replica_lag 5s"}},
		{"a lost replica", func(f *fakeLook) { f.replicas = lag(0, errors.New("connection refused")) }, CauseLag, []string{"10.0.0.3:3306", "connection refused"}},
		{"threads", func(f *fakeLook) { f.running = 51 }, CauseThreads, []string{"51", "max_threads_running 50"}},
		{"a silent primary", func(f *fakeLook) { f.err = context.DeadlineExceeded }, CauseThreads, []string{"no answer within 3s"}},
		{"history", func(f *fakeLook) { f.list = 1001 }, CauseHistory, []string{"1001", "max_history_length 1000"}},
		{"the query", func(f *fakeLook) { f.answer = "1" }, CauseQuery, []string{"pause_query", `"1"`}},
		{"the query's error", func(f *fakeLook) { f.askErr = errors.New("no such table") }, CauseQuery, []string{"pause_query", "no such table"}},
	} {
		p := newTestPace(t, all)
		p.wait(t) // it is well
		c.bad(p.look)
		begun := p.clock.now()
		_ = p.clock.sleep(t.Context(), lookEvery)
		p.clock.onWait = func() {
			if p.clock.now().Sub(begun) >= 20*time.Second {
				*p.look = fakeLook{looks: p.look.looks, answer: "0"}
			}
		}
		p.wait(t)
		if waited := p.clock.now().Sub(begun); waited != 20*time.Second {
			t.Errorf("%s: waited %s", c.name, waited)
		}
		if len(p.told) != 2 || p.told[0].Cause != c.cause || p.told[0].Server != paceServer || p.told[0].Job != "purge" || !p.told[0].Ended.IsZero() || p.told[1].Ended.Sub(p.told[1].Since) != 19*time.Second {
			t.Errorf("%s: told %+v", c.name, p.told)
			continue
		}
		for _, w := range c.why {
			if !strings.Contains(p.told[0].Why, w) {
				t.Errorf("%s: %q lacks %q", c.name, p.told[0].Why, w)
			}
		}
		if d := p.Throttled(); len(d) != 1 || d[c.cause] != 19*time.Second {
			t.Errorf("%s: counted %v", c.name, d)
		}
		if looks := p.look.looks; true {
			p.wait(t)
			if p.look.looks != looks {
				t.Errorf("%s: a server found well in this very second was looked at again", c.name)
			}
		}
		// It stays so.
		p.clock.onWait, p.told = nil, nil
		_ = p.clock.sleep(t.Context(), lookEvery)
		c.bad(p.look)
		begun = p.clock.now()
		err := p.Wait(t.Context(), p.table)
		if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), c.why[0]) || p.clock.now().Sub(begun) != time.Minute {
			t.Errorf("%s: %v after %s, want ErrBusy after a minute", c.name, err, p.clock.now().Sub(begun))
		}
		// The next one is not waited for anew.
		begun = p.clock.now()
		if err := p.Wait(t.Context(), p.table); !errors.Is(err, ErrBusy) || p.clock.now() != begun {
			t.Errorf("%s: then %v", c.name, err)
		}
		if got := p.Pauses(); len(got) != 1 {
			t.Errorf("%s: pauses that last: %+v", c.name, got)
		}
		if err := p.Close(); err != nil || len(p.told) != 2 || p.told[1].Ended.IsZero() {
			t.Errorf("%s: closed: %v, %+v", c.name, err, p.told)
		}
	}
}

// A server that cannot be asked is not waited for: nothing could be done there.
func TestPaceDoesNotWaitForAServerThatIsAway(t *testing.T) {
	t.Parallel()
	p := newTestPace(t, Limits{MaxThreadsRunning: 50, MaxPause: time.Minute})
	p.look.err = errors.New("connection refused")
	if err := p.Wait(t.Context(), p.table); !errors.Is(err, p.look.err) || errors.Is(err, ErrBusy) || p.clock.slept != 0 {
		t.Errorf("after %s: %v", p.clock.slept, err)
	}
}

func TestPaceEndsWithItsContextOrAStop(t *testing.T) {
	t.Parallel()
	p := newTestPace(t, Limits{MaxThreadsRunning: 50})
	p.look.running = 99
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("lease lost")
	p.clock.onWait = func() { cancel(gone) }
	if err := p.Wait(ctx, p.table); !errors.Is(err, gone) {
		t.Errorf("a wait whose context ends gives %v", err)
	}
	stopped := errors.New("ops stopped all")
	begun := p.clock.now()
	p.clock.onWait = func() { p.stop = stopped }
	if err := p.Wait(t.Context(), p.table); !errors.Is(err, stopped) || p.clock.now().Sub(begun) > 2*lookEvery {
		t.Errorf("a stop during a pause: %v after %s", err, p.clock.now().Sub(begun))
	}
	for range 2 {
		if err := p.Stopped(t.Context()); !errors.Is(err, stopped) {
			t.Error(err)
		}
	}
	if n := slices.IndexFunc(p.told, func(x Pause) bool { return x.Cause == CauseStopped }); n != len(p.told)-1 {
		t.Errorf("a stop is told once: %+v", p.told)
	}
}

// Many workers of one server ask it once a second, and their waits at the same time count once.
func TestPaceOfManyWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLook{running: 99}
		p, err := newPace(PaceConfig{Job: "archive", Limits: Limits{MaxReplicaLag: 1, MaxThreadsRunning: 50}, Now: time.Now, Sleep: func(ctx context.Context, d time.Duration) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(d / 100):
				return nil
			}
		}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		p.add(paceServer, f)
		const lasts = 300 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				if err := p.Wait(ctx, &Table{d: &database{addr: paceServer}}); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if f.looks != 1 {
			t.Errorf("32 workers looked %d times in %s", f.looks, lasts)
		}
		if d := p.Throttled()[CauseThreads]; d != lasts {
			t.Errorf("counted %s in %s", d, lasts)
		}
	})
}

func TestHours(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zone data")
	}
	at := func(h, m int) time.Time { return time.Date(2026, 5, 1, h, m, 0, 0, berlin) }
	for text, want := range map[string]map[time.Time]bool{
		"":                         {at(0, 0): true, at(12, 0): true},
		"22:00-06:00":              {at(21, 59): false, at(22, 0): true, at(23, 59): true, at(0, 0): true, at(5, 59): true, at(6, 0): false, at(12, 0): false},
		"01:30-02:00":              {at(1, 29): false, at(1, 30): true, at(1, 59): true, at(2, 0): false},
		"20:00-24:00":              {at(19, 59): false, at(23, 59): true, at(0, 0): false},
		"22:00-06:00, 12:00-13:00": {at(21, 59): false, at(23, 0): true, at(5, 59): true, at(6, 0): false, at(12, 0): true, at(12, 59): true, at(13, 0): false},
	} {
		h, err := parseHours(text, berlin)
		if err != nil {
			t.Fatal(err)
		}
		for when, open := range want {
			if h.open(when.UTC()) != open {
				t.Errorf("%q is open at %s: %t", text, when, !open)
			}
		}
	}
	for _, bad := range []string{"22-06", "22:00", "22:00-22:00", "24:00-06:00", "22:00-25:00", "22:60-06:00", "2:00-6:00", "a-b", "-", "22:00-06:00-07:00", "22:00-06:00,", ",", "22:00-06:00;12:00-13:00"} {
		if CheckHours(bad) == nil {
			t.Errorf("hours %q are taken", bad)
		}
	}
	// When they begin again, also over the nights in which the clock is put on and back.
	for _, c := range []struct {
		text      string
		now, next time.Time
	}{
		{"22:00-06:00", at(6, 0), at(22, 0)},
		{"22:00-06:00,12:00-13:00", at(6, 30), at(12, 0)},
		{"02:00-03:00", time.Date(2026, 3, 29, 1, 59, 0, 0, berlin), time.Date(2026, 3, 30, 2, 0, 0, 0, berlin)}, // the 29th has no such hour
		{"02:30-04:00", time.Date(2026, 3, 29, 1, 59, 30, 0, berlin), time.Date(2026, 3, 29, 3, 0, 0, 0, berlin)},
		{"02:30-02:45", time.Date(2026, 10, 25, 0, 45, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC)}, // 02:45 for the first time, 02:30 for the second
	} {
		h, err := parseHours(c.text, berlin)
		if err != nil {
			t.Fatal(err)
		}
		if h.open(c.now) {
			t.Errorf("%s is open at %s", c.text, c.now)
		}
		if got := h.next(c.now); !got.Equal(c.next) {
			t.Errorf("%s after %s begins at %s, want %s", c.text, c.now, got.In(berlin), c.next)
		}
	}
}

// Outside the hours a run ends at once when they begin again later than a pause may
// last, and waits when not.
func TestHoursEndARunOrAreWaitedFor(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]Limits{
		"tokens":  {RowsPerSecond: 1, Hours: "11:00-12:30", MaxPause: time.Hour},
		"threads": {MaxThreadsRunning: 1, MaxPause: 20 * time.Hour, Hours: "11:00-12:30"},
	} {
		p := newTestPace(t, l)
		p.look.running = 5
		p.Spent(p.table, 1_000_000, 0)
		if err := p.Wait(t.Context(), p.table); !errors.Is(err, ErrHours) || p.clock.slept > 31*time.Minute {
			t.Errorf("%s: %v after %s, want ErrHours after 30m", name, err, p.clock.slept)
		}
	}
	for _, most := range []time.Duration{0, time.Hour} {
		p := newTestPace(t, Limits{Hours: "12:30-13:00", MaxPause: most})
		p.wait(t)
		if p.clock.slept != 30*time.Minute || len(p.told) != 2 || p.told[0].Cause != CauseHours || !p.told[0].Until.Equal(p.told[0].Since.Add(30*time.Minute)) {
			t.Errorf("waited %s, told %+v", p.clock.slept, p.told)
		}
	}
}

// The guard slows the steps down, then stops them, and goes on by and by.
func TestImpactSlowsDownThenPauses(t *testing.T) {
	t.Parallel()
	p := newTestPace(t, Limits{MaxImpact: 4})
	p.look.latency = 2 * time.Millisecond
	step := func() time.Duration { // a step of a second
		before := p.clock.slept
		p.wait(t)
		took := p.clock.slept - before
		p.clock.mu.Lock()
		p.clock.t = p.clock.t.Add(time.Second)
		p.clock.mu.Unlock()
		return took
	}
	for range 10 {
		if d := step(); d != 0 {
			t.Fatalf("a calm server is waited for: %s", d)
		}
	}
	if i := p.servers[paceServer].impact; i.baseline != 2*time.Millisecond {
		t.Fatalf("the baseline is %s", i.baseline)
	}
	p.look.latency = time.Second // one outlier
	step()
	p.look.latency = 2 * time.Millisecond
	if d := step(); d != 0 || len(p.told) != 0 {
		t.Fatalf("one slow read slows the job: %s, %+v", d, p.told)
	}
	for range 10 {
		step()
	}
	p.look.latency = 11 * time.Millisecond // more than 4 times, but 9 ms
	for range 10 {
		if d := step(); d != 0 {
			t.Fatalf("9 ms more slow the job: %s", d)
		}
	}
	p.look.latency = 50 * time.Millisecond
	p.clock.onWait = func() {
		if len(p.told) > 0 && p.clock.now().Sub(p.told[0].Since) > 30*time.Second {
			p.look.latency = 2 * time.Millisecond
		}
	}
	var waits []time.Duration
	for len(p.told) == 0 {
		if waits = append(waits, step()); len(waits) > 20 {
			break
		}
	}
	if len(waits) < 6 || waits[len(waits)-1] < 30*time.Second || !slices.IsSorted(waits) || waits[len(waits)-3] > time.Second {
		t.Fatalf("waits between the steps: %v", waits)
	}
	if len(p.told) != 2 || p.told[0].Cause != CauseImpact || !strings.Contains(p.told[0].Why, "50ms") || !strings.Contains(p.told[0].Why, "usual are 2") || p.told[1].Ended.Sub(p.told[1].Since) < 30*time.Second {
		t.Fatalf("told %+v", p.told)
	}
	p.clock.onWait = nil
	last := mostStretch
	for n := 0; last > 0; n++ {
		d := step()
		if d > last || n > 20 {
			t.Fatalf("after %d calm steps: %s between them, after %s", n, d, last)
		}
		last = d
	}
	if n := p.look.probes; n > int(p.clock.slept/time.Second)+60 {
		t.Errorf("%d probes", n)
	}
}

// A server that has become slower by itself is not waited for for ever: what reads take
// while the job pauses becomes the usual.
func TestImpactLearnsInPauses(t *testing.T) {
	t.Parallel()
	p := newTestPace(t, Limits{MaxImpact: 4})
	p.look.latency = 2 * time.Millisecond
	p.wait(t)
	p.look.latency = 40 * time.Millisecond
	begun := p.clock.now()
	for len(p.told) < 2 {
		p.wait(t)
		_ = p.clock.sleep(t.Context(), time.Second)
		if p.clock.now().Sub(begun) > time.Hour {
			t.Fatal("it pauses for ever")
		}
	}
	if d := p.told[1].Ended.Sub(p.told[1].Since); d < 5*time.Minute || d > 20*time.Minute {
		t.Errorf("20 times as slow became the usual after %s", d)
	}
	// While it works a job does not take its own load for the usual.
	i := newImpact(4)
	i.first(slices.Repeat([]time.Duration{20 * time.Millisecond}, 9), begun)
	for n := range 10_000 {
		i.see(60*time.Millisecond, begun.Add(time.Duration(n)*time.Second))
	}
	if i.baseline != 20*time.Millisecond {
		t.Errorf("under load the baseline became %s", i.baseline)
	}
	for n := range 600 { // faster counts at once
		i.see(10*time.Millisecond, begun.Add(time.Duration(10_000+n)*time.Second))
	}
	if i.baseline > 11*time.Millisecond {
		t.Errorf("the baseline stays at %s", i.baseline)
	}
}

func TestPaceRefuses(t *testing.T) {
	t.Parallel()
	good := PaceConfig{Job: "purge", Now: time.Now, Sleep: func(context.Context, time.Duration) error { return nil }}
	if _, err := newPace(good, nil); err != nil {
		t.Errorf("no limits: %v", err)
	}
	for _, q := range []string{"SELECT 1", "\n (select a FROM b)", "WITH x AS (SELECT 1) SELECT * FROM x", "SHOW STATUS LIKE 'x'"} {
		c := good
		c.Limits.PauseQuery = q
		if _, err := newPace(c, nil); err != nil {
			t.Error(err)
		}
	}
	for name, spoil := range map[string]func(*PaceConfig){
		"rows": func(c *PaceConfig) { c.Limits.RowsPerSecond = -1 }, "bytes": func(c *PaceConfig) { c.Limits.BytesPerSecond = -1 },
		"lag": func(c *PaceConfig) { c.Limits.MaxReplicaLag = -1 }, "threads": func(c *PaceConfig) { c.Limits.MaxThreadsRunning = -1 },
		"history": func(c *PaceConfig) { c.Limits.MaxHistoryLength = -1 }, "pause": func(c *PaceConfig) { c.Limits.MaxPause = -1 },
		"impact": func(c *PaceConfig) { c.Limits.MaxImpact = 1 }, "hours": func(c *PaceConfig) { c.Limits.Hours = "x" },
		"query": func(c *PaceConfig) { c.Limits.PauseQuery = "DROP TABLE msg" }, "comment": func(c *PaceConfig) { c.Limits.PauseQuery = "/*! TRUNCATE msg */" },
		"call": func(c *PaceConfig) { c.Limits.PauseQuery = "CALL busy()" }, "word": func(c *PaceConfig) { c.Limits.PauseQuery = "selected" },
		"clock": func(c *PaceConfig) { c.Now = nil }, "sleep": func(c *PaceConfig) { c.Sleep = nil }, "job": func(c *PaceConfig) { c.Job = "" },
	} {
		c := good
		spoil(&c)
		if _, err := newPace(c, nil); err == nil {
			t.Errorf("a bad %s is taken", name)
		}
	}
	if all := Causes(); len(all) != 9 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
		t.Error(all)
	}
}
