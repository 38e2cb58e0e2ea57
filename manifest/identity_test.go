package manifest

import (
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/stack"
)

// Each source of each manifest has an identity of its own, from its first migration
// on, whoever asks and however many enter it at once.
func TestIdentity(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := stack.MySQL(t)
	s := openAt(t, dsn, testSource, time.Minute)
	identity := func(s *Store) string {
		t.Helper()
		id, err := s.Identity(ctx)
		if err != nil {
			t.Error(err)
		}
		return id
	}
	if id := identity(s); id != "" {
		t.Errorf("a database without tables has identity %q", id)
	}
	if _, err := s.Migrate(ctx, false); err != nil {
		t.Fatal(err)
	}
	id := identity(s)
	if !regexp.MustCompile("^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$").MatchString(id) {
		t.Errorf("identity %q", id)
	}
	if _, err := s.Migrate(ctx, false); err != nil || identity(s) != id || identity(openAt(t, dsn, testSource, time.Minute)) != id {
		t.Errorf("the identity does not stay: %v", err)
	}
	if other := identity(open(t, time.Minute)); other == "" || other == id {
		t.Errorf("another manifest has identity %q", other)
	}

	second := openAt(t, dsn, "second", time.Minute)
	if id := identity(second); id != "" {
		t.Errorf("a source that was never entered has identity %q", id)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := openAt(t, dsn, "second", time.Minute).BeginRun(ctx, RunStart{Job: "archive", Host: "test"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if two := identity(second); two == "" || two == id || identity(second) != two {
		t.Errorf("the second source has identity %q", two)
	}
}
