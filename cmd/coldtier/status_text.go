package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coldtier/coldtier/cmd/coldtier/status"
	"github.com/coldtier/coldtier/manifest"
)

// How much of a list a status prints where not every day was asked for.
const (
	shownFailed = 10
	shownBehind = 10
)

// painter writes a status.
type painter struct {
	w    io.Writer
	look statusLook
}

// drawStatus writes a report as text.
func drawStatus(w io.Writer, r *status.Report, look statusLook) {
	p := &painter{w, look}
	p.line("%s", p.bold("source "+r.Source)+fmt.Sprintf(", %s, archive after %s, purge lag %s", stamp(r.Now), status.Span(r.After), status.Span(r.Lag)))
	p.attention(r)
	switch {
	case len(r.States) == 0:
		p.put("")
		p.put("no slices yet: run coldtier archive")
	case r.Selected != nil:
		p.title("selected: " + printable(r.Selected.String()))
		if len(r.Days) == 0 {
			p.put("no slices")
		}
		p.slices(r)
		p.title("of all slices, whatever is selected")
		p.states(r)
	default:
		p.states(r)
		p.slices(r)
	}
	p.behind(r)
	p.running(r)
	p.pauses(r)
	p.purge(r)
	p.safe(r)
	p.growth(r)
	p.runs(r)
	p.next(r)
}

// slices says what is narrowed by a selection.
func (p *painter) slices(r *status.Report) {
	p.calendar(r)
	if p.look.days && len(r.Days) > 0 {
		p.days(r)
	}
	p.listed("failed", r.Failed, sumOf(r, func(d status.Day) int { return d.Failed }))
	p.listed("held", r.Held, sumOf(r, func(d status.Day) int { return d.Held }))
}

func sumOf(r *status.Report, of func(status.Day) int) (n int) {
	for _, d := range r.Days {
		n += of(d)
	}
	return n
}

// put writes a line as it is.
func (p *painter) put(s string) { fmt.Fprintln(p.w, s) }

// line writes text, in as many lines as the width asks for.
func (p *painter) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.look.width == 0 {
		p.put(text)
		return
	}
	for _, l := range wrap(text, p.look.width) {
		p.put(l)
	}
}

// wrap breaks text at blanks into lines of at most so many characters; those that follow
// are indented. The terminal's codes take no room.
func wrap(text string, width int) (lines []string) {
	const indent = "    "
	line, long := "", 0
	for word := range strings.SplitSeq(text, " ") {
		n := visible(word)
		if long > len(indent) && long+1+n > width {
			lines = append(lines, line)
			line, long = indent+word, len(indent)+n
			continue
		}
		if line != "" || long > 0 {
			line, long = line+" ", long+1
		}
		line, long = line+word, long+n
	}
	return append(lines, line)
}

// visible is how many characters of a text are seen.
func visible(s string) int {
	n := 0
	for {
		before, after, ok := strings.Cut(s, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !ok {
			return n
		}
		_, s, _ = strings.Cut(after, "m")
	}
}

func (p *painter) title(s string) {
	p.put("")
	p.line("%s", p.bold(s))
}

func (p *painter) bold(s string) string { return p.code("1", s) }

func (p *painter) code(code, s string) string {
	if !p.look.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// table prints columns; on a terminal a line ends where the terminal does.
func (p *painter) table(header string, rows []string) {
	var b strings.Builder
	table(&b, header, rows)
	for l := range strings.Lines(b.String()) {
		l = strings.TrimSuffix(l, "\n")
		if w := p.look.width; w > 1 && utf8.RuneCountInString(l) > w {
			l = string([]rune(l)[:w-1]) + "…"
		}
		p.put(l)
	}
}

func (p *painter) attention(r *status.Report) {
	if len(r.Attention) > 0 {
		p.put("")
	}
	for _, a := range r.Attention {
		sign, code := "!", "1;31"
		if a.Level == status.Warning {
			sign, code = "-", "33"
		}
		text := printable(a.What)
		if a.Do != "" {
			text += ": " + printable(a.Do)
		}
		p.line("%s %s", p.code(code, sign), text)
	}
}

func (p *painter) states(r *status.Report) {
	if r.Selected == nil { // else a title is above
		p.put("")
	}
	var rows []string
	for _, s := range r.States {
		rows = append(rows, row(s.State, amount(s.Slices), amount(s.Rows), bytesText(int64(s.Bytes)), s.First, s.Last)) //nolint:gosec // sizes of objects
	}
	p.table("STATE\tSLICES\tROWS\tBYTES\tFIRST DAY\tLAST DAY", rows)
}

func (p *painter) days(r *status.Report) {
	p.put("")
	var rows []string
	for i := range r.Days {
		d := &r.Days[i]
		when := ""
		if d.PurgeFrom != nil {
			when = "now"
			if d.PurgeFrom.After(r.Now) {
				when = "in " + status.Span(d.PurgeFrom.Sub(r.Now))
			}
		}
		rows = append(rows, row(d.Day, d.InStates(), amount(d.Rows), bytesText(d.Bytes), d.Failed, d.Held, when))
	}
	p.table("DAY\tSLICES\tROWS\tBYTES\tFAILED\tHELD\tPURGE", rows)
}

// listed prints slices that failed or are held.
func (p *painter) listed(what string, list []status.Slice, n int) {
	if len(list) == 0 {
		return
	}
	p.put("")
	shown := list
	if !p.look.days {
		shown = list[:min(len(list), shownFailed)]
	}
	for _, s := range shown {
		if s.Error != "" {
			p.line("%-6s  %s (%s, %s): %s", what, s.SliceKey, s.State, tries(s.Tries), printable(s.Error))
		} else {
			p.line("%-6s  %s (%s)", what, s.SliceKey, s.State)
		}
	}
	if more := n - len(shown); more > 0 {
		hint := "--days lists them"
		if p.look.days {
			hint = "name days or shards to see them"
		}
		p.line("... and %s more %s (%s)", amount(more), what, hint)
	}
}

func tries(n int) string {
	if n == 1 {
		return "1 try"
	}
	return amount(n) + " tries"
}

func (p *painter) behind(r *status.Report) {
	for _, b := range []struct {
		what string
		list []manifest.ShardBehind
	}{{"archive", r.Behind.Archive}, {"purge", r.Behind.Purge}} {
		if len(b.list) == 0 {
			continue
		}
		n := 0
		for _, s := range b.list {
			n += s.Slices
		}
		p.title(fmt.Sprintf("behind with %s: %s of %s", b.what, count(n, "slice"), count(len(b.list), "shard")))
		var rows []string
		for _, s := range b.list[:min(len(b.list), shownBehind)] {
			late := status.Span(24 * time.Hour * time.Duration(r.Due.Sub(s.Oldest)+1))
			if s.Since != nil {
				late = status.Span(r.Now.Sub(*s.Since))
			}
			rows = append(rows, row(printable(s.Shard.String()), s.Oldest, late, amount(s.Slices), amount(s.Rows), s.Failed))
		}
		p.table("SHARD\tOLDEST DAY\tLATE\tSLICES\tROWS\tFAILED", rows)
		if more := len(b.list) - shownBehind; more > 0 {
			p.line("... and %s more (--output json lists all)", count(more, "shard"))
		}
	}
}
