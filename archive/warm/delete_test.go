package warm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

// hooked is a real grant with a test between its steps.
type hooked struct {
	*manifest.PurgeGrant
	locked func() // the rows are locked and were found equal
	check  func() // before the grant is asked, after the delete
	copies int
}

func (h *hooked) Copy() *manifest.Copy {
	if h.copies++; h.copies == 2 && h.locked != nil {
		h.locked()
	}
	return h.PurgeGrant.Copy()
}

func (h *hooked) Check(ctx context.Context) error {
	if h.check != nil {
		h.check()
	}
	return h.PurgeGrant.Check(ctx)
}

// pair is a table of 1,000 rows with IDs 10..10000 and a grant for [0, 5009).
func pair(t *testing.T, spoil func(*bench)) (*bench, *Table, *manifest.PurgeGrant) {
	t.Helper()
	return newBook(t).pair(spoil)
}

// pair makes another such table, with a grant of this book.
func (bk *book) pair(spoil func(*bench)) (*bench, *Table, *manifest.PurgeGrant) {
	bk.t.Helper()
	b := newBench(bk.t)
	b.simple("", 1000)
	b.cfg.ChunkRows = 100
	b.cfg.LockWait = 3 * time.Second
	if spoil != nil {
		spoil(b)
	}
	tab := b.table()
	return b, tab, bk.grant(tab, 0, 5009)
}

func TestDeleteChunkDeletesJustItsRows(t *testing.T) {
	t.Parallel()
	b, tab, g := pair(t, nil)
	_, other, _ := scanAll(t, tab, 5009, 1<<40)
	for i, c := range g.Copy().Chunks {
		if err := tab.DeleteChunk(t.Context(), g, c); err != nil {
			t.Fatal(err)
		}
		left := b.count("SELECT COUNT(*) FROM msg WHERE id < ?", c.To)
		if left != 0 || b.count("SELECT COUNT(*) FROM msg") != 1000-min(500, (i+1)*100) {
			t.Fatalf("after chunk %d: %d of its rows are left", i, left)
		}
	}
	if _, now, _ := scanAll(t, tab, 0, 1<<40); now != other {
		t.Errorf("the other rows are %s, were %s", now, other)
	}
	// Deleted again, it is not what was archived.
	if err := tab.DeleteChunk(t.Context(), g, g.Copy().Chunks[0]); !errors.Is(err, ErrDrift) {
		t.Errorf("a deleted chunk deleted again: %v", err)
	}
}

// M10, A4: whatever differs from the copy stops the delete.
func TestDriftStopsTheDelete(t *testing.T) {
	t.Parallel()
	bk := newBook(t)
	for name, change := range map[string]string{
		"row added":              "INSERT INTO msg VALUES (55, 1, '', NULL)",
		"row added at the start": "INSERT INTO msg VALUES (0, 1, '', NULL)",
		"row edited":             "UPDATE msg SET body = 'edited' WHERE id = 50",
		"NULL to empty":          "UPDATE msg SET note = '' WHERE id = 30",
		"letter case":            "UPDATE msg SET note = 'É~:' WHERE id = 50",
		"row removed":            "DELETE FROM msg WHERE id = 50",
		"row replaced":           "UPDATE msg SET id = 55 WHERE id = 50",
		"all removed":            "DELETE FROM msg WHERE id <= 1000",
		"column added":           "ALTER TABLE msg ADD COLUMN extra INT NULL",
		"column retyped":         "ALTER TABLE msg MODIFY note VARCHAR(200) NULL",
		"column's default":       "",
	} {
		b, tab, g := bk.pair(nil)
		if change == "" {
			change = "ALTER TABLE msg ALTER COLUMN note SET DEFAULT 'x'"
		}
		b.exec(change)
		before := b.count("SELECT COUNT(*) FROM msg")
		err := tab.DeleteChunk(t.Context(), g, g.Copy().Chunks[0])
		if harmless := name == "column's default"; harmless {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, ErrDrift) || !strings.Contains(err.Error(), tab.Shard().String()) {
			t.Errorf("%s: %v", name, err)
		}
		if now := b.count("SELECT COUNT(*) FROM msg"); now != before {
			t.Errorf("%s: %d rows were deleted", name, before-now)
		}
	}
}

