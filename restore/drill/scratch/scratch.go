package scratch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MarkerTable is the table that says of a database that a drill made it.
const MarkerTable = "coldtier_drill_marker"

// infix stands between the base and the drill in the names of databases.
const infix = "_drill_"

// maxBase leaves room in a name of 64 characters for the infix, a drill's ID and a place.
const maxBase = 36

var (
	// ErrRefused says that the drill must not work there; nothing was made.
	ErrRefused = errors.New("scratch database refused")
	// ErrBusy says that another drill of the manifest holds the server.
	ErrBusy = errors.New("another drill runs")
	// ErrLockLost says that the connection with the drill's lock has ended.
	ErrLockLost = errors.New("the drill's lock is lost")
)

// Config says where scratch databases are made, and for which drill.
type Config struct {
	DSN      string // its database is the base of the names
	Drill    string // lower-case hexadecimal, new for each drill
	Source   string
	Identity string // of the live manifest
	Host     string // who drills
}

// Server is a server with scratch databases. It is safe for concurrent use.
type Server struct {
	cfg  Config
	base string
	my   *mysql.Config
	db   *sql.DB
	lock *sql.Conn // holds the lock
	name string    // of the lock

	version string

	mu   sync.Mutex
	made []string
	kept []Database // databases that must never be touched
}

var drillID = regexp.MustCompile(`^[0-9a-f]{8,12}$`)

// Open connects. It makes nothing.
func Open(ctx context.Context, c Config) (*Server, error) {
	if !drillID.MatchString(c.Drill) || len(c.Identity) < 16 {
		return nil, fmt.Errorf("scratch: drill %q of manifest %q: no IDs", c.Drill, c.Identity)
	}
	my, err := mysql.ParseDSN(c.DSN)
	if err != nil {
		return nil, fmt.Errorf("scratch DSN: %w", err)
	}
	s := &Server{cfg: c, base: my.DBName, my: my, name: "coldtier_drill_" + strings.ReplaceAll(c.Identity, "-", "")}
	s.name = s.name[:min(len(s.name), 64)]
	if s.base == "" || len([]rune(s.base)) > maxBase {
		return nil, fmt.Errorf("%w: the DSN names database %q: want a name of 1 to %d characters, beside which the drill makes its own", ErrRefused, s.base, maxBase)
	}
	my = my.Clone()
	my.DBName = "" // it need not be there
	if my.Params == nil {
		my.Params = map[string]string{}
	}
	my.Params["time_zone"], my.Params["sql_mode"] = "'+00:00'", "'NO_BACKSLASH_ESCAPES'"
	my.InterpolateParams = false
	conn, err := mysql.NewConnector(my)
	if err != nil {
		return nil, fmt.Errorf("scratch DSN: %w", err)
	}
	s.db = sql.OpenDB(conn)
	s.db.SetMaxOpenConns(6)
	if err := s.db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&s.version); err != nil {
		return nil, errors.Join(fmt.Errorf("scratch server %s: connect: %w", my.Addr, err), s.db.Close())
	}
	return s, nil
}

// Close gives the lock back and closes all connections. It drops nothing.
func (s *Server) Close() error {
	var err error
	if s.lock != nil {
		err = s.lock.Close()
	}
	return errors.Join(err, s.db.Close())
}

// Where is where the server is, and the base of the names.
func (s *Server) Where() string { return s.my.Addr + "/" + s.base }

// Base is the database that the DSN names.
func (s *Server) Base() string { return s.base }

// DSN is how to reach one of its databases.
func (s *Server) DSN(database string) string {
	my := s.my.Clone()
	my.DBName = database
	return my.FormatDSN()
}

// lockWait is for how many seconds a lock is waited for: the server sees only after a
// moment that the connection of a drill that has just ended is closed.
const lockWait = 3

// Lock takes the right to drill, which ends with the connection; ErrBusy.
func (s *Server) Lock(ctx context.Context) (err error) {
	if s.lock, err = s.db.Conn(ctx); err != nil {
		return fmt.Errorf("scratch server: %w", err)
	}
	// The server ends a connection that says nothing; a drill may take hours.
	if _, err := s.lock.ExecContext(ctx, "SET SESSION wait_timeout = 86400"); err != nil {
		return fmt.Errorf("scratch server: %w", err)
	}
	var got sql.NullInt64
	if err := s.lock.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", s.name, lockWait).Scan(&got); err != nil {
		return fmt.Errorf("scratch server: take the lock %s: %w", s.name, err)
	}
	if got.Int64 != 1 {
		return fmt.Errorf("%w: it holds the lock %s on %s: wait until it has ended", ErrBusy, s.name, s.my.Addr)
	}
	return nil
}

// Watch looks every few seconds whether the lock is still held, and ends the context that
// it gives when it is not: another drill may then drop what this one made.
func (s *Server) Watch(ctx context.Context, sleep func(context.Context, time.Duration) error) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for sleep(watched, watchEvery) == nil {
			var mine bool
			err := s.lock.QueryRowContext(watched, "SELECT COALESCE(IS_USED_LOCK(?) = CONNECTION_ID(), 0)", s.name).Scan(&mine)
			if watched.Err() == nil && (err != nil || !mine) {
				cancel(errors.Join(ErrLockLost, err))
				return
			}
		}
	})
	return watched, func() { cancel(nil); wg.Wait() }
}

