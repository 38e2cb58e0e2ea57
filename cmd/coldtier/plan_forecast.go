package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
)

// sizeClass is the objects of some size.
type sizeClass struct {
	Below   int64          `json:"below_bytes,omitempty"` // 0: the biggest
	Objects archive.Figure `json:"objects"`
}

// requests are those to the bucket, and inserts into ClickHouse.
type requests struct {
	Put     archive.Figure `json:"put"`
	Get     archive.Figure `json:"get"`
	List    archive.Figure `json:"list"`
	Inserts archive.Figure `json:"clickhouse_inserts"`
}

func (r requests) text(w io.Writer) {
	inserts := ""
	if r.Inserts.Value > 0 {
		inserts = fmt.Sprintf("; %s into ClickHouse", strings.Replace(figureText(r.Inserts)+" INSERT", "about ", "", 1))
	}
	fmt.Fprintf(w, "requests   %s PUT, %s GET, %s LIST%s\n", figureText(r.Put), figureText(r.Get), figureText(r.List), inserts)
}

// duration is how long a run takes, by what former runs took.
type duration struct {
	Minutes *float64      `json:"minutes"` // nil: no run has been measured yet
	Basis   archive.Basis `json:"basis"`
	Runs    int           `json:"runs"` // that were measured
	Says    string        `json:"says"`
}

func (d duration) text(w io.Writer) { fmt.Fprintf(w, "time       %s\n", d.Says) }

// money is what it costs by the configuration's prices.
type money struct {
	Currency string        `json:"currency"`
	Now      float64       `json:"now"`       // for the requests
	PerMonth float64       `json:"per_month"` // more than before, for what is stored
	Basis    archive.Basis `json:"basis"`
}

func (m *money) text(w io.Writer) {
	if m == nil {
		fmt.Fprintln(w, "money      not shown: no prices in the configuration")
		return
	}
	fmt.Fprintf(w, "money      about %s %s now, %s %s a month more (%s)\n", price(m.Now), m.Currency, price(m.PerMonth), m.Currency, m.Basis)
}

