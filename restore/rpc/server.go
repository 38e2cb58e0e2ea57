package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/coldtier/coldtier/restore/rpc/coldtier/v1/coldtierv1connect"
)

// Config is how the server serves.
type Config struct {
	MaxLimit int           // message IDs of a GetMessages
	Budget   time.Duration // of a page: what the server gives a slow caller to take its answer comes on top
	TLS      TLS
	Auth     Auth
	Drain    time.Duration // between the end of readiness and the end of listening
}

// Metrics are where the server's metrics go, and what /metrics gives.
type Metrics interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// Deps are what the server works with.
type Deps struct {
	Reader  Reader
	Keeper  Keeper
	Ready   func(context.Context) error // reaches the manifest
	Page    http.Handler                // below /ui, for those who may see the state of the whole; nil: none
	Audit   *Audit                      // nil: none
	Metrics Metrics
	Log     *slog.Logger
	Now     func() time.Time
	HTTP    *http.Client // fetches the issuer's keys; nil: a plain one
	// Interceptors stand around the methods of the ColdHistory.
	Interceptors []connect.Interceptor
}

// Time limits of connections. A body has at most maxBytes, an answer some megabytes.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 15 * time.Second
	answerTimeout = 10 * time.Second // beyond the budget
	idleTimeout   = 2 * time.Minute
	stopTimeout   = 10 * time.Second // for what runs when listening ends
	maxHeader     = 64 << 10
	minCompress   = 4 << 10 // a smaller answer is not worth the time
	// More than run at once by fetch.limits, so that a caller with one connection is told that
	// it is too much rather than left to wait.
	maxStreams = 1024
	pingAfter  = 30 * time.Second // of silence, to find connections that are dead
)

// Server is the ColdHistory on one port, with health and metrics.
type Server struct {
	cfg     Config
	log     *slog.Logger
	now     func() time.Time
	tls     *tls.Config
	metrics *metrics
	callers *callers
	errors  *connect.ErrorWriter
	health  *health
	history *service
	handler http.Handler
	page    bool            // there is one
	closing context.Context // ends with listening
	close   context.CancelFunc
}

// NewServer makes a server. What it reads in the background, until ctx ends, is the
// issuer's keys.
func NewServer(ctx context.Context, c Config, d Deps) (*Server, error) {
	s := &Server{cfg: c, log: d.Log, now: d.Now, health: newHealth(d.Ready, d.Now, d.Log)}
	s.closing, s.close = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	var files *watched[*tls.Config]
	if s.tls, files, err = newTLS(c.TLS, d.Now, d.Log); err != nil {
		return nil, err
	}
	if s.callers, err = newCallers(ctx, c, files, d.HTTP, d.Now, d.Log); err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(d.Metrics); err != nil {
		return nil, err
	}
	options := []connect.HandlerOption{connect.WithReadMaxBytes(maxBytes), connect.WithCompressMinBytes(minCompress), connect.WithRecover(s.recovered), connect.WithInterceptors(d.Interceptors...)}
	for _, codec := range jsonCodecs() {
		options = append(options, connect.WithCodec(codec))
	}
	s.errors = connect.NewErrorWriter(options...)
	history := &service{reader: d.Reader, keeper: d.Keeper, audit: d.Audit, metrics: s.metrics, log: d.Log, now: d.Now, maxLimit: c.MaxLimit, answers: newAnswers()}
	s.history = history

	mux := http.NewServeMux()
	path, rpcs := coldtierv1connect.NewColdHistoryHandler(history, options...)
	mux.Handle(path, s.called(rpcs))
	reflector := grpcreflect.NewStaticReflector(coldtierv1connect.ColdHistoryName, grpchealth.HealthV1ServiceName)
	path, reflect := grpcreflect.NewHandlerV1(reflector, connect.WithReadMaxBytes(maxBytes))
	mux.Handle(path, s.known(reflect))
	path, reflect = grpcreflect.NewHandlerV1Alpha(reflector, connect.WithReadMaxBytes(maxBytes))
	mux.Handle(path, s.known(reflect))
	path, watch := grpchealth.NewHandler(s.health.grpc, connect.WithReadMaxBytes(maxBytes))
	mux.Handle(path, s.endless(watch))
	if d.Page != nil {
		mux.Handle(pagePath, s.shown(d.Page, identity.maySee))
		mux.Handle(pagePath+"/", s.shown(d.Page, identity.maySee))
		s.page = true
	}
	mux.Handle("GET /{$}", s.shown(http.HandlerFunc(s.index), everybody))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("GET /readyz", s.health)
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.Metrics, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(d.Log.Handler(), slog.LevelError)}))
	s.handler = s.guarded(mux)
	return s, nil
}

// Handler is everything the server serves.
func (s *Server) Handler() http.Handler { return s.handler }

