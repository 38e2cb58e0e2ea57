package clickhouse

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	driver "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

// C1: one bad value ruins its block, and with it the copy; the error names the message and
// the column, the inserter takes nothing more, and a fresh attempt is whole.
func TestBadValueNeverCounts(t *testing.T) {
	t.Parallel()
	good := schema(t, message.Column{Name: "n", Kind: message.Int, Bits: 8, Nullable: true, SourceType: "tinyint"})
	strict := schema(t, message.Column{Name: "n", Kind: message.Int, Bits: 8, SourceType: "tinyint"})
	d := migrated(t, nil, strict)
	for what, value := range map[string]string{"NULL in NOT NULL": null, "not a number, not UTF-8": "\xff"} {
		i, err := d.Insert(testContext(t), copyID("bad"), strict)
		if err != nil {
			t.Fatal(err)
		}
		b := batchOf(t, strict, []string{"41", "7", "1", "a", "1"}, []string{"42", "7", "2", "b", value})
		if err := i.Write(testContext(t), b, 0, b.Len()); err != nil {
			t.Fatal(err)
		}
		err = i.Close(testContext(t))
		if !errors.Is(err, ErrBadValue) || !strings.Contains(err.Error(), "message 42, column n") {
			t.Errorf("%s: %v", what, err)
		}
		if err := i.Write(testContext(t), b, 0, 1); !errors.Is(err, ErrInserter) {
			t.Errorf("%s: the inserter goes on: %v", what, err)
		}
		if err := i.Close(testContext(t)); !errors.Is(err, ErrInserter) {
			t.Errorf("%s: the inserter closes as if all were well: %v", what, err)
		}
	}
	if n := readAll(t, d, copyID("bad"), strict).Len(); n != 0 {
		t.Errorf("%d rows of a failed block are there", n)
	}
	other := batchOf(t, good, []string{"1", "7", "1", "a", null})
	i, err := d.Insert(testContext(t), copyID("bad"), strict)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Write(testContext(t), other, 0, 1); err == nil {
		t.Error("rows of another schema are taken")
	}
	want := batchOf(t, strict, []string{"41", "7", "1", "a", "1"}, []string{"42", "7", "2", "b", "2"})
	insert(t, d, copyID("good"), want)
	wantEqual(t, readAll(t, d, copyID("good"), strict), want)
}

// C2: a slice that is copied twice has N rows in each copy; the same block sent twice is N
// rows; dropped and inserted again, N rows.
func TestSameBlockAgain(t *testing.T) {
	t.Parallel()
	s := schema(t)
	d := migrated(t, nil, s)
	want := plain(t, s, 20, 30)
	insert(t, d, copyID("a1"), want)
	insert(t, d, copyID("a1"), want)
	insert(t, d, copyID("a2"), want)
	for _, a := range []string{"a1", "a2"} {
		wantEqual(t, readAll(t, d, copyID(a), s), want)
	}
	for range 2 { // repeatable
		if err := d.Drop(testContext(t), copyID("a1")); err != nil {
			t.Fatal(err)
		}
	}
	if n := readAll(t, d, copyID("a1"), s).Len(); n != 0 {
		t.Errorf("%d rows are left after the drop", n)
	}
	wantEqual(t, readAll(t, d, copyID("a2"), s), want)
	insert(t, d, copyID("a1"), want)
	wantEqual(t, readAll(t, d, copyID("a1"), s), want)
	if err := d.exec(testContext(t), "OPTIMIZE TABLE "+d.qualified(tableName)+" FINAL"); err != nil { // merges collapse, and lose nothing
		t.Fatal(err)
	}
	for _, a := range []string{"a1", "a2"} {
		wantEqual(t, readAll(t, d, copyID(a), s), want)
	}
	if n, err := d.count(testContext(t), "SELECT count() FROM "+d.qualified(tableName)); err != nil || n != uint64(2*want.Len()) {
		t.Errorf("%d rows in the table, want %d, %v", n, 2*want.Len(), err)
	}
	if err := d.Drop(testContext(t), copyID("never there")); err != nil {
		t.Errorf("dropping nothing: %v", err)
	}
	if err := open(t, stack.NewClickHouse(t), nil).Drop(testContext(t), copyID("a1")); err != nil {
		t.Errorf("dropping without a table: %v", err)
	}
}

