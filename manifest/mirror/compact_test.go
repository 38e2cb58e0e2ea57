package mirror_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/bucket/membucket"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/manifest/mirror"
)

// stale is a bucket whose list names objects that are long gone, as an index that lost
// touch with its objects does.
type stale struct {
	*mem
	lists int
	stop  func()
}

func (s *stale) List(ctx context.Context, prefix string, fn func(key string, size int64) error) error {
	if s.lists++; s.lists > 10 {
		s.stop()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range 100 {
		if err := fn(fmt.Sprintf("%sgone-%02d.ndjson", prefix, i), 100); err != nil {
			return err
		}
	}
	return s.mem.List(ctx, prefix, fn)
}

func TestCompactEndsWhenTheListIsStale(t *testing.T) {
	s, m := open(t), &mem{Bucket: membucket.New(time.Now)}
	mi := mirror.New(s, m, "w", slog.New(slog.DiscardHandler))
	for i := range 2 {
		put(t, s, uint64(i+1), manifest.StatusRecalled, "t")
		if n, err := mi.Statuses(t.Context()); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	at := &stale{mem: m, stop: stop}
	if n, err := mi.Compact(ctx, at); err != nil || n != 2 {
		t.Fatalf("%d objects put together in %d looks: %v", n, at.lists, err)
	}
	again(t, s, m)
}
