package report

import (
	"math"
	"slices"
)

// Charts are drawn by the template out of these: coordinates in a box of Width to Height,
// so that whatever text there is goes through the template's escaping.

// chart is a box with axes.
type chart struct {
	Title, Note   string
	Width, Height float64
	Left, Right   float64 // the plot's edges
	Top, Bottom   float64
	Bars          []bar
	Lines         []line
	Dots          []dot
	Ticks         []tick // of the y axis
	Labels        []label
	Legend        []legend
}

type bar struct {
	X, Y, W, H float64
	Class, Tip string
}

type line struct {
	X1, Y1, X2, Y2 float64
	Class          string
}

type dot struct {
	X, Y       float64
	Class, Tip string
	Square     bool // for what failed: told apart without colours too
}

type tick struct {
	Y    float64
	Text string
}

type label struct {
	X, Y         float64
	Text, Anchor string
}

type legend struct{ Class, Text string }

const (
	chartWidth  = 380
	chartHeight = 200
	maxBars     = 60
)

func newChart(title string) *chart {
	return &chart{Title: title, Width: chartWidth, Height: chartHeight, Left: 58, Right: chartWidth - 8, Top: 12, Bottom: chartHeight - 26}
}

// nice is the smallest of 1, 2, 5, 10, 20, ... that is not below f.
func nice(f float64) float64 {
	if f <= 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return 1
	}
	scale := math.Pow(10, math.Floor(math.Log10(f)))
	for _, s := range []float64{1, 2, 2.5, 5, 10} {
		if s*scale >= f*(1-1e-9) {
			return s * scale
		}
	}
	return 10 * scale
}

// axis puts ticks at 0 and up to most, and gives the height of a value.
func (c *chart) axis(most float64, text func(float64) string) func(float64) float64 {
	step := nice(most / 4)
	top := step * math.Max(math.Ceil(most/step-1e-9), 1)
	y := func(v float64) float64 { return c.Bottom - (c.Bottom-c.Top)*math.Min(math.Max(v/top, 0), 1) }
	for i := 0; ; i++ {
		v := step * float64(i)
		if v > top*(1+1e-9) {
			return y
		}
		c.Ticks = append(c.Ticks, tick{y(v), text(v)})
	}
}

// histogram draws how many pages took how long; all rounds have the same columns, which end
// at ends. A bar goes from where the one before it in the report ended: one that the budget
// parts counts as within it, since the report does not say more.
func histogram(r Reads, ends []float64, most int) *chart {
	c := newChart(r.Name)
	y := c.axis(float64(most), func(v float64) string { return trim(v, 3) })
	w := (c.Right - c.Left) / float64(len(ends))
	at := func(ms float64) float64 { // even columns, whatever they stand for
		i, found := slices.BinarySearch(ends, ms)
		switch {
		case found:
			return c.Left + w*float64(i+1)
		case i == len(ends):
			return c.Right
		case i == 0:
			return c.Left
		}
		return c.Left + w*(float64(i)+(ms-ends[i-1])/(ends[i]-ends[i-1]))
	}
	before := 0.0
	for _, b := range r.Latency.Buckets {
		if b.Count > 0 {
			class := "ok"
			if r.Faulty {
				class = "warn"
			}
			if r.BudgetMS > 0 && before >= r.BudgetMS {
				class = "bad"
			}
			top, left, right := y(float64(b.Count)), at(before), at(b.UpToMS)
			c.Bars = append(c.Bars, bar{left + 1, top, math.Max(right-left-2, 1), c.Bottom - top, class, plural(b.Count, "page") + " in " + msText(before) + " to " + msText(b.UpToMS)})
		}
		before = b.UpToMS
	}
	shown := -math.MaxFloat64
	for _, end := range ends {
		if x := at(end); x-shown > 50 {
			shown = x
			c.Labels = append(c.Labels, label{x, c.Bottom + 15, msText(end), "end"})
		}
	}
	if x := at(r.BudgetMS); r.BudgetMS > 0 && r.BudgetMS <= ends[len(ends)-1] {
		c.Lines = append(c.Lines, line{x, c.Top - 6, x, c.Bottom, "limit"})
		anchor, to := "end", x-4
		if x < (c.Left+c.Right)/2 {
			anchor, to = "start", x+4
		}
		c.Labels = append(c.Labels, label{to, c.Top + 4, "budget " + msText(r.BudgetMS), anchor})
	}
	return c
}

