package main

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/archive/warm"
)

// paces tells Prometheus what holds the jobs of a process back, by asking their paces.
type paces struct {
	now  func() time.Time
	mu   sync.Mutex
	live []livePace
	past map[pauseKey]time.Duration // of paces that have ended
}

type livePace struct {
	job string
	pacing
}

// pacing is a warm.Pace as it is watched.
type pacing interface {
	Throttled() map[warm.Cause]time.Duration
	Pauses() []warm.Pause
}

// watch asks a pace until the function it gives is called.
func (p *paces) watch(job string, one pacing) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	me := livePace{job, one}
	p.live = append(p.live, me)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, l := range p.live {
			if l == me {
				p.live = append(p.live[:i:i], p.live[i+1:]...)
				if p.past == nil {
					p.past = map[pauseKey]time.Duration{}
				}
				for c, d := range one.Throttled() {
					p.past[pauseKey{job, c}] += d
				}
				return
			}
		}
	}
}

func pausedDesc() *prometheus.Desc {
	return prometheus.NewDesc("coldtier_paused", "MySQL servers that a job leaves alone now, by cause.", []string{"job", "cause"}, nil)
}

func pausedSecondsDesc() *prometheus.Desc {
	return prometheus.NewDesc("coldtier_paused_seconds_total", "Seconds in which a job was held back, by cause: of each server those in which any of its steps was.", []string{"job", "cause"}, nil)
}

// Describe implements prometheus.Collector.
func (p *paces) Describe(to chan<- *prometheus.Desc) {
	to <- pausedDesc()
	to <- pausedSecondsDesc()
}

// Collect implements prometheus.Collector.
func (p *paces) Collect(to chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, seconds := map[pauseKey]int{}, map[pauseKey]time.Duration{}
	for k, d := range p.past {
		seconds[k] = d
	}
	for _, l := range p.live {
		for c, d := range l.Throttled() {
			seconds[pauseKey{l.job, c}] += d
		}
		for _, x := range l.Pauses() {
			now[pauseKey{l.job, x.Cause}]++
		}
	}
	for _, job := range pacedJobs() {
		for _, c := range warm.Causes() {
			k := pauseKey{job, c}
			to <- prometheus.MustNewConstMetric(pausedDesc(), prometheus.GaugeValue, float64(now[k]), job, string(c))
			to <- prometheus.MustNewConstMetric(pausedSecondsDesc(), prometheus.CounterValue, seconds[k].Seconds(), job, string(c))
		}
	}
}
