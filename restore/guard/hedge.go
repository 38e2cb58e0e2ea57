package guard

import (
	"slices"
	"sync"
	"time"
)

// HedgeBudget bounds the hedges to a part of the calls, so that hedging adds a few per
// cent to the load of a store that is slow for everybody, and not another hundred.
//
// It is a bucket of tokens as in gRPC's retry throttling (proposal A6), filled by calls
// as the retry budget of a client is in "Site Reliability Engineering" (2016), chapter 21.
// A few per cent are enough: in "The Tail at Scale" (Dean and Barroso, CACM 56/2, 2013)
// 2 % more requests cut the 99.9th percentile of a read from 1,800 to 74 ms.
//
// Over any n calls of Earn at most ratio*n + burst calls of Spend succeed.
type HedgeBudget struct {
	mu                 sync.Mutex
	tokens, gain, most int64 // in units, whole numbers, so that nothing drifts
}

const unit = 1_000_000_000 // of a token

// NewHedgeBudget makes a budget that is full. The ratio is kept to nine decimals. With a
// burst below 1 nothing is ever hedged.
func NewHedgeBudget(ratio float64, burst int) *HedgeBudget {
	most := int64(max(min(burst, 1_000_000_000), 0)) * unit
	var gain int64
	if ratio > 0 {
		// Rounded down, but 0.0157 is not to become 0.015699999.
		gain = int64(min(ratio, 1_000_000_000)*unit + 1e-3)
	}
	return &HedgeBudget{tokens: most, gain: min(gain, most), most: most}
}

// Earn counts a primary call.
func (b *HedgeBudget) Earn() {
	b.mu.Lock()
	b.tokens = min(b.tokens+b.gain, b.most)
	b.mu.Unlock()
}

// Spend takes a token for a hedge; without one it must not be begun.
func (b *HedgeBudget) Spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens < unit {
		return false
	}
	b.tokens -= unit
	return true
}

const (
	samples  = 256           // of which the delay is made
	enough   = 20            // below which it is not
	lifetime = time.Minute   // of a sample
	refresh  = samples / 8   // samples after which the delay is made anew
	validity = lifetime / 60 // of a delay, as samples grow old
)

// HedgeDelay says how long to wait for the primary before a hedge is begun. Dean and
// Barroso, "The Tail at Scale" (CACM 56/2, 2013), wait for the 95th percentile of what is
// usual, which hedges one call in twenty. This is twice that, so that of a store in
// good health next to none are, and not less than a tenth of max, as percentiles of a
// few milliseconds are noise.
//
// If only quick answers were observed the delay would creep down to them. So Observe
// is also for the primary that lost to its hedge: with its answer's time, or, when it was
// cut off, the time it had had until then.
type HedgeDelay struct {
	most  time.Duration
	clock func() time.Time

	mu     sync.Mutex
	ring   [samples]sample
	count  uint64 // samples ever
	made   uint64 // count when the delay was made
	until  time.Time
	delay  time.Duration
	sorted [samples]time.Duration
}

type sample struct {
	at   time.Time
	took time.Duration
}

// NewHedgeDelay makes a delay that is max until enough was observed.
func NewHedgeDelay(max time.Duration, clock func() time.Time) *HedgeDelay {
	return &HedgeDelay{most: max, clock: clock}
}

// Observe counts an answer of the primary.
func (h *HedgeDelay) Observe(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring[h.count%samples] = sample{h.clock(), d}
	h.count++
}

// Delay is twice the 95th percentile of the last 256 answers that are not older than a
// minute, at least max/10 and at most max; it is max when there are less than 20. It is
// made anew, by sorting, after 32 answers or a second.
func (h *HedgeDelay) Delay() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock()
	oldest := now.Add(-lifetime)
	if h.count < enough || h.ring[(h.count-enough)%samples].at.Before(oldest) {
		return h.most
	}
	if h.count-h.made < refresh && now.Before(h.until) {
		return h.delay
	}
	n := 0
	for _, s := range h.ring { // one that was never set is very old
		if !s.at.Before(oldest) {
			h.sorted[n] = s.took
			n++
		}
	}
	recent := h.sorted[:n]
	slices.Sort(recent)
	p95 := recent[(n*95+99)/100-1] // nearest rank
	h.delay = h.most
	if p95 < h.most/2 {
		h.delay = max(2*p95, h.most/10)
	}
	h.made, h.until = h.count, now.Add(validity)
	return h.delay
}
