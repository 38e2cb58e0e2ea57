package purge_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

// table wires a warm table to the purge, as the command does.
type table struct {
	*warm.Table
	// before and after are called around the named call, to come between.
	before func(call string)
	after  func(call string, err error) error
}

func translate(err error) error {
	for from, to := range map[error]error{warm.ErrDrift: purge.ErrDrift, warm.ErrUnclear: purge.ErrUnclear, warm.ErrLocked: purge.ErrLocked,
		warm.ErrIncompatible: purge.ErrIncompatible, warm.ErrEpoch: purge.ErrRefused} {
		if errors.Is(err, from) {
			return fmt.Errorf("%w: %w", to, err)
		}
	}
	return err
}

func (t *table) around(call string, do func() error) error {
	if t.before != nil {
		t.before(call)
	}
	err := translate(do())
	if t.after != nil {
		err = t.after(call, err)
	}
	return err
}

func (t *table) EpochFits(ctx context.Context) error { return translate(t.Table.EpochFits(ctx)) }

func (t *table) Partition(ctx context.Context, lo, hi uint64) (purge.Range, bool, error) {
	p, ok, err := t.Table.Partition(ctx, lo, hi)
	return purge.Range{Name: p.Name, Lo: p.Lo, Hi: p.Hi}, ok, err
}

func (t *table) Exchange(ctx context.Context, r purge.Range, staging string) error {
	return t.around("exchange", func() error { return t.Table.Exchange(ctx, warm.Partition{Name: r.Name, Lo: r.Lo, Hi: r.Hi}, staging) })
}

func (t *table) DeleteChunk(ctx context.Context, g *manifest.PurgeGrant, c manifest.Chunk) error {
	return t.around("delete", func() error { return t.Table.DeleteChunk(ctx, g, c) })
}

func (t *table) DropStaging(ctx context.Context, gs []*manifest.PurgeGrant, name string) error {
	return t.around("drop", func() error { return t.Table.DropStaging(ctx, gs, name) })
}

func (t *table) ReturnStaging(ctx context.Context, name string) error {
	return t.around("return", func() error { return t.Table.ReturnStaging(ctx, name) })
}

var layout = snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}

const (
	byRows      = false
	byPartition = true
)

var day1 = snowflake.MakeDay(2026, 5, 1)

// lab is one warm table with a few days of messages, its manifest, and a
// stand-in for the archiver that keeps every copy's rows in memory.
type lab struct {
	t        *testing.T
	dsn      string
	db       *sql.DB
	store    *manifest.Store
	tab      *table
	days     []snowflake.Day
	original map[uint64]string // every row ever inserted by seed, by message ID
	cold     map[uint64]map[uint64]string
	stores   *stores
}

const tableName = "msg_content_00"

func newLab(t *testing.T, partitioned bool, days, perDay int) *lab {
	t.Helper()
	l := &lab{t: t, dsn: stack.MySQL(t), original: map[uint64]string{}, cold: map[uint64]map[uint64]string{}, stores: newStores()}
	l.db = stack.OpenMySQL(t, l.dsn)
	ddl := "CREATE TABLE " + tableName + ` (msg_id BIGINT UNSIGNED NOT NULL, session_id BIGINT NOT NULL, seq BIGINT UNSIGNED NOT NULL,
		status TINYINT NOT NULL DEFAULT 0, content MEDIUMTEXT NULL, create_time DATETIME(3) NOT NULL, PRIMARY KEY (msg_id), KEY s (session_id, seq)) ENGINE=InnoDB`
	for d := range days {
		l.days = append(l.days, day1.Add(d))
	}
	if partitioned {
		ddl += " PARTITION BY RANGE (msg_id) ("
		for i := range days {
			_, hi := l.window(i)
			ddl += fmt.Sprintf("PARTITION p%d VALUES LESS THAN (%d),", i, hi)
		}
		ddl += "PARTITION pmax VALUES LESS THAN MAXVALUE)"
	}
	l.exec(ddl)
	for i := range days {
		l.seed(i, perDay)
	}
	l.store = l.openStore(time.Minute, time.Time{})
	if _, err := l.store.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	l.tab = l.openTable()
	return l
}

