package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/scheduler"
)

// childMargin is by how much a job has to end before its scheduler.
const childMargin = 5 * time.Second

// program is this very program.
func (a *app) program() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return self, nil
}

// childGrace is the time that jobs have to end in, of the scheduler's own.
func childGrace(grace time.Duration) time.Duration { return max(grace-childMargin, grace/2) }

// child runs a job as a process of its own, and waits for its end. When the context ends the
// process gets SIGTERM, and SIGKILL if it has not ended then within its time; so it does when
// it hangs and does not end by its own deadline.
func (a *app) child(ctx context.Context, self string, j scheduled, at time.Time) error {
	// The kernel's signal to a child whose parent has died comes when the parent's thread dies.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	grace := childGrace(a.limits.grace.get())
	args := append([]string{"--config", a.configPath, "--log-format", a.logFormat}, j.args...)
	name := "--grace"
	if j.job == "patrol" {
		name = "--stop-grace"
	}
	args = append(args, name, grace.String())
	if d := a.limits.deadline.get(); d > 0 {
		args = append(args, "--deadline", d.String())
		var cancel context.CancelFunc
		late := fmt.Errorf("%w: %s was told to end after %s, and has not", scheduler.ErrDeadline, j.job, d)
		ctx, cancel = context.WithTimeoutCause(ctx, d+grace, late)
		defer cancel()
	}
	c := exec.CommandContext(ctx, self, args...) //nolint:gosec // this program, with flags of its own
	c.Env = append(os.Environ(), envScheduled+"="+at.UTC().Format(time.RFC3339))
	c.Stdout, c.Stderr = a.childOut(), a.stderr
	// A group of its own: Ctrl-C at a terminal goes to the scheduler alone, which passes it on.
	c.SysProcAttr = childAttr()
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = grace + childMargin/2
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", j.job, err)
	}
	a.log.Info("run begun", "job", j.job, "pid", c.Process.Pid, "scheduled_for", at.UTC())
	err := c.Wait()
	state := c.ProcessState
	switch late := context.Cause(ctx); {
	case errors.Is(late, scheduler.ErrDeadline) && (state == nil || !state.Exited()):
		return fmt.Errorf("%w: %w", late, err)
	case state == nil: // it was not waited for
		return fmt.Errorf("%s: %w", j.job, err)
	case state.Exited():
		return exited(j.job, state.ExitCode())
	case err == nil:
		return nil
	}
	return fmt.Errorf("%s: %w", j.job, err) // such as: signal: killed
}

// exited is what an exit code of a job says.
func exited(job string, code int) error {
	if code == exitDone {
		return nil
	}
	err := fmt.Errorf("%s ended with exit code %d", job, code)
	switch code { // as Kubernetes does by deploy/
	case exitFailed:
		return mark(err, scheduler.ErrAgain)
	case exitUsage: // also that a server did not answer
		return mark(mark(err, errSetup), scheduler.ErrAgain)
	case exitPartial:
		return mark(err, errPartial)
	case exitRefused:
		return mark(err, errUnsafe)
	case exitLeased:
		return mark(mark(err, manifest.ErrLeased), scheduler.ErrHeld)
	}
	return err
}

// childOut is where the tables of jobs go: a document of the scheduler stands alone.
func (a *app) childOut() io.Writer {
	if a.output == formatJSON {
		return nil
	}
	return a.stdout
}
