package warm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// looker asks a server how it is.
type looker interface {
	// lags are those of the server's replicas, or why one is not known.
	lags(ctx context.Context) []replicaLag
	threads(ctx context.Context) (int, error)
	history(ctx context.Context) (int64, error)
	// ask gives the first value of the user's statement; "" for NULL and for no row.
	ask(ctx context.Context, query string) (string, error)
	// probe is how long a small read of a table takes.
	probe(ctx context.Context, t *Table) (time.Duration, error)
	// rowBytes is a table's average row by the server's statistics.
	rowBytes(ctx context.Context, t *Table) (int64, error)
	close() error
}

type replicaLag struct {
	where string
	lag   time.Duration
	err   error
}

// lookTime is how long a question may take. A server that does not answer in it is not
// well.
const lookTime = 3 * time.Second

// examine asks a server all that the limits speak of; nil: it is well. The error is of a
// server that cannot be asked at all, of which nothing could be read either.
func (s *paced) examine(ctx context.Context, t *Table) (*obstacle, error) {
	l, job := s.p.cfg.Limits, s.p.cfg.Job
	if l.MaxReplicaLag > 0 {
		lags := s.look.lags(ctx)
		if s.p.cfg.OnLag != nil && ctx.Err() == nil { // else nobody was really asked
			for _, r := range lags {
				s.p.cfg.OnLag(r.where, r.lag, r.err)
			}
		}
		for _, r := range lags {
			switch {
			case r.err != nil: // it may be far behind
				return &obstacle{cause: CauseLag, why: fmt.Sprintf("replica %s: %v", r.where, r.err)}, nil
			case r.lag > l.MaxReplicaLag:
				return &obstacle{cause: CauseLag, why: fmt.Sprintf("replica %s lags %s > %s.max_replica_lag %s", r.where, r.lag.Round(time.Second), job, l.MaxReplicaLag)}, nil
			}
		}
	}
	if l.MaxThreadsRunning > 0 {
		n, err := s.look.threads(ctx)
		if f, err := s.silent(ctx, CauseThreads, "running threads", err); f != nil || err != nil {
			return f, err
		}
		if n > l.MaxThreadsRunning {
			return &obstacle{cause: CauseThreads, why: fmt.Sprintf("%d threads run > %s.max_threads_running %d", n, job, l.MaxThreadsRunning)}, nil
		}
	}
	if l.MaxHistoryLength > 0 {
		n, err := s.look.history(ctx)
		if f, err := s.silent(ctx, CauseHistory, "history length", err); f != nil || err != nil {
			return f, err
		}
		if n > l.MaxHistoryLength {
			return &obstacle{cause: CauseHistory, why: fmt.Sprintf("InnoDB's history list has %d entries > %s.max_history_length %d", n, job, l.MaxHistoryLength)}, nil
		}
	}
	if l.PauseQuery != "" {
		switch v, err := s.look.ask(ctx, l.PauseQuery); {
		case err != nil: // whatever it wanted to tell
			return &obstacle{cause: CauseQuery, why: fmt.Sprintf("%s.pause_query: %v", job, err)}, nil
		case v != "" && v != "0":
			return &obstacle{cause: CauseQuery, why: fmt.Sprintf("%s.pause_query gives %q", job, v)}, nil
		}
	}
	return s.affected(ctx, t)
}

// affected looks what a small read costs.
func (s *paced) affected(ctx context.Context, t *Table) (*obstacle, error) {
	i := s.impact
	if !i.on() {
		return nil, nil
	}
	if i.base == 0 {
		var first []time.Duration
		for range firstProbes {
			d, err := s.read(ctx, t)
			if err != nil {
				return nil, err
			}
			first = append(first, d)
		}
		i.first(first, s.p.cfg.Now())
		s.p.log.Debug("baseline of small reads", "job", s.p.cfg.Job, "server", s.addr, "took", i.baseline)
		return nil, nil
	}
	d, err := s.read(ctx, t)
	if err != nil {
		return nil, err
	}
	i.see(d, s.p.cfg.Now())
	if !i.stopped {
		return nil, nil
	}
	return &obstacle{cause: CauseImpact, why: fmt.Sprintf("a small read takes %s, usual are %s: more than %s.max_impact %g times as long",
		i.now.Round(10*time.Microsecond), i.baseline.Round(10*time.Microsecond), s.p.cfg.Job, i.factor)}, nil
}

