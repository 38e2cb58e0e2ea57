package purge

import (
	"fmt"
	"strings"
	"time"
)

// hours is a daily window of wall-clock minutes; from == to means always.
type hours struct {
	from, to int // minutes of the day
	zone     *time.Location
}

// parseHours reads "22:00-06:00"; the empty text is always.
func parseHours(text string, zone *time.Location) (hours, error) {
	h := hours{zone: zone}
	if text == "" {
		return h, nil
	}
	bad := fmt.Errorf("purge.hours %q: want the form 22:00-06:00", text)
	a, b, ok := strings.Cut(text, "-")
	if !ok {
		return h, bad
	}
	if h.from, ok = minutes(strings.TrimSpace(a)); !ok || h.from == 24*60 {
		return h, bad
	}
	if h.to, ok = minutes(strings.TrimSpace(b)); !ok {
		return h, bad
	}
	if h.from == h.to {
		return h, fmt.Errorf("purge.hours %q: begins when it ends; leave it empty for always", text)
	}
	return h, nil
}

// minutes reads 00:00..24:00.
func minutes(text string) (int, bool) {
	if text == "24:00" {
		return 24 * 60, true
	}
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != 5 {
		return 0, false
	}
	return t.Hour()*60 + t.Minute(), true
}

// open says whether an instant lies in the window, by the zone's wall clock.
func (h hours) open(t time.Time) bool {
	if h.from == h.to {
		return true
	}
	l := t.In(h.zone)
	m := l.Hour()*60 + l.Minute()
	if h.from < h.to {
		return h.from <= m && m < h.to
	}
	return m >= h.from || m < h.to // over midnight
}
