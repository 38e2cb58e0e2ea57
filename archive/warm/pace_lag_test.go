package warm

import (
	"errors"
	"testing"
	"time"
)

// What each replica says is told whenever it is asked, also when it says nothing.
func TestPaceTellsOfLags(t *testing.T) {
	t.Parallel()
	p := newTestPace(t, Limits{MaxReplicaLag: 5 * time.Second, MaxPause: time.Second})
	told := map[string]time.Duration{}
	lost := ""
	p.cfg.OnLag = func(replica string, lag time.Duration, err error) {
		if told[replica] = lag; err != nil {
			lost = replica
		}
	}
	p.look.replicas = []replicaLag{{"a:3306", 2 * time.Second, nil}, {"b:3306", 0, nil}}
	p.wait(t)
	if len(told) != 2 || told["a:3306"] != 2*time.Second || lost != "" {
		t.Errorf("told %v, lost %q", told, lost)
	}
	p.clock.t = p.clock.t.Add(time.Minute)
	p.look.replicas[1].err = errors.New("gone")
	if err := p.Wait(t.Context(), p.table); err == nil {
		t.Error("a replica that is gone is not waited for")
	}
	if lost != "b:3306" {
		t.Errorf("lost %q", lost)
	}
}
