package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/coldtier/coldtier/cmd/coldtier/status"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
)

// drillHistory shows the drills so far.
func (a *app) drillHistory(ctx context.Context, last int) (_ result, err error) {
	p, err := a.open(ctx, need{})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	r := &historyResult{Drills: []pastDrill{}}
	if r.drillStatus, err = lastDrill(ctx, p); err != nil {
		return nil, err
	}
	all, err := p.manifest.Drills(ctx, last)
	if err != nil {
		return nil, err
	}
	for i := range all {
		d := pastDrill{Drill: all[i], Seconds: all[i].Ended.Sub(all[i].Began).Seconds()}
		if err := json.Unmarshal(d.Measures, &d.key); err != nil {
			return nil, fmt.Errorf("measures of drill %s in the manifest: %w", d.ID, err)
		}
		r.Drills = append(r.Drills, d)
	}
	r.trend()
	return r, nil
}

type historyResult struct {
	*drillStatus
	Drills []pastDrill `json:"drills"` // newest first
	Trend  []trend     `json:"trend"`
}

type pastDrill struct {
	manifest.Drill
	Seconds float64 `json:"seconds"`
	key     report.Key
}

// trend is how a measure went, over the drills that have it.
type trend struct {
	What   string    `json:"what"`
	Values []float64 `json:"values"`           // oldest first
	Change *float64  `json:"change,omitempty"` // of the last against the one before it: .1 is 10 % more
	text   func(float64) string
}

func (r *historyResult) trend() {
	plain := func(unit string) func(float64) string {
		return func(v float64) string { return fmt.Sprintf("%s%s", number(v), unit) }
	}
	for _, t := range []struct {
		what string
		of   func(report.Key) float64
		text func(float64) string
	}{
		{"rows restored and proven a second", func(k report.Key) float64 { return k.RowsPerSecond }, plain("")},
		{"recovery of everything, by the model", func(k report.Key) float64 { return k.AllSeconds }, seconds},
		{"p99 of pages, healthy", func(k report.Key) float64 { return k.HealthyP99MS }, plain(" ms")},
		{"p99 of pages, with faults", func(k report.Key) float64 { return k.FaultyP99MS }, plain(" ms")},
		{"slices covered within a year", func(k report.Key) float64 { return 100 * k.Coverage }, plain(" %")},
	} {
		x := trend{What: t.what, Values: []float64{}, text: t.text}
		for i := len(r.Drills) - 1; i >= 0; i-- {
			if v := t.of(r.Drills[i].key); v > 0 {
				x.Values = append(x.Values, v)
			}
		}
		if n := len(x.Values); n > 1 {
			x.Change = new(x.Values[n-1]/x.Values[n-2] - 1)
		}
		r.Trend = append(r.Trend, x)
	}
}

// number is a number with at most three digits that matter.
func number(v float64) string {
	if v >= 100 {
		return humanize.Comma(int64(v + .5))
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.1f", v), "0"), ".")
}

func (r *historyResult) text(w io.Writer) {
	if len(r.Drills) > 0 {
		var rows []string
		for _, d := range r.Drills {
			k := d.key
			cost := ""
			if k.Cost != "" && k.Cost != "0" {
				cost = k.Cost + " " + k.Currency
			}
			checks := fmt.Sprintf("%d/%d", k.Checks-k.Failed, k.Checks)
			if d.Verdict != manifest.DrillGood && k.Failed == 0 { // something ended it
				checks += ", then ended"
			}
			rows = append(rows, row(stamp(d.Began), d.Verdict, checks, d.Sample, amount(k.Slices), amount(k.Rows), seconds(k.RecoverySeconds), number(k.RowsPerSecond),
				number(k.HealthyP99MS), number(k.FaultyP99MS), number(100*k.Coverage)+" %", printable(cost), printable(d.ID)))
		}
		table(w, "BEGAN\tVERDICT\tCHECKS\tSAMPLE\tSLICES\tROWS\tRECOVERY\tROWS/S\tP99 MS\tFAULTY MS\tCOVERED\tCOST\tDRILL", rows)
		fmt.Fprintln(w)
	}
	for _, t := range r.Trend {
		if len(t.Values) < 2 {
			continue
		}
		fmt.Fprintf(w, "%-38s %s  %s to %s, last %+.0f %%\n", t.What, sparkline(t.Values), t.text(t.Values[0]), t.text(t.Values[len(t.Values)-1]), 100**t.Change)
	}
	r.drillStatus.text(w)
}

// sparkline draws values as bars of eight heights, from zero to the largest.
func sparkline(values []float64) string {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		b.WriteRune([]rune("▁▂▃▄▅▆▇█")[min(int(8*v/most), 7)])
	}
	return b.String()
}

// drillStatus is when the last good drill was.
type drillStatus struct{ *status.Drill }

func lastDrill(ctx context.Context, p *parts) (*drillStatus, error) {
	now, err := p.manifest.Now(ctx)
	if err != nil {
		return nil, err
	}
	d, err := status.LastDrill(ctx, p.manifest, now, p.cfg.Drill.MaxAge, days(p.cfg.Drill.MaxAge))
	if err != nil {
		return nil, err
	}
	return &drillStatus{d}, nil
}

func (s *drillStatus) text(w io.Writer) {
	switch {
	case s.LastGood == nil:
		fmt.Fprintln(w, "no drill has found everything right so far: run coldtier drill")
	case s.Overdue:
		fmt.Fprintf(w, "OVERDUE: the last good drill ended %s, %s ago, more than %s: run coldtier drill\n", stamp(s.LastGood.Ended), s.age(), s.MaxAge)
	default:
		fmt.Fprintf(w, "the last good drill ended %s, %s ago\n", stamp(s.LastGood.Ended), s.age())
	}
}

func (s *drillStatus) age() string { return days(time.Duration(s.Age * float64(time.Second))) }

// days is a time of at least a day in days, a shorter one in hours and minutes.
func days(d time.Duration) string {
	switch {
	case d >= 24*time.Hour:
		return count(int64(d/(24*time.Hour)), "day")
	case d < time.Minute:
		return "less than a minute"
	}
	return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
}
