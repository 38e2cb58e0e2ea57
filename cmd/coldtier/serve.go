package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/clickhouse"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/cmd/coldtier/status"
	"github.com/coldtier/coldtier/cmd/coldtier/ui"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/rpc"
)

func (a *app) serveCommand() *cobra.Command {
	var logRequests bool
	c := a.command(&cobra.Command{
		Use:   "serve",
		Short: "Serve pages of the cold history by gRPC, gRPC-Web and HTTP/JSON",
		Long: `Serve pages of the cold history by gRPC, gRPC-Web and HTTP/JSON on fetch.listen, with
reflection, health (gRPC's, /healthz, /readyz) and /metrics on the same port, and the
page /ui, which shows a browser what status shows.

The first SIGTERM makes /readyz say 503; after fetch.drain it listens no more, ends
what runs, and exits with 0. A second one skips the wait, a third the rest. SIGHUP
opens the audit log anew. Certificates, tokens and keys are read again when they change.`,
		Example: `  coldtier serve
  coldtier --log-format json serve --log-requests
  curl http://127.0.0.1:8080/coldtier.v1.ColdHistory/FetchRange -H 'Content-Type: application/json' -d '{"conversation": "9007199254740993"}'`,
		Args: noArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if logRequests {
			a.logLevel.Set(slog.LevelDebug)
		}
		return nil, a.serve(ctx)
	})
	c.Flags().BoolVar(&logRequests, "log-requests", false, "log each request, and why callers are not let in")
	return c
}

func (a *app) serve(ctx context.Context) (err error) {
	var audit atomic.Pointer[rpc.Audit]
	ctx, hurry, stop := a.serverSignals(ctx, func() {
		if err := audit.Load().Reopen(); err != nil {
			a.log.Error("the audit log goes on where it was", "error", err)
		}
	}, os.Exit)
	defer stop()

	p, err := a.open(ctx, need{serve: true})
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, p) }()
	cfg := p.cfg.Fetch
	log, err := a.openAudit(cfg.Audit)
	if err != nil {
		return mark(err, errSetup)
	}
	audit.Store(log)
	p.closers = append(p.closers, log)
	if err := a.openBucket(ctx, p); err != nil {
		return setup(err)
	}
	if err := a.seeBucket(ctx, p); err != nil {
		a.log.Warn("the bucket does not answer as it should; pages come from ClickHouse alone until it does", "error", err)
	}
	p.late = newLateRows(ctx, a, p)
	p.closers = append(p.closers, p.late)

	reg := a.telemetry.registry
	reg.MustRegister(newWhole(ctx, a.log, a.now, p, serverEvery), newDrillAge(ctx, p.cfg.Source.Name, a.now, p.manifest.LastGoodDrill))
	history, err := a.history(ctx, p, cfg.Budget, cfg.HedgeAfter, true, reg)
	if err != nil {
		return err
	}
	mirroring, stopMirror := context.WithCancel(context.WithoutCancel(ctx))
	mirrorEnded := a.mirrorStatuses(mirroring, p, reg)
	defer func() { stopMirror(); mirrorEnded() }()
	page, err := a.statusPage(p)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, page)
	s, err := rpc.NewServer(ctx, rpcConfig(cfg), rpc.Deps{
		Reader: history, Page: page, Keeper: history, Audit: log, Metrics: reg, Log: a.log, Now: a.now, Interceptors: a.telemetry.tracer.interceptors(),
		Ready: func(ctx context.Context) error { _, err := p.manifest.Now(ctx); return err },
	})
	if err != nil {
		return mark(err, errSetup)
	}
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return mark(fmt.Errorf("fetch.listen: %w", err), errSetup)
	}
	a.log.Info("serving", "address", ln.Addr().String())
	err = s.Serve(ctx, ln, hurry)
	if errors.Is(err, rpc.ErrOpen) {
		err = mark(err, errSetup)
	}
	return err
}

// seeBucket says what is wrong with the bucket: a get of what is not there tells a missing
// bucket, or rights that are lacking, from a missing object.
func (a *app) seeBucket(ctx context.Context, p *parts) error {
	ctx, cancel := context.WithTimeout(ctx, lateTimeout/2)
	defer cancel()
	if _, err := p.bucket.Get(ctx, "check/none"); err != nil && !errors.Is(err, bucket.ErrNotFound) {
		return err
	}
	return nil
}

