package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/clickhouse"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/guard"
)

// maxSkew is how far the clocks of this machine and of a database may be apart.
const maxSkew = time.Minute

// need says which parts a verb works with. A job also insists on clocks that agree and
// on a bucket that belongs to its manifest; looking, and above all placing a hold, must
// be possible whatever the clocks say.
type need struct {
	warm, bucket, rows, job, serve bool

	goAhead string // the job, which must not be stopped; see stop
}

// serveIdle is how many connections to the manifest a server keeps: each page needs up to
// three at once.
const serveIdle = 64

// parts are what a verb works with. The manifest is always there.
type parts struct {
	cfg      *config.Config
	manifest *manifest.Store
	warm     *warm.Warm
	tables   []*warm.Table
	bucket   *bucket.Bucket
	rows     *clickhouse.DB
	late     *lateRows  // a server's, instead of rows
	unowned  error      // not nil: the bucket lacks the owner mark, says a job's open
	pace     *pace      // of the job, if it has one
	owner    string     // names this process in leases
	limit    *timeLimit // of the run; nil: none
	approval bool       // a purge needs an approval, says what bucket and manifest know of rules
	idle     int        // connections to the manifest that are kept; 0: the default
	closers  []io.Closer
}

func (p *parts) close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i].Close())
	}
	return errors.Join(errs...)
}

// open makes the parts and sees that they are fit to work with: every server is
// there, the tables can be carried, the clocks agree. Nothing is changed. Its
// errors are of the set-up.
func (a *app) open(ctx context.Context, n need) (_ *parts, err error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	p := &parts{cfg: cfg, owner: owner()}
	defer func() {
		if err != nil {
			err = setup(errors.Join(err, p.close()))
		}
	}()
	if n.serve {
		p.idle = serveIdle
	}
	if err := a.openManifest(ctx, p); err != nil {
		return nil, err
	}
	if err := p.manifest.Check(ctx); err != nil {
		return nil, err
	}
	if n.goAhead != "" { // first: it may be stopped since something else does not work
		if err := a.goAhead(ctx, p, n.goAhead); err != nil {
			return nil, err
		}
	}
	if n.job {
		if err := a.clockAgrees(ctx, "the manifest database", p.manifest.Now); err != nil {
			return nil, err
		}
	}
	if n.warm {
		if err := a.openWarm(ctx, p); err != nil {
			return nil, err
		}
		seen := map[string]bool{}
		for _, t := range p.tables {
			if db := t.Shard().Database; !seen[db] {
				seen[db] = true
				if err := a.clockAgrees(ctx, "database "+db, t.Now); err != nil {
					return nil, err
				}
			}
		}
	}
	if n.bucket {
		if err := a.openBucket(ctx, p); err != nil {
			return nil, err
		}
		if n.job {
			if err := p.checkOwner(ctx); err != nil {
				return nil, err
			}
		} else if _, err := p.bucket.Get(ctx, "check/none"); err != nil && !errors.Is(err, bucket.ErrNotFound) {
			return nil, err // a get of what is not there tells a missing bucket from a missing object
		}
	}
	if n.rows {
		if err := a.openRows(ctx, p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// setup marks an error of the set-up: of the configuration or the surroundings, or
// one of those that forbid to go on.
func setup(err error) error {
	for _, unsafe := range []error{errUnsafe, warm.ErrEpoch, bucket.ErrClockSkew, archive.ErrForeign} {
		if errors.Is(err, unsafe) {
			return mark(err, errUnsafe)
		}
	}
	return mark(err, errSetup)
}

// owner names this process.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

func (a *app) openManifest(ctx context.Context, p *parts) (err error) {
	p.manifest, err = manifest.Open(ctx, manifest.Config{DSN: p.cfg.Manifest.DSN.Reveal(), Source: p.cfg.Source.Name, LeaseTTL: p.cfg.Manifest.Lease, Idle: p.idle, OnRetry: a.telemetry.retry(targetManifest)}, a.log)
	if err != nil {
		return remedy(err, "manifest.dsn")
	}
	p.closers = append(p.closers, p.manifest)
	return nil
}

func (a *app) warmOf(p *parts) (err error) {
	s := p.cfg.Source
	c := warm.Config{Tables: s.Tables, Columns: s.Columns, Layout: s.Layout, Zone: s.Zone, Now: a.now}
	for _, d := range s.Databases {
		db := warm.Database{DSN: d.DSN.Reveal()}
		for _, r := range d.Replicas {
			db.Replicas = append(db.Replicas, r.Reveal())
		}
		c.Databases = append(c.Databases, db)
	}
	if p.warm, err = warm.Open(c, a.log); err != nil {
		return err
	}
	p.closers = append(p.closers, p.warm)
	return nil
}

func (a *app) openWarm(ctx context.Context, p *parts) (err error) {
	if err := a.warmOf(p); err != nil {
		return err
	}
	p.tables, err = p.warm.Discover(ctx)
	return remedy(err, "source.databases")
}

// remedy adds what to do about a MySQL server that does not let one in.
func remedy(err error, key string) error {
	var answer *mysql.MySQLError
	var dial *net.OpError
	what := ""
	switch {
	case errors.As(err, &answer):
		switch answer.Number {
		case 1044, 1142, 1143:
			what = grantRights
		case 1045, 1698:
			what = "correct user and password"
		case 1049:
			what = "create the database or correct its name"
		}
	case errors.As(err, &dial):
		what = "see that the server runs, and correct host and port"
	}
	if what == "" || strings.Contains(err.Error(), "\n") {
		return err
	}
	return fmt.Errorf("%w: %s: %s", err, key, what)
}

const grantRights = "use the account of the role that does this, or grant the account the rights it needs there: coldtier check says which, deploy/sql has them all"

// refusal adds what to do when a MySQL server refuses a statement to an account, or
// takes no writes at all, wherever in a job that was. It is an error of the surroundings.
func refusal(err error) error {
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		return err
	}
	what := ""
	switch answer.Number {
	case 1044, 1142, 1143, 1227, 1370:
		what = grantRights
	case 1290, 1836: // read_only
		what = "name the primary, not a replica"
	default:
		return err
	}
	switch text := err.Error(); {
	case strings.Contains(text, what):
	case strings.Contains(text, "\n"):
		err = fmt.Errorf("%w\n%s", err, what)
	default:
		err = fmt.Errorf("%w: %s", err, what)
	}
	return mark(err, errSetup)
}

func (a *app) openBucket(ctx context.Context, p *parts) (err error) {
	b := p.cfg.Bucket
	p.bucket, err = bucket.Open(ctx, bucket.Config{
		Name: b.Name, Prefix: b.Prefix, Region: b.Region, Endpoint: b.Endpoint, PathStyle: b.PathStyle,
		StorageClass: b.StorageClass, SSE: b.SSE, KMSKey: b.KMSKey, Compatible: b.Compatible, OnRetry: a.telemetry.retry(targetS3),
	}, a.log)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, p.bucket)
	return nil
}

func clickhouseConfig(c config.ClickHouse) clickhouse.Config {
	return clickhouse.Config{Addrs: c.Addrs, Protocol: c.Protocol, Database: c.Database, Username: c.Username, Password: c.Password.Reveal(), Cluster: c.Cluster, TLS: c.TLS}
}

func (a *app) openRows(ctx context.Context, p *parts) (err error) {
	c := clickhouseConfig(p.cfg.ClickHouse)
	c.OnRetry = a.telemetry.retry(targetClickHouse)
	p.rows, err = clickhouse.Open(ctx, c, a.log)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, p.rows)
	return nil
}

