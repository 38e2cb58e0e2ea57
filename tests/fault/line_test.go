package fault

import (
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/stack"
)

// line is the program's way to a server: a tap, which counts what passes and reads
// MySQL statements, and behind it a proxy, which breaks it.
type line struct {
	*stack.Proxy
	addr string // of the tap

	mysql  bool         // its statements are read
	passed atomic.Int64 // bytes, both ways

	mu    sync.Mutex
	steps []step // in order
	query func(conn int, text string) fate
	sniff func(sent []byte)
	live  map[net.Conn]bool
}

// step is what happens when so many bytes have passed.
type step struct {
	at int64
	do func()
}

// fate is what becomes of a MySQL statement.
type fate struct {
	lose bool            // it arrives, its answer does not
	cut  bool            // it does not arrive
	late <-chan struct{} // the client's connection ends, and it arrives after this closes
}

func newLine(t *testing.T, upstream string, mysql bool) *line {
	t.Helper()
	l := &line{Proxy: stack.NewProxy(t, upstream), mysql: mysql, live: map[net.Conn]bool{}}
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.addr = in.Addr().String()
	t.Cleanup(func() {
		_ = in.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		for c := range l.live {
			_ = c.Close()
		}
	})
	go func() {
		for n := 0; ; n++ {
			c, err := in.Accept()
			if err != nil {
				return
			}
			go l.serve(n, c.(*net.TCPConn))
		}
	}()
	return l
}

// at plans faults for when further bytes have passed: from now on, in ascending order.
func (l *line) at(steps ...step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = nil
	base := l.passed.Load()
	for _, s := range steps {
		l.steps = append(l.steps, step{base + s.at, s.do})
	}
}

// onQuery sets what becomes of each MySQL statement.
func (l *line) onQuery(fn func(conn int, text string) fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.query = fn
}

func (l *line) onSent(fn func([]byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sniff = fn
}

func (l *line) pass(n int) {
	sum := l.passed.Add(int64(n))
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.steps) > 0 && l.steps[0].at <= sum {
		go l.steps[0].do() // the proxy may wait for data that this connection is to take
		l.steps = l.steps[1:]
	}
}

func (l *line) keep(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[c] = true
}

func (l *line) drop(c *net.TCPConn) {
	l.mu.Lock()
	delete(l.live, c)
	l.mu.Unlock()
	_ = c.SetLinger(0) // a reset, not a goodbye
	_ = c.Close()
}

func (l *line) serve(n int, client *net.TCPConn) {
	l.keep(client)
	up, err := net.Dial("tcp", l.Addr)
	if err != nil {
		l.drop(client)
		return
	}
	server := up.(*net.TCPConn)
	l.keep(server)
	var lose atomic.Bool
	answers := make(chan struct{})
	go func() {
		defer close(answers)
		defer l.drop(client)
		buf := make([]byte, 32<<10)
		for {
			n, err := server.Read(buf)
			if n > 0 {
				if lose.Load() {
					return
				}
				l.pass(n)
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	l.requests(n, client, server, &lose)
	if lose.Load() {
		<-answers // the server is at it until it answers
	}
	l.drop(client)
	l.drop(server)
}

// requests passes on what the client sends until it ends.
func (l *line) requests(n int, client, server *net.TCPConn, lose *atomic.Bool) {
	if l.mysql {
		l.statements(n, client, server, lose)
		return
	}
	l.mu.Lock()
	sniff := l.sniff
	l.mu.Unlock()
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			l.pass(n)
			if sniff != nil {
				sniff(buf[:n])
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// statements passes on MySQL packets, and asks for the fate of each statement.
func (l *line) statements(n int, client, server *net.TCPConn, lose *atomic.Bool) {
	for {
		packet := make([]byte, 4, 256)
		if _, err := io.ReadFull(client, packet); err != nil {
			return
		}
		packet = append(packet, make([]byte, int(packet[0])|int(packet[1])<<8|int(packet[2])<<16)...)
		if _, err := io.ReadFull(client, packet[4:]); err != nil {
			return
		}
		const comQuery = 3
		var f fate
		if packet[3] == 0 && len(packet) > 4 && packet[4] == comQuery {
			l.mu.Lock()
			query := l.query
			l.mu.Unlock()
			if query != nil {
				f = query(n, string(packet[5:]))
			}
		}
		switch {
		case f.cut:
			return
		case f.late != nil:
			lose.Store(true)
			l.drop(client)
			<-f.late
		case f.lose:
			lose.Store(true)
		}
		l.pass(len(packet))
		if _, err := server.Write(packet); err != nil || f.lose || f.late != nil {
			return
		}
	}
}

// addrs are the servers' own addresses.
func addrs(t *testing.T) (my, s3, ch string) {
	t.Helper()
	c, err := mysql.ParseDSN(os.Getenv("COLDTIER_TEST_MYSQL"))
	if err != nil || c.Addr == "" || os.Getenv("COLDTIER_TEST_S3") == "" || os.Getenv("COLDTIER_TEST_CLICKHOUSE") == "" {
		t.Skip("no servers to test on (`make test` starts them)")
	}
	_, ch, _ = strings.Cut(os.Getenv("COLDTIER_TEST_CLICKHOUSE"), "://")
	s3 = os.Getenv("COLDTIER_TEST_S3")
	return c.Addr, s3[strings.LastIndexAny(s3, "@/")+1:], ch
}
