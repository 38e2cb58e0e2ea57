package manifest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStopsEndAndAreLifted(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	for _, bad := range []Stop{{Jobs: "drill", Reason: "r", By: "b"}, {Jobs: StopAll, Reason: " ", By: "b"}, {Jobs: StopAll, Reason: "r"}} {
		if got, err := s.AddStop(ctx, bad, 0); err == nil {
			t.Errorf("%+v is taken: %+v", bad, got)
		}
	}
	add := func(jobs string, last time.Duration) Stop {
		t.Helper()
		st, err := s.AddStop(ctx, Stop{Jobs: jobs, Reason: "incident 7", By: "ops"}, last)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	in := func() (jobs []string) {
		t.Helper()
		all, err := s.Stops(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range all {
			jobs = append(jobs, st.Jobs)
		}
		return jobs
	}
	brief := add(StopAll, time.Millisecond)
	if brief.EndsAt == nil || brief.EndsAt.Sub(brief.At) != time.Millisecond {
		t.Errorf("%+v", brief)
	}
	for end := time.Now().Add(time.Minute); len(in()) > 0; {
		if time.Now().After(end) {
			t.Fatal("a stop of a millisecond lasts")
		}
	}
	p, a := add(StopPurge, 0), add(StopAll, time.Hour)
	add(StopPurge, time.Hour)
	if !p.Of(StopPurge) || p.Of(StopArchive) || !a.Of(StopArchive) || !a.Of("patrol --heal") {
		t.Error("a stop is of the wrong jobs")
	}
	if text := a.String(); !strings.Contains(text, "ops stopped all") || !strings.Contains(text, "incident 7") || !strings.Contains(text, "until") {
		t.Error(text)
	}
	if got := in(); !slices.Equal(got, []string{StopPurge, StopAll, StopPurge}) {
		t.Errorf("in force: %v", got)
	}
	if lifted, err := s.LiftStops(ctx, StopPurge, "ops2"); err != nil || len(lifted) != 2 {
		t.Errorf("lifted %+v, %v", lifted, err)
	}
	if lifted, err := s.LiftStops(ctx, StopPurge, "ops2"); err != nil || len(lifted) != 0 {
		t.Errorf("lifted again %+v, %v", lifted, err)
	}
	if got := in(); !slices.Equal(got, []string{StopAll}) {
		t.Errorf("in force: %v", got)
	}
	if all, err := s.Stops(ctx, true); err != nil || len(all) != 4 || all[1].LiftedBy != "ops2" || all[1].LiftedAt == nil {
		t.Errorf("all: %+v, %v", all, err)
	}
}

// What the bucket keeps of a stop brings it back, once, as it was, and lifts it if it was.
func TestStopsComeBackFromTheBucket(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	st, err := s.AddStop(ctx, Stop{Jobs: StopPurge, Reason: "r", By: "ops"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := s.UnmirroredStops(ctx); err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	raw, err := EncodeStop(st)
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeStop(raw)
	if err != nil || back.Name != st.Name || !back.EndsAt.Equal(*st.EndsAt) {
		t.Fatalf("%+v, %v", back, err)
	}
	if err := s.StopMirrored(ctx, st); err != nil {
		t.Fatal(err)
	}
	if fresh, err := s.AdoptStop(ctx, back); err != nil || fresh {
		t.Errorf("adopted what is there: %t, %v", fresh, err)
	}
	if _, err := s.LiftStops(ctx, StopPurge, "ops"); err != nil {
		t.Fatal(err)
	}
	if list, err := s.UnmirroredStops(ctx); err != nil || len(list) != 1 {
		t.Errorf("a lifted stop is to be put again: %+v, %v", list, err)
	}
	if fresh, err := s.AdoptStop(ctx, back); err != nil || fresh {
		t.Errorf("adopted what is there: %t, %v", fresh, err)
	}
	if in, err := s.Stops(ctx, false); err != nil || len(in) != 0 {
		t.Errorf("an old object of a lifted stop brought it back: %+v, %v", in, err)
	}
	other := open(t, time.Minute)
	for i, want := range []bool{true, false} {
		if fresh, err := other.AdoptStop(ctx, back); err != nil || fresh != want {
			t.Errorf("try %d: fresh %t, %v", i, fresh, err)
		}
	}
	if in, err := other.Stops(ctx, false); err != nil || len(in) != 1 || in[0].By != "ops" || !in[0].At.Equal(st.At) {
		t.Errorf("%+v, %v", in, err)
	}
	for _, bad := range []string{"", "{}", strings.Replace(string(raw), `"format_version":1`, `"format_version":2`, 1), strings.Replace(string(raw), st.Name, "", 1), strings.Replace(string(raw), `"purge"`, `"x"`, 1)} {
		if got, err := DecodeStop([]byte(bad)); err == nil {
			t.Errorf("%s is taken: %+v", bad, got)
		}
	}
	if _, err := DecodeStop([]byte("{}")); errors.Is(err, ErrCorrupt) {
		t.Error("an unknown version is told as damage")
	}
}

// A pause lasts as long as its process says so.
func TestPausesOfDeadProcesses(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	left := time.Hour
	p := Pause{Owner: "a/1", Job: "purge", Server: "10.0.0.1:3306", Cause: "lag", Why: "replica lags"}
	for _, lasted := range []time.Duration{0, time.Minute} {
		if err := s.NotePause(ctx, p, lasted, &left); err != nil {
			t.Fatal(err)
		}
	}
	p.Owner = "b/2"
	if err := s.NotePause(ctx, p, 0, nil); err != nil {
		t.Fatal(err)
	}
	list, err := s.Pauses(ctx)
	if err != nil || len(list) != 2 || list[0].Owner != "a/1" || list[0].Until == nil || list[1].Until != nil || list[0].Dead || list[0].Seen.Sub(list[0].Since).Round(time.Second) != time.Minute {
		t.Fatalf("%+v, %v", list, err)
	}
	if _, err := s.db.ExecContext(ctx, "UPDATE pauses SET seen_at = seen_at - INTERVAL 61 SECOND WHERE owner = 'a/1'"); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Pauses(ctx); err != nil || !list[0].Dead || list[1].Dead {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := s.db.ExecContext(ctx, "UPDATE pauses SET seen_at = seen_at - INTERVAL 2 DAY WHERE owner = 'a/1'"); err != nil {
		t.Fatal(err)
	}
	if err := s.EndPause(ctx, "b/2", "purge", "10.0.0.1:3306"); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Pauses(ctx); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
