package canary_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/canary"
	"github.com/coldtier/coldtier/restore/rehydrate"
	"github.com/coldtier/coldtier/tests/copies"
	"github.com/coldtier/coldtier/tests/stack"
)

// garden is a database of warm tables, a cold tier, and what plants in the one and looks
// into both.
type garden struct {
	*copies.Tier
	t      *testing.T
	dsn    string
	db     *sql.DB
	name   string
	roles  map[message.Role]string
	tables map[manifest.Shard]*warm.Table
	cut    int // writes that fail after so many
}

func newGarden(t *testing.T, ddl string) *garden {
	t.Helper()
	g := &garden{t: t, Tier: copies.New(t), dsn: stack.MySQL(t), roles: map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Sequence: "seq",
		message.SenderID: "sender", message.Content: "body", message.CreatedAt: "at", message.Status: "st"}, tables: map[manifest.Shard]*warm.Table{}}
	cfg, err := mysql.ParseDSN(g.dsn)
	if err != nil {
		t.Fatal(err)
	}
	g.name = cfg.DBName
	g.db = stack.OpenMySQL(t, g.dsn)
	g.exec(ddl)
	return g
}

func (g *garden) exec(q string, args ...any) {
	g.t.Helper()
	if _, err := g.db.ExecContext(g.t.Context(), q, args...); err != nil {
		g.t.Fatalf("%s: %v", q, err)
	}
}

func (g *garden) shard(table string) manifest.Shard {
	return manifest.Shard{Database: g.name, Table: table}
}

// open finds the tables as they are now.
func (g *garden) open(zone *time.Location) {
	g.t.Helper()
	w, err := warm.Open(warm.Config{Databases: []warm.Database{{DSN: g.dsn}}, Tables: []string{"msg*"}, Columns: g.roles, Layout: copies.Layout(), Zone: zone, Now: time.Now}, slog.New(slog.DiscardHandler))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = w.Close() })
	all, err := w.Discover(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	for _, x := range all {
		g.tables[x.Shard()] = x
	}
}

type plot struct{ *warm.Table }

func (p plot) Newest(ctx context.Context, conversation []byte, limit int) (*message.Batch, error) {
	b, err := p.Page(ctx, warm.PageQuery{Conversation: conversation, Limit: limit, Newest: true})
	if errors.Is(err, warm.ErrNoPageIndex) {
		err = fmt.Errorf("%w: %w", canary.ErrNoIndex, err)
	}
	return b, err
}

type writer struct {
	*warm.TargetTable
	g *garden
}

func (w writer) Sink(s *message.Schema) (rehydrate.Writer, error) {
	x := &copies.IntoMySQL{}
	x.Before = func(*message.Batch) error {
		if w.g.cut--; w.g.cut == 0 {
			return errCut
		}
		return nil
	}
	k, err := w.TargetTable.Sink(s)
	if err != nil {
		return nil, err
	}
	return cutting{k, x.Before}, nil
}

var errCut = errors.New("killed")

// cutting is a table that is written as in the program, until the writer dies after a row.
type cutting struct {
	*warm.Sink
	before func(*message.Batch) error
}

func known(w warm.Written) (out rehydrate.Written) {
	out = rehydrate.Written{Inserted: w.Inserted, Present: w.Present}
	for _, c := range w.Conflicts {
		out.Conflicts = append(out.Conflicts, rehydrate.Conflict(c))
	}
	for _, r := range w.Refused {
		out.Refused = append(out.Refused, rehydrate.Refused(r))
	}
	return out
}

func (c cutting) Write(ctx context.Context, b *message.Batch, fresh bool) (rehydrate.Written, error) {
	if err := c.before(b); err != nil {
		one := message.NewBatch(b.Schema())
		if err := one.AppendFrom(b, 0); err != nil {
			return rehydrate.Written{}, err
		}
		if _, err := c.Sink.Write(ctx, one, fresh); err != nil {
			return rehydrate.Written{}, err
		}
		return rehydrate.Written{}, err
	}
	w, err := c.Sink.Write(ctx, b, fresh)
	return known(w), err
}

func (c cutting) Compare(ctx context.Context, b *message.Batch) (rehydrate.Written, []uint64, error) {
	w, absent, err := c.Sink.Compare(ctx, b)
	return known(w), absent, err
}

