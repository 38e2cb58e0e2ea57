// Package ui is the page that shows a browser what `coldtier status` shows a terminal. It
// only reads, works without JavaScript, and loads nothing from elsewhere.
//
// Whoever may see it need not be allowed to see messages: so it has no conversation's ID,
// neither from holds nor out of errors and reasons, which may quote one.
package ui

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coldtier/coldtier/cmd/coldtier/status"
)

//go:embed page.html.tmpl
var pageText string

//go:embed style.css
var styleText []byte

const (
	// fresh is how long a report is shown to all who ask, so that many viewers cost the
	// manifest no more than one.
	fresh = 5 * time.Second
	// askTimeout is how long the manifest may take for a report.
	askTimeout = 30 * time.Second
	// A viewer waits so long for a new report where there is an older one, or none. Both are
	// below the time in which a server has to have answered.
	waitOld  = 2 * time.Second
	waitNone = 8 * time.Second
	// The bounds of ?refresh, in seconds.
	minRefresh, maxRefresh = 5, 3600
)

// Config is what a page needs.
type Config struct {
	Gather func(context.Context) (*status.Report, error)
	Redact func(string) string // takes secrets out of errors
	Now    func() time.Time    // to say how old a report is
	Log    *slog.Logger
}

// Page serves /ui and what belongs to it. It is safe for concurrent use.
type Page struct {
	c       Config
	tmpl    *template.Template
	base    context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	last  *status.Report
	at    time.Time     // when last was asked for
	tried time.Time     // when a report was last asked for
	err   error         // of that; nil: it came
	away  time.Time     // when the first in a row was asked for that did not come
	wait  chan struct{} // closed when the report that is asked for is there; nil: none is
}

// New makes a page.
func New(c Config) (*Page, error) {
	t, err := template.New("page").Funcs(funcs()).Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("the page's template: %w", err)
	}
	p := &Page{c: c, tmpl: t}
	p.base, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Close ends what the page asks for, and waits for its end.
func (p *Page) Close() error {
	p.cancel()
	p.running.Wait()
	return nil
}

// state is what is known when a page is made.
type state struct {
	report *status.Report // nil: there was none yet
	at     time.Time
	err    error
	away   time.Time
}

// current gives the report that is there, or waits a moment for a new one.
func (p *Page) current(ctx context.Context) state {
	p.mu.Lock()
	now := p.c.Now()
	if p.wait == nil && p.base.Err() == nil && (p.tried.IsZero() || now.Sub(p.tried) >= fresh || now.Before(p.tried)) {
		p.ask(now)
	}
	wait, long := p.wait, waitNone
	if p.last != nil || p.err != nil {
		long = waitOld
	}
	p.mu.Unlock()
	if wait != nil {
		t := time.NewTimer(long)
		defer t.Stop()
		select {
		case <-wait:
		case <-t.C:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return state{p.last, p.at, p.err, p.away}
}

// ask asks for a report, for all who wait for one: so not in the time of one of them. The
// lock is held.
func (p *Page) ask(now time.Time) {
	wait := make(chan struct{})
	p.wait, p.tried = wait, now
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(p.base, askTimeout)
		defer cancel()
		r, err := p.c.Gather(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wait = nil
		close(wait)
		switch {
		case err == nil:
			if p.err != nil {
				p.c.Log.Info("the page's state is there again")
			}
			p.last, p.at, p.err = r, now, nil
		case p.err == nil:
			p.c.Log.Warn("the page's state cannot be asked for", "error", err)
			p.away, p.err = now, err
		default:
			p.err = err
		}
	})
}

// ServeHTTP serves the page and its style.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case "/ui":
	case "/ui/style.css":
		h.Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(styleText) // whoever asked is gone
		return
	default:
		http.NotFound(w, r)
		return
	}
	q := r.URL.Query()
	refresh, _ := strconv.Atoi(q.Get("refresh"))
	if refresh != 0 {
		refresh = min(max(refresh, minRefresh), maxRefresh)
	}
	s := p.current(r.Context())
	var b bytes.Buffer
	if err := p.tmpl.Execute(&b, p.view(s, refresh, q.Get("years") == "all")); err != nil {
		p.c.Log.Error("the page cannot be made", "error", err)
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	if s.report == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(b.Bytes()) // whoever asked is gone
}
