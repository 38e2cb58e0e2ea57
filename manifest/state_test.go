package manifest

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// From every state only the steps of the diagram in doc.go are allowed; any other
// is refused and leaves the slice as it was.
func TestOnlyTheStepsOfTheDiagram(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	all := []State{Pending, Copying, Committed, Verified, Purging, Purged}
	type step struct {
		name string
		from []State // allowed
		run  func(l *Lease) error
	}
	steps := []step{
		{"commit", []State{Copying}, func(l *Lease) error {
			return s.Commit(ctx, l, testCopy(t, l.Slice(), 2, l.Attempt(), 1), "k", [32]byte{})
		}},
		{"verified", []State{Committed, Verified /* a repetition */}, func(l *Lease) error { return s.Verified(ctx, l, 1) }},
		{"reopen", []State{Copying, Committed, Verified}, func(l *Lease) error { return s.Reopen(ctx, l, ReasonMismatch) }},
		{"fail", all, func(l *Lease) error { return s.Fail(ctx, l, errors.New("x")) }},
		{"grant", []State{Verified, Purging}, func(l *Lease) error { _, err := s.GrantPurge(ctx, l, 0); return err }},
		{"give back", []State{Purging}, func(l *Lease) error { return l.GiveBack(ctx) }},
		{"staging returned", []State{Purging}, func(l *Lease) error { return l.StagingReturned(ctx) }},
	}
	for _, to := range all {
		from := []State{to}
		if to == Pending {
			from = append(from, Copying)
		}
		steps = append(steps, step{"release as " + string(to), from, func(l *Lease) error { return l.Release(ctx, to) }})
	}
	day := 0
	for _, st := range all {
		for _, step := range steps {
			day++
			sl := testSlice(t, s, day)
			verified(t, s, sl, 1)
			if _, err := s.db.ExecContext(ctx, "UPDATE slices SET state = ?, live_generation = ? WHERE id = ?", string(st), map[bool]int{true: 1}[st != Committed], sl.ID); err != nil {
				t.Fatal(err)
			}
			l := claim(t, s, sl.ID, st, "")
			before := slice(t, s, sl.ID)
			err := step.run(l)
			if allowed := slices.Contains(step.from, st); allowed != (err == nil) || !allowed && !errors.Is(err, ErrState) {
				t.Errorf("%s from %s: %v", step.name, st, err)
			}
			if after := slice(t, s, sl.ID); err != nil && (after.State != before.State || after.Generation != before.Generation || after.Live != before.Live) {
				t.Errorf("%s from %s was refused and left %+v", step.name, st, after)
			}
		}
		for _, to := range all {
			day++
			sl := testSlice(t, s, day)
			if _, err := s.db.ExecContext(ctx, "UPDATE slices SET state = ? WHERE id = ?", string(st), sl.ID); err != nil {
				t.Fatal(err)
			}
			_, err := s.Claim(ctx, sl.ID, "w", all, to)
			if allowed := st == to || st == Pending && to == Copying; allowed != (err == nil) || !allowed && !errors.Is(err, ErrState) {
				t.Errorf("claim from %s to %s: %v", st, to, err)
			}
		}
		day++
		sl := testSlice(t, s, day)
		if _, err := s.db.ExecContext(ctx, "UPDATE slices SET state = ? WHERE id = ?", string(st), sl.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Claim(ctx, sl.ID, "w", slices.DeleteFunc(slices.Clone(all), func(x State) bool { return x == st }), ""); !errors.Is(err, ErrState) {
			t.Errorf("claim from an unwanted %s: %v", st, err)
		}
		if err := s.ReopenLate(ctx, sl.ID); (st == Purged) != (err == nil) {
			t.Errorf("reopen late from %s: %v", st, err)
		}
	}
	if _, err := s.Claim(ctx, 1<<40, "w", all, ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("claim of no slice: %v", err)
	}
}

func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	for want := 1; want <= 3; want++ {
		l := claim(t, s, sl.ID, Pending, Copying)
		long := make([]byte, 5000)
		for i := range long {
			long[i] = "é"[i%2]
		}
		if err := s.Fail(ctx, l, errors.New("bucket cold: no such bucket: x"+string(long))); err != nil {
			t.Fatal(err)
		}
		if got := slice(t, s, sl.ID); got.State != Pending || !got.Failed || got.Tries != want || len(got.Error) < 3990 {
			t.Errorf("failed to %+v", got)
		}
	}
	if sum, err := s.Summary(ctx); err != nil || len(sum.Failed) != 1 || sum.Failed[0].Tries != 3 || sum.OldestPending == nil || *sum.OldestPending != sl.Day {
		t.Errorf("summary %+v, %v", sum, err)
	}
	verified(t, s, sl, 1)
	if got := slice(t, s, sl.ID); got.Failed || got.Tries != 0 || got.Error != "" {
		t.Errorf("after a success: %+v", got)
	}
}

// Ensure makes what is missing and nothing else; another range is refused.
func TestEnsure(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	var list []Slice
	for day := 1; day <= 450; day++ {
		lo := uint64(1000 * day)
		list = append(list, Slice{SliceKey: testKey(day), Lo: lo, Hi: lo + 1000})
	}
	for _, want := range []struct{ upTo, created int }{{300, 300}, {450, 150}, {450, 0}} {
		if n, err := s.Ensure(ctx, list[:want.upTo]); err != nil || n != want.created {
			t.Errorf("ensured %d: %d made, %v", want.upTo, n, err)
		}
	}
	first := claim(t, s, testSlice(t, s, 1).ID, Pending, Copying)
	if n, err := s.Ensure(ctx, list[:1]); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if err := first.Renew(ctx); err != nil {
		t.Errorf("ensure touched a slice that exists: %v", err)
	}
	bad := list[7]
	bad.Hi++
	if _, err := s.Ensure(ctx, []Slice{bad}); err == nil {
		t.Error("another range is taken")
	}
	bad.Source = "other"
	if _, err := s.Ensure(ctx, []Slice{bad}); err == nil {
		t.Error("another source is taken")
	}
	from, to := testKey(10).Day, testKey(12).Day
	if got, err := s.Slices(ctx, Filter{States: []State{Pending, Verified}, From: &from, To: &to, Shard: "im_0?.*"}); err != nil || len(got) != 3 || got[0].Day != from {
		t.Errorf("filtered to %v, %v", got, err)
	}
	if got, err := s.Slices(ctx, Filter{Shard: "im_01.*"}); err != nil || len(got) != 0 {
		t.Errorf("filtered to %v, %v", got, err)
	}
	if _, err := s.Slices(ctx, Filter{Shard: "[x"}); err == nil {
		t.Error("a broken glob is taken")
	}
}
