package crash

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
)

// What is killed where, each on a day of its own. STEP:2 is the second time.
var (
	archiveSteps = []string{"archive.claimed", "archive.scanned", "archive.stored", "archive.record-put", "archive.committed", "archive.checked", "archive.verified"}
	rowsSteps    = []string{purge.StepClaimed, purge.StepGranted, purge.StepChunkMarked, purge.StepChunkMarked + ":2", purge.StepChunkDeleted, purge.StepChunkDeleted + ":2",
		purge.StepChunkRecorded, purge.StepBeforePurged, purge.StepPurgedMarked}
	partitionSteps = []string{purge.StepClaimed, purge.StepGranted, purge.StepStagingRecorded, purge.StepStagingMarked, purge.StepStagingCreated, purge.StepExchanged, purge.StepCompared, purge.StepDropped}
	differSteps    = []string{purge.StepExchanged, purge.StepDiffers, purge.StepReturned}
	sharedSteps    = []string{purge.StepReturnedRecorded}
)

// A step that is added gets its kill too.
func TestEveryStepIsKilled(t *testing.T) {
	t.Parallel()
	killed := map[string]bool{}
	for _, s := range slices.Concat(archiveSteps, verifySteps, rowsSteps, partitionSteps, differSteps, sharedSteps) {
		name, _, _ := strings.Cut(s, ":")
		killed[name] = true
	}
	steps := purge.StepNames()
	files, err := filepath.Glob("../../archive/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\.step\(ctx, "([^"]+)"\)`).FindAllStringSubmatch(string(text), -1) {
			steps = append(steps, m[1])
		}
	}
	if len(steps) != len(killed) {
		t.Errorf("the program has %d steps, %d are killed", len(steps), len(killed))
	}
	for _, s := range steps {
		if !killed[s] {
			t.Errorf("no test kills at step %s", s)
		}
	}
}

// orphaned checks that only those days have leftovers on which the kill came
// between the first object and the commit record.
func (l *lab) orphaned(steps []string) {
	l.T.Helper()
	left := l.leftovers()
	for i, s := range steps {
		if want := s == "archive.stored"; left[l.Days[i]] != want {
			l.T.Errorf("killed at %s: leftovers of no generation %v, want %v", s, left[l.Days[i]], want)
		}
	}
}

// The first generation, killed at each step.
func TestKilledArchive(t *testing.T) {
	t.Parallel()
	l := setup(t, harness.Options{Days: len(archiveSteps), Seed: 41})
	l.killEach(archiveSteps, "archive")
	l.expire()
	l.Must("archive")
	l.generations(archiveSteps, 1)
	l.finish()
}

// A dead worker's slice is another's when its lease has run out, and not before.
func TestLeaseOfADeadWorkerRunsOut(t *testing.T) {
	t.Parallel()
	l := setup(t, harness.Options{Seed: 47, Config: map[string]string{"manifest": "lease: 5s"}})
	for _, at := range []string{"archive.claimed", purge.StepClaimed} {
		verb, _, _ := strings.Cut(at, ".")
		l.kill(at, verb)
		if r := l.Run(verb); l.leases() > 0 && r.Exit != 5 {
			t.Errorf("the lease lasts, want exit code 5: %s", r)
		}
		l.until(verb)
	}
	l.finish()
}

// The second generation, which carries rows that the purge has deleted already.
func TestKilledArchiveOfTheNextGeneration(t *testing.T) {
	t.Parallel()
	l := setup(t, harness.Options{Days: len(archiveSteps), Seed: 42, Strategy: "rows"})
	l.Must("archive")
	n := l.Count()
	for i := range archiveSteps {
		l.edit(l.last(i))
	}
	l.Expect(4, []string{"drift"}, "purge")
	if c := l.Count(); c == 0 || c == n {
		t.Fatalf("%d of %d rows are left: some chunks should be gone, some not", c, n)
	}
	l.killEach(archiveSteps, "archive")
	l.expire()
	l.Must("archive")
	l.generations(archiveSteps, 2)
	l.finish()
}

func (l *lab) killEach(steps []string, verb string) {
	l.T.Helper()
	for i, s := range steps {
		l.kill(s, append([]string{verb}, l.day(i)...)...)
		l.verdict()
	}
}

// generations checks what one further run made of the slices: each is verified, in
// no more generations than needed.
func (l *lab) generations(steps []string, want uint32) {
	l.T.Helper()
	l.verdict()
	l.orphaned(steps)
	for _, s := range l.slices() {
		if s.State != manifest.Verified || s.Generation != want || s.Live != want || s.Failed {
			l.T.Errorf("slice %s is %s, generation %d, live %d, failed %v (%s)", s.SliceKey, s.State, s.Generation, s.Live, s.Failed, s.Error)
		}
	}
}

// One further run finishes the purge when nothing was changed.
func TestKilledPurge(t *testing.T) {
	t.Parallel()
	for strategy, steps := range map[string][]string{"rows": rowsSteps, "partition": partitionSteps} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			l := setup(t, harness.Options{Days: len(steps), Seed: 43, Strategy: strategy, Partitioned: strategy == "partition"})
			l.Must("archive")
			l.killEach(steps, "purge")
			l.purgedOnce()
			l.orphaned(steps)
		})
	}
}

// purgedOnce demands that one further run purges all that was archived once.
func (l *lab) purgedOnce() {
	l.T.Helper()
	l.expire()
	l.Must("purge")
	if n := l.Count(); n != 0 {
		l.T.Errorf("%d rows are left in warm", n)
	}
	for _, s := range l.slices() {
		if s.State != manifest.Purged || s.Generation != 1 {
			l.T.Errorf("slice %s is %s, generation %d", s.SliceKey, s.State, s.Generation)
		}
	}
	l.finish()
}

// The run that puts things right is killed as well.
func TestKilledAgain(t *testing.T) {
	t.Parallel()
	twice := func(l *lab, verb string, pairs [][2]string) {
		for i, p := range pairs {
			args := append([]string{verb}, l.day(i)...)
			l.kill(p[0], args...)
			l.expire()
			l.kill(p[1], args...)
			l.verdict()
		}
	}
	t.Run("rows", func(t *testing.T) {
		t.Parallel()
		archives := [][2]string{{"archive.stored", "archive.stored"}, {"archive.record-put", "archive.committed"}, {"archive.committed", "archive.checked"}}
		l := setup(t, harness.Options{Days: len(archives), Seed: 48, Strategy: "rows"})
		twice(l, "archive", archives)
		l.expire()
		l.Must("archive")
		twice(l, "purge", [][2]string{{purge.StepChunkMarked, purge.StepChunkMarked}, {purge.StepChunkDeleted, purge.StepChunkRecorded}, {purge.StepChunkMarked, purge.StepChunkDeleted}})
		l.purgedOnce()
	})
	t.Run("partition", func(t *testing.T) {
		t.Parallel()
		pairs := [][2]string{
			{purge.StepStagingRecorded, purge.StepStagingRecorded}, {purge.StepStagingCreated, purge.StepReturned}, {purge.StepStagingCreated, purge.StepExchanged},
			{purge.StepExchanged, purge.StepCompared}, {purge.StepExchanged, purge.StepDropped}, {purge.StepCompared, purge.StepDropped}, {purge.StepDropped, purge.StepGranted},
		}
		l := setup(t, harness.Options{Days: len(pairs), Seed: 49, Strategy: "partition", Partitioned: true})
		l.Must("archive")
		twice(l, "purge", pairs)
		l.purgedOnce()
	})
}

// Between the kill and the further run rows are edited and inserted. What MySQL has
// of them then is never lost.
func TestKilledPurgeThenChanges(t *testing.T) {
	t.Parallel()
	for strategy, steps := range map[string][]string{"rows": rowsSteps, "partition": partitionSteps} {
		for _, what := range []string{"edited", "late"} {
			t.Run(strategy+"_"+what, func(t *testing.T) {
				t.Parallel()
				l := setup(t, harness.Options{Days: len(steps), Seed: 44, Strategy: strategy, Partitioned: strategy == "partition"})
				l.Must("archive")
				for i, s := range steps {
					l.kill(s, append([]string{"purge"}, l.day(i)...)...)
					ids := l.ids(i)
					for _, id := range []uint64{ids[0], ids[len(ids)-1]} {
						if what == "late" {
							l.late(id)
						} else {
							l.edit(id) // of what is gone or isolated there is nothing to edit
						}
					}
				}
				l.verdict()
				l.expire()
				if r := l.Run("purge"); r.Exit != 4 && r.Exit != 3 {
					t.Errorf("want drift: %s", r)
				}
				l.verdict()
				l.finish()
				l.orphaned(steps)
			})
		}
	}
}

// Drift met by the exchange: the rows are put back, through a crash as well, and
// with rows that arrived meanwhile.
func TestKilledReturnOfAPartition(t *testing.T) {
	t.Parallel()
	l := setup(t, harness.Options{Days: len(differSteps), Seed: 45, Strategy: "partition", Partitioned: true})
	l.Must("archive")
	for i, s := range differSteps {
		l.edit(l.last(i))
		l.kill(s, append([]string{"purge"}, l.day(i)...)...)
		l.verdict()
		l.late(l.ids(i)[0])
		l.verdict()
	}
	l.expire()
	n := len(l.want())
	r := l.Run("purge")
	if r.Exit != 4 && r.Exit != 3 {
		t.Errorf("want drift: %s", r)
	}
	if c := l.Count(); c != n || len(l.stagings()) > 0 {
		t.Errorf("%d of %d rows are in the table, staging tables %v: %s", c, n, l.stagings(), r)
	}
	l.finish()
	l.orphaned(differSteps)
}

// A partition of two slices is put back: the crash comes between the two notes of it.
func TestKilledReturnOfASharedPartition(t *testing.T) {
	t.Parallel()
	l := setup(t, harness.Options{Days: 2, Seed: 46, Strategy: "partition", Partitioned: true})
	name := func(i int) string { return "p" + strings.ReplaceAll(l.Days[i].String(), "-", "") }
	_, hi := l.Window(l.Days[1])
	l.SQL("ALTER TABLE "+l.table+" REORGANIZE PARTITION "+name(0)+", "+name(1)+" INTO (PARTITION two VALUES LESS THAN (?))", hi)
	l.Must("archive")
	l.edit(l.last(1))
	l.kill(sharedSteps[0], "purge")
	l.verdict()
	l.expire()
	if r := l.Run("purge"); r.Exit != 4 && r.Exit != 3 {
		t.Errorf("want drift: %s", r)
	}
	l.verdict()
	l.finish()
	l.orphaned([]string{"", ""})
}
