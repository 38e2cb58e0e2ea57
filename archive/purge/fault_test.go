package purge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/manifest"
)

// otherClock is a table on a server whose clock shows another time.
type otherClock struct {
	*table
	at time.Time
}

func (o *otherClock) Now(context.Context) (time.Time, error) { return o.at, nil }

var errKilled = errors.New("killed")

// killAt ends the run at the n-th time that a step is reached.
func killAt(step string, n int) func(*purge.Config) {
	return func(c *purge.Config) {
		now(c)
		c.Steps = func(s string) error {
			if s == step {
				if n--; n == 0 {
					return errKilled
				}
			}
			return nil
		}
	}
}

// Invariants 1, 2, 5: a run that ends at any named step leaves every row in MySQL or
// in the copy, and the same command run again finishes the work.
func TestCrashAtEachStep(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	strategies(t, func(t *testing.T, partitioned bool) {
		for _, drift := range []bool{false, true} {
			for _, step := range purge.StepNames() {
				if strings.Contains(step, ".partition.") != partitioned && strings.Contains(step, ".chunk.") == partitioned && step != purge.StepClaimed && step != purge.StepGranted {
					continue
				}
				if testing.Short() && rnd.IntN(2) == 0 { // another half the next time
					continue
				}
				n := 1
				if strings.Contains(step, ".chunk.") {
					n += rnd.IntN(3)
				}
				t.Run(fmt.Sprintf("%s %d drift %t", step, n, drift), func(t *testing.T) {
					t.Parallel()
					l := newLab(t, partitioned, 2, 330)
					if partitioned { // one partition for both days
						l.exec("ALTER TABLE " + tableName + " REORGANIZE PARTITION p0, p1 INTO (PARTITION p01 VALUES LESS THAN (" + fmt.Sprint(hiOf(l, 1)) + "))")
						l.tab = l.openTable()
					}
					l.archiveAll()
					if drift {
						l.set(l.id(0, 329), "edited")
					}
					_, err := l.purge(killAt(step, n))
					reached := errors.Is(err, errKilled)
					if !reached && (drift || step != purge.StepDiffers && step != purge.StepReturned && step != purge.StepReturnedRecorded) &&
						(!drift || step != purge.StepCompared && step != purge.StepDropped) && step != purge.StepBeforePurged && step != purge.StepPurgedMarked {
						t.Fatalf("the step was not reached: %v", err)
					}
					l.safe()
					for range 4 {
						l.afterLease()
						if s := l.slice(0); s.State == manifest.Pending {
							l.archive(0)
						}
						_, err = l.purge(now)
						l.safe()
						if err == nil {
							break
						}
					}
					if err != nil {
						t.Fatal(err)
					}
					l.want(0, manifest.Purged, 0)
					l.want(1, manifest.Purged, 0)
					if s := l.stagings(); len(s) > 0 {
						t.Errorf("staging tables are left: %v", s)
					}
					if drift && reached && l.slice(0).Generation != 2 {
						t.Errorf("the edited slice has generation %d", l.slice(0).Generation)
					}
					if g := l.slice(1).Generation; g != 1 {
						t.Errorf("the slice that did not drift has generation %d", g)
					}
				})
			}
		}
	})
}

func hiOf(l *lab, day int) uint64 {
	_, hi := l.window(day)
	return hi
}

// A crash between the drop and its record, with late rows in the emptied
// partition: the slice is purged and the late rows stay.
func TestLateRowsAfterACrashedDrop(t *testing.T) {
	t.Parallel()
	l := newLab(t, byPartition, 1, 120)
	l.archiveAll()
	if _, err := l.purge(killAt(purge.StepDropped, 1)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	l.add(l.id(0, 5) + 1)
	l.afterLease()
	if rep, err := l.purge(now); err != nil {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.want(0, manifest.Purged, 1)
	l.safe()
}

// M3, invariant 5: the answer to a delete's COMMIT is lost, whether or not the server
// did it: the run reads, and goes on from what there is.
func TestLostCommitAnswer(t *testing.T) {
	t.Parallel()
	for name, did := range map[string]bool{"committed": true, "not committed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, byRows, 1, 250)
			l.archiveAll()
			lost := 0
			tab := &lossy{table: l.tab, lose: func() (bool, bool) { lost++; return lost == 2, did }}
			p := l.purger(now, tab)
			plan, err := p.Plan(t.Context(), purge.Selection{})
			if err != nil {
				t.Fatal(err)
			}
			rep, err := p.Execute(t.Context(), plan)
			if err != nil || rep.Rows != 250 {
				t.Fatalf("report %+v, %v", rep, err)
			}
			l.want(0, manifest.Purged, 0)
			l.safe()
		})
	}
	t.Run("and other rows are there now", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, byRows, 1, 250)
		l.archiveAll()
		lost := 0
		tab := &lossy{table: l.tab, lose: func() (bool, bool) { lost++; return lost == 2, true }}
		l.tab.after = func(call string, err error) error {
			if call == "delete" && lost == 2 {
				l.add(l.id(0, 120) + 1)
			}
			return err
		}
		p := l.purger(now, tab)
		plan, err := p.Plan(t.Context(), purge.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := p.Execute(t.Context(), plan); !errors.Is(err, purge.ErrDrift) {
			t.Fatalf("report %+v, %v", rep, err)
		}
		l.safe()
		if s := l.archive(0); s.Rows != 251 {
			t.Errorf("the next generation has %d rows, want 251", s.Rows)
		}
		l.safe()
	})
}