func (g *garden) plant(seed canary.Seed) (canary.Planted, error) {
	g.t.Helper()
	x, err := warm.OpenTarget(g.t.Context(), warm.TargetConfig{DSN: g.dsn, Inserts: true, Now: time.Now}, slog.New(slog.DiscardHandler))
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = x.Close() }()
	table, err := x.Table(g.t.Context(), seed.Shard.Table)
	if err != nil {
		g.t.Fatal(err)
	}
	p := &canary.Planter{Manifest: g.Store, Layout: copies.Layout(), Zone: time.UTC, Roles: g.roles}
	if seed.At.IsZero() {
		seed.At = at
	}
	return p.Plant(g.t.Context(), seed, plot{g.tables[seed.Shard]}, writer{table, g}, false)
}

var at = time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)

func (g *garden) check() []canary.Finding {
	g.t.Helper()
	found, err := canary.Check(g.t.Context(), canary.Deps{Manifest: g.Store, Reader: g.Reader(false), Layout: copies.Layout(), Zone: time.UTC,
		Tables: func(s manifest.Shard) (canary.Table, bool) { x, ok := g.tables[s]; return x, ok }})
	if err != nil {
		g.t.Fatal(err)
	}
	return found
}

// Contents are planted into columns of every kind, read back as they were made, and differ:
// none of them is spoilt by the server before anything is compared.
func TestContentsFitEveryColumn(t *testing.T) {
	t.Parallel()
	const rest = ", id BIGINT UNSIGNED PRIMARY KEY, conv VARCHAR(64) NOT NULL, seq INT UNSIGNED NOT NULL, sender INT NOT NULL, at DATETIME NOT NULL, st TINYINT NOT NULL DEFAULT 3, KEY (conv, seq))"
	types := []string{"TEXT CHARACTER SET utf8mb4", "VARCHAR(20) CHARACTER SET utf8mb4", "CHAR(40) CHARACTER SET utf8mb4", "TEXT CHARACTER SET latin1 NOT NULL", "TINYTEXT CHARACTER SET utf8mb3", "MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL",
		"VARBINARY(300)", "BINARY(70)", "BLOB NOT NULL", "MEDIUMBLOB", "JSON", "BIGINT NOT NULL", "VARCHAR(3) CHARACTER SET ascii NOT NULL"}
	g := newGarden(t, "CREATE TABLE msg (body "+types[0]+rest)
	for i, ty := range types[1:] {
		g.exec(fmt.Sprintf("CREATE TABLE msg%d (body %s%s", i+1, ty, rest))
	}
	g.open(time.UTC)
	for i, ty := range types {
		table := "msg"
		if i > 0 {
			table += fmt.Sprint(i)
		}
		out, err := g.plant(canary.Seed{ID: "a", Shard: g.shard(table), Conversation: "c" + fmt.Sprint(i)})
		if err != nil {
			t.Errorf("%s: %v", ty, err)
			continue
		}
		if out.Outcome != "planted" || len(out.MessageIDs) != canary.Messages || out.Fingerprint.Rows != canary.Messages || out.FirstSeq != 1 {
			t.Errorf("%s: %+v", ty, out)
		}
		var distinct, null, longest int
		if err := g.db.QueryRow("SELECT COUNT(DISTINCT body), SUM(body IS NULL), MAX(LENGTH(body)) FROM "+table).Scan(&distinct, &null, &longest); err != nil {
			t.Fatal(err)
		}
		if want := !strings.Contains(ty, "NOT NULL"); (null == 1) != want || distinct < 5 {
			t.Errorf("%s: %d different contents, %d of them NULL", ty, distinct, null)
		}
		if strings.HasPrefix(ty, "MEDIUM") && longest < 200_000 {
			t.Errorf("%s: the longest content has %d bytes", ty, longest)
		}
		if strings.Contains(ty, "utf8mb4") && (i == 0 || i == 5) { // a character of four bytes, a NUL, a quote, nothing
			for _, part := range []string{"0xF09D849E", "0x00", "0x27", "0x5C"} {
				var n int
				if err := g.db.QueryRow("SELECT COUNT(*) FROM " + table + " WHERE LOCATE(" + part + ", CAST(body AS BINARY)) > 0").Scan(&n); err != nil || n == 0 {
					t.Errorf("%s: no content has %s (%v)", ty, part, err)
				}
			}
		}
	}
	if err := canary.Err(g.check()); err != nil {
		t.Error(err)
	}
}

const plain = "CREATE TABLE msg (id BIGINT UNSIGNED PRIMARY KEY, conv BIGINT UNSIGNED NOT NULL, seq INT UNSIGNED NOT NULL, sender BIGINT NOT NULL, at DATETIME(3) NOT NULL, st TINYINT NOT NULL DEFAULT 3, body TEXT CHARACTER SET utf8mb4, KEY (conv, seq))"

