package preflight

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/clickhouse"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
)

const (
	probeTime = 20 * time.Second // of one look
	together  = 8                // looks at a time

	maxSkew   = time.Minute     // at which jobs refuse
	smallSkew = 5 * time.Second // what NTP never leaves

	leastLease  = 15 * time.Second
	mostLease   = 30 * time.Minute
	leastPacket = 4 << 20
)

// Preflight gathers what is found for some roles.
type Preflight struct {
	Report
	For   Role
	roles []Role
	cfg   *config.Config
	now   func() time.Time
}

// New begins a preflight for a role, or for All that the configuration allows.
func New(cfg *config.Config, role Role, now func() time.Time) *Preflight {
	p := &Preflight{For: role, cfg: cfg, now: now, roles: []Role{role}}
	if role == All {
		p.roles = []Role{Archive, Purge, Fetch, Restore}
		if cfg.Drill.Scratch.Database() != "" {
			p.roles = append(p.roles, Drill)
		}
	}
	return p
}

// does says whether one of the roles is judged.
func (p *Preflight) does(roles ...Role) bool {
	return slices.ContainsFunc(roles, func(r Role) bool { return slices.Contains(p.roles, r) })
}

// Writes says whether a role is judged that writes the manifest and the bucket as a job does.
func (p *Preflight) Writes() bool { return p.does(Archive, Purge) }

// Puts says whether a role is judged that puts and deletes objects anywhere in the bucket.
func (p *Preflight) Puts() bool { return p.does(Archive) }

// probe makes one look, within a time limit. Its failure is a finding.
func (p *Preflight) probe(ctx context.Context, about, subject, what string, look func(ctx context.Context) error) {
	within, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	err := look(within)
	if err == nil || ctx.Err() != nil { // what ended the whole run is told by its end
		return
	}
	if within.Err() != nil {
		err = fmt.Errorf("no answer within %s: %w", probeTime, err)
	}
	p.Addf(about, ProbeFailed, subject, "%s: %s", what, oneLine(err))
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Config looks at the configuration by itself.
func (p *Preflight) Config(path string) {
	s := p.cfg.Source
	p.Addf("config", ConfigRead, path, "source %s, days of %s, IDs from %s", s.Name, s.Zone, s.Layout.Epoch.Format("2006-01-02T15:04:05.999Z"))
	if s.Layout.Epoch.After(p.now()) {
		p.Addf("config", ConfigEpoch, "source.snowflake", "source.snowflake.epoch %s lies in the future", s.Layout.Epoch.UTC().Format(time.RFC3339))
	}
	if lag := p.cfg.Purge.Lag; p.does(Purge) && lag < purge.ShortLag {
		p.Addf("config", ConfigShortLag, "purge.lag", "purge.lag is %s: rows are deleted less than %s after their verification", lag, purge.ShortLag)
	}
	switch l := p.cfg.Manifest.Lease; {
	case l < leastLease:
		p.Addf("config", ManifestLease, "manifest.lease", "manifest.lease is %s, of which a worker must renew a third in time", l)
	case l > mostLease:
		p.Addf("config", ManifestLeaseLong, "manifest.lease", "manifest.lease is %s", l)
	}
}

// clock compares a clock with this machine's, whose time it was from begun to ended.
func (p *Preflight) clock(about, whose string, server, begun, ended time.Time) {
	skew := time.Duration(0)
	switch {
	case server.Before(begun):
		skew = server.Sub(begun)
	case server.After(ended):
		skew = server.Sub(ended)
	}
	p.skew(about, whose, skew, true)
}

// skew judges by how much a clock is ahead of this machine's.
func (p *Preflight) skew(about, whose string, skew time.Duration, needed bool) {
	subject := "clock of " + whose
	text := fmt.Sprintf("the clock of %s is %s off from this machine's", whose, signed(skew))
	switch off := skew.Abs(); {
	case off > maxSkew && needed:
		p.Add(about, ClockSkew, subject, text, "")
	case off > smallSkew && needed, off > maxSkew:
		p.Add(about, ClockDrifts, subject, text, "")
	default:
		p.Addf(about, ClockAgrees, subject, "the clock of %s agrees with this machine's (%s)", whose, signed(skew))
	}
}

func signed(d time.Duration) string {
	if d = d.Round(time.Millisecond); d >= 0 {
		return "+" + d.String()
	}
	return d.String()
}

// Manifest looks at the manifest, its server and the account on it.
func (p *Preflight) Manifest(ctx context.Context, m *manifest.Store) {
	dsn := p.cfg.Manifest.DSN
	where, database := addrOf(dsn.Reveal()), dsn.Database()
	p.probe(ctx, "manifest", "manifest "+where, "its clock", func(ctx context.Context) error {
		begun := p.now()
		t, err := m.Now(ctx)
		if err != nil {
			return err
		}
		p.clock("manifest", "the manifest database at "+where, t, begun, p.now())
		return nil
	})
	p.atServer(ctx, "manifest", dsn.Reveal(), func(db *sql.DB) {
		p.probe(ctx, "manifest", "manifest "+where, "its server's settings", func(ctx context.Context) error {
			s, err := warm.ReadServer(ctx, db)
			if err != nil {
				return err
			}
			p.judgePacket("manifest", "server "+where, s)
			if f, b := s.Var("innodb_flush_log_at_trx_commit"), s.Var("sync_binlog"); f != "1" || s.On("log_bin") && b != "1" {
				p.Addf("manifest", ManifestDurable, "server "+where, "innodb_flush_log_at_trx_commit is %s and sync_binlog %s: a commit that was answered may be lost in a crash, and a slice then be taken for what it is not any more", f, b)
			}
			return nil
		})
		p.probe(ctx, "manifest", "manifest "+where, "its tables' engines", func(ctx context.Context) error {
			rows, err := db.QueryContext(ctx, "SELECT TABLE_NAME, COALESCE(ENGINE, '') FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_TYPE = 'BASE TABLE'", database)
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var table, engine string
				if err := rows.Scan(&table, &engine); err != nil {
					return err
				}
				if !strings.EqualFold(engine, "InnoDB") {
					p.Addf("manifest", ManifestEngine, database+"."+table, "table %s.%s of the manifest has engine %s, without transactions", database, table, engine)
				}
			}
			return rows.Err()
		})
		p.probe(ctx, "manifest", "manifest "+where, "its account's rights", func(ctx context.Context) error {
			r, err := warm.ReadRights(ctx, db)
			if err != nil {
				return err
			}
			p.judgeManifest(account{where: where, rights: r}, database)
			return nil
		})
	})
}

