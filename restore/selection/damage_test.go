package selection_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/copies"
)

// big is the object of a slice that has most row groups.
func (x *tier) big(k manifest.SliceKey) *manifest.Object {
	x.T.Helper()
	list := x.all[k].Objects
	i := 0
	for j := range list {
		if len(list[j].File.RowGroups) > len(list[i].File.RowGroups) {
			i = j
		}
	}
	if len(list[i].File.RowGroups) < 4 {
		x.T.Fatalf("no object has several row groups")
	}
	return &list[i]
}

// Whatever is done to an object, what cannot be read as it was archived is named with
// its slice, object and rows, all else is given, and nothing wrong is. With ClickHouse
// nothing is lost, unless that is wrong as well.
func TestDamageIsNamedAndReplaced(t *testing.T) {
	t.Parallel()
	x := newTier(t, 2)
	k := manifest.SliceKey{Source: "im", Shard: shards[0], Day: x.days[1]}
	o := x.big(k)
	at := o.File.RowGroups[2]
	first := o.File.RowGroups[0].Rows + o.File.RowGroups[1].Rows
	all := x.want(func(manifest.SliceKey, uint64, string) bool { return true })
	original, err := x.Bucket.Get(t.Context(), o.Key)
	if err != nil {
		t.Fatal(err)
	}
	rest := o.File.Rows - first
	for name, c := range map[string]struct {
		change      func([]byte) []byte // nil: gone
		first, rows int64
		is          error
	}{
		"one bit":     {func(b []byte) []byte { b[at.Offset+at.Length/2] ^= 4; return b }, first, at.Rows, nil},
		"cut off":     {func(b []byte) []byte { return b[:at.Offset+1] }, first, rest, selection.ErrDamaged},
		"empty":       {func(b []byte) []byte { return b[:0] }, 0, o.File.Rows, selection.ErrDamaged},
		"another":     {func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) }, 0, o.File.Rows, nil},
		"gone":        {nil, 0, o.File.Rows, selection.ErrNotFound},
		"footer only": {func(b []byte) []byte { b[len(b)-6] ^= 1; return b }, 0, 0, nil},
	} {
		if c.change == nil {
			if err := x.Bucket.Delete(t.Context(), o.Key); err != nil {
				t.Fatal(err)
			}
		} else if err := x.Bucket.Damage(o.Key, c.change); err != nil {
			t.Fatal(err)
		}
		got, _, err := x.read(x.Reader(false), selection.Selection{})
		if c.rows == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			same(t, name, got, all)
		} else {
			var d *selection.Damage
			if !errors.Is(err, selection.ErrLost) || !errors.As(err, &d) || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("%s: %v", name, err)
			}
			if d.Key != o.Key || d.Slice != k || d.FirstRow != c.first || d.Rows != c.rows || d.Replaced || !strings.Contains(err.Error(), fmt.Sprintf("slice %s generation 1: object %s, rows [%d, %d)", k, o.Key, c.first, c.first+c.rows)) {
				t.Errorf("%s: %+v", name, d)
			}
			if len(got) != len(all)-int(c.rows) {
				t.Errorf("%s: %d of %d messages were given, %d are lost", name, len(got), len(all), c.rows)
			}
			for id, r := range got {
				if !slices.Equal(r, all[id]) {
					t.Errorf("%s: message %s is another", name, id)
				}
			}
		}
		got, reads, err := x.read(x.Reader(true), selection.Selection{})
		if err != nil {
			t.Errorf("%s, with ClickHouse: %v", name, err)
		}
		same(t, name+", with ClickHouse", got, all)
		for _, read := range reads {
			if len(read.Damaged) > 0 != (c.rows > 0 && read.Slice == k) || len(read.Damaged) > 0 && !read.Damaged[0].Replaced {
				t.Errorf("%s: slice %s says %v", name, read.Slice, read.Damaged)
			}
		}
		// Chosen conversations that the damage does not touch are none the worse.
		conv := selection.Selection{Conversations: [][]byte{[]byte("1-big"), []byte("1-2")}}
		got, _, err = x.read(x.Reader(false), conv)
		if err != nil {
			t.Errorf("%s: other conversations: %v", name, err)
		}
		same(t, name, got, x.want(func(_ manifest.SliceKey, _ uint64, c string) bool { return c == "1-big" || c == "1-2" }))
		if c.change == nil {
			if err := x.Bucket.Put(t.Context(), o.Key, bytes.NewReader(original), int64(len(original)), putOptions()); err != nil {
				t.Fatal(err)
			}
		} else if err := x.Bucket.Damage(o.Key, func([]byte) []byte { return bytes.Clone(original) }); err != nil {
			t.Fatal(err)
		}
	}
}

