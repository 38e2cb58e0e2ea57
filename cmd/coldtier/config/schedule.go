package config

import (
	"time"

	"github.com/coldtier/coldtier/scheduler"
)

// Schedule is when `coldtier scheduler` runs which job. A job that is nil is off.
type Schedule struct {
	Zone                                  *time.Location
	Archive, Purge, Verify, Patrol, Drill *scheduler.Spec
	VerifySample                          Fraction // of the slices that one run of verify reads
}

// defaultSchedule leaves each job the time that the one before it usually takes.
func defaultSchedule() Schedule {
	s := Schedule{Zone: time.UTC, VerifySample: Fraction{1, 8}}
	for _, j := range s.jobs() {
		*j.spec, _ = scheduler.ParseSpec(j.text, s.Zone) // a test reads them
	}
	return s
}

// job is a key of the schedule, and its default.
type job struct {
	key, text string
	spec      **scheduler.Spec
}

func (s *Schedule) jobs() []job {
	return []job{
		{"archive", "0 2 * * *", &s.Archive}, {"purge", "0 4 * * *", &s.Purge}, {"verify", "0 3 * * 6", &s.Verify},
		{"patrol", "0 5 * * 0", &s.Patrol}, {"drill", "0 6 1 1,4,7,10 *", &s.Drill},
	}
}

func schedule(m *mapping, s *Schedule) {
	m.value("timezone", func(t string) (err error) {
		s.Zone, err = parseZone(t)
		return err
	})
	if s.Zone == nil { // which is reported
		s.Zone = time.UTC
	}
	for _, j := range s.jobs() {
		read := func(t string) (err error) {
			if *j.spec = nil; t != "" {
				*j.spec, err = scheduler.ParseSpec(t, s.Zone)
			}
			return err
		}
		if _, given := m.get(j.key); given {
			m.formatted(j.key, read)
		} else {
			_ = read(j.text) // the default, in the zone that is given
		}
	}
	m.formatted("verify_sample", func(t string) (err error) {
		s.VerifySample, err = ParseFraction(t)
		return err
	})
}
