package manifest

import (
	"errors"
	"testing"
	"time"
)

// A claim that its owner lost is another's, who knows what was noted; what is noted late
// does not undo what was found since.
func TestChecksOutliveTheirReader(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, time.Minute)
	sl := testSlice(t, s, 1)
	verified(t, s, sl, 4)
	first, err := openAt(t, stackDSN(t, s), testSource, 6*time.Second).ClaimCheck(ctx, sl.ID, 1, "first")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Note(ctx, []ObjectNote{{Seq: 0, Bytes: 4096}, {Seq: 1, Bytes: 4096, Error: "rows [0, 3): torn"}}); err != nil {
		t.Fatal(err)
	}
	kept, stop := first.Keep(ctx)
	if _, err := s.ClaimCheck(ctx, sl.ID, 1, "second"); !errors.Is(err, ErrLeased) {
		t.Fatalf("claimed twice: %v", err)
	}
	until := func() (at time.Time) {
		t.Helper()
		if err := s.db.QueryRowContext(ctx, "SELECT claim_until FROM checks").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	for was := until(); !until().After(was); { // it is renewed
		if kept.Err() != nil {
			t.Fatal(kept.Err())
		}
	}
	stop() // it dies, and some time passes
	if _, err := s.db.ExecContext(ctx, "UPDATE checks SET claim_until = UTC_TIMESTAMP(6)"); err != nil {
		t.Fatal(err)
	}
	var second *CheckClaim
	for second == nil {
		if second, err = s.ClaimCheck(ctx, sl.ID, 1, "second"); err != nil && !errors.Is(err, ErrLeased) {
			t.Fatal(err)
		}
	}
	if a, b, c := second.Object(0), second.Object(1), second.Object(2); a.Good == nil || a.Error != "" || b.Good != nil || b.Error == "" || c.Read != nil {
		t.Errorf("the second knows %+v %+v %+v", a, b, c)
	}
	if err := second.Note(ctx, []ObjectNote{{Seq: 1, Bytes: 4096}, {Seq: 2, Bytes: 4096}, {Seq: 3, Bytes: 4096, Error: "gone"}}); err != nil {
		t.Fatal(err)
	}
	if err := first.Note(ctx, []ObjectNote{{Seq: 1, Bytes: 4096, Error: "late"}, {Seq: 3, Bytes: 4096}}); err != nil {
		t.Fatal(err)
	}
	if err := second.NoteRows(ctx, ""); err != nil {
		t.Fatal(err)
	}
	sum, err := second.Finish(ctx, 4)
	if err != nil || !sum.Different || sum.GoodAt != nil || sum.ReadAt == nil || !sum.ReadAt.Equal(first.At) {
		t.Errorf("%+v, %v", sum, err)
	}
	c, err := s.Coverage(ctx, time.Hour)
	if err != nil || c.Never.Bytes != 4096 || c.Never.Slices != 1 || len(c.Different) != 1 || c.Older[0].Bytes != 4096 {
		t.Errorf("%+v, %v", c, err)
	}
	third, err := s.ClaimCheck(ctx, sl.ID, 1, "third")
	if err != nil {
		t.Fatal(err)
	}
	if p := third.Object(1); p.Error != "" || p.Good == nil || !p.Good.Equal(second.At) {
		t.Errorf("what was noted late counts: %+v", p)
	}
	if err := third.Note(ctx, []ObjectNote{{Seq: 3, Bytes: 4096}}); err != nil {
		t.Fatal(err)
	}
	if sum, err := third.Finish(ctx, 4); err != nil || sum.Different || sum.GoodAt == nil || !sum.GoodAt.Equal(first.At) {
		t.Errorf("%+v, %v", sum, err)
	}
	if c, err := s.Coverage(ctx, time.Hour, time.Microsecond); err != nil || c.Never.Slices != 0 || c.Older[0].Slices != 0 || c.Older[1].Bytes != 4*4096 {
		t.Errorf("%+v, %v", c, err)
	}
	// The next generation begins anew, and the notes of the former go.
	l := claim(t, s, sl.ID, Verified, "")
	if err := s.Reopen(ctx, l, ReasonDrifted); err != nil {
		t.Fatal(err)
	}
	verified(t, s, sl, 2)
	if all, err := s.Checks(ctx, Filter{}); err != nil || len(all) != 1 || all[0].Generation != 2 || all[0].ReadAt != nil {
		t.Errorf("%+v, %v", all, err)
	}
	if err := s.NoteChecked(ctx, sl.ID, 2); err != nil {
		t.Fatal(err)
	}
	last, err := s.ClaimCheck(ctx, sl.ID, 2, "last")
	if err != nil {
		t.Fatal(err)
	}
	if p := last.Object(1); p.Good == nil || last.Rows.Good == nil {
		t.Errorf("what the archive has checked does not count: %+v", p)
	}
	if _, err := last.Finish(ctx, 2); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"checks", "object_checks"} {
		if n, err := count(ctx, s.db.DB, table+" WHERE generation = 1"); err != nil || n != 0 {
			t.Errorf("%d rows of the first generation in %s, %v", n, table, err)
		}
	}
}

// What was verified before the manifest knew of checks counts as checked then.
func TestUpgradeForChecks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, time.Minute)
	a, b := testSlice(t, s, 1), testSlice(t, s, 2)
	verified(t, s, a, 2)
	l, _ := commitCopy(t, s, b, 2)
	if err := l.Release(ctx, Committed); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"DROP TABLE checks", "DROP TABLE object_checks", "DROP TABLE check_rounds", "DELETE FROM " + versionTable + " WHERE version_id >= 6"} {
		if _, err := s.db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Migrate(ctx, false); err != nil {
		t.Fatal(err)
	}
	all, err := s.Checks(ctx, Filter{})
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	now, err := s.Slice(ctx, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if all[0].SliceID != b.ID || all[0].ReadAt != nil || all[1].GoodAt == nil || all[1].GoodAt.Sub(*now.VerifiedAt).Abs() > time.Second {
		t.Errorf("%+v", all)
	}
}
