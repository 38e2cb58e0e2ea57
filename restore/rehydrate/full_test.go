package rehydrate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/restore/rehydrate"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/copies"
	"github.com/coldtier/coldtier/tests/stack"
)

// room is what the server's one tablespace may hold.
const room = 48 << 20

// free is how many bytes of it are free.
func (b *bench) free() int64 {
	b.t.Helper()
	var free, size int64
	if err := b.db.QueryRowContext(b.t.Context(), "SELECT (SELECT MAX(DATA_FREE) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()), "+
		"(SELECT FILE_SIZE FROM information_schema.INNODB_SYS_TABLESPACES WHERE SPACE = 0)").Scan(&free, &size); err != nil {
		b.t.Fatal(err)
	}
	return free + room - size
}

// ballast fills it by a table of that name, until no more than so many bytes are free.
func (b *bench) ballast(leave int64) {
	b.t.Helper()
	b.exec("CREATE TABLE ballast (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB) ENGINE=InnoDB")
	for n := 0; b.free() > leave; n++ {
		if n > 100 {
			b.t.Fatal("the server's room has no end")
		}
		b.exec("INSERT INTO ballast (v) VALUES (REPEAT('x', 1000000))")
	}
}

// clear makes room. The server gives a dropped table's free when its purge comes to it.
func (b *bench) clear() {
	b.t.Helper()
	b.exec("DROP TABLE ballast")
	for end := time.Now().Add(time.Minute); b.free() < 20<<20; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("only %d bytes are free", b.free())
		}
	}
}

// A server that has no room left, for real, ends a restore with an error that says so;
// what was written before is right, no slice is said to be restored that is not, and the
// same command finishes when there is room.
func TestAFullServerEndsARestoreThatGoesOnLater(t *testing.T) {
	t.Parallel()
	b := newBench(t, 20_000)
	want := b.want(all)
	for _, inserts := range []bool{false, true} {
		// One of its own for each: what a dropped table leaves is free only some time later.
		server := stack.StartMariaDB(t, "--innodb-file-per-table=0", fmt.Sprintf("--innodb-data-file-path=ibdata1:12M:autoextend:max:%dM", room>>20), "--innodb-log-file-size=8M")
		root := stack.OpenMySQL(t, server.DSN())
		if _, err := root.ExecContext(t.Context(), "CREATE DATABASE full"); err != nil {
			t.Fatal(err)
		}
		b.dsn = server.DSN() + "full"
		b.db = stack.OpenMySQL(t, b.dsn)
		b.into = copies.Target(t, warm.TargetConfig{DSN: b.dsn, Inserts: inserts})
		b.cfg.Memory = 600 << 10 // several writes of a slice
		b.ballast(6 << 20)
		rep, err := b.restore(selection.Selection{})
		full(t, "when little is free", err)
		if rep == nil {
			t.Fatalf("inserts %v: the table could not be made", inserts)
		}
		have := b.table("msg")
		if len(have) == 0 || len(have) >= len(want) {
			t.Errorf("inserts %v: %d of %d rows found room: the test is to end between", inserts, len(have), len(want))
		}
		for id, r := range have {
			if want[id] != r {
				t.Fatalf("inserts %v: message %d reads %.200s", inserts, id, r)
			}
		}
		if rep.Inserted > uint64(len(have)) || rep.Count(rehydrate.Failed) == 0 {
			t.Errorf("inserts %v: of %d rows that are there it claims %d: %+v", inserts, len(have), rep.Inserted, rep.Slices)
		}
		for _, s := range rep.Slices {
			in := uint64(0)
			for id := range have {
				if lo, hi := b.window(s.Day.Compare(b.days[0])); lo <= id && id < hi {
					in++
				}
			}
			if (s.Outcome == rehydrate.Restored || s.Outcome == rehydrate.There) && in != s.Rows {
				t.Errorf("inserts %v: slice %s is said to be %s with %d of its %d rows", inserts, s.SliceKey, s.Outcome, in, s.Rows)
			}
		}
		b.clear()
		if rep = b.must(selection.Selection{}); rep.Present < uint64(len(have)) {
			t.Errorf("inserts %v: %d rows were there, of which %d are seen", inserts, len(have), rep.Present)
		}
		b.same("when there was room", b.table("msg"), want)
	}
	// Where there is no room for a table the definition is not at fault.
	b.ballast(2 << 20)
	for n := 0; ; n++ {
		_, err := b.into.Create(t.Context(), fmt.Sprintf("one_more_%d", n), ddl)
		if err != nil {
			if !errors.Is(err, warm.ErrFull) || errors.Is(err, warm.ErrUnfit) {
				t.Fatal(err)
			}
			break
		}
		if n > 200 {
			t.Fatal("there is always room for a table")
		}
	}
}

func full(t *testing.T, when string, err error) {
	t.Helper()
	if !errors.Is(err, warm.ErrFull) || errors.Is(err, rehydrate.ErrPartly) || !strings.Contains(err.Error(), "no room left") || !strings.Contains(err.Error(), "run the same") {
		t.Fatalf("%s: %v", when, err)
	}
}
