package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// grace is how long the running step may take to end after the first signal. It is
// below the 30 s that Kubernetes waits before SIGKILL.
const grace = 25 * time.Second

// signals gives a context that the first SIGINT or SIGTERM ends. A second signal,
// or the end of the grace time, ends the process at once: every step is safe
// against that, it only leaves more to the next run.
func signals(parent context.Context, quit func(int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	c := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-c:
			// Whoever looks at the cause takes it for what it is: a cancellation.
			cancel(mark(fmt.Errorf("%w by signal %s", errInterrupted, s), context.Canceled))
		case <-done:
			return
		}
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-c:
			quit(exitFailed)
		case <-late.C:
			quit(exitFailed)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		close(done)
		cancel(nil)
	}
}
