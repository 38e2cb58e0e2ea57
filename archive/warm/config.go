package warm

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
)

// Database is one database with warm tables.
type Database struct {
	DSN      string   // of the primary: user:password@tcp(host:port)/database
	Replicas []string // DSNs watched for lag
}

// Config says where the warm tables are and what their columns mean. Zero values
// take the defaults.
type Config struct {
	Databases []Database
	Tables    []string                // globs of table names, in each database
	Columns   map[message.Role]string // which column plays which role
	Layout    snowflake.Layout
	Zone      *time.Location // whose midnight cuts the days; created_at may be written in it
	// ChunkRows and ChunkBytes bound a chunk of a scan. A chunk is also what the
	// purge by rows locks and deletes at once.
	ChunkRows  int
	ChunkBytes int
	// ChunkTime is how long a chunk's read should last; fewer rows are read when it lasts longer.
	ChunkTime time.Duration
	// StatementLimit is after how long the server ends a statement.
	StatementLimit time.Duration
	// LockWait is how long to wait for row locks. The server knows whole seconds only.
	LockWait time.Duration
	// ExchangeWait is how long a partition exchange may wait for readers; all new
	// queries on the table wait behind it.
	ExchangeWait time.Duration
	// Connections bounds the connections to each database: those of jobs, and as many
	// again of who reads pages.
	Connections int
	// Now is a clock: for durations, and to compare with the servers' clocks.
	Now func() time.Time
}

// Defaults of Config.
const (
	DefaultChunkRows      = 5000
	DefaultChunkBytes     = 16 << 20
	DefaultChunkTime      = 500 * time.Millisecond
	DefaultStatementLimit = 30 * time.Second
	DefaultLockWait       = 2 * time.Second
	DefaultExchangeWait   = 250 * time.Millisecond
	DefaultConnections    = 16
)

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c Config) withDefaults() Config {
	def(&c.Zone, time.UTC)
	def(&c.ChunkRows, DefaultChunkRows)
	def(&c.ChunkBytes, DefaultChunkBytes)
	def(&c.ChunkTime, DefaultChunkTime)
	def(&c.StatementLimit, DefaultStatementLimit)
	def(&c.LockWait, DefaultLockWait)
	def(&c.ExchangeWait, DefaultExchangeWait)
	def(&c.Connections, DefaultConnections)
	return c
}

func (c *Config) validate() error {
	if len(c.Databases) == 0 {
		return errors.New("source.databases is empty: name at least one database")
	}
	if len(c.Tables) == 0 {
		return errors.New("source.tables is empty: name at least one glob of table names")
	}
	for _, g := range c.Tables {
		if _, err := path.Match(g, ""); err != nil {
			return fmt.Errorf("source.tables: glob %q: %w", g, err)
		}
	}
	for _, r := range []message.Role{message.MessageID, message.ConversationID} {
		if c.Columns[r] == "" {
			return fmt.Errorf("source.columns: %s is not set", r)
		}
	}
	if c.Now == nil {
		return errors.New("warm tables: no clock is given")
	}
	if c.ChunkRows < 1 || c.ChunkBytes < 1 || c.Connections < 2 || c.StatementLimit < time.Second || c.LockWait < time.Second {
		return errors.New("warm tables: a limit is too small: chunks hold at least a row, connections are at least 2, times at least a second")
	}
	return c.Layout.Validate()
}

// sqlMode reads zero dates and 31 February as they are stored, writes an ID of 0
// as 0, and lacks whatever changes what a literal or a CHAR means.
const sqlMode = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"

// metadataWait is lock_wait_timeout in seconds for everything but DDL: how long a
// read waits for somebody's ALTER TABLE.
const metadataWait = 30

// session is the SET statement that pins a connection. Rows of a transaction that may
// yet be rolled back, which a server set to READ UNCOMMITTED shows, are not read. The conditional comments
// are each server kind's own time limit; the other kind does not see it.
func (c *Config) session() string {
	ms := c.StatementLimit.Milliseconds()
	return fmt.Sprintf("1, time_zone = '+00:00', sql_mode = '%s', sql_quote_show_create = 1, sql_safe_updates = 0, sql_select_limit = 18446744073709551615, "+
		"lock_wait_timeout = %d, innodb_lock_wait_timeout = %d "+
		"/*!80000 , transaction_isolation = 'REPEATABLE-READ', max_execution_time = %d */ /*M!100100 , tx_isolation = 'REPEATABLE-READ', max_statement_time = %d.%03d */",
		sqlMode, metadataWait, int64(c.LockWait.Seconds()), ms, ms/1000, ms%1000)
}

// pin parses a DSN and fixes everything that decides how values read: whatever the
// DSN itself says of these is overruled.
func (c *Config) pin(dsn string) (*mysql.Config, error) {
	m, err := mysql.ParseDSN(dsn)
	if err != nil {
		// The parser's errors may quote parts of the DSN, which holds a password.
		return nil, errors.New("DSN is malformed: want user:password@tcp(host:port)/database?param=value")
	}
	if m.DBName == "" {
		return nil, fmt.Errorf("DSN of %s names no database: want user:password@tcp(host:port)/database", m.Addr)
	}
	m.ParseTime, m.Loc, m.InterpolateParams = false, time.UTC, true
	m.MultiStatements, m.ClientFoundRows, m.ColumnsWithAlias = false, false, false
	if err := m.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, fmt.Errorf("DSN of %s: %w", m.Addr, err)
	}
	m.Collation = ""
	def(&m.Timeout, 10*time.Second)
	def(&m.ReadTimeout, c.StatementLimit+30*time.Second)
	def(&m.WriteTimeout, 30*time.Second)
	params := map[string]string{}
	for k, v := range m.Params {
		switch strings.ToLower(k) {
		case "autocommit", "time_zone", "sql_mode", "sql_quote_show_create", "sql_safe_updates", "sql_select_limit", "lock_wait_timeout",
			"innodb_lock_wait_timeout", "max_execution_time", "max_statement_time", "transaction_isolation", "tx_isolation":
		default:
			params[k] = v
		}
	}
	params["autocommit"] = c.session()
	m.Params = params
	return m, nil
}
