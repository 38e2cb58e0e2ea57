package warm

import (
	"fmt"
	"strings"
	"time"
)

// hours are daily windows of wall-clock minutes; none means always.
type hours struct {
	text    string
	windows []window
	zone    *time.Location
}

// window is [from, to) in minutes of the day; to may be before from: over midnight.
type window struct{ from, to int }

func (h hours) String() string { return h.text + " " + h.zone.String() }

// parseHours reads "22:00-06:00,12:00-13:00"; the empty text is always.
func parseHours(text string, zone *time.Location) (hours, error) {
	h := hours{text: text, zone: zone}
	if text == "" {
		return h, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		w, err := parseWindow(strings.TrimSpace(one))
		if err != nil {
			return h, fmt.Errorf("hours %q: %w", text, err)
		}
		h.windows = append(h.windows, w)
	}
	return h, nil
}

// CheckHours says what is wrong with a text of allowed hours.
func CheckHours(text string) error {
	_, err := parseHours(text, time.UTC)
	return err
}

func parseWindow(text string) (w window, err error) {
	bad := fmt.Errorf("want the form 22:00-06:00 or 22:00-06:00,12:00-13:00")
	a, b, ok := strings.Cut(text, "-")
	if !ok {
		return w, bad
	}
	if w.from, ok = minutes(strings.TrimSpace(a)); !ok || w.from == 24*60 {
		return w, bad
	}
	if w.to, ok = minutes(strings.TrimSpace(b)); !ok {
		return w, bad
	}
	if w.from == w.to {
		return w, fmt.Errorf("%s begins when it ends; leave hours empty for always", text)
	}
	return w, nil
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

// open says whether an instant lies in a window, by the zone's wall clock: an hour that
// a zone has twice is open twice, one that it skips is not missed.
func (h hours) open(t time.Time) bool {
	if len(h.windows) == 0 {
		return true
	}
	l := t.In(h.zone)
	m := l.Hour()*60 + l.Minute()
	for _, w := range h.windows {
		if w.from < w.to && w.from <= m && m < w.to || w.from > w.to && (m >= w.from || m < w.to) {
			return true
		}
	}
	return false
}

// next is when the hours begin after an instant at which they are not open. It goes by
// instants, not by wall-clock times, some of which a zone has twice or not at all.
func (h hours) next(t time.Time) time.Time {
	at := t.Truncate(time.Minute)
	for range 50 * 60 { // a window that a zone skips today is there tomorrow
		if at = at.Add(time.Minute); h.open(at) {
			return at
		}
	}
	return at
}
