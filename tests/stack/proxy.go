package stack

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a client and a server and breaks the connection on demand.
// Its faults last until Heal. It is safe for concurrent use.
type Proxy struct {
	Addr     string // host:port to connect to
	t        testing.TB
	upstream string
	wg       sync.WaitGroup

	mu      sync.Mutex
	ln      net.Listener // nil: new connections are refused
	links   map[*link]bool
	faults  faults
	changed chan struct{} // closed when faults are others
	ended   bool          // with the test: what a late timer does then has no effect
}

// faults are what happens to bytes on their way.
type faults struct {
	delay time.Duration // in each direction
	rate  int           // bytes a second in each direction; 0: no limit
	lose  bool          // what the server answers
}

// NewProxy puts a proxy before a server's host:port. It ends with the test.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, upstream: upstream, Addr: "127.0.0.1:0", links: map[*link]bool{}, changed: make(chan struct{})}
	p.mu.Lock()
	p.listen()
	p.mu.Unlock()
	t.Cleanup(func() {
		p.mu.Lock()
		p.ended = true
		p.refuse()
		p.closeAll()
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// listen takes new connections, on the same port as ever. It needs p.mu, as all that follow
// and begin with a small letter.
func (p *Proxy) listen() {
	p.t.Helper()
	if p.ln != nil || p.ended {
		return
	}
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", p.Addr)
	if err != nil {
		p.t.Errorf("proxy to %s: %v", p.upstream, err)
		return
	}
	p.ln, p.Addr = ln, ln.Addr().String()
	p.wg.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return // closed
			}
			p.wg.Go(func() { p.serve(ln, client) })
		}
	})
}

func (p *Proxy) refuse() {
	if p.ln != nil {
		_ = p.ln.Close()
		p.ln = nil
	}
}

func (p *Proxy) closeAll() {
	for l := range p.links {
		l.close()
	}
}

func (p *Proxy) set(change func(f *faults)) {
	if p.ended {
		return
	}
	change(&p.faults)
	close(p.changed)
	p.changed = make(chan struct{})
}

// Cut closes all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse()
	p.closeAll()
}

// Reset closes all connections; new ones are taken at once.
func (p *Proxy) Reset() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse() // also those that wait to be taken
	p.closeAll()
	p.listen()
}

// Stall holds everything back in both directions. New connections are taken and
// held too. After Heal what was held back arrives.
func (p *Proxy) Stall() { p.Latency(24 * time.Hour) }

// Latency delays everything in both directions, so that a request and its answer
// take twice as long.
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(func(f *faults) { f.delay = d })
}

// Bandwidth lets through so many bytes a second in each direction.
func (p *Proxy) Bandwidth(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(func(f *faults) { f.rate = bytes })
}

// LoseAnswers lets requests through and drops what the server answers: the outcome
// is unknown to the client. Heal closes the connections.
func (p *Proxy) LoseAnswers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(func(f *faults) { f.lose = true })
}

// Heal ends all faults.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults.lose {
		p.closeAll()
	}
	p.set(func(f *faults) { *f = faults{} })
	p.listen()
}

func (p *Proxy) now() (faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

// link is a connection through the proxy.
type link struct {
	client, server net.Conn
	closed         chan struct{}
	close          func()
}

// serve carries a connection that ln took, until it ends.
func (p *Proxy) serve(ln net.Listener, client net.Conn) {
	server, err := new(net.Dialer).Dial("tcp", p.upstream)
	if err != nil {
		_ = client.Close() // as the server would refuse it
		return
	}
	l := &link{client: client, server: server, closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() {
		close(l.closed)
		_ = client.Close()
		_ = server.Close()
	})
	defer l.close()
	p.mu.Lock()
	stay := p.ln == ln && !p.ended
	if stay {
		p.links[l] = true
	}
	p.mu.Unlock()
	if !stay {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.carry(l, server, client, false) })
	both.Go(func() { p.carry(l, client, server, true) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// chunk is what was read at once.
type chunk struct {
	data []byte
	at   time.Time
}

// held is how many chunks wait in a direction before the sender has to.
const held = 1024

// carry moves the bytes of one direction. It ends at their end, which it hands on, or when
// the link is closed.
func (p *Proxy) carry(l *link, to, from net.Conn, answers bool) {
	queue := make(chan chunk, held)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(queue)
		for {
			buf := make([]byte, 16<<10)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case queue <- chunk{buf[:n], time.Now()}:
				case <-l.closed:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range queue {
		if !p.deliver(l, to, c, answers) {
			l.close()
		}
	}
	_ = to.Close()
	<-done
}

// deliver writes a chunk when its time has come, or drops it; false when that cannot be.
func (p *Proxy) deliver(l *link, to net.Conn, c chunk, answers bool) bool {
	for {
		f, changed := p.now()
		wait := time.Until(c.at.Add(f.delay))
		if wait <= 0 {
			break
		}
		if !pause(wait, changed, l.closed) {
			return false
		}
	}
	for len(c.data) > 0 {
		f, changed := p.now()
		if f.lose && answers {
			return true
		}
		n := len(c.data)
		if f.rate > 0 {
			n = min(n, max(f.rate/20, 1))
			if !pause(time.Duration(n)*time.Second/time.Duration(f.rate), changed, l.closed) {
				return false
			}
		}
		if _, err := to.Write(c.data[:n]); err != nil {
			return false
		}
		c.data = c.data[n:]
	}
	return true
}

// pause waits, also shorter; false when the link is closed.
func pause(d time.Duration, changed, closed <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-closed:
		return false
	}
	return true
}
