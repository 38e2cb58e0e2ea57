package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"
)

//go:embed page.html.tmpl
var pageText string

// How much of a list the page shows; the JSON has all.
const (
	pageFailures = 20
	pageSlices   = 400
	pageFindings = 200
	pagePast     = 40
)

// tile is a number at the top of the page.
type tile struct{ Name, Value, Note string }

// stepView is a step and its checks.
type stepView struct {
	Title                   string
	Checks                  []Check
	Passed, Failed, Skipped int
}

// view is what the template sees.
type view struct {
	*Report
	Mark       template.HTML
	SHA        string
	Good       bool
	Skipped    int
	Why        []string
	Tiles      []tile
	Steps      []stepView
	Past       []Past // with this one
	PastLeft   int
	Latencies  []*chart
	Trends     []*chart
	Months     *chart
	Stages     []stageView
	SlicesLeft int
	Shown      []Slice
	Notes      []Finding
	NotesLeft  int
	Files      struct{ JSON, HTML string }
}

// stageView is a stage with the lengths of its bars in percent.
type stageView struct {
	Stage
	TimeShare, RateShare float64
}

// Page writes the HTML of a report whose JSON has a SHA-256. It loads nothing and runs no
// script, and whatever the report holds is text in it.
func Page(r *Report, sha string) ([]byte, error) {
	if len(sha) != 64 || strings.Trim(sha, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("write the page of drill %s: %q is no SHA-256", r.Drill, sha)
	}
	v := &view{Report: r, SHA: sha, Mark: template.HTML(pageMark + sha + `">`), Good: r.Verdict == Pass} //nolint:gosec // hexadecimal digits alone
	_, v.Why = r.Judge()
	v.Files.JSON, v.Files.HTML = FileJSON, FileHTML
	for _, c := range r.Checks {
		if c.Verdict == Skipped {
			v.Skipped++
		}
	}
	v.Tiles = tiles(r)
	v.Steps = steps(r.Checks)
	v.Past = append(append([]Past{}, r.Trend...), Past{Drill: r.Drill, Began: r.Began, Verdict: r.Verdict, Key: r.Key()})
	if n := len(v.Past) - pagePast; n > 0 {
		v.Past, v.PastLeft = v.Past[n:], n
	}
	v.Trends, v.Months = trends(v.Past), months(r.Sample.Coverage)
	v.Latencies = histograms(r.Measures.Reads)
	if q := quantiles(r.Measures.Reads); q != nil {
		v.Latencies = append([]*chart{q}, v.Latencies...)
	}
	v.Stages = stages(r.Measures.Recovery.Stages)
	v.Shown = r.Sample.Slices[:min(len(r.Sample.Slices), pageSlices)]
	v.SlicesLeft = len(r.Sample.Slices) - len(v.Shown)
	v.Notes = r.Findings[:min(len(r.Findings), pageFindings)]
	v.NotesLeft = len(r.Findings) - len(v.Notes)
	t, err := template.New("page").Funcs(template.FuncMap{
		"seconds": secondsText, "ms": msText, "size": func(v any) string { return bytesText(float(v)) }, "rate": rateText, "num": number,
		"percent": percent, "instant": instant, "date": date, "word": word, "places": places, "plural": plural, "counted": counted, "symbol": symbol, "title": stepTitle,
		"sizeRate": func(f float64) string {
			if f == 0 {
				return "–"
			}
			return bytesText(f) + "/s"
		},
	}).Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("read the template of the page: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("write the page of drill %s: %w", r.Drill, err)
	}
	return b.Bytes(), nil
}

func float(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	case float64:
		return v
	}
	return 0
}

// word and symbol tell verdicts apart without colours.
func word(v Verdict) string {
	switch v {
	case Pass:
		return "passed"
	case Skipped:
		return "skipped"
	case Fail:
	}
	return "failed"
}

func symbol(v Verdict) string {
	switch v {
	case Pass:
		return "✓"
	case Skipped:
		return "–"
	case Fail:
	}
	return "✗"
}

func stepTitle(step string) string {
	switch step {
	case StepManifest:
		return "Manifest rebuilt from the bucket alone"
	case StepRestore:
		return "Sample restored"
	case StepCompare:
		return "Restored rows compared"
	case StepPointInTime:
		return "Points in time"
	case StepRead:
		return "Pages read"
	case StepMeasure:
		return "Measures"
	case StepCanary:
		return "Canaries"
	}
	return step
}

// steps groups the checks, in the order in which their steps first occur.
func steps(all []Check) (list []stepView) {
	at := map[string]int{}
	for _, c := range all {
		i, ok := at[c.Step]
		if !ok {
			i = len(list)
			at[c.Step] = i
			list = append(list, stepView{Title: stepTitle(c.Step)})
		}
		s := &list[i]
		s.Checks = append(s.Checks, c)
		switch c.Verdict {
		case Pass:
			s.Passed++
		case Skipped:
			s.Skipped++
		default:
			s.Failed++
		}
	}
	return list
}

// placeView are the places of a check's failures that the page shows.
type placeView struct {
	Shown []Place
	Left  int
}

func places(c Check) placeView {
	n := min(len(c.Failures), pageFailures)
	return placeView{c.Failures[:n], max(c.Failed, len(c.Failures)) - n}
}

func stages(all []Stage) (list []stageView) {
	var time, speed float64
	for _, s := range all {
		time, speed = max(time, s.Seconds), max(speed, s.RowsPerSecond)
	}
	share := func(a, b float64) float64 {
		if b == 0 {
			return 0
		}
		return 100 * a / b
	}
	for _, s := range all {
		list = append(list, stageView{s, share(s.Seconds, time), share(s.RowsPerSecond, speed)})
	}
	return list
}

func tiles(r *Report) []tile {
	m := &r.Measures
	k := r.Key()
	list := []tile{{"Recovery of the sample", secondsText(m.Recovery.Seconds), number(m.Recovery.Rows) + " rows, proven equal; " + rateText(m.Recovery.RowsPerSecond, "rows/s")}}
	if m.Recovery.Seconds == 0 {
		list[0] = tile{"Recovery of the sample", "–", "nothing was restored"}
	}
	for _, p := range m.Extrapolation.Results {
		if p.Scope == ScopeAll {
			list = append(list, tile{"Recovery of everything", secondsText(p.Seconds), number(p.Rows) + " rows, by the model below"})
		}
	}
	if p := m.RecoveryPoint; p.NewestMinute != nil {
		list = append(list, tile{"Recovery point", secondsText(p.AgeSeconds) + " ago", "newest archived minute " + p.NewestMinute.UTC().Format("2006-01-02 15:04")})
	}
	if k.HealthyP99MS > 0 {
		note := ""
		for _, x := range m.Reads {
			note = "budget " + msText(x.BudgetMS)
		}
		if k.FaultyP99MS > 0 {
			note = "with faults " + msText(k.FaultyP99MS) + "; " + note
		}
		list = append(list, tile{"Pages, p99", msText(k.HealthyP99MS), note})
	}
	if c := r.Sample.Coverage; c.Slices > 0 {
		list = append(list, tile{"Restored within a year", percent(k.Coverage), number(c.Covered) + " of " + plural(c.Slices, "slice")})
	}
	if len(m.Cost.Items) > 0 {
		list = append(list, tile{"Cost of this drill", moneyText(m.Cost.Total) + " " + m.Cost.Currency, "by the price table below"})
	}
	return list
}
