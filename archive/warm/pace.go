package warm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// What ends a wait of a Pace, beside the context.
var (
	// ErrBusy says that a server was not well for longer than Limits.MaxPause.
	ErrBusy = errors.New("held back for too long")
	// ErrHours says that the allowed hours are over, and begin again later than after Limits.MaxPause.
	ErrHours = errors.New("outside the allowed hours")
)

// Cause says what holds a job back.
type Cause string

// The causes.
const (
	CauseRows    Cause = "rows"    // rows a second
	CauseBytes   Cause = "bytes"   // bytes a second
	CauseLag     Cause = "lag"     // a replica is behind, or its lag is unknown
	CauseThreads Cause = "threads" // statements that the server works on
	CauseHistory Cause = "history" // InnoDB's history list
	CauseQuery   Cause = "query"   // the user's own statement
	CauseHours   Cause = "hours"   // outside the allowed hours
	CauseImpact  Cause = "impact"  // a small read takes longer than it used to
	CauseStopped Cause = "stopped" // somebody has stopped all such jobs
)

// Causes lists the causes.
func Causes() []Cause {
	return []Cause{CauseRows, CauseBytes, CauseLag, CauseThreads, CauseHistory, CauseQuery, CauseHours, CauseImpact, CauseStopped}
}

// Limits say when a server is left alone. Zero values are no limit.
type Limits struct {
	RowsPerSecond     int64
	BytesPerSecond    int64
	MaxReplicaLag     time.Duration // of each of the server's replicas
	MaxThreadsRunning int
	MaxHistoryLength  int64
	PauseQuery        string         // gives 1 to pause; NULL, 0, "" and no row are go
	Hours             string         // "22:00-06:00,12:00-13:00" in Zone
	Zone              *time.Location // of Hours
	MaxImpact         float64        // how many times as long as usual a small read may take
	MaxPause          time.Duration  // a pause that lasts longer is an error; 0: none is
}

// Pause is a time in which a job leaves a server alone. It is told at its begin, when
// its cause changes, and at its end.
type Pause struct {
	Job    string    // archive, purge
	Server string    // host:port; "" when stopped: all of them
	Cause  Cause     //
	Why    string    // for people
	Since  time.Time // of the pause, whatever its first cause was
	Until  time.Time // when it ends; zero: not known
	Ended  time.Time // zero: it lasts
}

// PaceConfig is what a Pace works with.
type PaceConfig struct {
	Job    string // as pauses and errors name it, and the section of the configuration
	Limits Limits
	Now    func() time.Time
	Sleep  func(ctx context.Context, d time.Duration) error // waits, or ends early with the context's error
	// Stopped, when not nil, gives an error when somebody has stopped all such jobs. It is
	// asked before each step, so it has to remember its answer for a while.
	Stopped func(ctx context.Context) error
	// OnPause, when not nil, is called at each pause's begin, change and end. It must not block.
	OnPause func(Pause)
	// OnLag, when not nil, is called with what each replica says, or that it says nothing
	// (an error), whenever it was asked. It must not block.
	OnLag func(replica string, lag time.Duration, err error)
}

// Pace decides when a job may go on with its next step on a server: the one place for
// it. It asks each server at most once in lookEvery, however many workers wait. It is
// safe for concurrent use.
type Pace struct {
	cfg     PaceConfig
	hours   hours
	log     *slog.Logger
	servers map[string]*paced // by address
	stop    sync.Once         // a stop is told once
}

// lookEvery is how often a server is looked at, and how long a step waits before it asks
// again.
const lookEvery = time.Second

// announced is from how long on a wait for a rate is told as a pause. One of any other
// cause is told at once.
const announced = 10 * time.Second

// paced is one server at a pace.
type paced struct {
	p    *Pace
	addr string
	look looker
	turn chan struct{} // one worker looks at a time

	// Of who has the turn.
	looked time.Time
	found  *obstacle // what the last look found; nil: all is well
	impact *impact

	mu    sync.Mutex
	rows  debt
	bytes debt
	pause *Pause
	held  map[Cause]*heldBack
	asked *heldBack          // what Ready has found last
	sizes map[string]rowSize // by table
}

// rowSize is a table's average row when it was read.
type rowSize struct {
	bytes int64
	read  time.Time
}

// sizeKept is how long the average size of a table's rows counts.
const sizeKept = 10 * time.Minute

// heldBack counts the time in which at least one step was held back by a cause.
type heldBack struct {
	steps int
	since time.Time
	total time.Duration
}

// obstacle is why a server is to be left alone.
type obstacle struct {
	cause Cause
	why   string
	until time.Time
}

// Pace makes a Pace for the servers of all databases. Nothing is connected to before
// it is needed.
func (w *Warm) Pace(cfg PaceConfig, log *slog.Logger) (*Pace, error) {
	p, err := newPace(cfg, log)
	if err != nil {
		return nil, err
	}
	for _, d := range w.databases {
		s := p.servers[d.addr]
		if s == nil {
			l, err := newServerLook(d, w.cfg)
			if err != nil {
				return nil, errors.Join(err, p.Close())
			}
			s = p.add(d.addr, l)
		}
		s.look.(*serverLook).watch(d.replicas) // made above
	}
	return p, nil
}

