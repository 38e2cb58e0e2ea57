package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

const insert = " (msg_id, session_id, sender_id, receiver_id, content, client_msg_id, create_time, seq) VALUES (?, ?, 1, 1, ?, 'c', ?, ?)"

// P10: messages that are alike in all but their IDs, in one millisecond and with one
// sequence, are all kept and all given back.
func TestTwinsAreKept(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 20, Seed: 50})
	lo, _ := e.Window(e.Days[0])
	at := e.Days[0].Start(time.UTC)
	for i := range uint64(5) {
		e.SQL("INSERT INTO "+e.Tables[0]+insert, lo+i, 424242, "the same", at, 7)
	}
	want := e.Truth()
	gone(e, want)
	for _, from := range []string{"s3", "clickhouse"} {
		if ids := e.Pages("424242", from, "before", 2); len(ids) != 5 {
			t.Errorf("%d of 5 twins come from %s", len(ids), from)
		}
	}
}

// M6: a time that the column rounds or cuts into another day does not move the row:
// it is archived once, on the day of its ID.
func TestRoundedTimeStaysOnTheDayOfItsID(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 40, Days: 2, Seed: 51})
	_, hi := e.Window(e.Days[0])
	e.SQL("INSERT INTO "+e.Tables[0]+insert, hi-1, 434343, "late in the day", e.Days[0].String()+" 23:59:59.9995", 1)
	want := e.Truth()
	gone(e, want)
	day := e.Days[0]
	found := 0
	for _, k := range e.Keys() {
		if strings.Contains(k, "conv=434343") {
			found++
			if !strings.Contains(k, "day="+day.String()) {
				t.Errorf("it lies in %s", k)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d objects hold it", found)
	}
}

// A6: a conversation that has long been silent, and one with old and new messages:
// each message goes by the day of its own ID.
func TestEachMessageGoesByItsOwnDay(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 60, Days: 2, Seed: 52})
	old, _ := e.Window(e.Days[0])
	young, _ := e.Window(e.Days[1].Next())
	at := func(d int) time.Time { return e.Days[0].Add(d).Start(time.UTC) }
	e.SQL("INSERT INTO "+e.Tables[0]+insert, old, 111111, "silent since", at(0), 1)
	e.SQL("INSERT INTO "+e.Tables[0]+insert, old+1, 222222, "old", at(0), 1)
	e.SQL("INSERT INTO "+e.Tables[0]+insert, young, 222222, "new", at(2), 2)
	want := e.Truth()
	e.Must("archive")
	e.Must("purge")
	if n := e.Count(); n != 1 {
		t.Errorf("%d rows are left in warm, want the young one alone", n)
	}
	e.Verdict(want)
	for conv, n := range map[string]int{"111111": 1, "222222": 1} {
		if ids := e.Pages(conv, "auto", "before", 10); len(ids) != n {
			t.Errorf("conversation %s has %d cold messages, want %d", conv, len(ids), n)
		}
	}
}

// M18: a replica that is far behind lacks rows; the primary alone decides.
func TestThePrimaryDecidesNotAReplica(t *testing.T) {
	primary := stack.StartMariaDB(t, "--log-bin=bin", "--server-id=1", "--binlog-format=ROW")
	replica := stack.StartMariaDB(t, "--server-id=2", "--read-only")
	host, port, _ := strings.Cut(primary.Addr, ":")
	db := stack.OpenMySQL(t, replica.DSN())
	for _, q := range []string{
		fmt.Sprintf("CHANGE MASTER TO master_host='%s', master_port=%s, master_user='test', master_password='test', master_use_gtid=slave_pos", host, port),
		"START SLAVE",
	} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("COLDTIER_TEST_MYSQL", primary.DSN())
	e := harness.New(t, harness.Options{Messages: 60, Seed: 53, Replica: replica.DSN() + "mysql", Config: map[string]string{"purge": "max_replica_lag: 1h"}})
	e.Must("archive")
	for { // until the replica has what was loaded
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+e.Tables[0]).Scan(&n); err == nil && n == 60 {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("the replica never caught up")
		}
		time.Sleep(20 * time.Millisecond) // replication tells nobody of its progress
	}
	if _, err := db.ExecContext(t.Context(), "STOP SLAVE"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CHANGE MASTER TO master_delay=30"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "START SLAVE"); err != nil {
		t.Fatal(err)
	}
	lo, _ := e.Window(e.Days[0])
	for i := range uint64(20) {
		e.SQL("INSERT INTO "+e.Tables[0]+insert, lo+i, 1, "not on the replica", e.Days[0].Start(time.UTC), i)
	}
	want := e.Truth()
	e.Expect(4, []string{"drift"}, "purge")
	if s := slice(e); s.State != manifest.Pending {
		t.Errorf("the slice is %s", s.State)
	}
	gone(e, want)
}
