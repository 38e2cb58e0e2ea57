package main

import (
	"fmt"
	"io"

	"github.com/coldtier/coldtier/restore/drill"
	"github.com/coldtier/coldtier/restore/drill/report"
)

type drillResult struct {
	Drill    string         `json:"drill"`
	Seed     string         `json:"seed"`
	Warnings []string       `json:"warnings,omitempty"`
	Why      []string       `json:"why,omitempty"`  // it is red
	Keys     *report.Keys   `json:"keys,omitempty"` // of the report in the bucket
	File     string         `json:"file,omitempty"` // of the report here
	Plan     *drill.Plan    `json:"plan,omitempty"` // of a dry run
	Cost     *report.Cost   `json:"cost,omitempty"` // of a dry run
	Report   *report.Report `json:"report,omitempty"`
}

func (r *drillResult) text(w io.Writer) {
	if r.Report == nil { // which has them among its findings
		warningLines(w, r.Warnings)
	}
	if r.Plan != nil {
		r.planText(w)
		return
	}
	rep := r.Report
	if rep == nil {
		return
	}
	var rows []string
	for _, c := range rep.Checks {
		rows = append(rows, row(c.Step, c.Verdict, c.Name, seconds(c.Seconds)))
	}
	table(w, "STEP\tVERDICT\tCHECK\tTOOK", rows)
	for _, c := range rep.Checks {
		if c.Verdict == report.Skipped {
			fmt.Fprintf(w, "skipped   %s: %s\n", c.Name, printable(c.Reason))
		}
		for _, f := range c.Failures[:min(len(c.Failures), maxLeft)] {
			fmt.Fprintf(w, "red       %s: %s\n", c.Name, printable(drill.Described(f)))
		}
		if more := c.Failed - min(len(c.Failures), maxLeft); more > 0 {
			fmt.Fprintf(w, "red       %s: %d more (the report names some)\n", c.Name, more)
		}
	}
	if rep.Error != "" {
		fmt.Fprintf(w, "red       %s\n", printable(rep.Error))
	}
	for _, f := range rep.Findings {
		fmt.Fprintf(w, "%-9s %s\n", f.Level, printable(f.Text))
	}
	m := rep.Measures
	for _, x := range m.Reads {
		fmt.Fprintf(w, "%s: %s, half within %.0f ms, 99 of 100 within %.0f ms, the longest %.0f ms of %.0f ms\n", x.Name, count(x.Pages, "page"), x.Latency.P50MS, x.Latency.P99MS, x.Latency.MaxMS, x.BudgetMS)
	}
	for _, x := range m.Extrapolation.Results {
		fmt.Fprintf(w, "recovery of %s, %s: %s by the report's model\n", printable(x.Name), count(x.Rows, "row"), seconds(x.Seconds))
	}
	if t := m.RecoveryPoint.NewestMinute; t != nil {
		fmt.Fprintf(w, "the newest archived minute is %s\n", stamp(*t))
	}
	if len(m.Cost.Items) > 0 {
		fmt.Fprintf(w, "it cost %s %s\n", m.Cost.Total, m.Cost.Currency)
	}
	if r.Keys != nil {
		fmt.Fprintf(w, "report: %s (%s) and %s\n", r.Keys.JSON, rep.Signing, r.Keys.HTML)
	}
	if r.File != "" {
		fmt.Fprintf(w, "report: %s\n", printable(r.File))
	}
	fmt.Fprintf(w, "%s: drill %s, seed %s, %s of %d (%s), %s restored at %.0f rows/s; %s\n", rep.Verdict, r.Drill, r.Seed, count(len(rep.Sample.Slices), "slice"), rep.Sample.Coverage.Slices, rep.Sample.Fraction,
		count(m.Recovery.Rows, "row"), m.Recovery.RowsPerSecond, rep.Sample.Coverage.Note)
}

func (r *drillResult) planText(w io.Writer) {
	p := r.Plan
	var rows []string
	for _, s := range p.Slices[:min(len(p.Slices), maxRows)] {
		rows = append(rows, row(s.Day, s.Shard, s.Live.Live, amount(s.Rows), bytesText(s.Bytes), s.Why))
	}
	table(w, "DAY\tSHARD\tGENERATION\tROWS\tBYTES\tWHY", rows)
	andMore(w, len(p.Slices))
	rows = nil
	var all drill.Estimate
	for _, e := range p.Reads {
		rows = append(rows, row(e.Step, e.Gets, e.Lists, bytesText(e.Bytes)))
		all.Gets, all.Lists, all.Bytes = all.Gets+e.Gets, all.Lists+e.Lists, all.Bytes+e.Bytes
	}
	table(w, "STEP\tGETS\tLISTS\tBYTES", rows)
	money := "no price is configured (drill.prices)"
	if len(r.Cost.Items) > 0 {
		money = r.Cost.Total + " " + r.Cost.Currency
	}
	fmt.Fprintf(w, "%s of %d (%s) with %s would be restored, about %s read from the bucket in %d GETs and %d LISTs: %s\n", count(len(p.Slices), "slice"), p.All, p.Fraction, count(p.Rows, "row"),
		bytesText(all.Bytes), all.Gets, all.Lists, money)
	fmt.Fprintf(w, "%s\n", p.Coverage)
}

// drillMeter tells how a drill goes: the restore by its rows, and each step by a line.
type drillMeter struct {
	*meter
	a *app
}

func (a *app) newDrillMeter() *drillMeter { return &drillMeter{a: a} }

// begin begins to count the sample.
func (m *drillMeter) begin(p *drill.Plan) {
	m.meter = m.a.newRowMeter("drill", p.Rows, len(p.Slices))
}

// Step tells which step begins.
func (m *drillMeter) Step(name string) { m.a.log.Info("drill", "step", name) }

// end removes the bar, if there is one.
func (m *drillMeter) end() {
	if m.meter != nil {
		m.meter.end()
	}
}
