// Package statustest has a report with everything in it, for tests of what shows reports.
package statustest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/cmd/coldtier/status"
	"github.com/coldtier/coldtier/manifest"
)

// Script is markup as somebody might write it into a reason.
const Script = `<script>alert("x")</script>`

// Conversation is the ID of one, which no page may show.
const Conversation = "9007199254740993"

// Tables is how many tables the sample has.
const Tables = 1024

// Now is when it was made.
func Now() time.Time { return time.Date(2026, 12, 1, 3, 4, 5, 0, time.UTC) }

func shard(n int) manifest.Shard {
	return manifest.Shard{Database: fmt.Sprintf("im_%02d", n/64%16), Table: fmt.Sprintf("msg_content_%02d", n%64)}
}

func ago(d time.Duration) time.Time { return Now().Add(-d) }

func key(n int, d snowflake.Day) manifest.SliceKey {
	return manifest.SliceKey{Source: "im", Shard: shard(n), Day: d}
}

// Sample is 400 days of 1,024 tables at night: archive and purge run, some slices failed,
// some are held, purges are stopped, a server is left alone.
func Sample() *status.Report {
	r := &status.Report{Source: "im", Now: Now(), Zone: "UTC", AfterText: "4320h0m0s", After: 180 * 24 * time.Hour, LagText: "168h0m0s", Lag: 168 * time.Hour, Due: snowflake.MakeDay(2026, 6, 3)}
	r.TotalsAt = ago(2 * time.Second)
	first := r.Due.Add(-399)
	for i := range 400 {
		r.Days = append(r.Days, day(first.Add(i), r.Due))
	}
	for _, s := range manifest.States() {
		sum := manifest.StateSummary{State: s}
		for _, d := range r.Days {
			if n := d.States[s]; n > 0 {
				if sum.Slices == 0 {
					sum.First = d.Day
				}
				sum.Slices, sum.Last = sum.Slices+n, d.Day
				sum.Rows += d.Rows / Tables * uint64(n)
				sum.Bytes += uint64(d.Bytes) / Tables * uint64(n) //nolint:gosec // few
			}
		}
		r.States = append(r.States, sum)
	}
	gone := snowflake.MakeDay(2026, 2, 14)
	r.Failed = []status.Slice{
		{SliceKey: key(131, gone), State: manifest.Committed, Tries: 4, Error: "slice 2026-02-14 im_02.msg_content_03: the copy does not equal its commit: object im/messages/day=2026-02-14/shard=im_02.msg_content_03/g1-7f3a/conv=" + Conversation + ".parquet: SHA-256 differs"},
		{SliceKey: key(517, r.Due.Add(-1)), State: manifest.Pending, Tries: 1, Error: "conversation \"" + Conversation + "\" has no rows: " + Script},
	}
	for i := range 3 {
		r.Held = append(r.Held, status.Slice{SliceKey: key(700+i, snowflake.MakeDay(2025, 11, 11)), State: manifest.Verified})
	}
	r.HoldList = []manifest.Hold{{ID: 12, Kind: manifest.HoldSlice, Subject: "2025-11-11 im_10.msg_content_60", Reason: "litigation 2026-118, conversation " + Conversation, By: "legal@example.com", At: ago(90 * 24 * time.Hour)}}
	r.Holds = 4
	for i := range 14 {
		r.Behind.Archive = append(r.Behind.Archive, manifest.ShardBehind{Shard: shard(131 + 29*i), Oldest: gone.Add(7 * i), Slices: 3 - i/5, Failed: max(0, 1-i), Rows: uint64(1_204_411 * (14 - i) / 14)})
	}
	r.Behind.Purge = []manifest.ShardBehind{{Shard: shard(300), Oldest: r.Due.Add(-10), Slices: 2, Rows: 240_112, Since: new(ago(50 * time.Hour))}}
	r.Purge = status.Purge{Deletable: manifest.Amount{Slices: 902, Rows: 108_240_000, Bytes: 21 << 30}, AtRun: manifest.Amount{Slices: 1926, Rows: 231_120_000, Bytes: 45 << 30},
		Run: new(ago(-56 * time.Minute)), Next: new(ago(-11 * time.Minute))}
	r.Unmirrored = manifest.Unmirrored{Statuses: 6}
	r.Checks = &manifest.Coverage{Slices: 408_000, Bytes: 8 << 40, Never: manifest.Unchecked{Slices: 1024, Bytes: 21 << 30},
		Older:  []manifest.Unchecked{{For: "30d", Slices: 251_904, Bytes: 5 << 40}, {For: "90d", Slices: 88_064, Bytes: 2 << 40}, {For: "365d", Slices: 1024, Bytes: 21 << 30}},
		Oldest: &manifest.Check{SliceKey: key(0, first), Generation: 1, GoodAt: new(ago(371 * 24 * time.Hour))}, Different: []manifest.Check{}}
	r.Interrupted = []status.Slice{{SliceKey: key(64, r.Due), State: manifest.Pending, Tries: 3}}
	r.Skew = []manifest.DaySkew{{Day: r.Due.Add(-1), Shards: Tables, Rows: 122_880_000, Bytes: 24 << 30, MedianRows: 118_000, MedianBytes: 23 << 20,
		Largest: &manifest.ShardSkew{Shard: shard(64), Rows: 1_204_411, RowsRatio: 10.2, BytesRatio: 9.7}, Over: []manifest.ShardSkew{{Shard: shard(64), Rows: 1_204_411, RowsRatio: 10.2, BytesRatio: 9.7}}}}
	quota := 212.0
	r.Growth = &manifest.Forecast{Rows: 48_900_000_000, Bytes: 8 << 40, Days: 28, Last: r.Due.Add(-1), RowsPerDay: 122_880_000, PerDay: 24 << 30, Trend: 40 << 20, QuotaDays: &quota,
		Sizes: []manifest.Projection{{In: 30, Bytes: 8.7 * (1 << 40), Trended: 8.72 * (1 << 40)}, {In: 90, Bytes: 10.1 * (1 << 40), Trended: 10.3 * (1 << 40)}, {In: 365, Bytes: 16.6 * (1 << 40), Trended: 19.1 * (1 << 40)}}}
	r.Drill = &status.Drill{LastGood: &manifest.Drill{ID: "d-2026-10-01", Ended: ago(61 * 24 * time.Hour)}, Age: (61 * 24 * time.Hour).Seconds(), MaxAge: "100 days"}
	r.Canaries = &status.Canaries{Planted: 16, Last: &manifest.Canary{ID: "c-2026-11-30", Shard: shard(5), PlantedAt: new(ago(27 * time.Hour))}}
	jobs(r)
	r.Attend()
	return r
}

