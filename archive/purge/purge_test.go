package purge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/manifest"
)

// strategies runs a test by rows and by partition.
func strategies(t *testing.T, f func(t *testing.T, partitioned bool)) {
	t.Helper()
	for name, p := range map[string]bool{"rows": byRows, "partition": byPartition} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, p)
		})
	}
}

func now(c *purge.Config) { c.Lag = 0 }

func TestPurgeDeletesWhatIsDueOldestFirst(t *testing.T) {
	t.Parallel()
	strategies(t, func(t *testing.T, partitioned bool) {
		l := newLab(t, partitioned, 3, 250)
		l.archiveAll()
		var all []manifest.Slice
		for i := range l.days {
			all = append(all, l.slice(i))
		}
		p := l.purger(now)
		plan, err := p.Plan(t.Context(), purge.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.days { // Plan changes nothing
			if s := l.slice(i); !reflect.DeepEqual(s, all[i]) {
				t.Errorf("the plan changed slice %+v to %+v", all[i], s)
			}
		}
		if plan.Rows() != 750 || plan.Slices() != 3 || len(plan.Left) != 0 {
			t.Errorf("plan: %d rows of %d slices, left %v", plan.Rows(), plan.Slices(), plan.Left)
		}
		j, err := json.Marshal(plan)
		if err != nil || !strings.Contains(string(j), `"day":"2026-05-01"`) || !strings.Contains(string(j), "purge.lag is 0s") {
			t.Errorf("the plan prints as %s, %v", j, err)
		}
		want := purge.Rows
		if partitioned {
			want = purge.Partition
		}
		rep, err := p.Execute(t.Context(), plan)
		if err != nil || rep.Rows != 750 || len(rep.Slices) != 3 || len(rep.Warnings) != 1 {
			t.Fatalf("report %+v, %v", rep, err)
		}
		for i, r := range rep.Slices {
			if r.Day != l.days[i] || r.Outcome != purge.Purged || r.Strategy != want || r.Rows != 250 || r.Reason != "" {
				t.Errorf("result %d: %+v", i, r)
			}
			l.want(i, manifest.Purged, 0)
		}
		if _, err := p.Execute(t.Context(), plan); !errors.Is(err, purge.ErrPlanUsed) {
			t.Errorf("a plan runs twice: %v", err)
		}
		l.safe()
		if s := l.stagings(); len(s) > 0 {
			t.Errorf("staging tables are left: %v", s)
		}
		if rep, err := l.purge(now); err != nil || len(rep.Slices) != 0 {
			t.Errorf("a purge with nothing to do: %+v, %v", rep, err)
		}
	})
}

// Invariant 3, A4, M10: whatever happened to a row or to the table between the copy
// and the purge stops the delete, and after the next generation the purge goes on.
func TestDriftStopsTheDelete(t *testing.T) {
	t.Parallel()
	strategies(t, func(t *testing.T, partitioned bool) {
		for name, change := range map[string]func(l *lab){
			"edit": func(l *lab) { l.set(l.id(0, 249), "edited") },
			"recall": func(l *lab) {
				l.exec("UPDATE "+tableName+" SET status = 2 WHERE msg_id = ?", l.id(0, 3))
				l.original = l.rows(tableName)
			},
			"late row":        func(l *lab) { l.add(l.id(0, 3) + 1) },
			"late row at end": func(l *lab) { _, hi := l.window(0); l.add(hi - 1) },
			"delete":          func(l *lab) { l.remove(l.id(0, 120)) },
			"delete all":      func(l *lab) { l.exec("DELETE FROM " + tableName); clear(l.original) },
			"insert anew": func(l *lab) {
				id := l.id(0, 120)
				l.remove(id)
				l.add(id)
			},
			"move to NULL": func(l *lab) {
				l.exec("UPDATE "+tableName+" SET content = NULL WHERE msg_id = ?", l.id(0, 0))
				l.original = l.rows(tableName)
			},
			"new column": func(l *lab) {
				l.exec("ALTER TABLE " + tableName + " ADD COLUMN mark INT NOT NULL DEFAULT 7")
				l.original = l.rows(tableName)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := newLab(t, partitioned, 1, 250)
				l.archiveAll()
				change(l)
				before := l.rows(tableName)
				rep, err := l.purge(now)
				if !errors.Is(err, purge.ErrDrift) || rep.Count(purge.Drifted) != 1 {
					t.Fatalf("report %+v, %v", rep, err)
				}
				if s := l.slice(0); s.State != manifest.Pending || s.Reason != manifest.ReasonDrifted || s.Live != 1 || s.Staging != "" {
					t.Errorf("slice after drift: %+v", s)
				}
				after := l.rows(tableName)
				for id, v := range before { // chunks that did not differ may be gone: they are cold
					if got, ok := after[id]; ok && got != v {
						t.Errorf("row %d became %q", id, got)
					}
				}
				l.safe()
				l.archive(0)
				if _, err := l.purge(now); err != nil {
					t.Fatal(err)
				}
				l.want(0, manifest.Purged, 0)
				l.safe()
				if s := l.stagings(); len(s) > 0 {
					t.Errorf("staging tables are left: %v", s)
				}
			})
		}
	})
}

