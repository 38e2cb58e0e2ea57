package manifest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/stack"
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
	stallAt string
	reached chan struct{} // closed when stallAt is
	refuse  int           // new connections to refuse after a lost COMMIT
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

// stallBefore lets nothing pass from the next such statement on, which it keeps; the
// channel is closed then.
func (p *proxy) stallBefore(statement string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stallAt, p.reached = statement, make(chan struct{})
	return p.reached
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
		if !p.pass() || p.stalls(buf[4:n]) {
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

// stalls says whether a command is the one at which all stalls.
func (p *proxy) stalls(command []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stallAt == "" || string(command) != "\x03"+p.stallAt {
		return false
	}
	p.stallAt, p.stalled = "", true
	close(p.reached)
	return true
}

func (p *proxy) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.stalled
}

// A server that falls silent at the end of a transaction keeps nobody beyond the end of
// his context: neither the put of a status nor a worker that is to stop.
func TestSilentAtTheEndOfATransaction(t *testing.T) {
	t.Parallel()
	for statement, run := range map[string]func(ctx context.Context, s *Store, id uint64) error{
		"COMMIT": func(ctx context.Context, s *Store, _ uint64) error {
			_, err := s.PutStatus(ctx, Status{Conversation: []byte("c"), MessageID: 1, Kind: StatusEdited})
			return err
		},
		"ROLLBACK": func(ctx context.Context, s *Store, id uint64) error {
			_, err := s.Claim(ctx, id, "w", []State{Purged}, "")
			return err
		},
	} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			p := proxyTo(t, stack.MySQL(t))
			s := openAt(t, p.dsn, testSource, time.Minute)
			if _, err := s.Migrate(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			sl := testSlice(t, s, 1)
			reached := p.stallBefore(statement)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, s, sl.ID) }()
			select {
			case <-reached:
			case err := <-ended:
				t.Fatalf("it ended before its %s: %v", statement, err)
			}
			select {
			case err := <-ended:
				t.Fatalf("the %s was answered: %v", statement, err)
			default:
			}
			cancel()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("it is said to be done")
				}
			case <-time.After(40 * time.Second): // the driver's own limit is a minute
				t.Errorf("it waits for the %s", statement)
			}
		})
	}
}