// lossy loses answers to deletes.
type lossy struct {
	*table
	lose func() (lose, did bool)
}

func (l *lossy) DeleteChunk(ctx context.Context, g *manifest.PurgeGrant, c manifest.Chunk) error {
	lose, did := l.lose()
	if lose && !did {
		return fmt.Errorf("%w: connection reset", purge.ErrUnclear)
	}
	err := l.table.DeleteChunk(ctx, g, c)
	if err == nil && lose {
		return fmt.Errorf("%w: connection reset", purge.ErrUnclear)
	}
	return err
}

// A return of isolated rows that ended in the middle, after it had copied some: the next
// run neither drops the rows nor takes the half for a difference.
func TestHalfReturned(t *testing.T) {
	t.Parallel()
	for name, edited := range map[string]bool{"equal": false, "edited": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, byPartition, 1, 120)
			s := l.archive(0)
			if edited {
				l.set(l.id(0, 100), "edited")
			}
			tab := &halfway{l.tab, func(staging string) {
				l.exec("INSERT INTO " + tableName + " SELECT * FROM `" + staging + "` ORDER BY msg_id LIMIT 60")
			}}
			hold := uint64(0)
			p := l.purger(func(c *purge.Config) {
				now(c)
				c.Steps = func(step string) (err error) {
					if step == purge.StepExchanged && !edited {
						hold, err = l.store.AddHold(t.Context(), manifest.Hold{Kind: manifest.HoldSlice, Subject: s.SliceKey.String(), Reason: "court order", By: "test"})
					}
					return err
				}
			}, tab)
			plan, err := p.Plan(t.Context(), purge.Selection{})
			if err != nil {
				t.Fatal(err)
			}
			if rep, err := p.Execute(t.Context(), plan); err == nil || rep.Count(purge.Purged) > 0 {
				t.Fatalf("report %+v, %v", rep, err)
			}
			if s := l.slice(0); s.State != manifest.Purging || s.Staging == "" || l.warmCount(0) != 60 {
				t.Fatalf("slice %+v, %d rows: the test wants it half returned", s, l.warmCount(0))
			}
			l.safe()
			if hold != 0 {
				if err := l.store.ReleaseHold(t.Context(), hold, "test"); err != nil {
					t.Fatal(err)
				}
			}
			l.afterLease()
			rep, err := l.purge(now)
			if edited {
				if !errors.Is(err, purge.ErrDrift) {
					t.Fatalf("report %+v, %v", rep, err)
				}
				l.want(0, manifest.Pending, 120)
				return
			}
			if err != nil {
				t.Fatalf("report %+v, %v", rep, err)
			}
			l.want(0, manifest.Purged, 0)
			l.safe()
		})
	}
}

type halfway struct {
	*table
	half func(staging string)
}

func (h *halfway) ReturnStaging(_ context.Context, name string) error {
	h.half(name)
	return errors.New("connection reset")
}

// The answer to an exchange is lost: nothing is cleaned up, and a later run puts it right.
func TestLostExchangeAnswer(t *testing.T) {
	t.Parallel()
	l := newLab(t, byPartition, 1, 120)
	l.archiveAll()
	l.tab.after = func(call string, err error) error {
		if call == "exchange" && err == nil {
			return fmt.Errorf("%w: connection reset", purge.ErrUnclear)
		}
		return err
	}
	rep, err := l.purge(now)
	if !errors.Is(err, purge.ErrPartly) || rep.Count(purge.LeftOver) != 1 {
		t.Fatalf("report %+v, %v", rep, err)
	}
	if s := l.slice(0); s.State != manifest.Purging || s.Staging == "" || len(l.stagings()) != 1 {
		t.Errorf("slice %+v, staging tables %v", s, l.stagings())
	}
	l.safe()
	l.tab.after = nil
	l.afterLease()
	if rep, err := l.purge(now); err != nil {
		t.Fatalf("report %+v, %v", rep, err)
	}
	l.want(0, manifest.Purged, 0)
	l.safe()
}