// A planting that died is finished by the same again, with the same messages; what is in its
// place by then is not overwritten.
func TestAPlantingThatDiedIsFinished(t *testing.T) {
	t.Parallel()
	g := newGarden(t, plain)
	g.open(time.UTC)
	seed := canary.Seed{ID: "a", Shard: g.shard("msg"), Conversation: "900"}
	g.cut = 1
	if _, err := g.plant(seed); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	if f := g.check(); len(f) != 1 || f[0].Problem != canary.Unfinished || canary.Err(f) == nil || errors.Is(canary.Err(f), canary.ErrDiffers) {
		t.Errorf("%+v", f)
	}
	out, err := g.plant(seed)
	if err != nil || out.Outcome != "planted" {
		t.Fatal(out, err)
	}
	again, err := g.plant(seed)
	if err != nil || again.Outcome != "there" || fmt.Sprint(again.MessageIDs) != fmt.Sprint(out.MessageIDs) {
		t.Errorf("%+v, %v", again, err)
	}
	if f := g.check(); canary.Err(f) != nil || len(f) != 1 || f[0].Found != canary.Messages {
		t.Errorf("%+v", f)
	}
	if _, err := g.plant(canary.Seed{ID: "a", Shard: g.shard("msg"), Conversation: "901"}); !errors.Is(err, canary.ErrRefused) {
		t.Errorf("of the same ID in another conversation: %v", err)
	}
	// The next one follows on, at the same instant with other IDs.
	next, err := g.plant(canary.Seed{ID: "b", Shard: g.shard("msg"), Conversation: "900"})
	if err != nil || next.FirstSeq != 1+canary.Messages {
		t.Errorf("%+v, %v", next, err)
	}
	// Killed, and then somebody took a place.
	g.cut = 1
	if _, err := g.plant(canary.Seed{ID: "c", Shard: g.shard("msg"), Conversation: "900"}); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	c, err := g.Store.Canary(t.Context(), "c", g.shard("msg"))
	if err != nil {
		t.Fatal(err)
	}
	g.exec("INSERT INTO msg VALUES (?, 900, 1, 1, '2024-03-01', 1, 'other')", c.MessageIDs[3])
	if _, err := g.plant(canary.Seed{ID: "c", Shard: g.shard("msg"), Conversation: "900"}); !errors.Is(err, canary.ErrRefused) || !strings.Contains(err.Error(), fmt.Sprint(c.MessageIDs[3])) {
		t.Errorf("with another message in its place: %v", err)
	}
	var body string
	if err := g.db.QueryRow("SELECT body FROM msg WHERE id = ?", c.MessageIDs[3]).Scan(&body); err != nil || body != "other" {
		t.Errorf("it is %q now, %v", body, err)
	}
}

// What a canary is made of is for ever the same: the ones that were planted are compared with it.
func TestContentsAreForEver(t *testing.T) {
	t.Parallel()
	g := newGarden(t, strings.Replace(plain, "DATETIME(3)", "BIGINT", 1))
	g.exec("CREATE TABLE msg1 (id BIGINT UNSIGNED PRIMARY KEY, conv BIGINT UNSIGNED NOT NULL, seq INT UNSIGNED NOT NULL, sender BIGINT NOT NULL, at BIGINT NOT NULL, st TINYINT NOT NULL DEFAULT 3, body MEDIUMBLOB)")
	g.open(time.UTC)
	for table, want := range map[string]string{"msg": goldenText, "msg1": goldenBytes} {
		s := g.shard(table)
		spec := fmt.Sprintf(`{"version":1,"epoch":"2015-01-01T00:00:00Z","shift":22,"zone":"UTC","schema":{"columns":[{"name":"id","kind":"uint","bits":64,"source_type":"bigint unsigned"},`+
			`{"name":"conv","kind":"uint","bits":64,"source_type":"bigint unsigned"},{"name":"body","kind":%q,"nullable":true,"source_type":%q,"charset":%q}],"roles":{"message_id":"id","conversation_id":"conv","content":"body"}}}`,
			map[string]string{"msg": "text", "msg1": "bytes"}[table], map[string]string{"msg": "text", "msg1": "mediumblob"}[table], map[string]string{"msg": "utf8mb4", "msg1": ""}[table])
		c := manifest.Canary{ID: "golden", Shard: manifest.Shard{Database: "im_00", Table: "msg"}, Conversation: "900", FirstSeq: 1, Spec: []byte(spec)}
		for n := range uint64(canary.Messages) {
			c.MessageIDs = append(c.MessageIDs, 1000+n)
		}
		b, err := canary.Expected(c)
		if err != nil {
			t.Fatal(err)
		}
		var h message.Hasher
		if got := h.Batch(b, 0, b.Len()).String(); got != want {
			t.Errorf("%s: the contents are %s, and were %s: a change of them needs a new version", s, got, want)
		}
	}
}

