package manifest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
)

// answers is what readers of committed data are given.
type answers struct {
	Segments   []SegmentRef
	Boundaries []Boundary
	Statuses   []Status
}

func answersOf(t *testing.T, s *Store, convs ...string) (a answers) {
	t.Helper()
	var names [][]byte
	for _, c := range convs {
		names = append(names, []byte(c))
		refs, err1 := s.Segments(t.Context(), SegmentQuery{Conversation: []byte(c), Limit: 100})
		sts, err2 := s.Statuses(t.Context(), StatusQuery{Conversation: []byte(c), Limit: 100})
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		a.Segments, a.Statuses = append(a.Segments, refs...), append(a.Statuses, sts...)
	}
	var err error
	if a.Boundaries, err = s.Boundaries(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	return a
}

func versions(t *testing.T, s *Store) Versions {
	t.Helper()
	v, err := s.Versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Whatever is done to slices and statuses, in any order and with any outcome: when an
// answer to readers differs, its version differs. And no version is used twice.
func TestNoAnswerChangesWithoutItsVersion(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	s := open(t, time.Minute)
	ctx := t.Context()
	const days = 3
	var ids []uint64
	for day := 1; day <= days; day++ {
		ids = append(ids, testSlice(t, s, day).ID)
	}
	leases := map[uint64]*Lease{}
	grants := map[uint64]*PurgeGrant{}
	granted, puts := false, -1
	carry := func() bool { return granted && r.IntN(4) == 0 } // or no grant ever changes a thing
	commit := func(id uint64) error {
		sl := slice(t, s, id)
		c := testCopy(t, sl, sl.NextGeneration(), leases[id].Attempt(), 2)
		if carry() {
			c.Chunks[0].Warm, c.Chunks[0].Carried = message.Fingerprint{}, c.Chunks[0].Warm
		}
		if r.IntN(2) == 0 {
			c.Statuses = []FoldedStatus{{Status: Status{Conversation: []byte("c000001"), MessageID: sl.Lo + 1, Kind: StatusEdited, Value: new("1"), By: "a", At: time.Unix(1, 0)}, Original: &Original{Value: []byte("0")}}}
		}
		return s.Commit(ctx, leases[id], c, RecordKey(c.SliceKey, c.Generation), [32]byte{1})
	}
	type op struct {
		name string
		run  func(id uint64) error
	}
	ops := []op{
		{"claim", func(id uint64) error {
			sl := slice(t, s, id)
			to := sl.State
			if to == Pending {
				to = Copying
			}
			l, err := s.Claim(ctx, id, "w", []State{sl.State}, to)
			if err == nil {
				leases[id] = l
			}
			return err
		}},
		{"renew", func(id uint64) error { return leases[id].Renew(ctx) }},
		{"release", func(id uint64) error { return leases[id].Release(ctx, slice(t, s, id).State) }},
		{"commit", commit},
		{"verified", func(id uint64) error { return s.Verified(ctx, leases[id], slice(t, s, id).Generation) }},
		{"fail", func(id uint64) error { return s.Fail(ctx, leases[id], errors.New("x")) }},
		{"reopen", func(id uint64) error { return s.Reopen(ctx, leases[id], ReasonDrifted) }},
		{"late", func(id uint64) error { return s.ReopenLate(ctx, id) }},
		{"grant", func(id uint64) error {
			g, err := s.GrantPurge(ctx, leases[id], 0)
			if err == nil {
				grants[id], granted = g, true
			}
			return err
		}},
		{"grant too early", func(id uint64) error { _, err := s.GrantPurge(ctx, leases[id], time.Hour); return err }},
		{"check", func(id uint64) error { return grants[id].Check(ctx) }},
		{"staging", func(id uint64) error { return grants[id].Staging(ctx, "st") }},
		{"returned", func(id uint64) error { return leases[id].StagingReturned(ctx) }},
		{"give back", func(id uint64) error { return leases[id].GiveBack(ctx) }},
		{"drifted", func(id uint64) error { return grants[id].Drifted(ctx, "x") }},
		{"chunk", func(id uint64) error { return grants[id].ChunkState(ctx, r.IntN(4), ChunkDeleting) }},
		{"purged", func(id uint64) error {
			for i := range 4 {
				_ = grants[id].ChunkState(ctx, i, ChunkDeleting)
				_ = grants[id].ChunkState(ctx, i, ChunkDeleted)
			}
			return grants[id].Purged(ctx)
		}},
		{"hold", func(id uint64) error {
			h, err := s.AddHold(ctx, Hold{Kind: HoldSlice, Subject: slice(t, s, id).String(), Reason: "r", By: "b"})
			return errors.Join(err, s.ReleaseHold(ctx, h, "b"))
		}},
		{"ensure", func(uint64) error {
			_, err := s.Ensure(ctx, []Slice{{SliceKey: testKey(days + 1), Lo: 4000, Hi: 5000}})
			return err
		}},
		{"status", func(id uint64) error {
			kinds := []StatusKind{StatusRecalled, StatusNone, StatusDeleted}
			puts++
			_, err := s.PutStatus(ctx, Status{Conversation: []byte("c000001"), MessageID: slice(t, s, id).Lo + 1, Kind: kinds[puts%3]})
			return err
		}},
	}
	// Slices mostly go on, so that all states are met.
	next := map[State]string{Copying: "commit", Committed: "verified", Verified: "grant", Purging: "purged", Purged: "late"}
	named := func(name string) op { return ops[slices.IndexFunc(ops, func(o op) bool { return o.name == name })] }
	seen := map[Versions]bool{}
	changes := map[string]int{}
	was, v := answersOf(t, s, "c000001"), versions(t, s)
	script := []string{"claim", "commit", "verified", "grant", "status"} // of the first slice
	for i := range 150 {
		id := ids[r.IntN(days)]
		do := ops[r.IntN(len(ops))]
		if want := next[slice(t, s, id).State]; want != "" && r.IntN(3) == 0 {
			do = named(want)
		}
		if i < len(script) {
			id, do = ids[0], named(script[i])
		}
		if leases[id] == nil && do.name != "claim" {
			continue
		}
		err := do.run(id)
		now, nv := answersOf(t, s, "c000001"), versions(t, s)
		nv.Moves = v.Moves // see TestMoving
		opts := []cmp.Option{cmp.Comparer(func(a, b snowflake.Day) bool { return a == b }), cmp.Comparer(func(a, b *message.Schema) bool { return a.Equal(b) })}
		d1 := cmp.Diff(was.Segments, now.Segments, opts...) + cmp.Diff(was.Boundaries, now.Boundaries)
		d2 := cmp.Diff(was.Statuses, now.Statuses)
		if d1 != "" && nv.Live == v.Live || d2 != "" && nv.Status == v.Status {
			t.Fatalf("%s (%v) changed no version but answers:\n%s%s", do.name, err, d1, d2)
		}
		if nv != v {
			if seen[nv] || nv.Live < v.Live || nv.Status < v.Status {
				t.Fatalf("%s: versions went from %+v to %+v", do.name, v, nv)
			}
			changes[do.name]++
			if d1 == "" && d2 == "" && !slices.Contains([]string{"commit", "verified", "status"}, do.name) {
				t.Errorf("%s (%v) changed versions from %+v to %+v and no answer", do.name, err, v, nv)
			}
		}
		seen[nv], was, v = true, now, nv
	}
	t.Log(changes)
	for _, name := range []string{"verified", "grant", "status"} {
		if changes[name] == 0 {
			t.Errorf("%s has changed nothing: the test is none", name)
		}
	}
}

// A source that no one has entered has no versions, and each source has its own.
func TestVersionsAreOfOneSource(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	other := &Store{db: s.db, log: s.log, source: "other", ttl: s.ttl, schemas: map[string]*message.Schema{}}
	if v := versions(t, other); v != (Versions{}) {
		t.Errorf("an unknown source has %+v", v)
	}
	verified(t, s, testSlice(t, s, 1), 1)
	if _, err := other.PutStatus(t.Context(), Status{Conversation: []byte("a"), MessageID: 1, Kind: StatusDeleted}); err != nil {
		t.Fatal(err)
	}
	a, b := versions(t, s), versions(t, other)
	if a.Live == 0 || a.Status != 0 || b.Live != 0 || b.Status == 0 {
		t.Errorf("versions %+v and %+v", a, b)
	}
	if got, err := s.Statuses(t.Context(), StatusQuery{Conversation: []byte("a"), Limit: 1}); err != nil || len(got) > 0 {
		t.Errorf("the status of another source: %+v, %v", got, err)
	}
	// Set back to a backup, a source goes on with numbers that were never used.
	if _, err := s.db.ExecContext(t.Context(), "UPDATE sources SET live_version = live_version DIV 2 WHERE name = ?", testSource); err != nil {
		t.Fatal(err)
	}
	verified(t, s, testSlice(t, s, 2), 1)
	if v := versions(t, s); v.Live <= a.Live {
		t.Errorf("version %d comes after %d", v.Live, a.Live)
	}
}

// Moving has the staging tables in use, and its version changes with each note of one,
// under whatever lease, so that a table that was exchanged and given back while one looked
// away is not missed.
func TestMoving(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	last := uint64(0)
	want := func(changed bool, inUse ...Staging) {
		t.Helper()
		m, err := s.Moving(ctx)
		if err != nil || !slices.Equal(m.InUse, inUse) || (m.Version != last) != changed {
			t.Errorf("moving %+v after version %d, want %v (changed %v): %v", m, last, inUse, changed, err)
		}
		if v := versions(t, s); v.Moves != m.Version {
			t.Errorf("moves of version %d, and %d", m.Version, v.Moves)
		}
		last = m.Version
	}
	want(false)
	sl := testSlice(t, s, 1)
	verified(t, s, sl, 1)
	want(false)
	g, err := s.GrantPurge(ctx, claim(t, s, sl.ID, Verified, ""), 0)
	if err != nil {
		t.Fatal(err)
	}
	want(false)
	st := Staging{sl.Shard, "st"}
	for range 2 { // out and back, twice under one lease
		if err := g.Staging(ctx, "st"); err != nil {
			t.Fatal(err)
		}
		want(true, st)
		if err := g.Staging(ctx, "st"); err != nil { // noted again by who goes on with it
			t.Fatal(err)
		}
		want(true, st)
		if err := g.Staging(ctx, ""); err != nil {
			t.Fatal(err)
		}
		want(true)
	}
	if err := g.Staging(ctx, "st"); err != nil {
		t.Fatal(err)
	}
	want(true, st)
	if err := g.Purged(ctx); err != nil {
		t.Fatal(err)
	}
	want(false) // nothing comes back
}