// A change that comes at the last moment, after all looks and before the lock.
func TestChangeRightBeforeTheLock(t *testing.T) {
	t.Parallel()
	strategies(t, func(t *testing.T, partitioned bool) {
		for name, change := range map[string]func(l *lab){
			"edit":       func(l *lab) { l.set(l.id(0, 249), "edited") },
			"late row":   func(l *lab) { l.add(l.id(0, 249) + 1) },
			"new column": func(l *lab) { l.exec("ALTER TABLE " + tableName + " ADD COLUMN mark INT NOT NULL DEFAULT 7") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := newLab(t, partitioned, 1, 250)
				l.archiveAll()
				done := false
				l.tab.before = func(call string) {
					if (call == "exchange" || call == "delete") && !done {
						done = true
						change(l)
					}
				}
				rep, err := l.purge(now)
				if err == nil || rep.Count(purge.Purged) != 0 {
					t.Fatalf("report %+v, %v", rep, err)
				}
				l.safe()
				l.tab.before = nil
				l.afterLease()
				rep, err = l.purge(now)
				if s := l.slice(0); s.State == manifest.Pending {
					l.archive(0)
					rep, err = l.purge(now)
				}
				if err != nil {
					t.Fatalf("report %+v, %v", rep, err)
				}
				l.want(0, manifest.Purged, 0)
				l.safe()
			})
		}
	})
}

