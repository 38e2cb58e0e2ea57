package scratch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Database is a database that a drill must never touch.
type Database struct {
	Name string
	What string // such as "a warm database"
	dsn  string
}

// Kept names a database that must never be touched.
func Kept(dsn, what string) Database { return Database{What: what, dsn: dsn} }

// askTime is how long a server may take to say whether it is the scratch server.
const askTime = 10 * time.Second

// Guard finds which of the databases are on this server, however either is addressed, and
// refuses a base that is one of them, or that has tables. The lock must be held: by it a
// server is known. Databases that could not be asked are in unknown.
func (s *Server) Guard(ctx context.Context, all []Database) (unknown []error, err error) {
	if s.lock == nil {
		return nil, errors.New("scratch: guard without the lock")
	}
	for _, d := range all {
		my, err := mysql.ParseDSN(d.dsn)
		if err != nil {
			return unknown, fmt.Errorf("%s: %w", d.What, err)
		}
		d.Name = my.DBName
		here, err := s.sees(ctx, my)
		if ctx.Err() != nil {
			return unknown, context.Cause(ctx)
		}
		if err != nil {
			unknown = append(unknown, fmt.Errorf("%s could not be asked whether it is on the scratch server: %w", d.What, err))
			here = my.Addr == s.my.Addr
		}
		if !here {
			continue
		}
		s.kept = append(s.kept, d)
		if strings.EqualFold(d.Name, s.base) {
			return unknown, fmt.Errorf("%w: drill.scratch_dsn names %s, %s: name a database that is not there, beside which the drill makes its own", ErrRefused, s.base, d.What)
		}
	}
	tables, err := s.tables(ctx, s.base)
	if err != nil {
		return unknown, fmt.Errorf("scratch server: %w", err)
	}
	if len(tables) > 0 {
		return unknown, fmt.Errorf("%w: database %s, which drill.scratch_dsn names, has tables (%s): name one that is empty or not there", ErrRefused, s.base, strings.Join(tables, ", "))
	}
	return unknown, nil
}

// sees says whether a DSN leads to this server. Its account need not have any right there.
func (s *Server) sees(ctx context.Context, my *mysql.Config) (here bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	my = my.Clone()
	my.DBName = ""
	conn, err := mysql.NewConnector(my)
	if err != nil {
		return false, err
	}
	db := sql.OpenDB(conn)
	defer func() { err = errors.Join(err, db.Close()) }()
	var mine int64
	if err := s.lock.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&mine); err != nil {
		return false, err
	}
	var holder sql.NullInt64
	if err := db.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", s.name).Scan(&holder); err != nil {
		return false, err
	}
	return holder.Valid && holder.Int64 == mine, nil
}

// writes are the privileges by which something could be harmed.
const writes = "'INSERT', 'UPDATE', 'DELETE', 'DROP', 'ALTER', 'CREATE'"

// Mighty says what the account may write beside its own databases: it need not, and a
// drill does not.
func (s *Server) Mighty(ctx context.Context) ([]string, error) {
	var user string
	if err := s.db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&user); err != nil {
		return nil, fmt.Errorf("scratch server: %w", err)
	}
	at := strings.LastIndexByte(user, '@')
	grantee := "'" + user[:max(at, 0)] + "'@'" + user[at+1:] + "'"
	ask := func(q string, args ...any) ([]string, error) {
		rows, err := s.db.QueryContext(ctx, q, args...)
		if err != nil {
			return nil, fmt.Errorf("scratch server: what the account may: %w", err)
		}
		return texts(rows)
	}
	global, err := ask("SELECT privilege_type AS p FROM information_schema.user_privileges WHERE grantee = ? AND privilege_type IN ("+writes+")", grantee)
	if err != nil {
		return nil, err
	}
	if len(global) > 0 {
		return []string{fmt.Sprintf("account %s may write all databases of the scratch server (%s on *.*): give the drill an account of its own, see deploy/sql/target/drill.sql", user, strings.Join(global, ", "))}, nil
	}
	var out []string
	for _, k := range s.kept {
		may, err := ask("SELECT DISTINCT privilege_type AS p FROM information_schema.schema_privileges WHERE grantee = ? AND ? LIKE table_schema AND privilege_type IN ("+writes+")", grantee, k.Name)
		if err != nil {
			return nil, err
		}
		if len(may) > 0 {
			slices.Sort(may)
			out = append(out, fmt.Sprintf("account %s may write %s, %s (%s): give the drill an account of its own, see deploy/sql/target/drill.sql", user, k.Name, k.What, strings.Join(may, ", ")))
		}
	}
	return out, nil
}
