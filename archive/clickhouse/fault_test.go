package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

// cutter forwards connections and, once armed, cuts one after a number of bytes.
type cutter struct {
	addr     string
	upstream string
	up, down atomic.Int64 // bytes that still pass; negative: all
	cuts     atomic.Int64
}

func newCutter(t *testing.T, upstream string) *cutter {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(testContext(t), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: l.Addr().String(), upstream: upstream}
	c.heal()
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := new(net.Dialer).DialContext(context.Background(), "tcp", upstream)
			if err != nil {
				_ = in.Close()
				continue
			}
			all.Go(func() { c.pump(out, in, &c.up) })
			all.Go(func() { c.pump(in, out, &c.down) })
		}
	})
	return c
}

func (c *cutter) heal() { c.up.Store(-1); c.down.Store(-1) }

func (c *cutter) pump(to, from net.Conn, left *atomic.Int64) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if l := left.Load(); l >= 0 && int64(n) > l {
			_, _ = to.Write(buf[:l])
			c.cuts.Add(1)
			left.Store(-1) // the next connection lives
			return
		} else if l >= 0 {
			left.Add(-int64(n))
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// throughCutter is a table that is reached through a cutter.
func throughCutter(t *testing.T, s *message.Schema) (*DB, *cutter) {
	t.Helper()
	ch := stack.NewClickHouse(t)
	c := newCutter(t, ch.Addr)
	ch.Addr = c.addr
	d := open(t, ch, func(c *Config) { c.BlockRows = 1000 })
	d.retryWait = time.Millisecond
	if _, err := d.Migrate(testContext(t), []*message.Schema{s}, false); err != nil {
		t.Fatal(err)
	}
	return d, c
}

// C1: a connection that is cut anywhere in an insert, or whose answer is lost, costs
// another try of the block on a fresh batch, and no row is lost or doubled.
func TestCutInsertIsSentAgain(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	s := schema(t)
	d, c := throughCutter(t, s)
	want := plain(t, s, 50, 25)
	for try := range 16 {
		id := copyID(fmt.Sprintf("a%d", try))
		i, err := d.Insert(testContext(t), id, s)
		if err != nil {
			t.Fatal(err)
		}
		if try%2 == 0 {
			c.up.Store(r.Int64N(30_000))
		} else {
			c.down.Store(r.Int64N(200))
		}
		if err := i.Write(testContext(t), want, 0, want.Len()); err != nil {
			t.Fatal(err)
		}
		if err := i.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
		c.heal()
		wantEqual(t, readAll(t, d, id, s), want)
	}
	if c.cuts.Load() < 4 {
		t.Errorf("only %d of 16 inserts were cut", c.cuts.Load())
	}
}

// A read that is cut is an error or whole, never short without a sign.
func TestCutReadIsNeverShort(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	s := schema(t)
	d, c := throughCutter(t, s)
	rows := message.NewBatch(s)
	noise := make([]byte, 200)
	for i := range 3000 {
		for j := range noise {
			noise[j] = byte(r.Uint32())
		}
		if err := rows.Append([][]byte{fmt.Append(nil, i+1), []byte("7"), fmt.Append(nil, i+1), noise}); err != nil {
			t.Fatal(err)
		}
	}
	insert(t, d, copyID("a"), rows)
	failed := 0
	for range 24 {
		c.down.Store(r.Int64N(700_000))
		n := 0
		err := d.ReadCopy(testContext(t), copyID("a"), s, func(b *message.Batch) error { n += b.Len(); return nil })
		c.heal()
		if err == nil && n != rows.Len() {
			t.Fatalf("a cut read gave %d of %d rows and no error", n, rows.Len())
		}
		if err != nil {
			failed++
			if !errors.Is(err, ErrUnreachable) {
				t.Errorf("a cut read: %v", err)
			}
		}
		c.down.Store(r.Int64N(30_000))
		p, err := readPage(testContext(t), d, []CopyID{copyID("a")}, s, pageQuery{Conversation: []byte("7"), Limit: 100})
		c.heal()
		if err == nil && p.Len() != 100 {
			t.Fatalf("a cut page has %d rows and no error", p.Len())
		}
	}
	if failed < 6 {
		t.Errorf("only %d of 24 reads were cut", failed)
	}
}

// An insert through a stalled connection ends at the caller's deadline and does not count.
func TestStalledInsertEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	s := schema(t)
	ch := stack.NewClickHouse(t)
	direct := open(t, ch, nil)
	mustMigrate(t, direct, false, s)
	p := stack.NewProxy(t, ch.Addr)
	ch.Addr = p.Addr
	d := open(t, ch, nil)
	i, err := d.Insert(testContext(t), copyID("a"), s)
	if err != nil {
		t.Fatal(err)
	}
	rows := plain(t, s, 10, 10)
	if err := i.Write(testContext(t), rows, 0, rows.Len()); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	ctx, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	start := time.Now()
	err = i.Close(ctx)
	if took := time.Since(start); err == nil || took > dialTimeout {
		t.Errorf("a stalled insert ended after %s with %v", took, err)
	}
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("a passed deadline: %v", err)
	}
	if err := i.Close(testContext(t)); !errors.Is(err, ErrInserter) {
		t.Errorf("the inserter closes as if all were well: %v", err)
	}
	// A try that stalls is given up for another, on a connection that lives.
	p.Heal()
	retried := false
	d2 := open(t, ch, func(c *Config) {
		c.Timeout = 2 * time.Second
		c.OnRetry = func() { retried = true; p.Heal() }
	})
	d2.retryWait = time.Millisecond
	i, err = d2.Insert(testContext(t), copyID("b"), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Write(testContext(t), rows, 0, rows.Len()); err != nil {
		t.Fatal(err)
	}
	p.LoseAnswers()
	if err := i.Close(testContext(t)); err != nil || !retried {
		t.Fatal(err, retried)
	}
	wantEqual(t, readAll(t, direct, copyID("b"), s), rows)
}

