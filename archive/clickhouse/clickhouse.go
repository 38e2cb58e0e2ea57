package clickhouse

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"
)

// DB is the table of archived messages. It is safe for concurrent use.
type DB struct {
	cfg       Config
	log       *slog.Logger
	conn      driver.Conn
	srv       server
	retryWait time.Duration // before the first retry of an insert
	groupRows uint64        // see the constant

	once      sync.Once
	transport *http.Transport // of all connections over HTTP

	mu    sync.Mutex
	types map[string]string // columns of the table, when read
}

// Open connects, asks the server for its version, and pins the settings that this
// version knows. It refuses a server whose profile would cut results short.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*DB, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &DB{cfg: cfg, log: log, retryWait: 200 * time.Millisecond, groupRows: groupRows}
	opt := d.options()
	// No database is named in the connection: it need not exist yet.
	if d.srv, err = probe(ctx, opt, cfg.Timeout); err != nil {
		return nil, fmt.Errorf("ClickHouse at %v: %w", cfg.Addrs, err)
	}
	opt.Settings = d.srv.settings(cfg)
	if d.conn, err = driver.Open(&opt); err != nil {
		return nil, fmt.Errorf("ClickHouse at %v: %w", cfg.Addrs, err)
	}
	if err := d.refuseCutResults(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("ClickHouse %s at %v: %w", d.srv.version, cfg.Addrs, err), d.conn.Close())
	}
	return d, nil
}