// price shows at least two digits that matter.
func price(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := 2
	for x := v; x < 0.1 && digits < 8; x *= 10 {
		digits++
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

const gib = 1 << 30

// cost counts requests and what is stored from then on. ClickHouse is taken to need as
// many bytes as the objects; see docs/plan.md.
func cost(c config.Costs, r requests, stored uint64) *money {
	if !c.Set() {
		return nil
	}
	of := func(text string) float64 {
		v, _ := strconv.ParseFloat(text, 64) // checked when the configuration was read; "" is 0
		return v
	}
	return &money{Currency: c.Currency, Basis: archive.Estimated,
		Now:      (float64(r.Put.Value)*of(c.Put1000) + float64(r.Get.Value)*of(c.Get1000) + float64(r.List.Value)*of(c.List1000)) / 1000,
		PerMonth: float64(stored) / gib * (of(c.StorageGiBMonth) + of(c.ClickHouseGiBMonth))}
}

func figureText(f archive.Figure) string {
	if f.Basis == archive.Exact {
		return amount(f.Value)
	}
	return "about " + amount(f.Value)
}

func exactly(n uint64) archive.Figure { return archive.Figure{Value: n, Basis: archive.Exact} }

// archiveForecast is what a run of archive would come to.
type archiveForecast struct {
	*archive.Estimate
	Sizes []sizeClass `json:"sizes"`
	Time  duration    `json:"time"`
	Money *money      `json:"money"`
}

// measuredRuns is how many of the last runs are looked at.
const measuredRuns = 10

// forecastArchive says what a run would come to.
func (a *app) forecastArchive(ctx context.Context, p *parts, ar *archive.Archiver, plan *archive.Plan) (*archiveForecast, error) {
	tables := map[manifest.Shard]archive.Estimator{}
	for _, t := range p.tables {
		tables[t.Shard()] = t
	}
	e, err := ar.Estimate(ctx, plan, func(s manifest.Shard) archive.Estimator { return tables[s] })
	if err != nil {
		return nil, err
	}
	f := &archiveForecast{Estimate: e, Sizes: []sizeClass{}}
	bounds := append(archive.SizeBounds(), 0)
	for i, n := range e.Sizes {
		f.Sizes = append(f.Sizes, sizeClass{bounds[i], archive.Figure{Value: n, Basis: e.Objects.Basis}})
	}
	f.Money = cost(p.cfg.Prices, requests{e.Puts, e.Gets, e.Lists, e.Inserts}, e.ObjectBytes.Value)
	runs, err := p.manifest.LastRuns(ctx, "archive", measuredRuns)
	if err != nil {
		return nil, err
	}
	var rows, secs float64
	n := 0
	for _, r := range runs {
		var rep struct {
			Rows    float64 `json:"rows"`
			Seconds float64 `json:"seconds"`
		}
		if json.Unmarshal(r.Report, &rep) == nil && rep.Rows > 0 && rep.Seconds > 0 {
			rows, secs, n = rows+rep.Rows, secs+rep.Seconds, n+1
		}
	}
	f.Time = took(float64(e.Rows.Value), rows, secs, n, "archive")
	return f, nil
}

// took is how long rows take at the rate of former runs.
func took(rows, didRows, didSeconds float64, runs int, what string) duration {
	d := duration{Basis: archive.Estimated, Runs: runs}
	switch {
	case rows == 0:
		d.Minutes, d.Says = new(0.0), "next to nothing: no rows"
	case didRows == 0 || didSeconds == 0:
		d.Says = fmt.Sprintf("not known: no run of %s measured yet", what)
	default:
		rate := didRows / didSeconds
		d.Minutes = new(rows / rate / 60)
		d.Says = fmt.Sprintf("about %s by one process, as the last %s (%s rows/s)", span(time.Duration(math.Ceil(rows/rate))*time.Second), count(runs, "run"), amount(uint64(rate+.5)))
	}
	return d
}

func (f *archiveForecast) text(w io.Writer) {
	fmt.Fprintf(w, "rows       %s in %s, of which %s have none now\n", figureText(f.Rows), count(f.Slices.Value, "slice"), amount(f.Empty))
	fmt.Fprintf(w, "bytes      %s%s of bodies in MySQL, %s%s in the bucket\n", about(f.BodyBytes), bytesText(int64(f.BodyBytes.Value)), about(f.ObjectBytes), bytesText(int64(f.ObjectBytes.Value))) //nolint:gosec // bytes that there are
	var sizes []string
	last := int64(0)
	for _, s := range f.Sizes {
		name := "<" + strings.ReplaceAll(bytesText(s.Below), " ", "")
		if s.Below == 0 {
			name = "≥" + strings.ReplaceAll(bytesText(last), " ", "")
		}
		last = s.Below
		sizes = append(sizes, name+" "+amount(s.Objects.Value))
	}
	if len(sizes) > 0 {
		sizes[0] = ": " + sizes[0]
	}
	fmt.Fprintf(w, "objects    %s%s\n", figureText(f.Objects), strings.Join(sizes, ", "))
	requests{f.Puts, f.Gets, f.Lists, f.Inserts}.text(w)
	f.Time.text(w)
	f.Money.text(w)
	for _, r := range f.Rests {
		fmt.Fprintf(w, "by         %s\n", r)
	}
}

func about(f archive.Figure) string {
	if f.Basis == archive.Exact {
		return ""
	}
	return "about "
}

// purgeForecast is what a run of purge would come to.
type purgeForecast struct {
	Basis    archive.Basis `json:"basis"` // of what is deleted
	Deletes  *purge.Totals `json:"deletes"`
	Requests requests      `json:"requests"`
	Time     duration      `json:"time"`
	Money    *money        `json:"money"`
}

func (a *app) forecastPurge(ctx context.Context, p *parts, pu *purge.Purger, plan *purge.Plan) (*purgeForecast, error) {
	t, err := pu.Totals(ctx, plan, p.cfg.Source.Layout.Time)
	if err != nil {
		return nil, err
	}
	f := &purgeForecast{Basis: archive.Exact, Deletes: t}
	n := uint64(t.Slices) //nolint:gosec // a count
	// Marks are put before and after; records and objects are listed, a page for each thousand.
	f.Requests = requests{Put: exactly(2 * n), Get: exactly(0), List: archive.Figure{Value: 2 * n, Basis: archive.Estimated}, Inserts: exactly(0)}
	f.Money = cost(p.cfg.Prices, f.Requests, 0)
	runs, err := p.manifest.LastRuns(ctx, "purge", measuredRuns)
	if err != nil {
		return nil, err
	}
	var rows, secs [2]float64 // by rows, by partition
	measured := 0
	for _, r := range runs {
		var rep purge.Report
		if json.Unmarshal(r.Report, &rep) != nil || rep.Rows == 0 {
			continue
		}
		measured++
		for _, s := range rep.Slices {
			how := 0
			if s.Strategy == purge.Partition {
				how = 1
			}
			if s.Outcome == purge.Purged && s.Rows > 0 {
				rows[how], secs[how] = rows[how]+float64(s.Rows), secs[how]+s.Seconds
			}
		}
	}
	f.Time = took(float64(t.ByRows), rows[0], secs[0], measured, "purge by rows")
	if whole := float64(t.Rows - t.ByRows); whole > 0 {
		d := took(whole, rows[1], secs[1], measured, "purge by partitions")
		switch {
		case t.ByRows == 0 || f.Time.Minutes != nil && d.Minutes == nil:
			f.Time = d
		case f.Time.Minutes != nil:
			f.Time.Minutes = new(*f.Time.Minutes + *d.Minutes)
			f.Time.Says = "by rows " + f.Time.Says + "; by partitions " + d.Says
		}
	}
	return f, nil
}

// maxTables is how many tables a text lists.
const maxTables = 20

func (f *purgeForecast) text(w io.Writer) {
	if f.Deletes.Slices > 0 {
		var rows []string
		for _, t := range f.Deletes.Tables {
			rows = append(rows, row(t.Shard, t.Slices, amount(t.Rows), bytesText(t.Bytes), timeOr(t.Oldest), timeOr(t.Newest)))
		}
		table(w, "TABLE\tSLICES\tROWS\tCOPY\tOLDEST\tNEWEST", rows[:min(len(rows), maxTables)])
		if n := len(rows); n > maxTables {
			fmt.Fprintf(w, "... and %d more (--output json lists all)\n", n-maxTables)
		}
		fmt.Fprintf(w, "rows       %s in %s, %s as whole partitions; messages from %s to %s (%s)\n", amount(f.Deletes.Rows), count(f.Deletes.Chunks, "chunk"), amount(f.Deletes.Rows-f.Deletes.ByRows),
			timeOr(f.Deletes.Oldest), timeOr(f.Deletes.Newest), f.Basis)
	}
	f.Requests.text(w)
	f.Time.text(w)
	f.Money.text(w)
}

func timeOr(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return stamp(*t)
}
