package warm

import (
	"math"
	"time"
)

// debt keeps a rate by what was spent already. Up to a second's worth may be spent at
// once; whoever spent more waits until time has paid for it, so that over any time T no
// more than rate * (T + 1 s) and the last step goes. The zero debt has no limit.
type debt struct {
	rate float64 // a second
	have float64 // below zero: is owed
	at   time.Time
}

func newDebt(rate int64) debt { return debt{rate: float64(rate), have: float64(rate)} }

func (d *debt) earn(now time.Time) {
	if t := now.Sub(d.at); t > 0 {
		if !d.at.IsZero() {
			d.have = min(d.rate, d.have+d.rate*t.Seconds())
		}
		d.at = now
	}
}

func (d *debt) spend(now time.Time, n int64) {
	if d.rate > 0 {
		d.earn(now)
		d.have -= float64(n)
	}
}

// wait is how long nothing more may be spent.
func (d *debt) wait(now time.Time) time.Duration {
	if d.rate == 0 {
		return 0
	}
	d.earn(now)
	if d.have >= 0 {
		return 0
	}
	return time.Duration(math.Ceil(-d.have / d.rate * float64(time.Second)))
}
