package clickhouse

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

// On a real cluster of two shards, as testdata/cluster.sh starts it: the tables are made
// everywhere, rows go to their shards and come back whole, columns are added, copies dropped,
// and the last replica knows as much as the first.
func TestCluster(t *testing.T) {
	name, list, ok := strings.Cut(os.Getenv("COLDTIER_TEST_CLUSTER"), "@")
	if !ok {
		t.Skip("COLDTIER_TEST_CLUSTER is not set: testdata/cluster.sh starts a cluster and sets it")
	}
	addrs := strings.Split(list, ",")
	ch := stack.ClickHouse{Addr: addrs[0], Protocol: "native", Database: stack.Unique("t_")}
	cluster := func(c *Config) { c.Cluster = name }
	d := open(t, ch, cluster)
	s := schema(t)
	if st := mustMigrate(t, d, false, s); len(st) != 3 {
		t.Errorf("the migration does %q", st)
	}
	if st := mustMigrate(t, d, false, s); len(st) != 0 {
		t.Errorf("a second migration does %q", st)
	}
	if err := d.Check(testContext(t)); err != nil {
		t.Error(err)
	}
	want := plain(t, s, 300, 10)
	for range 2 { // the second time as if the first answer had been lost
		insert(t, d, copyID("a"), want)
	}
	insert(t, d, copyID("b"), want)
	wantEqual(t, readAll(t, d, copyID("a"), s), want)
	for _, shard := range []string{addrs[0], addrs[2]} {
		one := open(t, stack.ClickHouse{Addr: shard, Protocol: "native", Database: ch.Database}, nil)
		if n, err := one.count(testContext(t), "SELECT count() FROM "+one.qualified(localName)); err != nil || n < 1000 || n > 8000 {
			t.Errorf("the shard at %s has %d of 9,000 rows, %v", shard, n, err)
		}
	}
	wide := schema(t, message.Column{Name: "note", Kind: message.Text, SourceType: "varchar(9)"})
	mustMigrate(t, d, false, s, wide)
	if st := mustMigrate(t, d, false, s, wide); len(st) != 0 {
		t.Errorf("adding a column leaves %q to do", st)
	}
	more := batchOf(t, wide, []string{"1", "7", "1", "x", "note"}, []string{"2", "8", "1", "y", ""})
	insert(t, d, copyID("c"), more)
	wantEqual(t, readAll(t, d, copyID("c"), wide), more)
	page, err := readPage(testContext(t), d, []CopyID{copyID("a"), copyID("c")}, s, pageQuery{Conversation: []byte("3"), Limit: 5, Newest: true})
	if err != nil || page.Len() != 5 || page.Cursor(4) != 10 {
		t.Errorf("page: %v", err)
	}
	for range 2 {
		if err := d.Drop(testContext(t), copyID("a")); err != nil {
			t.Fatal(err)
		}
	}
	if n := readAll(t, d, copyID("a"), s).Len(); n != 0 {
		t.Errorf("%d rows are left after the drop", n)
	}
	last := open(t, stack.ClickHouse{Addr: addrs[len(addrs)-1], Protocol: "native", Database: ch.Database}, cluster)
	wantEqual(t, readAll(t, last, copyID("b"), s), want)
	if err := d.exec(testContext(t), fmt.Sprintf("DROP DATABASE %s ON CLUSTER %s", ident(ch.Database), ident(name))); err != nil {
		t.Error(err)
	}
}