// Rows that arrive in the emptied partition while it is compared are late rows: the
// purge goes on and they stay for the next archive run.
func TestLateRowInTheEmptiedPartitionStays(t *testing.T) {
	t.Parallel()
	l := newLab(t, byPartition, 1, 250)
	l.archiveAll()
	l.tab.before = func(call string) {
		if call == "drop" {
			l.add(l.id(0, 3) + 1)
		}
	}
	if rep, err := l.purge(now); err != nil {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.want(0, manifest.Purged, 1)
	l.tab.before = nil
	l.archive(0)
	if rep, err := l.purge(now); err != nil {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.want(0, manifest.Purged, 0)
	l.safe()
}

// Drift met in the last chunk when the first ones are deleted already: the next
// generation holds the deleted chunks' rows too.
func TestDriftInTheLastChunk(t *testing.T) {
	t.Parallel()
	l := newLab(t, byRows, 1, 450)
	l.archiveAll()
	l.set(l.id(0, 449), "edited")
	rep, err := l.purge(now)
	if !errors.Is(err, purge.ErrDrift) || rep.Rows == 0 {
		t.Fatalf("report %+v, %v", rep, err)
	}
	left := l.warmCount(0)
	if left == 450 || left == 0 {
		t.Fatalf("%d rows are left: the test wants some chunks deleted", left)
	}
	l.safe()
	c, err := l.store.LoadCopy(t.Context(), l.slice(0).ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, ch := range c.Chunks {
		want := manifest.ChunkDeleted
		if i == len(c.Chunks)-1 {
			want = manifest.ChunkPresent
		}
		if ch.Warm.Rows > 0 && ch.State != want {
			t.Errorf("chunk %d is %s, want %s", i, ch.State, want)
		}
	}
	if s := l.archive(0); s.Rows != 450 {
		t.Errorf("the next generation has %d rows", s.Rows)
	}
	if rep, err := l.purge(now); err != nil || rep.Rows != uint64(left) {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.want(0, manifest.Purged, 0)
	l.safe()
}

// A transaction that holds a row of the slice stays open through the copy and the
// purge's first try, and commits before the next: the row survives.
func TestLateCommitSurvives(t *testing.T) {
	t.Parallel()
	strategies(t, func(t *testing.T, partitioned bool) {
		l := newLab(t, partitioned, 1, 250)
		tx, err := l.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		id := l.id(0, 3) + 1
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO "+tableName+" (msg_id, session_id, seq, status, content, create_time) VALUES (?,?,?,?,?,?)", l.row(id, 1)...); err != nil {
			t.Fatal(err)
		}
		l.archiveAll()
		rep, err := l.purge(now)
		if !errors.Is(err, purge.ErrPartly) || rep.Count(purge.Locked) != 1 {
			t.Fatalf("while the transaction is open: %+v, %v", rep, err)
		}
		if s := l.slice(0); s.State != manifest.Verified || s.Staging != "" {
			t.Errorf("slice after a lock: %+v", s)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		l.original[id] = l.rows(tableName)[id]
		if rep, err := l.purge(now); !errors.Is(err, purge.ErrDrift) {
			t.Fatalf("after the commit: %+v, %v", rep, err)
		}
		l.safe()
		l.archive(0)
		if _, err := l.purge(now); err != nil {
			t.Fatal(err)
		}
		l.want(0, manifest.Purged, 0)
		l.safe()
	})
}

// An empty slice is purged when it is still empty, and copied again when not.
func TestEmptySlice(t *testing.T) {
	t.Parallel()
	strategies(t, func(t *testing.T, partitioned bool) {
		l := newLab(t, partitioned, 2, 0)
		l.archiveAll()
		l.add(l.id(1, 5))
		rep, err := l.purge(now)
		if !errors.Is(err, purge.ErrDrift) || rep.Count(purge.Purged) != 1 || rep.Count(purge.Drifted) != 1 {
			t.Fatalf("report %+v, %v", rep, err)
		}
		l.want(0, manifest.Purged, 0)
		l.want(1, manifest.Pending, 1)
	})
}

// Invariant 10: what the plan does not list, or lists otherwise, is not touched.
func TestExecuteKeepsToThePlan(t *testing.T) {
	t.Parallel()
	strategies(t, func(t *testing.T, partitioned bool) {
		l := newLab(t, partitioned, 2, 120)
		l.archive(0)
		p := l.purger(now)
		plan, err := p.Plan(t.Context(), purge.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		l.archive(1) // due now, but not in the plan
		l.set(l.id(0, 0), "edited")
		if _, err := l.purge(func(c *purge.Config) { now(c); c.Strategy = purge.Rows }); !errors.Is(err, purge.ErrDrift) {
			t.Fatal(err)
		}
		l.want(1, manifest.Purged, 0)
		l.archive(0) // another generation than the plan's
		rep, err := p.Execute(t.Context(), plan)
		if !errors.Is(err, purge.ErrPartly) || len(rep.Slices) != 1 || rep.Slices[0].Outcome != purge.Changed || rep.Rows != 0 {
			t.Fatalf("report %+v, %v", rep, err)
		}
		if s := l.slice(0); s.State != manifest.Verified || s.Generation != 2 || l.warmCount(0) == 0 {
			t.Errorf("the slice was touched: %+v, %d rows", s, l.warmCount(0))
		}
	})
}

// Invariant 4 and the lag by the database's clock: time moves on day by day; the
// rows are in MySQL until the step at which they must vanish.
func TestRowsStayUntilTheLagIsOver(t *testing.T) {
	t.Parallel()
	l := newLab(t, byRows, 1, 50)
	s := l.archive(0)
	for _, step := range []struct {
		after time.Duration
		gone  bool
	}{{0, false}, {24 * time.Hour, false}, {6 * 24 * time.Hour, false}, {7*24*time.Hour - time.Second, false}, {7 * 24 * time.Hour, true}} {
		at := s.VerifiedAt.Add(step.after)
		l.store = l.openStore(time.Minute, at)
		c := func(c *purge.Config) { c.Lag = purge.DefaultLag; c.Now = func() time.Time { return at } }
		p := l.purger(c, &otherClock{l.tab, at})
		plan, err := p.Plan(t.Context(), purge.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Warnings) > 0 {
			t.Errorf("a lag of 7 days is warned of: %v", plan.Warnings)
		}
		if !step.gone {
			if len(plan.Jobs) > 0 || len(plan.Left) != 1 || plan.Left[0].Outcome != purge.Early {
				t.Errorf("after %s the plan lists %+v, leaves %+v", step.after, plan.Jobs, plan.Left)
			}
			// Even a plan that were wrong gets no grant.
			forged := &purge.Plan{Jobs: []purge.Job{{Strategy: purge.Rows, Slices: []purge.Item{{ID: s.ID, SliceKey: s.SliceKey, Lo: s.Lo, Hi: s.Hi, Generation: 1}}}}}
			if rep, err := p.Execute(t.Context(), forged); err == nil || rep.Slices[0].Outcome != purge.Early {
				t.Errorf("after %s a forged plan gives %+v, %v", step.after, rep, err)
			}
			if n := l.warmCount(0); n != 50 {
				t.Fatalf("after %s MySQL has %d rows", step.after, n)
			}
		} else if rep, err := p.Execute(t.Context(), plan); err != nil || l.warmCount(0) != 0 {
			t.Errorf("after %s: %+v, %v, %d rows in MySQL", step.after, rep, err, l.warmCount(0))
		}
		l.safe()
	}
}

// A partition of two days goes when both may, and by rows or not at all otherwise.
func TestPartitionOfSeveralSlices(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) *lab {
		l := newLab(t, byRows, 3, 120)
		_, hi := l.window(1)
		l.exec(fmt.Sprintf("ALTER TABLE %s PARTITION BY RANGE (msg_id) (PARTITION p01 VALUES LESS THAN (%d), PARTITION pmax VALUES LESS THAN MAXVALUE)", tableName, hi))
		l.tab = l.openTable()
		return l
	}
	t.Run("both", func(t *testing.T) {
		t.Parallel()
		l := setup(t)
		l.archiveAll()
		rep, err := l.purge(now)
		if err != nil || rep.Count(purge.Purged) != 3 {
			t.Fatalf("report %+v, %v", rep, err)
		}
		for i, by := range []purge.Strategy{purge.Partition, purge.Partition, purge.Rows} { // pmax holds no whole slices
			if rep.Slices[i].Strategy != by {
				t.Errorf("slice %d went by %s", i, rep.Slices[i].Strategy)
			}
			l.want(i, manifest.Purged, 0)
		}
		l.safe()
	})
	t.Run("one is not due", func(t *testing.T) {
		t.Parallel()
		l := setup(t)
		l.archive(0)
		rep, err := l.purge(func(c *purge.Config) { now(c); c.Strategy = purge.Partition })
		if !errors.Is(err, purge.ErrPartly) || len(rep.Left) != 1 || l.warmCount(0) != 120 {
			t.Fatalf("strategy partition: %+v, %v", rep, err)
		}
		if rep, err = l.purge(now); err != nil || rep.Slices[0].Strategy != purge.Rows {
			t.Fatalf("strategy auto: %+v, %v", rep, err)
		}
		l.want(0, manifest.Purged, 0)
		if n := l.warmCount(1); n != 120 {
			t.Errorf("day 1 has %d rows", n)
		}
		l.safe()
	})
	t.Run("one is held", func(t *testing.T) {
		t.Parallel()
		l := setup(t)
		l.archive(0)
		s := l.archive(1)
		if _, err := l.store.AddHold(t.Context(), manifest.Hold{Kind: manifest.HoldSlice, Subject: s.SliceKey.String(), Reason: "court order", By: "test"}); err != nil {
			t.Fatal(err)
		}
		rep, err := l.purge(now)
		if err != nil || len(rep.Slices) != 1 || rep.Slices[0].Strategy != purge.Rows || len(rep.Left) != 1 || rep.Left[0].Outcome != purge.Held {
			t.Fatalf("report %+v, %v", rep, err)
		}
		l.want(0, manifest.Purged, 0)
		l.want(1, manifest.Verified, 120)
	})
	t.Run("one drifts", func(t *testing.T) {
		t.Parallel()
		l := setup(t)
		l.archive(0)
		l.archive(1)
		l.set(l.id(1, 7), "edited")
		rep, err := l.purge(now)
		if !errors.Is(err, purge.ErrPartly) || rep.Count(purge.Drifted) != 1 || rep.Count(purge.LeftOver) != 1 {
			t.Fatalf("report %+v, %v", rep, err)
		}
		l.want(0, manifest.Verified, 120)
		l.want(1, manifest.Pending, 120)
		l.safe()
		l.archive(1)
		if rep, err := l.purge(now); err != nil || rep.Slices[0].Strategy != purge.Partition {
			t.Fatalf("report %+v, %v", rep, err)
		}
		l.want(0, manifest.Purged, 0)
		l.want(1, manifest.Purged, 0)
		l.safe()
	})
	t.Run("older rows in the partition", func(t *testing.T) {
		t.Parallel()
		l := setup(t)
		lo, _ := l.window(0)
		l.add(lo - 1)
		l.archive(0)
		l.archive(1)
		rep, err := l.purge(now)
		if err != nil || rep.Slices[0].Strategy != purge.Rows {
			t.Fatalf("report %+v, %v", rep, err)
		}
		if _, there := l.rows(tableName)[lo-1]; !there {
			t.Error("a row of no slice was deleted")
		}
		l.safe()
	})
}