// histograms draws all rounds to one scale.
func histograms(rounds []Reads) (all []*chart) {
	var ends []float64
	first, most := math.MaxFloat64, 0
	for _, r := range rounds {
		for _, b := range r.Latency.Buckets {
			ends = append(ends, b.UpToMS)
			if b.Count > 0 {
				first, most = math.Min(first, b.UpToMS), max(most, b.Count)
			}
		}
	}
	for _, r := range rounds { // the line of the budget is shown, however fast all pages were
		if len(ends) > 0 && r.BudgetMS > slices.Max(ends) {
			ends = append(ends, r.BudgetMS)
		}
	}
	slices.Sort(ends)
	ends = slices.Compact(ends)
	if i := slices.IndexFunc(ends, func(b float64) bool { return b >= first }); i > 0 {
		ends = ends[i:]
	}
	if most == 0 || len(ends) > maxBars {
		return nil
	}
	for _, r := range rounds {
		if r.Pages > 0 {
			all = append(all, histogram(r, ends, most))
		}
	}
	return all
}

// quantiles compares the rounds with each other and with the budget.
func quantiles(rounds []Reads) *chart {
	c := newChart("Quantiles by round")
	most, n := 0.0, 0
	for _, r := range rounds {
		if r.Pages > 0 {
			most = math.Max(most, math.Max(r.Latency.MaxMS, r.BudgetMS))
			n++
		}
	}
	if n == 0 {
		return nil
	}
	y := c.axis(most, msText)
	names := []string{"p50", "p90", "p95", "p99", "max"}
	group := (c.Right - c.Left) / float64(len(names))
	w := math.Min(group*.8/float64(n), 26)
	i := 0
	for _, r := range rounds {
		if r.Pages == 0 {
			continue
		}
		class := roundClass(i)
		l := r.Latency
		for g, v := range []float64{l.P50MS, l.P90MS, l.P95MS, l.P99MS, l.MaxMS} {
			x := c.Left + group*(float64(g)+.5) - w*float64(n)/2 + w*float64(i)
			c.Bars = append(c.Bars, bar{x, y(v), math.Max(w-2, 1), c.Bottom - y(v), class, r.Name + ", " + names[g] + ": " + msText(v)})
		}
		if r.BudgetMS > 0 && i == 0 {
			c.Lines = append(c.Lines, line{c.Left, y(r.BudgetMS), c.Right, y(r.BudgetMS), "limit"})
			above := y(r.BudgetMS) - 4
			if above < c.Top+4 {
				above += 17
			}
			c.Labels = append(c.Labels, label{c.Left + 4, above, "budget " + msText(r.BudgetMS), "start"})
		}
		c.Legend = append(c.Legend, legend{class, r.Name})
		i++
	}
	for g, name := range names {
		c.Labels = append(c.Labels, label{c.Left + group*(float64(g)+.5), c.Bottom + 15, name, "middle"})
	}
	return c
}

func roundClass(i int) string {
	return []string{"s0", "s1", "s2", "s3"}[min(i, 3)]
}

