package manifest

import (
	"testing"
	"time"
)

// A slice goes through its whole life, and each step leaves what it says.
func TestLife(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	c := verified(t, s, sl, 5)
	back, err := s.LoadCopy(ctx, sl.ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(c, back); d != "" {
		t.Errorf("the copy comes back otherwise:\n%s", d)
	}
	got, err := s.Segments(ctx, SegmentQuery{Conversation: []byte("c000003"), Limit: 10})
	if err != nil || len(got) != 1 || got[0].Key != c.Objects[3].Key || !got[0].Schema.Equal(c.Schema) {
		t.Fatalf("segments: %+v, %v", got, err)
	}
	l := claim(t, s, sl.ID, Verified, "")
	g, err := s.GrantPurge(ctx, l, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range g.Copy().Chunks {
		if err := g.ChunkState(ctx, i, ChunkDeleting); err != nil {
			t.Fatal(err)
		}
		if err := g.ChunkState(ctx, i, ChunkDeleted); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Purged(ctx); err != nil {
		t.Fatal(err)
	}
	now, err := s.Slice(ctx, sl.ID)
	if err != nil || now.State != Purged || now.PurgedAt == nil || now.Live != 1 || now.LeaseUntil != nil {
		t.Fatalf("after its purge the slice is %+v, %v", now, err)
	}
	sum, err := s.Summary(ctx)
	if err != nil || len(sum.States) != 1 || sum.States[0].State != Purged || sum.States[0].Rows != 15 {
		t.Errorf("summary %+v, %v", sum, err)
	}
}