const watchEvery = 3 * time.Second

// Make makes a database for a place of the drill, marked and otherwise empty.
func (s *Server) Make(ctx context.Context, place string) (name string, err error) {
	name = s.base + infix + s.cfg.Drill + "_" + place
	for _, k := range s.kept { // it cannot be: it would have to be there
		if strings.EqualFold(k.Name, name) {
			return "", fmt.Errorf("%w: %s is %s", ErrRefused, name, k.What)
		}
	}
	fail := func(what string, err error) (string, error) {
		return "", fmt.Errorf("scratch database %s: %s: %w", name, what, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.db.ExecContext(ctx, "CREATE DATABASE "+quote(name)+" CHARACTER SET utf8mb4"); err != nil {
		return fail("make it", err)
	}
	s.made = append(s.made, name)
	if tables, err := s.tables(ctx, name); err != nil {
		return fail("look at it", err)
	} else if len(tables) > 0 {
		return "", fmt.Errorf("%w: %s has tables although it was just made: %s", ErrRefused, name, strings.Join(tables, ", "))
	}
	if _, err := s.db.ExecContext(ctx, "CREATE TABLE "+quote(name)+"."+quote(MarkerTable)+" (drill VARCHAR(32) NOT NULL PRIMARY KEY, source VARCHAR(255) NOT NULL, identity VARCHAR(64) NOT NULL, host VARCHAR(255) NOT NULL, began TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)"); err != nil {
		return fail("mark it", err)
	}
	if _, err := s.db.ExecContext(ctx, "INSERT INTO "+quote(name)+"."+quote(MarkerTable)+" (drill, source, identity, host) VALUES (?, ?, ?, ?)", s.cfg.Drill, s.cfg.Source, s.cfg.Identity, cut(s.cfg.Host, 255)); err != nil {
		return fail("mark it", err)
	}
	return name, nil
}

func cut(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// Drop drops a database that this drill made.
func (s *Server) Drop(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.made, name)
	if i < 0 {
		return fmt.Errorf("%w: %s was not made by this drill", ErrRefused, name)
	}
	if _, err := s.db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+quote(name)); err != nil {
		return fmt.Errorf("scratch database %s: drop it: %w: the next drill does", name, err)
	}
	s.made = slices.Delete(s.made, i, i+1)
	return nil
}

// DropAll drops all that this drill made.
func (s *Server) DropAll(ctx context.Context) error {
	s.mu.Lock()
	made := slices.Clone(s.made)
	s.mu.Unlock()
	var errs []error
	for _, name := range made {
		errs = append(errs, s.Drop(ctx, name))
	}
	return errors.Join(errs...)
}

// Clear drops what dead drills of this manifest have left. What has such a name and no
// such marker is left, and named.
func (s *Server) Clear(ctx context.Context) (dropped, left []string, err error) {
	fail := func(err error) ([]string, []string, error) {
		return dropped, left, fmt.Errorf("scratch server: look for what former drills left: %w", err)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT schema_name AS name FROM information_schema.schemata WHERE LEFT(schema_name, ?) = ?", len([]rune(s.base+infix)), s.base+infix)
	if err != nil {
		return fail(err)
	}
	names, err := texts(rows)
	if err != nil {
		return fail(err)
	}
	of := regexp.MustCompile("^" + regexp.QuoteMeta(s.base+infix) + `[0-9a-f]{8,12}_[a-z0-9_]+$`)
	for _, name := range names {
		if !of.MatchString(name) || slices.ContainsFunc(s.kept, func(k Database) bool { return strings.EqualFold(k.Name, name) }) {
			left = append(left, name)
			continue
		}
		var is int
		err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+quote(name)+"."+quote(MarkerTable)+" WHERE identity = ? AND source = ? AND INSTR(?, CONCAT('"+infix+"', drill, '_')) > 0", s.cfg.Identity, s.cfg.Source, name).Scan(&is)
		var answer *mysql.MySQLError
		if errors.As(err, &answer) && (answer.Number == 1146 || answer.Number == 1054 || answer.Number == 1049) || err == nil && is != 1 {
			left = append(left, name)
			continue
		}
		if err != nil {
			return fail(err)
		}
		if _, err := s.db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+quote(name)); err != nil {
			return fail(fmt.Errorf("drop %s: %w", name, err))
		}
		dropped = append(dropped, name)
	}
	return dropped, left, nil
}

func (s *Server) tables(ctx context.Context, database string) ([]string, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = ? LIMIT 5", database)
	if err != nil {
		return nil, err
	}
	return texts(rows)
}

func texts(rows *sql.Rows) (all []string, err error) {
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// Version is the server's kind and version.
func (s *Server) Version() (kind, version string) {
	kind = "MySQL"
	if strings.Contains(s.version, "MariaDB") {
		kind = "MariaDB"
	}
	return kind, s.version
}
