package guard_test

import (
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coldtier/coldtier/restore/guard"
)

// TestHedgeBudgetBounds counts in hundredths of a token: over any run of calls at most
// ratio*n + burst hedges are had. And no fewer than that when they are wanted all the time.
func TestHedgeBudgetBounds(t *testing.T) {
	r := random(t)
	for range 200 {
		percent, burst := r.IntN(101), r.IntN(20)
		b := guard.NewHedgeBudget(float64(percent)/100, burst)
		greed := r.Float64()
		owed, least := 0, 0 // spent - earned, and the least it has been
		for range 2000 {
			if r.Float64() > greed {
				b.Earn()
				owed -= percent
				least = min(least, owed)
			} else if b.Spend() {
				owed += 100
			}
			if owed-least > 100*burst {
				t.Fatalf("%d %% and %d: a run had %d hundredths more than it earned", percent, burst, owed-least)
			}
		}
	}
	for _, want := range []int{0, 1, 157, 500, 700, 2900, 5700, 9999, 10_000} { // 0.0157 is less than that as a float64
		b := guard.NewHedgeBudget(float64(want)/10_000, 10_000)
		for b.Spend() {
		}
		for range 10_000 {
			b.Earn()
		}
		hedges := 0
		for b.Spend() {
			hedges++
		}
		if hedges != want {
			t.Errorf("%d hedges of 10,000 calls, want %d", hedges, want)
		}
	}
}

func TestHedgeBudgetAtOnce(t *testing.T) {
	b := guard.NewHedgeBudget(0.05, 10)
	var hedges atomic.Int64
	together(300, func(int) {
		for range 100 {
			b.Earn()
			if b.Spend() {
				hedges.Add(1)
			}
		}
	})
	if n := hedges.Load(); n > 30_000/20+10 || n < 30_000/20-10 {
		t.Fatalf("%d hedges of 30,000 calls", n)
	}
}

func TestHedgeBudgetOddities(t *testing.T) {
	spend := func(ratio float64, burst, earn int) (n int) {
		b := guard.NewHedgeBudget(ratio, burst)
		for range earn {
			b.Earn()
		}
		for n < 1000 && b.Spend() {
			n++
		}
		return n
	}
	for _, c := range []struct {
		ratio       float64
		burst, want int
	}{{0, 3, 3}, {-1, 3, 3}, {math.NaN(), 3, 3}, {math.Inf(1), 3, 3}, {0.5, 0, 0}, {0.5, -1, 0}, {0.5, math.MaxInt, 1000}, {1e300, 1, 1}} {
		if got := spend(c.ratio, c.burst, 100); got != c.want {
			t.Errorf("ratio %v and burst %d: %d tokens, want %d", c.ratio, c.burst, got, c.want)
		}
	}
}

// TestHedgeDelayIsTwiceThe95th compares with all answers, sorted.
func TestHedgeDelayIsTwiceThe95th(t *testing.T) {
	r := random(t)
	between := 0
	for range 40 {
		c := newClock()
		limit := time.Duration(1+r.IntN(500)) * time.Millisecond
		h := guard.NewHedgeDelay(limit, c.Now)
		type answer struct {
			at   time.Time
			took time.Duration
		}
		var all []answer
		scale := float64(limit) * (0.02 + r.Float64()/2)
		for range 30 {
			if r.IntN(8) == 0 {
				c.Add(time.Duration(r.IntN(50)) * time.Second)
			}
			for range r.IntN(64) {
				d := time.Duration(r.ExpFloat64() * scale / 3)
				c.Add(time.Duration(r.IntN(500)) * time.Millisecond)
				h.Observe(d)
				all = append(all, answer{c.Now(), d})
			}
			c.Add(time.Second) // after which it is made anew
			var recent []time.Duration
			for _, a := range all[max(0, len(all)-256):] {
				if c.Now().Sub(a.at) <= time.Minute {
					recent = append(recent, a.took)
				}
			}
			want := limit
			if n := len(recent); n >= 20 {
				slices.Sort(recent)
				want = min(max(2*recent[int(math.Ceil(0.95*float64(n)-1e-9))-1], limit/10), limit)
			}
			if got := h.Delay(); got != want {
				t.Fatalf("of %d answers: %v, want %v", len(recent), got, want)
			}
			if want > limit/10 && want < limit {
				between++
			}
		}
	}
	if between < 100 {
		t.Fatalf("%d delays were not cut: the test says nothing", between)
	}
}

func TestHedgeDelayAdaptsAndForgets(t *testing.T) {
	c := newClock()
	h := guard.NewHedgeDelay(200*time.Millisecond, c.Now)
	want := func(d time.Duration) {
		t.Helper()
		if got := h.Delay(); got != d*time.Millisecond {
			t.Fatalf("delay %v, want %v", got, d*time.Millisecond)
		}
	}
	observe := func(n int, d time.Duration) {
		for range n {
			h.Observe(d * time.Millisecond)
		}
	}
	want(200)
	observe(19, 5)
	want(200) // not enough
	observe(1, 5)
	want(20) // a tenth
	observe(31, 40)
	want(20) // not yet made anew
	observe(1, 40)
	want(80) // without that time has passed
	observe(256, 15)
	want(30) // only the last 256
	observe(12, 90)
	c.Add(time.Second)
	want(30) // 12 of 256 are within five per cent
	observe(1, 90)
	c.Add(time.Second)
	want(180)
	c.Add(time.Minute + 1)
	want(200) // nothing is known any more
	observe(20, math.MaxInt64/time.Millisecond)
	want(200)
	observe(256, -5)
	want(20)
}

func TestHedgeDelayAtOnce(t *testing.T) {
	h := guard.NewHedgeDelay(100*time.Millisecond, time.Now)
	together(200, func(i int) {
		for j := range 100 {
			h.Observe(time.Duration(i+j) * 100 * time.Microsecond)
			if d := h.Delay(); d < 10*time.Millisecond || d > 100*time.Millisecond {
				t.Errorf("delay %v", d)
			}
		}
	})
}

func BenchmarkHedgeDelay(b *testing.B) {
	h := guard.NewHedgeDelay(100*time.Millisecond, time.Now)
	r := random(b)
	b.ReportAllocs()
	for b.Loop() {
		h.Observe(time.Duration(r.IntN(50)) * time.Millisecond)
		h.Delay()
	}
}
