//go:build crashtest

package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// stepHook kills or stops this process, or panics, at the step that COLDTIER_CRASH_AT,
// COLDTIER_STOP_AT or COLDTIER_PANIC_AT names, as "STEP" or, for the N-th time it comes there, "STEP:N".
// COLDTIER_STEPS=1 prints each step to standard error.
func stepHook() func(string) error {
	var mu sync.Mutex
	seen := map[string]int{}
	// To this thread, so that it does not return before the signal has its effect:
	// one to the process is another thread's to take, when that gets a processor.
	signal := func(sig syscall.Signal) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_, _, err := syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(sig)) //nolint:gosec // small numbers
		if err != 0 {
			return err
		}
		return nil
	}
	act := func(variable, step string, n int, do func() error) error {
		name, count, _ := strings.Cut(os.Getenv(variable), ":")
		want := 1
		if count != "" {
			var err error
			if want, err = strconv.Atoi(count); err != nil {
				return fmt.Errorf("%s: %w", variable, err)
			}
		}
		if name != step || n != want {
			return nil
		}
		return do()
	}
	return func(step string) error {
		mu.Lock()
		seen[step]++
		n := seen[step]
		mu.Unlock()
		if os.Getenv("COLDTIER_STEPS") != "" {
			fmt.Fprintf(os.Stderr, "step %s %d\n", step, n)
		}
		if err := act("COLDTIER_CRASH_AT", step, n, func() error { return signal(syscall.SIGKILL) }); err != nil {
			return err
		}
		if err := act("COLDTIER_PANIC_AT", step, n, func() error { panic("at " + step) }); err != nil {
			return err
		}
		return act("COLDTIER_STOP_AT", step, n, func() error { return signal(syscall.SIGSTOP) })
	}
}
