package clickhouse

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func coded(fs []Finding) (codes []Code) {
	for _, f := range fs {
		codes = append(codes, f.Code)
	}
	return codes
}

// A server and a table that are as they should be: nothing but what this server does not tell.
func TestLookAtAGoodTable(t *testing.T) {
	t.Parallel()
	d := migrated(t, nil, schema(t))
	for _, f := range d.Look(testContext(t)) {
		if f.Code != CodeDiskUnknown && f.Code != CodeDisk { // the machine's own
			t.Errorf("%+v", f)
		}
	}
	if now, err := d.Now(testContext(t)); err != nil || time.Since(now).Abs() > time.Minute {
		t.Errorf("the clock says %s: %v", now, err)
	}
}

// Parts that pile up are told before inserts are refused. The other set's limit is too far.
func TestLookCountsParts(t *testing.T) {
	t.Parallel()
	s := schema(t)
	d := migrated(t, nil, s)
	if d.srv.textSettings() {
		t.Skip("1000 parts take too long to make")
	}
	ctx := testContext(t)
	stop := func(what string) {
		t.Helper()
		if err := d.exec(ctx, fmt.Sprintf("SYSTEM %s MERGES %s.messages", what, d.cfg.Database)); err != nil {
			t.Fatal(err)
		}
	}
	stop("STOP")
	b := plain(t, s, 1, 1)
	for range 113 {
		insert(t, d, copyID("a"), b)
	}
	if got := coded(d.Look(ctx)); !slices.Contains(got, CodeParts) {
		t.Errorf("found %v", got)
	}
	stop("START")
	if err := d.exec(ctx, "OPTIMIZE TABLE "+d.qualified(tableName)+" FINAL"); err != nil {
		t.Fatal(err)
	}
	if got := coded(d.Look(ctx)); slices.Contains(got, CodeParts) {
		t.Errorf("merged: %v", got)
	}
}

// What each answer means, also of servers that no test starts.
func TestAnswersAreJudged(t *testing.T) {
	t.Parallel()
	d := &DB{cfg: Config{Database: "cold", Addrs: []string{"h:9000"}, Username: "u"}}
	clustered := &DB{cfg: Config{Database: "cold", Addrs: []string{"h:9000"}, Cluster: "c"}}
	good := lookedTable{name: tableName, engine: "ReplacingMergeTree", full: "ReplacingMergeTree() PARTITION BY toYYYYMM(_day) ORDER BY _shard", partition: "toYYYYMM(_day)",
		create: "CREATE TABLE cold.messages (`_day` Date, `TTLs` String) ENGINE = ReplacingMergeTree"}
	table := func(change func(*lookedTable)) lookedTable {
		x := good
		change(&x)
		return x
	}
	quorum := func(n string) map[string]string { return map[string]string{"insert_quorum": n} }
	for name, c := range map[string]struct {
		found []Finding
		want  []Code
	}{
		"good":   {d.judgeTable(good, quorum("0")), nil},
		"buffer": {d.judgeTable(table(func(x *lookedTable) { x.engine = "Buffer" }), nil), []Code{CodeEngine}},
		"null":   {d.judgeTable(table(func(x *lookedTable) { x.engine = "Null" }), nil), []Code{CodeEngine}},
		"TTL":    {d.judgeTable(table(func(x *lookedTable) { x.full += " TTL _day + toIntervalYear(1)" }), nil), []Code{CodeTTL}},
		"column TTL": {d.judgeTable(table(func(x *lookedTable) {
			x.create = "CREATE TABLE cold.messages (`a` String TTL _day + toIntervalYear(1), `b` Int8)"
		}), nil), []Code{CodeTTL}},
		"by shard":              {d.judgeTable(table(func(x *lookedTable) { x.partition = "_shard" }), map[string]string{"max_partitions_per_insert_block": "100"}), []Code{CodePartitions}},
		"by the day":            {d.judgeTable(table(func(x *lookedTable) { x.partition = "_day" }), nil), nil},
		"replicated, no quorum": {clustered.judgeTable(table(func(x *lookedTable) { x.name, x.engine = localName, "ReplicatedReplacingMergeTree" }), quorum("0")), []Code{CodeNoQuorum}},
		"replicated, quorum":    {clustered.judgeTable(table(func(x *lookedTable) { x.name, x.engine = localName, "ReplicatedReplacingMergeTree" }), quorum("2")), nil},
		"distributed":           {clustered.judgeTable(table(func(x *lookedTable) { x.engine, x.partition = "Distributed", "" }), nil), nil},
		"not distributed":       {clustered.judgeTable(good, nil), []Code{CodeEngine}},
		"readonly":              {d.judgeProfile(map[string]string{"readonly": "2"}), []Code{CodeReadOnly}},
		"fire and forget":       {d.judgeProfile(map[string]string{"readonly": "0", "async_insert": "1", "wait_for_async_insert": "0"}), []Code{CodeAsync}},
		"async, waited for":     {d.judgeProfile(map[string]string{"readonly": "0", "async_insert": "1", "wait_for_async_insert": "1"}), nil},
		"overruled":             {d.judgeForce(map[string]any{"insert_deduplicate": 0}, map[string]string{"insert_deduplicate": "1"}), []Code{CodeNotTaken}},
		"taken":                 {d.judgeForce(map[string]any{"insert_deduplicate": 0, "gone": 1}, map[string]string{"insert_deduplicate": "0"}), nil},
		"replica lost":          {d.judgeReplica("messages_local", true), []Code{CodeReplica}},
		"replica":               {d.judgeReplica("messages_local", false), nil},
		"disk low":              {d.judgeDisk("default", 9, 100), []Code{CodeDisk}},
		"disk":                  {d.judgeDisk("default", 10, 100), nil},
	} {
		if !slices.Equal(coded(c.found), c.want) {
			t.Errorf("%s: %v, want %v", name, c.found, c.want)
		}
	}
	if f := d.judgeTable(table(func(x *lookedTable) { x.partition = "_shard" }), map[string]string{"max_partitions_per_insert_block": "100"}); !strings.Contains(f[0].What, "more than 100") {
		t.Errorf("%+v", f)
	}
}