// clockAgrees refuses a clock that is further than maxSkew from this machine's. The
// time that asking took is not counted.
func (a *app) clockAgrees(ctx context.Context, whose string, read func(context.Context) (time.Time, error)) error {
	before := a.now()
	server, err := read(ctx)
	if err != nil {
		return err
	}
	after := a.now()
	skew := time.Duration(0)
	switch {
	case server.Before(before):
		skew = before.Sub(server)
	case server.After(after):
		skew = server.Sub(after)
	}
	if skew <= maxSkew {
		return nil
	}
	return mark(fmt.Errorf("the clocks of this machine (%s) and of %s (%s) are %s apart: set them (NTP)",
		stamp(before), whose, stamp(server), skew.Round(time.Second)), errUnsafe)
}

func (a *app) archiveDeps(p *parts) archive.Deps {
	d := archive.Deps{
		Manifest: p.manifest, Objects: objects{p.bucket}, Rows: observedRows{rows{p.rows}, a.telemetry}, Layout: p.cfg.Source.Layout, Zone: p.cfg.Source.Zone,
		Source: p.cfg.Source.Name, Owner: p.owner, Clock: a.now, Log: a.log, Limit: p.limit.archiveLimit(), Observer: a.telemetry, Step: stepHook(),
	}
	for _, t := range p.tables {
		d.Tables = append(d.Tables, observedTable{archiveTable{t}, a.telemetry})
	}
	return d
}

func archiveConfig(c *config.Config) archive.Config {
	return archive.Config{After: c.Archive.After, Memory: c.Archive.Memory, Workers: c.Archive.Workers, PerServer: c.Archive.PerServer, Verify: c.Archive.Verify}
}

// memorySlack is what the collector may let grow beyond archive.memory before it
// works harder: for connections, the manifest's lists and the program itself.
const memorySlack = 64 << 20

// boundMemory tells the collector of archive.memory, unless GOMEMLIMIT says another.
func boundMemory(c *config.Config) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(c.Archive.Memory + memorySlack)
	}
}

func (a *app) archiver(p *parts) (*archive.Archiver, error) {
	boundMemory(p.cfg)
	pace, err := a.newPace(p, manifest.StopArchive, p.cfg.Archive.Pace)
	if err != nil {
		return nil, err
	}
	d := a.archiveDeps(p)
	d.Pace = archivePace{pace}
	return archive.New(d, archiveConfig(p.cfg))
}

