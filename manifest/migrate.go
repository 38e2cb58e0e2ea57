package manifest

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	versionTable = "schema_versions"
	lockTable    = "schema_lock"
)

func (s *Store) provider() (*goose.Provider, error) {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	// A row with a lease, not GET_LOCK, which Vitess and some proxies lack.
	locker, err := lock.NewMySQLTableLocker(
		lock.WithTableName(lockTable),
		lock.WithTableLeaseDuration(30*time.Second),
		lock.WithTableHeartbeatInterval(5*time.Second),
		lock.WithTableLockTimeout(time.Second, 300),
		lock.WithTableUnlockTimeout(time.Second, 30),
		lock.WithTableLogger(s.log),
		lock.WithTableRetryPolicy(func(error) bool { return true }),
	)
	if err != nil {
		return nil, fmt.Errorf("migration lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectMySQL, s.db.DB, dir,
		goose.WithGoMigrations(fetchMigration(), holdsMigration(), drillsMigration(), mirrorMigration(), checksMigration(), canariesMigration(), jobsMigration(), stopsMigration(), plansMigration(), fleetMigration(), statsMigration()), goose.WithTableName(versionTable), goose.WithLocker(locker), goose.WithSlog(s.log), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return p, nil
}

// goMigration is a migration in Go. Each of its steps looks first whether it was done: DDL has
// no transaction, and one that was killed is run again.
func goMigration(version int64, name string, run func(context.Context, *sql.DB) error) *goose.Migration {
	m := goose.NewGoMigration(version, &goose.GoFunc{RunDB: run}, nil)
	m.Source = fmt.Sprintf("%05d_%s.go", version, name)
	return m
}

// makeTables runs statements that make tables which are not there yet.
func makeTables(ctx context.Context, db *sql.DB, what string, statements ...string) error {
	for _, q := range statements {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("make the tables of %s: %w", what, err)
		}
	}
	return nil
}

// Migrate creates or upgrades the manifest's tables, enters the source, and gives the
// names of the migrations it ran; with dryRun it changes nothing and gives those it
// would run.
// Any number of processes may call it at once.
func (s *Store) Migrate(ctx context.Context, dryRun bool) ([]string, error) {
	p, err := s.provider()
	if err != nil {
		return nil, err
	}
	if dryRun {
		return s.pending(ctx, p)
	}
	done, err := p.Up(ctx)
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		done = partial.Applied
	}
	var names []string
	for _, r := range done {
		names = append(names, path.Base(r.Source.Path))
	}
	if err != nil {
		return names, fmt.Errorf("migrate the manifest: %w", err)
	}
	_, err = s.sourceOf(ctx, true)
	return names, err
}

// pending lists the migrations that are not in the database. It reads the version
// table itself, since all of goose's own questions create it first.
func (s *Store) pending(ctx context.Context, p *goose.Provider) ([]string, error) {
	var exists bool
	err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
		versionTable).Scan(&exists)
	if err != nil {
		return nil, fmt.Errorf("look for the manifest's tables: %w", err)
	}
	var current int64
	if exists {
		err := s.db.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM "+versionTable+" WHERE is_applied = 1").Scan(&current)
		if err != nil {
			return nil, fmt.Errorf("read the manifest's version: %w", err)
		}
	}
	var names []string
	var newest int64
	for _, src := range p.ListSources() {
		newest = max(newest, src.Version)
		if src.Version > current {
			names = append(names, path.Base(src.Path))
		}
	}
	if current > newest {
		return nil, fmt.Errorf("the manifest has version %d, this coldtier knows up to %d: use a newer coldtier", current, newest)
	}
	return names, nil
}

// Writable says whether this account may write the manifest, and whether the server
// takes writes. It changes nothing: its statements meet no rows.
func (s *Store) Writable(ctx context.Context) error {
	for _, q := range []string{"INSERT INTO runs SELECT * FROM runs WHERE id = 0", "UPDATE runs SET outcome = outcome WHERE id = 0", "DELETE FROM runs WHERE id = 0"} {
		if _, err := s.db.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("write the manifest: %w", err)
		}
	}
	return nil
}

// Check says whether the manifest can be reached and has the tables that this
// program needs.
func (s *Store) Check(ctx context.Context) error {
	p, err := s.provider()
	if err != nil {
		return err
	}
	pending, err := s.pending(ctx, p)
	if err != nil {
		return err
	}
	if len(pending) > 0 {
		return fmt.Errorf("the manifest lacks %d migration(s), the first %s: run `coldtier migrate`", len(pending), pending[0])
	}
	return s.notRebuilding(ctx, s.db)
}
