package integration

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/truth"
)

// both runs a test for both purge strategies.
func both(t *testing.T, fn func(t *testing.T, strategy string)) {
	t.Helper()
	for _, s := range []string{"rows", "partition"} {
		t.Run(s, func(t *testing.T) {
			t.Parallel()
			fn(t, s)
		})
	}
}

func setup(t *testing.T, strategy string, seed uint64) *harness.Env {
	t.Helper()
	return harness.New(t, harness.Options{Partitioned: strategy == "partition", Strategy: strategy, Seed: seed, Messages: 300})
}

// last is the highest message ID of the first table, first the lowest.
func last(e *harness.Env) (id uint64) {
	e.T.Helper()
	if err := e.Warm.QueryRowContext(e.T.Context(), "SELECT MAX(msg_id) FROM "+e.Tables[0]).Scan(&id); err != nil {
		e.T.Fatal(err)
	}
	return id
}

func slice(e *harness.Env) manifest.Slice {
	e.T.Helper()
	list, err := e.Store().Slices(e.T.Context(), manifest.Filter{From: &e.Days[0], To: &e.Days[0]})
	if err != nil || len(list) == 0 {
		e.T.Fatalf("%d slices: %v", len(list), err)
	}
	return list[0]
}

// gone archives and purges until warm is empty, and demands every message in the
// cold tier, equal.
func gone(e *harness.Env, want truth.Rows) {
	e.T.Helper()
	e.Must("archive")
	e.Verdict(want)
	e.Must("purge")
	if n := e.Count(); n != 0 {
		e.T.Errorf("%d rows are left in warm", n)
	}
	if r := e.Verdict(want); r.InCold != len(want) {
		e.T.Error(r)
	}
}

// Drift in the last chunk, met when the purge by rows has deleted the others: the
// next generation holds the deleted chunks' rows too.
func TestDriftInTheLastChunkKeepsTheDeletedOnes(t *testing.T) {
	t.Parallel()
	e := setup(t, "rows", 21)
	e.Must("archive")
	e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited', status = 3 WHERE msg_id = ?", last(e))
	want := e.Truth()
	e.Expect(4, []string{"drift"}, "purge")
	n := e.Count()
	if n == 0 || n == len(want) {
		t.Fatalf("%d of %d rows are left: the test wants some chunks deleted and one not", n, len(want))
	}
	if s := slice(e); s.State != manifest.Pending || s.Reason != manifest.ReasonDrifted || s.Live != 1 {
		t.Errorf("the slice is %+v", s)
	}
	e.Verdict(want) // what was deleted is still served by the former generation
	e.Must("archive")
	if s := slice(e); s.Live != 2 || s.Rows != uint64(len(want)) {
		t.Errorf("the next generation is %+v, want %d rows", s, len(want))
	}
	// And once more: generation 3 has rows carried twice.
	e.SQL("UPDATE "+e.Tables[0]+" SET status = 4 WHERE msg_id = ?", last(e))
	want[truth.Key{Shard: e.Tables[0], ID: last(e)}] = e.Truth()[truth.Key{Shard: e.Tables[0], ID: last(e)}]
	e.Expect(4, []string{"drift"}, "purge")
	gone(e, want)
}

// Every way in which warm may change between copy and purge stops the purge, and
// the change is cold before anything goes (A4, M10).
func TestChangesBetweenCopyAndPurge(t *testing.T) {
	changes := map[string]func(e *harness.Env){
		"edit": func(e *harness.Env) { e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id = ?", last(e)) },
		"recall": func(e *harness.Env) {
			e.SQL("UPDATE "+e.Tables[0]+" SET status = 9, content = '' WHERE msg_id = ?", last(e))
		},
		"late row": func(e *harness.Env) {
			e.SQL("INSERT INTO "+e.Tables[0]+" (msg_id, session_id, sender_id, receiver_id, content, client_msg_id, create_time, seq) "+
				"SELECT msg_id + 1, session_id, sender_id, receiver_id, 'late', 'x', create_time, seq + 1000000 FROM "+e.Tables[0]+" WHERE msg_id = ?", last(e)-0)
		},
		"deleted": func(e *harness.Env) { e.SQL("DELETE FROM "+e.Tables[0]+" WHERE msg_id = ?", last(e)) },
		"deleted and inserted again, changed": func(e *harness.Env) {
			id := last(e)
			e.SQL("CREATE TABLE copy1 AS SELECT * FROM "+e.Tables[0]+" WHERE msg_id = ?", id)
			e.SQL("DELETE FROM "+e.Tables[0]+" WHERE msg_id = ?", id)
			e.SQL("UPDATE copy1 SET content = 'again'")
			e.SQL("INSERT INTO " + e.Tables[0] + " SELECT * FROM copy1")
			e.SQL("DROP TABLE copy1")
		},
		"column added": func(e *harness.Env) {
			e.SQL("ALTER TABLE " + e.Tables[0] + " ADD COLUMN reply_to BIGINT NULL DEFAULT 7")
		},
	}
	for name, change := range changes {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, strategy string) {
				e := setup(t, strategy, 22)
				e.Must("archive")
				change(e)
				if name == "column added" && strategy == "partition" {
					// MySQL cannot exchange a partition after an instant ADD COLUMN (error 1731): auto goes by rows then.
					e.Change(func(o *harness.Options) { o.Strategy = "auto" })
				}
				want := e.Truth()
				e.Expect(4, []string{"drift"}, "purge")
				if strategy == "partition" && e.Count() != len(want) {
					t.Errorf("%d of %d rows are left", e.Count(), len(want))
				}
				if s := slice(e); s.State != manifest.Pending || s.Reason != manifest.ReasonDrifted {
					t.Errorf("the slice is %s (%s)", s.State, s.Reason)
				}
				e.Must("purge") // nothing to do now
				gone(e, want)
			})
		})
	}
}

