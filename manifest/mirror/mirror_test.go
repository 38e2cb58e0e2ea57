package mirror_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/bucket/membucket"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/manifest/mirror"
	"github.com/coldtier/coldtier/tests/stack"
)

// mem is a bucket in memory; before is called before each put, after when it has arrived.
type mem struct {
	*membucket.Bucket
	before func(key string) error
	after  func()
}

func (m *mem) Put(ctx context.Context, key string, body []byte, ifAbsent bool) error {
	if m.before != nil {
		if err := m.before(key); err != nil {
			return err
		}
	}
	err := m.Bucket.Put(ctx, key, bytes.NewReader(body), int64(len(body)), bucket.PutOptions{IfNoneMatch: ifAbsent})
	if m.after != nil {
		m.after()
	}
	if errors.Is(err, bucket.ErrExists) {
		return fmt.Errorf("%w: %w", mirror.ErrExists, err)
	}
	return err
}

func (m *mem) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := m.Bucket.Get(ctx, key)
	if errors.Is(err, bucket.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", mirror.ErrNotFound, err)
	}
	return b, err
}

func (m *mem) List(ctx context.Context, prefix string, fn func(key string, size int64) error) error {
	return m.Bucket.List(ctx, prefix, func(i bucket.Info) error { return fn(i.Key, i.Size) })
}

