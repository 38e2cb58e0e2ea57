package restore

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/restore/guard"
)

// metrics are what the fetch tells of itself. All label values are there from the start.
type metrics struct {
	pages      map[State]prometheus.Counter
	seconds    map[State]prometheus.Observer
	missing    map[Cause]prometheus.Counter
	rows       map[Store]prometheus.Counter
	over       prometheus.Counter
	reads      map[string]prometheus.Counter // by store and outcome
	readTime   map[string]prometheus.Observer
	fallbacks  map[string]prometheus.Counter
	damaged    map[Cause]prometheus.Counter
	hits, lost map[string]prometheus.Counter
	prefetched prometheus.Counter
	hedges     struct{ begun, denied prometheus.Counter }
}

// Outcomes of a read, and why the bucket was read instead of ClickHouse.
const (
	outcomeOK     = "ok"
	outcomeError  = "error"
	fellUnwell    = "unwell"
	fellDifferent = "differs"
	fellError     = "error"
)

// latencies are the bounds of the latency histograms, in seconds.
func latencies() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .15, .25, .4, .6, .8, 1, 2.5, 10}
}

func newMetrics(f *Fetcher, reg prometheus.Registerer) (*metrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	var collectors []prometheus.Collector
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coldtier_fetch_" + name, Help: help}, labels)
		collectors = append(collectors, v)
		return v
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "coldtier_fetch_" + name, Help: help})
		collectors = append(collectors, c)
		return c
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coldtier_fetch_" + name, Help: help, Buckets: latencies()}, labels)
		collectors = append(collectors, v)
		return v
	}
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "coldtier_fetch_" + name, Help: help, ConstLabels: labels}, value))
	}
	m := &metrics{pages: map[State]prometheus.Counter{}, seconds: map[State]prometheus.Observer{}, missing: map[Cause]prometheus.Counter{}, rows: map[Store]prometheus.Counter{},
		reads: map[string]prometheus.Counter{}, readTime: map[string]prometheus.Observer{}, fallbacks: map[string]prometheus.Counter{}, damaged: map[Cause]prometheus.Counter{},
		hits: map[string]prometheus.Counter{}, lost: map[string]prometheus.Counter{}}

	pages, seconds := vec("pages_total", "Answers, by state.", "state"), histogram("seconds", "Time to an answer, by state.", "state")
	for _, s := range []State{Complete, Partial, Pending, Thawing} {
		m.pages[s], m.seconds[s] = pages.WithLabelValues(string(s)), seconds.WithLabelValues(string(s))
	}
	missing := vec("missing_total", "Parts that were missing from answers, by cause.", "cause")
	for _, c := range []Cause{CauseBudget, CauseBusy, CauseManifest, CauseStores, CauseLost, CauseDamaged, CauseArchived, CauseWarm} {
		m.missing[c] = missing.WithLabelValues(string(c))
	}
	rows := vec("rows_total", "Messages given, by where they were read.", "store")
	for _, s := range []Store{FromBucket, FromClickHouse, FromWarm} {
		m.rows[s] = rows.WithLabelValues(string(s))
	}
	m.over = counter("over_budget_total", "Answers that took longer than fetch.budget.")
	reads, readTime := vec("reads_total", "Reads of a store, by outcome.", "store", "outcome"), histogram("read_seconds", "Time of a read that succeeded.", "store")
	for _, s := range []string{storeRows, storeBucket} {
		m.readTime[s] = readTime.WithLabelValues(s)
		for _, o := range []string{outcomeOK, outcomeError} {
			m.reads[s+o] = reads.WithLabelValues(s, o)
		}
	}
	fallbacks := vec("fallbacks_total", "Parts that ClickHouse could not give, by reason: it did not answer lately, its rows differ from the verified copy, or an error.", "reason")
	for _, r := range []string{fellUnwell, fellDifferent, fellError} {
		m.fallbacks[r] = fallbacks.WithLabelValues(r)
	}
	damaged := vec("damaged_total", "Reads that found an object of the manifest lost or damaged. Any is an alarm.", "cause")
	for _, c := range []Cause{CauseLost, CauseDamaged} {
		m.damaged[c] = damaged.WithLabelValues(string(c))
	}
	hits, lost := vec("cache_hits_total", "Look-ups in a cache that found what they sought.", "cache"), vec("cache_misses_total", "Look-ups in a cache that did not.", "cache")
	sizes := map[string]func() uint64{cacheManifest: f.caches.looks.WeightedSize, cacheStatuses: f.caches.statuses.WeightedSize, cacheFooters: f.caches.footers.WeightedSize,
		cacheGroups: f.caches.groups.WeightedSize, cacheNewest: f.caches.newest.WeightedSize}
	for name, size := range sizes {
		m.hits[name], m.lost[name] = hits.WithLabelValues(name), lost.WithLabelValues(name)
		gauge("cache_bytes", "Bytes in a cache.", prometheus.Labels{"cache": name}, func() float64 { return float64(size()) })
	}
	m.prefetched = counter("prefetched_total", "Pages that were read before they were asked for.")
	hedges := vec("hedges_total", "Times that the bucket was read beside a slow ClickHouse, and times that the hedge budget forbade it.", "result")
	m.hedges.begun, m.hedges.denied = hedges.WithLabelValues("begun"), hedges.WithLabelValues("denied")
	for store, b := range map[string]func() guard.State{storeRows: func() guard.State { return f.rowsBreaker.State() }, storeBucket: func() guard.State { return f.bucketBreaker.State() }} {
		gauge("breaker_open", "1 while a store is not asked because it did not answer, 0.5 while it is tried again.", prometheus.Labels{"store": store}, func() float64 {
			switch b() {
			case guard.Open:
				return 1
			case guard.HalfOpen:
				return .5
			}
			return 0
		})
	}
	gauge("in_flight", "Requests being answered.", nil, func() float64 { return float64(f.limits.InFlight()) })
	gauge("filling", "Parts being read, for requests or after them.", nil, func() float64 {
		f.mu.Lock()
		defer f.mu.Unlock()
		return float64(len(f.flights))
	})
	var errs []error
	for _, c := range collectors {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) hit(cache string)  { m.hits[cache].Inc() }
func (m *metrics) miss(cache string) { m.lost[cache].Inc() }

func (m *metrics) answer(s State, missing []Missing, rows []Row, took, budget time.Duration) {
	m.pages[s].Inc()
	m.seconds[s].Observe(took.Seconds())
	for _, x := range missing {
		m.missing[x.Cause].Inc()
	}
	for _, r := range rows {
		m.rows[r.Store].Inc()
	}
	if took > budget {
		m.over.Inc()
	}
}

func (m *metrics) page(p *Page, budget time.Duration) {
	m.answer(p.State, p.Missing, p.Rows, p.Took, budget)
}

func (m *metrics) messages(a *Messages, budget time.Duration) {
	m.answer(a.State, a.Missing, a.Rows, a.Took, budget)
}

func (m *metrics) read(store string, err error, took time.Duration) {
	if err != nil {
		m.reads[store+outcomeError].Inc()
		return
	}
	m.reads[store+outcomeOK].Inc()
	m.readTime[store].Observe(took.Seconds())
}

// fallback counts a part that ClickHouse could not give.
func (m *metrics) fallback(err error) {
	switch {
	case errors.Is(err, errUnwanted):
	case errors.Is(err, errUnwell):
		m.fallbacks[fellUnwell].Inc()
	case errors.Is(err, errLacks):
		m.fallbacks[fellDifferent].Inc()
	default:
		m.fallbacks[fellError].Inc()
	}
}
