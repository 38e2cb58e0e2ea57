package manifest

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/tests/stack"
)

// M3: the answer to the COMMIT is lost, or the COMMIT itself; and the first
// look after it fails as well. In the end there is the copy, once.
func TestLostCommitAnswer(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]struct {
		answer  bool
		refuse  int
		unclear bool // the first call cannot know
	}{
		"answer lost":                   {answer: true},
		"answer lost, server then away": {answer: true, refuse: 20, unclear: true},
		"commit lost":                   {unclear: true},
		"commit lost, then server away": {refuse: 20, unclear: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := proxyTo(t, stack.MySQL(t))
			s := openAt(t, p.dsn, testSource, time.Minute)
			if _, err := s.Migrate(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			sl := testSlice(t, s, 1)
			l := claim(t, s, sl.ID, Pending, Copying)
			s.db.SetMaxIdleConns(0) // so that what follows needs new connections
			c := testCopy(t, l.Slice(), 1, l.Attempt(), 30)
			p.lose(1, fate.answer, fate.refuse)
			err := s.Commit(t.Context(), l, c, "k", [32]byte{})
			if (err != nil) != fate.unclear {
				t.Fatalf("first commit: %v", err)
			}
			for range 30 { // until the server is back
				if err = s.Commit(t.Context(), l, c, "k", [32]byte{}); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatalf("commit again: %v", err)
			}
			if back, err := s.LoadCopy(t.Context(), sl.ID, 1); err != nil || diff(c, back) != "" {
				t.Errorf("the copy came to be %s, %v", diff(c, back), err)
			}
			if err := s.Verified(t.Context(), l, 1); err != nil {
				t.Error(err)
			}
		})
	}
}

// The answers to all other steps may be lost as well: they can be repeated.
func TestLostAnswersElsewhere(t *testing.T) {
	t.Parallel()
	p := proxyTo(t, stack.MySQL(t))
	s := openAt(t, p.dsn, testSource, time.Minute)
	if _, err := s.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	sl := testSlice(t, s, 1)
	l, _ := commitCopy(t, s, sl, 3)
	twice := func(name string, step func() error) {
		t.Helper()
		p.lose(1, true, 0)
		if err := step(); err == nil {
			t.Errorf("%s: the lost answer went unnoticed", name)
		}
		if err := step(); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
	}
	ctx := t.Context()
	twice("verified", func() error { return s.Verified(ctx, l, 1) })
	if err := l.Release(ctx, Verified); err != nil {
		t.Fatal(err)
	}
	g, err := s.GrantPurge(ctx, claim(t, s, sl.ID, Verified, ""), 0)
	if err != nil {
		t.Fatal(err)
	}
	twice("deleting", func() error { return g.ChunkState(ctx, 0, ChunkDeleting) })
	twice("present", func() error { return g.ChunkState(ctx, 0, ChunkPresent) })
	twice("staging", func() error { return g.Staging(ctx, "st") })
	twice("returned", func() error { return g.Staging(ctx, "") })
	for i := range 4 {
		if err := g.ChunkState(ctx, i, ChunkDeleting); err != nil {
			t.Fatal(err)
		}
		twice("deleted", func() error { return g.ChunkState(ctx, i, ChunkDeleted) })
	}
	p.lose(1, true, 0)
	if err := g.Purged(ctx); err == nil {
		t.Error("purged: the lost answer went unnoticed")
	}
	if err := g.Purged(ctx); err != nil {
		t.Errorf("purged again: %v", err)
	}
}

// What a dead worker's unfinished transaction has inserted stands in no one's way.
func TestUnfinishedCommitOfADeadWorkerBlocksNobody(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := ctxIn(t, 40*time.Second) // the server itself would give up after 50
	sl := testSlice(t, s, 1)
	dead := claim(t, s, sl.ID, Pending, Copying)
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	w := &copyWriter{id: sl.ID, token: dead.token, src: src, limit: statementBytes}
	if err := w.write(ctx, tx, testCopy(t, dead.Slice(), 1, dead.Attempt(), 50)); err != nil {
		t.Fatal(err)
	}
	pause(t, s, dead)
	l := claim(t, s, sl.ID, Copying, Copying)
	if err := s.Commit(ctx, l, testCopy(t, l.Slice(), 1, l.Attempt(), 50), "k", [32]byte{}); err != nil {
		t.Error(err)
	}
}

