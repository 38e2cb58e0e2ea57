package warm

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// What a caller of a Target may have to tell apart, beside the errors above.
var (
	// ErrAgain says that a statement was cut off or gave way to others: what it did is not
	// known, and writing the same rows again does what it left.
	ErrAgain = errors.New("interrupted")
	// ErrNoTable says that a target has no such table.
	ErrNoTable = errors.New("no such table")
	// ErrUnfit says that a target's table cannot hold the rows as they were archived.
	ErrUnfit = errors.New("the table does not fit")
	// ErrFull says that the server has no room left.
	ErrFull = errors.New("the server has no room left")
)

// TargetConfig says where rows are written. Zero values take the defaults.
type TargetConfig struct {
	DSN         string
	Connections int
	// Inserts lets rows be written by INSERT also where LOAD DATA LOCAL is allowed.
	Inserts bool
	Now     func() time.Time
}

// Target is a database that archived rows are written into. It is safe for concurrent use.
type Target struct {
	d       *database
	packet  int         // longest statement
	load    atomic.Bool // LOAD DATA LOCAL works
	maria   bool
	folds   bool // the server takes names of tables for the same whatever their case
	handler string
	handled atomic.Uint64
	buffers sync.Pool // of *[]byte, for statements
}

func (t *Target) buffer() []byte {
	if b, ok := t.buffers.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

const (
	// targetStatement is how long a statement on a target may last.
	targetStatement = time.Minute
	// packetSlack is what a packet takes beside the text of its statement.
	packetSlack = 1 << 10
	// defaultPacket is the driver's own limit, unless the DSN says another.
	defaultPacket = 64 << 20
)

// OpenTarget connects to a target and asks what it can do.
func OpenTarget(ctx context.Context, c TargetConfig, log *slog.Logger) (*Target, error) {
	def(&c.Connections, 8) // two slices, each with a few statements at once
	if c.Now == nil {
		return nil, errors.New("target: no clock is given")
	}
	cfg := (&Config{Connections: c.Connections, Now: c.Now, StatementLimit: targetStatement}).withDefaults()
	m, err := cfg.pin(c.DSN)
	if err != nil {
		return nil, err
	}
	strict(m)
	limit := m.MaxAllowedPacket
	if limit == defaultPacket || limit <= 0 {
		limit, m.MaxAllowedPacket = 0, 0 // ask the server
	}
	x := &database{cfg: &cfg, log: log, name: m.DBName, where: m.Addr + "/" + m.DBName, upkeep: newUpkeep(), gate: make(chan struct{}, 1), refreshes: make(chan struct{}, 1)}
	x.kills.d = x
	var name [16]byte
	_, _ = rand.Read(name[:]) // never fails
	t := &Target{d: x, handler: "coldtier-" + hex.EncodeToString(name[:])}
	if err := t.connect(ctx, c, m); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if limit > 0 {
		t.packet = min(t.packet, limit)
	}
	return t, nil
}

// strict lets an INSERT fail whose value does not fit, where the mode in which values are
// read would cut it. Zero dates and days that are none stay what can be written.
func strict(m *mysql.Config) {
	m.Params["autocommit"] = strings.Replace(m.Params["autocommit"], "'"+sqlMode+"'", "'STRICT_TRANS_TABLES,"+sqlMode+"'", 1)
}

// Watch adds replicas whose lag counts.
func (t *Target) Watch(replicas []string) error {
	for _, dsn := range replicas {
		r, err := t.d.cfg.pin(dsn)
		if err != nil {
			return fmt.Errorf("replica: %w", err)
		}
		db, err := t.d.cfg.open(r, 2, t.d.log)
		if err != nil {
			return fmt.Errorf("replica: %w", err)
		}
		t.d.replicas = append(t.d.replicas, replica{r.Addr, db})
	}
	return nil
}

func (t *Target) connect(ctx context.Context, c TargetConfig, m *mysql.Config) (err error) {
	x := t.d
	if x.db, err = x.cfg.open(m, c.Connections, x.log); err != nil {
		return err
	}
	if x.killer, err = x.cfg.open(m, 2, x.log); err != nil {
		return err
	}
	s, err := x.session(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	var name, version string
	var load, fold int
	if err := s.row(ctx, "SELECT DATABASE(), VERSION(), @@max_allowed_packet, @@local_infile, @@lower_case_table_names", &name, &version, &t.packet, &load, &fold); err != nil {
		return fmt.Errorf("database %s: %w", x.where, err)
	}
	x.name = name // as the server spells it
	t.maria, t.folds = strings.Contains(version, "MariaDB"), fold != 0
	t.load.Store(load == 1 && !c.Inserts)
	return nil
}

// Close closes all connections.
func (t *Target) Close() error {
	w := &Warm{databases: []*database{t.d}, upkeep: t.d.upkeep}
	return w.Close()
}

// Database is the target database's name.
func (t *Target) Database() string { return t.d.name }

// Where is where the target is, without secrets.
func (t *Target) Where() string { return t.d.where }

// Loads says whether rows are written by LOAD DATA LOCAL.
func (t *Target) Loads() bool { return t.load.Load() }

// Lag is how far the worst of the replicas is behind; 0 without replicas.
func (t *Target) Lag(ctx context.Context) (time.Duration, error) {
	return (&Table{d: t.d}).Lag(ctx)
}

// ThreadsRunning is the number of statements that the server works on.
func (t *Target) ThreadsRunning(ctx context.Context) (int, error) {
	return (&Table{d: t.d}).ThreadsRunning(ctx)
}

// SameName says whether the server takes two names of tables or databases for the same.
func (t *Target) SameName(a, b string) bool {
	return a == b || t.folds && strings.EqualFold(a, b)
}

// Live says which of the warm databases the target is, however either is addressed: a
// lock that is taken through one is seen through the other. Why warm databases could not
// be asked is in unknown; the others were. With an error nothing is known.
func (t *Target) Live(ctx context.Context, w *Warm) (name string, is bool, unknown []error, err error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return "", false, nil, err
	}
	s.once = true // its lock goes with the connection
	defer s.close(ctx)
	lock := literal(t.handler)
	var got sql.NullInt64
	if err := s.row(ctx, "SELECT GET_LOCK("+lock+", 0)", &got); err != nil {
		return "", false, nil, fmt.Errorf("database %s: lock by which it is known: %w", t.d.where, err)
	}
	if got.Int64 != 1 {
		return "", false, nil, fmt.Errorf("database %s: it gives no lock by which it is known", t.d.where)
	}
	// All at once, and none for long: where many are gone, this is what a restore is for.
	asked, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	seen, silent := make([]string, len(w.databases)), make([]error, len(w.databases))
	var wg sync.WaitGroup
	for i, d := range w.databases {
		wg.Go(func() {
			var err error
			if seen[i], err = d.sees(asked, lock); err != nil {
				silent[i] = fmt.Errorf("warm database %s could not be asked whether it is on the server of %s: %w", d.where, t.d.where, err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return "", false, nil, context.Cause(ctx)
	}
	for i, d := range w.databases {
		if seen[i] != "" && t.SameName(seen[i], t.d.name) {
			name, is = d.name, true
		}
		if silent[i] != nil {
			unknown = append(unknown, silent[i])
		}
	}
	return name, is, unknown, nil
}

// askTime is how long a warm server may take to say whether it is the target's.
const askTime = 15 * time.Second

// sees gives the database's name when somebody holds a lock on its server.
func (d *database) sees(ctx context.Context, lock string) (name string, err error) {
	s, err := d.session(ctx)
	if err != nil {
		return "", err
	}
	defer s.close(ctx)
	var held bool
	if err := s.row(ctx, "SELECT IS_USED_LOCK("+lock+") IS NOT NULL, DATABASE()", &held, &name); err != nil {
		return "", err
	}
	if !held {
		name = ""
	}
	return name, nil
}