func (l *lab) window(day int) (lo, hi uint64) {
	l.t.Helper()
	lo, hi, err := layout.Window(l.days[day], time.UTC)
	if err != nil {
		l.t.Fatal(err)
	}
	return lo, hi
}

// id is the i-th message ID of a day, a minute apart.
func (l *lab) id(day, i int) uint64 {
	lo, _ := l.window(day)
	return lo + uint64(i)*10_000<<layout.Shift + uint64(i%7)
}

func (l *lab) exec(q string, args ...any) {
	l.t.Helper()
	if _, err := l.db.ExecContext(l.t.Context(), q, args...); err != nil {
		l.t.Fatalf("%.200s: %v", q, err)
	}
}

func (l *lab) row(id uint64, i int) []any {
	return []any{id, 1 << 54 * (i%3 - 1), i, 0, fmt.Sprintf("message %d %s", id, strings.Repeat("é", i%50)), layout.Time(id).Format("2006-01-02 15:04:05.000")}
}

func (l *lab) seed(day, n int) {
	l.t.Helper()
	for from := 0; from < n; from += 500 {
		var args []any
		for i := from; i < min(n, from+500); i++ {
			args = append(args, l.row(l.id(day, i), i)...)
		}
		l.exec("INSERT INTO "+tableName+" VALUES "+strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?),", len(args)/6), ","), args...)
	}
	maps.Copy(l.original, l.rows(tableName))
}

// rows reads a table past the product.
func (l *lab) rows(name string) map[uint64]string {
	l.t.Helper()
	r, err := l.db.QueryContext(context.WithoutCancel(l.t.Context()), "SELECT msg_id, CONCAT_WS('|', session_id, seq, status, content, create_time) FROM `"+name+"`")
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	m := map[uint64]string{}
	for r.Next() {
		var id uint64
		var v string
		if err := r.Scan(&id, &v); err != nil {
			l.t.Fatal(err)
		}
		m[id] = v
	}
	if err := r.Err(); err != nil {
		l.t.Fatal(err)
	}
	return m
}

// stagings lists tables that are not the warm table nor the manifest's.
func (l *lab) stagings() (names []string) {
	l.t.Helper()
	r, err := l.db.QueryContext(l.t.Context(), "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'coldtier\\_purge%'")
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for r.Next() {
		var n string
		if err := r.Scan(&n); err != nil {
			l.t.Fatal(err)
		}
		names = append(names, n)
	}
	if err := r.Err(); err != nil {
		l.t.Fatal(err)
	}
	return names
}