// The same row deleted and inserted again unchanged is no change.
func TestReinsertedUnchangedIsNoDrift(t *testing.T) {
	t.Parallel()
	e := setup(t, "rows", 23)
	want := e.Truth()
	e.Must("archive")
	e.SQL("CREATE TABLE copy1 AS SELECT * FROM "+e.Tables[0]+" WHERE msg_id = ?", last(e))
	e.SQL("DELETE FROM "+e.Tables[0]+" WHERE msg_id = ?", last(e))
	e.SQL("INSERT INTO " + e.Tables[0] + " SELECT * FROM copy1")
	e.SQL("DROP TABLE copy1")
	gone(e, want)
}

// A transaction that holds a row of the slice stays open through the copy and
// commits before the purge: the row survives.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, strategy string) {
		e := setup(t, strategy, 24)
		tx, err := e.Warm.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }() // after Commit it does nothing
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO "+e.Tables[0]+" (msg_id, session_id, sender_id, receiver_id, content, client_msg_id, create_time, seq) "+
			"SELECT msg_id + 1, session_id, sender_id, receiver_id, 'late commit', 'x', create_time, seq + 1000000 FROM "+e.Tables[0]+" ORDER BY msg_id LIMIT 1"); err != nil {
			t.Fatal(err)
		}
		e.Must("archive")
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		want := e.Truth()
		e.Expect(4, []string{"drift"}, "purge")
		gone(e, want)
	})
}

// Rows that turn up in a slice after its purge are archived as a further
// generation that keeps what was there.
func TestRowsAfterThePurge(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, strategy string) {
		e := setup(t, strategy, 25)
		want := e.Truth()
		e.SQL("CREATE TABLE one AS SELECT * FROM "+e.Tables[0]+" WHERE msg_id = ?", last(e))
		e.Must("archive")
		e.Must("purge")
		e.SQL("INSERT INTO " + e.Tables[0] + " SELECT msg_id + 2, session_id, sender_id, receiver_type, receiver_id, msg_type, 'after the purge', client_msg_id, status, create_time, seq + 9 FROM one")
		e.SQL("DROP TABLE one")
		for k, v := range e.Truth() {
			want[k] = v
		}
		e.Expect(0, []string{"late"}, "archive", "--dry-run")
		gone(e, want)
		if s := slice(e); s.Live != 2 || s.State != manifest.Purged {
			t.Errorf("the slice is %s, generation %d", s.State, s.Live)
		}
	})
}

// A5: restoring a day, twice, and archiving it again: the same messages, once.
func TestRestoredDayIsArchivedOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, strategy string) {
		e := setup(t, strategy, 26)
		want := e.Truth()
		e.SQL("CREATE TABLE saved AS SELECT * FROM " + e.Tables[0])
		e.Must("archive")
		e.Must("purge")
		for range 2 {
			e.SQL("INSERT IGNORE INTO " + e.Tables[0] + " SELECT * FROM saved")
		}
		gone(e, want)
		if s := slice(e); s.Rows != uint64(len(want)) {
			t.Errorf("the slice has %d rows, want %d", s.Rows, len(want))
		}
	})
}

// A column added NOT NULL while the purge by rows was half done: the deleted rows
// are carried all the same, with NULL in it.
func TestColumnAddedInTheMiddleOfThePurge(t *testing.T) {
	t.Parallel()
	e := setup(t, "rows", 27)
	e.Must("archive")
	e.SQL("UPDATE "+e.Tables[0]+" SET status = 5 WHERE msg_id = ?", last(e))
	want := e.Truth()
	e.Expect(4, []string{"drift"}, "purge")
	e.SQL("ALTER TABLE " + e.Tables[0] + " ADD COLUMN lang VARCHAR(8) NOT NULL DEFAULT 'en'")
	gone(e, want)
}