// A server that hangs for good ends an insert after two tries of the time limit each,
// and a read after one, without any deadline of the caller.
func TestHangingServerDoesNotHangTheCaller(t *testing.T) {
	t.Parallel()
	s := schema(t)
	ch := stack.NewClickHouse(t)
	mustMigrate(t, open(t, ch, nil), false, s)
	p := stack.NewProxy(t, ch.Addr)
	ch.Addr = p.Addr
	const limit = time.Second
	d := open(t, ch, func(c *Config) { c.Timeout = limit })
	i, err := d.Insert(testContext(t), copyID("a"), s)
	if err != nil {
		t.Fatal(err)
	}
	rows := plain(t, s, 10, 10)
	if err := i.Write(testContext(t), rows, 0, rows.Len()); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	var wg sync.WaitGroup
	for what, hang := range map[string]func() error{
		"insert": func() error { return i.Close(testContext(t)) },
		"read": func() error {
			return d.ReadCopy(testContext(t), copyID("b"), s, func(*message.Batch) error { return nil })
		},
		"drop": func() error { return d.Drop(testContext(t), copyID("b")) },
	} {
		wg.Go(func() {
			start := time.Now()
			err := hang()
			// A connection that is made for it waits for its handshake by a limit of its own.
			if took := time.Since(start); !errors.Is(err, ErrTimeout) || took < limit || took > 2*(limit+dialTimeout) {
				t.Errorf("a hanging %s ended after %s with %v", what, took, err)
			}
		})
	}
	wg.Wait()
}

// A server that is away: a bounded number of tries, an error that says what to look at.
func TestServerAway(t *testing.T) {
	t.Parallel()
	s := schema(t)
	ch := stack.NewClickHouse(t)
	p := stack.NewProxy(t, ch.Addr)
	ch.Addr = p.Addr
	d := open(t, ch, nil)
	d.retryWait = time.Millisecond
	mustMigrate(t, d, false, s)
	i, err := d.Insert(testContext(t), copyID("a"), s)
	if err != nil {
		t.Fatal(err)
	}
	rows := plain(t, s, 1, 1)
	if err := i.Write(testContext(t), rows, 0, 1); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if err := i.Close(testContext(t)); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "clickhouse.addrs") {
		t.Errorf("insert: %v", err)
	}
	if err := d.ReadCopy(testContext(t), copyID("a"), s, func(*message.Batch) error { return nil }); !errors.Is(err, ErrUnreachable) {
		t.Errorf("read: %v", err)
	}
	for what, err := range map[string]error{"drop": d.Drop(testContext(t), copyID("a")), "check": d.Check(testContext(t))} {
		if !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Open(testContext(t), d.cfg, quiet()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("open: %v", err)
	}
}

// C3: 50 cancelled inserts with a pool of 5 leave no connection behind: the next query does
// not wait for one. (Where none is left the pool says so, after dialTimeout.)
func TestCancelledInsertsGiveTheirConnectionsBack(t *testing.T) {
	t.Parallel()
	s := schema(t)
	ch := stack.NewClickHouse(t)
	p := stack.NewProxy(t, ch.Addr)
	ch.Addr = p.Addr
	d := open(t, ch, func(c *Config) { c.MaxConns = 5 })
	mustMigrate(t, d, false, s)
	rows := plain(t, s, 10, 100)
	var all sync.WaitGroup
	for n := range 50 {
		i, err := d.Insert(testContext(t), copyID(fmt.Sprintf("a%d", n)), s)
		if err != nil {
			t.Fatal(err)
		}
		if err := i.Write(testContext(t), rows, 0, rows.Len()); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			p.Latency(30 * time.Millisecond)
		}
		ctx, cancel := context.WithCancel(testContext(t))
		all.Go(func() {
			defer cancel()
			if n%10 == 9 {
				i.Abort()
				return
			}
			stop := time.AfterFunc(time.Duration(n)*3*time.Millisecond, cancel)
			defer stop.Stop()
			if err := i.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled insert: %v", err)
			}
		})
		if n%5 == 4 {
			all.Wait()
		}
	}
	all.Wait()
	p.Heal()
	start := time.Now()
	if n, err := d.count(testContext(t), "SELECT toUInt64(1)"); err != nil || n != 1 || time.Since(start) >= dialTimeout {
		t.Errorf("the next query: %d, %v after %s", n, err, time.Since(start))
	}
	if st := d.conn.Stats(); st.Open != 0 {
		t.Errorf("%d connections are still in use", st.Open)
	}
}

