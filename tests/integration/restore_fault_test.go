package integration

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
	"github.com/coldtier/coldtier/tests/truth"
)

// part fails the test when a row of got is not as it should be; some may be missing.
func part(t *testing.T, what string, got, want truth.Rows) {
	t.Helper()
	for k, sum := range got {
		if want[k] != sum {
			t.Fatalf("%s: message %v is another, or was never archived", what, k)
		}
	}
}

// empty makes the tables of a restore, without rows.
func empty(e *harness.Env, into string) {
	e.T.Helper()
	db := stack.OpenMySQL(e.T, into)
	for _, t := range e.Tables {
		_, name, _ := strings.Cut(t, ".")
		if _, err := db.ExecContext(e.T.Context(), "CREATE TABLE IF NOT EXISTS "+name+" LIKE "+t); err != nil {
			e.T.Fatal(err)
		}
	}
}

// A restore is killed again and again, at its steps and at random moments: what is in
// the tables is right each time, and in the end all of it is there.
func TestKilledRestoresFinish(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Tables: 2, Days: 3, Messages: 3000, Seed: 72})
	want := e.Truth()
	e.Must("archive")
	into := stack.MySQL(t)
	empty(e, into)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 6))
	steps := []string{"restore.batch:1", "restore.batch:2", "restore.batch:4", "restore.written:1", "restore.written:3", "restore.batch:1"}
	rng.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	killed := 0
	for i, step := range steps {
		args := []string{"restore", "--into", into, "--create"}
		if i%2 == 1 {
			args = append(args, "--inserts")
		}
		var p *harness.Process
		if i < 4 {
			p = e.Start([]string{"COLDTIER_CRASH_AT=" + step}, args...)
		} else {
			p = e.Start(nil, args...)
			time.AfterFunc(time.Duration(rng.IntN(400))*time.Millisecond, func() { p.Signal(syscall.SIGKILL) })
		}
		if r := p.Wait(); r.Exit == -1 {
			killed++
		} else if r.Exit != 0 {
			t.Fatal(r)
		}
		part(t, step, restored(e, into), want)
	}
	if killed == 0 {
		t.Error("nothing was killed")
	}
	e.Must("restore", "--into", into)
	equal(t, "after the kills", restored(e, into), want)
}

// through is a DSN by another way to the same server.
func through(t *testing.T, dsn, addr string) string {
	t.Helper()
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	c.Addr = addr
	return c.FormatDSN()
}

func addr(t *testing.T, dsn string) string {
	t.Helper()
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return c.Addr
}

// Lines that are cut, and an answer that is lost, are got over in the same run.
func TestRestoreGetsOverCutLines(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Tables: 2, Days: 2, Messages: 2000, Seed: 73})
	want := e.Truth()
	e.Must("archive")
	into := stack.MySQL(t)
	proxy := stack.NewProxy(t, addr(t, into))
	empty(e, into)
	for n, fault := range []func(){proxy.Reset, func() {
		proxy.Cut()
		time.AfterFunc(300*time.Millisecond, proxy.Heal)
	}, func() {
		proxy.LoseAnswers()
		time.AfterFunc(300*time.Millisecond, proxy.Heal)
	}} {
		p := e.Start([]string{fmt.Sprintf("COLDTIER_STOP_AT=restore.batch:%d", n+1)}, "restore", "--into", through(t, into, proxy.Addr))
		if !p.Stopped() {
			t.Fatal(p.Wait())
		}
		fault()
		p.Signal(syscall.SIGCONT)
		if r := p.Wait(); r.Exit != 0 {
			t.Fatal(r)
		}
		equal(t, fmt.Sprintf("after fault %d", n), restored(e, into), want)
		db := stack.OpenMySQL(t, into)
		for _, table := range restoredTables(t, into) {
			if _, err := db.ExecContext(t.Context(), "TRUNCATE TABLE "+table); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// only runs a test on the first set of servers: it needs a MariaDB of its own, and the
// other set would show the same.
func only(t *testing.T) {
	t.Helper()
	dsn := os.Getenv("COLDTIER_TEST_MYSQL")
	if dsn == "" {
		t.Skip("COLDTIER_TEST_MYSQL is not set: no server to test on")
	}
	var v string
	if err := stack.OpenMySQL(t, dsn).QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&v); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(v, "MariaDB") {
		t.Skip("tried on the first set of servers alone")
	}
}

func database(t *testing.T, s *stack.Server) (dsn string, db *sql.DB) {
	t.Helper()
	db = stack.OpenMySQL(t, s.DSN())
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE rescue DEFAULT CHARACTER SET utf8mb4"); err != nil {
		t.Fatal(err)
	}
	return s.DSN() + "rescue", db
}

// A server that is killed and comes back is written to the end in the same run; one that
// has no room left is a clear error, and the same command finishes when it has.
func TestRestoreIntoAServerInTrouble(t *testing.T) {
	t.Parallel()
	only(t)
	e := harness.New(t, harness.Options{Tables: 2, Days: 2, Messages: 4000, Seed: 74})
	want := e.Truth()
	e.Must("archive")
	full := stack.StartMariaDB(t, "--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M", "--innodb-log-file-size=4M")
	into, _ := database(t, full)
	r := e.Run("restore", "--into", into, "--create")
	if r.Exit != 1 || !strings.Contains(r.Stderr, "no room left") || !strings.Contains(r.Stderr, "run the same") {
		t.Fatal(r)
	}
	for _, table := range e.Tables { // it may have come to only one of them
		name := strings.Replace(table, e.Database, "rescue", 1)
		if rows, err := truth.Warm(t.Context(), stack.OpenMySQL(t, into+"?time_zone=%27%2B00%3A00%27"), name); err == nil {
			for k, sum := range rows {
				if want[truth.Key{Shard: table, ID: k.ID}] != sum {
					t.Fatalf("message %d is another", k.ID)
				}
			}
		}
	}
	server := stack.StartMariaDB(t)
	into, _ = database(t, server)
	p := e.Start([]string{"COLDTIER_STOP_AT=restore.batch:2"}, "restore", "--into", into, "--create")
	if !p.Stopped() {
		t.Fatal(p.Wait())
	}
	server.Kill()
	for { // its last threads may have the port for a moment longer
		c, err := net.Dial("tcp", server.Addr)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	p.Signal(syscall.SIGCONT)
	server.Restart()
	if r := p.Wait(); r.Exit != 0 {
		t.Fatal(r)
	}
	equal(t, "after the server was killed", restored(e, into), want)
}
