package config

import (
	"testing"
	"time"
)

// A job has its default time in the zone that is given; one whose spec is empty is off.
func TestSchedule(t *testing.T) {
	t.Parallel()
	text := read(t, "small.yaml")
	c, err := Parse("c.yaml", []byte(text+"\nschedule: {timezone: Europe/Berlin, purge: '', verify: '0 1 * * *', verify_sample: 1}\n"), lookup(nil))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Schedule
	if s.Purge != nil || s.Verify.String() != "0 1 * * *" || s.VerifySample != (Fraction{1, 1}) || s.Archive.Zone().String() != "Europe/Berlin" {
		t.Errorf("%+v", s)
	}
	if at := s.Archive.Next(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)); !at.Equal(time.Date(2026, 12, 1, 1, 0, 0, 0, time.UTC)) {
		t.Errorf("the archive is due at %s", at)
	}
	d := defaultSchedule()
	for _, j := range d.jobs() {
		if *j.spec == nil || (*j.spec).String() != j.text {
			t.Errorf("the default of %s is %v", j.key, *j.spec)
		}
	}
}