// A whole chunk that vanished, as after a manifest that was set back: kept.
func TestVanishedChunkIsKept(t *testing.T) {
	t.Parallel()
	e := setup(t, "rows", 28)
	want := e.Truth()
	e.Must("archive")
	e.SQL("DELETE FROM " + e.Tables[0])
	e.Expect(4, []string{"drift"}, "purge")
	e.Must("archive")
	if r := e.Verdict(want); r.InCold != len(want) {
		t.Error(r)
	}
}

// A truncated object of a verified slice: verify refuses and names it, nothing is
// purged, and the next archive makes a good copy (A2, S12).
func TestDamagedObjectStopsThePurge(t *testing.T) {
	t.Parallel()
	e := setup(t, "rows", 29)
	want := e.Truth()
	e.Must("archive")
	key := e.DamageObject(func(b []byte) []byte { return b[:len(b)-1] })
	e.Expect(4, []string{key[strings.LastIndex(key, "/")+1:]}, "verify")
	e.Must("purge")
	if e.Count() != len(want) {
		t.Fatal("rows of a damaged copy were purged")
	}
	gone(e, want)
}

// A day without rows is committed as empty and told from one that was not looked at.
func TestEmptyDay(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Days: 3, Messages: 300, Seed: 30})
	day := e.Days[1]
	lo, hi := e.Window(day)
	e.SQL("DELETE FROM "+e.Tables[0]+" WHERE msg_id >= ? AND msg_id < ?", lo, hi)
	want := e.Truth()
	gone(e, want)
	list, err := e.Store().Slices(t.Context(), manifest.Filter{From: &day, To: &day})
	if err != nil || len(list) != 1 || list[0].State != manifest.Purged || list[0].Rows != 0 || list[0].Live == 0 {
		t.Errorf("the empty day is %+v, %v", list, err)
	}
}

// Several processes at once, of both verbs: each slice is done once, nothing is lost.
func TestManyWorkers(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Days: 3, Tables: 2, Messages: 900, Seed: 31})
	want := e.Truth()
	for _, verb := range []string{"archive", "purge"} {
		var all []*harness.Process
		for range 3 {
			all = append(all, e.Start(nil, verb))
		}
		for _, p := range all {
			// Work that another run did or does is no reason to say that something was left.
			if r := p.Wait(); r.Exit != 0 && r.Exit != 5 {
				t.Error(r)
			}
		}
		e.Must(verb)
	}
	if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
		t.Error(r)
	}
	for _, s := range e.Slices() {
		if s.Generation != 1 {
			t.Errorf("slice %s has generation %d: it was copied more than once", s.SliceKey, s.Generation)
		}
	}
}

// Pages: the same before and after the purge, from each store, and the whole history by pages.
func TestFetchPagesTheWholeHistory(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Days: 3, Messages: 900, Seed: 32})
	var conv string
	var n int
	if err := e.Warm.QueryRowContext(t.Context(), "SELECT session_id, COUNT(*) n FROM "+e.Tables[0]+" GROUP BY 1 ORDER BY n DESC LIMIT 1").Scan(&conv, &n); err != nil {
		t.Fatal(err)
	}
	ids := func(order string) (list []string) {
		rows, err := e.Warm.QueryContext(t.Context(), "SELECT msg_id FROM "+e.Tables[0]+" WHERE session_id = ? ORDER BY seq "+order, conv)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var id sql.NullString
			if err := rows.Scan(&id); err != nil {
				t.Fatal(err)
			}
			list = append(list, id.String)
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
		return list
	}
	newest, oldest := ids("DESC"), ids("ASC")
	e.Must("archive")
	for _, purged := range []bool{false, true} {
		if purged {
			e.Must("purge")
		} else if testing.Short() {
			continue // the pages are of the same objects and rows
		}
		for _, from := range []string{"auto", "s3", "clickhouse"} {
			for _, limit := range []int{7, 50} {
				if got := e.Pages(conv, from, "before", limit); fmt.Sprint(got) != fmt.Sprint(newest) {
					t.Errorf("purged %v, from %s by %d backwards: %d messages, want %d", purged, from, limit, len(got), len(newest))
				}
				if got := e.Pages(conv, from, "after", limit); fmt.Sprint(got) != fmt.Sprint(oldest[1:]) {
					t.Errorf("purged %v, from %s by %d forwards: %d messages, want %d", purged, from, limit, len(got), len(oldest)-1)
				}
			}
		}
	}
}
