package manifest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// keeper renews what lasts a time by the database's clock.
type keeper struct {
	s     *Store
	what  string // for logs
	renew func(context.Context) error
	over  func() bool // it was given back, so that a renewal that fails means nothing
	lost  error       // what renew's errors match when it is another's, and the cause when it ran out
}

// keep renews in the background until stop is called, which waits for its end. The
// context it gives ends with cause lost as soon as it is another's, or could not be
// renewed for as long as it lasts.
func (k keeper) keep(ctx context.Context) (kept context.Context, stop func()) {
	kept, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.run(kept, cancel)
	}()
	return kept, sync.OnceFunc(func() {
		cancel(context.Canceled)
		<-done
	})
}

func (k keeper) run(ctx context.Context, cancel context.CancelCauseFunc) {
	every := k.s.ttl / 3
	late := func() *time.Timer {
		return time.AfterFunc(k.s.ttl, func() { cancel(fmt.Errorf("%w: not renewed for %s", k.lost, k.s.ttl)) })
	}
	// The end is counted from before the renewal was sent: the server may have
	// judged it any time after.
	end := late()
	defer func() { end.Stop() }()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		next := late()
		once, done := context.WithTimeout(ctx, max(every, time.Second))
		err := k.renew(once)
		done()
		switch {
		case err == nil:
			end.Stop()
			end = next
		case k.over():
			next.Stop()
			return
		case errors.Is(err, k.lost), errors.Is(err, ErrNotFound):
			next.Stop()
			cancel(err)
			return
		default:
			next.Stop()
			if ctx.Err() == nil {
				k.s.log.WarnContext(ctx, "lease not renewed, trying again", "lease", k.what, "error", err)
			}
		}
		tick.Reset(every)
	}
}