// ClickHouse's rows are taken only when they are the archived ones.
func TestWrongRowsOfClickHouseAreNotTaken(t *testing.T) {
	t.Parallel()
	x := newTier(t, 1)
	k := manifest.SliceKey{Source: "im", Shard: shards[0], Day: x.days[0]}
	o := x.big(k)
	all := x.want(func(manifest.SliceKey, uint64, string) bool { return true })
	if err := x.Bucket.Damage(o.Key, func(b []byte) []byte { b[o.File.RowGroups[1].Offset] ^= 1; return b }); err != nil {
		t.Fatal(err)
	}
	rows := slices.Clone(x.rows[k])
	without, _, _ := x.read(x.Reader(false), selection.Selection{})
	i := slices.IndexFunc(rows, func(r [][]byte) bool { // one of those that are damaged
		id, _ := message.ParseUint(r[0])
		return without[key(k.Shard, id)] == nil
	})
	spoilt := slices.Clone(rows[i])
	spoilt[4] = []byte("not what was archived")
	for name, other := range map[string][][][]byte{"changed": slices.Concat(rows[:i], [][][]byte{spoilt}, rows[i+1:]), "missing": slices.Concat(rows[:i], rows[i+1:]), "none": nil, "twice": slices.Concat(rows, [][][]byte{{[]byte("5"), o.Segs[0].Conversation, []byte("0"), nil, nil}})} {
		x.SpoilRows(x.all[k].ID(), other)
		got, _, err := x.read(x.Reader(true), selection.Selection{})
		if !errors.Is(err, selection.ErrLost) || !strings.Contains(err.Error(), "ClickHouse") || len(got) != len(all)-int(o.File.RowGroups[1].Rows) {
			t.Errorf("%s: %d of %d messages, %v", name, len(got), len(all), err)
		}
		for id, r := range got {
			if !slices.Equal(r, all[id]) {
				t.Errorf("%s: message %s is another", name, id)
			}
		}
	}
	x.SpoilRows(x.all[k].ID(), rows)
	x.LoseRows(errors.New("connection refused"))
	if _, _, err := x.read(x.Reader(true), selection.Selection{}); !errors.Is(err, selection.ErrLost) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("without ClickHouse: %v", err)
	}
	x.LoseRows(nil)
	if got, _, err := x.read(x.Reader(true), selection.Selection{}); err != nil || len(got) != len(all) {
		t.Errorf("with the right rows: %d of %d, %v", len(got), len(all), err)
	}
}

// Rows whose bytes are undamaged and that are not those of the manifest's segment are no
// answer, also where a part of a slice is read.
func TestRowsThatTheManifestDoesNotKnow(t *testing.T) {
	t.Parallel()
	x := copies.New(t)
	day := snowflake.MakeDay(2024, 3, 1)
	lo, _, err := copies.Layout().Window(day, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	x.Commit(copies.Copy{Shard: shards[0], Day: day, Schema: schema(t, nil), Rows: [][][]byte{row(lo, "a", 1, 0, nil), row(lo+1, "b", 1, 0, nil)}, Change: func(c *manifest.Copy) {
		a, b := &c.Objects[0].Segs[0], &c.Objects[1].Segs[0]
		a.Fingerprint, b.Fingerprint = b.Fingerprint, a.Fingerprint
	}})
	for _, sel := range []selection.Selection{{}, {Conversations: [][]byte{[]byte("a")}}} {
		list, err := x.Reader(true).Slices(t.Context(), sel)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if _, err := x.Reader(true).Read(t.Context(), sel, list[0], func(*message.Batch) error { return nil }); !errors.Is(err, selection.ErrMismatch) || !strings.Contains(err.Error(), "conv=a") {
			t.Errorf("%+v: %v", sel, err)
		}
	}
}

// noisy is a bucket of which each object's first answer is damaged on its way.
type noisy struct {
	*tier
	seen sync.Map
}

func (n *noisy) ReadRange(ctx context.Context, key string, off, length int64) ([]byte, error) {
	b, err := n.tier.ReadRange(ctx, key, off, length)
	if _, twice := n.seen.LoadOrStore(key, true); !twice && len(b) > 0 {
		b[len(b)/2] ^= 1
	}
	return b, err
}

// What was damaged on its way is read again.
func TestAnAnswerThatIsDamagedOnItsWay(t *testing.T) {
	t.Parallel()
	x := newTier(t, 1)
	r := selection.New(selection.Deps{Manifest: x.Store, Objects: &noisy{tier: x}, Layout: copies.Layout()}, selection.Config{})
	got, _, err := x.read(r, selection.Selection{})
	if err != nil {
		t.Error(err)
	}
	same(t, "noisy", got, x.want(func(manifest.SliceKey, uint64, string) bool { return true }))
}

// down is a bucket that does not answer after some requests.
type down struct {
	*tier
	left int
}

var errDown = errors.New("no route to host")

func (d *down) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if d.left--; d.left < 0 {
		return nil, errDown
	}
	return d.tier.ReadRange(ctx, key, off, n)
}

// A bucket that does not answer is no damage: nothing is said to be lost, and ClickHouse
// is not asked instead.
func TestABucketThatIsAwayIsNoDamage(t *testing.T) {
	t.Parallel()
	x := newTier(t, 1)
	r := selection.New(selection.Deps{Manifest: x.Store, Objects: &down{x, 30}, Rows: x, Layout: copies.Layout()}, selection.Config{Requests: 1})
	if _, _, err := x.read(r, selection.Selection{}); !errors.Is(err, errDown) || errors.Is(err, selection.ErrLost) {
		t.Errorf("%v", err)
	}
	// A callee's error ends the reading.
	stop := errors.New("stop")
	list, err := x.Reader(false).Slices(t.Context(), selection.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Reader(false).Read(t.Context(), selection.Selection{}, list[0], func(*message.Batch) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := x.Reader(false).Read(ctx, selection.Selection{}, list[0], func(*message.Batch) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
