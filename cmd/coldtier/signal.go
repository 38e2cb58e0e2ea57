package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// echo is how soon after the first a signal is still the same one: the kernel may tell a
// process several times that its parent was killed, once for each thread of that.
const echo = 100 * time.Millisecond

// signals gives a context that the first SIGINT or SIGTERM ends. A second signal,
// or the end of the grace time, which is asked for with the first, ends the process at once: every step is safe
// against that, it only leaves more to the next run. After stop signals are nothing to
// it any more: a server, which ends in its own way, looks after them itself.
func signals(parent context.Context, grace func() time.Duration, quit func(int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	c := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-c:
			// Whoever looks at the cause takes it for what it is: a cancellation.
			cancel(mark(fmt.Errorf("%w by %s", errInterrupted, signalName(s)), context.Canceled))
		case <-done:
			return
		}
		late, first := time.NewTimer(grace()), time.Now()
		defer late.Stop()
		for {
			select {
			case <-c:
				if time.Since(first) < echo {
					continue
				}
				quit(exitFailed)
			case <-late.C:
				quit(exitFailed)
			case <-done:
			}
			return
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(c)
		close(done)
	})
}

// signalName is what a signal is called where one is sent.
func signalName(s os.Signal) string {
	if s == os.Interrupt {
		return "SIGINT"
	}
	return "SIGTERM" // there is no other that ends a run
}

// serverSignals takes the signals over for a server: the first SIGINT or SIGTERM ends
// the context, the second closes hurry, the third ends the process. Each SIGHUP calls again.
func (a *app) serverSignals(parent context.Context, again func(), quit func(int)) (ctx context.Context, hurry <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	c := make(chan os.Signal, 4)
	done, soon := make(chan struct{}), make(chan struct{})
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if a.unhook != nil {
		a.unhook() // after Notify, so that no signal comes between
	}
	go func() {
		for ends := 0; ; {
			var s os.Signal
			select {
			case s = <-c:
			case <-done:
				return
			}
			if s == syscall.SIGHUP {
				again()
				continue
			}
			switch ends++; ends {
			case 1:
				cancel(mark(fmt.Errorf("%w by %s", errInterrupted, signalName(s)), context.Canceled))
			case 2:
				close(soon)
			default:
				quit(exitFailed)
			}
		}
	}()
	return ctx, soon, sync.OnceFunc(func() {
		signal.Stop(c)
		close(done)
		cancel(nil)
	})
}