func newPace(cfg PaceConfig, log *slog.Logger) (*Pace, error) {
	l := cfg.Limits
	def(&l.Zone, time.UTC)
	cfg.Limits = l
	h, err := parseHours(l.Hours, l.Zone)
	if err != nil {
		return nil, fmt.Errorf("%s.%w", cfg.Job, err)
	}
	if err := CheckPauseQuery(l.PauseQuery); err != nil {
		return nil, fmt.Errorf("%s.pause_query %q: %w", cfg.Job, l.PauseQuery, err)
	}
	switch {
	case l.RowsPerSecond < 0, l.BytesPerSecond < 0, l.MaxReplicaLag < 0, l.MaxThreadsRunning < 0, l.MaxHistoryLength < 0, l.MaxPause < 0:
		return nil, fmt.Errorf("%s: a limit is negative: want 0 (no limit) or more", cfg.Job)
	case l.MaxImpact != 0 && !(l.MaxImpact >= MinImpact):
		return nil, fmt.Errorf("%s.max_impact %g: want 0 (off), or %g or more", cfg.Job, l.MaxImpact, MinImpact)
	case cfg.Job == "" || cfg.Now == nil || cfg.Sleep == nil:
		return nil, errors.New("pace: the job's name, the clock or sleep is missing")
	}
	return &Pace{cfg: cfg, hours: h, log: log, servers: map[string]*paced{}}, nil
}

func (p *Pace) add(addr string, l looker) *paced {
	lim := p.cfg.Limits
	s := &paced{p: p, addr: addr, look: l, turn: make(chan struct{}, 1), held: map[Cause]*heldBack{}, sizes: map[string]rowSize{},
		rows: newDebt(lim.RowsPerSecond), bytes: newDebt(lim.BytesPerSecond), impact: newImpact(lim.MaxImpact)}
	p.servers[addr] = s
	return s
}

// Close ends all pauses and closes the connections.
func (p *Pace) Close() error {
	var errs []error
	for _, s := range p.servers {
		s.goOn("the run ends in a pause")
		errs = append(errs, s.look.close())
	}
	return errors.Join(errs...)
}

// Stopped gives an error when all such jobs are stopped.
func (p *Pace) Stopped(ctx context.Context) error {
	if p.cfg.Stopped == nil {
		return nil
	}
	err := p.cfg.Stopped(ctx)
	if err != nil && ctx.Err() == nil {
		p.stop.Do(func() {
			now := p.cfg.Now()
			p.tell(Pause{Job: p.cfg.Job, Cause: CauseStopped, Why: err.Error(), Since: now, Ended: now})
		})
	}
	return err
}

// Wait returns when the next step may be done on a table's server. ErrBusy, ErrHours and
// the error of Stopped say that it may not, and that the run is to end.
func (p *Pace) Wait(ctx context.Context, t *Table) error {
	s := p.servers[t.d.addr]
	if s == nil {
		return fmt.Errorf("table %s: its server %s has no pace", t.shard, t.d.addr)
	}
	return s.wait(ctx, t)
}

