package stack

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy stands between a client and a server and breaks the connection on demand.
// Its faults last until Heal. It is safe for concurrent use.
type Proxy struct {
	Addr string // host:port to connect to
	t    testing.TB

	mu    sync.Mutex
	p     *toxiproxy.Proxy
	ended bool // with the test: what a late timer does then has no effect
}

// NewProxy puts a proxy before a server's host:port. It ends with the test.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{t: t, p: toxiproxy.NewProxy(server, upstream, "127.0.0.1:0", upstream)}
	if err := p.p.Start(); err != nil {
		t.Fatalf("proxy to %s: %v", upstream, err)
	}
	p.Addr = p.p.Listen
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended = true
		// Connections first: a toxic's removal waits until its data are written or the connection is gone.
		p.p.Stop()
		p.p.Toxics.ResetToxics(context.Background())
	})
	return p
}

// Cut closes all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.p.Stop()
}

// Reset closes all connections; new ones are taken at once.
func (p *Proxy) Reset() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.p.Stop()
	p.start()
}

// Stall holds everything back in both directions. New connections are taken and
// held too. After Heal what was held back arrives.
func (p *Proxy) Stall() {
	p.t.Helper()
	p.Latency(24 * time.Hour)
}

// Latency delays everything in both directions, so that a request and its answer
// take twice as long.
func (p *Proxy) Latency(d time.Duration) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toxic("upstream", "latency", fmt.Sprintf(`{"latency": %d}`, d.Milliseconds()))
	p.toxic("downstream", "latency", fmt.Sprintf(`{"latency": %d}`, d.Milliseconds()))
}

// Bandwidth lets through so many bytes a second in each direction.
func (p *Proxy) Bandwidth(bytes int) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, stream := range []string{"upstream", "downstream"} {
		p.toxic(stream, "bandwidth", fmt.Sprintf(`{"rate": %d}`, max(bytes/1000, 1)))
	}
}

// LoseAnswers lets requests through and drops what the server answers: the outcome
// is unknown to the client. Heal closes the connections that lost something.
func (p *Proxy) LoseAnswers() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toxic("downstream", "timeout", `{"timeout": 0}`)
}

// Heal ends all faults.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.p.Toxics.ResetToxics(context.Background())
	p.start()
}

func (p *Proxy) start() {
	p.t.Helper()
	if !p.p.Enabled && !p.ended {
		if err := p.p.Start(); err != nil { // on the same port
			p.t.Errorf("proxy to %s: %v", p.p.Upstream, err)
		}
	}
}

func (p *Proxy) toxic(stream, kind, attributes string) {
	p.t.Helper()
	if p.ended {
		return
	}
	json := fmt.Sprintf(`{"stream": %q, "type": %q, "attributes": %s}`, stream, kind, attributes)
	if _, err := p.p.Toxics.AddToxicJson(strings.NewReader(json)); err != nil {
		p.t.Errorf("proxy to %s: %s: %v", p.p.Upstream, kind, err)
	}
}
