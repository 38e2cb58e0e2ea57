package adversary

import (
	"strings"
	"syscall"
	"testing"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// A purge by partition that is paused before it makes its staging table, and wakes
// up when the slice is another's, must not take the partition out of the table:
// a scan under way would miss its rows, and if it died nobody would know the table.
func TestPausedPurgeDoesNotExchange(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"purge.partition.recorded-before-created", "purge.partition.created-before-exchanged"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Partitioned: true, Strategy: "partition", Seed: 74, Messages: 200})
			e.Must("archive")
			p := e.Start([]string{"COLDTIER_STOP_AT=" + step, "COLDTIER_CRASH_AT=purge.partition.exchanged-before-compared"}, "purge")
			if !p.Stopped() {
				t.Fatal(p.Wait())
			}
			expire(e)
			e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id = ?", edge(e, "MAX"))
			want := e.Truth()
			e.Expect(4, []string{"drift"}, "purge")
			p.Signal(syscall.SIGCONT)
			if r := p.Wait(); r.Exit == -1 {
				t.Errorf("it exchanged the partition without a lease: %s", r)
			}
			if n := e.Count(); n != len(want) {
				t.Errorf("%d of %d rows are in warm", n, len(want))
			}
			var left int
			if err := e.Warm.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'coldtier%'").Scan(&left); err != nil || left != 0 {
				t.Errorf("%d staging tables are left, %v", left, err)
			}
			gone(e, want)
		})
	}
}

// A worker frozen between its last look at the grant and its COMMIT holds the rows
// locked, and others still see them. The next generation must not count them as
// warm's, for the delete may yet be committed.
func TestDeleteInFlightWhileCopiedAgain(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Strategy: "rows", Seed: 75, Messages: 300})
	e.Must("archive")
	m := e.Store()
	l, err := m.Claim(t.Context(), only(e).ID, "frozen", []manifest.State{manifest.Verified}, "")
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GrantPurge(t.Context(), l, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := g.Copy().Chunks[len(g.Copy().Chunks)-1]
	if err := g.ChunkState(t.Context(), c.Seq, manifest.ChunkDeleting); err != nil {
		t.Fatal(err)
	}
	tx, err := e.Warm.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	first, end := edge(e, "MIN"), edge(e, "MAX")
	var created string
	if err := e.Warm.QueryRowContext(t.Context(), "SELECT CAST(create_time AS CHAR) FROM "+e.Tables[0]+" WHERE msg_id = ?", end).Scan(&created); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "DELETE FROM "+e.Tables[0]+" WHERE msg_id >= ? AND msg_id < ?", c.From, c.To); err != nil {
		t.Fatal(err)
	}
	expire(e)
	e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id = ?", first)
	want := e.Truth()
	e.Expect(4, []string{"drift"}, "purge") // met in the first chunk
	if r := e.Run("archive"); r.Exit != 0 && !strings.Contains(r.Stdout+r.Stderr, "lock") {
		t.Fatal(r)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	late(e, end+1, first) // so that the chunk has not vanished whole
	e.SQL("UPDATE "+e.Tables[0]+" SET create_time = ? WHERE msg_id = ?", created, end+1)
	for k, v := range e.Truth() {
		want[k] = v
	}
	_ = e.Run("purge")
	gone(e, want)
}

// late inserts a row beside another.
func late(e *harness.Env, id, beside uint64) {
	e.T.Helper()
	e.SQL("INSERT INTO "+e.Tables[0]+" (msg_id, session_id, sender_id, receiver_id, content, client_msg_id, create_time, seq) "+
		"SELECT ?, session_id, sender_id, receiver_id, 'late', 'x', create_time, seq + 1000000 FROM "+e.Tables[0]+" WHERE msg_id = ?", id, beside)
}

// expire ends all leases as their database sees them.
func expire(e *harness.Env) {
	e.T.Helper()
	db := stack.OpenMySQL(e.T, e.Manifest)
	if _, err := db.ExecContext(e.T.Context(), "UPDATE slices SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE lease_until IS NOT NULL"); err != nil {
		e.T.Fatal(err)
	}
}
