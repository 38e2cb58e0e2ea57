package fetch

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/tests/late"
	"github.com/coldtier/coldtier/tests/stack"
)

// S4: an answer that stops in the middle of its body holds up its own object alone. The
// page ends before it and names it; what else was read is kept for the next one. So it is
// also while others put statuses.
func testStalledBody(t *testing.T, c *cold) {
	watch := late.New(t)
	s3 := newCounter(t, c.S3.Endpoint)
	soon := func(cfg *restore.Config, d *restore.Deps) { cfg.FillAfter, d.Rows = time.Second, nil }
	r := c.rig(t, through{s3: s3.addr}, soon)
	var name string
	var refs []manifest.SegmentRef
	for _, name = range c.truth.names() { // one whose three newest objects are on one page
		if refs = c.segments(name); len(refs) >= 3 && refs[0].Span.Rows+refs[1].Span.Rows+refs[2].Span.Rows < restore.DefaultMax && refs[1].Span.MaxCursor < refs[0].Span.MaxCursor {
			break
		}
	}
	for _, others := range []bool{false, true} {
		r.start(t, soon)
		s3.stuck.Store(refs[1].Key)
		end := func() {}
		if others {
			c.again(t, r, restore.Query{Conversation: []byte("1")}) // so that it knows the manifest
			end = c.putStatuses(t, r)
		}
		q := restore.Query{Conversation: []byte(name), Limit: restore.DefaultMax}
		begun := late.Now()
		p, err := r.Fetch(t.Context(), q)
		ended := late.At(time.Now())
		end()
		if err == nil {
			err = c.truth.check(q, p)
		}
		if err != nil {
			t.Fatal(err)
		}
		if took := ended.Sub(begun.Time); took > budget+grace+watch.Between(begun, ended) {
			t.Errorf("it took %s", took)
		}
		if p.State != restore.Partial || len(p.Rows) == 0 || len(p.Missing) != 1 || p.Missing[0].Key != refs[1].Key || p.Missing[0].Cause != restore.CauseBudget {
			t.Fatalf("others put statuses: %v: %s, %d messages, missing %+v; want the page to end before %s", others, p.State, len(p.Rows), p.Missing, refs[1].Key)
		}
		s3.stuck.Store("")
		if !until(filled, func() bool { return r.metric(t, "filling") == 0 }) {
			t.Fatal("the read does not end by the fill time-out")
		}
		c.again(t, r, q)
		times := map[string]int{}
		for _, g := range s3.take() {
			times[g.path+g.bytes]++
		}
		for name, n := range times {
			if n > 1 && !strings.Contains(name, refs[1].Key) {
				t.Errorf("%s was read %d times", name, n)
			}
		}
	}
}

// putStatuses puts statuses on a conversation that nobody reads, until it is told to end.
func (c *cold) putStatuses(t *testing.T, r *rig) (end func()) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for id := uint64(1); ; id++ {
			select {
			case <-done:
				return
			default:
			}
			if _, err := r.PutStatus(t.Context(), manifest.Status{Conversation: []byte("2"), MessageID: id, Kind: manifest.StatusRecalled}); err != nil {
				t.Error(err)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// A bucket whose server is frozen, so that it takes connections and says nothing.
func testFrozenBucket(t *testing.T, c *cold) {
	rng := random(t)
	server, own := stack.StartVersityGW(t)
	for _, key := range c.Keys() {
		if !strings.Contains(key, "/messages/") {
			continue
		}
		if _, err := own.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &own.Bucket, Key: &key, Body: strings.NewReader(string(c.Object(key)))}); err != nil {
			t.Fatal(err)
		}
	}
	labelled(t, func(goroutines func() int) {
		r := c.rig(t, through{s3: server.Addr, bucket: own.Bucket}, func(cfg *restore.Config, d *restore.Deps) { cfg.Cache, d.Rows = 1<<20, nil })
		f := &faulty{rig: r, late: late.New(t), rng: rng, names: c.truth.names()}
		f.judge(t, f.storm(t, callers), 0.5)
		server.Pause()
		all := f.storm(t, number(t, 40))
		server.Continue()
		f.judge(t, all, 0)
		f.healed(t)
		if !until(filled, func() bool { return r.metric(t, "filling") == 0 }) {
			t.Errorf("%v parts are still being read", r.metric(t, "filling"))
		}
		r.close(t)
		if !until(closed, func() bool { return goroutines() <= 1 && sockets(t, server.Addr) == 0 }) {
			t.Errorf("after Close %d goroutines and %d connections are left", goroutines(), sockets(t, server.Addr))
		}
	})
}
