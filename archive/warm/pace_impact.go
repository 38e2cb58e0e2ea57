package warm

import (
	"math"
	"slices"
	"time"
)

// MinImpact is the least factor of Limits.MaxImpact: below it the noise of a healthy
// server would stop every job.
const MinImpact = 1.5

// The numbers of the guard.
const (
	firstProbes  = 9                      // in a row, before a job's first step: the first baseline
	recentProbes = 5                      // whose median is compared with the baseline
	impactFloor  = 10 * time.Millisecond  // what is slower by less than this is not slow
	firstStretch = 50 * time.Millisecond  // the first pause between steps
	mostStretch  = 5 * time.Second        // beyond it the job pauses
	calmProbes   = 3                      // in a row that end such a pause
	quietTime    = 10 * time.Minute       // in which a baseline follows what a pause shows, e-fold
	fasterTime   = time.Minute            // and in which it follows when reads become faster
	leastProbe   = 100 * time.Microsecond // what is faster counts as this: the clock's and the network's noise
)

// impact is what a job's steps do to the server's other users, as a small read shows
// it. The comparison is that of Envoy's adaptive concurrency filter and of TCP Vegas: the
// latency now (the median of some samples) against the latency of a server that the job
// does not load (minRTT, BaseRTT), with an absolute headroom. Such a baseline can only be
// learned while the job is quiet: before its first step, and while it pauses. So a job
// never takes its own load for the usual state, and does not wait for ever when the
// server has become slower by itself. Where a read becomes faster the baseline follows
// also during work.
//
// Latencies are of many magnitudes, so the baseline moves in their logarithm: one
// outlier of a thousand times moves it no more than three of ten times.
type impact struct {
	factor   float64
	base     float64 // seconds; 0: not known yet
	recent   []float64
	at       time.Time     // of the last probe
	stretch  time.Duration // between steps
	stopped  bool          // until calmProbes are calm
	calm     int
	baseline time.Duration // for people
	now      time.Duration
}

func newImpact(factor float64) *impact { return &impact{factor: factor} }

func (i *impact) on() bool { return i.factor > 0 }

// first learns the baseline from probes of a server that the job does not load yet.
func (i *impact) first(probes []time.Duration, now time.Time) {
	i.recent = nil
	for _, d := range probes {
		i.recent = append(i.recent, max(d, leastProbe).Seconds())
	}
	i.base = median(i.recent)
	i.recent = i.recent[max(0, len(i.recent)-recentProbes):]
	i.at = now
	i.shown()
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

func (i *impact) shown() {
	i.baseline, i.now = time.Duration(i.base*float64(time.Second)), time.Duration(median(i.recent)*float64(time.Second))
}

// see takes one more probe and decides how the job goes on.
func (i *impact) see(d time.Duration, now time.Time) {
	x := max(d, leastProbe).Seconds()
	i.recent = append(i.recent, x)
	i.recent = i.recent[max(0, len(i.recent)-recentProbes):]
	latency := median(i.recent)
	gone := max(now.Sub(i.at), 0).Seconds()
	i.at = now
	switch {
	case i.stopped:
		i.follow(latency, gone/quietTime.Seconds())
	case latency < i.base:
		i.follow(latency, gone/fasterTime.Seconds())
	}
	i.shown()
	// The last probe has to be slow itself, so that a burst that is over counts no more.
	limit := i.limit()
	if slow := latency > limit && x > limit; slow {
		i.calm = 0
		switch {
		case i.stopped:
		case i.stretch >= mostStretch:
			i.stopped = true
		default:
			i.stretch = min(max(2*i.stretch, firstStretch), mostStretch)
		}
		return
	}
	if x > limit {
		return // one slow probe is none
	}
	if i.stopped {
		if i.calm++; i.calm < calmProbes {
			return
		}
		i.stopped, i.calm = false, 0
	}
	if i.stretch /= 2; i.stretch < firstStretch {
		i.stretch = 0
	}
}

// follow moves the baseline towards a latency by so many e-folds.
func (i *impact) follow(latency, folds float64) {
	i.base *= math.Pow(latency/i.base, 1-math.Exp(-folds))
}

// limit is the latency above which a probe is slow.
func (i *impact) limit() float64 { return max(i.base*i.factor, i.base+impactFloor.Seconds()) }
