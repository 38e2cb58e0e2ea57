package main

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// How often the manifest is asked for the numbers of the whole at most: by a server, by a
// job that pushes them, and for those that are sums over many slices. wholeWait is for its
// answer; a scrape is not to hang on it.
const (
	serverEvery = 30 * time.Second
	jobsEvery   = 5 * time.Minute
	sumsEvery   = 5 * time.Minute
	wholeWait   = 2 * time.Second
)

// skewDays is how many of the youngest days that are old enough are looked at for skew, and
// skewMost how many shards are named at most.
const (
	skewDays = 7
	skewMost = 20
)

// whole tells Prometheus the numbers of the whole, which the manifest knows. While it does
// not answer, they are what it said last, and at first absent. Ages go on.
type whole struct {
	store *manifest.Store
	zone  *time.Location
	after time.Duration // of archive
	lag   time.Duration // of purge
	skew  float64
	every time.Duration
	now   func() time.Time
	base  context.Context
	log   *slog.Logger
	descs wholeDescs

	mu     sync.Mutex
	asked  time.Time
	summed time.Time
	stats  *manifest.Stats
	at     time.Time // by the worker's clock, when stats were read
	stops  []manifest.Stop
	sums   *wholeSums
}

// wholeSums are the numbers that cost more to read.
type wholeSums struct {
	bytes    uint64
	expected manifest.Expected
	shards   []shardRatio
}

type shardRatio struct {
	shard manifest.Shard
	ratio float64
}

type wholeDescs struct {
	slices, failed, unarchived, unpurged, holds, stopped, bytes, expected, skew *prometheus.Desc
}

func (d wholeDescs) all() []*prometheus.Desc {
	return []*prometheus.Desc{d.slices, d.failed, d.unarchived, d.unpurged, d.holds, d.stopped, d.bytes, d.expected, d.skew}
}

func newWhole(ctx context.Context, log *slog.Logger, now func() time.Time, p *parts, every time.Duration) *whole {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("coldtier_"+name, help, labels, prometheus.Labels{"source": p.cfg.Source.Name})
	}
	return &whole{store: p.manifest, zone: p.cfg.Source.Zone, after: p.cfg.Archive.After, lag: p.cfg.Purge.Lag, skew: p.cfg.Metrics.Skew, every: every, now: now, base: ctx, log: log,
		descs: wholeDescs{
			slices:     desc("slices", "Slices by state.", "state"),
			failed:     desc("slices_failed", "Slices whose last try failed."),
			unarchived: desc("oldest_unarchived_age_seconds", "For how long the oldest day that has no verified copy has been old enough for one; 0 if there is none."),
			unpurged:   desc("oldest_unpurged_age_seconds", "For how long the slice that waits longest has been past its lag, verified and not held; 0 if there is none."),
			holds:      desc("holds", "Holds in force."),
			stopped:    desc("stopped", "1 while somebody has stopped a job.", "job"),
			bytes:      desc("cold_bytes", "Bytes of the objects of all slices' newest copies."),
			expected:   desc("expected_rows", "Rows that the youngest day that is old enough should have, by the same weekday of former weeks; 0 if less than two are known."),
			skew:       desc("shard_skew_ratio", "Times the median of its day that a shard has in rows or bytes, on its worst of the last 7 days; of those above metrics.skew, and of the greatest.", "shard"),
		}}
}

// Describe implements prometheus.Collector.
func (w *whole) Describe(to chan<- *prometheus.Desc) {
	for _, d := range w.descs.all() {
		to <- d
	}
}

// again lets the next collection ask the manifest, however short ago that was.
func (w *whole) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked, w.summed = time.Time{}, time.Time{}
}