// openStore opens the manifest; at a time that is not zero its database's clock
// stands still there.
func (l *lab) openStore(ttl time.Duration, at time.Time) *manifest.Store {
	l.t.Helper()
	cfg, err := mysql.ParseDSN(l.dsn)
	if err != nil {
		l.t.Fatal(err)
	}
	if !at.IsZero() {
		cfg.Params = map[string]string{"timestamp": fmt.Sprintf("%d.%06d", at.Unix(), at.Nanosecond()/1000)}
	}
	s, err := manifest.Open(l.t.Context(), manifest.Config{DSN: cfg.FormatDSN(), Source: "im", LeaseTTL: ttl}, slog.New(slog.DiscardHandler))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (l *lab) openTable() *table {
	l.t.Helper()
	w, err := warm.Open(warm.Config{Databases: []warm.Database{{DSN: l.dsn}}, Tables: []string{"msg_content_*"}, Layout: layout, Zone: time.UTC, ChunkRows: 100, Now: time.Now,
		Columns: map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "session_id", message.Sequence: "seq", message.Status: "status",
			message.Content: "content", message.CreatedAt: "create_time"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = w.Close() })
	tables, err := w.Discover(l.t.Context())
	if err != nil || len(tables) != 1 {
		l.t.Fatalf("%d tables found: %v", len(tables), err)
	}
	return &table{Table: tables[0]}
}

// archive makes the next generation of a day as the archiver does: rows of chunks
// whose delete was begun come from the former generation unless warm has them.
func (l *lab) archive(day int) manifest.Slice {
	l.t.Helper()
	ctx := l.t.Context()
	lo, hi := l.window(day)
	key := manifest.SliceKey{Source: "im", Shard: l.tab.Shard(), Day: l.days[day]}
	if _, err := l.store.Ensure(ctx, []manifest.Slice{{SliceKey: key, Lo: lo, Hi: hi}}); err != nil {
		l.t.Fatal(err)
	}
	s := l.slice(day)
	if s.State == manifest.Purged {
		if err := l.store.ReopenLate(ctx, s.ID); err != nil {
			l.t.Fatal(err)
		}
	}
	lease, err := l.store.Claim(ctx, s.ID, "archiver", []manifest.State{manifest.Pending}, manifest.Copying)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.tab.Reload(ctx); err != nil {
		l.t.Fatal(err)
	}
	c := &manifest.Copy{SliceKey: key, Lo: lo, Hi: hi, Generation: s.Generation + 1, Attempt: lease.Attempt(), Schema: l.tab.Schema(), ShowCreate: l.tab.ShowCreate()}
	have := l.rows(tableName)
	rows := map[uint64]string{}
	for id, v := range have {
		if lo <= id && id < hi {
			rows[id] = v
		}
	}
	if err := l.tab.Scan(ctx, lo, hi, func(ch message.Chunk) error {
		c.Chunks = append(c.Chunks, manifest.Chunk{Seq: len(c.Chunks), From: ch.From, To: ch.To, Warm: ch.Fingerprint, State: manifest.ChunkPresent})
		return nil
	}); err != nil {
		l.t.Fatal(err)
	}
	if s.Live > 0 {
		former, err := l.store.LoadCopy(ctx, s.ID, s.Live)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, ch := range former.Chunks {
			if ch.State == manifest.ChunkPresent && s.Reason != manifest.ReasonLate && ch.Carried.Rows == 0 {
				continue
			}
			for id, v := range l.cold[s.ID] {
				if _, in := rows[id]; !in && ch.From <= id && id < ch.To {
					rows[id] = v
					at := slices.IndexFunc(c.Chunks, func(c manifest.Chunk) bool { return c.From <= id && id < c.To })
					sum := sha256.Sum256([]byte(v)) // stands in for the row's fingerprint
					c.Chunks[at].Carried = c.Chunks[at].Carried.Add(message.Fingerprint{Hi: uint64(sum[0]), Lo: id, Rows: 1})
				}
			}
		}
	}
	if c.CopiedAt, err = l.store.Now(ctx); err != nil {
		l.t.Fatal(err)
	}
	if f := c.Fingerprint(); f.Rows > 0 {
		n := int64(f.Rows)
		c.Objects = []manifest.Object{{Key: manifest.ObjectPrefix(key, c.Generation, c.Attempt) + "all.parquet",
			File: segment.File{Version: segment.FormatVersion, Size: 100 * n, Rows: n, RowGroups: []segment.RowGroup{{Rows: n, MaxCursor: f.Rows}}},
			Segs: []segment.Span{{Conversation: []byte("1"), Rows: n, MaxCursor: f.Rows, Fingerprint: f}}}}
	}
	if err := l.store.Commit(ctx, lease, c, manifest.RecordKey(key, c.Generation), sha256.Sum256([]byte(c.Attempt))); err != nil {
		l.t.Fatal(err)
	}
	if err := l.store.Verified(ctx, lease, c.Generation); err != nil {
		l.t.Fatal(err)
	}
	if err := lease.Release(ctx, manifest.Verified); err != nil {
		l.t.Fatal(err)
	}
	l.cold[s.ID] = rows
	l.stores.add(c)
	return l.slice(day)
}

func (l *lab) archiveAll() {
	l.t.Helper()
	for i := range l.days {
		l.archive(i)
	}
}

func (l *lab) slice(day int) manifest.Slice {
	l.t.Helper()
	all, err := l.store.Slices(context.WithoutCancel(l.t.Context()), manifest.Filter{From: &l.days[day], To: &l.days[day]})
	if err != nil || len(all) != 1 {
		l.t.Fatalf("day %d: %d slices, %v", day, len(all), err)
	}
	return all[0]
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (l *lab) purger(change func(*purge.Config), tables ...purge.Table) *purge.Purger {
	l.t.Helper()
	c := purge.Config{Owner: l.t.Name(), Now: time.Now, Sleep: sleep}
	if change != nil {
		change(&c)
	}
	if tables == nil {
		tables = []purge.Table{l.tab}
	}
	p, err := purge.New(c, l.store, tables, l.stores, l.stores, slog.New(slog.DiscardHandler))
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// purge plans and executes.
func (l *lab) purge(change func(*purge.Config)) (*purge.Report, error) {
	l.t.Helper()
	p := l.purger(change)
	plan, err := p.Plan(l.t.Context(), purge.Selection{})
	if err != nil {
		l.t.Fatal(err)
	}
	return p.Execute(l.t.Context(), plan)
}

// afterLease is the time at which the leases that a crash left have run out.
func (l *lab) afterLease() {
	l.t.Helper()
	l.exec("UPDATE slices SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE lease_until IS NOT NULL")
}

// safe is invariant 1: every row that was ever there, in its present form, is in
// MySQL (the table or a staging table) or in the verified copy.
func (l *lab) safe() {
	l.t.Helper()
	warmRows := l.rows(tableName)
	for _, s := range l.stagings() {
		maps.Copy(warmRows, l.rows(s))
	}
	cold := map[uint64]string{}
	for _, m := range l.cold {
		maps.Copy(cold, m)
	}
	lost := 0
	for id, v := range l.original {
		if warmRows[id] != v && cold[id] != v {
			if lost++; lost <= 3 {
				l.t.Errorf("message %d is lost: warm has %q, cold has %q, want %q", id, warmRows[id], cold[id], v)
			}
		}
	}
	if lost > 3 {
		l.t.Errorf("%d messages are lost in all", lost)
	}
}

func (l *lab) warmCount(day int) (n int) {
	l.t.Helper()
	lo, hi := l.window(day)
	for id := range l.rows(tableName) {
		if lo <= id && id < hi {
			n++
		}
	}
	return n
}

// set changes a row as an application would, and what is to be found of it later.
func (l *lab) set(id uint64, content string) {
	l.t.Helper()
	l.exec("UPDATE "+tableName+" SET content = ? WHERE msg_id = ?", content, id)
	l.original[id] = l.rows(tableName)[id]
}

// add inserts a row.
func (l *lab) add(id uint64) {
	l.t.Helper()
	l.exec("INSERT INTO "+tableName+" (msg_id, session_id, seq, status, content, create_time) VALUES (?,?,?,?,?,?)", l.row(id, 1)...)
	l.original[id] = l.rows(tableName)[id]
}

// remove deletes a row for good.
func (l *lab) remove(id uint64) {
	l.t.Helper()
	l.exec("DELETE FROM "+tableName+" WHERE msg_id = ?", id)
	delete(l.original, id)
}

func (l *lab) want(day int, st manifest.State, warmRows int) {
	l.t.Helper()
	if s := l.slice(day); s.State != st || s.Staging != "" && st != manifest.Purging {
		l.t.Errorf("day %d is %s (%s, staging %q), want %s", day, s.State, s.Reason, s.Staging, st)
	}
	if n := l.warmCount(day); n != warmRows {
		l.t.Errorf("day %d has %d rows in MySQL, want %d", day, n, warmRows)
	}
}