// Too many parts: waited for and tried again, then an error of its own.
func TestTooManyParts(t *testing.T) {
	t.Parallel()
	s := schema(t)
	d := open(t, stack.NewClickHouse(t), nil)
	u, err := unite([]*message.Schema{s})
	if err != nil {
		t.Fatal(err)
	}
	limits := ", parts_to_delay_insert = 1, parts_to_throw_insert = 2"
	if d.srv.atLeast(22, 8) {
		limits += ", number_of_free_entries_in_pool_to_execute_mutation = 1, merge_selector_base = 8"
	}
	d.retryWait = time.Millisecond
	if err := d.exec(testContext(t), d.createTable(u, tableName)+limits); err != nil {
		t.Fatal(err)
	}
	if err := d.exec(testContext(t), "SYSTEM STOP MERGES "+d.qualified(tableName)); err != nil {
		if err := d.exec(testContext(t), "SYSTEM STOP MERGES"); err != nil {
			t.Skipf("merges cannot be stopped: %v", err)
		}
		t.Cleanup(func() { _ = d.exec(testContext(t), "SYSTEM START MERGES") })
	}
	for n := range 4 {
		err = tryInsert(testContext(t), d, copyID(fmt.Sprint(n)), plain(t, s, 1, 1))
		if err != nil {
			break
		}
	}
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "try 6") || !strings.Contains(err.Error(), "merges") {
		t.Errorf("too many parts: %v", err)
	}
}

func TestErrorsAreToldApart(t *testing.T) {
	t.Parallel()
	s := schema(t)
	ch := stack.NewClickHouse(t)
	retries := 0
	d := open(t, ch, func(c *Config) { c.OnRetry = func() { retries++ } })
	if _, err := d.Insert(testContext(t), copyID("a"), s); !errors.Is(err, ErrNoTable) || !strings.Contains(err.Error(), "migrate") {
		t.Errorf("no table: %v", err)
	}
	mustMigrate(t, d, false, s)
	i, err := d.Insert(testContext(t), copyID("a"), s)
	if err != nil {
		t.Fatal(err)
	}
	rows := plain(t, s, 1, 1)
	if err := i.Write(testContext(t), rows, 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := d.exec(testContext(t), "DROP TABLE "+d.qualified(tableName)); err != nil {
		t.Fatal(err)
	}
	if err := i.Close(testContext(t)); !errors.Is(err, ErrNoTable) || retries > 0 {
		t.Errorf("the table went away: %v after %d further tries", err, retries)
	}
	if ch.Protocol == "native" {
		cfg := d.cfg
		cfg.Password = "secret-and-wrong"
		if _, err := Open(testContext(t), cfg, quiet()); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "clickhouse.password") || strings.Contains(err.Error(), cfg.Password) {
			t.Errorf("a wrong password: %v", err)
		}
	}
	if err := d.exec(testContext(t), "SELECT 1 FROM"); !errors.Is(err, ErrServer) {
		t.Errorf("a wrong statement: %v", err)
	}
	cfg := d.cfg
	if cfg.Protocol = "http"; ch.Protocol == "http" {
		cfg.Protocol = "native"
	}
	ctx, cancel := context.WithTimeout(testContext(t), 5*time.Second)
	defer cancel()
	if _, err := Open(ctx, cfg, quiet()); err == nil || (!errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrTimeout)) {
		t.Errorf("the wrong protocol: %v", err)
	}
	for code, want := range map[int32]error{60: ErrNoTable, 81: ErrNoTable, 16: ErrNoTable, 193: ErrDenied, 516: ErrDenied, 497: ErrDenied, 252: ErrBusy, 159: ErrTimeout, 279: ErrUnreachable, 242: ErrUnreachable, 53: ErrBadValue, 62: ErrServer} {
		if f := ofCode(code); !errors.Is(f.sentinel, want) {
			t.Errorf("code %d is %v, want %v", code, f.sentinel, want)
		}
	}
	if f := classify(testContext(t), fmt.Errorf("reading: %w", io.ErrUnexpectedEOF)); !f.retry {
		t.Error("a cut connection is not tried again")
	}
}
