// Package throttle holds the built program back, as a database's administrator would, and
// sees that it pauses, says so, and leaves everything as it must be.
package throttle

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

func TestMain(m *testing.M) { harness.Main(m) }

// until waits for something that nobody tells.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// paused waits until the manifest shows a pause of a job, and gives it.
func paused(e *harness.Env, job, cause string, why ...string) (p manifest.Pause) {
	t := e.T.(*testing.T)
	t.Helper()
	until(t, job+" pauses by "+cause, func() bool {
		all, err := e.Store().Pauses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(p manifest.Pause) bool { return p.Job == job && p.Cause == cause && !p.Dead })
		if i >= 0 {
			p = all[i]
		}
		return i >= 0
	})
	for _, w := range why {
		if !strings.Contains(p.Why, w) {
			t.Errorf("the pause %q lacks %q", p.Why, w)
		}
	}
	return p
}

// clean checks that no run holds or shows anything.
func clean(e *harness.Env) {
	t := e.T
	t.Helper()
	for _, s := range e.Slices() {
		if s.LeaseUntil != nil && s.LeaseUntil.After(time.Now()) || s.State == manifest.Copying || s.State == manifest.Purging {
			t.Errorf("slice %s is %s, leased until %v", s.SliceKey, s.State, s.LeaseUntil)
		}
	}
	if all, err := e.Store().Pauses(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("pauses are left: %+v, %v", all, err)
	}
}

func exec(t *testing.T, db *sql.DB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// day selects one of the days.
func day(e *harness.Env, i int) []string { return []string{"--day", e.Days[i].String()} }

// On servers of their own: each cause pauses a run, is shown, and lets it go on by itself.
func TestPausesOnAServerOfOnesOwn(t *testing.T) {
	harness.Once(t)
	primary := stack.StartMariaDB(t, "--log-bin=bin", "--server-id=1", "--binlog-format=ROW")
	replica := stack.StartMariaDB(t, "--server-id=2", "--read-only")
	host, port, _ := strings.Cut(primary.Addr, ":")
	db := stack.OpenMySQL(t, replica.DSN())
	exec(t, db, fmt.Sprintf("CHANGE MASTER TO master_host='%s', master_port=%s, master_user='test', master_password='test', master_use_gtid=slave_pos", host, port), "START SLAVE")
	t.Setenv("COLDTIER_TEST_MYSQL", primary.DSN())
	e := harness.New(t, harness.Options{Days: 5, Seed: 61, Strategy: "rows", Replica: replica.DSN() + "mysql"})
	want := e.Truth()
	configure := func(archive, purge string) {
		e.Change(func(o *harness.Options) { o.Config = map[string]string{"archive": archive, "purge": purge} })
	}
	// run runs a job that has to pause, ends the cause, and waits for its end.
	run := func(cause string, why []string, end func(), args ...string) {
		t.Helper()
		p := e.Start(nil, args...)
		x := paused(e, args[0], cause, why...)
		if x.Server != primary.Addr || time.Since(x.Since).Abs() > time.Minute {
			t.Errorf("%+v", x)
		}
		text := e.Must("status")
		if !strings.Contains(text.Stdout, x.Why) {
			t.Errorf("status does not show %q: %s", x.Why, text)
		}
		select {
		case <-p.Done():
			t.Fatalf("it did not wait: %s", p.Wait())
		default:
		}
		end()
		r := p.Wait()
		if r.Exit != 0 || strings.Count(r.Stderr, "msg=paused") != 1 || strings.Count(r.Stderr, "pause is over") != 1 || !strings.Contains(r.Stdout, "held back") {
			t.Errorf("%s", r)
		}
		clean(e)
	}

	exec(t, db, "STOP SLAVE SQL_THREAD")
	run("lag", []string{replica.Addr, "does not replicate"}, func() { exec(t, db, "START SLAVE SQL_THREAD") }, "archive")

	// The manifest, on the same server, is written to by the pause itself, so that the lag grows.
	configure("", "max_replica_lag: 4s")
	lock, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK"); err != nil {
		t.Fatal(err)
	}
	e.SQL("CREATE TABLE elsewhere (id INT)")
	until(t, "the replica is behind", func() bool { return behind(t, db) > 5 })
	run("lag", []string{replica.Addr, "> purge.max_replica_lag 4s"}, func() {
		if _, err := lock.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
			t.Fatal(err)
		}
	}, append([]string{"purge"}, day(e, 0)...)...)

	// A replica that is lost pauses, too, until max_pause; then it comes back.
	configure("", "max_pause: 2s")
	replica.Kill()
	e.Expect(3, []string{"replica " + replica.Addr, "max_pause 2s"}, append([]string{"purge"}, day(e, 1)...)...)
	clean(e)
	configure("", "")
	run("lag", []string{replica.Addr}, replica.Restart, append([]string{"purge"}, day(e, 1)...)...)

	configure("", "max_threads_running: 6")
	ctx, cancel := context.WithCancel(t.Context())
	for range 8 {
		go func() { _, _ = e.Warm.ExecContext(ctx, "SELECT SLEEP(100)") }()
	}
	var name string
	n := 0
	until(t, "eight threads sleep", func() bool {
		if err := e.Warm.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Threads_running'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n > 7
	})
	run("threads", []string{"max_threads_running 6"}, func() {
		cancel()
		exec(t, e.Warm, "BEGIN NOT ATOMIC DECLARE i BIGINT; DECLARE done BOOL DEFAULT FALSE; DECLARE c CURSOR FOR SELECT id FROM information_schema.processlist WHERE info = 'SELECT SLEEP(100)'; DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE; OPEN c; l: LOOP FETCH c INTO i; IF done THEN LEAVE l; END IF; KILL i; END LOOP; END")
	}, append([]string{"purge"}, day(e, 2)...)...)

	configure("", "max_history_length: 600")
	exec(t, e.Warm, "CREATE TABLE hot (n INT)", "INSERT INTO hot VALUES (0)")
	tx, err := e.Warm.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // after the end below it does nothing
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM hot").Scan(&n); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		e.SQL("UPDATE hot SET n = n + 1")
	}
	run("history", []string{"max_history_length 600"}, func() { _ = tx.Rollback() }, append([]string{"purge"}, day(e, 3)...)...)

	if n := len(want) - e.Count(); n == 0 {
		t.Error("nothing was purged")
	}
	e.Must("purge")
	if n := e.Count(); n != 0 {
		t.Errorf("%d rows are left in warm", n)
	}
	e.Verdict(want)
}

