package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Spec is when a job is due: five fields of cron in a time zone.
//
// Where a zone's clock jumps, a spec whose hour field begins with a star goes by the time
// that passes: what is skipped is not due, what comes twice is due twice. Any other is due
// as often as the calendar says: at the first instant after a gap that swallowed its time,
// and the first time only of a time that comes twice. A day that the zone skips wholly does
// not exist.
type Spec struct {
	text      string
	zone      *time.Location
	cron      cron.Schedule // of wall clocks, told as times in UTC, where no clock jumps
	everyHour bool
}

var errFields = errors.New("want five fields, minute hour day-of-month month day-of-week, such as 0 2 * * *")

// ParseSpec reads a spec: numbers, names of months and of days of the week, lists, ranges,
// and steps of a star or of a range. As in Kubernetes' CronJobs, a day is due that has one of
// both days when both are given, and Sunday is 0. Unlike there, @daily, @every, TZ=, ? and
// steps that lead nowhere are refused.
func ParseSpec(text string, zone *time.Location) (*Spec, error) {
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return nil, errFields
	}
	for i, f := range fields {
		if err := checkField(f, []int{60, 24, 31, 12, 7}[i]); err != nil {
			return nil, fmt.Errorf("%s %q: %w", []string{"minute", "hour", "day of month", "month", "day of week"}[i], f, err)
		}
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFields, err)
	}
	schedule, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errFields
	}
	schedule.Location = time.UTC
	s := &Spec{strings.Join(fields, " "), zone, schedule, strings.HasPrefix(fields[1], "*")}
	if s.after(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("it is never due: no such day exists")
	}
	return s, nil
}

// checkField refuses what the parser takes and means something else, or nothing. values is
// how many values the field has.
func checkField(field string, values int) error {
	for item := range strings.SplitSeq(field, ",") {
		base, step, stepped := strings.Cut(item, "/")
		n := 0
		for _, c := range []byte(step) {
			if c < '0' || c > '9' || n > values {
				return errors.New("want a number as the step")
			}
			n = 10*n + int(c-'0')
		}
		switch {
		case base == "":
			return errors.New("want a number, a range or *, and none of them left out")
		case strings.Trim(base, "*-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "", base != "*" && strings.Contains(base, "*"):
			return errors.New("want numbers, names, * , - and /")
		case stepped && (n < 1 || n >= values):
			return fmt.Errorf("want a step of 1 to %d", values-1)
		case stepped && base != "*" && !strings.Contains(base, "-"):
			return errors.New("a step follows * or a range, such as 10-59/5")
		}
	}
	return nil
}

// String is the spec's text.
func (s *Spec) String() string { return s.text }

// Zone is the time zone of the spec.
func (s *Spec) Zone() *time.Location { return s.zone }

// after is the wall clock's next occurrence. The parser's schedule gives up after five years,
// which a 29th of February may be away for longer.
func (s *Spec) after(wall time.Time) time.Time {
	for range 3 {
		if w := s.cron.Next(wall); !w.IsZero() {
			return w
		}
		wall = wall.AddDate(4, 0, 0)
	}
	return time.Time{}
}

// Next is the first occurrence after t.
func (s *Spec) Next(t time.Time) time.Time {
	t = t.Round(0).In(s.zone) // without the monotonic clock, which knows of no zone
	if s.everyHour {
		return s.nextPassing(t)
	}
	for w := wallOf(t); ; {
		if w = s.after(w); w.IsZero() {
			return w
		}
		if i := s.instant(w); i.After(t) && s.exists(w) {
			return i
		}
	}
}

// nextPassing is Next for a spec that goes by the time that passes: within each stretch in
// which the zone's offset stays, the wall clock moves like any other.
func (s *Spec) nextPassing(t time.Time) time.Time {
	w := wallOf(t)
	for range 100 { // no spec is due so seldom that there are more stretches before
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		next := s.after(w)
		if next.IsZero() {
			return next
		}
		i := next.Add(-time.Duration(offset) * time.Second).In(s.zone)
		if end.IsZero() || i.Before(end) {
			return i
		}
		t = end.In(s.zone)
		w = wallOf(t).Add(-time.Second) // its first second is a candidate
	}
	return time.Time{}
}

// Last is the last occurrence after one instant and not after another; zero: there is none.
func (s *Spec) Last(after, until time.Time) (last time.Time) {
	for _, back := range []time.Duration{time.Hour, 25 * time.Hour, 32 * 24 * time.Hour, 367 * 24 * time.Hour} {
		// Far from now there are many, of which only the last counts.
		if from := until.Add(-back); from.After(after) {
			if n := s.Next(from); !n.IsZero() && !n.After(until) {
				after = from
				break
			}
		}
	}
	for {
		n := s.Next(after)
		if n.IsZero() || n.After(until) {
			return last
		}
		last, after = n, n
	}
}

// wallOf is what a clock on the wall shows at t, as a time in UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant is the first instant at which the wall clock shows w, or would have if it had not
// been set forward beyond it.
func (s *Spec) instant(w time.Time) time.Time {
	t := w.Add(-16 * time.Hour).In(s.zone) // before w in every zone
	for {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		i := w.Add(-time.Duration(offset) * time.Second).In(s.zone)
		switch {
		case i.Before(t): // a gap, whose end is t
			return t
		case end.IsZero() || i.Before(end):
			return i
		}
		t = end.In(s.zone)
	}
}

// exists says whether the zone has the day of w.
func (s *Spec) exists(w time.Time) bool {
	y, m, d := s.instant(time.Date(w.Year(), w.Month(), w.Day(), 0, 0, 0, 0, time.UTC)).Date()
	return y == w.Year() && m == w.Month() && d == w.Day()
}
