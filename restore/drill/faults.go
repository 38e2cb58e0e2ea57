package drill

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore"
)

// errInjected says that the drill made the fault itself.
var errInjected = errors.New("fault injected by the drill")

// faulty is a bucket that is slow, cuts off, errs and flips bits. Which read meets what
// follows from the seed, the read, and how often it was made.
type faulty struct {
	of     restore.Objects
	seed   uint64
	budget time.Duration
	sleep  func(ctx context.Context, d time.Duration) error

	mu    sync.Mutex
	tries map[string]int
}

func newFaulty(of restore.Objects, seed uint64, budget time.Duration, sleep func(context.Context, time.Duration) error) *faulty {
	return &faulty{of: of, seed: seed, budget: budget, sleep: sleep, tries: map[string]int{}}
}

// faults says in words what faulty does, in per cent of the reads.
func faults(budget time.Duration) []string {
	return []string{
		fmt.Sprintf("30 %% of the reads take up to %s longer", 2*budget),
		"15 % fail at once, as with a reset connection",
		"15 % are cut off in the middle",
		"10 % never answer",
		"5 % come with a flipped bit",
	}
}

func (f *faulty) draw(key string, off, n int64) uint64 {
	name := fmt.Sprintf("%s %d %d", key, off, n)
	f.mu.Lock()
	f.tries[name]++
	try := f.tries[name]
	f.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", f.seed, name, try)
	x := h.Sum64() // whose low bits are not random enough
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// ReadRange implements restore.Objects.
func (f *faulty) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	x := f.draw(key, off, n)
	switch p := x % 100; {
	case p < 30:
		if err := f.sleep(ctx, time.Duration(x>>8%1000)*2*f.budget/1000); err != nil {
			return nil, err
		}
	case p < 45:
		return nil, fmt.Errorf("object %s: %w: connection reset", key, errInjected)
	case p < 60:
		b, err := f.of.ReadRange(ctx, key, off, n)
		if err != nil {
			return nil, err
		}
		return b[:len(b)/2], fmt.Errorf("object %s: %w: %w", key, errInjected, io.ErrUnexpectedEOF)
	case p < 70:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case p < 75:
		b, err := f.of.ReadRange(ctx, key, off, n)
		if err != nil || len(b) == 0 {
			return nil, err
		}
		b = slices.Clone(b)
		b[x>>8%uint64(len(b))] ^= 1 << (x >> 40 % 8)
		return b, nil
	}
	return f.of.ReadRange(ctx, key, off, n)
}

// away is a ClickHouse that is not there: every second statement is refused, every other
// one is never answered.
type away struct {
	mu sync.Mutex
	n  int
}

func (a *away) Spans(ctx context.Context, _ []restore.Span, _ *message.Schema, _ []byte, _ int) (*message.Batch, error) {
	a.mu.Lock()
	a.n++
	n := a.n
	a.mu.Unlock()
	if n%2 == 0 {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("ClickHouse: %w: connection refused", errInjected)
}
