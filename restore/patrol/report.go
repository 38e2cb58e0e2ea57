package patrol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Errors of a patrol.
var (
	// ErrDiffers says that something is lost, or that two stores disagree.
	ErrDiffers = errors.New("manifest, bucket and ClickHouse do not agree")
	// ErrPartly says that something that can be mended was left.
	ErrPartly = errors.New("mended in part")
	// ErrUnlooked says that something could not be looked at, so nothing is known of it.
	ErrUnlooked = errors.New("something could not be looked at")
)

// Severity says what a finding means.
type Severity string

// The severities.
const (
	Lost      Severity = "lost"      // something that is relied on is not there
	Different Severity = "different" // two stores say different things
	Note      Severity = "note"      // no fault: it costs room, or will be settled by the next run
)

// Code names a kind of finding, for scripts.
type Code string

// The codes.
const (
	ObjectMissing     Code = "object-missing"
	ObjectSize        Code = "object-size"
	ObjectOrphans     Code = "object-orphans"
	RecordMissing     Code = "record-missing"
	RecordDifferent   Code = "record-different"
	RecordUnknown     Code = "record-unknown" // the manifest has no such generation
	RecordName        Code = "record-name"    // no name of a commit record or a mark
	MarkMissing       Code = "mark-missing"
	MarkDamaged       Code = "mark-damaged"
	MarkUnknown       Code = "mark-unknown"    // of a generation that the manifest does not have
	PurgeForgotten    Code = "purge-forgotten" // the bucket knows of a purge, the manifest does not
	ManifestDifferent Code = "manifest-different"
	RowsMissing       Code = "rows-missing"
	RowsDifferent     Code = "rows-different"
	RowsOrphans       Code = "rows-orphans"
	HoldMissing       Code = "hold-missing"
	HoldDifferent     Code = "hold-different"
	HoldUnknown       Code = "hold-unknown"
	Unmirrored        Code = "unmirrored"
	CanaryLost        Code = "canary-lost"
	CanaryChanged     Code = "canary-changed"
	CanaryUnfinished  Code = "canary-unfinished"
	OwnerMissing      Code = "owner-missing"
	OwnerDamaged      Code = "owner-damaged"
	OwnerForeign      Code = "owner-foreign"
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Code       Code               `json:"code"`
	Severity   Severity           `json:"severity"`
	Slice      *manifest.SliceKey `json:"slice,omitempty"`
	Generation uint32             `json:"generation,omitempty"`
	Attempt    string             `json:"attempt,omitempty"`
	Objects    []string           `json:"objects,omitempty"` // the first of them
	Count      int                `json:"count,omitempty"`   // of objects, rows or what the code names
	Bytes      int64              `json:"bytes,omitempty"`
	What       string             `json:"what"`
	Remedy     string             `json:"remedy"`
	Mendable   bool               `json:"mendable,omitempty"` // --heal mends it
	Healed     string             `json:"healed,omitempty"`   // what was done
	Left       string             `json:"left,omitempty"`     // why it was not mended

	mend func(ctx context.Context) (done string, err error) // nil: it cannot be mended
	busy bool                                               // left because another worker has the slice
}

// String names the finding in one line.
func (f *Finding) String() string {
	at := ""
	switch {
	case f.Slice != nil && f.Generation > 0:
		at = fmt.Sprintf("%s generation %d: ", f.Slice, f.Generation)
	case f.Slice != nil:
		at = f.Slice.String() + ": "
	}
	return string(f.Code) + " " + at + f.What
}

// Orphans sums up objects that no committed generation names, and that are older than the
// grace.
type Orphans struct {
	Objects int        `json:"objects"`
	Bytes   int64      `json:"bytes"`
	Oldest  *time.Time `json:"oldest,omitempty"`
}

func (o *Orphans) add(g group) {
	o.Objects, o.Bytes = o.Objects+g.objects, o.Bytes+g.bytes
	if o.Oldest == nil || g.oldest.Before(*o.Oldest) {
		o.Oldest = &g.oldest
	}
}

// Unlooked is something that could not be looked at.
type Unlooked struct {
	What  string `json:"what"`
	Error string `json:"error"`
}