const (
	goldenText  = "fb0d56781df0e8fa7001c719d4c1b8f1/9"
	goldenBytes = "cc28358f3917b8523c5edb8bf7626829/9"
)

// created_at is written as the table's other rows have it.
func TestLocalTimeIsKept(t *testing.T) {
	t.Parallel()
	g := newGarden(t, plain)
	zone, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	lo, err := copies.Layout().Lowest(at)
	if err != nil {
		t.Fatal(err)
	}
	g.exec("INSERT INTO msg VALUES (?, 1, 1, 1, '2024-03-01 20:00:00', 1, '')", lo)
	g.open(zone)
	local, err := g.tables[g.shard("msg")].LocalTime(t.Context())
	if err != nil || !local {
		t.Errorf("local: %v, %v", local, err)
	}
	g.exec("UPDATE msg SET at = '2024-03-01 12:00:00'")
	if local, err := g.tables[g.shard("msg")].LocalTime(t.Context()); err != nil || local {
		t.Errorf("UTC: %v, %v", local, err)
	}
}

// Where a canary must be follows from where its slice stands.
func TestWhereACanaryMustBe(t *testing.T) {
	t.Parallel()
	g := newGarden(t, plain)
	g.open(time.UTC)
	out, err := g.plant(canary.Seed{ID: "a", Shard: g.shard("msg"), Conversation: "900"})
	if err != nil {
		t.Fatal(err)
	}
	x := g.tables[g.shard("msg")]
	rows, err := x.Messages(t.Context(), []byte("900"), out.MessageIDs, "")
	if err != nil {
		t.Fatal(err)
	}
	var texts [][][]byte
	for i := range rows.Len() {
		texts = append(texts, rows.Row(nil, i))
	}
	day := snowflake.MakeDay(2024, 3, 1)
	commit := func(copied time.Time, rows [][][]byte) {
		g.Commit(copies.Copy{Shard: g.shard("msg"), Day: day, Schema: x.Schema(), Rows: rows, Change: func(c *manifest.Copy) { c.CopiedAt = copied }})
	}
	problems := func() (all string) {
		for _, f := range g.check() {
			all += fmt.Sprintf("%s %s %d; ", f.Place, f.Problem, f.Found)
		}
		return all
	}
	// Copied before it was planted: it may be there, and must be in warm.
	commit(out.PlantedAt.Add(-time.Second), texts[:4])
	if got := problems(); got != "warm  9; bucket  4; " {
		t.Error(got)
	}
	// Copied after it: it must be there whole.
	commit(out.PlantedAt.Add(time.Second), texts[1:])
	if got := problems(); got != "warm  9; bucket lost 8; " {
		t.Error(got)
	}
	spoilt := make([][][]byte, len(texts))
	for i := range texts {
		spoilt[i] = append([][]byte(nil), texts[i]...)
	}
	body := x.Schema().Index("body")
	spoilt[3][body] = append([]byte("x"), spoilt[3][body]...)
	commit(out.PlantedAt.Add(time.Second), spoilt)
	if got := problems(); got != "warm  9; bucket changed 8; " {
		t.Error(got)
	}
	// Neither may a column that was not given be another.
	spoilt[3] = append([][]byte(nil), texts[3]...)
	spoilt[5][x.Schema().Index("st")] = []byte("4")
	commit(out.PlantedAt.Add(time.Second), spoilt)
	found := g.check()
	if f := found[1]; f.Problem != canary.Changed || fmt.Sprint(f.Columns) != "[st]" || !errors.Is(canary.Err(found), canary.ErrDiffers) {
		t.Errorf("%+v", f)
	}
	commit(out.PlantedAt.Add(time.Second), texts)
	if got := problems(); got != "warm  9; bucket  9; " {
		t.Error(got)
	}
	g.exec("DELETE FROM msg")
	if got := problems(); got != "warm lost 0; bucket  9; " {
		t.Error(got)
	}
	g.exec("DROP TABLE msg")
	if f := g.check(); f[0].Problem != canary.Unread || errors.Is(canary.Err(f), canary.ErrDiffers) || canary.Err(f) == nil {
		t.Errorf("%+v", f)
	}
}
