package scheduler

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Done is the outcome of a run that did all it was to do.
const Done = "done"

// Metrics are what jobs tell of their runs, by the label verb: job is the name of a scrape or a
// push, and may not be used twice. All label values are there from the start. A nil
// *Metrics keeps nothing.
type Metrics struct {
	runs    *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	success *prometheus.GaugeVec
	running *prometheus.GaugeVec
}

// NewMetrics registers the metrics of jobs, for the outcomes that their runs can have beside
// Done.
func NewMetrics(reg prometheus.Registerer, jobs, outcomes []string) (*Metrics, error) {
	m := &Metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coldtier_job_runs_total", Help: "Runs that ended, by verb and outcome."}, []string{"verb", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coldtier_job_seconds", Help: "How long runs took, in seconds.",
			Buckets: []float64{1, 10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600}}, []string{"verb"}),
		success: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "coldtier_job_last_success_timestamp_seconds", Help: "When a run last ended with all done, in seconds since 1970; 0: never."}, []string{"verb"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "coldtier_job_running", Help: "1 while a run is under way."}, []string{"verb"}),
	}
	for _, c := range []prometheus.Collector{m.runs, m.seconds, m.success, m.running} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("metrics of jobs: %w", err)
		}
	}
	for _, job := range jobs {
		m.seconds.WithLabelValues(job)
		m.success.WithLabelValues(job)
		m.running.WithLabelValues(job)
		for _, o := range append([]string{Done}, outcomes...) {
			m.runs.WithLabelValues(job, o)
		}
	}
	return m, nil
}

// Succeeded notes when a job last did all it was to do, as its records say.
func (m *Metrics) Succeeded(job string, at time.Time) {
	if m != nil {
		m.success.WithLabelValues(job).Set(float64(at.UnixMilli()) / 1000)
	}
}

func (m *Metrics) begin(job string) {
	if m != nil {
		m.running.WithLabelValues(job).Set(1)
	}
}

func (m *Metrics) end(job, outcome string, took time.Duration, now time.Time) {
	if m == nil {
		return
	}
	m.running.WithLabelValues(job).Set(0)
	m.runs.WithLabelValues(job, outcome).Inc()
	m.seconds.WithLabelValues(job).Observe(took.Seconds())
	if outcome == Done {
		m.Succeeded(job, now)
	}
}
