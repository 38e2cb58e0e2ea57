package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
)

// budget is how long a run may last: --max-duration and --until.
type budget struct {
	durationText, untilText string

	duration time.Duration // 0: no limit
	minute   int           // of the day, of until
}

func (b *budget) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&b.durationText, "max-duration", "", "begin nothing more after so long, such as `3h`, and end what runs at its next chunk (exit code 3)")
	f.StringVar(&b.untilText, "until", "", "the same at the next `HH:MM` of the source's time zone, such as 06:00")
}

// parse reads the flags' texts.
func (b *budget) parse() (err error) {
	if b.durationText != "" {
		if b.duration, err = config.ParseDuration(b.durationText); err != nil || b.duration == 0 {
			return usage("--max-duration %q: want a duration such as 3h or 90m", b.durationText)
		}
	}
	if b.untilText != "" {
		t, err := time.Parse("15:04", b.untilText)
		if err != nil || len(b.untilText) != len("15:04") {
			return usage("--until %q: want a time of day such as 06:00", b.untilText)
		}
		b.minute = t.Hour()*60 + t.Minute()
	}
	return nil
}

// limit begins the time; nil when there is no limit.
func (b *budget) limit(now func() time.Time, zone *time.Location) *timeLimit {
	begun := now()
	var l *timeLimit
	if b.duration > 0 {
		l = &timeLimit{now: now, end: begun.Add(b.duration), what: "--max-duration " + b.durationText}
	}
	if b.untilText != "" {
		if end := nextAt(begun, b.minute, zone); l == nil || end.Before(l.end) {
			l = &timeLimit{now: now, end: end, what: "--until " + b.untilText}
		}
	}
	return l
}

// nextAt is when clocks in a zone next come to read a minute of the day. A time that they
// leave out, since they are put forward, is when they are.
func nextAt(now time.Time, minute int, zone *time.Location) time.Time {
	read := func(t time.Time) (day, m int) {
		l := t.In(zone)
		return l.YearDay(), l.Hour()*60 + l.Minute()
	}
	t := now.Truncate(time.Minute)
	day, last := read(t)
	for {
		t = t.Add(time.Minute)
		d, m := read(t)
		switch {
		case d == day && m > last && last < minute && minute <= m,
			d == day && m <= last && minute == m, // put back
			d != day && (minute <= m || minute > last):
			return t
		}
		day, last = d, m
	}
}

// timeLimit is when a run is to end by itself.
type timeLimit struct {
	now  func() time.Time
	end  time.Time
	what string
}

// Up implements archive.Limit. Its error counts as a cancellation: what it ends has not failed.
func (l *timeLimit) Up() error {
	if l == nil || l.now().Before(l.end) {
		return nil
	}
	return l.cause()
}

func (l *timeLimit) cause() error {
	return mark(fmt.Errorf("%w (%s)", archive.ErrTimeUp, l.what), context.Canceled)
}

// Left implements archive.Limit.
func (l *timeLimit) Left() time.Duration { return max(0, l.end.Sub(l.now())) }

// waiting gives a context that ends with the time, for what does nothing but wait.
func (l *timeLimit) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.until(ctx, 0)
}

// lastChunk is how long after its time a run that has not ended by itself, since a server
// does not answer, is ended as by a signal.
const lastChunk = 2 * time.Minute

// over gives a context that ends a while after the time.
func (l *timeLimit) over(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.until(ctx, lastChunk)
}

func (l *timeLimit) until(ctx context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	if l == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t := time.AfterFunc(l.Left()+more, func() { cancel(l.cause()) })
	return ctx, func() {
		t.Stop()
		cancel(context.Canceled)
	}
}

// archiveLimit is the limit for archive; nil stays nil.
func (l *timeLimit) archiveLimit() archive.Limit {
	if l == nil {
		return nil
	}
	return l
}

// withBudget begins the time of a run. The context it gives ends a while after the time, for
// a run that has not ended by itself.
func (a *app) withBudget(ctx context.Context, p *parts, b *budget) (context.Context, context.CancelFunc) {
	if p.limit = b.limit(a.now, p.cfg.Source.Zone); p.limit != nil && !a.dryRun {
		a.log.Info("this run ends by itself", "at", stamp(p.limit.end.In(p.cfg.Source.Zone)), "why", p.limit.what)
	}
	return p.limit.over(ctx)
}
