package rehydrate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/selection"
)

// Outcome says what became of a slice.
type Outcome string

// The outcomes.
const (
	Restored Outcome = "restored" // the table has all its selected rows as they were archived
	There    Outcome = "there"    // it had them before
	Partly   Outcome = "partly"   // it has all but those that are named
	Failed   Outcome = "failed"   // an error; what was written stays, and the same command goes on
	Left     Outcome = "left"     // the restore ended before it
)

// SliceReport is what a restore did with a slice.
type SliceReport struct {
	manifest.SliceKey
	Generation uint32              `json:"generation"`
	Table      string              `json:"table"`
	Outcome    Outcome             `json:"outcome"`
	Rows       uint64              `json:"rows"`     // selected
	Inserted   uint64              `json:"inserted"` // now
	Present    uint64              `json:"present"`  // were there, equal
	Conflicts  uint64              `json:"conflicts,omitempty"`
	Refused    uint64              `json:"refused,omitempty"`
	Extra      uint64              `json:"extra,omitempty"`    // rows of the table that are not archived
	Statuses   uint64              `json:"statuses,omitempty"` // rows with a status that was put after they were archived
	Archived   message.Fingerprint `json:"archived"`           // of the selected rows
	Found      message.Fingerprint `json:"found"`              // of what the table has in their place
	Damaged    []*selection.Damage `json:"damaged,omitempty"`
	Requests   int                 `json:"requests"`
	BytesRead  int64               `json:"bytes_read"`
	Seconds    float64             `json:"seconds"`
	Err        error               `json:"-"`
	Error      string              `json:"error,omitempty"`
	less       message.Fingerprint // what the rows that are named add to Archived in the table
	named      map[uint64]bool
}

// Named is a row that was left out.
type Named struct {
	manifest.SliceKey
	Table string `json:"table"`
	Conflict
	Reason string `json:"reason,omitempty"` // of a refused row
}

// maxNamed bounds the lists of a report; the counts go on.
const maxNamed = 1000

// Report is what a restore did.
type Report struct {
	Slices    []SliceReport `json:"slices"` // oldest day first
	Tables    []Made        `json:"tables"`
	Conflicts []Named       `json:"conflicts,omitempty"` // the first 1,000
	Refused   []Named       `json:"refused,omitempty"`   // the first 1,000
	Rows      uint64        `json:"rows"`
	Inserted  uint64        `json:"inserted"`
	Present   uint64        `json:"present"`
	Bytes     int64         `json:"bytes_read"`
	Requests  int           `json:"requests"`
	Seconds   float64       `json:"seconds"`
	err       error         // that ended the restore
}

// Count is the number of slices with an outcome.
func (r *Report) Count(o Outcome) (n int) {
	for i := range r.Slices {
		if r.Slices[i].Outcome == o {
			n++
		}
	}
	return n
}

func (r *Report) sum() {
	slices.SortFunc(r.Slices, func(a, b SliceReport) int {
		return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(a.Shard.String(), b.Shard.String()))
	})
	byID := func(a, b Named) int { return cmp.Compare(a.MessageID, b.MessageID) }
	slices.SortFunc(r.Conflicts, byID)
	slices.SortFunc(r.Refused, byID)
	for i := range r.Slices {
		s := &r.Slices[i]
		r.Rows, r.Inserted, r.Present = r.Rows+s.Rows, r.Inserted+s.Inserted, r.Present+s.Present
		r.Bytes, r.Requests = r.Bytes+s.BytesRead, r.Requests+s.Requests
	}
}

// Err says what a report means for the restore as a whole: nil when the target has every
// selected row.
func (r *Report) Err() error {
	if r.err != nil {
		text := "run the same command again, which goes on where this ended"
		if left := r.Count(Left); left > 0 {
			text = fmt.Sprintf("slices not begun: %d of %d: %s", left, len(r.Slices), text)
		}
		return fmt.Errorf("%w: %s", r.err, text)
	}
	var errs []error
	conflicts, refused, differs := uint64(0), uint64(0), false
	for i := range r.Slices {
		s := &r.Slices[i]
		conflicts, refused = conflicts+s.Conflicts, refused+s.Refused
		if s.Err != nil {
			errs = append(errs, s.Err)
			differs = differs || errors.Is(s.Err, ErrDiffers) || errors.Is(s.Err, selection.ErrMismatch)
		}
	}
	if conflicts > 0 {
		n := r.Conflicts[0]
		errs = append(errs, fmt.Errorf("rows in conflict: %d, the first message %d of table %s, %s: compare both; the table's row was left as it is, and the archived one is kept", conflicts, n.MessageID, n.Table, n.why()))
	}
	if refused > 0 {
		n := r.Refused[0]
		errs = append(errs, fmt.Errorf("rows that cannot be written: %d, the first message %d of table %s: %s", refused, n.MessageID, n.Table, n.Reason))
	}
	err := errors.Join(errs...)
	if err == nil || differs || r.Inserted+r.Present == 0 && conflicts+refused == 0 {
		return err
	}
	return partly{err}
}

// partly is ErrPartly without its words, which would stand before each of several lines.
type partly struct{ error }

func (p partly) Unwrap() []error { return []error{p.error, ErrPartly} }

func (n *Named) why() string {
	if n.Key != "" {
		return "of which another row has the place in the unique key " + n.Key
	}
	return fmt.Sprintf("which differs in %v", n.Columns)
}