// Rows of one key that differ are a mismatch for whoever compares, never silently one.
func TestDifferentRowsOfOneKeyBothShow(t *testing.T) {
	t.Parallel()
	s := schema(t)
	d := migrated(t, nil, s)
	insert(t, d, copyID("a"), batchOf(t, s, []string{"1", "7", "1", "one"}))
	insert(t, d, copyID("a"), batchOf(t, s, []string{"1", "7", "1", "other"}))
	n := 0
	if err := d.ReadCopy(testContext(t), copyID("a"), s, func(b *message.Batch) error { n += b.Len(); return nil }); err != nil || n != 2 {
		t.Errorf("%d rows, %v", n, err)
	}
	if b, err := readPage(testContext(t), d, []CopyID{copyID("a")}, s, pageQuery{Conversation: []byte("7"), Limit: 10}); err != nil || b.Len() != 2 {
		t.Errorf("the page has %d rows, %v", b.Len(), err)
	}
}

// C4, C7: what a profile says about asynchronous inserts, missing shards and cut results
// does not reach this connection.
func TestSettingsArePinned(t *testing.T) {
	t.Parallel()
	s := schema(t)
	d := migrated(t, nil, s)
	for name, want := range d.srv.settings(d.cfg) {
		var value string
		if err := d.query(testContext(t), nil, "SELECT value FROM system.settings WHERE name = "+quote(name), func(scan func(...any) error) error { return scan(&value) }); err != nil {
			t.Fatal(err)
		}
		if name != "max_execution_time" && value != fmt.Sprint(want) { // the driver takes the deadline's
			t.Errorf("setting %s is %q, want %v", name, value, want)
		}
	}
	if d.srv.asyncInserts() {
		d.conn = withSettings{d.conn, driver.Settings{"timeout_overflow_mode": "break"}}
		if err := d.refuseCutResults(testContext(t)); !errors.Is(err, ErrPartial) || !strings.Contains(err.Error(), "timeout_overflow_mode") {
			t.Errorf("a profile that cuts results is taken: %v", err)
		}
	}
}

// C7: a shard that is away is an error, not a shorter answer.
func TestMissingShardIsAnError(t *testing.T) {
	t.Parallel()
	ch := stack.NewClickHouse(t)
	if ch.Protocol != "native" {
		t.Skip("the server has no native port for shards to be reached by")
	}
	d := open(t, ch, nil)
	shards := "SELECT toUInt64(count()) FROM remote('" + ch.Addr + ",127.0.0.1:1', system.one)"
	if n, err := d.count(testContext(t), shards); err == nil {
		t.Errorf("two shards, one of them away, answer %d", n)
	} else if !errors.Is(err, ErrUnreachable) {
		t.Errorf("a missing shard: %v", err)
	}
	var n uint64
	plain := driver.Context(testContext(t), driver.WithSettings(driver.Settings{"skip_unavailable_shards": 1}))
	if err := ch.Open(t).QueryRow(plain, shards).Scan(&n); err != nil || n != 1 {
		t.Errorf("the trap is not one on this server: %d, %v", n, err)
	}
}

