package report

import (
	"math"
	"slices"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// NewStage works the rates out.
func NewStage(name string, took time.Duration, rows uint64, bytes, requests int64) Stage {
	s := Stage{Name: name, Seconds: took.Seconds(), Rows: rows, Bytes: bytes, Requests: requests}
	s.RowsPerSecond, s.BytesPerSecond = rate(float64(rows), s.Seconds), rate(float64(bytes), s.Seconds)
	return s
}

// NewRecovery is the whole of a recovery that took so long.
func NewRecovery(took time.Duration, rows uint64, bytes int64, stages ...Stage) Recovery {
	r := Recovery{Seconds: took.Seconds(), Rows: rows, Bytes: bytes, Stages: append([]Stage{}, stages...)}
	r.RowsPerSecond, r.BytesPerSecond = rate(float64(rows), r.Seconds), rate(float64(bytes), r.Seconds)
	return r
}

// rate is 0 where there was no time to measure one, since JSON knows no infinity.
func rate(n, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return n / seconds
}

// NewLatency sums times up. Quantiles are by nearest rank: each is a time that occurred.
// The histogram has a bar that ends at each edge, such as the budget.
func NewLatency(times []time.Duration, edges ...time.Duration) Latency {
	l := Latency{Count: len(times), Buckets: []LatencyCount{}}
	if len(times) == 0 {
		return l
	}
	ms := make([]float64, len(times))
	sum := 0.0
	for i, t := range times {
		ms[i] = float64(t) / float64(time.Millisecond)
		sum += ms[i]
	}
	slices.Sort(ms)
	at := func(q float64) float64 { return ms[max(int(math.Ceil(q*float64(len(ms))))-1, 0)] }
	l.MinMS, l.MeanMS, l.MaxMS = ms[0], sum/float64(len(ms)), ms[len(ms)-1]
	l.P50MS, l.P90MS, l.P95MS, l.P99MS = at(.50), at(.90), at(.95), at(.99)
	i := 0
	for _, bound := range bounds(l.MaxMS, edges) {
		n := i
		for i < len(ms) && ms[i] <= bound {
			i++
		}
		l.Buckets = append(l.Buckets, LatencyCount{bound, i - n})
	}
	return l
}

// bounds are the ends of a histogram's bars: 1, 2, 3, 5, 7, 10, 15, 20, ... and the edges,
// up to the first that is not below most.
func bounds(most float64, edges []time.Duration) (all []float64) {
	steps := []float64{1, 1.5, 2, 3, 5, 7}
	for scale := 1.0; len(all) == 0 || all[len(all)-1] < most; scale *= 10 {
		for _, s := range steps {
			if b := s * scale; b != 1.5 {
				all = append(all, b)
			}
		}
	}
	for _, e := range edges {
		all = append(all, float64(e)/float64(time.Millisecond))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	end := slices.IndexFunc(all, func(b float64) bool { return b >= most })
	return all[:end+1]
}

// Covered is a slice and whether drills restored it: Before this one, or Now.
type Covered struct {
	Day         snowflake.Day
	Rows        uint64
	Before, Now bool
}

// Cover sums up which of all slices were restored since an instant.
func Cover(since time.Time, all []Covered, note string) Coverage {
	c := Coverage{Since: since.UTC(), Slices: len(all), Months: []Month{}, Note: note}
	byMonth := map[string]*Month{}
	for _, s := range all {
		name := s.Day.String()[:len("2026-05")]
		m := byMonth[name]
		if m == nil {
			m = &Month{Month: name}
			byMonth[name] = m
		}
		m.Slices++
		c.Rows += s.Rows
		if s.Before {
			m.Before++
			c.Before++
		}
		if s.Before || s.Now {
			m.Covered++
			c.Covered++
			c.RowsDone += s.Rows
		}
	}
	for _, m := range byMonth {
		c.Months = append(c.Months, *m)
	}
	slices.SortFunc(c.Months, func(a, b Month) int {
		if a.Month < b.Month {
			return -1
		}
		return 1
	})
	return c
}

// Key are the measures to follow from drill to drill.
func (r *Report) Key() Key {
	m := &r.Measures
	k := Key{Slices: len(r.Sample.Slices), Rows: m.Recovery.Rows, RecoverySeconds: m.Recovery.Seconds, RowsPerSecond: m.Recovery.RowsPerSecond,
		RecoveryPointAgeSec: m.RecoveryPoint.AgeSeconds, Cost: m.Cost.Total, Currency: m.Cost.Currency}
	for _, c := range r.Checks {
		if c.Verdict != Skipped {
			k.Checks++
		}
		if c.Verdict == Fail {
			k.Failed++
		}
	}
	for _, x := range m.Reads {
		if x.Faulty {
			k.FaultyP99MS = max(k.FaultyP99MS, x.Latency.P99MS)
		} else {
			k.HealthyP99MS = max(k.HealthyP99MS, x.Latency.P99MS)
		}
	}
	for _, p := range m.Extrapolation.Results {
		if p.Scope == ScopeAll {
			k.AllSeconds = p.Seconds
		}
	}
	if c := r.Sample.Coverage; c.Slices > 0 {
		k.Coverage = float64(c.Covered) / float64(c.Slices)
	}
	return k
}
