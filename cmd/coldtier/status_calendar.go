package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/cmd/coldtier/status"
	"github.com/coldtier/coldtier/manifest"
)

// weeksShown is how many weeks a calendar has that was not asked for certain days.
const weeksShown = 53

// labelWidth is that of what stands before the weeks: the year, and the days' names.
const labelWidth = 5

// calendar draws the days, a column for each week: as many bands of weeks below each
// other as the width asks for.
func (p *painter) calendar(r *status.Report) {
	from, to, ok := r.Span()
	if !ok {
		return
	}
	all := status.Monday(from)
	if first := status.Monday(to).Add(-7 * (weeksShown - 1)); !p.look.days && all.Before(first) {
		from = first
	}
	width := p.look.width
	if width == 0 {
		width = calendarWidth
	}
	weeks := r.Calendar(from, to)
	cell := 2
	if labelWidth+cell*len(weeks) > width {
		cell = 1
	}
	fit := max((width-labelWidth)/cell, 1)
	p.title("calendar")
	if from != all && status.Monday(r.Days[0].Day).Before(from) {
		p.older(r, from)
	}
	for len(weeks) > 0 {
		// Bands of the same length, but for the last.
		n := min(fit, len(weeks))
		p.band(weeks[:n], cell, width)
		weeks = weeks[n:]
	}
	p.legend(width)
}

// older sums up the days before the calendar, year by year.
func (p *painter) older(r *status.Report, from snowflake.Day) {
	type sum struct{ days, purged, failed, held int }
	years := map[string]*sum{}
	var order []string
	for _, d := range r.Days {
		if !d.Day.Before(from) {
			break
		}
		y := d.Day.String()[:4]
		if years[y] == nil {
			years[y] = &sum{}
			order = append(order, y)
		}
		s := years[y]
		s.days++
		switch d.Mark {
		case status.Mark(manifest.Purged):
			s.purged++
		case status.Failed:
			s.failed++
		case status.Held:
			s.held++
		}
	}
	for _, y := range order {
		s := years[y]
		text := fmt.Sprintf("%s: %s", y, count(s.days, "day"))
		if s.purged == s.days {
			text += ", all purged"
		} else {
			text += fmt.Sprintf(", %d purged", s.purged)
			for _, x := range []struct {
				n    int
				what string
			}{{s.failed, "with failures"}, {s.held, "held"}, {s.days - s.purged - s.failed - s.held, "on their way"}} {
				if x.n > 0 {
					text += fmt.Sprintf(", %d %s", x.n, x.what)
				}
			}
		}
		p.line("%s", text)
	}
}

// band draws weeks beside each other. The week in which a month begins has its name above
// it, the first one the year before it.
func (p *painter) band(weeks []status.Week, cell, most int) {
	head := []rune(strings.Repeat(" ", labelWidth+cell*len(weeks)+len("Jan ")))
	copy(head, []rune(weeks[0].Days[6].Day.String()[:4]))
	free := 0 // up to where it is written
	for i, w := range weeks {
		at := labelWidth + cell*i
		_, month, d := w.Monday.Add(6).Start(time.UTC).Date()
		begins := d <= 7 || i == 0 && (cell*nextMonth(weeks) > len("Jan") || nextMonth(weeks) == len(weeks))
		if !begins || at < free || at+len("Jan") > max(most, labelWidth+len("Jan")) {
			continue
		}
		copy(head[at:], []rune(month.String()[:3]))
		free = at + len("Jan ")
	}
	p.put(strings.TrimRight(string(head), " "))
	for i, name := range []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"} {
		var b strings.Builder
		b.WriteString(name + "  ")
		for _, w := range weeks {
			c := w.Days[i]
			text := " "
			if c.In {
				text = c.Mark.Letter(c.Part)
			}
			b.WriteString(p.mark(c.Mark, text+strings.Repeat(" ", cell-1)))
		}
		line := b.String()
		if !p.look.colour {
			line = strings.TrimRight(line, " ")
		}
		p.put(line)
	}
	p.put("")
}

// nextMonth is the index of the first week, after the first, in which a month begins.
func nextMonth(weeks []status.Week) int {
	for i, w := range weeks {
		if _, _, d := w.Monday.Add(6).Start(time.UTC).Date(); i > 0 && d <= 7 {
			return i
		}
	}
	return len(weeks)
}

// legend says what the letters mean, in as many lines as the width asks for.
func (p *painter) legend(width int) {
	line, long := "", 0
	for _, m := range status.Marks() {
		text := m.Letter(false)
		more := len(text) + 1 + len(m.Meaning())
		if long > 0 && long+2+more > width {
			p.put(line)
			line, long = "", 0
		}
		if long > 0 {
			line, long = line+"  ", long+2
		}
		line, long = line+p.mark(m, text)+" "+m.Meaning(), long+more
	}
	p.put(line)
	p.line("small letters: other slices of the day are further")
}

// mark colours a cell: by its background, with a foreground that is read on it, so that
// it is the same on a dark and a light terminal.
func (p *painter) mark(m status.Mark, text string) string {
	if !p.look.colour {
		return text
	}
	code, ok := map[status.Mark]string{
		status.Nothing: "2", status.Failed: "1;38;5;231;48;5;160", status.Held: "38;5;231;48;5;97",
		status.Mark(manifest.Pending): "38;5;16;48;5;250", status.Mark(manifest.Copying): "38;5;16;48;5;117", status.Mark(manifest.Committed): "38;5;16;48;5;80",
		status.Mark(manifest.Verified): "38;5;16;48;5;114", status.Mark(manifest.Purging): "38;5;16;48;5;221", status.Mark(manifest.Purged): "38;5;231;48;5;29",
	}[m]
	if !ok {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
