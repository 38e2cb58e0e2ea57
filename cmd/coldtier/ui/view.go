package ui

import (
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/cmd/coldtier/status"
	"github.com/coldtier/coldtier/manifest"
)

// How much of a list the page shows; status --output json has all.
const (
	shownFailed = 25
	shownBehind = 15
	shownWork   = 40
	shownRuns   = 20
	weeksShown  = 53
	maxText     = 600 // characters of an error or a reason
)

// view is what the template sees.
type view struct {
	*status.Report
	Age      time.Duration // of the report
	Error    string        // the manifest does not answer
	Away     time.Duration
	Refresh  int
	AllYears bool
	Link     func(refresh int, all bool) string
	Bands    []band // of the calendar, the newest first
	Older    int    // days that are not shown
	Legend   []legend
	Tiles    []tile
	Recent   []status.Day // newest first
	Late     []behind
	FailedN  int
	HeldN    int
}

// band is some weeks of the calendar.
type band struct {
	Caption string
	Months  []month
	Rows    []weekday
}

type month struct {
	Name string
	Span int // weeks
}

type weekday struct {
	Name  string
	Cells []cell
}

type cell struct{ Class, Letter, Title string }

type legend struct{ Class, Letter, Text string }

type tile struct{ Class, Name, Value, Note string }

type behind struct {
	What   string
	Slices int
	Of     int // shards
	Shards []manifest.ShardBehind
	More   int // shards that are not shown
}

func (p *Page) view(s state, refresh int, all bool) *view {
	now := p.c.Now()
	v := &view{Report: s.report, Refresh: refresh, AllYears: all, Link: link}
	if s.err != nil {
		v.Error, v.Away = p.c.Redact(s.err.Error()), max(now.Sub(s.away), 0)
	}
	r := s.report
	if r == nil {
		return v
	}
	v.Age = max(now.Sub(s.at), 0)
	v.calendar()
	for _, m := range status.Marks() {
		v.Legend = append(v.Legend, legend{class(m, false), m.Letter(false), m.Meaning()})
	}
	for i := len(r.Days) - 1; i >= 0 && len(v.Recent) < 7*weeksShown; i-- {
		v.Recent = append(v.Recent, r.Days[i])
	}
	for _, d := range r.Days {
		v.FailedN, v.HeldN = v.FailedN+d.Failed, v.HeldN+d.Held
	}
	for _, x := range []struct {
		what string
		list []manifest.ShardBehind
	}{{"archive", r.Behind.Archive}, {"purge", r.Behind.Purge}} {
		if len(x.list) == 0 {
			continue
		}
		b := behind{What: x.what, Of: len(x.list), Shards: x.list[:min(len(x.list), shownBehind)], More: max(len(x.list)-shownBehind, 0)}
		for _, sh := range x.list {
			b.Slices += sh.Slices
		}
		v.Late = append(v.Late, b)
	}
	v.tiles()
	return v
}

// link is the page with other settings.
func link(refresh int, all bool) string {
	var q []string
	if refresh > 0 {
		q = append(q, fmt.Sprintf("refresh=%d", refresh))
	}
	if all {
		q = append(q, "years=all")
	}
	if len(q) == 0 {
		return "/ui"
	}
	return "/ui?" + strings.Join(q, "&")
}

// calendar lays out the last weeks, or all of them.
func (v *view) calendar() {
	from, to, ok := v.Span()
	if !ok {
		return
	}
	last := status.Monday(to)
	for {
		first := last.Add(-7 * (weeksShown - 1))
		if first.Before(from) {
			first = from
		}
		v.Bands = append(v.Bands, bandOf(v.Calendar(first, to), first, to))
		if first == from {
			return
		}
		if !v.AllYears {
			for _, d := range v.Days {
				if d.Day.Before(first) {
					v.Older++
				}
			}
			return
		}
		last, to = first.Add(-7), first.Add(-1)
	}
}