// options are those of a connection, without settings.
func (d *DB) options() driver.Options {
	cfg := d.cfg
	opt := driver.Options{
		Addr: cfg.Addrs, Auth: driver.Auth{Username: cfg.Username, Password: cfg.Password},
		DialTimeout: dialTimeout, ReadTimeout: cfg.Timeout, MaxOpenConns: cfg.MaxConns, MaxIdleConns: cfg.MaxConns,
		Compression: &driver.Compression{Method: driver.CompressionLZ4}, BlockBufferSize: 1, FreeBufOnConnRelease: true,
	}
	if cfg.Protocol == "http" {
		opt.Protocol, opt.TransportFunc = driver.HTTP, d.share
	}
	if cfg.TLS {
		if opt.TLS = cfg.TLSConfig; opt.TLS == nil {
			opt.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	return opt
}

// probe asks for the version over a connection without settings, since an unknown
// setting is an error.
func probe(ctx context.Context, opt driver.Options, timeout time.Duration) (server, error) {
	conn, err := driver.Open(&opt)
	if err != nil {
		return server{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var version string
	err = tell(ctx, conn.QueryRow(ctx, "SELECT version()").Scan(&version))
	if err := errors.Join(err, conn.Close()); err != nil {
		return server{}, fmt.Errorf("asking for the version: %w", err)
	}
	return parseVersion(version)
}

// refuseCutResults reads back the settings in force: with an overflow mode "break" a
// query that reaches a limit ends early, without an error.
func (d *DB) refuseCutResults(ctx context.Context) error {
	var names []string
	for _, n := range overflowModes {
		names = append(names, quote(n))
	}
	var bad []error
	err := d.query(ctx, nil, "SELECT name, value FROM system.settings WHERE name IN ("+join(names)+", 'skip_unavailable_shards', 'async_insert', 'load_balancing')",
		func(scan func(...any) error) error {
			var name, value string
			if err := scan(&name, &value); err != nil {
				return err
			}
			want := "throw"
			switch name {
			case "skip_unavailable_shards", "async_insert":
				want = "0"
			case "load_balancing":
				if d.cfg.Cluster == "" {
					return nil
				}
				want = inOrder
			}
			if value != want {
				bad = append(bad, fmt.Errorf("%w: setting %s is %q for this user: set it to %q in the user's profile", ErrPartial, name, value, want))
			}
			return nil
		})
	if err != nil {
		return fmt.Errorf("reading the settings: %w", err)
	}
	return errors.Join(bad...)
}

// Close closes all connections.
func (d *DB) Close() error {
	err := d.conn.Close()
	if d.transport != nil {
		d.transport.CloseIdleConnections()
	}
	if err != nil {
		return fmt.Errorf("closing ClickHouse connections: %w", err)
	}
	return nil
}

// share gives all connections over HTTP one transport. The driver would give each its own,
// and drop one whose statement was cancelled without closing its socket.
func (d *DB) share(t *http.Transport) (http.RoundTripper, error) {
	d.once.Do(func() {
		t.MaxIdleConns, t.MaxIdleConnsPerHost, t.IdleConnTimeout = 0, d.cfg.MaxConns, time.Minute
		d.transport = t
	})
	return d.transport, nil
}

// Version is the server's version.
func (d *DB) Version() string { return d.srv.version }

// Check says whether the server answers, the table is there and is one that Migrate
// made, and the user may read and insert. It changes nothing.
func (d *DB) Check(ctx context.Context) error {
	cols, err := d.tableColumns(ctx, tableName)
	if err != nil {
		return err
	}
	if len(cols) == 0 {
		return fmt.Errorf("ClickHouse table %s.%s: %w: it does not exist: run coldtier migrate, or coldtier rebuild clickhouse if it was lost", d.cfg.Database, tableName, ErrNoTable)
	}
	// An insert of no rows needs the same rights as one of many.
	own := join([]string{colDay, colShard, colGeneration, colAttempt, colExact})
	t := d.qualified(tableName)
	if err := d.exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s WHERE 0", t, own, own, t)); err != nil {
		return fmt.Errorf("trying an insert of no rows into ClickHouse table %s.%s: %w", d.cfg.Database, tableName, err)
	}
	return nil
}

// withTimeout bounds a statement; an earlier deadline of the caller stays.
func (d *DB) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.cfg.Timeout)
}

func (d *DB) exec(ctx context.Context, statement string) error {
	ctx, cancel := d.withTimeout(ctx)
	defer cancel()
	return tell(ctx, d.conn.Exec(ctx, statement))
}

// query runs a SELECT and gives each row's scan function to fn. The statement is ended
// in the server when fn fails. Rows that came before an error have been given to fn.
func (d *DB) query(ctx context.Context, settings driver.Settings, statement string, fn func(scan func(...any) error) error) error {
	ctx, cancel := d.withTimeout(ctx)
	defer cancel()
	if settings != nil {
		ctx = driver.Context(ctx, driver.WithSettings(settings))
	}
	rows, err := d.conn.Query(ctx, statement)
	if err != nil {
		return tell(ctx, err)
	}
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			cancel() // or Close would read the whole rest
			_ = rows.Close()
			return err
		}
	}
	if err := rows.Err(); err != nil {
		_ = rows.Close()
		return tell(ctx, err)
	}
	return tell(ctx, rows.Close())
}

func (d *DB) count(ctx context.Context, statement string) (n uint64, err error) {
	err = d.query(ctx, nil, statement, func(scan func(...any) error) error { return scan(&n) })
	return n, err
}

// columnTypes is the table's columns by name, read anew when fresh is set.
func (d *DB) columnTypes(ctx context.Context, fresh bool) (map[string]string, error) {
	d.mu.Lock()
	types := d.types
	d.mu.Unlock()
	if types != nil && !fresh {
		return types, nil
	}
	cols, err := d.tableColumns(ctx, tableName)
	if err != nil {
		return nil, err
	}
	if len(cols) == 0 {
		return nil, fmt.Errorf("ClickHouse table %s.%s: %w: it does not exist: run coldtier migrate, or coldtier rebuild clickhouse if it was lost", d.cfg.Database, tableName, ErrNoTable)
	}
	types = map[string]string{}
	for _, c := range cols {
		types[c.name] = c.kind
	}
	d.mu.Lock()
	d.types = types
	d.mu.Unlock()
	return types, nil
}

func (d *DB) forgetTypes() {
	d.mu.Lock()
	d.types = nil
	d.mu.Unlock()
}
