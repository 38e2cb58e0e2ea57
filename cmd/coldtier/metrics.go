package main

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/warm"
)

// Stages beside archive's own.
const (
	stageScan   = "scan"
	stageInsert = "insert"
	stagePurge  = "purge"
)

func stages() []string {
	return []string{stageScan, string(archive.StageEncode), string(archive.StagePut), stageInsert, string(archive.StageCommit), string(archive.StageVerify), stagePurge}
}

// Targets of calls that are tried again.
const (
	targetMySQL      = "mysql"
	targetManifest   = "manifest"
	targetS3         = "s3"
	targetClickHouse = "clickhouse"
)

// Jobs that are held back, stopped, or that move rows.
const (
	jobArchive = "archive"
	jobPurge   = "purge"
)

func pacedJobs() []string { return []string{jobArchive, jobPurge} }

// jobMetrics are what the work of a process adds up to. All label values are there from the
// start. docs/metrics.md says what each means.
type jobMetrics struct {
	rows, bytes, seconds map[string]prometheus.Counter // by stage
	retries              map[string]prometheus.Counter // by target
	pauses               map[pauseKey]prometheus.Counter
	drift, failures      prometheus.Counter
	idle                 map[string]prometheus.Counter // by job
	lag                  *prometheus.GaugeVec          // by server
	pushFailures         map[string]prometheus.Counter // by target
	paces                *paces
}

type pauseKey struct {
	job   string
	cause warm.Cause
}

// newRegistry is a registry with what a process tells of itself as one, and a registerer
// that puts the name of the source on everything else.
func newRegistry(source string) (*prometheus.Registry, prometheus.Registerer) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg, prometheus.WrapRegistererWith(prometheus.Labels{"source": source}, reg)
}

func newJobMetrics(reg prometheus.Registerer, now func() time.Time) *jobMetrics {
	vec := func(name, help, label string, values []string) map[string]prometheus.Counter {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coldtier_" + name, Help: help}, []string{label})
		reg.MustRegister(v)
		all := map[string]prometheus.Counter{}
		for _, value := range values {
			all[value] = v.WithLabelValues(value)
		}
		return all
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "coldtier_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &jobMetrics{
		rows:         vec("rows_total", "Rows that went through a stage.", "stage", stages()),
		bytes:        vec("bytes_total", "Bytes that went through a stage.", "stage", stages()),
		seconds:      vec("stage_seconds_total", "Seconds that a stage has worked, summed over all that work at it at once.", "stage", stages()),
		retries:      vec("retries_total", "Calls that were tried again.", "target", []string{targetMySQL, targetManifest, targetS3, targetClickHouse}),
		drift:        counter("drift_total", "Slices whose rows in MySQL were found to differ from their copy."),
		failures:     counter("verification_failures_total", "Slices whose copy was found to differ from what was committed."),
		idle:         vec("idle_runs_total", "Runs that moved no row although there should have been rows.", "job", pacedJobs()),
		pushFailures: vec("push_failures_total", "Times that metrics could not be pushed.", "target", []string{pushGateway, pushTextfile}),
		pauses:       map[pauseKey]prometheus.Counter{},
		lag:          prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "coldtier_replica_lag_seconds", Help: "How far a replica was behind when it was last asked."}, []string{"server"}),
		paces:        &paces{now: now},
	}
	reg.MustRegister(m.lag, m.paces)
	pauses := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coldtier_pauses_total", Help: "Pauses that were begun, by cause."}, []string{"job", "cause"})
	reg.MustRegister(pauses)
	for _, job := range pacedJobs() {
		for _, c := range warm.Causes() {
			m.pauses[pauseKey{job, c}] = pauses.WithLabelValues(job, string(c))
		}
	}
	return m
}

// add counts what went through a stage.
func (m *jobMetrics) add(stage string, rows uint64, bytes int64, took time.Duration) {
	m.rows[stage].Add(float64(rows))
	m.bytes[stage].Add(float64(max(bytes, 0)))
	m.seconds[stage].Add(max(took, 0).Seconds())
}

// retry is a function that counts a call of a target that is tried again.
func (m *jobMetrics) retry(target string) func() { return m.retries[target].Inc }

// paused counts the pauses of a pace: each at its begin, and again when its cause changes.
func (m *jobMetrics) paused(p warm.Pause) {
	if c, ok := m.pauses[pauseKey{p.Job, p.Cause}]; ok && (p.Ended.IsZero() || p.Cause == warm.CauseStopped) {
		c.Inc()
	}
}

// lagged notes what a replica said. One that does not answer, or does not replicate, may be
// as far behind as can be.
func (m *jobMetrics) lagged(replica string, lag time.Duration, err error) {
	seconds := lag.Seconds()
	if err != nil {
		seconds = math.Inf(1)
	}
	m.lag.WithLabelValues(replica).Set(seconds)
}