// called lets the callers of the ColdHistory in, and counts what becomes of their requests.
func (s *Server) called(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{method: methodOf(r.URL.Path), peer: r.RemoteAddr, start: s.now()}
		if c.method == "" {
			http.Error(w, "no such method: "+methodNames(), http.StatusNotFound)
			return
		}
		running := s.metrics.running.WithLabelValues(c.method)
		running.Inc()
		defer func() {
			running.Dec()
			s.history.drop(c)
			s.done(r.Context(), c)
		}()
		var err error
		if c.who, err = s.callers.identify(r); err != nil {
			c.code = connect.CodeUnauthenticated.String()
			s.refuse(w, r, err)
			return
		}
		if r.Method == http.MethodPost && !spoken(r.Header.Get("Content-Type")) {
			w.Header().Set("Accept-Post", "application/json, application/proto")
			http.Error(w, "Content-Type: want application/json, as by curl -H 'Content-Type: application/json', or one of Connect, gRPC and gRPC-Web", http.StatusUnsupportedMediaType)
			return
		}
		next.ServeHTTP(w, r.WithContext(withCall(r.Context(), c)))
	})
}

// known lets callers in that are known, whatever they may do.
func (s *Server) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.callers.identify(r); err != nil {
			s.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// endless is for a stream that tells of health as long as there is news: it has no time
// limit, and ends with listening rather than hold it up.
func (s *Server) endless(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
			s.log.Debug("a stream of health stays limited in time", "error", err)
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.closing, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var why refused
	detail := err
	if errors.As(err, &why) {
		detail = why.why
	}
	s.log.Debug("a caller is not let in", "path", r.URL.Path, "peer", r.RemoteAddr, "error", detail)
	w.Header().Set("WWW-Authenticate", "Bearer")
	if err := s.errors.Write(w, r, connect.NewError(connect.CodeUnauthenticated, errors.New(err.Error()))); err != nil {
		s.log.Debug("a refusal could not be sent", "peer", r.RemoteAddr, "error", err)
	}
}

func (s *Server) done(ctx context.Context, c *call) {
	if c.code == "" {
		c.code = codeMalformed
		if ctx.Err() != nil {
			c.code = connect.CodeCanceled.String()
		}
	}
	took := s.now().Sub(c.start)
	s.metrics.done(c, took)
	s.log.Debug("request", "method", c.method, "who", c.who.Name, "how", c.who.How, "peer", c.peer, "code", c.code, "state", string(c.state),
		"rows", c.rows, "took", took, "incident", c.incident)
}

// recovered makes an error of a panic in a method.
func (s *Server) recovered(ctx context.Context, spec connect.Spec, _ http.Header, p any) error {
	c := callOf(ctx)
	out, incident := coded(errPanic)
	c.code, c.incident = out.Code().String(), incident
	s.panicked(spec.Procedure, incident, p)
	return out
}

var errPanic = errors.New("panic")

// guarded is recovered for all that is not a method.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			s.panicked(r.URL.Path, "", p)
			panic(http.ErrAbortHandler) // part of an answer may be gone out, and must not look like all of it
		}()
		next.ServeHTTP(w, r)
	})
}

// panicked logs a panic. Of a value that is not an error of the runtime only the type is
// said: it might quote a message.
func (s *Server) panicked(where, incident string, p any) {
	s.metrics.panics.Inc()
	what := fmt.Sprintf("a %T", p)
	if err, ok := p.(runtime.Error); ok {
		what = err.Error()
	}
	s.log.Error("panic", "where", where, "incident", incident, "panic", what, "stack", string(debug.Stack()))
}

// Serve serves until ctx ends; then it says that it is not ready, goes on for the drain
// time or until hurry is closed, takes no more requests, and waits for those that run.
func (s *Server) Serve(ctx context.Context, ln net.Listener, hurry <-chan struct{}) error {
	if err := s.fit(ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(s.tls != nil)
	protocols.SetUnencryptedHTTP2(s.tls == nil)
	srv := &http.Server{
		Handler: s.handler, TLSConfig: s.tls, Protocols: &protocols, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout,
		WriteTimeout: s.cfg.Budget + answerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnContext: s.callers.begin,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter},
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // of connections, such as a failed handshake
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer s.close()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.health.watch(background)
	}()
	defer func() { stop(); <-watched }()

	ended := make(chan error, 1)
	go func() {
		if s.tls != nil {
			ended <- srv.ServeTLS(ln, "", "")
			return
		}
		ended <- srv.Serve(ln)
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.health.drain()
	s.log.Info("draining", "for", s.cfg.Drain)
	wait := time.NewTimer(s.cfg.Drain)
	defer wait.Stop()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	case <-hurry:
	case <-wait.C:
	}
	s.close()
	last, cancel := context.WithTimeout(background, stopTimeout)
	defer cancel()
	err := srv.Shutdown(last)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were cut off after %s: %w", stopTimeout, err), srv.Close())
	}
	if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// ErrOpen says that the server would let in whom it must not.
var ErrOpen = errors.New("this address may not be listened on")

// fit refuses an address that others reach without callers that are known, or with
// tokens in the clear.
func (s *Server) fit(addr net.Addr) error {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	switch {
	case s.callers.open:
		return fmt.Errorf("%w: %s: anybody who reaches it could read all messages: set fetch.auth or fetch.tls.client_ca, or listen on 127.0.0.1", ErrOpen, addr)
	case s.cfg.Auth.tokens() && s.tls == nil && !s.cfg.Auth.InsecureTransport:
		return fmt.Errorf("%w: %s: tokens would cross the network in the clear: set fetch.tls, or fetch.auth.insecure_transport when a proxy before the server ends TLS", ErrOpen, addr)
	}
	return nil
}
