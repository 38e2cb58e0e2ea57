package clickhouse

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sort"
	"testing"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"
	chdriver "github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func open(t testing.TB, ch stack.ClickHouse, change func(*Config)) *DB {
	t.Helper()
	cfg := Config{Addrs: []string{ch.Addr}, Protocol: ch.Protocol, Database: ch.Database, Username: "default"}
	if change != nil {
		change(&cfg)
	}
	d, err := Open(testContext(t), cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

// migrated is a new database with the table for the schemas.
func migrated(t testing.TB, change func(*Config), schemas ...*message.Schema) *DB {
	t.Helper()
	d := open(t, stack.NewClickHouse(t), change)
	if _, err := d.Migrate(testContext(t), schemas, false); err != nil {
		t.Fatal(err)
	}
	return d
}

func copyID(attempt string) CopyID {
	return CopyID{Shard: manifest.Shard{Database: "im_00", Table: "msg_00"}, Day: snowflake.MakeDay(2026, 5, 1), Generation: 1, Attempt: attempt}
}

func schema(t testing.TB, cols ...message.Column) *message.Schema {
	t.Helper()
	cols = append([]message.Column{
		{Name: "msg_id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "session_id", Kind: message.Int, Bits: 64, SourceType: "bigint"},
		{Name: "seq", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
		{Name: "content", Kind: message.Bytes, Nullable: true, SourceType: "mediumblob"},
	}, cols...)
	return newSchema(t, cols)
}

func newSchema(t testing.TB, cols []message.Column) *message.Schema {
	t.Helper()
	roles := map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "session_id"}
	if slices.ContainsFunc(cols, func(c message.Column) bool { return c.Name == "seq" }) {
		roles[message.Sequence] = "seq"
	}
	s, err := message.NewSchema(cols, roles)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rows makes a batch in the order of Compare of rows of texts; "\x00NULL" is NULL.
const null = "\x00NULL"

func batchOf(t testing.TB, s *message.Schema, rows ...[]string) *message.Batch {
	t.Helper()
	b := message.NewBatch(s)
	for _, r := range rows {
		vs := make([][]byte, len(r))
		for i, v := range r {
			if v != null {
				vs[i] = []byte(v)
			}
		}
		if err := b.Append(vs); err != nil {
			t.Fatal(err)
		}
	}
	return sorted(t, b)
}

func sorted(t testing.TB, b *message.Batch) *message.Batch {
	t.Helper()
	at := make([]int, b.Len())
	for i := range at {
		at[i] = i
	}
	sort.Slice(at, func(i, j int) bool { return message.Less(b, at[i], b, at[j]) })
	out := message.NewBatch(b.Schema())
	for _, i := range at {
		if err := out.AppendFrom(b, i); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func insert(t testing.TB, d *DB, id CopyID, b *message.Batch) {
	t.Helper()
	if err := tryInsert(testContext(t), d, id, b); err != nil {
		t.Fatal(err)
	}
}

func tryInsert(ctx context.Context, d *DB, id CopyID, b *message.Batch) error {
	i, err := d.Insert(ctx, id, b.Schema())
	if err != nil {
		return err
	}
	if err := i.Write(ctx, b, 0, b.Len()); err != nil {
		return err
	}
	return i.Close(ctx)
}

// readAll reads a copy and checks the order.
func readAll(t testing.TB, d *DB, id CopyID, s *message.Schema) *message.Batch {
	t.Helper()
	all := message.NewBatch(s)
	err := d.ReadCopy(testContext(t), id, s, func(b *message.Batch) error {
		for i := range b.Len() {
			if err := all.AppendFrom(b, i); err != nil {
				return err
			}
			if n := all.Len(); n > 1 && message.Compare(all, n-2, all, n-1) >= 0 {
				return fmt.Errorf("row %d is out of order", n-1)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func fingerprint(b *message.Batch) message.Fingerprint {
	var h message.Hasher
	return h.Batch(b, 0, b.Len())
}

func wantEqual(t testing.TB, got, want *message.Batch) {
	t.Helper()
	if fingerprint(got) == fingerprint(want) && got.Len() == want.Len() {
		return
	}
	t.Errorf("%d rows come back as %d, fingerprint %s as %s", want.Len(), got.Len(), fingerprint(want), fingerprint(got))
	for i := range min(got.Len(), want.Len()) {
		for c, col := range want.Schema().Columns() {
			g, w := got.Value(c, i), want.Value(c, i)
			if (g == nil) != (w == nil) || string(g) != string(w) {
				t.Errorf("row %d, column %s: %q, want %q (nil %v, %v)", i, col.Name, g, w, g == nil, w == nil)
			}
		}
	}
}

// plain makes n rows of schema(t) in each of the conversations.
func plain(t testing.TB, s *message.Schema, conversations, n int) *message.Batch {
	t.Helper()
	b := message.NewBatch(s)
	for c := range conversations {
		for i := range n {
			if err := b.Append([][]byte{fmt.Append(nil, 837851385029464064+c*n+i), fmt.Append(nil, c*7919+3), fmt.Append(nil, i+1),
				fmt.Appendf(nil, "message %d of conversation %d, and a little more text", i, c)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return sorted(t, b)
}

// withSettings adds settings to every query, as a user's profile would.
type withSettings struct {
	driver.Conn
	settings driver.Settings
}

func (w withSettings) Query(ctx context.Context, query string, args ...any) (rows chdriver.Rows, err error) {
	return w.Conn.Query(driver.Context(ctx, driver.WithSettings(w.settings)), query, args...)
}

// pageQuery asks for rows of one conversation in whole copies.
type pageQuery struct {
	Conversation  []byte
	Before, After *uint64 // exclusive cursors
	Limit         int
	Newest        bool // where more rows fit than Limit: the newest of them instead of the oldest
}

// spans are those of a page in the copies; there are none where no cursor fits.
func (q pageQuery) spans(ids []CopyID) (all []Span) {
	low, high := uint64(0), uint64(math.MaxUint64)
	if q.After != nil {
		if *q.After == math.MaxUint64 {
			return nil
		}
		low = *q.After + 1
	}
	if q.Before != nil {
		if *q.Before == 0 {
			return nil
		}
		high = *q.Before - 1
	}
	for _, id := range ids {
		all = append(all, Span{id, low, high})
	}
	return all
}

// readPage reads a page by ReadSpans, as a reader does who takes the rows it needs.
func readPage(ctx context.Context, d *DB, ids []CopyID, s *message.Schema, q pageQuery) (*message.Batch, error) {
	b, err := d.ReadSpans(ctx, q.spans(ids), s, q.Conversation, 1<<20)
	if err != nil || b.Len() <= q.Limit {
		return b, err
	}
	from := 0
	if q.Newest {
		from = b.Len() - q.Limit
	}
	out := message.NewBatch(s)
	for i := range q.Limit {
		if err := out.AppendFrom(b, from+i); err != nil {
			return nil, err
		}
	}
	return out, nil
}
