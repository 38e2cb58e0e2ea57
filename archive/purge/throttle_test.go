package purge

import (
	"context"
	"errors"
	"testing"
	"time"
)

// fakeClock moves only when someone sleeps.
type fakeClock struct {
	t      time.Time
	slept  time.Duration
	onWait func()
}

func (c *fakeClock) now() time.Time { return c.t }

func (c *fakeClock) sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.t, c.slept = c.t.Add(d), c.slept+d
	if c.onWait != nil {
		c.onWait()
	}
	return nil
}

// fakeServer is a server whose state the test sets.
type fakeServer struct {
	lag     time.Duration
	threads int
	err     error
	looks   int
}

func (s *fakeServer) Now(context.Context) (time.Time, error) { return time.Time{}, nil }
func (s *fakeServer) Lag(context.Context) (time.Duration, error) {
	s.looks++
	return s.lag, s.err
}
func (s *fakeServer) ThreadsRunning(context.Context) (int, error) { return s.threads, s.err }

func testThrottle(t *testing.T, c Config) (*throttle, *fakeClock) {
	t.Helper()
	clock := &fakeClock{t: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	c.Owner, c.Now, c.Sleep = "test", clock.now, clock.sleep
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	th, err := newThrottle(&c)
	if err != nil {
		t.Fatal(err)
	}
	return th, clock
}

// M14: a million rows in chunks of 5,000, at 20,000 rows/s, take 50 s; chunks bigger
// than a second's worth are no error.
func TestThrottleKeepsToRowsPerSecond(t *testing.T) {
	for _, chunk := range []uint64{5_000, 50_000} {
		th, clock := testThrottle(t, Config{RowsPerSecond: 20_000})
		for rows := uint64(0); rows < 1_000_000; rows += chunk {
			if err := th.wait(t.Context(), &fakeServer{}, chunk); err != nil {
				t.Fatal(err)
			}
		}
		if clock.slept < 48*time.Second || clock.slept > 51*time.Second {
			t.Errorf("chunks of %d: a million rows at 20,000 rows/s waited %s, want about 49s", chunk, clock.slept)
		}
	}
}

// M14: replica lag stops deletes until it is over; when it stays, the wait has a bound.
func TestThrottleWaitsForReplicasAndThreads(t *testing.T) {
	th, clock := testThrottle(t, Config{MaxReplicaLag: 5 * time.Second, MaxThreadsRunning: 50, MaxWait: time.Minute})
	s := &fakeServer{lag: 30 * time.Second, threads: 1}
	clock.onWait = func() { s.lag -= time.Second }
	if err := th.wait(t.Context(), s, 1); err != nil || clock.slept != 25*time.Second {
		t.Errorf("waited %s for a replica 25s over the limit (%v)", clock.slept, err)
	}
	looks := s.looks
	if err := th.wait(t.Context(), s, 1); err != nil || s.looks != looks {
		t.Errorf("a server found well in this very second was looked at again (%v)", err)
	}
	for name, bad := range map[string]*fakeServer{
		"lag":                {lag: time.Hour},
		"threads":            {threads: 51},
		"a silent replica":   {err: errors.New("connection refused")},
		"lag at other table": {lag: 6 * time.Second},
	} {
		clock.onWait, clock.slept = nil, 0
		if err := th.wait(t.Context(), bad, 1); !errors.Is(err, ErrThrottled) || clock.slept != time.Minute {
			t.Errorf("%s: %v after %s, want ErrThrottled after a minute", name, err, clock.slept)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("lease lost")
	clock.onWait = func() { cancel(gone) }
	if err := th.wait(ctx, &fakeServer{lag: time.Hour}, 1); !errors.Is(err, gone) {
		t.Errorf("a wait whose context ends gives %v", err)
	}
}

func TestHours(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zone data")
	}
	at := func(h, m int) time.Time { return time.Date(2026, 5, 1, h, m, 0, 0, berlin) }
	for text, want := range map[string]map[time.Time]bool{
		"":            {at(0, 0): true, at(12, 0): true},
		"22:00-06:00": {at(21, 59): false, at(22, 0): true, at(23, 59): true, at(0, 0): true, at(5, 59): true, at(6, 0): false, at(12, 0): false},
		"01:30-02:00": {at(1, 29): false, at(1, 30): true, at(1, 59): true, at(2, 0): false},
		"20:00-24:00": {at(19, 59): false, at(23, 59): true, at(0, 0): false},
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
	for _, bad := range []string{"22-06", "22:00", "22:00-22:00", "24:00-06:00", "22:00-25:00", "22:60-06:00", "2:00-6:00", "a-b", "-", "22:00-06:00-07:00"} {
		if _, err := parseHours(bad, berlin); err == nil {
			t.Errorf("hours %q are taken", bad)
		}
	}
}

// A wait for tokens or for a server ends when the hours do.
func TestHoursEndAWait(t *testing.T) {
	for name, c := range map[string]Config{
		"tokens": {RowsPerSecond: 1, Hours: "11:00-12:30"},
		"lag":    {MaxReplicaLag: time.Second, MaxWait: 100 * time.Hour, Hours: "11:00-12:30"},
	} {
		th, clock := testThrottle(t, c)
		if err := th.wait(t.Context(), &fakeServer{lag: time.Minute}, 1_000_000); !errors.Is(err, ErrHours) || clock.slept > 31*time.Minute {
			t.Errorf("%s: %v after %s, want ErrHours after 30m", name, err, clock.slept)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	good := Config{Owner: "w", Zone: time.UTC, Now: func() time.Time { return time.Unix(0, 0) }, Sleep: func(context.Context, time.Duration) error { return nil }}
	if c := good; c.validate() != nil || c.Strategy != Auto || c.MaxWait != DefaultMaxWait {
		t.Errorf("the least configuration: %+v", c)
	}
	for name, spoil := range map[string]func(*Config){
		"strategy": func(c *Config) { c.Strategy = "truncate" },
		"owner":    func(c *Config) { c.Owner = "" },
		"lag":      func(c *Config) { c.Lag = -1 },
		"rows":     func(c *Config) { c.RowsPerSecond = -1 },
		"replicas": func(c *Config) { c.MaxReplicaLag = -1 },
		"threads":  func(c *Config) { c.MaxThreadsRunning = -1 },
		"wait":     func(c *Config) { c.MaxWait = -1 },
		"clock":    func(c *Config) { c.Now = nil },
	} {
		c := good
		spoil(&c)
		if c.validate() == nil {
			t.Errorf("a bad %s is taken", name)
		}
	}
}

// A primary that cannot be asked is not waited for: nothing could be deleted there.
func TestAPrimaryThatIsAwayIsNotWaitedFor(t *testing.T) {
	th, clock := testThrottle(t, Config{MaxThreadsRunning: 50, MaxWait: time.Minute})
	begun := clock.now()
	away := errors.New("connection refused")
	err := th.wait(t.Context(), &fakeServer{err: away}, 1)
	if !errors.Is(err, away) || errors.Is(err, ErrThrottled) || clock.now() != begun {
		t.Errorf("after %s: %v", clock.now().Sub(begun), err)
	}
}
