package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
)

// Every kind of error has its exit code, however deep it is wrapped and whatever
// stands beside it.
func TestExitCodes(t *testing.T) {
	slice := func(err error) archive.Outcome { return archive.Outcome{Err: fmt.Errorf("slice x: %w", err)} }
	done := archive.Outcome{}
	report := func(done, left, failed []archive.Outcome) error {
		return archived(&archive.Report{Done: done, Left: left, Failed: failed})
	}
	list := func(o ...archive.Outcome) []archive.Outcome { return o }
	equal := archive.VerifyOutcome{}
	differs := archive.VerifyOutcome{Err: fmt.Errorf("bucket: %w", archive.ErrMismatch)}
	taken := archive.VerifyOutcome{Err: manifest.ErrLeased}
	unread := archive.VerifyOutcome{Err: errors.New("connection refused")}
	other := errors.New("disk on fire")
	for _, tt := range []struct {
		name string
		err  error
		code int
		kind string
	}{
		{"nothing", nil, 0, ""},
		{"anything", other, 1, "failed"},
		{"usage", usage("bad flag"), 2, "usage"},
		{"configuration", errors.Join(&config.Error{}, &config.Error{}), 2, "configuration"},
		{"set-up", setup(other), 2, "setup"},
		{"no bucket", setup(bucket.ErrNoBucket), 2, "setup"},
		{"skew", setup(mark(other, errUnsafe)), 4, "refused"},
		{"skew of the bucket", setup(bucket.ErrClockSkew), 4, "refused"},
		{"epoch", setup(errors.Join(other, warm.ErrEpoch)), 4, "refused"},
		{"epoch in a plan", fmt.Errorf("table x: %w: %w", archive.ErrUnsafe, warm.ErrEpoch), 4, "refused"},
		{"foreign bucket", setup(errors.Join(other, fmt.Errorf("%w: x", archive.ErrForeign))), 4, "refused"},
		{"bucket without an owner", fmt.Errorf("%w: x", archive.ErrUnowned), 4, "refused"},
		{"damaged owner mark", setup(archive.ErrOwnerDamaged), 2, "setup"},
		{"no privilege", refusal(fmt.Errorf("slice x: %w", &mysql.MySQLError{Number: 1142})), 2, "setup"},
		{"no privilege for some", refusal(mark(&mysql.MySQLError{Number: 1142}, errPartial)), 3, "partial"},
		{"a replica", refusal(&mysql.MySQLError{Number: 1290}), 2, "setup"},
		{"another error of MySQL's", refusal(&mysql.MySQLError{Number: 1064}), 1, "failed"},
		{"no such table", fmt.Errorf("plan: %w", archive.ErrNoTable), 2, "usage"},
		{"too young", fmt.Errorf("day x: %w", archive.ErrTooYoung), 2, "usage"},
		{"held", manifest.ErrHeld, 4, "refused"},
		{"lag", manifest.ErrLag, 4, "refused"},
		{"signal", fmt.Errorf("%w by SIGTERM", errInterrupted), 1, "interrupted"},
		{"signal during the set-up", fmt.Errorf("%w: %w", errInterrupted, setup(context.Canceled)), 1, "interrupted"},
		{"signal in part", mark(fmt.Errorf("%w: %w", errInterrupted, context.Canceled), errPartial), 3, "partial"},

		{"archive: all done", report(list(done), nil, nil), 0, ""},
		{"archive: nothing to do", report(nil, nil, nil), 0, ""},
		{"archive: one failed of two", report(list(done), nil, list(slice(other))), 3, "partial"},
		{"archive: one differs of two", report(list(done), nil, list(slice(archive.ErrMismatch))), 3, "partial"},
		{"archive: all failed", report(nil, nil, list(slice(other), slice(other))), 1, "failed"},
		{"archive: all differ", report(nil, nil, list(slice(archive.ErrMismatch))), 4, "refused"},
		{"archive: all with others", report(nil, list(slice(manifest.ErrLeased)), nil), 5, "leased"},
		{"archive: some with others", report(list(done), list(slice(manifest.ErrLeased)), nil), 0, ""},
		{"archive: with others and failed", report(nil, list(slice(manifest.ErrLeased)), list(slice(other))), 3, "partial"},
		{"archive: some done by others", report(list(done), list(slice(archive.ErrElsewhere), slice(manifest.ErrLeased)), nil), 0, ""},
		{"archive: all with or done by others", report(nil, list(slice(archive.ErrElsewhere), slice(manifest.ErrLeased)), nil), 5, "leased"},
		{"archive: stopped", report(list(done), list(slice(context.Canceled)), nil), 3, "partial"},
		{"archive: stopped before the first", report(nil, list(slice(context.Canceled)), nil), 3, "partial"},

		{"verify: all equal", verified(&archive.VerifyReport{Equal: []archive.VerifyOutcome{equal}}), 0, ""},
		{"verify: one differs", verified(&archive.VerifyReport{Equal: []archive.VerifyOutcome{equal}, Different: []archive.VerifyOutcome{differs}, Unknown: []archive.VerifyOutcome{taken}}), 4, "refused"},
		{"verify: one unknown", verified(&archive.VerifyReport{Equal: []archive.VerifyOutcome{equal}, Unknown: []archive.VerifyOutcome{unread}}), 3, "partial"},
		{"verify: all unknown", verified(&archive.VerifyReport{Unknown: []archive.VerifyOutcome{unread}}), 1, "failed"},
		{"verify: done by others", verified(&archive.VerifyReport{Unknown: []archive.VerifyOutcome{{Err: archive.ErrElsewhere}}}), 5, "leased"},
		{"verify: all with others", verified(&archive.VerifyReport{Unknown: []archive.VerifyOutcome{taken}}), 5, "leased"},

		{"purge: drift", fmt.Errorf("1 slices: %w", purge.ErrDrift), 4, "refused"},
		{"purge: refused", fmt.Errorf("clock: %w", purge.ErrRefused), 4, "refused"},
		{"purge: in part", errors.Join(fmt.Errorf("2 slices: %w", purge.ErrPartly), purge.ErrDrift), 3, "partial"},
		{"purge: with others", purge.ErrLeased, 5, "leased"},
	} {
		for _, err := range []error{tt.err, wrapped(tt.err)} {
			if code, kind := exit(err); code != tt.code || kind != tt.kind {
				t.Errorf("%s: exit code %d (%s), want %d (%s)", tt.name, code, kind, tt.code, tt.kind)
			}
		}
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("deeper: %w", errors.Join(errors.New("beside"), err))
}
