package warm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

const staging = StagingPrefix + "test"

// parted is a table of 1,000 rows, IDs 10..10000, in partitions that end at 2000, 4000, 2^63+5
// and MAXVALUE.
func parted(t testing.TB) (*bench, *Table) {
	t.Helper()
	b := newBench(t)
	b.exec(`CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL, conv BIGINT NOT NULL, body MEDIUMBLOB NOT NULL, note VARCHAR(100) NULL, len BIGINT AS (LENGTH(body)) STORED, PRIMARY KEY (id), KEY (conv))
		PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (2000), PARTITION p1 VALUES LESS THAN (4000), PARTITION p2 VALUES LESS THAN (9223372036854775813), PARTITION p3 VALUES LESS THAN MAXVALUE)`)
	b.exec("CREATE TABLE seed (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, body MEDIUMBLOB NOT NULL, note VARCHAR(100) NULL)")
	b.fill("seed", 0, 1000)
	b.exec("INSERT INTO msg (id, conv, body, note) SELECT * FROM seed")
	b.cfg.ChunkRows = 50
	return b, b.table()
}

func TestPartitionsAreFound(t *testing.T) {
	t.Parallel()
	b, tab := parted(t)
	for _, c := range []struct {
		lo, hi uint64
		want   Partition
	}{
		{0, 2000, Partition{"p0", 0, 2000}},
		{2000, 4000, Partition{"p1", 2000, 4000}},
		{2500, 3000, Partition{"p1", 2000, 4000}},
		{1 << 63, 1<<63 + 5, Partition{"p2", 4000, 1<<63 + 5}},
		{1000, 2001, Partition{}},
		{1 << 63, 1<<63 + 6, Partition{}},
		{1<<63 + 5, 1<<63 + 6, Partition{}}, // MAXVALUE: where new messages arrive
	} {
		p, ok, err := tab.Partition(t.Context(), c.lo, c.hi)
		if err != nil || p != c.want || ok != (c.want.Name != "") {
			t.Errorf("[%d, %d) is in %v, want %v: %v", c.lo, c.hi, p, c.want, err)
		}
	}
	b.exec("CREATE TRIGGER tr AFTER INSERT ON msg FOR EACH ROW SET @x = 1")
	if _, ok, err := tab.Partition(t.Context(), 0, 10); ok || err != nil {
		t.Errorf("a table with triggers has an exchangeable partition (%v)", err)
	}
	for ddl, fits := range map[string]bool{
		"PARTITION BY RANGE COLUMNS (id) (PARTITION `p``x` VALUES LESS THAN (100), PARTITION q VALUES LESS THAN (MAXVALUE))": true,
		"PARTITION BY RANGE (id DIV 100) (PARTITION p VALUES LESS THAN (100), PARTITION q VALUES LESS THAN MAXVALUE)":        false,
		"PARTITION BY HASH (id) PARTITIONS 4":                      false,
		"PARTITION BY LIST (id) (PARTITION p VALUES IN (1, 2, 3))": false,
		"PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 (PARTITION p VALUES LESS THAN (100), PARTITION q VALUES LESS THAN MAXVALUE)": false,
		"": false,
	} {
		b := newBench(t)
		b.exec("CREATE TABLE msg (id BIGINT NOT NULL PRIMARY KEY, conv BIGINT NOT NULL) " + ddl)
		if _, ok, err := b.table().Partition(t.Context(), 0, 100); ok != fits || err != nil {
			t.Errorf("%s: fits %v (%v)", ddl, ok, err)
		}
	}
}

func exchanged(t testing.TB, tab *Table, lo, hi uint64) {
	t.Helper()
	p, ok, err := tab.Partition(t.Context(), lo, hi)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := tab.CreateStaging(t.Context(), staging); err != nil {
		t.Fatal(err)
	}
	if err := tab.Exchange(t.Context(), p, staging); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) exists(table string) bool {
	b.t.Helper()
	return b.count("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?", table) == 1
}