// months draws the coverage of the slices by the month of their days.
func months(c Coverage) *chart {
	if len(c.Months) == 0 {
		return nil
	}
	ch := newChart("Slices by month of their day")
	if len(c.Months) > 12 {
		ch.Width = math.Min(chartWidth*2.4, chartWidth+float64(len(c.Months)-12)*20)
		ch.Right = ch.Width - 8
	}
	most := 0
	for _, m := range c.Months {
		most = max(most, m.Slices)
	}
	y := ch.axis(float64(most), func(v float64) string { return trim(v, 3) })
	step := (ch.Right - ch.Left) / float64(len(c.Months))
	shown := -math.MaxFloat64
	for i, m := range c.Months {
		x := ch.Left + step*float64(i)
		w := math.Max(math.Min(step-2, 34), 1)
		x += (step - w) / 2
		tip := m.Month + ": " + number(m.Covered) + " of " + plural(m.Slices, "slice")
		add := func(from, to int, class string) {
			if to > from {
				ch.Bars = append(ch.Bars, bar{x, y(float64(to)), w, y(float64(from)) - y(float64(to)), class, tip})
			}
		}
		add(0, m.Before, "before")
		add(m.Before, m.Covered, "now")
		add(m.Covered, m.Slices, "open")
		if at := ch.Left + step*(float64(i)+.5); at-shown > 52 {
			shown = at
			ch.Labels = append(ch.Labels, label{at, ch.Bottom + 15, m.Month, "middle"})
		}
	}
	ch.Legend = []legend{{"before", "restored earlier"}, {"now", "this drill"}, {"open", "not yet"}}
	return ch
}

// series are values of past drills, in their order; a value below 0 is none.
type series struct {
	class, name string
	values      []float64
}

// trendOf draws series over drills; the last drill is this one.
func trendOf(title string, past []Past, text func(float64) string, all ...series) *chart {
	most, some := 0.0, false
	for _, s := range all {
		for _, v := range s.values {
			most = math.Max(most, v)
			some = some || v >= 0
		}
	}
	if !some || len(past) < 2 {
		return nil
	}
	c := newChart(title)
	y := c.axis(most, text)
	step := (c.Right - c.Left - 24) / float64(len(past)-1)
	for _, s := range all {
		prior := -1
		for i, v := range s.values {
			if v < 0 {
				continue
			}
			x := c.Left + 12 + step*float64(i)
			if prior >= 0 {
				c.Lines = append(c.Lines, line{c.Left + 12 + step*float64(prior), y(s.values[prior]), x, y(v), s.class})
			}
			prior = i
			failed := past[i].Verdict != Pass
			class := s.class
			if failed {
				class = "bad"
			}
			c.Dots = append(c.Dots, dot{x, y(v), class, date(past[i].Began) + ", " + string(past[i].Verdict) + ": " + text(v), failed})
		}
		if len(all) > 1 {
			c.Legend = append(c.Legend, legend{s.class, s.name})
		}
	}
	c.Labels = append(c.Labels, label{c.Left, c.Bottom + 15, date(past[0].Began), "start"}, label{c.Right, c.Bottom + 15, date(past[len(past)-1].Began), "end"})
	return c
}

// trends draws what is followed from drill to drill.
func trends(past []Past) (all []*chart) {
	value := func(f func(Key) float64) (v []float64) {
		for _, p := range past {
			x := f(p.Key)
			if x <= 0 {
				x = -1
			}
			v = append(v, x)
		}
		return v
	}
	for _, c := range []*chart{
		trendOf("Rows a second, restored and proven", past, func(v float64) string { return trim(v, 3) }, series{"s0", "", value(func(k Key) float64 { return k.RowsPerSecond })}),
		trendOf("Recovery of everything, by the model", past, shortSeconds, series{"s0", "", value(func(k Key) float64 { return k.AllSeconds })}),
		trendOf("Slowest percent of pages (p99)", past, msText, series{"s0", "healthy", value(func(k Key) float64 { return k.HealthyP99MS })},
			series{"s1", "with faults", value(func(k Key) float64 { return k.FaultyP99MS })}),
		trendOf("Covered within a year", past, percent, series{"s0", "", value(func(k Key) float64 { return k.Coverage })}),
	} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// What the template cannot work out itself.

// TickX is where the texts of the ticks end.
func (c *chart) TickX() float64 { return c.Left - 5 }

// TextY is the base line of a tick's text.
func (t tick) TextY() float64 { return t.Y + 3.5 }

// SquareX is the left edge of a square dot.
func (d dot) SquareX() float64 { return d.X - 4.5 }

// SquareY is the upper edge of a square dot.
func (d dot) SquareY() float64 { return d.Y - 4.5 }
