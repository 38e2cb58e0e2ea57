package main

import (
	"context"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// idleLooks is how many slices are looked for in warm at most.
const idleLooks = 100

// idleWait is how long all these looks may take: a run does not wait for a server that hangs
// only to tell what it has not done.
const idleWait = 10 * time.Second

// idleArchive counts a run that copied no row although there should have been some: the
// youngest day that is old enough has none in the manifest, but each of the same weekdays of
// former weeks that are known, two at least, had; or a slice that the run left undone, and
// that no other run has, has rows in warm. It can but be a warning of what is not known to
// be wrong: an epoch, a pattern of tables, writers that went elsewhere.
func (a *app) idleArchive(ctx context.Context, p *parts, newest snowflake.Day, rep *archive.Report) {
	if rep.Rows > 0 || ctx.Err() != nil {
		return
	}
	for _, o := range rep.Left {
		if leased(o) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, idleWait)
	defer cancel()
	e, err := p.manifest.Expect(ctx, newest)
	if err != nil {
		a.log.WarnContext(ctx, "whether there should have been rows is not known", "error", err)
		return
	}
	undone := append(append([]archive.Outcome{}, rep.Failed...), rep.Left...)
	key, found := a.inWarm(ctx, p, undone)
	switch {
	case e.Missing():
		a.log.WarnContext(ctx, "the run copied nothing, and the youngest day has no rows although it should have: do source.tables and source.snowflake still fit?",
			"day", newest.String(), "expected_rows", e.Expect, "weeks", e.Weeks)
	case found:
		a.log.WarnContext(ctx, "the run copied nothing although warm has rows that are due", "slice", key.String())
	default:
		return
	}
	a.telemetry.idle[jobArchive].Inc()
}

// inWarm finds one of the slices that has rows in warm.
func (a *app) inWarm(ctx context.Context, p *parts, list []archive.Outcome) (key manifest.SliceKey, found bool) {
	for _, o := range list[:min(len(list), idleLooks)] {
		for _, t := range p.tables {
			if t.Shard() != o.Slice.Shard {
				continue
			}
			lo, hi, err := p.cfg.Source.Layout.Window(o.Slice.Day, p.cfg.Source.Zone)
			if err != nil {
				break
			}
			if id, ok, err := t.NextID(ctx, lo); err == nil && ok && id < hi {
				return o.Slice, true
			}
		}
	}
	return key, false
}

// idlePurge counts a run that deleted no row although its plan listed some that no other
// run has.
func (a *app) idlePurge(ctx context.Context, plan *purge.Plan, rep *purge.Report) {
	if rep.Rows > 0 || plan.Rows() == 0 || ctx.Err() != nil || rep.Count(purge.Leased) == len(rep.Slices) {
		return
	}
	a.log.WarnContext(ctx, "the run deleted nothing although its plan lists rows", "rows", plan.Rows(), "slices", len(rep.Slices))
	a.telemetry.idle[jobPurge].Inc()
}
