package patrol_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/manifest/mirror"
	"github.com/coldtier/coldtier/restore/patrol"
	"github.com/coldtier/coldtier/tests/stack"
)

// puts is a store that a mirror puts into.
type puts struct{ *store }

func (p puts) Put(_ context.Context, key string, body []byte, ifAbsent bool) error {
	if _, ok := p.objects[key]; ok && ifAbsent {
		return mirror.ErrExists
	}
	p.objects[key] = body
	return nil
}

func (p puts) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := p.store.Get(ctx, key)
	if err != nil {
		err = mirror.ErrNotFound
	}
	return b, err
}

// A stop that could not be put into the bucket, as when that is what is broken, is named and
// put: it would be forgotten with the manifest.
func TestAStopIsNotInTheBucket(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m, err := manifest.Open(ctx, manifest.Config{DSN: stack.MySQL(t), Source: "im"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Migrate(ctx, false); err != nil {
		t.Fatal(err)
	}
	id, err := m.Identity(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &store{objects: map[string][]byte{manifest.OwnerKey("im"): fmt.Appendf(nil, `{"source":"im","identity":%q}`, id)}, rows: map[manifest.CopyID]uint64{}}
	if _, err := m.AddStop(ctx, manifest.Stop{Jobs: manifest.StopPurge, Reason: "r", By: "ops"}, 0); err != nil {
		t.Fatal(err)
	}
	run := func(heal bool) (*patrol.Report, error) {
		return patrol.Run(ctx, patrol.Config{Heal: heal, Owner: archive.Owner{Source: "im", Identity: id}}, patrol.Deps{Manifest: m, Bucket: s, Objects: s, Rows: s, Clock: time.Now,
			Log: slog.New(slog.DiscardHandler), Progress: nobody{}, Healer: &patrol.Healer{Mirror: mirror.New(m, puts{s}, "w", slog.New(slog.DiscardHandler))}})
	}
	r, err := run(false)
	if !errors.Is(err, patrol.ErrDiffers) || len(r.Findings) != 1 || r.Findings[0].Code != patrol.Unmirrored || r.Findings[0].Count != 1 || !strings.Contains(r.Findings[0].What, "1 stops") {
		t.Fatalf("%v: %+v", err, r.Findings)
	}
	if r, err = run(true); err != nil || r.Healed != 1 {
		t.Fatalf("%v: %+v", err, r.Findings)
	}
	if _, ok := s.objects[manifest.StopKey("im", stops(t, m)[0].Name)]; !ok {
		t.Errorf("the bucket has %d objects, and not the stop", len(s.objects))
	}
	if r, err = run(false); err != nil || len(r.Findings) != 0 {
		t.Errorf("%v: %+v", err, r.Findings)
	}
}

func stops(t *testing.T, m *manifest.Store) []manifest.Stop {
	t.Helper()
	all, err := m.Stops(t.Context(), true)
	if err != nil || len(all) == 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	return all
}
