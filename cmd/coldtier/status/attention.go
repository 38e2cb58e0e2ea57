package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/coldtier/coldtier/manifest"
)

// Level is how much something needs somebody.
type Level string

// The levels.
const (
	Problem Level = "problem" // something is wrong
	Warning Level = "warning" // something waits, or will be wrong
)

// Attention is what somebody should look at.
type Attention struct {
	Level Level  `json:"level"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"` // what to do about it
}

// quotaWarning is how many days before the bucket's quota is reached a report says so.
const quotaWarning = 60

func (r *Report) need(level Level, do, format string, args ...any) {
	r.Attention = append(r.Attention, Attention{level, fmt.Sprintf(format, args...), do})
}

// Attend lists what somebody should look at, what is worst first.
func (r *Report) Attend() {
	r.Attention = []Attention{}
	if n := len(r.Checks.Different); n > 0 {
		k := r.Checks.Different[0]
		r.need(Problem, fmt.Sprintf("coldtier verify --day %s --shard %s reads it again", k.Day, k.Shard), "%s read back different from what was committed, the first: %s generation %d", were(n, "copy", "copies"), k.SliceKey, k.Generation)
	}
	for _, st := range r.Stops {
		until := "until it is lifted"
		if st.EndsAt != nil {
			until = "for " + Span(st.EndsAt.Sub(r.Now)) + " more"
		}
		what := st.Jobs
		if what == manifest.StopAll {
			what = "all jobs"
		}
		r.need(Warning, fmt.Sprintf("coldtier resume %s lifts it", st.Jobs), "%s stopped %s %s ago, %s (%s)", st.By, what, Span(r.Now.Sub(st.At)), until, st.Reason)
	}
	failed := 0
	for _, d := range r.Days {
		failed += d.Failed
	}
	if failed > 0 {
		r.need(Problem, "coldtier status --days lists them; the next run tries them again", "%s failed", number(failed, "slice", "slices"))
	}
	if d := r.Drill; d.Overdue {
		what := "no drill has found everything right so far"
		if d.LastGood != nil {
			what = fmt.Sprintf("OVERDUE: the last good drill ended %s, %s ago, more than %s", d.LastGood.Ended.UTC().Format("2006-01-02 15:04:05Z"), number(int(d.Age/(24*time.Hour).Seconds()), "day", "days"), d.MaxAge)
		}
		r.need(Warning, "run coldtier drill", "%s", what)
	}
	if m := r.Missing; m != nil {
		r.need(Warning, "run coldtier archive", "%s due and not in the manifest: %s to %s", are(m.Days, "day", "days"), m.From, m.To)
	}
	if n := r.Canaries.Unfinished; n > 0 {
		r.need(Warning, "run coldtier canary plant again", "%s not planted to the end", were(n, "canary", "canaries"))
	}
	if n := len(r.Interrupted); n > 0 {
		r.need(Warning, "give the runs more time, or more workers", "%s too big for the time of a run, the first: %s, tried %s", are(n, "slice", "slices"), r.Interrupted[0].SliceKey, number(r.Interrupted[0].Tries, "time", "times"))
	}
	for _, d := range slices.Backward(r.Skew) {
		if len(d.Over) > 0 {
			o := d.Over[0]
			more := ""
			if n := len(d.Over) - 1; n > 0 {
				more = fmt.Sprintf(", and %s too many", be(n, "other", "others", "has", "have"))
			}
			r.need(Warning, "", "on %s %s has %.1f times the rows or bytes of the median shard%s", d.Day, o.Shard, cmp.Or(d.Times(o), o.Ratio()), more)
			break
		}
	}
	if g := r.Growth; g != nil && g.QuotaDays != nil && *g.QuotaDays < quotaWarning {
		r.need(Warning, "raise the quota, or make room", "the bucket's quota is reached in about %d days%s", int(*g.QuotaDays), g.Guess())
	}
	if u := r.Unmirrored; !u.None() {
		var parts []string
		for _, p := range []struct {
			n         int
			one, many string
		}{{u.Holds, "hold", "holds"}, {u.Stops, "stop", "stops"}, {u.Statuses, "status", "statuses"}, {u.Purges, "purge", "purges"}} {
			if p.n > 0 {
				parts = append(parts, number(p.n, p.one, p.many))
			}
		}
		r.need(Warning, "the next coldtier archive puts them there", "not in the bucket yet: %s", strings.Join(parts, ", "))
	}
	slices.SortStableFunc(r.Attention, func(a, b Attention) int { return strings.Compare(string(a.Level), string(b.Level)) }) // problems come first
}

func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(int64(n)) + " " + many
}

func are(n int, one, many string) string  { return be(n, one, many, "is", "are") }
func were(n int, one, many string) string { return be(n, one, many, "was", "were") }

func be(n int, one, many, is, are string) string {
	if n == 1 {
		return "1 " + one + " " + is
	}
	return number(n, one, many) + " " + are
}

// Span is a time to come or gone by, in its two largest units: 6d23h, 3h12m, 45s.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0)
	two := func(unit, small time.Duration, name, sub string) string {
		text := fmt.Sprintf("%d%s", d/unit, name)
		if rest := d % unit / small; rest > 0 {
			text += fmt.Sprintf("%d%s", rest, sub)
		}
		return text
	}
	switch {
	case d >= day:
		d = d.Round(time.Hour)
		return two(day, time.Hour, "d", "h")
	case d >= time.Hour:
		if d = d.Round(time.Minute); d < day {
			return two(time.Hour, time.Minute, "h", "m")
		}
		return two(day, time.Hour, "d", "h")
	case d >= time.Minute:
		if d = d.Round(time.Second); d < time.Hour {
			return two(time.Minute, time.Second, "m", "s")
		}
		return two(time.Hour, time.Minute, "h", "m")
	}
	return d.Round(time.Second).String()
}
