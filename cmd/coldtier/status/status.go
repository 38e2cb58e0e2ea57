// Package status gathers what is where into one Report, which the command shows as
// text and JSON, and the server as a page. Only the manifest is asked, and the report
// says nothing of messages.
//
// # Words
//
//   - mark: what a day looks like in the calendar: the least advanced state of its
//     slices, or that one of them failed or is held.
//   - totals: the part of a report that is summed up over all slices, and so is asked for
//     less often than the rest where that takes long.
//   - due: old enough to be archived (archive.after).
package status

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Report is what is where. Of the fields that are given twice, the text is for JSON.
type Report struct {
	Source    string        `json:"source"`
	Now       time.Time     `json:"now"` // by the manifest database's clock
	Zone      string        `json:"timezone"`
	AfterText string        `json:"archive_after"`
	After     time.Duration `json:"-"`
	LagText   string        `json:"purge_lag"`
	Lag       time.Duration `json:"-"`
	Due       snowflake.Day `json:"due_day"` // the youngest day that is old enough to be archived
	Attention []Attention   `json:"attention"`

	Totals
	Runs     []Run            `json:"runs"` // the last, newest first
	Running  []Run            `json:"running"`
	Work     []Work           `json:"work"`  // slices that are copied or verified
	Stops    []manifest.Stop  `json:"stops"` // in force
	Pauses   []manifest.Pause `json:"pauses"`
	Next     []Next           `json:"next"` // runs by the schedule, the soonest first
	Plans    Plans            `json:"plans"`
	Holds    int              `json:"holds"` // in force, of any kind
	HoldList []manifest.Hold  `json:"-"`     // those of slices
	Drill    *Drill           `json:"drill"`
	Canaries *Canaries        `json:"canaries"`

	// Selected is what the days, and what is failed or held, were narrowed to; nil: they
	// are of all slices. All else always is.
	Selected *Selection `json:"selected,omitempty"`
}

// Selection is days and tables.
type Selection struct {
	From  *snowflake.Day `json:"from,omitempty"`
	To    *snowflake.Day `json:"to,omitempty"` // inclusive
	Shard string         `json:"shard,omitempty"`
}

// String is in words: 2026-05-01 to 2026-05-03, im_03.*.
func (s *Selection) String() string {
	var parts []string
	switch {
	case s.From != nil && s.To != nil && *s.From == *s.To:
		parts = append(parts, s.From.String())
	case s.From != nil && s.To != nil:
		parts = append(parts, s.From.String()+" to "+s.To.String())
	case s.From != nil:
		parts = append(parts, "from "+s.From.String()+" on")
	case s.To != nil:
		parts = append(parts, "up to "+s.To.String())
	}
	if s.Shard != "" {
		parts = append(parts, s.Shard)
	}
	return strings.Join(parts, ", ")
}

// Totals are summed up over all slices.
type Totals struct {
	TotalsAt time.Time               `json:"totals_at"` // by the manifest database's clock
	States   []manifest.StateSummary `json:"states"`    // of all slices, whatever is selected
	Days     []Day                   `json:"days"`      // oldest first
	Failed   []Slice                 `json:"failed"`    // at most MaxListed; Days counts all
	Held     []Slice                 `json:"held"`      // at most MaxListed
	Missing  *Range                  `json:"missing"`   // days that are due and have no slices yet
	Behind   Behind                  `json:"behind"`
	Purge    Purge                   `json:"purge"`
	// Unmirrored is what the manifest alone knows.
	Unmirrored  manifest.Unmirrored `json:"unmirrored"`
	Checks      *manifest.Coverage  `json:"checks"`
	Interrupted []Slice             `json:"interrupted"` // their copies were ended for time, again and again
	Skew        []manifest.DaySkew  `json:"skew"`        // of the last SkewDays that were copied
	Growth      *manifest.Forecast  `json:"growth"`

	usedUp map[string]bool // plans that have nothing left
}

// SkewDays is for how many days a report compares the shards.
const SkewDays = 7

