package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/canary"
	"github.com/coldtier/coldtier/restore/patrol"
	"github.com/coldtier/coldtier/restore/rebuild"
	"github.com/coldtier/coldtier/restore/rehydrate"
	reading "github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/scheduler"
)

// The exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitPartial = 3
	exitRefused = 4
	exitLeased  = 5
)

// Errors of this package, told apart by exit code.
var (
	errUsage       = errors.New("bad usage")
	errSetup       = errors.New("set-up")
	errPartial     = errors.New("done in part")
	errUnsafe      = errors.New("refused for safety")
	errInterrupted = errors.New("interrupted")
)

// marked is an error that counts as a sentinel without showing the sentinel's text.
type marked struct {
	error
	as error
}

func (m marked) Unwrap() []error { return []error{m.error, m.as} }

func mark(err, as error) error {
	if err == nil {
		return nil
	}
	return marked{err, as}
}

func usage(format string, args ...any) error { return mark(fmt.Errorf(format, args...), errUsage) }

// Words for the kinds of errors, in JSON documents and in the manifest's runs.
const (
	kindConfiguration = "configuration"
	kindUsage         = "usage"
	kindSetup         = "setup"
	kindPartial       = "partial"
	kindStopped       = "stopped"
	kindRefused       = "refused"
	kindLeased        = "leased"
	kindInterrupted   = "interrupted"
	kindDeadline      = "deadline"
	kindLost          = "lost" // the job's lease
	kindPanic         = "panic"
	kindFailed        = "failed"
)

// outcomes are how a run can end that did not do all it was to do.
func outcomes() []string {
	return []string{kindConfiguration, kindUsage, kindSetup, kindPartial, kindStopped, kindRefused, kindLeased, kindInterrupted, kindDeadline, kindLost, kindPanic, kindFailed}
}

type verdict struct {
	code int
	kind string
	errs []error
}

// verdicts turns errors into exit codes: the first line that matches counts. What
// a verb itself says of its whole run comes first, then what is dangerous, then
// what is merely wrong.
func verdicts() []verdict {
	return []verdict{
		{exitUsage, kindUsage, []error{errUsage, archive.ErrTooYoung, archive.ErrNoTable, restore.ErrQuery, rehydrate.ErrNothing, reading.ErrSelection}},
		{exitPartial, kindStopped, []error{errStopped, archive.ErrStopped, purge.ErrStopped}},
		{exitPartial, kindPartial, []error{errPartial, purge.ErrPartly, rehydrate.ErrPartly, rebuild.ErrPartly, patrol.ErrPartly}},
		{exitRefused, kindRefused, []error{errUnsafe, archive.ErrMismatch, archive.ErrUnsafe, archive.ErrForeign, archive.ErrUnowned, purge.ErrDrift, purge.ErrRefused, manifest.ErrHeld, manifest.ErrLag, manifest.ErrUnapproved, restore.ErrTenant, rehydrate.ErrRefused, rehydrate.ErrDiffers, reading.ErrMismatch, rebuild.ErrTarget, rebuild.ErrUnequal, manifest.ErrNotEmpty, canary.ErrRefused, canary.ErrDiffers, patrol.ErrDiffers}},
		{exitLeased, kindLeased, []error{manifest.ErrLeased, purge.ErrLeased}},
		{exitFailed, kindPanic, []error{scheduler.ErrPanic}},
		{exitFailed, kindDeadline, []error{scheduler.ErrDeadline}},
		{exitFailed, kindLost, []error{scheduler.ErrLost}},
		{exitPartial, kindPartial, []error{archive.ErrTimeUp, archive.ErrTooLarge}},
		{exitFailed, kindInterrupted, []error{errInterrupted, context.Canceled}},
		{exitUsage, kindSetup, []error{errSetup}},
		{exitPartial, kindPartial, []error{archive.ErrPaused, purge.ErrThrottled, purge.ErrHours, purge.ErrLocked, rehydrate.ErrThrottled}},
	}
}

// exit gives an error's exit code and a word for its kind.
func exit(err error) (code int, kind string) {
	if err == nil {
		return exitDone, ""
	}
	var bad *config.Error
	if errors.As(err, &bad) {
		return exitUsage, kindConfiguration
	}
	for _, v := range verdicts() {
		for _, e := range v.errs {
			if errors.Is(err, e) {
				return v.code, v.kind
			}
		}
	}
	return exitFailed, kindFailed
}