// Report is what a patrol found and did.
type Report struct {
	DryRun      bool         `json:"dry_run,omitempty"`
	Heal        bool         `json:"heal"`
	Grace       string       `json:"grace"`
	Days        int          `json:"days"`
	Slices      int          `json:"slices"`
	Generations int          `json:"generations"`
	Objects     int          `json:"objects"` // that the manifest names
	Bytes       int64        `json:"bytes"`   // of Objects
	Listed      int          `json:"listed"`  // objects that the bucket listed, commit records and marks among them
	Records     int          `json:"records"` // commit records with the manifest's checksum
	Rows        uint64       `json:"rows"`    // in ClickHouse, of live generations that are all there
	InFlight    int          `json:"in_flight"`
	Foreign     int          `json:"foreign"` // commit records of other sources
	Orphans     Orphans      `json:"orphans"`
	Young       int          `json:"young"` // objects that no generation names and that are younger than the grace, or of a slice in work
	Findings    []Finding    `json:"findings"`
	Codes       map[Code]int `json:"codes"` // all findings by code, also those beyond the listed ones
	Healed      int          `json:"healed"`
	Unlooked    []Unlooked   `json:"unlooked"`
	Seconds     float64      `json:"seconds"`

	wrong     int    // findings that stay
	left      int    // that could not be mended now, and are no loss or another worker's
	leftFirst string // of them
	worst     string // the first that stays
	worstIs   Severity
}

// maxFindings is how many findings and errors a report lists; it counts all.
const maxFindings = 1000

func (r *Report) add(f Finding) {
	r.Codes[f.Code]++
	switch {
	case f.Healed != "":
		r.Healed++
	case f.busy, f.Severity == Note && f.Left != "":
		if r.left++; r.leftFirst == "" {
			r.leftFirst = f.String() + ": " + f.Left
		}
	case f.Severity == Note:
	default:
		if r.wrong++; r.worst == "" || r.worstIs != Lost && f.Severity == Lost {
			r.worst, r.worstIs = f.String(), f.Severity
		}
	}
	f.mend = nil
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, f)
		return
	}
	// What is lost is never beyond the list for a note's sake.
	if i := slices.IndexFunc(r.Findings, func(o Finding) bool { return o.Severity == Note }); i >= 0 && f.Severity != Note {
		r.Findings[i] = f
	}
}

func (r *Report) sort() {
	rank := func(f *Finding) int {
		return map[Severity]int{Lost: 0, Different: 1, Note: 2}[f.Severity]
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		if n := cmp.Compare(rank(&a), rank(&b)); n != 0 || a.Slice == nil || b.Slice == nil {
			return cmp.Or(n, cmp.Compare(a.Code, b.Code))
		}
		return cmp.Or(a.Slice.Day.Compare(b.Slice.Day), cmp.Compare(a.Slice.Shard.String(), b.Slice.Shard.String()), cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Code, b.Code))
	})
	slices.SortStableFunc(r.Unlooked, func(a, b Unlooked) int { return cmp.Compare(a.What, b.What) })
}

// Err is nil when all is right, or was mended.
func (r *Report) Err() error {
	switch {
	case r.wrong > 0:
		return fmt.Errorf("%w: %d findings, the first: %s", ErrDiffers, r.wrong, r.worst)
	case len(r.Unlooked) > 0:
		return fmt.Errorf("%w: %s: %s", ErrUnlooked, r.Unlooked[0].What, r.Unlooked[0].Error)
	case r.left > 0:
		return fmt.Errorf("%w: %d findings were left, run it again; the first: %s", ErrPartly, r.left, r.leftFirst)
	}
	return nil
}

// group is what a listing has below one attempt.
type group struct {
	slice      string // the shard as keys have it
	generation uint32
	attempt    string
	objects    int
	bytes      int64
	oldest     time.Time
	newest     time.Time
	first      string
}

func (g *group) add(l Listed) {
	if g.objects == 0 || l.Modified.Before(g.oldest) {
		g.oldest = l.Modified
	}
	if l.Modified.After(g.newest) {
		g.newest = l.Modified
	}
	if g.objects == 0 {
		g.first = l.Key
	}
	g.objects, g.bytes = g.objects+1, g.bytes+l.Size
}

// month is the first day of a day's month.
func month(d snowflake.Day) string { return d.String()[:7] }
