package preflight

import (
	"context"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/coldtier/coldtier/archive/warm"
)

// dialTime bounds the look whether somebody listens.
const dialTime = 3 * time.Second

// Metrics looks whether jobs can leave their metrics where the configuration says.
func (p *Preflight) Metrics(ctx context.Context) {
	c := p.cfg.Metrics
	if !p.does(Archive, Purge, Restore, Drill) {
		return // a server is scraped
	}
	if c.Textfile != "" {
		f, err := os.CreateTemp(c.Textfile, ".coldtier-check-*")
		if err == nil {
			err = remove(f)
		}
		if err != nil {
			p.Addf("metrics", MetricsLost, "metrics.textfile", "metrics.textfile %s: %s", c.Textfile, oneLine(err))
		}
	}
	if c.Pushgateway == "" {
		return
	}
	u, err := url.Parse(c.Pushgateway)
	if err != nil { // the configuration has looked
		return
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		p.Addf("metrics", MetricsLost, "metrics.pushgateway", "metrics.pushgateway: %s", oneLine(err))
	}
}

// PauseQueries asks the servers what the throttle would.
func (p *Preflight) PauseQueries(ctx context.Context, w *warm.Warm) {
	for _, x := range []struct {
		role       Role
		key, query string
	}{{Archive, "archive.pause_query", p.cfg.Archive.Pace.PauseQuery}, {Purge, "purge.pause_query", p.cfg.Purge.Pace.PauseQuery}} {
		if x.query == "" || !p.does(x.role) {
			continue
		}
		for addr, err := range w.TryPauseQuery(ctx, x.query) {
			p.Addf("warm", PauseQuery, x.key, "%s on server %s: %s", x.key, addr, oneLine(err))
		}
	}
}
