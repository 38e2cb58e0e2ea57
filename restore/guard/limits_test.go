package guard_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/coldtier/coldtier/restore/guard"
)

// TestLimitsAreExact compares with plain counts.
func TestLimitsAreExact(t *testing.T) {
	r := random(t)
	type inside struct {
		tenant, conversation string
		leave                func()
	}
	for range 50 {
		cfg := guard.LimitsConfig{Process: r.IntN(12), Tenant: r.IntN(6), Conversation: r.IntN(4)}
		l := guard.NewLimits(cfg)
		var now []inside
		for range 400 {
			if len(now) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(now))
				now[i].leave()
				now[i].leave() // says nothing new
				now = append(now[:i], now[i+1:]...)
				continue
			}
			tenant, conversation := fmt.Sprint("t", r.IntN(3)), fmt.Sprint("c", r.IntN(5))
			t1, c1 := 0, 0
			for _, in := range now {
				if in.tenant == tenant {
					t1++
				}
				if in.conversation == conversation {
					c1++
				}
			}
			under := func(n, limit int) bool { return limit == 0 || n < limit }
			want := under(len(now), cfg.Process) && under(t1, cfg.Tenant) && under(c1, cfg.Conversation)
			leave, ok := l.Enter(tenant, []byte(conversation))
			if ok != want {
				t.Fatalf("%+v with %d, %d and %d inside: let in is %t", cfg, len(now), t1, c1, ok)
			}
			if ok {
				now = append(now, inside{tenant, conversation, leave})
			} else {
				leave()
			}
			if l.InFlight() != len(now) {
				t.Fatalf("%d inside, want %d", l.InFlight(), len(now))
			}
		}
		for _, in := range now {
			in.leave()
		}
		wantEmpty(t, l)
	}
}

func wantEmpty(t *testing.T, l *guard.Limits) {
	t.Helper()
	if tenants, conversations := l.Held(); l.InFlight() != 0 || tenants != 0 || conversations != 0 {
		t.Fatalf("nobody is inside: %d calls, %d tenants and %d conversations are remembered", l.InFlight(), tenants, conversations)
	}
}

func TestLimitsAtOnce(t *testing.T) {
	l := guard.NewLimits(guard.LimitsConfig{Process: 40, Tenant: 15, Conversation: 3})
	var all atomic.Int64
	var tenants [4]atomic.Int64
	var conversations [30]atomic.Int64
	var in, out atomic.Int64
	together(300, func(int) {
		for range 100 {
			tn, cn := rand.IntN(len(tenants)), rand.IntN(len(conversations))
			leave, ok := l.Enter(fmt.Sprint(tn), []byte{byte(cn)})
			if !ok {
				out.Add(1)
				continue
			}
			in.Add(1)
			if all.Add(1) > 40 || tenants[tn].Add(1) > 15 || conversations[cn].Add(1) > 3 {
				t.Error("more are inside than may be")
			}
			for range rand.IntN(20) {
				runtime.Gosched() // stays a while
			}
			all.Add(-1)
			tenants[tn].Add(-1)
			conversations[cn].Add(-1)
			together(2, func(int) { leave() })
		}
	})
	if in.Load() == 0 || out.Load() == 0 {
		t.Fatalf("%d let in, %d not: the test says nothing", in.Load(), out.Load())
	}
	wantEmpty(t, l)
}

func TestLimitsOfNobodyInParticular(t *testing.T) {
	l := guard.NewLimits(guard.LimitsConfig{Tenant: 1, Conversation: 1})
	var leaves []func()
	for range 3 {
		leave, ok := l.Enter("", nil)
		if !ok {
			t.Fatal("no tenant and no conversation are limited as if they were one")
		}
		leaves = append(leaves, leave)
	}
	leave, ok := l.Enter("", []byte{})
	if !ok {
		t.Fatal("the first of the empty conversation is refused")
	}
	leaves = append(leaves, leave)
	if _, ok := l.Enter("", []byte{}); ok {
		t.Fatal("the empty conversation is not limited")
	}
	for _, leave := range leaves {
		leave()
	}
	wantEmpty(t, l)
}