// The user's own statement; a run that is killed while it pauses; hours.
func TestPausesByTheUser(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Days: 2, Seed: 62, Strategy: "rows"})
	exec(t, e.Warm, "CREATE TABLE maintenance (active INT)", "INSERT INTO maintenance VALUES (1)")
	set := func(v string) { exec(t, e.Warm, "UPDATE maintenance SET active = "+v) }
	query := "pause_query: SELECT active FROM maintenance"
	e.Change(func(o *harness.Options) { o.Config = map[string]string{"archive": query, "purge": query} })
	want := e.Truth()

	p := e.Start(nil, "archive")
	paused(e, "archive", "query", "archive.pause_query", `"1"`)
	set("NULL")
	if r := p.Wait(); r.Exit != 0 {
		t.Fatal(r)
	}
	clean(e)
	set("1")
	p = e.Start(nil, "purge")
	x := paused(e, "purge", "query")
	p.Signal(syscall.SIGKILL)
	p.Wait()
	until(t, "the pause of the killed run is known to be one", func() bool { // by time, which is moved here
		all, err := e.Store().Pauses(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		m := stack.OpenMySQL(t, e.Manifest)
		exec(t, m, "UPDATE pauses SET seen_at = seen_at - INTERVAL 10 SECOND", "UPDATE slices SET lease_until = NULL WHERE lease_until IS NOT NULL")
		return all[0].Dead && all[0].Owner == x.Owner
	})
	exec(t, e.Warm, "DROP TABLE maintenance") // an error pauses, and says so
	p = e.Start(nil, "purge")
	paused(e, "purge", "query", "doesn't exist")
	exec(t, e.Warm, "CREATE TABLE maintenance (active INT)") // no row is go
	if r := p.Wait(); r.Exit != 0 {
		t.Fatal(r)
	}
	if n := e.Count(); n != 0 {
		t.Errorf("%d rows are left in warm", n)
	}
	e.Verdict(want)

	// Hours that begin later than a pause may last: the run ends at once.
	later := time.Now().UTC().Add(2 * time.Hour)
	hours := "hours: " + later.Format("15:04") + "-" + later.Add(time.Hour).Format("15:04")
	e.Change(func(o *harness.Options) { o.Config = map[string]string{"archive": hours} })
	e.SQL("INSERT INTO "+e.Tables[0]+" (msg_id, session_id, sender_id, receiver_id, content, client_msg_id, create_time, seq) VALUES (?, 1, 1, 1, 'late', 'c', ?, 1)", first(e), e.Days[0].Start(time.UTC))
	begun := time.Now()
	if r := e.Expect(3, []string{"outside the allowed hours", later.Format("15:04"), "the run ends in a pause"}, "archive"); strings.Contains(r.Stderr, "pause is over") {
		t.Errorf("the hours have not begun: %s", r)
	}
	if d := time.Since(begun); d > time.Minute { // a pause may last half an hour
		t.Errorf("it took %s to see that the hours are over", d)
	}
	clean(e)
}

func first(e *harness.Env) uint64 {
	lo, _ := e.Window(e.Days[0])
	return lo
}

// behind is a replica's own word for how many seconds it is behind; -1: it does not know.
func behind(t *testing.T, db *sql.DB) int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW SLAVE STATUS")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	values := make([]any, len(columns))
	for i := range values {
		values[i] = new(sql.RawBytes)
	}
	n := -1
	for rows.Next() {
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		if v, err := strconv.Atoi(string(*values[slices.Index(columns, "Seconds_Behind_Master")].(*sql.RawBytes))); err == nil {
			n = v
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// envelope decodes the error of a command run with --output json.
func envelope(t *testing.T, r harness.Result, into any) {
	t.Helper()
	doc := struct{ Error any }{into}
	if err := json.Unmarshal([]byte(r.Stdout), &doc); err != nil {
		t.Fatalf("output is no JSON: %v\n%s", err, r)
	}
}

// addr is the host:port of a DSN.
func addr(t *testing.T, dsn string) string {
	t.Helper()
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return c.Addr
}