// read is how long a small read takes. One that the end of the worker cut off tells nothing:
// the server is looked at for all workers, and the others go on.
func (s *paced) read(ctx context.Context, t *Table) (time.Duration, error) {
	d, err := s.look.probe(ctx, t)
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil && !slow(err):
		return 0, fmt.Errorf("server %s: probe: %w", s.addr, err)
	}
	return d, nil
}

// silent tells a server that is too slow to answer, which is waited for, from one that
// cannot be asked, which is not.
func (s *paced) silent(ctx context.Context, c Cause, what string, err error) (*obstacle, error) {
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() == nil && slow(err):
		return &obstacle{cause: c, why: fmt.Sprintf("%s: no answer within %s", what, lookTime)}, nil
	}
	return nil, fmt.Errorf("server %s: %s: %w", s.addr, what, err)
}

// slow says that a question ran into its time limit.
func slow(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSlow)
}

// serverLook is a real server.
type serverLook struct {
	cfg      Config
	where    string
	db       *sql.DB // for questions: apart from the pools of the jobs, which may be used up
	probes   *sql.DB // one connection, so that none of our own statements is before a probe
	replicas []replica
	newest   map[string]newestID // by table
}

// newestID is the highest ID of a table when it was read.
type newestID struct {
	id   uint64
	read time.Time
}

// newestKept is how long the newest row of a table counts as that.
const newestKept = time.Minute