// The late commit: a transaction holds a row of the chunk while it is deleted.
func TestUncommittedRowSurvives(t *testing.T) {
	t.Parallel()
	b, tab, g := pair(t, func(b *bench) { b.cfg.LockWait = time.Second })
	b.cfg.LockWait = time.Minute // longer than a busy machine takes to see that it waits
	patient := b.table()
	c := g.Copy().Chunks[1]
	for _, late := range []string{"INSERT INTO msg VALUES (1555, 1, 'late', NULL)", "UPDATE msg SET body = 'late' WHERE id = 1550"} {
		tx, err := b.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := tab.DeleteChunk(t.Context(), g, c); !errors.Is(err, ErrLocked) {
			t.Errorf("%s, uncommitted: %v", late, err)
		}
		if d := time.Since(begun); d > 20*time.Second { // by itself the server gives up after 50 s
			t.Errorf("gave up after %s", d)
		}
		// It commits while the delete waits for it.
		done := make(chan error)
		go func() { done <- patient.DeleteChunk(t.Context(), g, c) }()
		eventually(t, "the delete waits", func() bool {
			time.Sleep(150 * time.Millisecond) // the server renews this view at most every 100 ms, and not while it is read more often
			return b.transactions(tab.shard.Database, true) == 1
		})
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ErrDrift) {
			t.Errorf("%s, committed while the delete waits: %v", late, err)
		}
		if b.count("SELECT COUNT(*) FROM msg WHERE body = 'late'") != 1 {
			t.Fatalf("%s: the late row is gone", late)
		}
		b.exec("DELETE FROM msg WHERE id = 1555")
	}
	if n := b.count("SELECT COUNT(*) FROM msg"); n != 1000 {
		t.Errorf("%d rows are left", n)
	}
}

// Between the fingerprint and the delete nobody can insert into the chunk, also when
// the session's own level is READ COMMITTED. TestReadCommittedWouldLoseRows shows the
// contrary.
func TestNobodyInsertsBetweenFingerprintAndDelete(t *testing.T) {
	t.Parallel()
	b, tab, g := pair(t, func(b *bench) {
		v := "transaction_isolation"
		if b.mariadb() {
			v = "tx_isolation"
		}
		b.cfg.Databases[0].DSN += "?" + v + "=%27READ-COMMITTED%27"
	})
	conn := stack.OpenMySQL(t, b.dsn+"?innodb_lock_wait_timeout=1")
	// In the first gap, inside, and behind the last row but still in the chunk's range.
	for _, id := range []int{1, 555, 5005} {
		c := g.Copy().Chunks[0]
		if id > 5000 {
			c = g.Copy().Chunks[len(g.Copy().Chunks)-1]
		}
		if uint64(id) < c.From || uint64(id) >= c.To {
			t.Fatalf("ID %d lies outside [%d, %d)", id, c.From, c.To)
		}
		var blocked error
		h := &hooked{PurgeGrant: g, locked: func() {
			_, blocked = conn.ExecContext(t.Context(), "INSERT INTO msg VALUES (?, 1, 'between', NULL)", id)
		}}
		err := tab.deleteChunk(t.Context(), h, c)
		if err != nil || number(blocked) != 1205 {
			t.Errorf("ID %d: the insert got %v, the delete %v", id, blocked, err)
		}
		if id == 1 { // put the rows back for the next round
			b.fill("msg", 0, 100)
		}
	}
}

// Why the level matters, by trying.
func TestReadCommittedWouldLoseRows(t *testing.T) {
	t.Parallel()
	b, tab, _ := pair(t, nil)
	def := tab.def.Load()
	conn := stack.OpenMySQL(t, b.dsn+"?innodb_lock_wait_timeout=1")
	tx, err := b.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM (SELECT 1 FROM msg WHERE "+def.between(0, 1001)+" FOR UPDATE) r").Scan(&n); err != nil || n != 100 {
		t.Fatal(n, err)
	}
	if _, err := conn.ExecContext(t.Context(), "INSERT INTO msg VALUES (555, 1, 'between', NULL)"); err != nil {
		t.Fatalf("READ COMMITTED keeps the insert out: %v", err)
	}
	r, err := tx.ExecContext(t.Context(), "DELETE FROM msg WHERE "+def.between(0, 1001))
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := r.RowsAffected(); n != 101 {
		t.Errorf("the delete met %d rows, want also the one that was never seen", n)
	}
	_ = tx.Rollback()
}

