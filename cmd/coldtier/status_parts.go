package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/coldtier/coldtier/cmd/coldtier/status"
	"github.com/coldtier/coldtier/manifest"
)

// The parts of a status below the calendar.

// shownWork is how many slices in work are printed.
const shownWork = 16

// maxWhy is how many characters of why a run stopped are printed; JSON has all.
const maxWhy = 300

func (p *painter) running(r *status.Report) {
	if len(r.Running) > 0 {
		p.title("running")
		var rows []string
		for _, l := range r.Running {
			progress, eta := "", ""
			if g := l.Progress; g != nil {
				progress = fmt.Sprintf("%s of %s", amount(g.Done), count(g.Done+g.Left, "slice"))
				eta = etaText(g.ETA)
			}
			rows = append(rows, row(l.ID, printable(l.Job), stamp(l.Started), status.Span(r.Now.Sub(l.Started)), progress, eta, printable(l.Host)))
		}
		p.table("RUN\tJOB\tSTARTED\tFOR\tDONE\tLEFT\tHOST", rows)
	}
	if len(r.Work) == 0 {
		return
	}
	p.put("")
	var rows []string
	for _, w := range r.Work[:min(len(r.Work), shownWork)] {
		rows = append(rows, row(printable(w.SliceKey.String()), w.Stage, bar(w.Share, 10)+fmt.Sprintf(" %3.0f %%", 100*w.Share), etaText(w.ETA), amount(w.Rows), printable(w.Worker)))
	}
	p.table("SLICE\tSTAGE\tDONE\tLEFT\tROWS\tWORKER", rows)
	if more := len(r.Work) - shownWork; more > 0 {
		p.line("... and %s more in work", amount(more))
	}
}

// bar draws a share of the whole.
func bar(share float64, width int) string {
	n := min(max(int(share*float64(width)+.5), 0), width)
	return strings.Repeat("#", n) + strings.Repeat("-", width-n)
}

func etaText(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return "~" + status.Span(time.Duration(*seconds*float64(time.Second)))
}

func (p *painter) pauses(r *status.Report) {
	if len(r.Pauses) > 0 {
		p.title("paused")
	}
	for _, x := range r.Pauses {
		until := ""
		if x.Until != nil {
			until = ", for " + status.Span(x.Until.Sub(r.Now)) + " more"
		}
		if x.Dead {
			until = ", and its process says nothing any more"
		}
		p.line("%s of %s leaves %s alone for %s: %s%s", printable(x.Job), printable(x.Owner), printable(x.Server), status.Span(r.Now.Sub(x.Since)), printable(x.Why), until)
	}
}

// purge says what the next purge may delete, and what it waits for.
func (p *painter) purge(r *status.Report) {
	var parts []string
	if d := r.Purge.Deletable; d.Slices > 0 {
		parts = append(parts, fmt.Sprintf("%s (%s) may be deleted now", count(d.Slices, "slice"), count(d.Rows, "row")))
	}
	if at := r.Purge.Run; at != nil {
		parts = append(parts, fmt.Sprintf("at the next run, in %s, it will be %s (%s)", status.Span(at.Sub(r.Now)), count(r.Purge.AtRun.Slices, "slice"), count(r.Purge.AtRun.Rows, "row")))
	}
	if at := r.Purge.Next; at != nil {
		parts = append(parts, fmt.Sprintf("the next lag is over in %s, %s", status.Span(at.Sub(r.Now)), stamp(*at)))
	}
	if len(parts) > 0 || r.Plans.Required || len(r.Plans.Open) > 0 || r.Holds > 0 {
		p.put("")
	}
	if len(parts) > 0 {
		p.line("purge: %s", strings.Join(parts, "; "))
	}
	if r.Plans.Required {
		p.line("each purge needs a plan that a second person approved")
	}
	for _, s := range r.Plans.Open {
		state := "waits for coldtier approve " + s.ID
		if s.Approved != nil {
			state = "approved by " + printable(s.Approved.Account)
		}
		p.line("plan %s: %s (%s), made %s, expires in %s, %s", s.ID, count(s.Slices, "slice"), count(s.Rows, "row"), stamp(s.Made), status.Span(s.Expires.Sub(r.Now)), state)
	}
	if r.Holds > 0 {
		p.line("%s in force (coldtier hold list)", count(r.Holds, "hold"))
	}
}

