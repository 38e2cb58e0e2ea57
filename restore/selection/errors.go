package selection

import (
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/manifest"
)

// What is wrong with an object; whoever wires the parts makes the bucket's errors match.
var (
	ErrNotFound = errors.New("object not found")
	ErrDamaged  = errors.New("object damaged")
	ErrArchived = errors.New("object in an archive storage class")
)

// ErrMismatch says that rows are undamaged by their checksums and yet not those that
// the manifest speaks of.
var ErrMismatch = errors.New("rows differ from what the manifest says")

// ErrLost says that selected rows could not be read: each Damage names some.
var ErrLost = errors.New("archived rows are lost")

// Damage is rows of an object that the bucket does not give as they were archived.
type Damage struct {
	Slice      manifest.SliceKey `json:"slice"`
	Generation uint32            `json:"generation"`
	Key        string            `json:"key"`
	FirstRow   int64             `json:"first_row"` // in the object
	Rows       int64             `json:"rows"`      // from there on
	Reason     string            `json:"reason"`
	Replaced   bool              `json:"replaced,omitempty"` // ClickHouse gave the rows
	err        error
}

// Error names the rows and what is wrong.
func (d *Damage) Error() string {
	return fmt.Sprintf("slice %s generation %d: object %s, rows [%d, %d): %s", d.Slice, d.Generation, d.Key, d.FirstRow, d.FirstRow+d.Rows, d.Reason)
}

// Unwrap is ErrLost and the cause.
func (d *Damage) Unwrap() []error { return []error{ErrLost, d.err} }

// ofObject says whether an error speaks of an object's bytes, and not of whether the
// bucket can be reached.
func ofObject(err error) bool { return kind(err) != nil }

// kind is what is wrong with an object's bytes; nil: it is another error.
func kind(err error) error {
	for _, of := range []error{ErrNotFound, ErrDamaged, ErrArchived, ErrMismatch, segment.ErrCorrupt} {
		if errors.Is(err, of) {
			return of
		}
	}
	return nil
}
