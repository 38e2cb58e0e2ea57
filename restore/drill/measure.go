package drill

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
)

// measure enters what was measured. It is also for a drill that ended early.
func (r *run) measure(ctx context.Context) error {
	m := &r.rep.Measures
	var seconds float64
	var rows uint64
	for _, s := range r.sample {
		if s.equal {
			rows += s.Rows
		}
	}
	var bytes int64
	for _, s := range r.stages {
		seconds, bytes = seconds+s.Seconds, bytes+s.Bytes
	}
	t := r.bucket.now()
	m.Recovery = report.NewRecovery(time.Duration(seconds*float64(time.Second)), rows, bytes, r.stages...)
	m.Traffic = []report.Traffic{
		{Store: report.StoreBucket, Operation: report.OpGet, Requests: t.gets, Bytes: t.bytes},
		{Store: report.StoreBucket, Operation: report.OpList, Requests: t.lists},
		{Store: "clickhouse", Operation: report.OpQuery, Requests: r.rows.queries.Load(), Bytes: r.rows.bytes.Load()},
	}
	r.recoveryPoint()
	var err error
	if m.Extrapolation, err = r.extrapolate(); err != nil {
		return err
	}
	archived := int64(0)
	for _, l := range r.plan.live {
		archived += l.Bytes
	}
	if m.Cost, err = report.PriceOf(r.cfg.Prices, m.Traffic, archived); err != nil {
		return err
	}
	if ctx.Err() == nil {
		r.rep.Ended, err = r.Deps.Manifest.Now(ctx)
	}
	if r.rep.Ended.Before(r.rep.Began) {
		r.rep.Ended = r.rep.Began.Add(r.cfg.Now().Sub(r.began))
	}
	if err != nil {
		return err
	}
	c := r.check(report.StepMeasure, "recovery was measured", "")
	if rows == 0 {
		c.skip("nothing was restored and found equal")
		return nil
	}
	c.count("rows", int64(rows))
	c.end(fmt.Sprintf("%d rows in %.1f s", rows, seconds))
	return nil
}

// recoveryPoint finds the newest archived minute.
func (r *run) recoveryPoint() {
	p := &r.rep.Measures.RecoveryPoint
	newest := map[manifest.Shard]snowflake.Day{}
	var last snowflake.Day
	for i, l := range r.plan.live {
		if d, seen := newest[l.Shard]; !seen || d.Before(l.Day) {
			newest[l.Shard] = l.Day
		}
		if i == 0 || last.Before(l.Day) {
			last = l.Day
		}
	}
	if len(newest) == 0 {
		p.Note = "Nothing is archived."
		return
	}
	minute := last.Next().Start(r.cfg.Zone).Add(-time.Minute).UTC()
	p.NewestMinute, p.AgeSeconds = &minute, max(r.rep.Began.Sub(minute).Seconds(), 0)
	var behind []string
	for s, d := range newest {
		if d.Before(last) {
			behind = append(behind, fmt.Sprintf("%s (%s)", s, d))
		}
	}
	slices.Sort(behind)
	p.Note = fmt.Sprintf("The last minute of %s, the newest day with an archived and verified slice. Newer rows are in the warm tables alone, and come back from the backups of those.", last)
	if n := len(behind); n > 0 {
		p.Note += fmt.Sprintf(" %d of %d shards have no rows archived of that day, such as %s.", n, len(newest), strings.Join(behind[:min(n, 3)], ", "))
	}
}

// extrapolate says what the measures mean for a shard and for all.
func (r *run) extrapolate() (report.Extrapolation, error) {
	x := report.Extrapolation{
		Formula: "seconds = (seconds to rebuild the manifest) x (slices of the scope / all slices) + (rows of the scope) x (seconds to restore and verify the sample / rows of the sample)",
		Assumptions: []string{
			"One worker restores, into one server that is as fast as the scratch server of this drill; more workers and servers divide the time, up to what the bucket gives.",
			"Rows of the scope are as long as those of the sample; no index beyond those of the archived definitions is built.",
			"The bucket answers as it did now; objects in an archive storage class must be thawed first, which is not counted.",
			"Verification is counted: fingerprints, objects read a second time, ClickHouse.",
		},
		Results: []report.Projected{},
	}
	var rebuild, restore float64
	var bytes, gets int64
	for _, s := range r.stages {
		if s.Name == stageManifest {
			rebuild += s.Seconds
			continue
		}
		restore += s.Seconds
		bytes, gets = bytes+s.Bytes, gets+s.Requests
	}
	rows := r.rep.Measures.Recovery.Rows
	all := len(r.plan.live)
	x.Inputs = []report.Input{
		{Name: "rebuild of the manifest", Value: rebuild, Unit: "s"}, {Name: "all slices", Value: float64(all), Unit: "slices"},
		{Name: "restore and verification of the sample", Value: restore, Unit: "s"}, {Name: "rows of the sample", Value: float64(rows), Unit: "rows"},
	}
	if rows == 0 || all == 0 {
		return x, nil
	}
	total := report.Projected{Scope: report.ScopeAll, Name: "all shards"}
	by := map[manifest.Shard]*report.Projected{}
	for _, l := range r.plan.live {
		s := by[l.Shard]
		if s == nil {
			s = &report.Projected{Scope: report.ScopeShard, Name: l.Shard.String()}
			by[l.Shard] = s
		}
		for _, p := range []*report.Projected{s, &total} {
			p.Slices, p.Rows, p.Bytes = p.Slices+1, p.Rows+l.Rows, p.Bytes+l.Bytes
		}
	}
	var largest *report.Projected
	for _, s := range by {
		if largest == nil || cmp.Or(cmp.Compare(s.Rows, largest.Rows), cmp.Compare(largest.Name, s.Name)) > 0 {
			largest = s
		}
	}
	for _, p := range []*report.Projected{largest, &total} {
		part := float64(p.Rows) / float64(rows)
		p.Seconds = rebuild*float64(p.Slices)/float64(all) + restore*part
		cost, err := report.PriceOf(r.cfg.Prices, []report.Traffic{{Store: report.StoreBucket, Operation: report.OpGet, Requests: int64(float64(gets) * part), Bytes: int64(float64(bytes) * part)}}, 0)
		if err != nil {
			return x, err
		}
		if len(cost.Items) > 0 {
			p.Money = cost.Total
		}
		x.Results = append(x.Results, *p)
	}
	return x, nil
}

// stageManifest is the stage that does not grow with rows.
const stageManifest = "manifest"