// MaxListed is how many failed and how many held slices a report lists.
const MaxListed = 1000

// Range is some days in a row.
type Range struct {
	From snowflake.Day `json:"from"`
	To   snowflake.Day `json:"to"`
	Days int           `json:"days"`
}

// Day is the slices of a day.
type Day struct {
	Day       snowflake.Day          `json:"day"`
	Mark      Mark                   `json:"state"`
	Part      bool                   `json:"in_part"` // other slices of the day are further
	Slices    int                    `json:"slices"`
	States    map[manifest.State]int `json:"states"`
	Rows      uint64                 `json:"rows"`
	Bytes     int64                  `json:"bytes"`
	Failed    int                    `json:"failed"`
	Held      int                    `json:"held"`
	PurgeFrom *time.Time             `json:"purge_from,omitempty"` // when the last verified slice may go
	Remaining string                 `json:"purge_in,omitempty"`
}

// Slice is a slice that failed or is held.
type Slice struct {
	manifest.SliceKey
	State manifest.State `json:"state"`
	Tries int            `json:"tries,omitempty"`
	Error string         `json:"error,omitempty"`
}

// Behind is the shards for which something is due, those for longest first.
type Behind struct {
	Archive []manifest.ShardBehind `json:"archive"`
	Purge   []manifest.ShardBehind `json:"purge"`
}

// Purge is what the next purge may delete.
type Purge struct {
	Deletable manifest.Amount `json:"deletable"`          // now
	Next      *time.Time      `json:"next,omitempty"`     // when more will be past its lag
	Run       *time.Time      `json:"next_run,omitempty"` // of the schedule
	AtRun     manifest.Amount `json:"deletable_at_next_run"`
}

// Outcomes that the manifest does not have.
const (
	Running = "running"
	Died    = "died" // its lease ran out, or without one it has not ended for a day
)

// Run is one run of a job.
type Run struct {
	ID        uint64          `json:"id"`
	Job       string          `json:"job"`
	Args      []string        `json:"args,omitempty"`
	Host      string          `json:"host"`
	Scheduled *time.Time      `json:"scheduled_for,omitempty"`
	Started   time.Time       `json:"started"`
	Ended     *time.Time      `json:"ended,omitempty"`
	Outcome   string          `json:"outcome"`
	Why       string          `json:"why,omitempty"` // it stopped; "" when all was done
	Report    json.RawMessage `json:"report,omitempty"`
	Progress  *Progress       `json:"progress,omitempty"` // of a run of archive
}

// Progress is how far the archive is, all its runs together.
type Progress struct {
	Done int      `json:"done_slices"` // since the run began
	Left int      `json:"left_slices"`
	ETA  *float64 `json:"eta_seconds,omitempty"` // at the pace so far
}

// Work is a slice that is copied or verified.
type Work struct {
	manifest.SliceProgress
	Share float64  `json:"share"`                 // of the stage, 0 to 1
	ETA   *float64 `json:"eta_seconds,omitempty"` // of the stage; absent: unknown
}

// Next is a run to come.
type Next struct {
	Job string    `json:"job"`
	At  time.Time `json:"at"`
}

// Plans are the purges that wait for somebody.
type Plans struct {
	Required bool                  `json:"required"` // the manifest demands an approved plan for each purge
	Open     []*manifest.SavedPlan `json:"open"`     // neither expired, revoked nor used up; newest first
}

// Drill is when the last good drill was.
type Drill struct {
	LastGood *manifest.Drill `json:"last_good"`
	Age      float64         `json:"age_seconds,omitempty"` // since it ended
	MaxAge   string          `json:"max_age"`
	Overdue  bool            `json:"overdue"` // there was none within max_age
}

// Canaries says how many canaries there are.
type Canaries struct {
	Planted    int              `json:"planted"`
	Unfinished int              `json:"unfinished"` // their planting was begun and not ended
	Last       *manifest.Canary `json:"last,omitempty"`
}