// Scratch looks at the server of drill.scratch_dsn and the account on it.
func (p *Preflight) Scratch(ctx context.Context) {
	dsn := p.cfg.Drill.Scratch
	if !p.does(Drill) || dsn.Database() == "" {
		return
	}
	where := addrOf(dsn.Reveal())
	p.atServer(ctx, "drill", dsn.Reveal(), func(db *sql.DB) {
		within, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		r, err := warm.ReadRights(within, db)
		if err != nil {
			if ctx.Err() == nil {
				p.Addf("drill", DrillUnreachable, "server "+where, "drill.scratch_dsn: %s", oneLine(err))
			}
			return
		}
		a := account{where: where, rights: r}
		p.judgeAccount("drill", a)
		sample := dsn.Database() + "_drill_x_0"
		if missing := r.Lacks(sample, "", "CREATE", "DROP", "SELECT", "INSERT"); len(missing) > 0 {
			p.Addf("drill", DrillRights, a.subject(), "lacks %s on the databases %s_drill_*", strings.Join(missing, ", "), dsn.Database())
		} else {
			p.Addf("drill", AccountReady, a.subject(), "may make, fill and drop scratch databases")
		}
	})
}

// atServer opens a DSN without its database, which need not be there.
func (p *Preflight) atServer(_ context.Context, about, dsn string, look func(db *sql.DB)) {
	m, err := mysql.ParseDSN(dsn)
	if err != nil {
		return // the configuration's decoder has parsed it
	}
	m.DBName = ""
	db, err := warm.OpenPlain(m.FormatDSN())
	if err != nil {
		p.Addf(about, ProbeFailed, "server "+m.Addr, "%s", oneLine(err))
		return
	}
	defer func() { _ = db.Close() }()
	look(db)
}

func addrOf(dsn string) string {
	if m, err := mysql.ParseDSN(dsn); err == nil {
		return m.Addr
	}
	return "?"
}

func (p *Preflight) judgePacket(about, subject string, s warm.Server) {
	if n := s.Int("max_allowed_packet"); n < leastPacket {
		p.Addf(about, PacketSmall, subject, "max_allowed_packet is %d bytes", n)
	}
}

// Bucket looks at the bucket beyond what a probe object shows.
func (p *Preflight) Bucket(ctx context.Context, b *bucket.Bucket) {
	subject := "bucket " + p.cfg.Bucket.Name
	p.probe(ctx, "bucket", subject, "its clock", func(ctx context.Context) error {
		skew, err := b.Clock(ctx)
		if err == nil {
			p.skew("bucket", subject, skew, true)
		}
		return err
	})
	p.probe(ctx, "bucket", subject, "how it is set up", func(ctx context.Context) error {
		for _, f := range b.Look(ctx) {
			p.Add("bucket", Code(f.Code), subject, f.What, f.Remedy)
		}
		return nil
	})
}

// Rows looks at ClickHouse beyond what its table shows.
func (p *Preflight) Rows(ctx context.Context, d *clickhouse.DB) {
	where := "ClickHouse at " + strings.Join(p.cfg.ClickHouse.Addrs, ", ")
	p.probe(ctx, "clickhouse", where, "its clock", func(ctx context.Context) error {
		begun := p.now().Truncate(time.Second)
		t, err := d.Now(ctx)
		if err != nil {
			return err
		}
		skew := time.Duration(0)
		if ended := p.now(); t.Before(begun) {
			skew = t.Sub(begun)
		} else if t.After(ended) {
			skew = t.Sub(ended)
		}
		p.skew("clickhouse", where, skew, false)
		return nil
	})
	for _, f := range d.Look(ctx) {
		p.Add("clickhouse", Code(f.Code), f.Subject, f.What, f.Remedy)
	}
}

// Columns says whether ClickHouse's table has the columns of the warm tables.
func (p *Preflight) Columns(ctx context.Context, d *clickhouse.DB, tables []*warm.Table) {
	var schemas []*message.Schema
	for _, t := range tables {
		schemas = append(schemas, t.Schema())
	}
	if len(schemas) == 0 {
		return
	}
	subject := p.cfg.ClickHouse.Database + ".messages"
	switch todo, err := d.Migrate(ctx, schemas, true); {
	case err != nil:
		p.Fail("clickhouse", RowsUnfit, subject, err)
	case len(todo) > 0:
		p.Addf("clickhouse", RowsBehind, subject, "the table lacks columns of the warm tables")
	}
}

// each does something for a number of things, some together.
func each(n int, do func(i int)) {
	var g errgroup.Group
	g.SetLimit(together)
	for i := range n {
		g.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = g.Wait() // never fails
}
