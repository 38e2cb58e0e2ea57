package rpc

import "sync"

// answers are the rows in answers that are being written, in bytes about as they are
// marshalled. A caller that takes none of them must fill neither the server's memory nor
// what others need of it: above a bound for all and one for each caller, answers are
// PENDING.
type answers struct {
	mu      sync.Mutex
	all     int64
	callers map[string]int64
}

const (
	maxAnswers   = 256 << 20
	callerAnswer = maxAnswers / 4
	perValue     = 64 // bytes that a value takes beside itself and its column's name
)

func newAnswers() *answers { return &answers{callers: map[string]int64{}} }

// hold counts n bytes to a caller. One answer is always let through where there is no other.
func (a *answers) hold(caller string, n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all > 0 && a.all+n > maxAnswers || a.callers[caller] > 0 && a.callers[caller]+n > callerAnswer {
		return false
	}
	a.all += n
	a.callers[caller] += n
	return true
}

// drop ends what hold counted.
func (a *answers) drop(caller string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all -= n
	if a.callers[caller] -= n; a.callers[caller] <= 0 {
		delete(a.callers, caller)
	}
}

// from names who must share: the caller, and where anybody may call its connection.
func (c *call) from() string {
	if c.who.How != "" {
		return c.who.How + " " + c.who.Name
	}
	return c.peer
}
