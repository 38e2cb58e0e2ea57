package manifest

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/stack"
)

// allMigrations are the migrations there are, in their order.
func allMigrations() []string {
	return []string{"00001_manifest.sql", "00002_fetch.go", "00003_holds.go", "00004_drills.go", "00005_mirror.go", "00006_checks.go", "00007_canaries.go", "00008_jobs.go", "00009_stops.go", "00010_plans.go", "00011_fleet.go", "00012_stats.go"}
}

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
	if !slices.Equal(ran, allMigrations()) {
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
	if names, err := s.Migrate(ctx, true); err != nil || len(names) != len(allMigrations()) {
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
	if names, err := s.Migrate(ctx, false); err != nil || len(names) != len(allMigrations()) {
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

// An upgrade of a manifest that is in use says in doubt that a purge was begun, gives
// segments their days, and may be stopped anywhere and run again.
func TestUpgradeForTheFetch(t *testing.T) {
	t.Parallel()
	s := openAt(t, stack.MySQL(t), testSource, time.Minute)
	ctx := t.Context()
	p, err := s.provider()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.sourceOf(ctx, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(ctx); err == nil || !strings.Contains(err.Error(), "00002_fetch.go") {
		t.Errorf("check of an old manifest: %v", err)
	}
	do := func(query string, args ...any) {
		t.Helper()
		if _, err := s.db.ExecContext(ctx, query, args...); err != nil {
			t.Fatalf("%v in %s", err, query)
		}
	}
	do("ALTER TABLE holds ADD COLUMN expires_at DATETIME(6) NULL") // which the reader of today wants, and the next migration then finds
	do("ALTER TABLE slices ADD COLUMN interrupted INT UNSIGNED NOT NULL DEFAULT 0, ADD COLUMN tried_seconds INT UNSIGNED NOT NULL DEFAULT 0")
	chunk := "INSERT INTO chunks (slice_id, token, seq, from_id, to_id, warm_hi, warm_lo, warm_rows, carried_hi, carried_lo, carried_rows, state) VALUES (?, 1, 0, 0, 1, 0, 0, 1, 0, 0, ?, ?)"
	cases := []struct {
		name, set string
		chunk     string
		carried   int
		begun     bool
	}{
		{"pending", "state = 'pending'", "", 0, false},
		{"verified", "state = 'verified'", "present", 0, false},
		{"given back untouched", "state = 'verified', reason = 'drifted'", "present", 0, false},
		{"purging", "state = 'purging'", "present", 0, true},
		{"purged", "state = 'purged'", "deleted", 0, true},
		{"purged once", "state = 'pending', purged_at = UTC_TIMESTAMP(6)", "present", 0, true},
		{"staging", "state = 'pending', staging = 's'", "present", 0, true},
		{"late", "state = 'copying', reason = 'late'", "present", 0, true},
		{"deleting", "state = 'verified'", "deleting", 0, true},
		{"carried", "state = 'committed'", "present", 1, true},
	}
	for i, c := range cases {
		sl := testSlice(t, s, i+1)
		do("UPDATE slices SET "+c.set+" WHERE id = ?", sl.ID)
		if c.chunk != "" {
			do(chunk, sl.ID, c.carried, c.chunk)
		}
		do("INSERT INTO segments (slice_id, token, object_seq, seq, source_id, conversation, min_cursor, max_cursor, first_row, row_count, first_group, last_group, sum_hi, sum_lo) "+
			"SELECT id, 1, 0, 0, source_id, 'c', lo, hi, 0, 1, 0, 0, 0, 0 FROM slices WHERE id = ?", sl.ID)
	}
	columns := func() (n int) {
		t.Helper()
		if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// It was stopped after some of its statements, which were done by hand.
	first := columns()
	for _, q := range []string{"", "ALTER TABLE sources ADD COLUMN live_version BIGINT UNSIGNED NOT NULL DEFAULT 0", "ALTER TABLE slices ADD COLUMN purge_begun TINYINT UNSIGNED NOT NULL DEFAULT 0",
		"ALTER TABLE segments ADD COLUMN day DATE NOT NULL", "UPDATE segments s JOIN slices x ON x.id = s.slice_id SET s.day = x.day WHERE x.id = 2", "ALTER TABLE segments ADD KEY page_day (source_id, conversation, day)"} {
		if q != "" {
			do(q)
		}
		if names, err := s.Migrate(ctx, true); err != nil || !slices.Equal(names, allMigrations()[1:]) {
			t.Errorf("would run %v, %v", names, err)
		}
	}
	if names, err := s.Migrate(ctx, false); err != nil || !slices.Equal(names, allMigrations()[1:]) {
		t.Fatalf("ran %v, %v", names, err)
	}
	whole := columns()
	do("UPDATE slices SET purge_begun = 0")
	do("ALTER TABLE slices DROP KEY begun")
	do("DELETE FROM "+versionTable+" WHERE version_id >= ?", 2)
	if _, err := s.Migrate(ctx, false); err != nil {
		t.Fatal(err)
	}
	if n := columns(); n != whole || n <= first {
		t.Errorf("%d columns at first, %d after the upgrade, %d after another", first, whole, n)
	}
	for i, c := range cases {
		var begun bool
		var day time.Time
		if err := s.db.QueryRowContext(ctx, "SELECT s.purge_begun, g.day FROM slices s JOIN segments g ON g.slice_id = s.id WHERE s.day = ?", testKey(i+1).Day).Scan(&begun, &day); err != nil {
			t.Fatal(err)
		}
		if begun != c.begun || day.Format(time.DateOnly) != testKey(i+1).Day.String() {
			t.Errorf("%s: begun %t, day %s", c.name, begun, day)
		}
	}
	if m, err := s.Moving(ctx); err != nil || m.Version != 0 {
		t.Errorf("moving %+v, %v", m, err)
	}
	// A coldtier of before can commit nothing that the new one would not find.
	if _, err := s.db.ExecContext(ctx, "INSERT INTO segments (slice_id, token, object_seq, seq, source_id, conversation, min_cursor, max_cursor, first_row, row_count, first_group, last_group, sum_hi, sum_lo) "+
		"VALUES (1, 9, 0, 0, 1, 'c', 1, 1, 0, 1, 0, 0, 0, 0)"); err == nil {
		t.Error("a segment without a day is taken")
	}
}