func bandOf(weeks []status.Week, from, to snowflake.Day) band {
	b := band{Caption: fmt.Sprintf("%s to %s", from, to)}
	for i, w := range weeks {
		_, m, d := w.Monday.Add(6).Start(time.UTC).Date()
		if name := m.String()[:3]; i == 0 || d <= 7 {
			b.Months = append(b.Months, month{Name: name})
		}
		b.Months[len(b.Months)-1].Span++
	}
	for i, m := range b.Months {
		if m.Span < 2 { // too narrow for its name
			b.Months[i].Name = ""
		}
	}
	for i, name := range []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"} {
		row := weekday{Name: name}
		for _, w := range weeks {
			row.Cells = append(row.Cells, cellOf(w.Days[i]))
		}
		b.Rows = append(b.Rows, row)
	}
	return b
}

func cellOf(c status.Cell) cell {
	if !c.In || c.Mark == status.Young {
		return cell{}
	}
	x := cell{class(c.Mark, c.Part), c.Mark.Letter(c.Part), fmt.Sprintf("%s %s: %s", weekdayOf(c.Day), c.Day, c.Mark.Meaning())}
	d := c.Of
	if d == nil {
		return x
	}
	if c.Part {
		x.Title += " in part"
	}
	x.Title += fmt.Sprintf("; of %s %s; %s, %s", count(d.Slices, "slice", "slices"), d.InStates(), count(int(min(d.Rows, 1<<62)), "row", "rows"), size(uint64(max(d.Bytes, 0))))
	for _, n := range []struct {
		n    int
		what string
	}{{d.Failed, "failed"}, {d.Held, "held"}} {
		if n.n > 0 {
			x.Title += fmt.Sprintf("; %s %s", humanize.Comma(int64(n.n)), n.what)
		}
	}
	return x
}

func weekdayOf(d snowflake.Day) string { return d.Start(time.UTC).Weekday().String()[:3] }

func class(m status.Mark, part bool) string {
	if part {
		return "m-" + string(m) + " part"
	}
	return "m-" + string(m)
}

