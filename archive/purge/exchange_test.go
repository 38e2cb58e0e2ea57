package purge_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/manifest"
)

// M13: a reader holds the table's metadata lock: the exchange gives up after its short
// wait, other queries go on, and a later run succeeds.
func TestReaderStopsTheExchange(t *testing.T) {
	t.Parallel()
	l := newLab(t, byPartition, 1, 120)
	l.archiveAll()
	tx, err := l.db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+tableName).Scan(&n); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var slowest time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			var one int
			if err := l.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+tableName+" WHERE msg_id = 1").Scan(&one); err != nil {
				t.Errorf("another query: %v", err)
			}
			slowest = max(slowest, time.Since(began))
			time.Sleep(10 * time.Millisecond)
		}
	})
	rep, err := l.purge(now)
	cancel()
	wg.Wait()
	if !errors.Is(err, purge.ErrPartly) || rep.Count(purge.Locked) != 1 {
		t.Fatalf("report %+v, %v", rep, err)
	}
	t.Logf("the slowest of the other queries took %s", slowest)
	l.want(0, manifest.Verified, 120)
	if s := l.stagings(); len(s) > 0 {
		t.Errorf("staging tables are left: %v", s)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if rep, err := l.purge(now); err != nil {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.want(0, manifest.Purged, 0)
	l.safe()
}

// M16: a row of another day in the staging table: the server refuses the exchange and
// nothing is lost.
func TestAlienRowInStaging(t *testing.T) {
	t.Parallel()
	l := newLab(t, byPartition, 2, 120)
	l.archive(0)
	alien := l.id(1, 7) + 1
	rep, err := l.purge(func(c *purge.Config) {
		now(c)
		c.Strategy = purge.Partition
		c.Steps = func(s string) error {
			if s == purge.StepStagingCreated {
				l.exec("INSERT INTO `"+l.stagings()[0]+"` (msg_id, session_id, seq, status, content, create_time) VALUES (?,?,?,?,?,?)", l.row(alien, 1)...)
				l.original[alien] = l.rows(l.stagings()[0])[alien]
			}
			return nil
		}
	})
	if !errors.Is(err, purge.ErrPartly) || rep.Count(purge.Purged) != 0 {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.safe()
	l.afterLease()
	if rep, err := l.purge(now); err != nil {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.want(0, manifest.Purged, 0)
	if n := l.warmCount(1); n != 121 {
		t.Errorf("day 1 has %d rows in MySQL, want 121", n)
	}
	l.safe()
}