func (a *app) verifier(p *parts) *archive.Verifier {
	boundMemory(p.cfg)
	return archive.NewVerifier(a.archiveDeps(p), archiveConfig(p.cfg))
}

func (a *app) purger(p *parts, progress purge.Progress) (*purge.Purger, error) {
	c := p.cfg.Purge
	var tables []purge.Table
	for _, t := range p.tables {
		tables = append(tables, observedPurge{purgeTable{t}, a.telemetry})
	}
	pace, err := a.newPace(p, manifest.StopPurge, c.Pace)
	if err != nil {
		return nil, err
	}
	return purge.New(purge.Config{
		Owner: p.owner, Lag: c.Lag, Strategy: purge.Strategy(c.Strategy), Pace: purgePace{pace}, Now: a.now, Sleep: sleep, Progress: progress, Observer: a.telemetry, Steps: stepHook(),
	}, p.manifest, tables, cold{p}, marks{p.bucket}, a.log)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// history makes the reader of pages; with fetch.warm it reads the warm tables, too. reg
// may be nil; ahead lets it read what is likely to be asked for next.
func (a *app) history(ctx context.Context, p *parts, budget, hedge time.Duration, ahead bool, reg prometheus.Registerer) (*restore.Fetcher, error) {
	if known, err := p.manifest.Known(ctx); err != nil {
		return nil, setup(err)
	} else if !known { // it would answer that there are no messages
		return nil, mark(fmt.Errorf("the manifest knows no source %q: correct source.name, or run coldtier migrate first", p.manifest.Source()), errSetup)
	}
	c := p.cfg.Fetch
	d := restore.Deps{Manifest: p.manifest, Objects: objects{p.bucket}, Registry: reg, Log: a.log}
	switch {
	case p.rows != nil:
		d.Rows = rows{p.rows}
	case p.late != nil:
		d.Rows = p.late
	}
	if c.Warm {
		w, err := a.openWarmReader(ctx, p)
		if err != nil {
			return nil, setup(err)
		}
		d.Warm = w
	}
	a.telemetry.tracer.watch(&d)
	f, err := restore.New(restore.Config{
		Layout: p.cfg.Source.Layout, Zone: p.cfg.Source.Zone, Budget: budget, HedgeAfter: hedge, FillAfter: c.FillTimeout, Cache: c.Cache,
		MaxLimit: c.MaxLimit, Limits: guard.LimitsConfig{Process: c.Limits.Process, Tenant: c.Limits.Tenant, Conversation: c.Limits.Conversation}, Clock: a.now, Ahead: ahead,
	}, d)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, f)
	return f, nil
}

// also makes an error match further sentinels: those by which the user of an
// interface tells errors apart, beside the adapter's own.
func also(err error, pairs ...[2]error) error {
	for _, p := range pairs {
		if errors.Is(err, p[0]) {
			return mark(err, p[1])
		}
	}
	return err
}

// objects is a bucket for archive and restore.
type objects struct{ b *bucket.Bucket }

func objectError(err error) error {
	return also(also(err, [2]error{bucket.ErrNotFound, archive.ErrNotFound}, [2]error{bucket.ErrExists, archive.ErrExists}, [2]error{bucket.ErrCorrupt, archive.ErrDamaged}),
		[2]error{bucket.ErrNotFound, restore.ErrNotFound}, [2]error{bucket.ErrCorrupt, restore.ErrDamaged}, [2]error{bucket.ErrArchived, restore.ErrArchived})
}

func (o objects) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, sum [32]byte, ifAbsent bool) error {
	return objectError(o.b.Put(ctx, key, body, size, bucket.PutOptions{SHA256: sum, IfNoneMatch: ifAbsent}))
}

func (o objects) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := o.b.Get(ctx, key)
	return b, objectError(err)
}

func (o objects) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b, err := o.b.ReadRange(ctx, key, off, n)
	return b, objectError(err)
}

// rows is ClickHouse for archive and restore.
type rows struct{ db *clickhouse.DB }

func (r rows) Fit(ctx context.Context, schemas []*message.Schema) error {
	_, err := r.db.Migrate(ctx, schemas, false)
	return err
}

func (r rows) Insert(ctx context.Context, id manifest.CopyID, s *message.Schema) (archive.RowWriter, error) {
	return r.db.Insert(ctx, id, s)
}

func (r rows) ReadCopy(ctx context.Context, id manifest.CopyID, s *message.Schema, fn func(*message.Batch) error) error {
	return r.db.ReadCopy(ctx, id, s, fn)
}

func (r rows) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	list := make([]clickhouse.Span, len(spans))
	for i, sp := range spans {
		list[i] = clickhouse.Span(sp)
	}
	return r.db.ReadSpans(ctx, list, s, conversation, limit)
}

// archiveTable is a warm table for archive.
type archiveTable struct{ *warm.Table }

func (t archiveTable) EpochFits(ctx context.Context) error {
	return also(t.Table.EpochFits(ctx), [2]error{warm.ErrEpoch, archive.ErrUnsafe})
}
