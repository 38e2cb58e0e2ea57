package restore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/guard"
)

// Objects is the bucket as a reader uses it.
type Objects interface {
	// ReadRange reads exactly n bytes of an object at off. Its errors match
	// ErrNotFound, ErrDamaged and ErrArchived where they are of the object and not of
	// the store.
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)
}

// Rows is ClickHouse as a reader uses it.
type Rows interface {
	// Spans gives the rows of a conversation in the spans, at most limit of them, in
	// message.Compare order. All copies have the schema's columns.
	Spans(ctx context.Context, spans []Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error)
}

// Span is a range of cursors in one copy.
type Span struct {
	Copy     manifest.CopyID
	Min, Max uint64 // inclusive
}

// Config of a Fetcher. Zero values take the defaults.
type Config struct {
	Layout     snowflake.Layout
	Zone       *time.Location
	Budget     time.Duration // most that a page may take
	HedgeAfter time.Duration // longest wait for ClickHouse before the bucket is asked beside it
	FillAfter  time.Duration // how long what was not there in time is still read in the background
	Cache      int64         // bytes of all caches
	MaxLimit   int           // messages of a page
	Limits     guard.LimitsConfig
	Ahead      bool // read what is likely to be asked for next
	Clock      func() time.Time
}

// Defaults of Config.
const (
	DefaultBudget     = 800 * time.Millisecond
	DefaultHedgeAfter = 150 * time.Millisecond
	DefaultFill       = 10 * time.Second
	DefaultCache      = 256 << 20
)

// probeTimeout is how long all warm tables may take to say whether they hold a
// conversation.
const probeTimeout = 30 * time.Second

// Bounds of what the process reads at once. RowQueries, in statements, is for whoever
// sizes ClickHouse's connections.
const (
	RowQueries  = 32
	bucketReads = 64
	fills       = 1024 // reads that run or wait
	lookups     = 256  // in the manifest
)

func (c Config) withDefaults() Config {
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	if c.Budget <= 0 {
		c.Budget = DefaultBudget
	}
	if c.HedgeAfter <= 0 {
		c.HedgeAfter = DefaultHedgeAfter
	}
	if c.FillAfter <= 0 {
		c.FillAfter = DefaultFill
	}
	c.FillAfter = max(c.FillAfter, c.Budget)
	if c.Cache <= 0 {
		c.Cache = DefaultCache
	}
	if c.MaxLimit <= 0 {
		c.MaxLimit = DefaultMax
	}
	return c
}

// Deps are the stores that a Fetcher reads. Rows and Warm may be nil: then there is
// no ClickHouse, and pages end where the cold tier does.
type Deps struct {
	Manifest *manifest.Store
	Objects  Objects
	Rows     Rows
	Warm     Warm
	Registry prometheus.Registerer // nil: nobody looks
	// Trace, when not nil, begins a read of the manifest for the request of ctx; the function
	// it gives is called at its end. With it, reads that go on when their request has left have
	// the values of its context, so that they are known as its own.
	Trace func(ctx context.Context, what string) (done func(error))
	Log   *slog.Logger
}

// Fetcher reads pages. It is safe for concurrent use. Close ends what it does in the
// background.
type Fetcher struct {
	Deps
	cfg      Config
	base     context.Context
	cancel   context.CancelFunc
	m        *metrics
	limits   *guard.Limits
	caches   *caches
	damage   *damageLog
	failures *damageLog
	looks    *guard.Flights[lookKey, *looked]
	seens    *guard.Flights[string, *seen]
	footers  *guard.Flights[string, []bounds]
	probing  *guard.Flights[string, *holding]
	version  *guard.Turn[manifest.Versions]
	known    atomic.Pointer[manifest.Versions] // what the last finished version read gave
	hot      *guard.Sketch

	rowsBreaker, bucketBreaker *guard.Breaker
	hedges                     *guard.HedgeBudget
	delay                      *guard.HedgeDelay
	bucketSlots, rowSlots      *semaphore.Weighted
	asideSlots                 *semaphore.Weighted

	mu      sync.Mutex
	flights map[partKey]*flight
	wg      sync.WaitGroup
}