// The grant is asked last: a hold that came in between wins.
func TestRefusedGrantDeletesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 1000)
	b.cfg.ChunkRows = 100
	tab := b.table()
	bk := newBook(t)
	g := bk.grant(tab, 0, 5009)
	h := &hooked{PurgeGrant: g, check: func() { bk.hold(g) }}
	if err := tab.deleteChunk(t.Context(), h, g.Copy().Chunks[0]); !errors.Is(err, manifest.ErrHeld) {
		t.Errorf("held in the middle: %v", err)
	}
	c := g.Copy().Chunks[0]
	for name, try := range map[string]func() error{
		"no grant":         func() error { return tab.DeleteChunk(t.Context(), nil, c) },
		"made-up grant":    func() error { return tab.DeleteChunk(t.Context(), &manifest.PurgeGrant{}, c) },
		"changed chunk":    func() error { c := c; c.To++; return tab.DeleteChunk(t.Context(), g, c) },
		"other expected":   func() error { c := c; c.Warm.Lo++; return tab.DeleteChunk(t.Context(), g, c) },
		"beyond the slice": func() error { c := c; c.From, c.To = 5009, 6000; return tab.DeleteChunk(t.Context(), g, c) },
		"ended context": func() error {
			ctx, cancel := context.WithCancel(t.Context())
			return tab.deleteChunk(ctx, &hooked{PurgeGrant: g, locked: cancel}, c)
		},
	} {
		if err := try(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if n := b.count("SELECT COUNT(*) FROM msg"); n != 1000 {
		t.Errorf("%d rows were deleted", 1000-n)
	}
	eventually(t, "no lock stays", func() bool {
		_, err := b.db.ExecContext(t.Context(), "UPDATE msg SET note = 'free' WHERE id = 50")
		return err == nil
	})
}

// M3, M2: the answer of COMMIT is lost, or COMMIT itself is. Both are unclear, and
// what became of the rows is all or nothing.
func TestLostCommitIsUnclear(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{true, false} {
		b, _, g := pair(t, nil)
		p := stack.NewProxy(t, b.addr())
		b.cfg.Databases[0].DSN = strings.Replace(b.dsn, b.addr(), p.Addr, 1) + "?readTimeout=5s&timeout=5s" // all else has to be answered in this time
		tab := b.table()
		h := &hooked{PurgeGrant: g, check: func() {
			if arrives {
				p.LoseAnswers()
			} else {
				p.Cut()
			}
		}}
		err := tab.deleteChunk(t.Context(), h, g.Copy().Chunks[0])
		if !errors.Is(err, ErrUnclear) || errors.Is(err, ErrDrift) {
			t.Errorf("COMMIT arrived %v: %v", arrives, err)
		}
		want := 1000
		if arrives {
			want = 900
		}
		eventually(t, fmt.Sprintf("%d rows are left", want), func() bool { return b.count("SELECT COUNT(*) FROM msg") == want })
		p.Heal()
		f, err := tab.Fingerprint(t.Context(), 0, g.Copy().Chunks[0].To)
		if err != nil || (f.Rows == 0) != arrives {
			t.Errorf("after it: %s, %v", f, err)
		}
	}
}

// A row beyond max_allowed_packet is compared under the same lock.
func TestDeleteOfRowsBeyondThePacket(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, x LONGBLOB NOT NULL, y LONGBLOB NOT NULL)")
	half := b.count("SELECT @@max_allowed_packet") * 51 / 100
	b.exec("INSERT INTO msg VALUES (1, 1, REPEAT('x', ?), REPEAT('y', ?)), (2, 1, '', '')", half, half)
	tab := b.table()
	g := newBook(t).grant(tab, 0, 10)
	b.exec("UPDATE msg SET y = CONCAT('z', SUBSTR(y, 2)) WHERE id = 1")
	for _, c := range g.Copy().Chunks {
		if c.Warm.Rows > 0 && c.From <= 1 {
			if err := tab.DeleteChunk(t.Context(), g, c); !errors.Is(err, ErrDrift) {
				t.Errorf("edited: %v", err)
			}
		}
	}
	b.exec("UPDATE msg SET y = CONCAT('y', SUBSTR(y, 2)) WHERE id = 1")
	for _, c := range g.Copy().Chunks {
		if err := tab.DeleteChunk(t.Context(), g, c); err != nil {
			t.Error(err)
		}
	}
	if n := b.count("SELECT COUNT(*) FROM msg"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// The delete of a chunk must not lock or touch the rest of the table.
func TestDeleteLocksItsRangeOnly(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"PRIMARY KEY (id)", "PRIMARY KEY (conv, id), UNIQUE KEY u (id)"} {
		b := newBench(t)
		b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL, conv BIGINT NOT NULL, body MEDIUMBLOB NOT NULL, note VARCHAR(100) NULL, " + key + ")")
		b.fill("msg", 0, 40) // so few that the optimizer would read the whole table
		b.cfg.ChunkRows = 10
		tab := b.table()
		g := newBook(t).grant(tab, 100, 301)
		conn := stack.OpenMySQL(t, b.dsn+"?innodb_lock_wait_timeout=1")
		h := &hooked{PurgeGrant: g}
		h.check = func() {
			for _, id := range []int{50, 220, 400} {
				if _, err := conn.ExecContext(t.Context(), "UPDATE msg SET note = 'x' WHERE id = ?", id); err != nil {
					t.Errorf("%s: row %d is locked: %v", key, id, err)
				}
			}
			if _, err := conn.ExecContext(t.Context(), "INSERT INTO msg VALUES (100000, 1, '', NULL)"); err != nil {
				t.Errorf("%s: new rows are kept out: %v", key, err)
			}
		}
		if err := tab.deleteChunk(t.Context(), h, g.Copy().Chunks[0]); err != nil {
			t.Error(err)
		}
	}
}

func TestErrorsAreTold(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint16]error{1205: ErrLocked, 1213: ErrLocked, 3572: ErrLocked, 1020: ErrLocked, 1969: errSlow, 3024: errSlow, 1737: ErrIncompatible, 1736: ErrIncompatible} {
		if err := told(fmt.Errorf("x: %w", &mysql.MySQLError{Number: n})); !errors.Is(err, want) || number(err) != n {
			t.Errorf("error %d is %v", n, err)
		}
	}
	if told(nil) != nil {
		t.Error("no error is one")
	}
}
