package manifest

import (
	"errors"
	"testing"
	"time"
)

// A slice whose copy is interrupted for time is pending again and says how often; what
// gets it verified begins the count anew.
func TestInterruptedSlices(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	testSlice(t, s, 2)
	for i, took := range []time.Duration{90 * time.Second, 30*time.Second + time.Millisecond} {
		l := claim(t, s, sl.ID, Pending, Copying)
		if err := s.Interrupted(ctx, l, took); err != nil {
			t.Fatal(err)
		}
		if got := slice(t, s, sl.ID); got.State != Pending || got.Interrupted != i+1 || got.Tried != 90*time.Second || got.LeaseUntil != nil || got.Failed {
			t.Errorf("interrupted to %+v", got)
		}
		if err := s.Interrupted(ctx, l, took); err != nil && !errors.Is(err, ErrLeaseLost) {
			t.Errorf("again: %v", err)
		}
	}
	if list, err := s.InterruptedSlices(ctx, 2); err != nil || len(list) != 1 || list[0].ID != sl.ID {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := s.InterruptedSlices(ctx, 3); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	l, _ := commitCopy(t, s, sl, 1)
	if err := s.Interrupted(ctx, l, time.Hour); err != nil { // past its commit: the verification was interrupted
		t.Fatal(err)
	}
	if got := slice(t, s, sl.ID); got.State != Committed || got.Interrupted != 2 || got.LeaseUntil != nil {
		t.Errorf("committed and interrupted: %+v", got)
	}
	l = claim(t, s, sl.ID, Committed, Committed)
	if err := s.Verified(ctx, l, 1); err != nil {
		t.Fatal(err)
	}
	if got := slice(t, s, sl.ID); got.Interrupted != 0 || got.Tried != 0 {
		t.Errorf("verified: %+v", got)
	}
}

// Standings are the slices of a day that are not done, with who is at them.
func TestStandings(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	day := testKey(1).Day
	var list []Slice
	for _, table := range []string{"a", "b", "c", "d"} {
		list = append(list, Slice{SliceKey: SliceKey{testSource, Shard{"im", table}, day}, Lo: 1000, Hi: 2000})
	}
	if _, err := s.Ensure(ctx, list); err != nil {
		t.Fatal(err)
	}
	testSlice(t, s, 2)
	all, err := s.Standings(ctx, day)
	if err != nil || len(all) != 4 {
		t.Fatalf("%v, %v", all, err)
	}
	at := func(table string) Slice { return slice(t, s, all[Shard{"im", table}].ID) }
	verified(t, s, at("b"), 1)
	l, _ := commitCopy(t, s, at("c"), 1)
	if err := l.Release(ctx, Committed); err != nil {
		t.Fatal(err)
	}
	claim(t, s, at("d").ID, Pending, Copying)
	all, err = s.Standings(ctx, day)
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %v", all, err)
	}
	for table, want := range map[string]Standing{"a": {State: Pending}, "c": {State: Committed}, "d": {State: Copying, Leased: true}} {
		got := all[Shard{"im", table}]
		if got.ID == 0 || got.State != want.State || got.Leased != want.Leased {
			t.Errorf("%s: %+v, want %+v", table, got, want)
		}
	}
	if list, err := s.SlicesOf(ctx, Shard{"im", "b"}, day); err != nil || len(list) != 1 || list[0].State != Verified {
		t.Errorf("slices of b: %v, %v", list, err)
	}
	if list, err := s.SlicesOf(ctx, Shard{"im_00", "msg_00"}, day); err != nil || len(list) != 0 {
		t.Errorf("slices of msg_00 up to the day before its first: %v, %v", list, err)
	}
}

// Progress is what the worker that has the slice said last, and gone when it has ended.
func TestProgress(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	old := claim(t, s, sl.ID, Pending, Copying)
	one := func() SliceProgress {
		t.Helper()
		all, err := s.Progress(ctx)
		if err != nil || len(all) != 1 {
			t.Fatalf("progress %v, %v", all, err)
		}
		return all[0]
	}
	if err := old.NoteWork(ctx, Work{Stage: StageScan, Rows: 10, OfRows: 40}); err != nil {
		t.Fatal(err)
	}
	first := one()
	if err := old.NoteWork(ctx, Work{Stage: StageScan, Rows: 20, OfRows: 40, Bytes: 5}); err != nil {
		t.Fatal(err)
	}
	p := one()
	if p.SliceKey != sl.SliceKey || p.Worker != "worker" || p.Rows != 20 || p.Share() != 0.5 || !p.Started.Equal(first.Started) || !p.Updated.After(first.Updated) {
		t.Errorf("progress %+v after %+v", p, first)
	}
	if left, ok := p.Left(); !ok || left != p.Updated.Sub(p.Started) {
		t.Errorf("half is done after %s, left %s", p.Updated.Sub(p.Started), left)
	}
	if err := old.NoteWork(ctx, Work{Stage: StageStore, Objects: 1}); err != nil {
		t.Fatal(err)
	}
	if p = one(); p.Stage != StageStore || !p.Started.After(first.Started) || p.Rows != 0 || p.Objects != 1 {
		t.Errorf("next stage: %+v", p)
	}
	if _, err := s.db.ExecContext(ctx, "UPDATE slices SET lease_until = UTC_TIMESTAMP(6)"); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Progress(ctx); err != nil || len(all) != 0 {
		t.Errorf("a dead worker's progress is shown: %v, %v", all, err)
	}
	next, err := s.Claim(ctx, sl.ID, "next", []State{Copying}, Copying)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.NoteWork(ctx, Work{Stage: StageScan, Rows: 1}); err != nil {
		t.Fatal(err)
	}
	for _, do := range []func() error{func() error { return old.NoteWork(ctx, Work{Stage: StageVerify}) }, func() error { return old.EndWork(ctx) }} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if p = one(); p.Worker != "next" || p.Stage != StageScan || p.Rows != 1 {
			t.Errorf("a worker that lost its lease hides its successor's progress: %+v", p)
		}
	}
	if err := next.EndWork(ctx); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Progress(ctx); err != nil || len(all) != 0 {
		t.Errorf("after the end: %v, %v", all, err)
	}
}
