package manifest

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

func TestDrillsAreRemembered(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	if d, err := s.LastGoodDrill(ctx); d != nil || err != nil {
		t.Fatalf("before the first: %+v, %v", d, err)
	}
	at := func(month time.Month) time.Time { return time.Date(2026, month, 1, 6, 0, 0, 123456000, time.UTC) }
	slice := func(day, table string, generation uint32, equal bool) DrillSlice {
		d, err := snowflake.ParseDay(day)
		if err != nil {
			t.Fatal(err)
		}
		return DrillSlice{Day: d, Shard: Shard{"im_00", table}, Generation: generation, Rows: 7, Equal: equal}
	}
	drills := []Drill{
		{ID: "one", Began: at(1), Ended: at(1).Add(time.Hour), Verdict: DrillGood, Sample: "1/8", Seed: math.MaxUint64, Measures: json.RawMessage(`{"rows":3}`),
			ReportJSON: "drills/one/report.json", ReportHTML: "drills/one/report.html", SignedBy: "ed25519:00",
			Slices: []DrillSlice{slice("2025-01-01", "a", 1, true), slice("2025-01-01", "b", 1, true)}},
		{ID: "two", Began: at(4), Ended: at(4).Add(time.Hour), Verdict: DrillBad, Sample: "1/8", Seed: 1, Measures: json.RawMessage(`{}`),
			Slices: []DrillSlice{slice("2025-01-01", "a", 2, true), slice("2025-01-02", "a", 1, false)}},
	}
	for range 2 { // a repetition changes nothing
		for i := range drills {
			if err := s.PutDrill(ctx, &drills[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := drills[0]
	other.Verdict, other.Slices = DrillBad, []DrillSlice{slice("2025-01-01", "a", 1, false)}
	if err := s.PutDrill(ctx, &other); err != nil { // nor one that differs
		t.Fatal(err)
	}
	got, err := s.Drills(ctx, 10)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []Drill{drills[1], drills[0]} {
		want.Slices = nil
		if !reflect.DeepEqual(got[i], want) {
			t.Errorf("drill %d is\n%+v, want\n%+v", i, got[i], want)
		}
	}
	if got, err := s.Drills(ctx, 1); err != nil || len(got) != 1 || got[0].ID != "two" {
		t.Errorf("the last: %+v, %v", got, err)
	}
	if d, err := s.LastGoodDrill(ctx); err != nil || d == nil || d.ID != "one" {
		t.Errorf("the last good one: %+v, %v", d, err)
	}

	// What was found equal counts, in a bad drill too; what was not does not.
	all, err := s.Drilled(ctx, at(1))
	one := drills[0].Slices[0]
	want := []Drilled{{one.Day, one.Shard, 1, at(1)}, {one.Day, one.Shard, 2, at(4)}, {one.Day, Shard{"im_00", "b"}, 1, at(1)}}
	if err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("drilled %+v, want %+v, %v", all, want, err)
	}
	if late, err := s.Drilled(ctx, at(1).Add(time.Microsecond)); err != nil || len(late) != 1 || late[0].Generation != 2 {
		t.Errorf("drilled since: %+v, %v", late, err)
	}

	// Another source has a history of its own.
	o := &Store{db: s.db, log: s.log, source: "other", ttl: s.ttl}
	if all, err := o.Drills(ctx, 10); err != nil || len(all) != 0 {
		t.Errorf("drills of another source: %+v, %v", all, err)
	}
	if all, err := o.Drilled(ctx, time.Time{}); err != nil || len(all) != 0 {
		t.Errorf("drilled in another source: %+v, %v", all, err)
	}
}

func TestDrillsAreWhole(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, d := range map[string]Drill{
		"no ID":      {Began: now, Ended: now, Verdict: DrillGood},
		"no verdict": {ID: "x", Began: now, Ended: now},
		"backwards":  {ID: "x", Began: now, Ended: now.Add(-1), Verdict: DrillGood},
		"no JSON":    {ID: "x", Began: now, Ended: now, Verdict: DrillGood, Measures: json.RawMessage("{")},
		// One slice that cannot be entered leaves nothing of the drill.
		"long name": {ID: "x", Began: now, Ended: now, Verdict: DrillGood, Slices: []DrillSlice{{Shard: Shard{"a", "b"}}, {Shard: Shard{"a", string(make([]byte, 65))}}}},
	} {
		if err := s.PutDrill(t.Context(), &d); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if all, err := s.Drills(t.Context(), 10); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	big := Drill{ID: "big", Began: now, Ended: now, Verdict: DrillGood}
	for i := range 30_000 {
		big.Slices = append(big.Slices, DrillSlice{Day: snowflake.MakeDay(2025, 1, 1).Add(i % 300), Shard: Shard{"im_00", "msg_" + string(rune('a'+i/300/26)) + string(rune('a'+i/300%26))}, Generation: 1, Equal: true})
	}
	if err := s.PutDrill(t.Context(), &big); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Drilled(t.Context(), now); err != nil || len(all) != len(big.Slices) {
		t.Errorf("%d of %d slices, %v", len(all), len(big.Slices), err)
	}
}
