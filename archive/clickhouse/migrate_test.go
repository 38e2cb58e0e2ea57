package clickhouse

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

func mustMigrate(t *testing.T, d *DB, dry bool, schemas ...*message.Schema) []string {
	t.Helper()
	st, err := d.Migrate(testContext(t), schemas, dry)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestMigrateIsRepeatableAndDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	ch := stack.NewClickHouse(t)
	ch.Database += "_new" // the database is Migrate's to make
	d := open(t, ch, nil)
	t.Cleanup(func() { _ = ch.Open(t).Exec(testContext(t), "DROP DATABASE IF EXISTS "+ch.Database) })
	defs, _ := nasty()
	s := schema(t, defs...)
	if err := d.Check(testContext(t)); !errors.Is(err, ErrNoTable) {
		t.Errorf("check without a table: %v", err)
	}
	dry := mustMigrate(t, d, true, s)
	if len(dry) != 2 || !strings.HasPrefix(dry[0], "CREATE DATABASE") || !strings.HasPrefix(dry[1], "CREATE TABLE") {
		t.Fatalf("the dry run says %q", dry)
	}
	if err := d.Check(testContext(t)); !errors.Is(err, ErrNoTable) {
		t.Errorf("the dry run made the table: %v", err)
	}
	if done := mustMigrate(t, d, false, s); strings.Join(done, ";") != strings.Join(dry, ";") {
		t.Errorf("the dry run said %q, and then %q was done", dry, done)
	}
	if again := mustMigrate(t, d, false, s); len(again) != 0 {
		t.Errorf("a second migration does %q", again)
	}
	if err := d.Check(testContext(t)); err != nil {
		t.Errorf("check: %v", err)
	}
}

// A column that is added later is added here; rows that were there read as NULL in it,
// not as 0 or ” (P8), and widened columns keep their values.
func TestMigrateAddsAndWidensColumns(t *testing.T) {
	t.Parallel()
	num := message.Column{Name: "num", Kind: message.Int, Bits: 32, SourceType: "int"}
	note := message.Column{Name: "note", Kind: message.Text, SourceType: "varchar(10)"}
	old := schema(t, num, note)
	d := migrated(t, nil, old)
	before := batchOf(t, old, []string{"1", "7", "1", "a", "-2147483648", "n"})
	insert(t, d, copyID("old"), before)

	num.Bits, num.Nullable, note.Nullable = 64, true, true
	tag := message.Column{Name: "tag", Kind: message.Text, SourceType: "varchar(10)"}
	at := message.Column{Name: "at", Kind: message.DateTime, Scale: 3, SourceType: "datetime(3)"}
	wide := schema(t, num, note, tag, at)
	if _, err := d.Insert(testContext(t), copyID("new"), wide); !errors.Is(err, ErrNoTable) || !strings.Contains(err.Error(), "migrate") {
		t.Errorf("insert before the migration: %v", err)
	}
	if st := mustMigrate(t, d, false, old, wide); len(st) != 4 {
		t.Errorf("the migration does %q", st)
	}
	if st := mustMigrate(t, d, false, old, wide); len(st) != 0 {
		t.Errorf("a second migration does %q", st)
	}
	after := batchOf(t, wide, []string{"2", "7", "2", "b", "9223372036854775807", null, "", "0000-00-00 00:00:00.000"}, []string{"3", "7", "3", "b", null, "", "t", "2026-07-24 00:00:00.123"})
	insert(t, d, copyID("new"), after)
	wantEqual(t, readAll(t, d, copyID("new"), wide), after)
	wantEqual(t, readAll(t, d, copyID("old"), old), before)
	wantEqual(t, readAll(t, d, copyID("old"), wide), batchOf(t, wide, []string{"1", "7", "1", "a", "-2147483648", "n", null, null}))
}

