package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive"
)

// --until is the next time at which clocks of the zone read so, on the days on which
// they are put forward or back, too.
func TestUntil(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, now, until, want string }{
		{"UTC", "2026-05-01T02:00:00Z", "06:00", "2026-05-01T06:00:00Z"},
		{"UTC", "2026-05-01T05:59:59Z", "06:00", "2026-05-01T06:00:00Z"},
		{"UTC", "2026-05-01T06:00:00Z", "06:00", "2026-05-02T06:00:00Z"},
		{"UTC", "2026-05-01T06:00:30Z", "06:00", "2026-05-02T06:00:00Z"},
		{"UTC", "2026-12-31T23:30:00Z", "00:00", "2027-01-01T00:00:00Z"},
		{"Asia/Shanghai", "2026-05-01T02:00:00Z", "06:00", "2026-05-01T22:00:00Z"},
		{"Asia/Kolkata", "2026-05-01T00:00:10Z", "06:00", "2026-05-01T00:30:00Z"},
		// Clocks go from 02:00 to 03:00 at 01:00Z: the night has an hour less.
		{"Europe/Berlin", "2026-03-28T22:00:00Z", "06:00", "2026-03-29T04:00:00Z"},
		{"Europe/Berlin", "2026-03-28T22:00:00Z", "02:30", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "2026-03-28T22:00:00Z", "03:00", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "2026-03-29T01:00:00Z", "02:30", "2026-03-30T00:30:00Z"},
		// And from 03:00 back to 02:00 at 01:00Z: it has one more.
		{"Europe/Berlin", "2026-10-24T22:00:00Z", "06:00", "2026-10-25T05:00:00Z"},
		{"Europe/Berlin", "2026-10-24T22:00:00Z", "02:30", "2026-10-25T00:30:00Z"},
		{"Europe/Berlin", "2026-10-25T00:45:00Z", "02:30", "2026-10-25T01:30:00Z"},
		{"Europe/Berlin", "2026-10-25T00:59:59Z", "02:00", "2026-10-25T01:00:00Z"},
		// Here they are put forward at midnight, to 01:00.
		{"America/Asuncion", "2022-10-02T03:00:00Z", "00:30", "2022-10-02T04:00:00Z"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		b := budget{untilText: c.until}
		if err := b.parse(); err != nil {
			t.Fatal(err)
		}
		if got := b.limit(func() time.Time { return now }, zone).end.UTC().Format(time.RFC3339); got != c.want {
			t.Errorf("%s in %s, --until %s: %s, want %s", c.now, c.zone, c.until, got, c.want)
		}
	}
}

// The earlier of both limits counts; what it ends has not failed, and is exit code 3.
func TestLimits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	b := budget{durationText: "4h", untilText: "06:00"}
	if err := b.parse(); err != nil {
		t.Fatal(err)
	}
	l := b.limit(clock, time.UTC)
	if l.Up() != nil || l.Left() != 3*time.Hour {
		t.Errorf("%v, %s left", l.Up(), l.Left())
	}
	now = now.Add(3 * time.Hour)
	err := l.Up()
	if !errors.Is(err, archive.ErrTimeUp) || !errors.Is(err, context.Canceled) || err.Error() != "time is up (--until 06:00)" || l.Left() != 0 {
		t.Errorf("%v, %s left", err, l.Left())
	}
	if code, kind := exit(wrapped(err)); code != exitPartial || kind != kindPartial {
		t.Errorf("exit code %d (%s)", code, kind)
	}
	now = now.Add(-3 * time.Hour)
	b = budget{durationText: "1h", untilText: "06:00"}
	if err := b.parse(); err != nil || b.limit(clock, time.UTC).what != "--max-duration 1h" {
		t.Errorf("%v, %+v", err, b.limit(clock, time.UTC))
	}
	var none budget
	if l := none.limit(clock, time.UTC); l.Up() != nil || l.archiveLimit() != nil {
		t.Errorf("no limit is %+v", l)
	}
	ctx, end := l.waiting(t.Context())
	defer end()
	now = now.Add(6 * time.Hour)
	ctx, end2 := l.waiting(ctx)
	defer end2()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), archive.ErrTimeUp) {
		t.Errorf("ended by %v", context.Cause(ctx))
	}
	for _, bad := range []budget{{durationText: "0s"}, {durationText: "soon"}, {durationText: "-1h"}, {untilText: "6:00"}, {untilText: "24:00"}, {untilText: "06:00:00"}, {untilText: "morning"}} {
		if err := bad.parse(); !errors.Is(err, errUsage) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
