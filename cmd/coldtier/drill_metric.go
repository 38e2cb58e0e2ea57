package main

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/manifest"
)

const (
	drillMetric = "coldtier_drill_last_good_timestamp_seconds"
	drillEvery  = time.Minute     // the manifest is asked at most as often
	drillWait   = 2 * time.Second // for its answer; a scrape is not to hang on it
)

// drillAge tells Prometheus when the last good drill ended. While the manifest does not
// answer it tells what it told before, and at first nothing: a gauge that is absent is not
// one that says never, which is 0.
type drillAge struct {
	last func(context.Context) (*manifest.Drill, error)
	now  func() time.Time
	base context.Context
	desc *prometheus.Desc

	mu    sync.Mutex
	asked time.Time
	known bool
	value float64
}

func newDrillAge(ctx context.Context, source string, now func() time.Time, last func(context.Context) (*manifest.Drill, error)) *drillAge {
	return &drillAge{last: last, now: now, base: ctx, desc: prometheus.NewDesc(drillMetric,
		"When the last restore drill that found everything right ended; 0 if there was none.", nil, prometheus.Labels{"source": source})}
}

// Describe implements prometheus.Collector.
func (d *drillAge) Describe(to chan<- *prometheus.Desc) { to <- d.desc }

// Collect implements prometheus.Collector.
func (d *drillAge) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.now(); now.Sub(d.asked) >= drillEvery {
		d.asked = now
		ctx, cancel := context.WithTimeout(d.base, drillWait)
		defer cancel()
		if last, err := d.last(ctx); err == nil { // what is wrong with the manifest, the pages' metrics tell
			d.known, d.value = true, 0
			if last != nil {
				d.value = float64(last.Ended.UnixMilli()) / 1000
			}
		}
	}
	if d.known {
		to <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, d.value)
	}
}