// The whole way: two slices in one partition, exchanged, compared, dropped.
func TestPartitionGoesWhole(t *testing.T) {
	t.Parallel()
	b, tab := parted(t)
	bk := newBook(t)
	g1, g2 := bk.grant(tab, 2000, 3000), bk.grant(tab, 3000, 4000)
	_, rest, _ := scanAll(t, tab, 4000, 1<<63)
	exchanged(t, tab, 2000, 4000)
	if ok, err := tab.StagingExists(t.Context(), staging); !ok || err != nil {
		t.Error(ok, err)
	}
	f, err := tab.StagingFingerprint(t.Context(), staging, 2000, 3000)
	if err != nil || f != g1.Copy().Fingerprint() {
		t.Errorf("isolated rows are %s, archived %s: %v", f, g1.Copy().Fingerprint(), err)
	}
	if n := b.count("SELECT COUNT(*) FROM msg WHERE id >= 2000 AND id < 4000"); n != 0 {
		t.Errorf("%d rows are still in the table", n)
	}
	// One slice's grant does not let the other's rows go.
	for _, gs := range [][]*manifest.PurgeGrant{nil, {g1}, {g2}, {g1, nil}, {g1, {}}} {
		if err := tab.DropStaging(t.Context(), gs, staging); err == nil {
			t.Fatalf("%d grants were enough", len(gs))
		}
	}
	if err := tab.DropStaging(t.Context(), []*manifest.PurgeGrant{g1, g2}, staging); err != nil {
		t.Fatal(err)
	}
	if ok, err := tab.StagingExists(t.Context(), staging); ok || err != nil {
		t.Error(ok, err)
	}
	if _, now, _ := scanAll(t, tab, 4000, 1<<63); now != rest || b.count("SELECT COUNT(*) FROM msg") != 800 {
		t.Errorf("the other rows are %s, were %s", now, rest)
	}
}

func TestDropRefusesWhatDiffers(t *testing.T) {
	t.Parallel()
	bk := newBook(t)
	for name, spoil := range map[string]func(*bench, *book, *manifest.PurgeGrant){
		"row edited": func(b *bench, _ *book, _ *manifest.PurgeGrant) {
			b.exec("UPDATE " + staging + " SET body = 'x' WHERE id = 2500")
		},
		"row added": func(b *bench, _ *book, _ *manifest.PurgeGrant) {
			b.exec("INSERT INTO " + staging + " (id, conv, body) VALUES (2501, 1, '')")
		},
		"foreign row": func(b *bench, _ *book, _ *manifest.PurgeGrant) {
			b.exec("INSERT INTO " + staging + " (id, conv, body) VALUES (999999, 1, '')")
		},
		"highest ID": func(b *bench, _ *book, _ *manifest.PurgeGrant) {
			b.exec("INSERT INTO " + staging + " (id, conv, body) VALUES (18446744073709551615, 1, '')")
		},
		"row removed": func(b *bench, _ *book, _ *manifest.PurgeGrant) { b.exec("DELETE FROM " + staging + " WHERE id = 2500") },
		"column added": func(b *bench, _ *book, _ *manifest.PurgeGrant) {
			b.exec("ALTER TABLE " + staging + " ADD extra INT NULL")
		},
		"held": func(_ *bench, bk *book, g *manifest.PurgeGrant) { bk.hold(g) },
	} {
		b, tab := parted(t)
		g := bk.grant(tab, 2000, 4000)
		exchanged(t, tab, 2000, 4000)
		spoil(b, bk, g)
		err := tab.DropStaging(t.Context(), []*manifest.PurgeGrant{g}, staging)
		if want := map[bool]error{true: manifest.ErrHeld, false: ErrDrift}[name == "held"]; !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		if !b.exists(staging) {
			t.Errorf("%s: the rows are gone", name)
		}
	}
	_, tab := parted(t)
	for _, name := range []string{"msg", "seed", "", StagingPrefix + strings.Repeat("x", 60)} {
		if err := tab.DropStaging(t.Context(), []*manifest.PurgeGrant{{}}, name); err == nil {
			t.Errorf("%q was dropped", name)
		}
		if err := tab.CreateStaging(t.Context(), name); err == nil {
			t.Errorf("%q was created", name)
		}
		if err := tab.ReturnStaging(t.Context(), name); err == nil {
			t.Errorf("%q was returned", name)
		}
	}
}

