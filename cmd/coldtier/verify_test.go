package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// A copy that was read in part is not verified, however often, until all of it was read:
// nothing of it is purged before.
func TestACopyIsVerifiedWhenAllOfItWasRead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.set("archive.verify", "later")
	l.set("purge.lag", "0s")
	for conversation := range uint64(3) {
		l.fill("msg_00", 31, 2, 17+conversation)
	}
	l.want(0, "migrate")
	l.want(0, "archive")
	state := func() string {
		var status doc
		l.json(0, &status, "status", "--day", l.day(31).String())
		for s := range at(t, status, "days", 0, "states").(doc) {
			return s
		}
		return ""
	}
	for n := range 3 {
		if got := state(); got != "committed" {
			t.Fatalf("after %d of 3 objects were read it is %s", n, got)
		}
		l.want(0, "purge")
		if l.rows("msg_00") != 6 {
			t.Fatalf("purged after %d of 3 objects were read", n)
		}
		l.want(0, "verify", "--budget", "1B") // one object, which is bigger
	}
	if got := state(); got != "verified" {
		t.Errorf("after all was read it is %s", got)
	}
	l.want(0, "purge")
	if n := l.rows("msg_00"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// What differs is told with what brings it right.
func TestCures(t *testing.T) {
	day := snowflake.MakeDay(2026, 5, 1)
	of := func(state manifest.State, err error, damaged ...archive.Damage) archive.VerifyOutcome {
		return archive.VerifyOutcome{Slice: manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "d", Table: "t"}, Day: day}, State: state, Err: err, Damaged: damaged}
	}
	object, rows := of(manifest.Purged, archive.ErrMismatch, archive.Damage{Key: "k"}), of(manifest.Purged, fmt.Errorf("%w: %w", archive.ErrRows, archive.ErrMismatch))
	again := "remedy     coldtier archive: slices whose rows are still in MySQL are copied again\n"
	anew := "remedy     coldtier rebuild clickhouse --day 2026-05-01 --shard d.t\n"
	for name, c := range map[string]struct {
		list []archive.VerifyOutcome
		want []string
	}{
		"nothing":   {},
		"warm rows": {[]archive.VerifyOutcome{of(manifest.Pending, archive.ErrMismatch, archive.Damage{Key: "k"}), of(manifest.Pending, archive.ErrRows)}, []string{again}},
		"object":    {[]archive.VerifyOutcome{object, object}, []string{"remedy     " + objectCure}},
		"rows":      {[]archive.VerifyOutcome{rows}, []string{anew}},
		"all":       {[]archive.VerifyOutcome{rows, object, of(manifest.Pending, archive.ErrMismatch)}, []string{anew, objectCure, again}},
	} {
		var b strings.Builder
		cureLines(&b, c.list)
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, b.String())
			}
		}
		if strings.Count(b.String(), "\n") != len(c.want) {
			t.Errorf("%s: want %d lines:\n%s", name, len(c.want), b.String())
		}
	}
}
