package rpc

import (
	"strings"
	"testing"
	"time"
)

// While the answers that nobody takes fill what they may, no other is held beside them:
// the answer is PENDING, and comes when there is room again. What one caller lets lie
// keeps no other from his.
func TestAnswersThatNobodyTakes(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	held := r.server.history.answers
	for _, who := range []string{"a", "b", "c", "d"} {
		if !held.hold(who, callerAnswer) || held.hold(who, 1) {
			t.Fatalf("%s has not just its share", who)
		}
	}
	status, answer := r.post("FetchRange", forC)
	if status != 200 || !strings.Contains(answer, "STATE_PENDING") || !strings.Contains(answer, "CAUSE_BUSY") || strings.Contains(answer, `"text"`) {
		t.Errorf("%d %s", status, answer)
	}
	held.drop("a", callerAnswer)
	if status, answer := r.post("FetchRange", forC); status != 200 || !strings.Contains(answer, "STATE_COMPLETE") {
		t.Errorf("%d %s", status, answer)
	}
	for _, who := range []string{"b", "c", "d"} {
		held.drop(who, callerAnswer)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // a client may have the answer before the server has noticed
		held.mu.Lock()
		all, callers := held.all, len(held.callers)
		held.mu.Unlock()
		if all == 0 && callers == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes of %d callers are not given back", all, callers)
		}
	}
}
