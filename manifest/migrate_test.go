package manifest

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/stack"
)

// Processes that migrate at once all end well, and each migration runs once.
func TestManyMigrateAtOnce(t *testing.T) {
	t.Parallel()
	dsn := stack.MySQL(t)
	var mu sync.Mutex
	var ran []string
	var wg sync.WaitGroup
	for range 4 {
		s := openAt(t, dsn, testSource, time.Minute)
		wg.Go(func() {
			names, err := s.Migrate(t.Context(), false)
			if err != nil {
				t.Errorf("migrate: %v", err)
			}
			mu.Lock()
			ran = append(ran, names...)
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(ran) != 1 || ran[0] != "00001_manifest.sql" {
		t.Errorf("ran %v", ran)
	}
	s := openAt(t, dsn, testSource, time.Minute)
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDryMigrationChangesNothing(t *testing.T) {
	t.Parallel()
	s := openAt(t, stack.MySQL(t), testSource, time.Minute)
	ctx := t.Context()
	if names, err := s.Migrate(ctx, true); err != nil || len(names) != 1 {
		t.Errorf("would run %v, %v", names, err)
	}
	if err := s.Check(ctx); err == nil || !strings.Contains(err.Error(), "coldtier migrate") {
		t.Errorf("check of an empty database: %v", err)
	}
	var tables int
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d tables, %v", tables, err)
	}
	// A migration that died after some of its statements is run again.
	if _, err := s.db.ExecContext(ctx, "CREATE TABLE sources (id INT UNSIGNED NOT NULL AUTO_INCREMENT, name VARCHAR(64) NOT NULL, identity CHAR(36) NOT NULL, PRIMARY KEY (id), UNIQUE KEY name (name)) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Migrate(ctx, false); err != nil || len(names) != 1 {
		t.Errorf("ran %v, %v", names, err)
	}
	if names, err := s.Migrate(ctx, true); err != nil || len(names) != 0 {
		t.Errorf("would run %v, %v", names, err)
	}
	if _, err := s.db.ExecContext(ctx, "INSERT INTO "+versionTable+" (version_id, is_applied) VALUES (99, 1)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(ctx); err == nil || !strings.Contains(err.Error(), "newer coldtier") {
		t.Errorf("check of a newer manifest: %v", err)
	}
}

// A DSN's password is in no error.
func TestDSNErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"", "x", "coldtier:s3cret@tcp(127.0.0.1:1)/coldtier", "coldtier:s3cret@tcp(127.0.0.1:1)/", "s3cret", "coldtier:s3cret@s3cret(/x", "a:s3cret@tcp(127.0.0.1:1)/x?parseTime=s3cret"} {
		_, err := Open(t.Context(), Config{DSN: dsn, Source: "im"}, slog.New(slog.DiscardHandler))
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("DSN %q: %v", dsn, err)
		}
	}
	for _, c := range []Config{{Source: ""}, {Source: strings.Repeat("x", 65)}, {Source: "im", LeaseTTL: -1}} {
		if _, err := Open(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	now, err := s.Now(t.Context())
	if err != nil || now.Location() != time.UTC || time.Since(now).Abs() > time.Minute {
		t.Errorf("the manifest's clock says %s, %v", now, err)
	}
}
