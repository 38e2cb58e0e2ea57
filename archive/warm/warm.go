package warm

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Warm is the warm tables' servers.
type Warm struct {
	cfg       Config
	databases []*database
	upkeep    *upkeep
}

// database is one database and how to reach it.
type database struct {
	cfg      *Config
	log      *slog.Logger
	name     string
	where    string // host:port/name, without secrets
	address  string // where its DSN leads
	addr     string // host:port: databases that have it are on one server
	dsn      string
	db       *sql.DB
	killer   *sql.DB // so that a full pool does not keep a statement from being killed
	replicas []replica

	reads     *sql.DB       // of readers
	gate      chan struct{} // has a place for each reader that there may be
	refreshes chan struct{} // and one for each definition that may be read anew for them
	kills     kills
	upkeep    *upkeep
}

type replica struct {
	where string
	db    *sql.DB
}

// Open prepares the connections; nothing is connected to before it is needed.
func Open(cfg Config, log *slog.Logger) (*Warm, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Warm{cfg: cfg, upkeep: newUpkeep()}
	for i, d := range cfg.Databases {
		if err := w.add(d, log); err != nil {
			return nil, errors.Join(fmt.Errorf("source.databases[%d]: %w", i, err), w.Close())
		}
	}
	return w, nil
}

func (w *Warm) add(d Database, log *slog.Logger) error {
	m, err := w.cfg.pin(d.DSN)
	if err != nil {
		return err
	}
	x := &database{cfg: &w.cfg, log: log, name: m.DBName, where: m.Addr + "/" + m.DBName, address: address(m), addr: m.Addr, dsn: d.DSN, upkeep: w.upkeep,
		gate: make(chan struct{}, w.cfg.Connections), refreshes: make(chan struct{}, refreshing)}
	x.kills.d = x
	w.databases = append(w.databases, x) // first, so that Close closes what was opened
	if x.db, err = w.cfg.open(m, w.cfg.Connections, log); err != nil {
		return err
	}
	if x.killer, err = w.cfg.open(m, 2, log); err != nil {
		return err
	}
	if x.reads, err = w.cfg.open(m, w.cfg.Connections, log); err != nil {
		return err
	}
	x.reads.SetMaxOpenConns(0) // the gate bounds them
	for _, dsn := range d.Replicas {
		r, err := w.cfg.pin(dsn)
		if err != nil {
			return fmt.Errorf("replica: %w", err)
		}
		db, err := w.cfg.open(r, 2, log)
		if err != nil {
			return fmt.Errorf("replica: %w", err)
		}
		x.replicas = append(x.replicas, replica{r.Addr, db})
	}
	return nil
}

// driverLog takes what the driver says of lost connections; the errors themselves are returned.
type driverLog struct{ log *slog.Logger }

// Print implements mysql.Logger.
func (l driverLog) Print(v ...any) { l.log.Debug("MySQL driver", "message", fmt.Sprint(v...)) }

func (c *Config) open(m *mysql.Config, connections int, log *slog.Logger) (*sql.DB, error) {
	m.Logger = driverLog{log}
	connector, err := mysql.NewConnector(m)
	if err != nil {
		return nil, fmt.Errorf("DSN of %s: %w", m.Addr, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(time.Minute)
	db.SetConnMaxLifetime(30 * time.Minute)
	return db, nil
}

// Close closes all connections.
func (w *Warm) Close() error {
	w.upkeep.end()
	var errs []error
	for _, d := range w.databases {
		dbs := []*sql.DB{d.db, d.killer, d.reads}
		for _, r := range d.replicas {
			dbs = append(dbs, r.db)
		}
		for _, db := range dbs {
			if db != nil {
				errs = append(errs, db.Close())
			}
		}
	}
	return errors.Join(errs...)
}

// session is one connection, held for a while. When a statement on it ended
// without the server's answer the connection is not used again and the statement,
// which runs on in the server, is killed there.
type session struct {
	d    *database
	conn *sql.Conn
	id   uint64 // the connection's number in the server
	cut  bool   // a statement ended without an answer
	once bool   // not to be used again: its settings or locks differ
}

func (d *database) session(ctx context.Context) (*session, error) { return d.connect(ctx, d.db) }

func (d *database) connect(ctx context.Context, pool *sql.DB) (*session, error) {
	// A pooled connection may have died unnoticed, and only the pool retries that: so
	// the first statement is a harmless one.
	var err error
	for range 3 {
		var conn *sql.Conn
		if conn, err = pool.Conn(ctx); err != nil {
			break
		}
		s := &session{d: d, conn: conn}
		if err = conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&s.id); err == nil {
			return s, nil
		}
		s.drop()
		if ctx.Err() != nil || answered(err) {
			break
		}
	}
	return nil, fmt.Errorf("database %s: connect: %w", d.where, cause(ctx, err))
}

// note looks at a statement's error, and gives it back with its sentinel.
func (s *session) note(ctx context.Context, err error) error {
	if err != nil && !answered(err) && !errors.Is(err, sql.ErrNoRows) {
		s.cut = true
	}
	return cause(ctx, told(err))
}

func (s *session) exec(ctx context.Context, q string) (sql.Result, error) {
	r, err := s.conn.ExecContext(ctx, q)
	return r, s.note(ctx, err)
}

// row reads one row.
func (s *session) row(ctx context.Context, q string, into ...any) error {
	return s.note(ctx, s.conn.QueryRowContext(ctx, q).Scan(into...))
}

// rows calls fn for each row; the values are valid until it returns, nil for NULL.
func (s *session) rows(ctx context.Context, q string, fn func(values [][]byte) error) error {
	rows, err := s.conn.QueryContext(ctx, q)
	if err != nil {
		return s.note(ctx, err)
	}
	fnErr, err := eachRow(rows, fn)
	return errors.Join(fnErr, s.note(ctx, err))
}

// eachRow reads a result set to its end or to fn's first error. What the server
// tells only after the last row it sent (a time limit, a kill) is in err.
func eachRow(rows *sql.Rows, fn func(values [][]byte) error) (fnErr, err error) {
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	raw := make([]sql.RawBytes, len(columns))
	into, values := make([]any, len(columns)), make([][]byte, len(columns))
	for i := range raw {
		into[i] = &raw[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		for i, v := range raw {
			values[i] = v
		}
		if fnErr := fn(values); fnErr != nil {
			return fnErr, nil
		}
	}
	return nil, rows.Err()
}

// close gives the connection back, or ends it and what still runs on it.
func (s *session) close(ctx context.Context) {
	switch {
	case s.cut:
		s.drop()
	case s.once:
		s.drop()
		return
	default:
		_ = s.conn.Close() // gives it back to the pool
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if err := s.d.killQuery(ctx, s.id); err != nil {
		s.d.log.Warn("a cut-off statement could not be killed and may run on", "database", s.d.where, "connection", s.id, "error", err)
	}
}

const killTime = 5 * time.Second

// drop closes the connection for good, so that its session settings and locks go.
func (s *session) drop() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

// quote makes an identifier.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