// pageRuns is how many of the last runs the page shows.
const pageRuns = 20

// statusPage is what the server shows a browser.
func (a *app) statusPage(p *parts) (*ui.Page, error) {
	g := a.gatherer(p)
	return ui.New(ui.Config{Redact: a.redact, Now: a.now, Log: a.log,
		Gather: func(ctx context.Context) (*status.Report, error) { return g.Gather(ctx, status.Query{Runs: pageRuns}) }})
}

func (a *app) openAudit(where string) (*rpc.Audit, error) {
	switch where {
	case "":
		return nil, nil
	case "-":
		if a.output == formatJSON {
			return nil, errors.New(`fetch.audit "-" and --output json both write to stdout: name a file, or leave out --output`)
		}
		return rpc.NewAudit(a.stdout), nil
	}
	return rpc.OpenAudit(where)
}

func rpcConfig(f config.Fetch) rpc.Config {
	return rpc.Config{
		MaxLimit: f.MaxLimit, Budget: f.Budget, Drain: f.Drain, TLS: rpc.TLS{Cert: f.TLS.Cert, Key: f.TLS.Key, ClientCA: f.TLS.ClientCA},
		Auth: rpc.Auth{Clients: f.Auth.Clients, Tokens: f.Auth.Tokens, InsecureTransport: f.Auth.InsecureTransport,
			JWT: rpc.JWT{Issuer: f.Auth.JWT.Issuer, Audience: f.Auth.JWT.Audience, JWKS: f.Auth.JWT.JWKS}},
	}
}

// lateRows is ClickHouse for a server, which must start also while ClickHouse is away:
// it connects when it is asked, and asks again at most every lateEvery.
type lateRows struct {
	base   context.Context
	cancel context.CancelFunc
	open   func(context.Context) (*clickhouse.DB, error)
	now    func() time.Time

	mu    sync.Mutex
	db    *clickhouse.DB
	err   error
	tried time.Time
	wait  chan struct{} // closed when the attempt that runs has ended; nil: none runs
}

const (
	lateEvery   = 5 * time.Second
	lateTimeout = 10 * time.Second
)

// newLateRows begins to connect.
func newLateRows(ctx context.Context, a *app, p *parts) *lateRows {
	l := &lateRows{now: a.now, open: func(ctx context.Context) (*clickhouse.DB, error) {
		c := clickhouseConfig(p.cfg.ClickHouse)
		c.MaxConns = restore.RowQueries
		db, err := clickhouse.Open(ctx, c, a.log)
		what := "ClickHouse cannot be asked; pages are read from the bucket"
		bad := err
		if err == nil {
			what, bad = "ClickHouse answers, but not as it should; what it does not give is read from the bucket", db.Check(ctx)
		}
		if bad != nil && !errors.Is(ctx.Err(), context.Canceled) {
			a.log.Warn(what, "error", bad)
		}
		return db, err
	}}
	l.base, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin()
	return l
}

// begin connects in the background; the lock is held.
func (l *lateRows) begin() {
	wait := make(chan struct{})
	l.wait, l.tried = wait, l.now()
	go func() {
		ctx, cancel := context.WithTimeout(l.base, lateTimeout)
		defer cancel()
		db, err := l.open(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wait = nil
		close(wait)
		if l.base.Err() != nil && db != nil { // nobody wants it any more
			db, err = nil, errors.Join(context.Cause(l.base), db.Close())
		}
		l.db, l.err = db, err
	}()
}

func (l *lateRows) get(ctx context.Context) (*clickhouse.DB, error) {
	for {
		l.mu.Lock()
		db, err, wait := l.db, l.err, l.wait
		if db == nil && wait == nil && l.now().Sub(l.tried) >= lateEvery && l.base.Err() == nil {
			l.begin()
			wait = l.wait
		}
		l.mu.Unlock()
		switch {
		case db != nil:
			return db, nil
		case wait == nil:
			return nil, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Spans reads as rows does.
func (l *lateRows) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	db, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return rows{db}.Spans(ctx, spans, s, conversation, limit)
}

// Close closes the connection. An attempt that runs is not waited for, since the driver
// does not end one that waits for an answer; it closes what it then gets.
func (l *lateRows) Close() error {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.db == nil {
		return nil
	}
	return l.db.Close()
}