func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	text := schema(t, message.Column{Name: "x", Kind: message.Text, SourceType: "varchar(20)"})
	number := schema(t, message.Column{Name: "x", Kind: message.Int, Bits: 32, SourceType: "int(11)"})
	d := migrated(t, nil, number)
	refused := func(what string, schemas []*message.Schema, words ...string) {
		t.Helper()
		_, err := d.Migrate(testContext(t), schemas, false)
		if err == nil {
			t.Errorf("%s: taken", what)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in: %v", what, w, err)
			}
		}
	}
	refused("two types for one name", []*message.Schema{text, number}, "column x", "varchar(20)", "int(11)")
	refused("another type than the table's", []*message.Schema{text}, "column x", "varchar(20)", "Int32")
	refused("no schema", nil, "no warm tables")
	refused("a service column", []*message.Schema{schema(t, message.Column{Name: "_attempt", Kind: message.Text})}, "_attempt", "rename")
	refused("a name the driver breaks", []*message.Schema{schema(t, message.Column{Name: "a`b", Kind: message.Text})}, "a`b")
	other, err := message.NewSchema(number.Columns(), map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "session_id"})
	if err != nil {
		t.Fatal(err)
	}
	refused("other roles in another table", []*message.Schema{number, other}, "seq")
	refused("other roles than the table's", []*message.Schema{other}, "seq", "key")
	narrow := newSchema(t, []message.Column{{Name: "msg_id", Kind: message.Uint, Bits: 64}, {Name: "session_id", Kind: message.Text}, {Name: "seq", Kind: message.Uint, Bits: 64}})
	refused("another conversation ID", []*message.Schema{narrow}, "session_id", "Int64")
	if st := mustMigrate(t, d, true, number); len(st) != 0 {
		t.Errorf("a refused migration changed the table: %q", st)
	}
}

// Columns that only some tables have are NULL in the others' rows, and the tables'
// rows live side by side.
func TestTablesOfDifferentColumns(t *testing.T) {
	t.Parallel()
	a := schema(t, message.Column{Name: "only_a", Kind: message.Int, Bits: 8, SourceType: "tinyint"})
	b := schema(t, message.Column{Name: "only_b", Kind: message.Date, SourceType: "date"})
	d := migrated(t, nil, a, b)
	ra, rb := batchOf(t, a, []string{"1", "7", "1", "x", "-5"}), batchOf(t, b, []string{"2", "7", "2", null, "2026-01-02"})
	insert(t, d, copyID("a"), ra)
	insert(t, d, copyID("b"), rb)
	wantEqual(t, readAll(t, d, copyID("a"), a), ra)
	wantEqual(t, readAll(t, d, copyID("b"), b), rb)
}

// Several that migrate at once, for tables of different columns, all get what they need,
// whether the table is there or one of them makes it.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("with the table", func(t *testing.T) {
		t.Parallel()
		migrateAtOnce(t, migrated(t, nil, schema(t)))
	})
	for i := range 5 {
		t.Run(fmt.Sprintf("without it %d", i), func(t *testing.T) {
			t.Parallel()
			migrateAtOnce(t, open(t, stack.NewClickHouse(t), nil))
		})
	}
}