// New makes a Fetcher.
func New(cfg Config, d Deps) (*Fetcher, error) {
	cfg = cfg.withDefaults()
	if cfg.Clock == nil || d.Manifest == nil || d.Objects == nil || d.Log == nil {
		return nil, errors.New("fetcher: a clock, a manifest, objects and a log are needed")
	}
	f := &Fetcher{
		Deps: d, cfg: cfg, limits: guard.NewLimits(cfg.Limits), flights: map[partKey]*flight{}, damage: newDamageLog(cfg.Clock, damageEvery), failures: newDamageLog(cfg.Clock, failureEvery),
		hedges: guard.NewHedgeBudget(hedgeRatio, hedgeBurst), delay: guard.NewHedgeDelay(cfg.HedgeAfter, cfg.Clock),
		bucketSlots: semaphore.NewWeighted(bucketReads), rowSlots: semaphore.NewWeighted(RowQueries),
		asideSlots: semaphore.NewWeighted(asideAtOnce), hot: guard.NewSketch(hotWidth, hotDepth, hotHalve),
	}
	var err error
	if f.caches, err = newCaches(cfg.Cache); err != nil {
		return nil, fmt.Errorf("fetcher: caches of %d bytes: %w", cfg.Cache, err)
	}
	if f.m, err = newMetrics(f, d.Registry); err != nil {
		return nil, fmt.Errorf("fetcher: register metrics: %w", err)
	}
	breaker := guard.BreakerConfig{ProbeTimeout: cfg.FillAfter, OnChange: f.breakerChanged}
	f.rowsBreaker = guard.NewBreaker(storeRows, breaker, cfg.Clock)
	f.bucketBreaker = guard.NewBreaker(storeBucket, breaker, cfg.Clock)
	f.base, f.cancel = context.WithCancel(context.Background())
	f.looks = guard.NewFlights[lookKey, *looked](f.base, cfg.FillAfter, lookups)
	f.seens = guard.NewFlights[string, *seen](f.base, cfg.FillAfter, lookups)
	f.footers = guard.NewFlights[string, []bounds](f.base, cfg.FillAfter, lookups)
	f.probing = guard.NewFlights[string, *holding](f.base, max(cfg.FillAfter, probeTimeout), probes)
	f.version = guard.NewTurn(f.base, cfg.FillAfter, f.readVersions)
	return f, nil
}

// Close ends the reads in the background and waits for them.
func (f *Fetcher) Close() error {
	f.cancel()
	f.looks.Wait()
	f.seens.Wait()
	f.footers.Wait()
	f.probing.Wait()
	f.version.Wait()
	f.wg.Wait()
	f.caches.close()
	return nil
}

func (f *Fetcher) breakerChanged(store string, from, to guard.State) {
	f.Log.Warn("a store's circuit breaker changed", "store", store, "from", from.String(), "to", to.String())
}

// dead says that neither store is to be asked.
func (f *Fetcher) dead() bool {
	return f.bucketBreaker.State() == guard.Open && (f.Rows == nil || f.rowsBreaker.State() == guard.Open)
}

// well says that no store is known to be unwell.
func (f *Fetcher) well() bool {
	return f.rowsBreaker.State() == guard.Closed && f.bucketBreaker.State() == guard.Closed
}

// answering is what is left of a budget for the answer itself, at most.
const answering = 15 * time.Millisecond

// errBudget is the cause with which a request's context ends.
var errBudget = errors.New("the budget ran out")

// within bounds a request by its budget; the caller's own deadline may be sooner.
func (f *Fetcher) within(ctx context.Context, budget time.Duration) (context.Context, context.CancelFunc) {
	if budget <= 0 || budget > f.cfg.Budget {
		budget = f.cfg.Budget
	}
	return context.WithTimeoutCause(ctx, budget-min(budget/20, answering), errBudget)
}

// asked is the context of what is read for a request and goes on when it has left.
func (f *Fetcher) asked(by context.Context) context.Context { return f.valued(f.base, by) }

// valued is ctx with the values of the request that is behind it.
func (f *Fetcher) valued(ctx, request context.Context) context.Context {
	if f.Trace == nil {
		return ctx
	}
	return guard.Valued(ctx, request)
}

// again runs a read of the manifest, once more when it fails.
func (f *Fetcher) again(ctx context.Context, what string, read func() error) (err error) {
	if f.Trace != nil {
		done := f.Trace(ctx, what)
		defer func() { done(err) }()
	}
	return again(ctx, read)
}

// readVersions reads the manifest's counters of changes.
func (f *Fetcher) readVersions(ctx context.Context) (manifest.Versions, error) {
	var v manifest.Versions
	err := again(ctx, func() (err error) {
		v, err = f.Manifest.Versions(ctx)
		return err
	})
	if err == nil {
		f.known.Store(&v)
	}
	return v, err
}

// now is what a request knows of the manifest's counters: read after it began, at most
// once, and only when a cache is to be trusted.
type now struct {
	f    *Fetcher
	done chan struct{}
	v    manifest.Versions
	err  error
}

// begin starts reading the counters.
func (f *Fetcher) begin(ctx context.Context) *now {
	n := &now{f: f, done: make(chan struct{})}
	f.wg.Go(func() {
		defer close(n.done)
		n.v, n.err = f.version.Get(ctx)
	})
	return n
}

// wait waits for the counters. Those that are there are taken even after the budget ran out.
func (n *now) wait(ctx context.Context) (manifest.Versions, error) {
	if err := await(ctx, n.done); err != nil {
		return manifest.Versions{}, err
	}
	return n.v, n.err
}

// await waits until done is closed. What is there is taken even after the budget ran out.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