// M13: somebody's long SELECT holds the metadata lock. The exchange gives up at once,
// and a hundred other queries a second hardly notice.
func TestExchangeGivesWayToReaders(t *testing.T) {
	t.Parallel()
	b, tab := parted(t)
	if err := tab.CreateStaging(t.Context(), staging); err != nil {
		t.Fatal(err)
	}
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM msg").Scan(&n); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	took := map[string][]time.Duration{}
	var wg sync.WaitGroup
	for i := range 8 {
		table := []string{"msg", "seed"}[i%2] // of the other one no lock is waited for
		wg.Go(func() {
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				begun := time.Now()
				var n int
				if err := b.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table+" WHERE id = 500").Scan(&n); err != nil {
					t.Error(err)
				}
				mu.Lock()
				took[table] = append(took[table], time.Since(begun))
				mu.Unlock()
			}
		})
	}
	eventually(t, "both tables are read", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(took["msg"]) > 0 && len(took["seed"]) > 0
	})
	p := Partition{"p1", 2000, 4000}
	begun := time.Now()
	err = tab.Exchange(t.Context(), p, staging)
	if d := time.Since(begun); !errors.Is(err, ErrLocked) || d > DefaultStatementLimit/2 {
		t.Errorf("after %s: %v", d, err)
	}
	stop()
	wg.Wait()
	// The server would end the wait after a second. The product looks before, and kills it: two
	// statements, which take on a busy machine what others take.
	worst, usual := slices.Max(took["msg"]), slices.Max(took["seed"])
	if worst > 900*time.Millisecond+3*usual {
		t.Errorf("the slowest of %d queries took %s, of another table %s", len(took["msg"]), worst, usual)
	} else {
		t.Logf("the slowest of %d queries took %s, of another table %s", len(took["msg"]), worst, usual)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := tab.Exchange(t.Context(), p, staging); err != nil {
		t.Errorf("when the reader is gone: %v", err)
	}
	if b.count("SELECT COUNT(*) FROM "+staging) != 200 || b.count("SELECT COUNT(*) FROM msg") != 800 {
		t.Error("the partition was not exchanged")
	}
}

// M16: rows that do not belong in the partition never get into it.
func TestExchangeRefusesForeignRows(t *testing.T) {
	t.Parallel()
	b, tab := parted(t)
	if err := tab.CreateStaging(t.Context(), staging); err != nil {
		t.Fatal(err)
	}
	b.exec("INSERT INTO " + staging + " (id, conv, body) VALUES (9000001, 1, 'foreign')")
	p := Partition{"p1", 2000, 4000}
	if err := tab.Exchange(t.Context(), p, staging); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("exchange with a staging table that has rows: %v", err)
	}
	s, err := tab.d.ddl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close(t.Context())
	if err := tab.swap(t.Context(), s, p, staging); !errors.Is(err, ErrIncompatible) {
		t.Errorf("the server took it: %v", err)
	}
	b.exec("DELETE FROM " + staging)
	b.exec("ALTER TABLE " + staging + " ADD COLUMN other INT NULL")
	if err := tab.Exchange(t.Context(), p, staging); !errors.Is(err, ErrIncompatible) {
		t.Errorf("exchange with another definition: %v", err)
	}
	if n := b.count("SELECT COUNT(*) FROM msg"); n != 1000 {
		t.Errorf("%d rows", n)
	}
}

// Columns that were added without a rebuild are in the partition's rows, too.
func TestExchangeAfterInstantColumns(t *testing.T) {
	t.Parallel()
	b, tab := parted(t)
	b.exec("ALTER TABLE msg ADD COLUMN extra VARCHAR(20) NOT NULL DEFAULT 'déf', ALGORITHM=INSTANT")
	b.exec("UPDATE msg SET extra = 'new' WHERE id < 2500")
	if err := tab.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := newBook(t).grant(tab, 2000, 4000)
	if err := tab.CreateStaging(t.Context(), staging); err != nil {
		t.Fatal(err)
	}
	err := tab.Exchange(t.Context(), Partition{"p1", 2000, 4000}, staging)
	switch {
	case errors.Is(err, ErrIncompatible):
		t.Logf("refused, so the rows go one by one: %v", err)
		if f, err := tab.Fingerprint(t.Context(), 2000, 4000); err != nil || f != g.Copy().Fingerprint() {
			t.Errorf("rows are %s: %v", f, err)
		}
		return
	case err != nil:
		t.Fatal(err)
	}
	if f, err := tab.StagingFingerprint(t.Context(), staging, 2000, 4000); err != nil || f != g.Copy().Fingerprint() {
		t.Errorf("isolated rows are %s, archived %s: %v", f, g.Copy().Fingerprint(), err)
	}
	if err := tab.ReturnStaging(t.Context(), staging); err != nil {
		t.Fatal(err)
	}
	if f, err := tab.Fingerprint(t.Context(), 2000, 4000); err != nil || f != g.Copy().Fingerprint() {
		t.Errorf("returned rows are %s: %v", f, err)
	}
}
