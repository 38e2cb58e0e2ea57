package patrol_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/patrol"
	"github.com/coldtier/coldtier/tests/stack"
)

// store is a bucket and a ClickHouse that say what a test wants.
type store struct {
	objects map[string][]byte // those of messages have their sizes as text
	hidden  string            // a key that listings leave out
	broken  string            // listings end before this key
	rows    map[manifest.CopyID]uint64
}

var errBroken = errors.New("the store is broken")

func (s *store) size(key string) int64 {
	var n int64
	if strings.HasPrefix(key, "manifest/") {
		return int64(len(s.objects[key]))
	}
	_, _ = fmt.Sscan(string(s.objects[key]), &n)
	return n
}

func (s *store) List(_ context.Context, prefix string, fn func(patrol.Listed) error) error {
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, prefix) || key == s.hidden {
			continue
		}
		if key == s.broken {
			return errBroken
		}
		if err := fn(patrol.Listed{Key: key, Size: s.size(key), Modified: time.Unix(0, 0)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) Folders(_ context.Context, prefix string, fn func(string) error) error {
	return fn(prefix + "2026-05-01/")
}

func (s *store) Head(_ context.Context, key string) (patrol.Listed, error) {
	if _, ok := s.objects[key]; !ok {
		return patrol.Listed{}, archive.ErrNotFound
	}
	return patrol.Listed{Key: key, Size: s.size(key)}, nil
}

func (s *store) Get(_ context.Context, key string) ([]byte, error) {
	b, ok := s.objects[key]
	if !ok {
		return nil, archive.ErrNotFound
	}
	return b, nil
}

func (s *store) Days(context.Context) ([]snowflake.Day, error) { return nil, nil }

func (s *store) Counts(_ context.Context, _, _ snowflake.Day, fn func(manifest.CopyID, uint64) error) error {
	for id, n := range s.rows {
		if err := fn(id, 2*n); err != nil { // each is there twice
			return err
		}
	}
	return nil
}

func (s *store) Messages(_ context.Context, id manifest.CopyID, _ *message.Schema) (uint64, error) {
	return s.rows[id], nil
}

type nobody struct{}

func (nobody) Slices(int)    {}
func (nobody) SliceDone(int) {}

// commit makes a slice's next generation live, with objects of the given names, and puts
// them into the store.
func (s *store) commit(t *testing.T, m *manifest.Store, k manifest.SliceKey, names ...string) {
	t.Helper()
	ctx := t.Context()
	schema, err := message.NewSchema([]message.Column{
		{Name: "msg_id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "session_id", Kind: message.Text, SourceType: "varchar(64)"},
	}, map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "session_id"})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	_, err = m.Ensure(ctx, []manifest.Slice{{SliceKey: k, Lo: 1, Hi: 1000}})
	must(err)
	n, _, err := m.NamedSlice(ctx, k)
	must(err)
	if n.State == manifest.Verified {
		l, err := m.Claim(ctx, n.ID, "t", []manifest.State{manifest.Verified}, "")
		must(err)
		must(m.Reopen(ctx, l, manifest.ReasonDrifted))
	}
	l, err := m.Claim(ctx, n.ID, "t", []manifest.State{manifest.Pending}, manifest.Copying)
	must(err)
	c := &manifest.Copy{SliceKey: k, Lo: 1, Hi: 1000, Generation: n.NextGeneration(), Attempt: l.Attempt(), Schema: schema, ShowCreate: "x", CopiedAt: time.Unix(1e9, 0)}
	var sum message.Fingerprint
	for i, name := range names {
		f := message.Fingerprint{Hi: uint64(i), Lo: 1, Rows: 2}
		sum = sum.Add(f)
		key := manifest.ObjectPrefix(k, c.Generation, c.Attempt) + name
		if strings.HasPrefix(name, "elsewhere/") {
			key = name
		}
		o := manifest.Object{Key: key, File: segment.File{Version: 1, Size: int64(100 + i), Rows: 2, RowGroups: []segment.RowGroup{{Rows: 2}}}, Segs: []segment.Span{{Conversation: []byte(name), Rows: 2, Fingerprint: f}}}
		c.Objects = append(c.Objects, o)
		s.objects[key] = fmt.Append(nil, o.File.Size)
	}
	c.Chunks = []manifest.Chunk{{From: 1, To: 1000, Warm: sum, State: manifest.ChunkPresent}}
	var record bytes.Buffer
	must(manifest.EncodeRecord(&record, c))
	key := manifest.RecordKey(k, c.Generation)
	s.objects[key] = record.Bytes()
	must(m.Commit(ctx, l, c, key, sha256.Sum256(record.Bytes())))
	must(m.Verified(ctx, l, c.Generation))
	must(l.Release(ctx, manifest.Verified))
	s.rows[c.ID()] = sum.Rows
}

// Keys come in the order of bytes and not of tables, generations or objects, and a
// listing that ends early, or leaves out what is there, is no loss.
func TestListingIsMerged(t *testing.T) {
	t.Parallel()
	m, err := manifest.Open(t.Context(), manifest.Config{DSN: stack.MySQL(t), Source: "im"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	id, err := m.Identity(t.Context())
	if err == nil && id == "" {
		_, err = m.Ensure(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &store{objects: map[string][]byte{}, rows: map[manifest.CopyID]uint64{}}
	day := snowflake.MakeDay(2026, 5, 1)
	of := func(table string) manifest.SliceKey {
		return manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "d", Table: table}, Day: day}
	}
	for _, table := range []string{"t", "t-b", "t.b", "tb", "tü", "t0", strings.Repeat("ü", 30)} {
		s.commit(t, m, of(table), "b", "a", "z", "conv=%FF", "a-", "a.b")
	}
	for range 11 {
		s.commit(t, m, of("t"), "y", "x")
	}
	s.commit(t, m, of("none"))
	s.commit(t, m, of("odd"), "b", "elsewhere/o", "a")
	if id, err = m.Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.objects[manifest.OwnerKey("im")] = fmt.Appendf(nil, `{"source":"im","identity":%q}`, id)
	run := func(shard string) *patrol.Report {
		t.Helper()
		r, err := patrol.Run(t.Context(), patrol.Config{Filter: manifest.Filter{Shard: shard}, Grace: time.Hour, Owner: archive.Owner{Source: "im", Identity: id}},
			patrol.Deps{Manifest: m, Bucket: s, Objects: s, Rows: s, Clock: time.Now, Log: slog.New(slog.DiscardHandler), Progress: nobody{}})
		wrong := slices.ContainsFunc(r.Findings, func(f patrol.Finding) bool { return f.Severity != patrol.Note })
		if errors.Is(err, patrol.ErrDiffers) != wrong || !wrong && errors.Is(err, patrol.ErrUnlooked) != (len(r.Unlooked) > 0) {
			t.Errorf("%v: %+v", err, r)
		}
		return r
	}
	all := run("")
	if len(all.Findings)+len(all.Unlooked) > 0 || all.Slices != 9 || all.Generations != 20 || all.Objects != 7*6+11*2+3 || all.Records != 20 {
		t.Fatalf("%+v", all)
	}
	if r := run("d.t*"); len(r.Findings)+len(r.Unlooked) > 0 || r.Slices != 6 {
		t.Errorf("%+v", r)
	}
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(s.objects)), func(k string) bool { return strings.HasPrefix(k, "manifest/owner") })
	for _, key := range keys {
		was := s.objects[key]
		isObject := !strings.HasPrefix(key, "manifest/")
		delete(s.objects, key)
		if r := run(""); len(r.Findings) != 1 || !slices.Equal(r.Findings[0].Objects, []string{key}) || r.Codes[patrol.ObjectMissing] != map[bool]int{true: 1}[isObject] {
			t.Fatalf("without %s: %+v", key, r.Findings)
		}
		s.objects[key] = was
	}
	for _, key := range []string{keys[len(keys)/2], keys[len(keys)-1]} {
		s.hidden = key
		if r := run(""); len(r.Findings) > 0 || len(r.Unlooked) != 1 {
			t.Errorf("%s is not listed: %+v", key, r)
		}
		s.hidden, s.broken = "", key
		if r := run(""); len(r.Findings) > 0 || len(r.Unlooked) == 0 {
			t.Errorf("the listing ends at %s: %+v", key, r)
		}
		s.broken = ""
	}
	for _, key := range []string{"messages/day=2026-05-01/shard=d.t/g1-x/a", "messages/day=2026-05-01/stray", "messages/day=2026-05-01/shard=d.t/stray", strings.TrimSuffix(keys[len(keys)-1], "z") + "zz"} {
		s.objects[key] = []byte("7")
		if r := run(""); r.Orphans.Objects != 1 && !strings.HasSuffix(key, "01/stray") || r.Codes[patrol.ObjectMissing] > 0 {
			t.Errorf("%s: %+v", key, r)
		}
		delete(s.objects, key)
	}
}
