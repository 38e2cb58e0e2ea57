package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/coldtier/coldtier/archive/warm"
)

// Pace says when a job leaves a warm server alone. 0 and "" are no limit.
type Pace struct {
	RowsPerSecond     int
	BytesPerSecond    int64
	MaxReplicaLag     time.Duration // of each of the replicas that source.databases lists
	MaxThreadsRunning int           // Threads_running of the primary
	MaxHistoryLength  int           // entries of InnoDB's history list
	PauseQuery        string        // pauses while it gives anything but NULL, 0, '' or no row
	Hours             string        // "22:00-06:00,12:00-13:00" in the source's zone; empty: always
	MaxImpact         float64       // how many times as long as usual a small read may take
	MaxPause          time.Duration // a pause that lasts longer ends the run with exit code 3
}

func archivePace() Pace {
	return Pace{MaxReplicaLag: 5 * time.Second, MaxThreadsRunning: 50, MaxImpact: 4, MaxPause: 30 * time.Minute}
}

func purgePace() Pace {
	return Pace{MaxReplicaLag: 5 * time.Second, MaxThreadsRunning: 50, MaxPause: 5 * time.Minute}
}

func pace(m *mapping, p *Pace) {
	m.number("rows_per_second", &p.RowsPerSecond, 0, 1_000_000_000)
	m.formatted("bytes_per_second", func(s string) (err error) {
		if s == "0" {
			p.BytesPerSecond = 0
			return nil
		}
		p.BytesPerSecond, err = ParseSize(s)
		return err
	})
	m.duration("max_replica_lag", &p.MaxReplicaLag)
	m.number("max_threads_running", &p.MaxThreadsRunning, 0, 1_000_000)
	m.number("max_history_length", &p.MaxHistoryLength, 0, math.MaxInt32)
	m.text("pause_query", &p.PauseQuery, func(s string) error {
		if warm.CheckPauseQuery(s) != nil {
			return errors.New("want a statement that begins with SELECT, WITH or SHOW, such as SELECT 1 FROM ops.maintenance WHERE active, or nothing")
		}
		return nil
	})
	m.formatted("hours", func(s string) error {
		p.Hours = s
		return checkHours(s)
	})
	m.formatted("max_impact", func(s string) error {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || v != 0 && !(v >= warm.MinImpact && v <= 1000) {
			return fmt.Errorf("want 0 (off), or how many times as long as usual a small read may take: %g..1000", warm.MinImpact)
		}
		p.MaxImpact = v
		return nil
	})
	m.duration("max_pause", &p.MaxPause)
}