func newServerLook(d *database, cfg Config) (*serverLook, error) {
	cfg.StatementLimit = lookTime
	l := &serverLook{cfg: cfg, where: d.addr, newest: map[string]newestID{}}
	for _, into := range []**sql.DB{&l.db, &l.probes} {
		m, err := cfg.pin(d.dsn)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		m.Timeout, m.ReadTimeout, m.WriteTimeout = lookTime, 2*lookTime, 2*lookTime
		if *into, err = cfg.open(m, 1, d.log); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	return l, nil
}

// watch adds replicas that are not watched yet: databases on one server share them.
func (l *serverLook) watch(replicas []replica) {
	for _, r := range replicas {
		if !slices.ContainsFunc(l.replicas, func(x replica) bool { return x.where == r.where }) {
			l.replicas = append(l.replicas, r)
		}
	}
}

func (l *serverLook) close() error {
	var errs []error
	for _, db := range []*sql.DB{l.db, l.probes} { // the replicas' are the database's
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

func (l *serverLook) lags(ctx context.Context) []replicaLag {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	all := make([]replicaLag, len(l.replicas))
	var wg sync.WaitGroup
	for i, r := range l.replicas {
		wg.Go(func() {
			lag, err := r.lag(ctx)
			all[i] = replicaLag{r.where, lag, err}
		})
	}
	wg.Wait()
	return all
}

// row reads one row of two columns at most, in lookTime.
func (l *serverLook) row(ctx context.Context, q string, into ...any) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return told(expired(ctx, l.db.QueryRowContext(ctx, q).Scan(into...)))
}

// expired makes an error that a passed deadline caused say so, whatever form the driver gives it.
func expired(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

func (l *serverLook) threads(ctx context.Context) (n int, err error) {
	var name string
	err = l.row(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_running'", &name, &n)
	return n, err
}

var historyLine = regexp.MustCompile(`History list length (\d+)`)

// history reads the counter, or where it is off the text that people read.
func (l *serverLook) history(ctx context.Context) (int64, error) {
	n, counted, err := l.counter(ctx)
	if err == nil && !counted {
		var kind, name, text string
		if err = l.row(ctx, "SHOW ENGINE INNODB STATUS", &kind, &name, &text); err == nil {
			n, err = historyOf(text)
		}
	}
	if denied(err) {
		err = fmt.Errorf("%w: grant PROCESS to the account", err)
	}
	return n, err
}

// counter reads InnoDB's counter. Who is not allowed to is told so by an error.
func (l *serverLook) counter(ctx context.Context) (n int64, counted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	rows, err := l.db.QueryContext(ctx, "SELECT * FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'")
	if err != nil {
		return 0, false, told(expired(ctx, err))
	}
	found, err := namedRows(rows)
	if err != nil || len(found) != 1 {
		return 0, false, told(expired(ctx, err))
	}
	if f := found[0]; string(f["status"]) != "enabled" && string(f["enabled"]) != "1" { // MySQL, MariaDB
		return 0, false, nil
	}
	n, err = strconv.ParseInt(string(found[0]["count"]), 10, 64)
	return n, err == nil, err
}

func historyOf(status string) (int64, error) {
	m := historyLine.FindStringSubmatch(status)
	if m == nil {
		return 0, errors.New("SHOW ENGINE INNODB STATUS does not tell it")
	}
	return strconv.ParseInt(m[1], 10, 64)
}

// TryPauseQuery asks each server a Limits.PauseQuery, as a Pace would, and gives the errors
// by its address.
func (w *Warm) TryPauseQuery(ctx context.Context, query string) map[string]error {
	failed := map[string]error{}
	seen := map[string]bool{}
	for _, d := range w.databases {
		if seen[d.addr] {
			continue
		}
		seen[d.addr] = true
		l, err := newServerLook(d, w.cfg)
		if err == nil {
			_, err = l.ask(ctx, query)
			err = errors.Join(err, l.close())
		}
		if err != nil {
			failed[d.addr] = err
		}
	}
	return failed
}

// ask runs in a transaction that may change nothing.
func (l *serverLook) ask(ctx context.Context, query string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	v, err := l.first(ctx, query)
	return v, expired(ctx, err)
}

func (l *serverLook) first(ctx context.Context, query string) (_ string, err error) {
	tx, err := l.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	if len(columns) == 0 {
		return "", errors.New("it is no query: want one that gives a value")
	}
	values := make([]any, len(columns))
	for i := range values {
		values[i] = new(sql.RawBytes)
	}
	v := ""
	if rows.Next() {
		if err := rows.Scan(values...); err != nil {
			return "", err
		}
		v = string(*values[0].(*sql.RawBytes))
	}
	for rows.Next() { // to the end, where errors are told
	}
	return v, rows.Err()
}

// probe reads the row that was the table's newest a moment ago, by its key: a page that
// is in memory since the online traffic is there. What makes this read slow (processors,
// locks of the table's definition, latches, the network) makes theirs slow; it does not wait
// for the disk, and takes nothing out of memory. It is timed by the worker's clock.
func (l *serverLook) probe(ctx context.Context, t *Table) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	conn, err := l.probes.Conn(ctx)
	if err != nil {
		return lookTime, expired(ctx, err)
	}
	defer func() { _ = conn.Close() }()
	def := t.def.Load()
	at := l.newest[t.name]
	if now := l.cfg.Now(); at.read.IsZero() || now.Sub(at.read) > newestKept {
		at.read = now
		err := conn.QueryRowContext(ctx, fmt.Sprintf("SELECT CAST(%s AS CHAR) FROM %s FORCE INDEX (%s) ORDER BY %s DESC LIMIT 1", def.id, t.name, def.key, def.id)).Scan(&at.id)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return lookTime, told(expired(ctx, err))
		}
		l.newest[t.name] = at
	}
	// Also after the newest was read: of a new connection, whose first statement is slow.
	begun := l.cfg.Now()
	var n int
	if err := conn.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s FORCE INDEX (%s) WHERE %s = %d", t.name, def.key, def.id, at.id)).Scan(&n); err != nil {
		return lookTime, told(expired(ctx, err))
	}
	return l.cfg.Now().Sub(begun), nil
}

func (l *serverLook) rowBytes(ctx context.Context, t *Table) (n int64, err error) {
	err = l.row(ctx, fmt.Sprintf("SELECT COALESCE(avg_row_length, 0) FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
		literal(t.shard.Database), literal(t.shard.Table)), &n)
	return n, err
}
