package manifest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
)

// DefaultLeaseTTL is how long a lease lasts when it is not renewed.
const DefaultLeaseTTL = time.Minute

// Config says where the manifest is and whose slices it is opened for.
type Config struct {
	DSN      string        // user:password@tcp(host:port)/database
	Source   string        // source.name: all that the store gives and takes belongs to it
	LeaseTTL time.Duration // 0: DefaultLeaseTTL
	// Idle is how many connections are kept for the next statement; 0: 8. To make one
	// takes several round trips, which a reader with a deadline may not have the time for.
	Idle int
	// OnRetry, when not nil, is called whenever a transaction is tried again.
	OnRetry func()
}

// Store is the manifest of one source. It is safe for concurrent use.
type Store struct {
	db     *database
	log    *slog.Logger
	source string
	ttl    time.Duration

	deadlocks atomic.Int64
	onRetry   func()

	mu       sync.Mutex
	sourceID uint32                     // 0: not known yet
	schemas  map[string]*message.Schema // by hash; they never change
	packet   int                        // the server's max_allowed_packet; 0: not known yet
}

// Open connects to the manifest. It changes nothing there; see Migrate.
func Open(ctx context.Context, c Config, log *slog.Logger) (*Store, error) {
	if c.LeaseTTL == 0 {
		c.LeaseTTL = DefaultLeaseTTL
	}
	if c.OnRetry == nil {
		c.OnRetry = func() {}
	}
	if c.LeaseTTL < 0 || c.LeaseTTL > 24*time.Hour {
		return nil, fmt.Errorf("manifest lease of %s: want up to 24h", c.LeaseTTL)
	}
	if c.Source == "" || len(c.Source) > 64 {
		return nil, fmt.Errorf("source name %q: want 1 to 64 bytes", c.Source)
	}
	m, err := mysql.ParseDSN(c.DSN)
	if err != nil || m.DBName == "" {
		// The driver's error may hold parts of the DSN, and so of the password.
		return nil, errors.New("manifest DSN: want user:password@tcp(host:port)/database")
	}
	// A transaction that a frozen worker left open ends with its connection, at
	// the latest after idle. Pooled connections are closed before that.
	idle := max(2*c.LeaseTTL, 30*time.Second).Round(time.Second)
	m.ParseTime, m.Loc = true, time.UTC
	m.ClientFoundRows = true // an UPDATE that finds its row counts 1, even if nothing changed
	m.InterpolateParams = true
	m.Collation = "utf8mb4_bin"
	m.Logger = driverLog{log}
	if m.Timeout == 0 {
		m.Timeout = 10 * time.Second
	}
	if m.ReadTimeout == 0 {
		m.ReadTimeout = time.Minute
	}
	if m.WriteTimeout == 0 {
		m.WriteTimeout = time.Minute
	}
	if m.Params == nil {
		m.Params = map[string]string{}
	}
	m.Params["autocommit"] = "1"
	m.Params["time_zone"] = "'+00:00'"
	m.Params["sql_mode"] = "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"
	m.Params["wait_timeout"] = strconv.Itoa(int(idle / time.Second))
	connector, err := mysql.NewConnector(m)
	if err != nil {
		return nil, errors.New("manifest DSN: want user:password@tcp(host:port)/database")
	}
	db := sql.OpenDB(connector)
	db.SetConnMaxIdleTime(idle / 2)
	db.SetMaxIdleConns(cmp.Or(c.Idle, 8))
	db.SetMaxOpenConns(max(64, 2*c.Idle)) // whoever finds them all in use waits for one, as long as his context lasts
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("connect to the manifest %s/%s: %w", m.Addr, m.DBName, err)
	}
	s := &Store{log: log, source: c.Source, ttl: c.LeaseTTL, onRetry: c.OnRetry, schemas: map[string]*message.Schema{}}
	s.db = &database{db, s}
	return s, nil
}

