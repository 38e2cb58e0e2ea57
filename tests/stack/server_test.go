package stack

import (
	"context"
	"database/sql"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/go-sql-driver/mysql"
)

// A killed server comes back with what it had committed, at the same address; a
// frozen one answers nothing until it goes on.
func TestServerSurvivesKill(t *testing.T) {
	t.Parallel()
	s := StartMariaDB(t)
	db := OpenMySQL(t, s.DSN()+"?timeout=5s&readTimeout=3s")
	for _, q := range []string{"CREATE DATABASE d", "CREATE TABLE d.t (i INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)"} {
		if _, err := db.ExecContext(deadline(t), q); err != nil {
			t.Fatal(err)
		}
	}
	addr := s.Addr
	s.Kill()
	if err := db.PingContext(deadline(t)); err == nil {
		t.Error("a killed server answers")
	}
	s.Restart()
	if s.Addr != addr {
		t.Errorf("address %s became %s", addr, s.Addr)
	}
	if n := count(t, db); n != 1 {
		t.Errorf("%d rows after the restart, want 1", n)
	}
	s.Pause()
	var n int
	if err := db.QueryRowContext(deadline(t), "SELECT 1").Scan(&n); err == nil {
		t.Error("a frozen server answers")
	}
	s.Continue()
	if n := count(t, db); n != 1 {
		t.Errorf("%d rows after going on, want 1", n)
	}
	s.Stop()
	if err := db.PingContext(deadline(t)); err == nil {
		t.Error("a stopped server answers")
	}
}

func count(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(deadline(t), "SELECT count(*) FROM d.t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOwnObjectStoreAndClickHouse(t *testing.T) {
	t.Parallel()
	s, bucket := StartVersityGW(t)
	s.Kill()
	s.Restart()
	if _, err := bucket.Client().HeadBucket(deadline(t), &s3.HeadBucketInput{Bucket: &bucket.Bucket}); err != nil {
		t.Errorf("bucket after the restart: %v", err)
	}
	c, where := StartClickHouse(t)
	c.Kill()
	c.Restart()
	var n uint64
	if err := where.Open(t).QueryRow(deadline(t), "SELECT count() FROM system.databases WHERE name = '"+where.Database+"'").Scan(&n); err != nil || n != 1 {
		t.Errorf("database after the restart: %d, %v", n, err)
	}
}

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

func TestProxyBreaksAndHeals(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, echo(t))
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	read := func(c net.Conn, wait time.Duration) error {
		_ = c.SetReadDeadline(time.Now().Add(wait))
		_, err := io.ReadFull(c, make([]byte, 5))
		return err
	}
	ask := func(c net.Conn, wait time.Duration) error {
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		return read(c, wait)
	}
	c := dial()
	if err := ask(c, 5*time.Second); err != nil {
		t.Fatalf("healthy: %v", err)
	}
	p.Stall()
	if err := ask(c, 100*time.Millisecond); err == nil {
		t.Error("an answer through a stalled connection")
	}
	p.Heal()
	if err := read(c, 5*time.Second); err != nil {
		t.Errorf("what was held back did not arrive: %v", err)
	}
	p.Latency(60 * time.Millisecond)
	from := time.Now()
	if err := ask(c, 5*time.Second); err != nil || time.Since(from) < 120*time.Millisecond {
		t.Errorf("answer after %v, %v; want 120 ms", time.Since(from), err)
	}
	p.Heal()
	p.LoseAnswers()
	if err := ask(c, 100*time.Millisecond); err == nil {
		t.Error("an answer that should be lost")
	}
	p.Heal()
	c = dial()
	if err := ask(c, 5*time.Second); err != nil {
		t.Errorf("healed: %v", err)
	}
	p.Cut()
	if err := ask(c, 5*time.Second); err == nil {
		t.Error("an answer through a cut connection")
	}
	if n, err := net.Dial("tcp", p.Addr); err == nil {
		_ = n.Close()
		t.Error("a cut proxy takes connections")
	}
	p.Heal()
	c = dial()
	p.Reset()
	if err := ask(c, 5*time.Second); err == nil {
		t.Error("an answer through a reset connection")
	}
	if err := ask(dial(), 5*time.Second); err != nil {
		t.Errorf("after a reset: %v", err)
	}
	// Faults may come and go from other goroutines, such as timers.
	var wg sync.WaitGroup
	for _, f := range []func(){p.Reset, p.Heal, p.Cut, p.Heal} {
		wg.Go(f)
	}
	wg.Wait()
	p.Heal()
	if err := ask(dial(), 5*time.Second); err != nil {
		t.Errorf("after many faults: %v", err)
	}
}

// The proxy in front of a real server, as tests of the product use it.
func TestProxyBeforeMySQL(t *testing.T) {
	t.Parallel()
	cfg, err := mysql.ParseDSN(MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	p := NewProxy(t, cfg.Addr)
	cfg.Addr = p.Addr
	db := OpenMySQL(t, cfg.FormatDSN())
	if err := db.PingContext(deadline(t)); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := db.PingContext(ctx); err == nil {
		t.Error("a ping through a stalled connection")
	}
	p.Heal()
	if err := db.PingContext(deadline(t)); err != nil {
		t.Errorf("healed: %v", err)
	}
}