// Collect implements prometheus.Collector.
func (w *whole) Collect(to chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if s := w.stats; s != nil {
		now := s.Now.Add(w.now().Sub(w.at)) // by the database's clock
		for state, n := range s.States {
			gauge(w.descs.slices, float64(n), string(state))
		}
		gauge(w.descs.failed, float64(s.Failed))
		gauge(w.descs.holds, float64(s.Holds))
		if due, ok := w.due(*s); ok {
			gauge(w.descs.unarchived, max(now.Sub(due), 0).Seconds())
		}
		waits := time.Duration(0)
		if s.Unpurged != nil {
			waits = max(now.Sub(s.Unpurged.Add(w.lag)), 0)
		}
		gauge(w.descs.unpurged, waits.Seconds())
		for _, job := range pacedJobs() {
			stopped := 0.
			if slices.ContainsFunc(w.stops, func(st manifest.Stop) bool { return st.Of(job) }) {
				stopped = 1
			}
			gauge(w.descs.stopped, stopped, job)
		}
	}
	if s := w.sums; s != nil {
		gauge(w.descs.bytes, float64(s.bytes))
		gauge(w.descs.expected, float64(s.expected.Expect))
		for _, r := range s.shards {
			gauge(w.descs.skew, r.ratio, r.shard.String())
		}
	}
}

// due is when the oldest day without a verified copy became old enough. The day after the
// youngest that has slices has none either.
func (w *whole) due(s manifest.Stats) (time.Time, bool) {
	if s.Newest == nil {
		return time.Time{}, false
	}
	day := s.Newest.Next()
	if s.Uncopied != nil && s.Uncopied.Before(day) {
		day = *s.Uncopied
	}
	return day.Next().Start(w.zone).Add(w.after), true
}

// refresh asks the manifest, unless it was asked a short while ago; the lock is held.
func (w *whole) refresh() {
	now := w.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.base), wholeWait)
	defer cancel()
	if now.Sub(w.asked) >= w.every {
		w.asked = now
		if err := w.look(ctx); err != nil {
			w.log.DebugContext(ctx, "the manifest does not tell the numbers of the whole", "error", err)
			return
		}
	}
	if now.Sub(w.summed) >= sumsEvery && w.stats != nil {
		w.summed = now
		if err := w.sum(ctx); err != nil {
			w.log.DebugContext(ctx, "the manifest does not tell the sums of the whole", "error", err)
		}
	}
}

func (w *whole) look(ctx context.Context) error {
	stats, err := w.store.Stats(ctx, w.lag)
	if err != nil {
		return err
	}
	stops, err := w.store.Stops(ctx, false)
	if err != nil {
		return err
	}
	w.stats, w.at, w.stops = &stats, w.now(), stops
	return nil
}

func (w *whole) sum(ctx context.Context) (err error) {
	var s wholeSums
	if _, s.bytes, err = w.store.ColdSize(ctx); err != nil {
		return err
	}
	newest := newestDue(w.stats.Now, w.after, w.zone)
	if s.expected, err = w.store.Expect(ctx, newest); err != nil {
		return err
	}
	days, err := w.store.Skew(ctx, newest.Add(1-skewDays), newest, w.skew)
	if err != nil {
		return err
	}
	s.shards = worst(days)
	w.sums = &s
	return nil
}

// newestDue is the youngest day that is old enough to be archived.
func newestDue(now time.Time, after time.Duration, zone *time.Location) snowflake.Day {
	return snowflake.DayAt(now.Add(-max(after, 0)), zone).Add(-1)
}

// worst are the shards that stand out on some day, and the one that does most.
func worst(days []manifest.DaySkew) (all []shardRatio) {
	most := map[manifest.Shard]float64{}
	for _, d := range days {
		list := d.Over
		if d.Largest != nil {
			list = append(slices.Clone(list), *d.Largest)
		}
		for _, s := range list {
			most[s.Shard] = max(most[s.Shard], s.Ratio())
		}
	}
	over := map[manifest.Shard]bool{}
	for _, d := range days {
		for _, s := range d.Over {
			over[s.Shard] = true
		}
	}
	for shard, ratio := range most {
		all = append(all, shardRatio{shard, ratio})
	}
	slices.SortFunc(all, func(a, b shardRatio) int {
		return cmp.Or(cmp.Compare(b.ratio, a.ratio), cmp.Compare(a.shard.String(), b.shard.String()))
	})
	keep := 0
	for i, r := range all {
		if i == 0 || over[r.shard] && keep < skewMost {
			all[keep] = r
			keep++
		}
	}
	return all[:keep]
}
