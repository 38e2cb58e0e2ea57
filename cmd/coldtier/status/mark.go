package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Mark is what a day looks like in the calendar.
type Mark string

// The marks of states are the states' names; these come on top. Nothing is a day that is
// due and has no slices, Young one that is not due and has none.
const (
	Nothing Mark = "nothing"
	Young   Mark = ""
	Failed  Mark = "failed"
	Held    Mark = "held"
)

// Marks are all marks in the order of the legend, what needs somebody last.
func Marks() []Mark {
	all := []Mark{Nothing}
	for _, s := range manifest.States() {
		all = append(all, Mark(s))
	}
	return append(all, Held, Failed)
}

// Letter stands for a mark where there is no colour: a small one where it is not of all
// slices of the day.
func (m Mark) Letter(part bool) string {
	l := map[Mark]string{Nothing: ".", Young: " ", Mark(manifest.Pending): "P", Mark(manifest.Copying): "C", Mark(manifest.Committed): "M",
		Mark(manifest.Verified): "V", Mark(manifest.Purging): "D", Mark(manifest.Purged): "X", Held: "H", Failed: "F"}[m]
	if part {
		l = strings.ToLower(l)
	}
	return l
}

// Meaning says what a mark means.
func (m Mark) Meaning() string {
	return map[Mark]string{Nothing: "nothing there", Young: "too young", Mark(manifest.Pending): "pending", Mark(manifest.Copying): "copying", Mark(manifest.Committed): "committed",
		Mark(manifest.Verified): "verified", Mark(manifest.Purging): "deleting", Mark(manifest.Purged): "purged", Held: "held", Failed: "failed"}[m]
}

// SetMark decides a day's mark by what is in it.
func (d *Day) SetMark() {
	d.Mark, d.Part = Nothing, false
	for _, s := range slices.Backward(manifest.States()) {
		if d.States[s] > 0 {
			d.Mark, d.Part = Mark(s), d.States[s] < d.Slices
		}
	}
	switch {
	case d.Failed > 0:
		d.Mark, d.Part = Failed, d.Failed < d.Slices
	case d.Held > 0:
		d.Mark, d.Part = Held, d.Held < d.Slices
	}
}

// InStates says how many slices are in which state: "3 pending, 1 verified".
func (d *Day) InStates() string {
	var parts []string
	for _, s := range manifest.States() {
		if n := d.States[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(parts, ", ")
}

// Week is a column of the calendar: Monday to Sunday.
type Week struct {
	Monday snowflake.Day
	Days   [7]Cell
}

// Cell is a day in the calendar.
type Cell struct {
	Day  snowflake.Day
	In   bool // within the calendar's range
	Mark Mark
	Part bool
	Of   *Day // nil: it has no slices
}

// Calendar lays days out in weeks, from one day to another.
func (r *Report) Calendar(from, to snowflake.Day) []Week {
	byDay := make(map[snowflake.Day]*Day, len(r.Days))
	for i := range r.Days {
		byDay[r.Days[i].Day] = &r.Days[i]
	}
	var weeks []Week
	for m := Monday(from); !to.Before(m); m = m.Add(7) {
		w := Week{Monday: m}
		for i := range w.Days {
			c := Cell{Day: m.Add(i)}
			if c.In = !c.Day.Before(from) && !to.Before(c.Day); c.In {
				switch d := byDay[c.Day]; {
				case d != nil:
					c.Of, c.Mark, c.Part = d, d.Mark, d.Part
				case !r.Due.Before(c.Day):
					c.Mark = Nothing
				}
			}
			w.Days[i] = c
		}
		weeks = append(weeks, w)
	}
	return weeks
}

// Monday is the first day of a day's week.
func Monday(d snowflake.Day) snowflake.Day {
	return d.Add(-int(d.Start(time.UTC).Weekday()+6) % 7)
}

// Span is the first and the last day of the calendar: from the oldest slice to what is
// due, or the youngest slice if that is younger.
func (r *Report) Span() (from, to snowflake.Day, ok bool) {
	if len(r.Days) == 0 {
		return from, to, false
	}
	from, to = r.Days[0].Day, r.Days[len(r.Days)-1].Day
	if r.Selected == nil && to.Before(r.Due) {
		to = r.Due
	}
	return from, to, true
}
