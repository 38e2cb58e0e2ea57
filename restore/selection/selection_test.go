package selection_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/copies"
)

func schema(t testing.TB, roles map[message.Role]string) *message.Schema {
	t.Helper()
	all := map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Sequence: "seq", message.Status: "st"}
	for r, name := range roles {
		all[r] = name
	}
	s, err := message.NewSchema([]message.Column{
		{Name: "id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"}, {Name: "conv", Kind: message.Text, SourceType: "varchar(64)", Charset: "utf8mb4"},
		{Name: "seq", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"}, {Name: "st", Kind: message.Int, Bits: 8, Nullable: true, SourceType: "tinyint"},
		{Name: "body", Kind: message.Bytes, Nullable: true, SourceType: "blob"},
	}, all)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tier is two shards of some days, with conversations of few and of many messages.
type tier struct {
	*copies.Tier
	rows map[manifest.SliceKey][][][]byte
	all  map[manifest.SliceKey]*manifest.Copy
	days []snowflake.Day
}

var shards = []manifest.Shard{{Database: "im_00", Table: "msg"}, {Database: "im_01", Table: "msg"}}

func row(id uint64, conv string, seq uint64, status any, body []byte) [][]byte {
	r := [][]byte{[]byte(message.FormatID(id)), []byte(conv), []byte(message.FormatID(seq)), nil, body}
	if status != nil {
		r[3] = fmt.Append(nil, status)
	}
	return r
}

func newTier(t *testing.T, per int) *tier {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	x := &tier{Tier: copies.New(t), rows: map[manifest.SliceKey][][][]byte{}, all: map[manifest.SliceKey]*manifest.Copy{}}
	s := schema(t, nil)
	for d := range 3 {
		day := snowflake.MakeDay(2026, 3, 1+d)
		x.days = append(x.days, day)
		lo, hi, err := copies.Layout().Window(day, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		for i, sh := range shards {
			key := manifest.SliceKey{Source: "im", Shard: sh, Day: day}
			seen := map[uint64]bool{}
			for n := range 600 {
				conv := fmt.Sprintf("%d-%d", i, rng.IntN(8))
				if n%3 == 0 {
					conv = fmt.Sprintf("%d-big", i)
				}
				id := lo + rng.Uint64N(hi-lo)
				if seen[id] {
					continue
				}
				seen[id] = true
				body := make([]byte, rng.IntN(300))
				for k := range body {
					body[k] = byte(rng.Uint32())
				}
				x.rows[key] = append(x.rows[key], row(id, conv, rng.Uint64N(1000), rng.IntN(3), body))
			}
			x.all[key] = x.Commit(copies.Copy{Shard: sh, Day: day, Schema: s, Rows: x.rows[key], Per: per, GroupBytes: 4 << 10})
		}
	}
	return x
}

// read reads a selection and gives its rows by shard and ID, and what was said of each slice.
func (x *tier) read(r *selection.Reader, sel selection.Selection) (map[string][]string, []*selection.Read, error) {
	x.T.Helper()
	list, err := r.Slices(x.T.Context(), sel)
	if err != nil {
		x.T.Fatal(err)
	}
	out := map[string][]string{}
	var reads []*selection.Read
	var errs []error
	last := snowflake.Day{}
	for _, s := range list {
		if s.Day.Before(last) {
			x.T.Errorf("slice %s comes after %s", s.SliceKey, last)
		}
		last = s.Day
		var h message.Hasher
		var sum message.Fingerprint
		var prev *message.Batch
		convs := map[string]int{}
		read, err := r.Read(x.T.Context(), sel, s, func(b *message.Batch) error {
			sum = sum.Add(h.Batch(b, 0, b.Len()))
			for i := range b.Len() {
				out[key(s.Shard, b.MessageID(i))] = append(out[key(s.Shard, b.MessageID(i))], fmt.Sprintf("%q", b.Row(nil, i)))
				convs[string(b.Conversation(i))]++
				if i > 0 && message.Compare(b, i-1, b, i) >= 0 || i == 0 && prev != nil && r.Rows == nil && string(prev.Conversation(prev.Len()-1)) == string(b.Conversation(0)) && message.Compare(prev, prev.Len()-1, b, 0) >= 0 {
					x.T.Errorf("message %d is out of order", b.MessageID(i))
				}
			}
			prev = b
			return nil
		})
		errs = append(errs, err)
		reads = append(reads, read)
		if sum != read.Fingerprint || sum.Rows != read.Rows {
			x.T.Errorf("slice %s: %s was given, %s of %d rows is said", s.SliceKey, sum, read.Fingerprint, read.Rows)
		}
	}
	return out, reads, errors.Join(errs...)
}

func key(s manifest.Shard, id uint64) string { return s.String() + " " + message.FormatID(id) }

// want are the rows that pass.
func (x *tier) want(pass func(k manifest.SliceKey, id uint64, conv string) bool) map[string][]string {
	out := map[string][]string{}
	for k, list := range x.rows {
		for _, r := range list {
			id, _ := message.ParseUint(r[0])
			if pass(k, id, string(r[1])) {
				out[key(k.Shard, id)] = []string{fmt.Sprintf("%q", r)}
			}
		}
	}
	return out
}

func same(t *testing.T, name string, got, want map[string][]string) {
	t.Helper()
	for k, w := range want {
		if !slices.Equal(got[k], w) {
			t.Errorf("%s: message %s reads %.200v, want %.200v", name, k, got[k], w)
			return
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d messages, want %d", name, len(got), len(want))
	}
}

// Every way to select gives exactly the rows that it names, each once, in order, from
// objects of one conversation and of several.
func TestSelectionsGiveExactlyTheirRows(t *testing.T) {
	t.Parallel()
	for _, per := range []int{1, 3} {
		x := newTier(t, per)
		r := x.Reader(false)
		lo, hi, err := copies.Layout().Window(x.days[1], time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		mid := lo + (hi-lo)/3
		noon := x.days[1].Start(time.UTC).Add(12*time.Hour + 34*time.Minute + 500*time.Microsecond)
		first, _ := message.ParseUint(x.rows[manifest.SliceKey{Source: "im", Shard: shards[0], Day: x.days[1]}][0][0])
		exactly := copies.Layout().Time(first) // of which a message was made in this very millisecond
		early := copies.Layout().Epoch.Add(-time.Hour)
		late := time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)
		for name, c := range map[string]struct {
			sel  selection.Selection
			pass func(k manifest.SliceKey, id uint64, conv string) bool
		}{
			"all":              {selection.Selection{}, func(manifest.SliceKey, uint64, string) bool { return true }},
			"one day":          {selection.Selection{From: &x.days[1], To: &x.days[1]}, func(k manifest.SliceKey, _ uint64, _ string) bool { return k.Day == x.days[1] }},
			"one shard":        {selection.Selection{Shard: "im_01.*"}, func(k manifest.SliceKey, _ uint64, _ string) bool { return k.Shard == shards[1] }},
			"IDs":              {selection.Selection{IDs: &selection.IDs{First: mid, Last: 1<<64 - 1}}, func(_ manifest.SliceKey, id uint64, _ string) bool { return id >= mid }},
			"last ID":          {selection.Selection{IDs: &selection.IDs{Last: mid}}, func(_ manifest.SliceKey, id uint64, _ string) bool { return id <= mid }},
			"until":            {selection.Selection{Until: &noon}, func(_ manifest.SliceKey, id uint64, _ string) bool { return !copies.Layout().Time(id).After(noon) }},
			"until a message":  {selection.Selection{Until: &exactly}, func(_ manifest.SliceKey, id uint64, _ string) bool { return !copies.Layout().Time(id).After(exactly) }},
			"too early":        {selection.Selection{Until: &early}, func(manifest.SliceKey, uint64, string) bool { return false }},
			"late":             {selection.Selection{Until: &late}, func(manifest.SliceKey, uint64, string) bool { return true }},
			"one conversation": {selection.Selection{Conversations: [][]byte{[]byte("0-big")}}, func(_ manifest.SliceKey, _ uint64, conv string) bool { return conv == "0-big" }},
			"conversations":    {selection.Selection{Conversations: [][]byte{[]byte("1-3"), []byte("0-7"), []byte("none"), []byte("0-7")}}, func(_ manifest.SliceKey, _ uint64, conv string) bool { return conv == "1-3" || conv == "0-7" }},
			"no conversation":  {selection.Selection{Conversations: [][]byte{}}, func(manifest.SliceKey, uint64, string) bool { return false }},
			"all together": {selection.Selection{Conversations: [][]byte{[]byte("1-3"), []byte("1-big")}, From: &x.days[0], To: &x.days[1], Shard: "im_0?.msg", IDs: &selection.IDs{First: lo - 1<<40, Last: hi}, Until: &noon},
				func(k manifest.SliceKey, id uint64, conv string) bool {
					return (conv == "1-3" || conv == "1-big") && k.Day != x.days[2] && id >= lo-1<<40 && !copies.Layout().Time(id).After(noon)
				}},
		} {
			got, reads, err := x.read(r, c.sel)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			same(t, name, got, x.want(c.pass))
			for _, read := range reads {
				if want := x.all[read.Slice].Fingerprint(); c.sel.Whole() && read.Fingerprint != want {
					t.Errorf("%s: slice %s reads %s, its copy is %s", name, read.Slice, read.Fingerprint, want)
				}
			}
		}
	}
}

// A chosen conversation costs its own segments, not the day.
func TestAConversationIsFewRequests(t *testing.T) {
	t.Parallel()
	x := newTier(t, 1)
	if _, _, err := x.read(x.Reader(false), selection.Selection{Conversations: [][]byte{[]byte("0-3")}}); err != nil {
		t.Fatal(err)
	}
	if n := x.Reads(); n != len(x.days) {
		t.Errorf("%d requests for %d segments", n, len(x.days))
	}
}

func TestSelectionsThatNameNothing(t *testing.T) {
	t.Parallel()
	x := copies.New(t)
	a, b := snowflake.MakeDay(2026, 1, 2), snowflake.MakeDay(2026, 1, 1)
	for _, sel := range []selection.Selection{{Shard: "["}, {From: &a, To: &b}, {IDs: &selection.IDs{First: 2, Last: 1}}, {Conversations: [][]byte{[]byte(strings.Repeat("x", 256))}}} {
		if _, err := x.Reader(false).Slices(t.Context(), sel); !errors.Is(err, selection.ErrSelection) {
			t.Errorf("%+v: %v", sel, err)
		}
	}
}