func (m *mem) keys(t *testing.T, prefix string) (keys []string) {
	t.Helper()
	if err := m.List(t.Context(), prefix, func(key string, _ int64) error {
		keys = append(keys, key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return keys
}

func open(t *testing.T) *manifest.Store {
	t.Helper()
	s, err := manifest.Open(t.Context(), manifest.Config{DSN: stack.MySQL(t), Source: "im"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *manifest.Store, id uint64, kind manifest.StatusKind, by string) {
	t.Helper()
	if _, err := s.PutStatus(t.Context(), manifest.Status{Conversation: []byte{0, 0xff, 'c'}, MessageID: id, Kind: kind, By: by}); err != nil {
		t.Fatal(err)
	}
}

// again rebuilds holds and statuses from the bucket into another manifest and compares.
func again(t *testing.T, s *manifest.Store, m *mem) {
	t.Helper()
	to := open(t)
	r, err := to.BeginRebuild(t.Context(), "", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range m.keys(t, manifest.HoldsPrefix("im")) {
		b, _ := m.Get(t.Context(), key)
		h, err := manifest.DecodeHold(b)
		if err == nil {
			err = r.Hold(t.Context(), h)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	keys := m.keys(t, manifest.StatusesPrefix("im"))
	for i := range keys { // any order
		b, _ := m.Get(t.Context(), keys[len(keys)-1-i])
		var all []manifest.Status
		for line := range bytes.Lines(b) {
			var st manifest.Status
			if err := json.Unmarshal(line, &st); err != nil {
				t.Fatal(err)
			}
			all = append(all, st)
		}
		if err := r.Statuses(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, err := manifest.Compare(t.Context(), s, to)
	if err != nil || len(found) > 0 {
		t.Errorf("differences %v, %v", found, err)
	}
}

// Of a message the status that was put last counts, whatever the order of objects, also
// once they were put together; and what is changed while it is put is put again.
func TestStatusesAndHolds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, m := open(t), &mem{Bucket: membucket.New(time.Now)}
	mi := mirror.New(s, m, "w", slog.New(slog.DiscardHandler))
	flush := func(want int) {
		t.Helper()
		if n, err := mi.Statuses(ctx); err != nil || n != want {
			t.Fatalf("%d statuses mirrored, want %d: %v", n, want, err)
		}
	}
	for i := range 70 {
		put(t, s, uint64(i%5)+1<<63, manifest.StatusRecalled, fmt.Sprint(i))
		flush(1)
	}
	put(t, s, 1<<63, manifest.StatusNone, "back")
	down := errors.New("down")
	m.before = func(string) error { return down }
	if _, err := mi.Statuses(ctx); !errors.Is(err, down) {
		t.Fatal(err)
	}
	if u, err := s.Unmirrored(ctx); err != nil || u.Statuses != 1 {
		t.Fatalf("%+v, %v", u, err)
	}
	m.before = func(string) error { // comes between the reading and the noting
		m.before = nil
		put(t, s, 1<<63, manifest.StatusDeleted, "again")
		return nil
	}
	flush(1)
	flush(1)
	flush(0)
	again(t, s, m)
	m.before = func(string) error { return down }
	if _, err := mi.Compact(ctx, m); !errors.Is(err, down) || len(m.keys(t, "")) != 72 {
		t.Fatalf("%v, %d objects", err, len(m.keys(t, "")))
	}
	m.before = nil
	broken := manifest.StatusesPrefix("im") + "0-broken.ndjson"
	if err := m.Put(ctx, broken, []byte("{}\n"), false); err != nil {
		t.Fatal(err)
	}
	if n, err := mi.Compact(ctx, m); err != nil || n != 72 {
		t.Fatalf("%d objects put together, %v", n, err)
	}
	if keys := m.keys(t, manifest.StatusesPrefix("im")); len(keys) != 2 || keys[0] != broken {
		t.Fatalf("%v", keys)
	}
	if err := m.Delete(ctx, broken); err != nil {
		t.Fatal(err)
	}
	again(t, s, m)

	id, err := s.AddHold(ctx, manifest.Hold{Kind: manifest.HoldSender, Subject: "7", Reason: "a \"reason\"\x00", By: "t"})
	if err != nil {
		t.Fatal(err)
	}
	key := manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "im_00", Table: "m"}, Day: snowflake.MakeDay(2026, 5, 1)}
	if _, err := s.KeepSlice(ctx, key, time.Hour, "kept", "t"); err != nil {
		t.Fatal(err)
	}
	m.before = func(string) error { // released while it is put
		m.before = nil
		return s.ReleaseHold(ctx, id, "u")
	}
	for _, want := range []int{2, 1, 0} {
		if n, err := mi.Holds(ctx); err != nil || n != want {
			t.Fatalf("%d holds mirrored, want %d: %v", n, want, err)
		}
	}
	if _, err := s.KeepSlice(ctx, key, 2*time.Hour, "kept", "t"); err != nil {
		t.Fatal(err)
	}
	if n, err := mi.Holds(ctx); err != nil || n != 1 {
		t.Fatalf("%d holds mirrored: %v", n, err)
	}
	again(t, s, m)
	if b, _ := m.Get(ctx, manifest.HoldKey("im", id)); !strings.Contains(string(b), `"released_by":"u"`) {
		t.Errorf("%s", b)
	}
}

// A hold is put as it was, and prolonged and put once more by another process meanwhile. The
// first put arrives last, and the first process notes it first: the bucket gets the hold as
// it is nevertheless.
func TestHoldIsPutByTwo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, shared := open(t), membucket.New(time.Now)
	key := manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "im_00", Table: "m"}, Day: snowflake.MakeDay(2026, 5, 1)}
	keep := func(d time.Duration) {
		t.Helper()
		if _, err := s.KeepSlice(ctx, key, d, "kept", "t"); err != nil {
			t.Fatal(err)
		}
	}
	keep(time.Hour)
	begun, arrive, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	late := &mem{Bucket: shared, before: func(string) error {
		close(begun)
		<-arrive
		return nil
	}}
	go func() {
		_, err := mirror.New(s, late, "late", slog.New(slog.DiscardHandler)).Holds(ctx)
		ended <- err
	}()
	<-begun
	keep(2 * time.Hour)
	m := &mem{Bucket: shared}
	m.after = func() {
		m.after = nil
		close(arrive)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	mi := mirror.New(s, m, "w", slog.New(slog.DiscardHandler))
	for range 2 {
		if n, err := mi.Holds(ctx); err != nil || n != 1 {
			t.Fatalf("%d holds put, want 1: %v", n, err)
		}
	}
	if n, err := mi.Holds(ctx); err != nil || n != 0 {
		t.Fatalf("%d holds put, want 0: %v", n, err)
	}
	again(t, s, m)
}