// day is what is there of a day.
func day(d, due snowflake.Day) status.Day {
	x := status.Day{Day: d, Slices: Tables, States: map[manifest.State]int{manifest.Purged: Tables}, Rows: 117_000_000 + uint64(d.Sub(snowflake.Day{})%7)*1_300_000, Bytes: 24 << 30} //nolint:gosec // 0 to 6
	states := func(pairs ...any) {
		x.States = map[manifest.State]int{}
		for i := 0; i < len(pairs); i += 2 {
			x.States[pairs[i].(manifest.State)] = pairs[i+1].(int)
		}
	}
	switch back := due.Sub(d); {
	case back == 0:
		states(manifest.Pending, Tables)
		x.Rows, x.Bytes = 0, 0
	case back == 1:
		states(manifest.Pending, 311, manifest.Copying, 32, manifest.Committed, 12, manifest.Verified, 669)
		x.Failed = 1
	case back == 2:
		states(manifest.Copying, 1, manifest.Verified, Tables-1)
	case back == 3:
		states(manifest.Committed, 9, manifest.Verified, Tables-9)
	case back < 9:
		states(manifest.Verified, Tables)
		at := Now().Add(time.Duration(8-back) * 24 * time.Hour)
		x.PurgeFrom, x.Remaining = &at, at.Sub(Now()).String()
	case back == 9:
		states(manifest.Verified, 902, manifest.Purged, Tables-902)
	case back == 10:
		states(manifest.Purging, 2, manifest.Purged, Tables-2)
	}
	switch d {
	case snowflake.MakeDay(2025, 11, 11):
		states(manifest.Verified, 3, manifest.Purged, Tables-3)
		x.Held = 3
	case snowflake.MakeDay(2026, 2, 14):
		states(manifest.Committed, 1, manifest.Purged, Tables-1)
		x.Failed = 1
	}
	x.SetMark()
	return x
}