// Ready is Wait for who has other servers to turn to meanwhile: it does not wait, and gives
// after what time to ask again; 0: the next step may be done.
func (p *Pace) Ready(ctx context.Context, t *Table) (time.Duration, error) {
	s := p.servers[t.d.addr]
	if s == nil {
		return 0, fmt.Errorf("table %s: its server %s has no pace", t.shard, t.d.addr)
	}
	f, d, err := s.step(ctx, t, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != nil {
		s.asked.end(p.cfg.Now())
		s.asked = nil
	}
	if err == nil && f != nil {
		s.asked = s.begin(f.cause)
	}
	return d, err
}

// Spent tells what a step has read or deleted. Waits for rates come after, so that the
// rate is kept over time whatever a step's size.
func (p *Pace) Spent(t *Table, rows, bytes int64) {
	s := p.servers[t.d.addr]
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := p.cfg.Now()
	s.rows.spend(now, rows)
	s.bytes.spend(now, bytes)
}

// Deleted is Spent for rows whose size nobody knows any more: they count as the table's
// average, by the server's own statistics.
func (p *Pace) Deleted(t *Table, rows uint64) {
	size := int64(0)
	if s := p.servers[t.d.addr]; s != nil {
		s.mu.Lock()
		size = s.sizes[t.name].bytes
		s.mu.Unlock()
	}
	n := int64(min(rows, 1<<32))
	p.Spent(t, n, n*size)
}

// Throttled is for how long steps were held back, by cause: of each server the time in
// which at least one was, summed up.
func (p *Pace) Throttled() map[Cause]time.Duration {
	all := map[Cause]time.Duration{}
	for _, s := range p.servers {
		s.mu.Lock()
		now := p.cfg.Now()
		for c, h := range s.held {
			d := h.total
			if h.steps > 0 {
				d += now.Sub(h.since)
			}
			if d > 0 {
				all[c] += d
			}
		}
		s.mu.Unlock()
	}
	return all
}

// Pauses are those that last, by server.
func (p *Pace) Pauses() (all []Pause) {
	for _, s := range p.servers {
		s.mu.Lock()
		if s.pause != nil {
			all = append(all, *s.pause)
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Pause) int { return compareText(a.Server, b.Server) })
	return all
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (p *Pace) tell(x Pause) {
	if p.cfg.OnPause != nil {
		p.cfg.OnPause(x)
	}
}

// wait is Wait on the server.
func (s *paced) wait(ctx context.Context, t *Table) error {
	entered := s.p.cfg.Now()
	for {
		f, d, err := s.step(ctx, t, &entered)
		if err != nil || f == nil {
			return err
		}
		if err := s.sleep(ctx, f.cause, d); err != nil {
			return err
		}
	}
}

// step says what is in the way of the next step, and for how long not to ask again. Who
// has entered at some time waits also for what the impact puts between steps.
func (s *paced) step(ctx context.Context, t *Table, entered *time.Time) (*obstacle, time.Duration, error) {
	if err := s.p.Stopped(ctx); err != nil {
		return nil, 0, err
	}
	f, stretch, err := s.state(ctx, t)
	if err != nil {
		return nil, 0, err
	}
	now := s.p.cfg.Now()
	if f == nil {
		if f = s.due(now); f == nil && entered != nil {
			f = stretched(*entered, now, stretch)
		}
	} else if err := s.tooLong(now, f); err != nil {
		s.note(now, f)
		return nil, 0, err
	}
	if f == nil {
		s.goOn("pause is over")
		return nil, 0, nil
	}
	s.note(now, f)
	d := lookEvery
	if !f.until.IsZero() {
		d = min(d, f.until.Sub(now))
	}
	return f, d, nil
}

// state looks at the server, unless that was done a moment ago.
func (s *paced) state(ctx context.Context, t *Table) (f *obstacle, stretch time.Duration, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	now := s.p.cfg.Now()
	if !s.p.hours.open(now) {
		// Not remembered: the hours may begin in this very second.
		next := s.p.hours.next(now)
		return &obstacle{CauseHours, fmt.Sprintf("it is %s, the allowed hours are %s", now.In(s.p.hours.zone).Format("15:04 MST"), s.p.hours), next}, 0, nil
	}
	if !s.looked.IsZero() && now.Sub(s.looked) < lookEvery && !now.Before(s.looked) {
		return s.found, s.impact.stretch, nil
	}
	if err := s.size(ctx, t, now); err != nil {
		return nil, 0, err
	}
	if s.found, err = s.examine(ctx, t); err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil { // what was found may be of a look that was cut off
		s.looked = time.Time{}
		return nil, 0, context.Cause(ctx)
	}
	s.looked = s.p.cfg.Now()
	return s.found, s.impact.stretch, nil
}

// size reads how big a table's rows are, where that is needed.
func (s *paced) size(ctx context.Context, t *Table, now time.Time) error {
	if s.p.cfg.Limits.BytesPerSecond == 0 {
		return nil
	}
	s.mu.Lock()
	known := s.sizes[t.name]
	s.mu.Unlock()
	if !known.read.IsZero() && now.Sub(known.read) < sizeKept {
		return nil
	}
	n, err := s.look.rowBytes(ctx, t)
	if err != nil && !slow(err) {
		return fmt.Errorf("table %s: average row: %w", t.shard, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes[t.name] = rowSize{n, now}
	return nil
}

// due is what the rates say.
func (s *paced) due(now time.Time) *obstacle {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.p.cfg.Limits
	if d := s.rows.wait(now); d > 0 {
		return &obstacle{CauseRows, fmt.Sprintf("%s.rows_per_second %d", s.p.cfg.Job, l.RowsPerSecond), now.Add(d)}
	}
	if d := s.bytes.wait(now); d > 0 {
		return &obstacle{CauseBytes, fmt.Sprintf("%s.bytes_per_second %d", s.p.cfg.Job, l.BytesPerSecond), now.Add(d)}
	}
	return nil
}

// stretched is what is left of the pause that the impact puts between steps.
func stretched(entered, now time.Time, stretch time.Duration) *obstacle {
	if end := entered.Add(stretch); end.After(now) {
		return &obstacle{CauseImpact, "small reads are slower than usual", end}
	}
	return nil
}

// tooLong says that a pause will not be, or is not, waited for.
func (s *paced) tooLong(now time.Time, f *obstacle) error {
	most := s.p.cfg.Limits.MaxPause
	if most == 0 {
		return nil
	}
	s.mu.Lock()
	since := now
	if s.pause != nil {
		since = s.pause.Since
	}
	s.mu.Unlock()
	switch waited := now.Sub(since); {
	case f.cause == CauseHours && f.until.Sub(since) > most:
		return fmt.Errorf("%w: %s", ErrHours, f.why)
	case waited >= most:
		return fmt.Errorf("server %s: %w, %s (%s.max_pause %s): %s", s.addr, ErrBusy, waited.Round(time.Second), s.p.cfg.Job, most, f.why)
	}
	return nil
}