func TestGenerations(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	sl := testSlice(t, s, 1)
	l, c := commitCopy(t, s, sl, 2)
	other := testCopy(t, sl, 1, "another", 2)
	if err := s.Commit(ctx, l, other, "k", [32]byte{}); !errors.Is(err, ErrState) {
		t.Errorf("another attempt as generation 1: %v", err)
	}
	if err := s.Commit(ctx, l, testCopy(t, sl, 2, "another", 2), "k", [32]byte{}); !errors.Is(err, ErrState) {
		t.Errorf("a second commit without a claim: %v", err)
	}
	if err := s.Verified(ctx, l, 2); !errors.Is(err, ErrState) {
		t.Errorf("verified a generation that is not there: %v", err)
	}
	if err := s.Reopen(ctx, l, ReasonMismatch); err != nil {
		t.Fatal(err)
	}
	// Generation 2 is skipped, as when its record in the bucket is damaged.
	l = claim(t, s, sl.ID, Pending, Copying)
	if got := l.Slice().NextGeneration(); got != 2 {
		t.Errorf("next generation %d", got)
	}
	if err := s.Commit(ctx, l, testCopy(t, sl, 1, "another", 2), "k", [32]byte{}); !errors.Is(err, ErrState) {
		t.Errorf("another attempt as generation 1: %v", err)
	}
	if err := s.Commit(ctx, l, testCopy(t, sl, 3, l.Attempt(), 2), "k", [32]byte{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Verified(ctx, l, 1); !errors.Is(err, ErrState) {
		t.Errorf("verified an older generation: %v", err)
	}
	if got := l.Slice(); got.Generation != 3 || got.NextGeneration() != 4 || got.State != Committed {
		t.Errorf("slice %+v", got)
	}
	if back, err := s.LoadCopy(ctx, sl.ID, 1); err != nil || diff(c, back) != "" {
		t.Errorf("generation 1 became %s, %v", diff(c, back), err)
	}
	if _, err := s.LoadCopy(ctx, sl.ID, 2); !errors.Is(err, ErrNotFound) {
		t.Errorf("generation 2: %v", err)
	}
}

// 64-bit extremes, NUL bytes, the longest conversation and an absolute key come
// back as they were, from the store and from the record.
func TestExtremes(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	sl := Slice{SliceKey: testKey(1), Lo: 0, Hi: math.MaxUint64}
	if _, err := s.Ensure(t.Context(), []Slice{sl}); err != nil {
		t.Fatal(err)
	}
	all, err := s.Slices(t.Context(), Filter{})
	if err != nil || all[0].Hi != math.MaxUint64 {
		t.Fatal(all, err)
	}
	l := claim(t, s, all[0].ID, Pending, Copying)
	f := message.Fingerprint{Hi: math.MaxUint64, Lo: 1 << 63, Rows: 2}
	c := testCopy(t, l.Slice(), math.MaxUint32, l.Attempt(), 0)
	c.Chunks = []Chunk{{From: 0, To: math.MaxUint64, Warm: f, Carried: message.Fingerprint{Hi: 1, Lo: math.MaxUint64, Rows: 1}, State: ChunkPresent}}
	c.ShowCreate = "x" + sumMark + strings.Repeat("0", sumDigits) + "\x00'\"\\ \u2028 é 🙂"
	group := segment.RowGroup{Extent: segment.Extent{Offset: math.MaxInt64, Length: 1, Sum: [16]byte{255, 0, 39, 92}}, Rows: 3, MaxCursor: math.MaxUint64}
	c.Objects = []Object{{Key: "elsewhere/a'b\\c.parquet", File: segment.File{Version: 1, Size: math.MaxInt64, SHA256: [32]byte{31: 0xff}, Rows: 3,
		Footer: group.Extent, RowGroups: []segment.RowGroup{group, group}},
		Segs: []segment.Span{
			{Conversation: []byte{0, '\'', '\\', 0xff, 0x80, '"', '\n', 0x1a}, Rows: 1, MinCursor: math.MaxUint64, MaxCursor: math.MaxUint64, Fingerprint: message.Fingerprint{Hi: 1, Lo: math.MaxUint64, Rows: 1}},
			{Conversation: bytes.Repeat([]byte{0xff}, MaxConversation), FirstRow: 1, Rows: 2, MinCursor: 0, MaxCursor: 1 << 63, LastGroup: 1, Fingerprint: f},
		}}}
	if err := s.Commit(t.Context(), l, c, "k", [32]byte{}); err != nil {
		t.Fatal(err)
	}
	back, err := s.LoadCopy(t.Context(), l.id, c.Generation)
	if err != nil || diff(c, back) != "" {
		t.Errorf("from the store: %s, %v", diff(c, back), err)
	}
	if back, err = DecodeRecord(encode(t, c)); err != nil || diff(c, back) != "" {
		t.Errorf("from the record: %s, %v", diff(c, back), err)
	}
	if err := s.Verified(t.Context(), l, c.Generation); err != nil {
		t.Fatal(err)
	}
	for _, sp := range c.Objects[0].Segs {
		got, err := s.Segments(t.Context(), SegmentQuery{Conversation: sp.Conversation, Limit: 2})
		if err != nil || len(got) != 1 || got[0].Key != c.Objects[0].Key || got[0].Span.MaxCursor != sp.MaxCursor {
			t.Errorf("segments of %q: %+v, %v", sp.Conversation, got, err)
		}
	}
}

// A copy that contradicts itself is refused before anything is written.
func TestContradictingCopiesAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	sl := testSlice(t, s, 1)
	l := claim(t, s, sl.ID, Pending, Copying)
	for name, spoil := range map[string]func(c *Copy){
		"another slice":       func(c *Copy) { c.Shard.Table = "x" },
		"another range":       func(c *Copy) { c.Hi++; c.Chunks[3].To++ },
		"a gap":               func(c *Copy) { c.Chunks[1].From++ },
		"a chunk too short":   func(c *Copy) { c.Chunks[3].To-- },
		"chunks out of order": func(c *Copy) { c.Chunks[0], c.Chunks[1] = c.Chunks[1], c.Chunks[0] },
		"no chunks":           func(c *Copy) { c.Chunks = nil },
		"rows no segment has": func(c *Copy) { c.Chunks[0].Warm.Rows++ },
		"another fingerprint": func(c *Copy) { c.Objects[0].Segs[0].Fingerprint.Hi++ },
		"a file with more":    func(c *Copy) { c.Objects[0].File.Rows++ },
		"no attempt":          func(c *Copy) { c.Attempt = "" },
		"generation 0":        func(c *Copy) { c.Generation = 0 },
		"a group too far":     func(c *Copy) { c.Objects[0].Segs[0].LastGroup = 1 },
		"no key":              func(c *Copy) { c.Objects[0].Key = "" },
		"a long conversation": func(c *Copy) { c.Objects[0].Segs[0].Conversation = make([]byte, MaxConversation+1) },
		"no schema":           func(c *Copy) { c.Schema = nil },
	} {
		c := testCopy(t, sl, 1, l.Attempt(), 2)
		spoil(c)
		err := s.Commit(t.Context(), l, c, "k", [32]byte{})
		if err == nil {
			t.Fatalf("%s: taken", name)
		}
		if name == "a long conversation" != errors.Is(err, ErrConversation) {
			t.Errorf("%s: %v", name, err)
		}
		if name != "another slice" && name != "another range" && EncodeRecord(&bytes.Buffer{}, c) == nil {
			t.Errorf("%s: taken into a record", name)
		}
	}
	if err := s.Commit(t.Context(), l, testCopy(t, sl, 1, l.Attempt(), 2), "k", [32]byte{}); err != nil {
		t.Error(err)
	}
}

// Statements stay below the server's packet, and a row longer than a statement goes alone.
func TestStatementsStaySmall(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	s.packet = 64 << 10
	sl := testSlice(t, s, 1)
	l := claim(t, s, sl.ID, Pending, Copying)
	c := testCopy(t, sl, 1, l.Attempt(), 400)
	g := c.Objects[7].File.RowGroups[0]
	for range 5000 {
		c.Objects[7].File.RowGroups = append(c.Objects[7].File.RowGroups, g)
	}
	if err := s.Commit(t.Context(), l, c, "k", [32]byte{}); err != nil {
		t.Fatal(err)
	}
	if back, err := s.LoadCopy(t.Context(), sl.ID, 1); err != nil || diff(c, back) != "" {
		t.Errorf("the copy came to be %s, %v", diff(c, back), err)
	}
}
