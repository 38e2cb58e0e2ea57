package archive

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

func lined(servers map[string]string, works ...Work) *queue {
	return newQueue(&Archiver{Deps: Deps{Owner: "pod/1", Clock: time.Now}}, works, servers)
}

func workOf(db, table string, day, interrupted int) Work {
	return Work{Action: ActionCopy, Slice: manifest.Slice{SliceKey: manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: db, Table: table}, Day: snowflake.MakeDay(2026, 5, day)}, Interrupted: interrupted}}
}

// What was interrupted for time comes first, then the oldest day, and of lines at the same
// day the one with the fewest slices in work.
func TestOrderOfWork(t *testing.T) {
	t.Parallel()
	q := lined(map[string]string{"a": "x", "b": "y", "c": "y"}, workOf("a", "m", 1, 0), workOf("a", "m", 2, 0), workOf("b", "m", 2, 0), workOf("c", "m", 2, 0), workOf("c", "m", 3, 0), workOf("b", "big", 9, 2))
	if len(q.lines) != 2 {
		t.Fatalf("%d lines of two servers", len(q.lines))
	}
	x, y := q.lines[0], q.lines[1]
	if len(x.days) != 2 || len(y.days) != 3 || len(y.days[1].work) != 2 || y.days[0].work[0].Shard.Table != "big" || y.compare(x) >= 0 {
		t.Errorf("lines %+v and %+v", x.days, y.days)
	}
	y.days = y.days[1:]
	if x.compare(y) >= 0 {
		t.Error("the older day is not first")
	}
	x.days = x.days[1:]
	x.active = 1
	if y.compare(x) >= 0 {
		t.Error("the server with more slices in work is first")
	}
}

// Runs begin with different slices of a day.
func TestRunsDoNotAllBeginWithTheSameSlice(t *testing.T) {
	t.Parallel()
	var works []Work
	for i := range 64 {
		works = append(works, workOf("a", string(rune('A'+i)), 1, 0))
	}
	first := map[string]int{}
	for i := range 32 {
		q := newQueue(&Archiver{Deps: Deps{Owner: "pod-" + string(rune('a'+i)) + "/1"}}, slices.Clone(works), map[string]string{"a": "x"})
		first[q.lines[0].days[0].work[0].Shard.Table]++
	}
	if len(first) < 20 { // 25 are to be expected
		t.Errorf("32 runs begin with %d slices", len(first))
	}
}

// A slot that is lost ends what is done by it; one that was given back does not.
func TestLostSlotEndsTheScan(t *testing.T) {
	t.Parallel()
	dsn := stack.MySQL(t)
	m, err := manifest.Open(t.Context(), manifest.Config{DSN: dsn, Source: "im", LeaseTTL: 5 * time.Second}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	db := stack.OpenMySQL(t, dsn)
	q := newQueue(&Archiver{Deps: Deps{Manifest: m, Owner: "pod/1", Clock: time.Now, Log: slog.New(slog.DiscardHandler)}, cfg: Config{PerServer: 1}}, nil, nil)
	w := workOf("im_00", "msg_00", 1, 0)
	take := func() *slot {
		t.Helper()
		s, err := q.slot(t.Context(), "x", &w)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := take()
	if _, err := q.slot(t.Context(), "x", &w); !errors.Is(err, manifest.ErrServerFull) {
		t.Errorf("a second slot of one: %v", err)
	}
	given, end := s.keep(t.Context())
	defer end()
	s.release(t.Context())
	s.release(t.Context())
	s = take()
	kept, end2 := s.keep(t.Context())
	defer end2()
	if _, err := db.Exec("UPDATE server_slots SET fence = fence + 1"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-kept.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("not told")
	}
	if !errors.Is(context.Cause(kept), manifest.ErrSlotLost) || given.Err() != nil {
		t.Errorf("%v, %v", context.Cause(kept), given.Err())
	}
	var none *slot // what needs no slot
	ctx, end3 := none.keep(t.Context())
	defer end3()
	none.release(ctx)
	if s, err := q.slot(t.Context(), "x", &Work{Action: ActionVerify}); s != nil || err != nil {
		t.Errorf("verifying takes a slot: %v, %v", s, err)
	}
}

// How far a slice is stands in the manifest while it is in work, and no longer.
func TestProgressOfASlice(t *testing.T) {
	t.Parallel()
	l := newFoldLab(t, message.Column{Kind: message.Text})
	ctx := t.Context()
	if _, err := l.m.Ensure(ctx, []manifest.Slice{{SliceKey: workOf("im_00", "msg_00", 1, 0).SliceKey, Lo: 1000, Hi: 2000}}); err != nil {
		t.Fatal(err)
	}
	all, err := l.m.Slices(ctx, manifest.Filter{})
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	lease, err := l.m.Claim(ctx, all[0].ID, "pod/1", []manifest.State{manifest.Pending}, manifest.Copying)
	if err != nil {
		t.Fatal(err)
	}
	j := l.a.track(ctx, lease, nil, NoProgress{})
	b := message.NewBatch(l.warm.schema)
	for _, id := range []string{"1000", "1001"} {
		if err := b.Append([][]byte{[]byte(id), []byte("c"), nil, []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	j.chunk(&message.Chunk{From: 1000, To: 1250, Batch: b})
	j.note(ctx)
	look := func() manifest.SliceProgress {
		t.Helper()
		p, err := l.m.Progress(ctx)
		if err != nil || len(p) != 1 {
			t.Fatalf("progress %v, %v", p, err)
		}
		return p[0]
	}
	if p := look(); p.Stage != manifest.StageScan || p.Rows != 2 || p.OfRows != 8 || p.Bytes == 0 || p.OfBytes != 4*p.Bytes || p.Share() != 0.25 || p.Worker != "pod/1" {
		t.Errorf("scan %+v", p)
	}
	j.begin(manifest.StageStore, 2, 0)
	j.put(1, 700)
	j.note(ctx)
	if p := look(); p.Stage != manifest.StageStore || p.Rows != 1 || p.OfRows != 2 || p.Objects != 1 || p.Bytes != 700 {
		t.Errorf("store %+v", p)
	}
	j.end(ctx)
	if p, err := l.m.Progress(ctx); err != nil || len(p) != 0 {
		t.Errorf("after the end: %v, %v", p, err)
	}
}