// jobs adds what runs, ran and will run.
func jobs(r *status.Report) {
	eta, stage := 2340.0, 48.0
	r.Running = []status.Run{
		{ID: 4711, Job: "archive", Host: "archive-29412-x7kq2/1", Started: ago(64 * time.Minute), Outcome: status.Running, Progress: &status.Progress{Done: 669, Left: 355, ETA: &eta}},
		{ID: 4712, Job: "patrol", Host: "patrol-29411-b2mzn/1", Started: ago(22 * time.Minute), Outcome: status.Running},
	}
	for i := range 4 {
		w := status.Work{SliceProgress: manifest.SliceProgress{SliceKey: key(669+i, r.Due.Add(-1)), Worker: fmt.Sprintf("archive-29412-%d/1", i),
			Work: manifest.Work{Stage: []manifest.Stage{manifest.StageScan, manifest.StageStore, manifest.StageVerify, manifest.StageScan}[i], Rows: uint64(30_000 * (i + 1)), OfRows: 120_000}}, Share: .25 * float64(i+1)}
		if i < 3 {
			w.ETA = &stage
		}
		r.Work = append(r.Work, w)
	}
	r.Stops = []manifest.Stop{{ID: 3, Jobs: manifest.StopPurge, By: "ana@example.com", At: ago(5 * time.Hour), Reason: "im_03 moves to new hardware " + Script}}
	r.Pauses = []manifest.Pause{{Owner: "archive-29412-0/1", Job: "archive", Server: "im-db-03:3306", Cause: "lag", Why: "the replica im-db-03b:3306 is 12s behind, more than 5s", Since: ago(95 * time.Second), Until: new(ago(-25 * time.Second))}}
	ended := func(d time.Duration) *time.Time { return new(ago(d)) }
	r.Runs = []status.Run{r.Running[1], r.Running[0],
		{ID: 4710, Job: "purge", Host: "purge-29411-m4d2s/1", Started: ago(23 * time.Hour), Ended: ended(23*time.Hour - 41*time.Minute), Outcome: "partial", Why: "902 slices were left: its time (--until 06:00) was up", Report: json.RawMessage(`{"rows":1}`)},
		{ID: 4709, Job: "verify", Host: "verify-29410-k8s7w/1", Started: ago(26 * time.Hour), Ended: ended(25 * time.Hour), Outcome: "refused", Why: "conversation " + Conversation + " differs"},
		{ID: 4708, Job: "archive", Host: "archive-29410-q9x1c/1", Started: ago(25 * time.Hour), Ended: ended(24*time.Hour - 9*time.Minute), Outcome: "done"},
		{ID: 4707, Job: "drill", Host: "drill-29409-0/1", Started: ago(75 * time.Hour), Outcome: status.Died},
	}
	r.Next = []status.Next{{Job: "purge", At: ago(-56 * time.Minute)}, {Job: "archive", At: ago(-23 * time.Hour)}, {Job: "patrol", At: ago(-5 * 24 * time.Hour)}, {Job: "drill", At: ago(-31 * 24 * time.Hour)}}
	r.Plans = status.Plans{Required: true, Open: []*manifest.SavedPlan{{ID: "p7f3a19c02", Made: ago(3 * time.Hour), Expires: ago(-21 * time.Hour), Slices: 902, Rows: 108_240_000}}}
}