// C5: 5,000 small conversations are one insert, and 150 days are 150.
func TestFewBigInserts(t *testing.T) {
	t.Parallel()
	s := schema(t)
	d := migrated(t, nil, s)
	small := plain(t, s, 5000, 4)
	i, err := d.Insert(testContext(t), copyID("small"), s)
	if err != nil {
		t.Fatal(err)
	}
	for row := range small.Len() {
		if err := i.Write(testContext(t), small, row, row+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := i.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	parts := func() uint64 {
		n, err := d.count(testContext(t), "SELECT count() FROM system.parts WHERE database = "+quote(d.cfg.Database))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := parts(); n != 1 {
		t.Errorf("5,000 small conversations made %d parts, want 1", n)
	}
	wantEqual(t, readAll(t, d, copyID("small"), s), small)
	day := plain(t, s, 10, 4)
	for n := range 150 {
		id := copyID(fmt.Sprintf("day%d", n))
		id.Day = id.Day.Add(n)
		insert(t, d, id, day)
	}
	n, err := d.count(testContext(t), "SELECT count() FROM "+d.qualified(tableName))
	if err != nil || n != uint64(small.Len()+150*day.Len()) {
		t.Errorf("%d rows, %v", n, err)
	}
}

// Blocks are cut by rows and by bytes.
func TestBlocksAreCut(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for what, limit := range map[string]func(*Config){"rows": func(c *Config) { c.BlockRows = 10 }, "bytes": func(c *Config) { c.BlockBytes = 1000 }} {
		d := migrated(t, limit, s)
		want := plain(t, s, 3, 30)
		insert(t, d, copyID("a"), want)
		n, err := d.count(testContext(t), "SELECT toUInt64(max(max_block_number) - min(min_block_number) + 1) FROM system.parts WHERE database = "+quote(d.cfg.Database))
		if err != nil || n < 5 {
			t.Errorf("by %s: %d blocks, %v", what, n, err)
		}
		wantEqual(t, readAll(t, d, copyID("a"), s), want)
	}
}

// C6: what is stored is the exact instant, whatever the zone of this process; the server
// says so itself, past our codecs. NULL is NULL.
func TestExactInstants(t *testing.T) {
	if zone := os.Getenv("COLDTIER_TEST_ZONE_CHILD"); zone == "" {
		for _, z := range []string{"America/New_York", "Asia/Kolkata", "UTC"} {
			cmd := exec.CommandContext(testContext(t), os.Args[0], "-test.run=^(TestExactInstants|TestNastyValuesComeBack)$", "-test.v")
			cmd.Env = append(os.Environ(), "TZ="+z, "COLDTIER_TEST_ZONE_CHILD="+z)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("in zone %s: %v\n%s", z, err, out)
			}
		}
		return
	}
	s := schema(t,
		message.Column{Name: "ts", Kind: message.Timestamp, Nullable: true, SourceType: "timestamp"},
		message.Column{Name: "dt", Kind: message.DateTime, Scale: 3, Nullable: true, SourceType: "datetime(3)"},
		message.Column{Name: "da", Kind: message.Date, Nullable: true, SourceType: "date"})
	d := migrated(t, nil, s)
	insert(t, d, copyID("a"), batchOf(t, s, []string{"1", "7", "1", null, "2026-03-08 02:30:00", "2026-07-24 00:00:00.123", "2026-03-08"}, []string{"2", "7", "2", null, null, null, null}))
	dt, want := "toString(dt)", "2026-07-24 00:00:00.123"
	if d.srv.dateTime64() {
		dt, want = "toString(toUnixTimestamp64Milli(dt))", "1784851200123"
	}
	var ts, dts, da *string
	err := d.query(testContext(t), nil, "SELECT toString(toUInt32(ts)), "+dt+", toString(da) FROM "+d.qualified(tableName)+" WHERE msg_id = 1", func(scan func(...any) error) error { return scan(&ts, &dts, &da) })
	if err != nil || ts == nil || dts == nil || da == nil || *ts != "1772937000" || *dts != want || *da != "2026-03-08" {
		t.Fatalf("stored are %v %v %v, %v", ts, dts, da, err)
	}
	if n, err := d.count(testContext(t), "SELECT count() FROM "+d.qualified(tableName)+" WHERE msg_id = 2 AND isNull(ts) AND isNull(dt) AND isNull(da)"); err != nil || n != 1 {
		t.Errorf("NULL is not NULL: %d, %v", n, err)
	}
}