// A worker that was paused beyond its lease changes nothing after it wakes.
func TestPausedBeyondTheLease(t *testing.T) {
	t.Parallel()
	for step, partitioned := range map[string]bool{purge.StepChunkMarked: byRows, purge.StepChunkDeleted: byRows, purge.StepStagingCreated: byPartition,
		purge.StepExchanged: byPartition, purge.StepCompared: byPartition} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, partitioned, 1, 330)
			l.archiveAll()
			other := l.openTable()
			paused := 0
			rep, err := l.purge(func(c *purge.Config) {
				now(c)
				c.Steps = func(s string) error {
					if s != step {
						return nil
					}
					if paused++; paused > 1 {
						return nil
					}
					l.afterLease()
					p := l.purger(now, other)
					plan, err := p.Plan(t.Context(), purge.Selection{})
					if err != nil {
						t.Error(err)
						return nil
					}
					if rep, err := p.Execute(t.Context(), plan); err != nil {
						t.Errorf("the second worker: %+v, %v", rep, err)
					}
					l.add(l.id(0, 5) + 1) // a late row that the first must leave alone
					return nil
				}
			})
			if err == nil || paused == 0 || rep.Count(purge.Purged) != 0 {
				t.Errorf("the paused worker: %+v, %v", rep, err)
			}
			l.want(0, manifest.Purged, 1)
			if s := l.stagings(); len(s) > 0 {
				t.Errorf("staging tables are left: %v", s)
			}
			l.safe()
		})
	}
}

// Invariant 4: a hold that is added in the middle stops the purge; what is isolated is put back.
func TestHoldInTheMiddle(t *testing.T) {
	t.Parallel()
	for step, partitioned := range map[string]bool{purge.StepChunkRecorded: byRows, purge.StepGranted: byRows, purge.StepStagingCreated: byPartition,
		purge.StepExchanged: byPartition, purge.StepCompared: byPartition} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s crash %t", step, crash), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, partitioned, 1, 330)
				s := l.archive(0)
				var id uint64
				rep, err := l.purge(func(c *purge.Config) {
					now(c)
					c.Steps = func(at string) (err error) {
						if at == step && id == 0 {
							if id, err = l.store.AddHold(t.Context(), manifest.Hold{Kind: manifest.HoldSlice, Subject: s.SliceKey.String(), Reason: "court order", By: "test"}); err != nil {
								t.Error(err)
							}
							if crash {
								return errKilled
							}
						}
						return nil
					}
				})
				if crash {
					if !errors.Is(err, errKilled) {
						t.Fatal(err)
					}
					l.afterLease()
					rep, err = l.purge(now)
					if len(rep.Slices) == 0 { // left by the plan already
						err = purge.ErrRefused
					}
				}
				if !errors.Is(err, purge.ErrRefused) || rep.Count(purge.Purged) != 0 {
					t.Fatalf("report %+v, %v", rep, err)
				}
				left := l.warmCount(0)
				if left == 0 || partitioned && left != 330 || len(l.stagings()) > 0 {
					t.Errorf("%d rows are left, staging tables %v", left, l.stagings())
				}
				if rep, err := l.purge(now); err != nil || len(rep.Slices) != 0 || rep.Left[0].Outcome != purge.Held || l.warmCount(0) != left {
					t.Errorf("while held: %+v, %v", rep, err)
				}
				if err := l.store.ReleaseHold(t.Context(), id, "test"); err != nil {
					t.Fatal(err)
				}
				l.afterLease()
				if rep, err := l.purge(now); err != nil {
					t.Fatalf("after the release: %+v, %v", rep, err)
				}
				l.want(0, manifest.Purged, 0)
				l.safe()
			})
		}
	}
}

// M17: a wrong epoch is refused before anything is touched, also by a table that fits the plan.
func TestWrongEpochRefuses(t *testing.T) {
	t.Parallel()
	strategies(t, func(t *testing.T, partitioned bool) {
		l := newLab(t, partitioned, 1, 120)
		l.archiveAll()
		l.exec("UPDATE " + tableName + " SET create_time = create_time - INTERVAL 400 DAY")
		l.original = l.rows(tableName)
		rep, err := l.purge(now)
		if !errors.Is(err, purge.ErrRefused) || rep.Count(purge.Refused) != 1 {
			t.Fatalf("report %+v, %v", rep, err)
		}
		l.want(0, manifest.Verified, 120)
	})
}

func TestSkewedClockRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t, byRows, 1, 50)
	l.archiveAll()
	for name, by := range map[string]time.Duration{"slow": -2 * time.Minute, "fast": 2 * time.Minute} {
		off := func(c *purge.Config) { now(c); c.Now = func() time.Time { return time.Now().Add(by) } }
		if _, err := l.purger(off).Plan(t.Context(), purge.Selection{}); !errors.Is(err, purge.ErrRefused) {
			t.Errorf("%s: a plan is made: %v", name, err)
		}
		plan, err := l.purger(now).Plan(t.Context(), purge.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.purger(off).Execute(t.Context(), plan); !errors.Is(err, purge.ErrRefused) {
			t.Errorf("%s: a plan is executed: %v", name, err)
		}
		// The warm server's clock alone.
		p := l.purger(now, &otherClock{l.tab, time.Now().Add(by)})
		if plan, err = p.Plan(t.Context(), purge.Selection{}); err != nil {
			t.Fatal(err)
		}
		if rep, err := p.Execute(t.Context(), plan); !errors.Is(err, purge.ErrRefused) || rep.Count(purge.Refused) != 1 {
			t.Errorf("%s warm server: %+v, %v", name, rep, err)
		}
	}
	l.want(0, manifest.Verified, 50)
}