func migrateAtOnce(t *testing.T, d *DB) {
	t.Helper()
	all := make([]*message.Schema, 4)
	for i := range all {
		var more []message.Column
		for c := range 6 { // some are the others' as well
			more = append(more, message.Column{Name: fmt.Sprintf("c%d", 2*i+c), Kind: message.Int, Bits: 64, SourceType: "bigint"})
		}
		all[i] = schema(t, more...)
	}
	var g errgroup.Group
	for i := range all {
		g.Go(func() error {
			if _, err := d.Migrate(testContext(t), all[i:i+1], false); err != nil {
				return err
			}
			_, err := d.Insert(testContext(t), copyID("a"), all[i]) // its columns are there
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if more, err := d.Migrate(testContext(t), all[i:i+1], true); err != nil || len(more) > 0 {
			t.Errorf("still to do: %v, %v", more, err)
		}
	}
}

func fake(t *testing.T, version, cluster string) *DB {
	t.Helper()
	s, err := parseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return &DB{cfg: Config{Database: "cold", Cluster: cluster}, srv: s}
}

// The statements for servers and clusters that are not at hand.
func TestDDL(t *testing.T) {
	t.Parallel()
	s := schema(t,
		message.Column{Name: "at", Kind: message.DateTime, Scale: 3, SourceType: "datetime(3)"},
		message.Column{Name: "status", Kind: message.Text, Enumerated: true, Nullable: true, SourceType: "enum('a')"},
		message.Column{Name: "price", Kind: message.Decimal, Precision: 50, Scale: 2, SourceType: "decimal(50,2)"},
	)
	u, err := unite([]*message.Schema{s})
	if err != nil {
		t.Fatal(err)
	}
	const old = "CREATE TABLE IF NOT EXISTS `cold`.`messages` (\n  _day Date,\n  _shard String,\n  _generation UInt32,\n  _attempt String,\n  _exact String,\n" +
		"  `msg_id` UInt64,\n  `session_id` Int64,\n  `seq` UInt64,\n  `content` Nullable(String),\n  `at` String,\n  `status` Nullable(String),\n  `price` String\n) " +
		"ENGINE = ReplacingMergeTree() PARTITION BY toYYYYMM(_day) ORDER BY (_shard, `session_id`, `seq`, `msg_id`, _day, _generation, _attempt) SETTINGS index_granularity = 2048"
	if got := fake(t, "18.16.1", "").createTable(u, tableName); got != old {
		t.Errorf("for 18.16:\n%s\nwant\n%s", got, old)
	}
	const columns = "  _day Date,\n  _shard LowCardinality(String),\n  _generation UInt32,\n  _attempt LowCardinality(String),\n  _exact String,\n" +
		"  `msg_id` UInt64 CODEC(Delta, ZSTD(1)),\n  `session_id` Int64 CODEC(Delta, ZSTD(1)),\n  `seq` UInt64 CODEC(Delta, ZSTD(1)),\n  `content` Nullable(String) CODEC(ZSTD(1)),\n" +
		"  `at` Nullable(DateTime64(3, 'UTC')) CODEC(Delta, ZSTD(1)),\n  `status` LowCardinality(Nullable(String)) CODEC(ZSTD(1)),\n  `price` Decimal(50, 2)\n) "
	d := fake(t, "24.8.14.39", "c1")
	local := "CREATE TABLE IF NOT EXISTS `cold`.`messages_local` ON CLUSTER `c1` (\n" + columns +
		"ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/cold/messages_local', '{replica}') PARTITION BY toYYYYMM(_day) " +
		"ORDER BY (_shard, `session_id`, `seq`, `msg_id`, _day, _generation, _attempt) SETTINGS index_granularity = 2048"
	if got := d.createTable(u, localName); got != local {
		t.Errorf("on a cluster:\n%s\nwant\n%s", got, local)
	}
	got := d.createTable(u, tableName)
	if !strings.HasPrefix(got, "CREATE TABLE IF NOT EXISTS `cold`.`messages` ON CLUSTER `c1` (\n") ||
		!strings.HasSuffix(got, ") ENGINE = Distributed(`c1`, `cold`, `messages_local`, cityHash64(`session_id`))") || strings.Contains(got, "CODEC") {
		t.Errorf("the table over a cluster:\n%s", got)
	}
	have := []tableColumn{{colDay, "Date", true}, {colShard, "String", true}, {colGeneration, "UInt32", false}, {colAttempt, "String", true}, {colExact, "String", false},
		{"msg_id", "UInt64", true}, {"session_id", "Int64", true}, {"seq", "UInt64", true}, {"content", "String", false}, {"at", "DateTime('UTC')", false}, {"status", "String", false}}
	alter, err := d.alterTable(u, localName, have)
	want := "ALTER TABLE `cold`.`messages_local` ON CLUSTER `c1` MODIFY COLUMN `content` Nullable(String);" +
		"ALTER TABLE `cold`.`messages_local` ON CLUSTER `c1` MODIFY COLUMN `at` Nullable(DateTime64(3, 'UTC'));" +
		"ALTER TABLE `cold`.`messages_local` ON CLUSTER `c1` MODIFY COLUMN `status` Nullable(String);" +
		"ALTER TABLE `cold`.`messages_local` ON CLUSTER `c1` ADD COLUMN `price` Nullable(Decimal(50, 2))"
	if got := strings.Join(alter, ";"); err != nil || got != want {
		t.Errorf("the table is altered by (%v)\n%s\nwant\n%s", err, got, want)
	}
}

// Old servers refuse ALTER ON CLUSTER of the Distributed table, so it is made anew there; its
// other columns stay.
func TestDistributedTableIsMadeAnew(t *testing.T) {
	t.Parallel()
	u, err := unite([]*message.Schema{schema(t, message.Column{Name: "n", Kind: message.Int, Bits: 64, Nullable: true}, message.Column{Name: "new", Kind: message.Text})})
	if err != nil {
		t.Fatal(err)
	}
	d := fake(t, "18.16.1", "c1")
	have := []tableColumn{{name: colDay, kind: "Date"}, {name: "msg_id", kind: "UInt64"}, {name: "session_id", kind: "Int64"}, {name: "seq", kind: "UInt64"},
		{name: "content", kind: "String"}, {name: "n", kind: "Int32"}, {name: "gone", kind: "String"}}
	got := strings.Join(d.remakeDistributed(u, have), ";")
	want := "DROP TABLE IF EXISTS `cold`.`messages` ON CLUSTER `c1`;CREATE TABLE IF NOT EXISTS `cold`.`messages` ON CLUSTER `c1` (\n  `_day` Date,\n  `msg_id` UInt64,\n  `session_id` Int64,\n  `seq` UInt64,\n" +
		"  `content` Nullable(String),\n  `n` Nullable(Int64),\n  `gone` String,\n  `new` Nullable(String)\n) ENGINE = Distributed(`c1`, `cold`, `messages_local`, cityHash64(`session_id`))"
	if got != want {
		t.Errorf("the Distributed table is made anew by\n%s\nwant\n%s", got, want)
	}
	if d.srv.altersDistributed() || !fake(t, "20.3.1", "c1").srv.altersDistributed() {
		t.Error("which servers alter a Distributed table")
	}
}

func TestSettingsByVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][3]bool{"18.16.1": {false, false, false}, "20.8.1.1": {true, false, false}, "21.11.1.1": {true, true, false}, "26.7.2.1": {true, true, true}} {
		s := fake(t, version, "").srv
		m := s.settings(Config{})
		_, throws := m["timeout_overflow_mode"]
		async, ok := m["async_insert"]
		if throws != want[0] || ok != want[1] || (ok && async != 0) || s.dateTime64() != want[2] || m["skip_unavailable_shards"] != 0 || m["insert_distributed_sync"] != 1 {
			t.Errorf("version %s has settings %v", version, m)
		}
	}
	for _, bad := range []string{"", "x", "18", "a.b"} {
		if _, err := parseVersion(bad); err == nil {
			t.Errorf("version %q is taken", bad)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []Config{{Database: "d"}, {Addrs: []string{"a:1"}}, {Addrs: []string{"a:1"}, Database: "d", Protocol: "tcp"}, {Addrs: []string{"a:1"}, Database: "d`"}, {Addrs: []string{"a:1"}, Database: "d", Cluster: "c)"}} {
		if _, err := Open(testContext(t), bad, quiet()); err == nil || errors.Is(err, ErrUnreachable) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
