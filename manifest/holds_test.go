package manifest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestHoldsAreReleasedNeverDeleted(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	for _, bad := range []Hold{
		{Kind: "day", Subject: "2026-05-01", Reason: "r", By: "b"},
		{Kind: HoldSlice, Subject: "2026-05-01", Reason: "r", By: "b"},
		{Kind: HoldSlice, Subject: "2026-05-01 t", Reason: "r", By: "b"},
		{Kind: HoldSlice, Subject: "yesterday a.b", Reason: "r", By: "b"},
		{Kind: HoldSender, Subject: "", Reason: "r", By: "b"},
		{Kind: HoldSender, Subject: "1", Reason: " ", By: "b"},
		{Kind: HoldSender, Subject: "1", Reason: "r"},
		{Kind: HoldConversation, Subject: strings.Repeat("x", 256), Reason: "r", By: "b"},
	} {
		if id, err := s.AddHold(ctx, bad); err == nil {
			t.Errorf("%+v is taken as hold %d", bad, id)
		}
	}
	a, err := s.AddHold(ctx, Hold{Kind: HoldConversation, Subject: "a\x00\xff'b", Reason: "case 7", By: "legal"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.AddHold(ctx, Hold{Kind: HoldSlice, Subject: testKey(1).String(), Reason: "check", By: "ops"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ReleaseHold(ctx, b, "ops2"); err != nil {
		t.Fatal(err)
	}
	if err := s.ReleaseHold(ctx, b, "ops3"); !errors.Is(err, ErrState) {
		t.Errorf("released twice: %v", err)
	}
	if err := s.ReleaseHold(ctx, 999, "x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("released no hold: %v", err)
	}
	if in, err := s.Holds(ctx, false); err != nil || len(in) != 1 || in[0].ID != a || in[0].Subject != "a\x00\xff'b" || in[0].By != "legal" || in[0].At.IsZero() {
		t.Errorf("in force: %+v, %v", in, err)
	}
	if all, err := s.Holds(ctx, true); err != nil || len(all) != 2 || all[1].ReleasedBy != "ops2" || all[1].ReleasedAt == nil {
		t.Errorf("all: %+v, %v", all, err)
	}
	if sum, err := s.Summary(ctx); err != nil || sum.Holds != 1 {
		t.Errorf("%d holds, %v", sum.Holds, err)
	}
}

// A hold that ends by itself stops the purge until then, by the database's clock, and is
// one hold however often its step is repeated.
func TestKeptSliceIsHeldForItsTime(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	verified(t, s, sl, 2)
	l := claim(t, s, sl.ID, Verified, "")
	if _, err := s.KeepSlice(ctx, sl.SliceKey, time.Microsecond, "restored", "ops"); err != nil {
		t.Fatal(err)
	}
	if in, err := s.Holds(ctx, false); err != nil || len(in) != 0 || slice(t, s, sl.ID).Held {
		t.Errorf("a hold that has expired is in force: %+v, %v", in, err)
	}
	h, err := s.KeepSlice(ctx, sl.SliceKey, time.Hour, "restored", "ops")
	if err != nil || h.ExpiresAt == nil || h.ExpiresAt.Sub(h.At) != time.Hour {
		t.Fatalf("%+v, %v", h, err)
	}
	for _, last := range []time.Duration{time.Minute, 2 * time.Hour, time.Minute} { // never shorter
		want := last > time.Hour || h.ExpiresAt.Sub(h.At) > time.Hour
		again, err := s.KeepSlice(ctx, sl.SliceKey, last, "restored again", "ops")
		if err != nil || again.ID != h.ID || (again.ExpiresAt.Sub(h.At) > time.Hour+time.Minute) != want || again.ExpiresAt.Before(*h.ExpiresAt) {
			t.Fatalf("kept for %s more: %+v, %v", last, again, err)
		}
		h = again
	}
	if in, err := s.Holds(ctx, false); err != nil || len(in) != 1 || !slice(t, s, sl.ID).Held {
		t.Errorf("in force: %+v, %v", in, err)
	}
	if sum, err := s.Summary(ctx); err != nil || sum.Holds != 1 {
		t.Errorf("%d holds, %v", sum.Holds, err)
	}
	if _, err := s.GrantPurge(ctx, l, 0); !errors.Is(err, ErrHeld) {
		t.Errorf("grant: %v", err)
	}
	if other, err := s.KeepSlice(ctx, testKey(2), time.Hour, "restored", "ops"); err != nil || other.ID == h.ID {
		t.Errorf("another slice's hold, which is not in the manifest yet: %+v, %v", other, err)
	}
	if _, err := s.db.ExecContext(ctx, "UPDATE holds SET expires_at = UTC_TIMESTAMP(6) WHERE id = ?", h.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GrantPurge(ctx, l, 0); err != nil {
		t.Errorf("grant after it expired: %v", err)
	}
	for _, bad := range []func() (Hold, error){
		func() (Hold, error) { return s.KeepSlice(ctx, testKey(1), 0, "r", "b") },
		func() (Hold, error) { return s.KeepSlice(ctx, testKey(1), time.Hour, " ", "b") },
		func() (Hold, error) { return s.KeepSlice(ctx, testKey(1), time.Hour, "r", "") },
	} {
		if h, err := bad(); err == nil {
			t.Errorf("taken: %+v", h)
		}
	}
}

func TestRuns(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	a, err := s.BeginRun(ctx, RunStart{Job: "archive", Host: "pod-1", Args: []string{"--day", "2026-05-01"}, Scheduled: time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.BeginRun(ctx, RunStart{Job: "purge", Host: "pod-2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EndRun(ctx, a, "done", "all of it", map[string]int{"slices": 3}); err != nil {
		t.Fatal(err)
	}
	if err := s.EndRun(ctx, a, "failed", "", nil); !errors.Is(err, ErrState) {
		t.Errorf("ended twice: %v", err)
	}
	all, err := s.LastRuns(ctx, "", 10)
	if err != nil || len(all) != 2 || all[0].ID != b || all[0].Ended != nil || all[1].Outcome != "done" || all[1].Why != "all of it" || len(all[1].Args) != 2 || all[1].Args[1] != "2026-05-01" || all[1].Scheduled.Hour() != 2 || all[0].Args != nil || all[0].Scheduled != nil || all[1].Ended.Before(all[1].Started) {
		t.Fatalf("runs %+v, %v", all, err)
	}
	var report struct{ Slices int }
	if err := json.Unmarshal(all[1].Report, &report); err != nil || report.Slices != 3 {
		t.Errorf("report %s, %v", all[1].Report, err)
	}
	if _, err := json.Marshal(all); err != nil {
		t.Error(err)
	}
	if one, err := s.LastRuns(ctx, "archive", 1); err != nil || len(one) != 1 || one[0].ID != a {
		t.Errorf("runs of archive %+v, %v", one, err)
	}
}
