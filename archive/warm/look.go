package warm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Place is a configured database, for looking at its server. Nothing of it changes anything.
type Place struct{ d *database }

// Places are the configured databases, in order.
func (w *Warm) Places() []Place {
	all := make([]Place, len(w.databases))
	for i, d := range w.databases {
		all[i] = Place{d}
	}
	return all
}

// Database is the database's name.
func (p Place) Database() string { return p.d.name }

// Addr is the server's host:port.
func (p Place) Addr() string { return strings.TrimSuffix(p.d.where, "/"+p.d.name) }

// Now is the time of the server's clock.
func (p Place) Now(ctx context.Context) (time.Time, error) { return p.d.now(ctx) }

// Rights are those of the account that is configured for the database.
func (p Place) Rights(ctx context.Context) (*Rights, error) { return ReadRights(ctx, p.d.db) }

// Server reads what matters of the server's settings.
func (p Place) Server(ctx context.Context) (Server, error) { return ReadServer(ctx, p.d.db) }

// Server is a server's global variables, as far as they matter.
type Server struct {
	Version string
	ID      string // server_id
	UUID    string // server_uuid, which MariaDB has not
	vars    map[string]string
}

// ReadServer reads what matters of a server's settings.
func ReadServer(ctx context.Context, q Querier) (Server, error) {
	const names = "'version', 'server_id', 'server_uuid', 'read_only', 'super_read_only', 'log_bin', 'binlog_format', 'max_allowed_packet', 'innodb_flush_log_at_trx_commit', " +
		"'sync_binlog', 'innodb_file_per_table', 'innodb_rollback_on_timeout', 'max_connections', 'port'"
	rows, err := looked(ctx, q, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+names+")")
	if err != nil {
		return Server{}, fmt.Errorf("server variables: %w", err)
	}
	vars := map[string]string{}
	for _, r := range rows {
		vars[strings.ToLower(string(r["variable_name"]))] = string(r["value"])
	}
	return ServerOf(vars), nil
}

// ServerOf is a server of such global variables.
func ServerOf(vars map[string]string) Server {
	return Server{Version: vars["version"], ID: vars["server_id"], UUID: vars["server_uuid"], vars: vars}
}

// Var is a variable's value; "" where the server has it not.
func (s Server) Var(name string) string { return s.vars[name] }

// On says whether a variable is switched on: MariaDB's read_only has further words for it.
func (s Server) On(name string) bool {
	switch s.vars[name] {
	case "", "0", "OFF":
		return false
	}
	return true
}

// Int is a variable's number; 0 where the server has it not.
func (s Server) Int(name string) int64 {
	n, _ := strconv.ParseInt(s.vars[name], 10, 64)
	return n
}

// MariaDB says which of the two kinds the server is.
func (s Server) MariaDB() bool { return strings.Contains(s.Version, "MariaDB") }

// Source is where a replica takes its changes from: one for each of its channels.
type Source struct{ Host, Port, ID, UUID string }

// Replica is what a replica says of itself.
type Replica struct {
	Where   string // host:port
	Err     error  // it does not answer, or may not be asked; the rest is empty then
	Server  Server
	Now     time.Time
	Begun   time.Time // when it was asked for its time, and
	Ended   time.Time // when it answered, by Config.Now
	Sources []Source  // none: it is no replica
	Lag     time.Duration
	Stopped error // not nil: it does not replicate, so that its lag is unknown
}

// Replicas asks the listed replicas.
func (p Place) Replicas(ctx context.Context) (all []Replica) {
	for _, r := range p.d.replicas {
		all = append(all, p.replica(ctx, r))
	}
	return all
}

func (p Place) replica(ctx context.Context, r replica) Replica {
	x := Replica{Where: r.where}
	fail := func(err error) Replica {
		x.Err = cause(ctx, err)
		return x
	}
	var text string
	x.Begun = p.d.cfg.Now()
	if err := r.db.QueryRowContext(ctx, "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)").Scan(&text); err != nil {
		return fail(err)
	}
	x.Ended = p.d.cfg.Now()
	var err error
	if x.Now, err = time.Parse("2006-01-02 15:04:05.000000", text); err != nil {
		return fail(err)
	}
	if x.Server, err = ReadServer(ctx, r.db); err != nil {
		return fail(err)
	}
	channels, err := channelsOf(ctx, r.db)
	if err != nil {
		return fail(err)
	}
	x.Sources = sourcesOf(channels)
	if len(channels) > 0 {
		x.Lag, x.Stopped = behind(channels)
	}
	return x
}

