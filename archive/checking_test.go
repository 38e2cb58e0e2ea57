package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/copies"
)

// shelf is a small cold tier whose objects are read through a counter.
type shelf struct {
	*copies.Tier
	t      *testing.T
	all    []*manifest.Copy
	mu     sync.Mutex
	gets   map[string]int
	rows   map[manifest.CopyID]int
	before func(key string) error // called before each object is given, without the lock
}

var shelfShard = manifest.Shard{Database: "im_00", Table: "msg"}

// newShelf commits slices of so many conversations, each an object.
func newShelf(t *testing.T, conversations ...int) *shelf {
	t.Helper()
	s := &shelf{Tier: copies.New(t), t: t, gets: map[string]int{}, rows: map[manifest.CopyID]int{}}
	schema, err := message.NewSchema([]message.Column{{Name: "id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "conv", Kind: message.Text, SourceType: "varchar(64)", Charset: "utf8mb4"}, {Name: "body", Kind: message.Bytes, SourceType: "blob"}},
		map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv"})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range conversations {
		day := snowflake.MakeDay(2024, 3, 1+i)
		lo, _, err := copies.Layout().Window(day, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		var rows [][][]byte
		for j := range 3 * n {
			rows = append(rows, [][]byte{fmt.Appendf(nil, "%d", lo+uint64(j)), fmt.Appendf(nil, "c%03d", j%n), bytes.Repeat([]byte{byte(j)}, 50)})
		}
		s.all = append(s.all, s.Commit(copies.Copy{Shard: shelfShard, Day: day, Schema: schema, Rows: rows}))
	}
	return s
}

func (s *shelf) Put(context.Context, string, io.ReadSeeker, int64, [32]byte, bool) error {
	return errors.New("a verification puts nothing")
}

func (s *shelf) Get(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil && strings.Contains(key, "conv=") {
		if err := before(key); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	s.gets[key]++
	s.mu.Unlock()
	b, err := s.Bucket.Get(ctx, key)
	for of, is := range map[error]error{bucket.ErrNotFound: archive.ErrNotFound, bucket.ErrCorrupt: archive.ErrDamaged} {
		if errors.Is(err, of) {
			err = fmt.Errorf("%w: %w", is, err)
		}
	}
	return b, err
}

// rowsOf is ClickHouse with a counter.
type rowsOf struct{ *shelf }

func (r rowsOf) Fit(context.Context, []*message.Schema) error { return nil }

func (r rowsOf) Insert(context.Context, manifest.CopyID, *message.Schema) (archive.RowWriter, error) {
	return nil, errors.New("a verification inserts nothing")
}

func (r rowsOf) ReadCopy(ctx context.Context, id manifest.CopyID, sc *message.Schema, fn func(*message.Batch) error) error {
	r.mu.Lock()
	r.shelf.rows[id]++
	r.mu.Unlock()
	return r.Tier.ReadCopy(ctx, id, sc, fn)
}

func (s *shelf) verifier(owner string) *archive.Verifier {
	return archive.NewVerifier(archive.Deps{Manifest: s.Store, Objects: s, Rows: rowsOf{s}, Layout: copies.Layout(), Zone: time.UTC, Source: "im", Owner: owner,
		Clock: time.Now, Log: slog.New(slog.DiscardHandler)}, archive.Config{Workers: 1})
}

func (s *shelf) run(c archive.Checking) (*archive.Due, *archive.VerifyReport) {
	s.t.Helper()
	v := s.verifier("a")
	d, err := v.Due(s.t.Context(), archive.Selection{}, c)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := v.RunDue(s.t.Context(), d, archive.NoProgress{})
	if err != nil {
		s.t.Fatal(err)
	}
	return d, r
}

// read gives what was read since the last call, and how often at most.
func (s *shelf) read() (objects, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range s.gets {
		if strings.Contains(k, "conv=") {
			objects, most = objects+1, max(most, n)
		}
	}
	for _, n := range s.rows {
		most = max(most, n)
	}
	clear(s.gets)
	clear(s.rows)
	return objects, most
}

func (s *shelf) coverage() manifest.Coverage {
	s.t.Helper()
	c, err := s.Store.Coverage(s.t.Context(), time.Hour, time.Microsecond)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *shelf) bytes() (n int64) {
	for _, c := range s.all {
		n += c.Bytes()
	}
	return n
}

// What was read within the window is not read again, and everything is read once it is older.
func TestWhatWasReadLatelyIsNotReadAgain(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 3, 2, 4)
	if c := s.coverage(); c.Slices != 3 || c.Never.Slices != 3 || c.Never.Bytes != uint64(s.bytes()) || c.Oldest.Day != s.all[0].Day || c.Oldest.GoodAt != nil {
		t.Errorf("before: %+v", c)
	}
	d, r := s.run(archive.Checking{OlderThan: time.Hour})
	if n, most := s.read(); n != 9 || most != 1 || len(r.Equal) != 3 || r.BytesRead != s.bytes() || d.Bytes != s.bytes() {
		t.Errorf("the first run read %d objects up to %d times: %+v", n, most, r)
	}
	if c := s.coverage(); c.Never.Slices != 0 || c.Older[0].Slices != 0 || c.Older[0].Bytes != 0 || c.Older[1].Slices != 3 || c.Older[1].Bytes != uint64(s.bytes()) || c.Oldest.GoodAt == nil {
		t.Errorf("after: %+v", c)
	}
	if d, r := s.run(archive.Checking{OlderThan: time.Hour}); len(d.Checks) != 0 || len(r.Equal) != 0 {
		t.Errorf("the second run: %+v %+v", d, r)
	}
	if n, _ := s.read(); n != 0 {
		t.Errorf("%d objects were read within the window", n)
	}
	s.run(archive.Checking{OlderThan: time.Microsecond})
	if n, most := s.read(); n != 9 || most != 1 {
		t.Errorf("later %d objects were read, up to %d times", n, most)
	}
	// An ordinary run reads all, and counts.
	list, err := s.verifier("a").Plan(t.Context(), archive.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	was := s.coverage()
	if r, err := s.verifier("a").Run(t.Context(), list, archive.NoProgress{}); err != nil || len(r.Equal) != 3 {
		t.Fatal(r, err)
	}
	if n, _ := s.read(); n != 9 || !s.coverage().Oldest.GoodAt.After(*was.Oldest.GoodAt) {
		t.Errorf("%d objects were read, the oldest check is of %s", n, s.coverage().Oldest.GoodAt)
	}
}

// Budgets cover everything once in a round, a slice that is bigger than one in several
// runs, and an object that is bigger than one alone.
func TestABudgetIsKeptAndCoversAll(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 10, 2, 2)
	size := int64(0)
	for _, o := range s.all[0].Objects {
		size = max(size, o.File.Size)
	}
	for round, budget := range []int64{4 * size, 1} { // a byte: every object is bigger
		seen, runs := map[string]int{}, 0
		var seed uint64
		for ; ; runs++ {
			d, r := s.run(archive.Checking{Budget: budget, Seed: uint64(100*round + runs)})
			if runs == 0 {
				seed = d.Round.Seed
			}
			if d.Round.Seed != seed { // the next round
				break
			}
			if r.BytesRead > max(budget, size) {
				t.Errorf("%d bytes were read, the budget is %d", r.BytesRead, budget)
			}
			if r.BytesRead == 0 || runs > 20 {
				t.Fatalf("run %d read nothing, and the round is not over: %+v %+v", runs, d, r)
			}
			s.mu.Lock()
			for k, n := range s.gets {
				seen[k] += n
			}
			s.mu.Unlock()
			if _, most := s.read(); most > 1 {
				t.Error("something was read twice in a run")
			}
			if c := s.coverage(); runs == 0 && round == 0 && (c.Never.Slices != 3 || c.Never.Bytes != uint64(s.bytes()-r.BytesRead)) {
				t.Errorf("after the first run, of %d bytes: %+v", r.BytesRead, c.Never)
			}
		}
		objects := 0
		for k, n := range seen {
			if strings.Contains(k, "conv=") {
				if objects++; n != 1 {
					t.Errorf("%s was read %d times in a round", k, n)
				}
			}
		}
		if c := s.coverage(); objects != 14 || c.Never.Slices != 0 || c.Never.Bytes != 0 {
			t.Errorf("%d objects were read in a round of %d runs: %+v", objects, runs, c)
		}
		if want := []int{4, 14}[round]; runs < want {
			t.Errorf("%d runs", runs)
		}
		s.read()
		// The run that began the next round read a little of it: end that one.
		for s.run(archive.Checking{Sample: archive.Fraction{Of: 1, All: 1}}); ; {
			if d, _ := s.run(archive.Checking{Sample: archive.Fraction{Of: 1, All: 1}}); d.Round.Seed == 0 {
				break
			}
		}
		s.read()
	}
}

// Samples of a quarter cover everything in four, each slice once, whatever the seed.
func TestSamplesCoverAll(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 1, 1, 1, 1, 1, 1, 1)
	c := archive.Checking{Sample: archive.Fraction{Of: 1, All: 4}, Seed: 7}
	var order []string
	for range 4 {
		d, r := s.run(c)
		if d.Round.Seed != 7 || len(r.Equal) > 2 || len(r.Different)+len(r.Unknown) > 0 {
			t.Errorf("%+v %+v", d.Round, r)
		}
		for _, o := range r.Equal {
			order = append(order, o.Slice.Day.String())
		}
		c.Seed = 8 // counts in the next round
	}
	if n, most := s.read(); n != 7 || most != 1 || len(order) != 7 {
		t.Errorf("%d objects were read, up to %d times, in the order %v", n, most, order)
	}
	if slices.IsSorted(order) {
		t.Errorf("the order is no random one: %v", order)
	}
	if d, r := s.run(c); d.Round.Seed != 8 || len(r.Equal) != 2 {
		t.Errorf("the next round: %+v %+v", d.Round, r)
	}
}

// What is damaged is named with its object and rows, does not keep the rest from being
// checked, and is read by every run until it is right.
func TestDamageIsNamedUntilItIsRight(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 5, 3, 1)
	window := archive.Checking{OlderThan: time.Hour}
	flipped, lost := s.all[0].Objects[2], s.all[0].Objects[4]
	original, err := s.Bucket.Get(t.Context(), lost.Key)
	if err != nil {
		t.Fatal(err)
	}
	flip := func(b []byte) []byte { b[flipped.File.RowGroups[0].Offset+3] ^= 1; return b }
	if err := s.Bucket.Damage(flipped.Key, flip); err != nil {
		t.Fatal(err)
	}
	if err := s.Bucket.Delete(t.Context(), lost.Key); err != nil {
		t.Fatal(err)
	}
	changed := s.all[1].ID()
	var kept [][][]byte
	if err := s.ReadCopy(t.Context(), changed, s.all[1].Schema, func(b *message.Batch) error {
		for i := range b.Len() {
			var row [][]byte
			for _, v := range b.Row(nil, i) {
				row = append(row, bytes.Clone(v))
			}
			kept = append(kept, row)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	spoilt := slices.Clone(kept)
	spoilt[4] = [][]byte{kept[4][0], kept[4][1], []byte("other")}
	s.SpoilRows(changed, spoilt)
	for try := range 2 {
		_, r := s.run(window)
		if len(r.Different) != 2 || len(r.Different[0].Damaged) != 2 || !errors.Is(r.Err(), archive.ErrMismatch) {
			t.Fatalf("run %d: %+v", try, r)
		}
		got := r.Different[0].Damaged
		for _, d := range got {
			if d.FirstRow != 0 || d.Rows != 3 || d.Key != flipped.Key && d.Key != lost.Key {
				t.Errorf("%+v", d)
			}
		}
		for _, w := range []string{flipped.Key + ": rows [0, 3)", lost.Key + ": rows [0, 3)", `ClickHouse: `, fmt.Sprintf("%q", kept[4][1])} {
			if !strings.Contains(r.Err().Error(), w) {
				t.Errorf("no %s in %v", w, r.Err())
			}
		}
		if strings.Contains(r.Err().Error(), "other") {
			t.Error("a body is in the error")
		}
		n, most := s.read()
		if want := []int{5 + 3 + 1, 2}[try]; n > want || most != 1 {
			t.Errorf("run %d read %d objects, up to %d times, want %d", try, n, most, want)
		}
	}
	if c := s.coverage(); len(c.Different) != 2 || c.Never.Slices != 2 || c.Never.Bytes != uint64(flipped.File.Size+lost.File.Size) {
		t.Errorf("%+v", c)
	}
	if err := s.Bucket.Damage(flipped.Key, flip); err != nil {
		t.Fatal(err)
	}
	if err := s.Bucket.Put(t.Context(), lost.Key, bytes.NewReader(original), int64(len(original)), bucket.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	s.SpoilRows(changed, kept)
	if _, r := s.run(window); len(r.Equal) != 2 || r.Err() != nil {
		t.Errorf("mended: %+v", r)
	}
	if n, _ := s.read(); n != 2 {
		t.Errorf("%d objects were read, want the two that were mended", n)
	}
	if c := s.coverage(); len(c.Different) != 0 || c.Never.Slices != 0 || c.Older[0].Bytes != 0 {
		t.Errorf("%+v", c)
	}
}

// A bucket that does not answer says nothing about the objects, and what was read before
// it went away is not read again.
func TestARunThatIsCutOffGoesOn(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 40)
	gone := errors.New("no route to host")
	left := 15
	s.before = func(string) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if left--; left < 0 {
			return gone
		}
		return nil
	}
	_, r := s.run(archive.Checking{OlderThan: time.Hour})
	if len(r.Unknown) != 1 || !errors.Is(r.Err(), gone) || errors.Is(r.Err(), archive.ErrMismatch) {
		t.Fatalf("%+v", r)
	}
	first, _ := s.read()
	s.before = nil
	if _, r := s.run(archive.Checking{OlderThan: time.Hour}); r.Err() != nil || len(r.Equal) != 1 {
		t.Fatalf("%+v", r)
	}
	if second, _ := s.read(); first == 0 || first+second != 40 {
		t.Errorf("%d and then %d objects were read, of 40", first, second)
	}
	if c := s.coverage(); c.Never.Slices != 0 {
		t.Errorf("%+v", c)
	}
}

// Two at once read nothing twice, and together all of it.
func TestTwoAtOnceReadNothingTwice(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 3, 3, 3, 3)
	c := archive.Checking{OlderThan: time.Hour}
	inside, goOn := make(chan struct{}), make(chan struct{})
	var begun atomic.Bool
	s.before = func(string) error {
		if begun.CompareAndSwap(false, true) {
			close(inside)
			<-goOn
		}
		return nil
	}
	first := make(chan *archive.VerifyReport)
	a, b := s.verifier("a"), s.verifier("b")
	due := func(v *archive.Verifier) *archive.Due {
		d, err := v.Due(t.Context(), archive.Selection{}, c)
		if err != nil {
			t.Error(err)
		}
		return d
	}
	da, db := due(a), due(b)
	go func() {
		r, err := a.RunDue(t.Context(), da, archive.NoProgress{})
		if err != nil {
			t.Error(err)
		}
		first <- r
	}()
	<-inside
	rb, err := b.RunDue(t.Context(), db, archive.NoProgress{})
	if err != nil || len(rb.Equal) != 3 || rb.Elsewhere != 1 || rb.Err() != nil {
		t.Errorf("%+v, %v", rb, err)
	}
	close(goOn)
	if ra := <-first; len(ra.Equal) != 1 || ra.Err() != nil {
		t.Errorf("%+v", ra)
	}
	if n, most := s.read(); n != 12 || most != 1 {
		t.Errorf("%d objects were read, up to %d times", n, most)
	}
}
