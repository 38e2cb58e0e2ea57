package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A time of day that a zone has twice, or not at all, is no moment: rows of an hour would be
// restored, or not, by chance.
func TestTimesOfDayThatAreNotOneMoment(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err) // the Go distribution has all zones
	}
	for text, want := range map[string]string{
		"2026-11-01T01:30":          "2026-11-01T01:30:00-04:00 or 2026-11-01T01:30:00-05:00",
		"2026-11-01 01:30:07.25":    "twice",
		"2026-03-08T02:30":          "leave 2026-03-08T02:30 out",
		"2026-11-01T00:59":          "",
		"2026-11-01T02:00":          "",
		"2026-03-08T03:00":          "",
		"2026-11-01T01:30:00-05:00": "",
		"2026-11-01":                "",
	} {
		_, err := parseTime(text, zone)
		if want == "" && err != nil || want != "" && (!errors.Is(err, errWall) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