// Sources are where the server itself takes its changes from: none of a primary.
func (p Place) Sources(ctx context.Context) ([]Source, error) {
	channels, err := channelsOf(ctx, p.d.db)
	return sourcesOf(channels), err
}

// channelsOf reads a server's replication state. An account that may not is an error, see Denied.
func channelsOf(ctx context.Context, db *sql.DB) ([]map[string][]byte, error) {
	channels, err := looked(ctx, db, "SHOW REPLICA STATUS")
	if number(err) == erSyntax { // MySQL before 8.0.22 and MariaDB before 10.5
		channels, err = looked(ctx, db, "SHOW SLAVE STATUS")
	}
	if err != nil {
		return nil, fmt.Errorf("replication state: %w", err)
	}
	return channels, nil
}

func sourcesOf(channels []map[string][]byte) (all []Source) {
	for _, c := range channels {
		get := func(name string) string {
			if v, ok := c["source_"+name]; ok {
				return string(v)
			}
			return string(c["master_"+name])
		}
		all = append(all, Source{Host: get("host"), Port: get("port"), ID: get("server_id"), UUID: get("uuid")})
	}
	return all
}

// IsOf says whether the source is the server: by its UUID where there is one, else by
// its number.
func (s Source) IsOf(x Server) bool {
	if s.UUID != "" && x.UUID != "" {
		return s.UUID == x.UUID
	}
	return s.ID == x.ID
}

// Attached is a replica, or another reader of the binary log, that is connected to a server.
type Attached struct {
	ID, UUID string // "": not known
	Where    string
}

// Is says whether it is the server.
func (a Attached) Is(x Server) bool {
	if a.UUID != "" && x.UUID != "" {
		return a.UUID == x.UUID
	}
	return a.ID != "" && a.ID == x.ID
}

// ErrUnseen says that the account may not see who is attached to the server.
var ErrUnseen = errors.New("this account may not see which replicas are attached")

// Attached lists who reads the server's binary log. The account needs REPLICATION SLAVE
// (on MariaDB REPLICATION MASTER ADMIN) or, which tells their hosts alone, PROCESS:
// else ErrUnseen.
func (p Place) Attached(ctx context.Context, rights *Rights) ([]Attached, error) {
	var rows []map[string][]byte
	var err error
	for _, q := range []string{"SHOW REPLICAS", "SHOW REPLICA HOSTS", "SHOW SLAVE HOSTS"} { // MySQL, MariaDB, older ones
		if rows, err = looked(ctx, p.d.db, q); number(err) != erSyntax {
			break
		}
	}
	if err == nil {
		all := make([]Attached, len(rows))
		for i, r := range rows {
			all[i] = Attached{ID: string(r["server_id"]), UUID: string(r["replica_uuid"])}
			if all[i].UUID == "" {
				all[i].UUID = string(r["slave_uuid"])
			}
			if host := string(r["host"]); host != "" {
				all[i].Where = net.JoinHostPort(host, string(r["port"]))
			}
		}
		return all, nil
	}
	if !denied(err) {
		return nil, fmt.Errorf("attached replicas: %w", err)
	}
	if len(rights.Lacks("", "", "PROCESS")) > 0 { // it would see its own connections alone
		return nil, ErrUnseen
	}
	if rows, err = looked(ctx, p.d.db, "SHOW PROCESSLIST"); err != nil {
		return nil, fmt.Errorf("attached replicas: %w", err)
	}
	var all []Attached
	for _, r := range rows {
		if strings.HasPrefix(string(r["command"]), "Binlog Dump") {
			all = append(all, Attached{Where: string(r["host"])})
		}
	}
	return all, nil
}

// Denied says whether a server refused something to the account.
func Denied(err error) bool { return denied(err) }

// OpenPlain opens a pool of two connections for looking at a server whose DSN may name no
// database.
func OpenPlain(dsn string) (*sql.DB, error) {
	m, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("DSN is malformed: want user:password@tcp(host:port)/database?param=value")
	}
	m.Params, m.Collation = map[string]string{"sql_mode": "''"}, ""
	def(&m.Timeout, 10*time.Second)
	def(&m.ReadTimeout, 30*time.Second)
	connector, err := mysql.NewConnector(m)
	if err != nil {
		return nil, fmt.Errorf("DSN of %s: %w", m.Addr, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(2)
	return db, nil
}
