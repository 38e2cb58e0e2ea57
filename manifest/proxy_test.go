package manifest

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// proxy stands between a store and its server and knows a COMMIT when it sees one.
type proxy struct {
	dsn  string
	addr string

	mu      sync.Mutex
	conns   []net.Conn
	commits int  // COMMITs to come of which the fate is loseAnswer or loseCommit
	answer  bool // the server runs it, its answer is lost; else the server never sees it
	stalled bool // nothing passes
	refuse  int  // new connections to refuse after a lost COMMIT
	refused int
}

func proxyTo(t testing.TB, dsn string) *proxy {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: cfg.Addr}
	cfg.Addr = ln.Addr().String()
	p.dsn = cfg.FormatDSN()
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.conns {
			_ = c.Close()
		}
	})
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// lose makes the next n COMMITs fail: after the server has run them (answer) or
// before it sees them. After each, refuse new connections are refused.
func (p *proxy) lose(n int, answer bool, refuse int) {
	p.mu.Lock()
	p.commits, p.answer, p.refuse = n, answer, refuse
	p.mu.Unlock()
}

func (p *proxy) stall() {
	p.mu.Lock()
	p.stalled = true
	p.mu.Unlock()
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	p.mu.Lock()
	stop := p.stalled || p.refused > 0
	if p.refused > 0 {
		p.refused--
	}
	p.mu.Unlock()
	if stop {
		return
	}
	server, err := net.Dial("tcp", p.addr)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	p.mu.Unlock()
	var lost sync.Once
	dropped := make(chan struct{})
	go func() { // answers
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			select {
			case <-dropped: // the answer to the COMMIT is here: the server has run it
				_ = client.Close()
				return
			default:
			}
			if !p.pass() {
				continue
			}
			if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
				_ = client.Close()
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if !p.pass() {
			continue
		}
		if bytes.Equal(buf[4:min(n, 11)], []byte("\x03COMMIT")) {
			p.mu.Lock()
			lose, answer := p.commits > 0, p.answer
			if lose {
				p.commits--
				p.refused = p.refuse
			}
			p.mu.Unlock()
			if lose && !answer {
				return
			}
			if lose {
				lost.Do(func() { close(dropped) })
			}
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.stalled
}
