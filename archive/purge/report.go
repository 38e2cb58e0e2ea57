package purge

import (
	"context"
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/manifest"
)

// Outcome is what became of a slice.
type Outcome string

// The outcomes.
const (
	Purged    Outcome = "purged"
	Drifted   Outcome = "drifted"   // differs from its copy: will be copied again
	Early     Outcome = "early"     // its lag is not over
	Held      Outcome = "held"      // a hold forbids it
	Leased    Outcome = "leased"    // another run is at it
	Changed   Outcome = "changed"   // no longer what the plan lists
	Refused   Outcome = "refused"   // clocks or epoch are wrong
	Forbidden Outcome = "forbidden" // no approved plan allows it, or none does any more
	Locked    Outcome = "locked"    // others hold the table
	Throttled Outcome = "throttled" // the server is busy, its replicas lag, or the hours are over
	Stopped   Outcome = "stopped"   // somebody has stopped all purges
	LeftOver  Outcome = "left"      // not done, for the reason given
	Returned  Outcome = "returned"  // rows that a purge had isolated are back in the table; it is not due
	Failed    Outcome = "failed"
)

// Result is what Execute did with one slice.
type Result struct {
	manifest.SliceKey
	Strategy Strategy `json:"strategy,omitempty"`
	Outcome  Outcome  `json:"outcome"`
	Reason   string   `json:"reason,omitempty"`
	Rows     uint64   `json:"rows"`  // deleted from MySQL by this run
	Bytes    int64    `json:"bytes"` // of the cold copy, when purged
	Seconds  float64  `json:"seconds"`
}

// Report is what Execute did, in the order in which it did it.
type Report struct {
	Approved string   `json:"approved_plan,omitempty"` // the approved plan that was done
	Warnings []string `json:"warnings,omitempty"`
	Slices   []Result `json:"slices"`
	Left     []Left   `json:"left"` // what the plan did not list
	Rows     uint64   `json:"rows"`
	Bytes    int64    `json:"bytes"`
	Seconds  float64  `json:"seconds"`
	// Throttled is for how many seconds deletes were held back, by cause.
	Throttled map[string]float64 `json:"throttled_seconds,omitempty"`
}

// Count is the number of slices with an outcome.
func (r *Report) Count(o Outcome) (n int) {
	for _, s := range r.Slices {
		if s.Outcome == o {
			n++
		}
	}
	return n
}

func (r *Report) add(s Result) {
	r.Slices = append(r.Slices, s)
	r.Rows += s.Rows
	r.Bytes += s.Bytes
}

// Err says what was not done: nil when everything that was due is purged (or in the
// hands of another run), ErrLeased when other runs hold all of it, ErrDrift or
// ErrRefused when only safety stood against the rest, else ErrPartly; none of these
// when there were failures and nothing was purged.
func (r *Report) Err() error {
	n := map[Outcome]int{}
	for _, s := range r.Slices {
		n[s.Outcome]++
	}
	for _, l := range r.Left {
		// Without a plan to do exactly, what is held or early is left for another time.
		if l.Outcome == Leased || l.Outcome == LeftOver || l.Outcome == Changed || r.Approved != "" && l.Outcome == Early {
			n[l.Outcome]++
		} else if r.Approved != "" && l.Outcome == Held {
			n[LeftOver]++
		}
	}
	partly := n[Locked] + n[Throttled] + n[Stopped] + n[LeftOver] + n[Failed] + n[Changed] + n[Early]
	safety := n[Drifted] + n[Refused] + n[Held] + n[Forbidden]
	switch {
	case n[Failed] > 0 && n[Purged] == 0:
		return fmt.Errorf("slices not purged: %d", partly+safety)
	case partly > 0:
		return r.first(ErrPartly, partly+safety)
	case n[Refused]+n[Held]+n[Forbidden] > 0:
		return r.first(ErrRefused, safety)
	case n[Drifted] > 0:
		return r.first(ErrDrift, safety)
	case n[Leased] > 0 && n[Purged] == 0:
		return fmt.Errorf("slices at other runs: %d: %w", n[Leased], ErrLeased)
	}
	return nil
}

// first is err with how many slices were left and the first of them.
func (r *Report) first(err error, n int) error {
	for _, s := range r.Slices {
		if s.Outcome != Purged && s.Outcome != Leased && s.Outcome != Returned {
			return fmt.Errorf("slices left: %d, the first %s (%s: %s): %w", n, s.SliceKey, s.Outcome, s.Reason, err)
		}
	}
	for _, l := range r.Left {
		if l.Outcome == LeftOver || l.Outcome == Changed || r.Approved != "" && (l.Outcome == Early || l.Outcome == Held) {
			return fmt.Errorf("slices left: %d, the first %s (%s): %w", n, l.SliceKey, l.Reason, err)
		}
	}
	return err
}

// outcome translates why a slice was not purged.
func outcome(err error) Outcome {
	for _, c := range []struct {
		err error
		o   Outcome
	}{
		{ErrDrift, Drifted}, {ErrLocked, Locked}, {ErrThrottled, Throttled}, {ErrHours, Throttled}, {ErrStopped, Stopped}, {ErrUnclear, LeftOver}, {ErrIncompatible, LeftOver}, {ErrRefused, Refused},
		{errChanged, Changed}, {errLeft, LeftOver}, {errElsewhere, Leased}, {errReturned, Returned},
		{manifest.ErrHeld, Held}, {manifest.ErrStopped, Stopped}, {manifest.ErrUnapproved, Forbidden}, {manifest.ErrLag, Early}, {manifest.ErrLeased, Leased}, {manifest.ErrLeaseLost, LeftOver}, {manifest.ErrState, Changed}, {manifest.ErrNotFound, Changed}, {context.Canceled, LeftOver},
	} {
		if errors.Is(err, c.err) {
			return c.o
		}
	}
	return Failed
}

var (
	errChanged   = errors.New("no longer what the plan lists")
	errLeft      = errors.New("left for the next run")
	errElsewhere = errors.New("another run purged it")
	errReturned  = errors.New("it may not be purged yet; rows that a purge had left in a staging table that the manifest knew nothing of are back in the table")
)