func (v *view) tiles() {
	add := func(class, name, value, note string) { v.Tiles = append(v.Tiles, tile{class, name, value, note}) }
	n := map[manifest.State]manifest.StateSummary{}
	for _, s := range v.States {
		n[s.State] = s
	}
	sum := func(states ...manifest.State) (slices int, rows uint64) {
		for _, s := range states {
			slices, rows = slices+n[s].Slices, rows+n[s].Rows
		}
		return slices, rows
	}
	todo, _ := sum(manifest.Pending, manifest.Copying, manifest.Committed)
	add("", "to copy or verify", humanize.Comma(int64(todo)), "slices: pending, copying, committed")
	wait, rows := sum(manifest.Verified, manifest.Purging)
	add("", "verified, still in MySQL", humanize.Comma(int64(wait)), about(rows)+" rows")
	gone, rows := sum(manifest.Purged)
	add("", "purged from MySQL", humanize.Comma(int64(gone)), about(rows)+" rows are cold alone")
	bad := func(n int) string {
		if n > 0 {
			return "bad"
		}
		return ""
	}
	add(bad(v.FailedN), "failed", humanize.Comma(int64(v.FailedN)), "slices, at their last try")
	add("", "held", humanize.Comma(int64(v.HeldN)), "slices; "+count(v.Holds, "hold", "holds")+" of any kind")
	note := "no lag runs"
	if v.Purge.Next != nil {
		note = "next lag over in " + status.Span(v.Purge.Next.Sub(v.Now))
	}
	add("", "may be deleted now", humanize.Comma(int64(v.Purge.Deletable.Slices)), "slices, "+about(v.Purge.Deletable.Rows)+" rows; "+note)
	if g := v.Growth; g != nil && g.Days > 0 {
		add("", "in the bucket", size(g.Bytes), "and about "+size(uint64(g.PerDay))+" more each day"+g.Guess())
	}
	switch d := v.Drill; {
	case d.LastGood == nil:
		add("bad", "last good drill", "never", "at most "+d.MaxAge+" ago is wanted")
	case d.Overdue:
		add("bad", "last good drill", status.Span(seconds(d.Age))+" ago", "overdue: more than "+d.MaxAge)
	default:
		add("", "last good drill", status.Span(seconds(d.Age))+" ago", "overdue after "+d.MaxAge)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// about is a number in a few digits: 47.2 B.
func about(n uint64) string {
	if n < 10_000 {
		return humanize.Comma(int64(n))
	}
	for _, u := range []struct {
		of   float64
		name string
	}{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}} {
		if float64(n) >= u.of {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/u.of), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d k", n/1000)
}

func size(n uint64) string { return humanize.IBytes(n) }

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(int64(n)) + " " + many
}

// quoting finds what may quote a conversation's or a sender's ID: object keys, arguments
// and errors.
var quoting = regexp.MustCompile(`(?i)\b((?:conversations?|conv|session|sender)(?:_id)?(?:\s+ids?)?\b(?:\s*[=:]\s*|\s+))("(?:[^"\\]|\\.)*"?|'[^']*'?|\[[^\]]*\]?|[^\s,;)]*[^\s,;):])`)

// clean makes a text of somebody's, or an error, fit to be shown: without IDs of
// conversations and senders, without what is not printable, and not too long.
func clean(s string) string {
	s = quoting.ReplaceAllString(s, "$1…")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > maxText {
		s = string(r[:maxText-1]) + "…"
	}
	return s
}

func funcs() template.FuncMap {
	return template.FuncMap{
		"clean": clean,
		"stamp": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
		"ago":   func(now, t time.Time) string { return status.Span(now.Sub(t)) },
		"until": func(now, t time.Time) string { return status.Span(t.Sub(now)) },
		"span":  status.Span,
		"eta": func(s *float64) string {
			if s == nil {
				return ""
			}
			return "about " + status.Span(seconds(*s))
		},
		"took": func(r status.Run) string {
			if r.Ended == nil {
				return ""
			}
			return status.Span(r.Ended.Sub(r.Started))
		},
		"late": func(v *view, b manifest.ShardBehind) string {
			if b.Since != nil {
				return status.Span(v.Now.Sub(*b.Since))
			}
			return status.Span(24 * time.Hour * time.Duration(v.Due.Sub(b.Oldest)+1))
		},
		"percent": func(share float64) int { return int(100 * min(max(share, 0), 1)) },
		"part": func(n, of int) int {
			if of == 0 {
				return 0
			}
			return n * 100 / of
		},
		"number": func(n any) string {
			switch n := n.(type) {
			case int:
				return humanize.Comma(int64(n))
			case uint64:
				return humanize.Comma(int64(min(n, 1<<62)))
			}
			return fmt.Sprint(n)
		},
		"about":   about,
		"size":    size,
		"sizef":   func(f float64) string { return size(uint64(max(f, 0))) },
		"signed":  func(n int64) string { return size(uint64(max(n, 0))) },
		"count":   count,
		"add":     func(a, b int) int { return a + b },
		"sub":     func(a, b int) int { return a - b },
		"ratio":   func(f float64) string { return fmt.Sprintf("%.1f", f) },
		"failed":  func(l []status.Slice) []status.Slice { return l[:min(len(l), shownFailed)] },
		"work":    func(l []status.Work) []status.Work { return l[:min(len(l), shownWork)] },
		"runs":    func(l []status.Run) []status.Run { return l[:min(len(l), shownRuns)] },
		"weekday": weekdayOf,
		"outcome": outcomeClass,
		"holds":   func(l []manifest.Hold) []manifest.Hold { return l[:min(len(l), shownFailed)] },
		"days":    func(n *float64) string { return count(int(*n), "day", "days") },
	}
}

// outcomeClass says how a run's outcome is to be seen.
func outcomeClass(o string) string {
	switch o {
	case "done":
		return "good"
	case status.Running:
		return "now"
	case "partial", "leased", "interrupted":
		return "warn"
	}
	return "bad"
}