// driverLog takes what the driver would print: that a connection broke, of which
// the caller learns by an error as well.
type driverLog struct{ log *slog.Logger }

// Print writes a log line.
func (d driverLog) Print(v ...any) { d.log.Debug("MySQL driver", "message", fmt.Sprint(v...)) }

// Close closes the connections.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close the manifest: %w", err)
	}
	return nil
}

// Source is the name of the source the store is opened for.
func (s *Store) Source() string { return s.source }

// Known says whether the manifest knows the source: it does from the first migrate on.
func (s *Store) Known(ctx context.Context) (bool, error) {
	id, err := s.sourceOf(ctx, false)
	return id != 0, err
}

// Now is the time by the manifest's clock, which judges leases and lags.
func (s *Store) Now(ctx context.Context) (t time.Time, err error) {
	if err := s.db.QueryRowContext(ctx, "SELECT UTC_TIMESTAMP(6)").Scan(&t); err != nil {
		return t, fmt.Errorf("read the manifest's clock: %w", err)
	}
	return t, nil
}

// reader is what *sql.DB and *sql.Tx have in common.
type reader interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

const maxDeadlocks = 5

// database runs a statement outside of transactions again when the server ended it as a
// deadlock's victim: it was rolled back whole.
type database struct {
	*sql.DB
	s *Store
}

func (d *database) ExecContext(ctx context.Context, query string, args ...any) (r sql.Result, err error) {
	err = d.s.repeated(ctx, func() error {
		r, err = d.DB.ExecContext(ctx, query, args...)
		return err
	})
	return r, err
}

// inTx runs fn in a transaction, again when the server ended it as a deadlock's
// victim. READ COMMITTED, so that writers of different slices lock no gaps.
func (s *Store) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return s.repeated(ctx, func() error { return s.once(ctx, fn) })
}

// repeated runs what is a transaction of its own, again when the server ended it as a
// deadlock's victim.
func (s *Store) repeated(ctx context.Context, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if try < maxDeadlocks && deadlocked(err) {
			s.deadlocks.Add(1)
			s.onRetry()
			s.log.DebugContext(ctx, "deadlock, trying again", "try", try, "error", err)
			continue
		}
		return err
	}
}

// Deadlocks is how many of this store's transactions the server ended for another's
// sake and were run again.
func (s *Store) Deadlocks() int64 { return s.deadlocks.Load() }

func (s *Store) once(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_ = end(ctx, tx.Rollback) // the server does it as well when the connection is gone
		return err
	}
	return end(ctx, tx.Commit)
}

// end runs a COMMIT or a ROLLBACK until the context ends. The driver itself waits for
// a silent server up to its read timeout; what becomes of the transaction is then
// unknown, as when its answer is lost.
func end(ctx context.Context, fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select { // what is known is said, whichever was first
	case err := <-done:
		return err
	default:
		return ctx.Err()
	}
}

// exec gives the number of rows that a statement found.
func exec(ctx context.Context, q reader, query string, args ...any) (int64, error) {
	r, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// sourceOf finds the source's number; with create it is given one when it has none.
// 0: it has none.
func (s *Store) sourceOf(ctx context.Context, create bool) (uint32, error) {
	s.mu.Lock()
	id := s.sourceID
	s.mu.Unlock()
	if id != 0 {
		return id, nil
	}
	const find = "SELECT id FROM sources WHERE name = ?"
	err := s.db.QueryRowContext(ctx, find, s.source).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		if !create {
			return 0, nil
		}
		if _, err = s.db.ExecContext(ctx, "INSERT IGNORE INTO sources (name, identity) VALUES (?, ?)", s.source, newIdentity()); err == nil {
			err = s.db.QueryRowContext(ctx, find, s.source).Scan(&id)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("look up source %s in the manifest: %w", s.source, err)
	}
	s.mu.Lock()
	s.sourceID = id
	s.mu.Unlock()
	return id, nil
}

func micros(d time.Duration) int64 { return d.Microseconds() }