// safe says how well the copies were looked after.
func (p *painter) safe(r *status.Report) {
	if r.Checks.Slices > 0 || r.Canaries.Last != nil || !r.Drill.Overdue {
		p.put("")
	}
	if r.Checks.Slices > 0 {
		p.coverage(r.Checks)
	}
	if c := r.Canaries; c.Last != nil {
		p.line("canaries: %d planted, the last %s of %s, %s", c.Planted, printable(c.Last.ID), printable(c.Last.Shard.String()), stamp(*c.Last.PlantedAt))
	}
	if !r.Drill.Overdue { // else it is among what needs somebody
		var b strings.Builder
		(&drillStatus{r.Drill}).text(&b)
		p.line("%s", strings.TrimSpace(b.String()))
	}
}

func (p *painter) coverage(c *manifest.Coverage) {
	never := ""
	if c.Never.Bytes > 0 {
		never = fmt.Sprintf("; never: %s of %s", bytesText(int64(c.Never.Bytes)), bytesText(int64(c.Bytes))) //nolint:gosec // sizes of objects
	}
	p.line("read back whole and found equal: %s of %s%s", amount(c.Slices-c.Never.Slices), count(c.Slices, "slice"), never)
	for _, o := range c.Older {
		if o.Slices > c.Never.Slices {
			p.line("not in the last %s: %s, %s", o.For, count(o.Slices, "slice"), bytesText(int64(o.Bytes))) //nolint:gosec // sizes of objects
		}
	}
	if o := c.Oldest; o != nil {
		when := "never"
		if o.GoodAt != nil {
			when = stamp(*o.GoodAt)
		}
		p.line("oldest unchecked: %s generation %d, read back last: %s", o.SliceKey, o.Generation, when)
	}
	for _, k := range c.Different {
		p.line("different  %s generation %d when it was read last: coldtier verify --day %s --shard %s reads it again", k.SliceKey, k.Generation, k.Day, k.Shard)
	}
}

// growth says how the cold tier grows, and how evenly.
func (p *painter) growth(r *status.Report) {
	g := r.Growth
	if g.Days == 0 {
		return
	}
	p.put("")
	text := fmt.Sprintf("cold tier: %s, %s in the bucket; a day of messages adds about %s", count(g.Rows, "row"), bytesText(int64(g.Bytes)), bytesText(int64(g.PerDay))) //nolint:gosec // sizes of objects
	for i, s := range g.Sizes {
		if i == 0 {
			if g.Few {
				text += fmt.Sprintf(", as far as %s can tell; if the others are alike it will be", count(g.Days, "day"))
			} else {
				text += fmt.Sprintf("; with the trend of %s it would be", count(g.Days, "day"))
			}
		} else {
			text += ","
		}
		text += fmt.Sprintf(" %s in %dd", bytesText(int64(s.Trended)), s.In)
	}
	p.line("%s", text)
	if g.QuotaDays != nil {
		p.line("the bucket's quota is reached in about %s%s", count(int64(*g.QuotaDays), "day"), g.Guess())
	}
	if n := len(r.Skew); n > 0 {
		d := r.Skew[n-1]
		if d.Largest != nil && d.Shards > 1 {
			text := fmt.Sprintf("largest shard of %s: %s with %s", d.Day, printable(d.Largest.Shard.String()), count(d.Largest.Rows, "row"))
			if times := d.Times(*d.Largest); times > 0 {
				text += fmt.Sprintf(", %.1f times the median", times)
			}
			p.line("%s", text)
		}
	}
}

func (p *painter) runs(r *status.Report) {
	if len(r.Runs) == 0 {
		return
	}
	p.title("last runs")
	var rows []string
	for _, l := range r.Runs {
		took := ""
		if l.Ended != nil {
			took = l.Ended.Sub(l.Started).Round(time.Millisecond).String()
		}
		rows = append(rows, row(l.ID, printable(l.Job), stamp(l.Started), took, printable(l.Outcome), printable(l.Host)))
	}
	p.table("RUN\tJOB\tSTARTED\tTOOK\tOUTCOME\tHOST", rows)
	for _, l := range r.Runs {
		if l.Why != "" {
			p.line("%d stopped: %s", l.ID, shortened(l.Why, maxWhy))
		}
	}
}

func (p *painter) next(r *status.Report) {
	if len(r.Next) == 0 {
		return
	}
	p.title("next runs")
	var rows []string
	for _, n := range r.Next {
		rows = append(rows, row(n.Job, stamp(n.At), "in "+status.Span(n.At.Sub(r.Now))))
	}
	p.table("JOB\tAT\tIN", rows)
}
