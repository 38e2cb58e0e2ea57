package manifest

import (
	"errors"
	"testing"
	"time"
)

// A grant of any other origin than GrantPurge allows nothing.
func TestForgedGrantIsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var none *PurgeGrant
	for _, g := range []*PurgeGrant{none, {}} {
		for name, err := range map[string]error{"check": g.Check(ctx), "chunk": g.ChunkState(ctx, 0, ChunkDeleting), "staging": g.Staging(ctx, "x"), "purged": g.Purged(ctx),
			"drifted": g.Drifted(ctx, "x"), "give back": g.GiveBack(ctx)} {
			if !errors.Is(err, ErrState) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if g.Copy() != nil || g.Slice() != (Slice{}) {
			t.Error("a forged grant names a slice")
		}
	}
}

func slice(t testing.TB, s *Store, id uint64) Slice {
	t.Helper()
	sl, err := s.Slice(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return sl
}

// The lag is judged by the database's clock, from the verification on.
func TestNoGrantBeforeTheLag(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	sl := testSlice(t, s, 1)
	verified(t, s, sl, 2)
	l := claim(t, s, sl.ID, Verified, "")
	const lag = 168 * time.Hour
	age := func(d time.Duration) {
		if _, err := s.db.ExecContext(t.Context(), "UPDATE slices SET verified_at = UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND", micros(d)); err != nil {
			t.Fatal(err)
		}
	}
	for _, early := range []time.Duration{0, time.Hour, lag - time.Minute} {
		age(early)
		if _, err := s.GrantPurge(t.Context(), l, lag); !errors.Is(err, ErrLag) {
			t.Errorf("%s after the verification: %v", early, err)
		}
		if got := slice(t, s, sl.ID).State; got != Verified {
			t.Errorf("the refusal left it %s", got)
		}
	}
	age(lag)
	if _, err := s.GrantPurge(t.Context(), l, lag); err != nil {
		t.Errorf("after the lag: %v", err)
	}
	if _, err := s.GrantPurge(t.Context(), l, -1); err == nil {
		t.Error("a negative lag is taken")
	}
}

func TestNoGrantUnlessVerified(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	refused := func(l *Lease, want error) {
		t.Helper()
		if _, err := s.GrantPurge(ctx, l, 0); !errors.Is(err, want) {
			t.Errorf("in %s: %v", slice(t, s, sl.ID).State, err)
		}
	}
	l := claim(t, s, sl.ID, Pending, "")
	refused(l, ErrState)
	if err := l.Release(ctx, Pending); err != nil {
		t.Fatal(err)
	}
	refused(l, ErrLeaseLost)
	l = claim(t, s, sl.ID, Pending, Copying)
	refused(l, ErrState)
	if err := s.Commit(ctx, l, testCopy(t, sl, 1, l.Attempt(), 2), "k", [32]byte{}); err != nil {
		t.Fatal(err)
	}
	refused(l, ErrState)
	if err := s.Verified(ctx, l, 1); err != nil {
		t.Fatal(err)
	}
	// A newer generation is committed but not verified: generation 1 serves, and may not be purged by.
	if err := s.Reopen(ctx, l, ReasonDrifted); err != nil {
		t.Fatal(err)
	}
	l2, _ := commitCopy(t, s, sl, 2)
	refused(l2, ErrState)
	if _, err := s.db.ExecContext(ctx, "UPDATE slices SET state = 'verified', verified_at = UTC_TIMESTAMP(6)"); err != nil { // as a bug would
		t.Fatal(err)
	}
	refused(l2, ErrState)
}

// A hold on the slice stops the purge before and after the grant; holds on a
// conversation or a sender, and those that were released, do not.
func TestHoldsStopThePurge(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	verified(t, s, sl, 2)
	hold := func(k HoldKind, subject string) uint64 {
		t.Helper()
		id, err := s.AddHold(ctx, Hold{Kind: k, Subject: subject, Reason: "case 7", By: "legal"})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	hold(HoldConversation, "c000000")
	hold(HoldSender, "42")
	hold(HoldSlice, testKey(2).String()) // another slice
	h := hold(HoldSlice, sl.String())
	if !slice(t, s, sl.ID).Held {
		t.Error("the slice does not say that it is held")
	}
	l := claim(t, s, sl.ID, Verified, "")
	if !l.Slice().Held {
		t.Error("the lease's slice does not say that it is held")
	}
	if _, err := s.GrantPurge(ctx, l, 0); !errors.Is(err, ErrHeld) {
		t.Errorf("grant on a held slice: %v", err)
	}
	if err := s.ReleaseHold(ctx, h, "legal"); err != nil {
		t.Fatal(err)
	}
	g, err := s.GrantPurge(ctx, l, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(ctx); err != nil {
		t.Error(err)
	}
	hold(HoldSlice, sl.String())
	if err := g.Check(ctx); !errors.Is(err, ErrHeld) {
		t.Errorf("check after a hold: %v", err)
	}
	if err := g.Staging(ctx, "st"); !errors.Is(err, ErrHeld) {
		t.Errorf("staging after a hold: %v", err)
	}
	if err := g.GiveBack(ctx); err != nil {
		t.Error(err)
	}
	if got := slice(t, s, sl.ID); got.State != Verified || got.LeaseUntil != nil {
		t.Errorf("given back as %+v", got)
	}
}

func TestCheckSeesANewerGeneration(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	sl := testSlice(t, s, 1)
	verified(t, s, sl, 2)
	g, err := s.GrantPurge(t.Context(), claim(t, s, sl.ID, Verified, ""), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, bug := range []string{"generation = 2", "generation = 2, live_generation = 2", "generation = 1, live_generation = 1, state = 'verified'"} {
		if _, err := s.db.ExecContext(t.Context(), "UPDATE slices SET "+bug); err != nil {
			t.Fatal(err)
		}
		if err := g.Check(t.Context()); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", bug, err)
		}
	}
}

func states(t testing.TB, s *Store, id uint64, generation uint32) (all []ChunkState) {
	t.Helper()
	c, err := s.LoadCopy(t.Context(), id, generation)
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range c.Chunks {
		all = append(all, ch.State)
	}
	return all
}

func wantStates(t testing.TB, s *Store, id uint64, want ...ChunkState) {
	t.Helper()
	got := states(t, s, id, 1)
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("chunks are %v, want %v", got, want)
			return
		}
	}
}

// Chunk states go only forwards, but for a delete that this very grant began.
func TestChunkStates(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	verified(t, s, sl, 2)
	l := claim(t, s, sl.ID, Verified, "")
	g, err := s.GrantPurge(ctx, l, 0)
	if err != nil {
		t.Fatal(err)
	}
	step := func(g *PurgeGrant, seq int, st ChunkState, ok bool) {
		t.Helper()
		if err := g.ChunkState(ctx, seq, st); (err == nil) != ok || err != nil && seq >= 0 && seq < 4 && !errors.Is(err, ErrState) {
			t.Errorf("chunk %d to %s: %v", seq, st, err)
		}
	}
	step(g, 0, ChunkDeleted, false) // not begun
	step(g, 0, ChunkPresent, false)
	step(g, 0, "gone", false)
	step(g, -1, ChunkDeleting, false)
	step(g, 4, ChunkDeleting, false)
	step(g, 0, ChunkDeleting, true)
	step(g, 0, ChunkDeleting, true)
	step(g, 0, ChunkPresent, true) // this grant began it
	step(g, 0, ChunkDeleted, false)
	step(g, 0, ChunkDeleting, true)
	step(g, 0, ChunkDeleted, true)
	step(g, 0, ChunkDeleted, true)
	step(g, 0, ChunkDeleting, false)
	step(g, 0, ChunkPresent, false)
	step(g, 1, ChunkDeleting, true)
	if err := g.Purged(ctx); !errors.Is(err, ErrState) {
		t.Errorf("purged with chunks left: %v", err)
	}
	// The worker dies in chunk 1; the next finds the states, and may not take chunk 1 for untouched.
	pause(t, s, l)
	l = claim(t, s, sl.ID, Purging, "")
	g, err = s.GrantPurge(ctx, l, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c := g.Copy(); c.Chunks[0].State != ChunkDeleted || c.Chunks[1].State != ChunkDeleting || c.Chunks[2].State != ChunkPresent || len(c.Objects) != 0 {
		t.Errorf("the next grant finds %+v", c)
	}
	step(g, 1, ChunkDeleting, true)
	step(g, 1, ChunkPresent, false)
	// Drift: the states stay for the next generation.
	if err := g.Drifted(ctx, "chunk 2 has a row more"); err != nil {
		t.Fatal(err)
	}
	wantStates(t, s, sl.ID, ChunkDeleted, ChunkDeleting, ChunkPresent, ChunkPresent)
	got := slice(t, s, sl.ID)
	if got.State != Pending || got.Reason != ReasonDrifted || got.Live != 1 || got.VerifiedAt != nil || got.Error == "" || got.Failed {
		t.Errorf("drifted to %+v", got)
	}
	if refs, err := s.Segments(ctx, SegmentQuery{Conversation: []byte("c000000"), Limit: 9}); err != nil || len(refs) != 1 || refs[0].Generation != 1 {
		t.Errorf("while it is copied again, reads find %+v, %v", refs, err)
	}
	// The next generation must not have less than warm has lost: all 6 rows were in chunk 0.
	l = claim(t, s, sl.ID, Pending, Copying)
	if err := s.Commit(ctx, l, testCopy(t, sl, 2, l.Attempt(), 1), "k", [32]byte{}); !errors.Is(err, ErrState) {
		t.Errorf("a generation without the deleted rows: %v", err)
	}
	c := testCopy(t, sl, 2, l.Attempt(), 2)
	c.Chunks[0].Warm, c.Chunks[0].Carried = c.Chunks[0].Carried, c.Chunks[0].Warm
	if err := errors.Join(s.Commit(ctx, l, c, "k", [32]byte{}), s.Verified(ctx, l, 2)); err != nil {
		t.Fatal(err)
	}
	if got := states(t, s, sl.ID, 2); got[0] != ChunkPresent {
		t.Errorf("the chunks of the new generation are %v", got)
	}
	// Carried rows are nowhere else: a third generation must have them too.
	if err := s.Reopen(ctx, l, ReasonDrifted); err != nil {
		t.Fatal(err)
	}
	l = claim(t, s, sl.ID, Pending, Copying)
	if err := s.Commit(ctx, l, testCopy(t, sl, 3, l.Attempt(), 1), "k", [32]byte{}); !errors.Is(err, ErrState) {
		t.Errorf("a generation without the carried rows: %v", err)
	}
}

// The name of the staging table outlives its worker; with it, untouched chunks
// count as deleting, and are present again when the table was returned.
func TestStaging(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	verified(t, s, sl, 2)
	l := claim(t, s, sl.ID, Verified, "")
	g, err := s.GrantPurge(ctx, l, 0)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(g.ChunkState(ctx, 3, ChunkDeleting)) // by rows, in doubt: not the staging table's doing
	must(g.Staging(ctx, "coldtier_st"))
	must(g.Staging(ctx, "coldtier_st"))
	wantStates(t, s, sl.ID, ChunkDeleting, ChunkDeleting, ChunkDeleting, ChunkDeleting)
	for name, err := range map[string]error{"another table": g.Staging(ctx, "other"), "give back": g.GiveBack(ctx), "drifted": g.Drifted(ctx, "x")} {
		if !errors.Is(err, ErrState) {
			t.Errorf("%s with a staging table: %v", name, err)
		}
	}
	pause(t, s, l)
	l = claim(t, s, sl.ID, Purging, "")
	if l.Slice().Staging != "coldtier_st" {
		t.Errorf("the next worker finds %q", l.Slice().Staging)
	}
	// Held meanwhile: no grant, but the table can be returned.
	h, err := s.AddHold(ctx, Hold{Kind: HoldSlice, Subject: sl.String(), Reason: "r", By: "b"})
	must(err)
	if _, err := s.GrantPurge(ctx, l, 0); !errors.Is(err, ErrHeld) {
		t.Errorf("grant: %v", err)
	}
	must(l.StagingReturned(ctx))
	wantStates(t, s, sl.ID, ChunkPresent, ChunkPresent, ChunkPresent, ChunkDeleting)
	must(l.GiveBack(ctx))
	must(s.ReleaseHold(ctx, h, "b"))
	// And to the end.
	g, err = s.GrantPurge(ctx, claim(t, s, sl.ID, Verified, ""), 0)
	must(err)
	must(g.Staging(ctx, "coldtier_st2"))
	must(g.Purged(ctx))
	wantStates(t, s, sl.ID, ChunkDeleted, ChunkDeleted, ChunkDeleted, ChunkDeleted)
	if got := slice(t, s, sl.ID); got.State != Purged || got.Staging != "" || got.PurgedAt == nil {
		t.Errorf("purged to %+v", got)
	}
}
