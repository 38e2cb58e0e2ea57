package clickhouse

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	driver "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/coldtier/coldtier/archive/message"
)

const (
	shardsAside = 6
	daysAside   = 4
)

// months is a table with the copies of several shards and days of one month, all in one part,
// so that only the primary key can tell them apart. Each copy has the same rows.
func months(t *testing.T, s *message.Schema, rows *message.Batch) (d *DB, ids []CopyID) {
	t.Helper()
	d = migrated(t, nil, s)
	for shard := range shardsAside {
		for day := range daysAside {
			id := copyID(fmt.Sprintf("s%d-d%d", shard, day))
			id.Shard.Table, id.Day = fmt.Sprintf("msg_%02d", shard), id.Day.Add(day)
			insert(t, d, id, rows)
			ids = append(ids, id)
		}
	}
	count := fmt.Sprintf("SELECT count() FROM system.parts WHERE active AND database = %s AND table = %s", quote(d.cfg.Database), quote(tableName))
	for ctx, parts := testContext(t), uint64(0); parts != 1; { // while parts are being merged already, OPTIMIZE may do nothing
		if err := d.exec(ctx, "OPTIMIZE TABLE "+d.qualified(tableName)+" FINAL"); err != nil {
			t.Fatal(err)
		}
		var err error
		if parts, err = d.count(ctx, count); err != nil {
			t.Fatal(err)
		}
	}
	return d, ids
}

// readRows is how many rows the server reads for what fn does; only the native protocol tells.
func readRows(t *testing.T, fn func(ctx context.Context)) uint64 {
	t.Helper()
	var rows atomic.Uint64
	fn(driver.Context(testContext(t), driver.WithProgress(func(p *driver.Progress) { rows.Add(p.Rows) })))
	return rows.Load()
}

// estimate is how many rows are in the granules that the server would read; old servers
// do not say.
func estimate(t *testing.T, d *DB, clauses string) (n uint64) {
	t.Helper()
	err := d.query(testContext(t), nil, "EXPLAIN ESTIMATE SELECT * FROM "+d.qualified(tableName)+clauses, func(scan func(...any) error) error {
		var db, table string
		var parts, rows, marks uint64
		err := scan(&db, &table, &parts, &rows, &marks)
		n += rows
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A page comes from few granules of the primary key, however many rows and shards the table has.
func TestPageReadsFewGranules(t *testing.T) {
	t.Parallel()
	s := schema(t)
	rows := plain(t, s, 3, 1500)
	d, ids := months(t, s, rows)
	after, before := uint64(979), uint64(1000)
	q := pageQuery{Conversation: []byte("7922"), After: &after, Before: &before, Limit: 20, Newest: true}
	for what, c := range map[string]struct {
		ids    []CopyID
		shards uint64
	}{"one copy": {ids[5:6], 1}, "a shard's days": {ids[4:8], 1}, "two shards' days": {append(ids[4:8:8], ids[12:16]...), 2}} {
		if p, err := readPage(testContext(t), d, c.ids, s, q); err != nil || p.Len() != 20 {
			t.Fatalf("%s: %v", what, err)
		}
		limit := c.shards * 3 * granularity // those that hold the span's ends, and what lies between
		if d.cfg.Protocol == "native" {
			n := readRows(t, func(ctx context.Context) {
				if _, err := readPage(ctx, d, c.ids, s, q); err != nil {
					t.Error(err)
				}
			})
			if n < 20 || n > limit {
				t.Errorf("a page of %s: %d of %d rows are read, want at most %d", what, n, rows.Len()*len(ids), limit)
			}
			continue
		}
		r, err := d.newReader(testContext(t), s, false)
		if err != nil {
			t.Fatal(err)
		}
		where, _, err := r.spansCondition(q.spans(c.ids), q.Conversation)
		if err != nil {
			t.Fatal(err)
		}
		if n := estimate(t, d, where); n == 0 || n > limit {
			t.Errorf("a page of %s is looked for in %d of %d rows, want at most %d", what, n, rows.Len()*len(ids), limit)
		}
	}
}

// A copy is read from its own shard's granules, not from the whole month's.
func TestReadCopyReadsItsShardOnly(t *testing.T) {
	t.Parallel()
	s := schema(t)
	rows := plain(t, s, 30, 100)
	d, ids := months(t, s, rows)
	id := ids[2*daysAside+1]
	wantEqual(t, readAll(t, d, id, s), rows)
	own := uint64(daysAside*rows.Len() + 2*granularity)
	if d.cfg.Protocol != "native" {
		if n := estimate(t, d, " PREWHERE "+condition(id)); n < uint64(rows.Len()) || n > own {
			t.Errorf("a copy of %d rows is read from %d of %d, want its shard's, at most %d", rows.Len(), n, rows.Len()*len(ids), own)
		}
		return
	}
	read := func(groups uint64) uint64 {
		d.groupRows = groups
		return readRows(t, func(ctx context.Context) {
			if err := d.ReadCopy(ctx, id, s, func(*message.Batch) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	// Twice its shard: to list the conversations, and for the rows.
	if n := read(1 << 16); n < 2*uint64(rows.Len()) || n > 2*own {
		t.Errorf("a copy of %d rows reads %d of %d, want its shard's twice, at most %d", rows.Len(), n, rows.Len()*len(ids), 2*own)
	}
	// And by groups of conversations: each reads its part of the shard only.
	if n := read(1000); n > 2*own+6*3*granularity {
		t.Errorf("a copy read in three groups reads %d rows of %d", n, rows.Len()*len(ids))
	}
}
