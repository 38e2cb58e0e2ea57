package warm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

// target opens a DSN for writing. params are more of the DSN, inserts lets LOAD DATA alone.
func target(t testing.TB, dsn string, inserts bool) *Target {
	t.Helper()
	x, err := OpenTarget(t.Context(), TargetConfig{DSN: dsn, Inserts: inserts, Now: time.Now}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

func sink(t testing.TB, x *Target, table string, s *message.Schema) *Sink {
	t.Helper()
	tab, err := x.Table(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	k, err := tab.Sink(s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// loading lets a MySQL take LOAD DATA LOCAL, as MariaDB does from the start. Nothing else
// depends on it, so it is left so.
func (b *bench) loading() {
	if !b.mariadb() {
		b.exec("SET GLOBAL local_infile = 1")
	}
}

// copied is all rows of a table, as a scan gives them.
func copied(t testing.TB, tab *Table) *message.Batch {
	t.Helper()
	out := message.NewBatch(tab.Schema())
	err := tab.Scan(t.Context(), 0, math.MaxUint64, func(c message.Chunk) error {
		for i := range c.Batch.Len() {
			if err := out.AppendFrom(c.Batch, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// allKinds makes a table with each kind of column and each awkward value, a value in each
// row, and bytes of all sorts.
func (b *bench) allKinds() {
	b.t.Helper()
	cases := kindCases()
	var ddl []string
	for i, c := range cases {
		ddl = append(ddl, fmt.Sprintf("c%d %s", i, c.ddl))
	}
	b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, " + strings.Join(ddl, ", ") +
		", raw VARBINARY(600), txt VARCHAR(600), twice BIGINT AS (conv * 2) VIRTUAL) ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4")
	id := uint64(math.MaxUint64)
	for i, c := range cases {
		for expr := range c.values {
			id--
			b.exec(fmt.Sprintf("INSERT IGNORE INTO msg (id, conv, c%d) VALUES (%d, 1, %s)", i, id, expr))
		}
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	b.exec("INSERT INTO msg (id, conv, raw, txt) VALUES (1, 2, ?, ?), (2, -3, ?, ?), (3, 0, '', ''), (4, 4, NULL, NULL), (5, 5, '\\\\N', '\\\\N')", every, "a\tb\nc\\d'e\"f\x00g\rh\x1a", append(every, every...), strings.Repeat("é😀\\", 100))
}

// Each kind of value goes into another table so that it reads the same there, by both
// ways of writing; a second time nothing is written, and the fingerprint says so.
func TestWrittenRowsAreTheArchivedOnes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.loading()
	b.allKinds()
	tab := b.table()
	rows := copied(t, tab)
	want, err := tab.Fingerprint(t.Context(), 0, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	other := stack.MySQL(t)
	for name, inserts := range map[string]bool{"load": false, "insert": true} {
		x := target(t, other, inserts)
		if x.Loads() == inserts {
			t.Fatalf("LOAD DATA is taken: %t", x.Loads())
		}
		if notes, err := x.Create(t.Context(), name, tab.ShowCreate()); err != nil || len(notes) > 0 {
			t.Fatal(notes, err)
		}
		k := sink(t, x, name, tab.Schema())
		if any, err := k.Any(t.Context(), 0, math.MaxUint64); any || err != nil {
			t.Errorf("%s: rows in a new table, %v", name, err)
		}
		if !inserts { // an INSERT would make up for what LOAD DATA does not do right
			mustLoad(t, k, rows)
		}
		w, err := k.Write(t.Context(), rows, true)
		if err != nil || w.Inserted != uint64(rows.Len()) || len(w.Conflicts)+len(w.Refused) > 0 {
			t.Errorf("%s: %+v, %v", name, w, err)
		}
		for range 2 {
			if got, err := k.Fingerprint(t.Context(), 0, math.MaxUint64, nil); err != nil || got != want {
				t.Errorf("%s: fingerprint %s, want %s (%v)", name, got, want, err)
			}
			for _, fresh := range []bool{false, true} {
				if w, err := k.Write(t.Context(), rows, fresh); err != nil || w.Present != uint64(rows.Len()) || w.Inserted+uint64(len(w.Conflicts)+len(w.Refused)) > 0 {
					t.Errorf("%s again: %+v, %v", name, w, err)
				}
			}
		}
		var h message.Hasher
		var conv message.Fingerprint
		for i := range rows.Len() {
			if c := string(rows.Conversation(i)); c == "2" || c == "-3" {
				conv = conv.Add(h.Batch(rows, i, i+1))
			}
		}
		if got, err := k.Fingerprint(t.Context(), 0, math.MaxUint64, [][]byte{[]byte("2"), []byte("-3"), []byte("no number")}); err != nil || got != conv || got.Rows != 2 {
			t.Errorf("%s: fingerprint of two conversations %s, want %s (%v)", name, got, conv, err)
		}
		if !inserts && !x.Loads() {
			t.Error("LOAD DATA was given up")
		}
	}
}

// mustLoad sees that LOAD DATA alone writes each row, and takes it away again; the value 0
// of an ENUM excepted, which is written with a warning.
func mustLoad(t *testing.T, k *Sink, rows *message.Batch) {
	t.Helper()
	enum := slices.IndexFunc(k.schema.Columns(), func(c message.Column) bool { return strings.HasPrefix(c.SourceType, "enum('a'") })
	for i := range rows.Len() {
		if v := rows.Value(enum, i); v != nil && len(v) == 0 {
			continue
		}
		s, err := k.x.t.d.session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := &writing{k: k, b: rows, s: s}
		var h message.Hasher
		one := h.Batch(rows, i, i+1)
		id := rows.MessageID(i)
		if ok, err := w.load(t.Context(), []int{i}); err != nil || !ok {
			t.Errorf("%.300q is not loaded: %v", rows.Row(nil, i), err)
		} else if f, err := k.Fingerprint(t.Context(), id, id+1, nil); err != nil || f != one {
			t.Errorf("%.300q is loaded as another row (%v)", rows.Row(nil, i), err)
		}
		if _, err := s.exec(t.Context(), "DELETE FROM "+k.x.quoted); err != nil {
			t.Fatal(err)
		}
		s.close(t.Context())
	}
}

// A table of the other kind of server: what its own definition says there reads the same.
func TestRowsGoToTheOtherKindOfServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if b.mariadb() {
		t.Skip("the other kind is started beside MySQL alone; this server is MariaDB")
	}
	b.loading()
	b.allKinds()
	b.exec("ALTER TABLE msg ADD zh VARCHAR(20) COLLATE utf8mb4_zh_0900_as_cs DEFAULT 'x', ADD CONSTRAINT small CHECK (conv < 100)")
	there := stack.StartMariaDB(t)
	db := stack.OpenMySQL(t, there.DSN())
	for _, q := range []string{"CREATE DATABASE there", "CREATE DATABASE back"} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	tab := b.table()
	from, dsn := tab, there.DSN()+"there"
	for _, way := range []string{"there", "back"} {
		rows := copied(t, from)
		x := target(t, dsn, false)
		notes, err := x.Create(t.Context(), "msg2", from.ShowCreate())
		if err != nil || (len(notes) > 0) != (way == "there") || way == "there" && !strings.Contains(notes[0], "utf8mb4_zh_0900_as_cs") && !strings.Contains(strings.Join(notes, "\n"), "utf8mb4_bin") {
			t.Fatalf("%s: %q, %v", way, notes, err)
		}
		k := sink(t, x, "msg2", from.Schema())
		w, err := k.Write(t.Context(), rows, true)
		if err != nil || w.Inserted != uint64(rows.Len()) {
			t.Fatalf("%s: %+v, %v", way, w, err)
		}
		want, err := from.Fingerprint(t.Context(), 0, math.MaxUint64)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.Fingerprint(t.Context(), 0, math.MaxUint64, nil); err != nil || got != want {
			t.Errorf("%s: %s, want %s (%v)", way, got, want, err)
		}
		if way == "there" { // and from there to where it came from
			cfg := b.cfg
			cfg.Databases = []Database{{DSN: dsn}}
			other := &bench{t: t, dsn: dsn, db: db, cfg: cfg}
			from, dsn = other.table(), b.dsn
		}
	}
}

// Rows that differ are never touched, whoever has their place; those that are there and
// equal are left, and the others are written.
func TestConflictsAreNamedAndBothKept(t *testing.T) {
	t.Parallel()
	for _, inserts := range []bool{false, true} {
		b := newBench(t)
		b.loading()
		b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv VARCHAR(20) NOT NULL, seq INT NOT NULL, body TEXT, n INT, changed TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), UNIQUE KEY place (conv, seq))")
		for i := range 200 {
			b.exec("INSERT INTO msg (id, conv, seq, body) VALUES (?, 'c', ?, ?)", 1000+i, i, fmt.Sprint("body ", i))
		}
		tab := b.table()
		rows := copied(t, tab)
		b.exec("DELETE FROM msg WHERE id >= 1100 OR id = 1005")
		b.exec("UPDATE msg SET body = 'another', n = 7 WHERE id = 1010")
		b.exec("UPDATE msg SET body = NULL WHERE id = 1011")
		b.exec("INSERT INTO msg (id, conv, seq, body) VALUES (5, 'c', 150, 'has the place of 1150')")
		before := copied(t, b.table())
		k := sink(t, target(t, b.dsn, inserts), "msg", tab.Schema())
		w, absent, err := k.Compare(t.Context(), rows)
		if err != nil || w.Present != 97 || len(w.Conflicts) != 2 || len(absent) != 101 {
			t.Errorf("compare: %+v, %d absent, %v", w, len(absent), err)
		}
		for n, fresh := range []bool{true, false, true} {
			w, err := k.Write(t.Context(), rows, fresh)
			if err != nil || len(w.Refused) != 0 || len(w.Conflicts) != 3 {
				t.Fatalf("%+v, %v", w, err)
			}
			slices.SortFunc(w.Conflicts, func(x, y Conflict) int { return int(x.MessageID) - int(y.MessageID) })
			c := w.Conflicts
			if c[0].MessageID != 1010 || !slices.Equal(c[0].Columns, []string{"body", "n", "changed"}) || c[1].MessageID != 1011 || c[2].MessageID != 1150 || c[2].Key != "place" || c[2].Found.Rows != 0 {
				t.Errorf("%+v", c)
			}
			want := [3]uint64{100, 0, 0}[n]
			if w.Inserted != want || w.Present != 197-want {
				t.Errorf("time %d: %d inserted, %d there", n, w.Inserted, w.Present)
			}
		}
		after := copied(t, b.table())
		for i := range before.Len() {
			j := slices.IndexFunc(make([]int, after.Len()), func(int) bool { return true })
			for ; j < after.Len() && after.MessageID(j) != before.MessageID(i); j++ {
			}
			if j == after.Len() || fmt.Sprintf("%q", before.Row(nil, i)) != fmt.Sprintf("%q", after.Row(nil, j)) {
				t.Fatalf("message %d was touched", before.MessageID(i))
			}
		}
		if after.Len() != before.Len()+100 {
			t.Errorf("%d rows, want %d", after.Len(), before.Len()+100)
		}
	}
}

// Rows that the table cannot hold are named, without their values, and the others are
// written. M9.
func TestRefusedRowsAreNamedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	const packet = 1 << 20
	for _, inserts := range []bool{false, true} {
		b := newBench(t)
		b.loading()
		b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, body LONGBLOB, more LONGBLOB, n BIGINT, st ENUM('a','b'), txt TEXT, pad VARCHAR(9))")
		secret := "the secret body"
		for i := range 60 {
			b.exec("INSERT INTO msg (id, conv, body, n, txt) VALUES (?, 1, ?, ?, ?)", 100+i, strings.Repeat("x", 10000), 100+i, secret)
		}
		b.exec("INSERT INTO msg (id, conv, body) VALUES (200, 1, REPEAT('\\0', ?))", packet-20000)       // its literal alone is too long
		b.exec("INSERT INTO msg (id, conv, body) VALUES (201, 1, REPEAT('y', ?))", packet+1)             // a value is
		b.exec("INSERT IGNORE INTO msg (id, conv, st) VALUES (202, 1, 'none of them')")                  // the ENUM's value 0
		b.exec("INSERT INTO msg (id, conv, n, txt) VALUES (203, 1, 99999999999, ?)", secret)             // too big a number there
		b.exec("INSERT INTO msg (id, conv, txt) VALUES (204, 1, ?)", strings.Repeat("long", 100)+secret) // too long a text there
		b.exec("INSERT INTO msg (id, conv, n) VALUES (205, 1, 13)")                                      // against a CHECK there
		b.exec("INSERT INTO msg (id, conv, n) VALUES (5000, 1, 0)")                                      // in no partition there
		b.exec("INSERT INTO msg (id, conv, n) VALUES (206, 1, NULL)")                                    // NULL there
		b.exec("INSERT INTO msg (id, conv, n, pad) VALUES (207, 1, 0, 'blank ')")                        // in a CHAR no blank is left
		tab := b.table()
		rows := copied(t, tab)
		b.exec("CREATE TABLE there (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, body LONGBLOB, more LONGBLOB, n INT, st ENUM('a','b'), txt VARCHAR(100), pad CHAR(9), CONSTRAINT notthirteen CHECK (n <> 13)) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (4000))")
		b.exec("CREATE TABLE strictly (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, body LONGBLOB, more LONGBLOB, n BIGINT NOT NULL, st ENUM('a','b'), txt TEXT, pad VARCHAR(9))")
		x := target(t, b.dsn+fmt.Sprintf("?maxAllowedPacket=%d", packet), inserts)
		k := sink(t, x, "there", tab.Schema())
		for n, fresh := range []bool{true, false} {
			w, err := k.Write(t.Context(), rows, fresh)
			if err != nil || len(w.Conflicts) > 0 || w.Inserted != [2]uint64{64, 0}[n] || w.Present != [2]uint64{0, 64}[n] {
				t.Errorf("%d inserted, %d there, conflicts %+v, %v", w.Inserted, w.Present, w.Conflicts, err)
			}
			reasons := map[uint64]string{}
			for _, r := range w.Refused {
				reasons[r.MessageID] = r.Reason
			}
			for id, want := range map[uint64]string{203: "column n", 204: "column txt", 205: "notthirteen", 207: "column pad", 5000: "partition"} {
				if !strings.Contains(reasons[id], want) || strings.Contains(reasons[id], "secret") {
					t.Errorf("message %d: %q, want %s", id, reasons[id], want)
				}
			}
			if len(reasons) != 5 {
				t.Errorf("refused: %v", reasons)
			}
		}
		b.exec("CREATE TABLE padded (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, body LONGBLOB, more LONGBLOB, n BIGINT, st ENUM('a','b'), txt TEXT, pad CHAR(9))")
		blanks := message.NewBatch(tab.Schema())
		for i := range 4 { // none of which the server warns of
			if err := blanks.Append([][]byte{{'0' + byte(i)}, []byte("1"), nil, nil, nil, nil, nil, []byte("x ")[:1+i%2]}); err != nil {
				t.Fatal(err)
			}
		}
		if w, err := sink(t, x, "padded", tab.Schema()).Write(t.Context(), blanks, true); err != nil || w.Inserted != 2 || len(w.Refused) != 2 || !strings.Contains(w.Refused[0].Reason, "column pad") {
			t.Errorf("%+v, %v", w, err)
		}
		w, err := sink(t, x, "strictly", tab.Schema()).Write(t.Context(), rows, true)
		if err != nil || len(w.Refused) != 5 { // 200, 201, 202, 204 and 206 have no n
			t.Errorf("%d refused, %v: %+v", len(w.Refused), err, w.Refused)
		}
		for _, r := range w.Refused {
			if r.MessageID == 206 && !strings.Contains(r.Reason, "column n") {
				t.Errorf("%+v", r)
			}
		}
	}
}

// A row with a value of which the server takes no packet is named, and the rest goes on;
// LOAD DATA is not bound by packets.
func TestRowsThatAreTooLargeAreNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, body LONGBLOB, more LONGTEXT)")
	const packet = 1 << 20
	tab := b.table()
	rows := message.NewBatch(tab.Schema())
	for i, size := range [][2]int{{10, 10}, {packet + 1, 0}, {10, 10}, {packet - 100, 0}, {packet / 5 * 4, packet / 5 * 4}, {0, 10 * packet}, {10, 10}} {
		if err := rows.Append([][]byte{[]byte(message.FormatID(uint64(i))), []byte("1"), bytes.Repeat([]byte("'"), size[0]), bytes.Repeat([]byte("x"), size[1])}); err != nil {
			t.Fatal(err)
		}
	}
	server := stack.StartMariaDB(t, fmt.Sprintf("--max-allowed-packet=%d", packet))
	db := stack.OpenMySQL(t, server.DSN())
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE small"); err != nil {
		t.Fatal(err)
	}
	for name, inserts := range map[string]bool{"load": false, "insert": true} {
		x := target(t, server.DSN()+"small", inserts)
		if _, err := x.Create(t.Context(), name, tab.ShowCreate()); err != nil {
			t.Fatal(err)
		}
		k := sink(t, x, name, tab.Schema())
		for n, fresh := range []bool{true, false} {
			w, err := k.Write(t.Context(), rows, fresh)
			refused := map[bool][]uint64{true: {1, 5}}[inserts]
			written := uint64(rows.Len() - len(refused))
			if err != nil || len(w.Refused) != len(refused) || len(w.Conflicts) > 0 || w.Inserted != [2]uint64{written, 0}[n] || w.Present != [2]uint64{0, written}[n] {
				t.Fatalf("%s: %+v, %v", name, w, err)
			}
			for i, id := range refused {
				if r := w.Refused[i]; r.MessageID != id || !strings.Contains(r.Reason, "max_allowed_packet") {
					t.Errorf("%s: %+v", name, r)
				}
			}
		}
		var h message.Hasher
		want := h.Batch(rows, 0, rows.Len())
		if inserts {
			want = want.Sub(h.Batch(rows, 1, 2)).Sub(h.Batch(rows, 5, 6))
		}
		if got, err := k.Fingerprint(t.Context(), 0, 100, nil); err != nil || got != want {
			t.Errorf("%s: %s, want %s (%v)", name, got, want, err)
		}
	}
}

// Columns go by their names. What stands in the way is named before anything is written.
func TestColumnsGoByName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, body TEXT, at DATETIME(3), amount DECIMAL(10,2), g INT AS (conv + 1) VIRTUAL)")
	b.exec("INSERT INTO msg (id, conv, body, at, amount) VALUES (1, 7, 'x', '2026-01-01 00:00:00.5', 1.5), (2, 8, NULL, NULL, NULL)")
	tab := b.table()
	rows := copied(t, tab)
	b.exec("CREATE TABLE other (extra VARCHAR(10) NOT NULL DEFAULT 'e', g INT, AMOUNT DECIMAL(12,2), Body LONGTEXT CHARACTER SET utf16, sum INT AS (g + 1) STORED, at TIMESTAMP(3) NULL, conv BIGINT NOT NULL, id BIGINT NOT NULL, PRIMARY KEY (conv, id), UNIQUE KEY (id), auto INT NOT NULL AUTO_INCREMENT UNIQUE)")
	x := target(t, b.dsn, false)
	k := sink(t, x, "other", tab.Schema())
	if w, err := k.Write(t.Context(), rows, true); err != nil || w.Inserted != 2 {
		t.Fatalf("%+v, %v", w, err)
	}
	want, err := tab.Fingerprint(t.Context(), 0, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := k.Fingerprint(t.Context(), 0, math.MaxInt64, nil); err != nil || got != want {
		t.Errorf("%s, want %s (%v)", got, want, err)
	}
	if n := b.count("SELECT COUNT(*) FROM other WHERE extra = 'e' AND g = conv + 1 AND sum = conv + 2"); n != 2 {
		t.Errorf("%d rows are as they should be", n)
	}
	// An archived column that may be NULL and is not there: for the caller to look at the rows.
	b.exec("CREATE TABLE less (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, at DATETIME(3), amount DECIMAL(10,2), g INT)")
	if k := sink(t, x, "less", tab.Schema()); !slices.Equal(k.Missing(), []string{"body"}) {
		t.Errorf("missing: %v", k.Missing())
	} else if _, err := k.Fingerprint(t.Context(), 0, math.MaxUint64, nil); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		ddl   string
		words []string
	}{
		"bad_missing":  {"(id BIGINT UNSIGNED NOT NULL PRIMARY KEY, body TEXT, at DATETIME(3), amount DECIMAL(10,2), g INT)", []string{"column conv"}},
		"bad_extra":    {"(id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, body TEXT, at DATETIME(3), amount DECIMAL(10,2), g INT, tenant INT NOT NULL)", []string{"column tenant", "default"}},
		"bad_kinds":    {"(id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, body DATE, at DATETIME(6), amount DECIMAL(10,3), g INT)", []string{"column body", "column at", "datetime(6)", "column amount"}},
		"bad_key":      {"(id BIGINT UNSIGNED NOT NULL, conv BIGINT NOT NULL, body TEXT, at DATETIME(3), amount DECIMAL(10,2), g INT, KEY (id))", []string{"unique key"}},
		"bad_engine":   {"(id BIGINT UNSIGNED NOT NULL PRIMARY KEY) ENGINE=MyISAM", []string{"MyISAM"}},
		"bad_trigger":  {"(id BIGINT UNSIGNED NOT NULL PRIMARY KEY)", []string{"trigger fires"}},
		"no_such_base": {"", nil},
	} {
		if c.ddl != "" {
			b.exec("CREATE TABLE " + name + " " + c.ddl)
		}
		if name == "bad_trigger" {
			b.exec("CREATE TRIGGER fires BEFORE INSERT ON bad_trigger FOR EACH ROW SET NEW.id = NEW.id")
		}
		tt, err := x.Table(t.Context(), name)
		if err == nil {
			_, err = tt.Sink(tab.Schema())
		}
		if is := map[bool]error{true: ErrUnfit, false: ErrNoTable}[c.ddl != ""]; !errors.Is(err, is) {
			t.Errorf("%s: %v", name, err)
		}
		for _, w := range c.words {
			if err != nil && !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the error lacks %q: %v", name, w, err)
			}
		}
	}
	b.exec("CREATE VIEW seen AS SELECT * FROM msg")
	if _, err := x.Table(t.Context(), "seen"); !errors.Is(err, ErrUnfit) {
		t.Errorf("a view: %v", err)
	}
}

// The server on which a target lies is known whatever it is called.
func TestALiveDatabaseIsKnownHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv BIGINT NOT NULL)")
	w := b.open()
	cfg, err := mysql.ParseDSN(b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	is := func(change func(*mysql.Config)) (string, bool, []error) {
		t.Helper()
		c := cfg.Clone()
		change(c)
		db, live, unknown, err := target(t, c.FormatDSN(), false).Live(t.Context(), w)
		if err != nil {
			t.Error(err)
		}
		return db, live, unknown
	}
	_, port, _ := strings.Cut(cfg.Addr, ":")
	for name, change := range map[string]func(*mysql.Config){
		"itself":    func(*mysql.Config) {},
		"localhost": func(c *mysql.Config) { c.Addr = "localhost:" + port },
		"a proxy":   func(c *mysql.Config) { c.Addr = stack.NewProxy(t, cfg.Addr).Addr },
	} {
		if db, live, unknown := is(change); len(unknown) > 0 || !live || db != cfg.DBName {
			t.Errorf("%s: %q %t %v", name, db, live, unknown)
		}
	}
	other, err := mysql.ParseDSN(stack.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, live, unknown := is(func(c *mysql.Config) { c.DBName = other.DBName }); len(unknown) > 0 || live {
		t.Errorf("another database: %t %v", live, unknown)
	}
	// A warm server that does not answer is said to be unknown, and is no error of the rest.
	gone := b.cfg
	gone.Databases = append([]Database{{DSN: "x:y@tcp(127.0.0.1:1)/im_99"}}, gone.Databases...)
	b.cfg = gone
	w = b.open()
	if _, live, unknown := is(func(*mysql.Config) {}); !live || len(unknown) != 1 || !strings.Contains(unknown[0].Error(), "im_99") {
		t.Errorf("%t %v", live, unknown)
	}
	// A target that cannot be asked itself may be any of them: an error, also one of several causes.
	ctx, end := context.WithCancelCause(t.Context())
	end(errors.New("ended"))
	if _, live, unknown, err := target(t, b.dsn, false).Live(ctx, w); live || len(unknown) > 0 || err == nil {
		t.Errorf("%t %v %v", live, unknown, err)
	}
}

// The text of another table's definition, as it is made anew.
func TestDefinitionsAreMadeAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE parent (id BIGINT NOT NULL PRIMARY KEY)")
	b.exec("CREATE TABLE msg (id BIGINT NOT NULL PRIMARY KEY, conv BIGINT NOT NULL, `odd ``name,` INT COMMENT 'it''s, (odd', CONSTRAINT ch CHECK (conv > 0), CONSTRAINT fk FOREIGN KEY (conv) REFERENCES parent (id)) COMMENT='x'")
	tab := b.table()
	x := target(t, b.dsn, false)
	notes, err := x.Create(t.Context(), "an`other", tab.ShowCreate()) // in the same database, where the CHECK's name is taken
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "FOREIGN KEY") {
		t.Fatalf("%q, %v", notes, err)
	}
	if _, err := x.Create(t.Context(), "an`other", tab.ShowCreate()); err != nil {
		t.Errorf("it is there: %v", err)
	}
	sink(t, x, "an`other", tab.Schema())
	for _, bad := range []string{"", "CREATE VIEW `x` AS SELECT 1", "CREATE TABLE `x` (\n  `a` WIBBLE\n) ENGINE=InnoDB", "CREATE TABLE `x` (\n  `a` INT COLLATE nosuch_ci\n)"} {
		if _, err := x.Create(t.Context(), "bad", bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Random bytes and texts go through both ways of writing unchanged.
func TestRandomBytesAreWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.loading()
	b.exec("CREATE TABLE msg (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, conv VARBINARY(20) NOT NULL, raw LONGBLOB, txt LONGTEXT)")
	b.exec("CREATE TABLE a LIKE msg")
	b.exec("CREATE TABLE b LIKE msg")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 5))
	tab := b.table()
	rows := message.NewBatch(tab.Schema())
	const awkward = "\\'\"\t\n\r\x00\x1aN,;`%_\xff\xc3"
	for i := range 3000 {
		raw := make([]byte, r.IntN(60))
		for j := range raw {
			if raw[j] = byte(r.Uint32()); r.IntN(2) == 0 {
				raw[j] = awkward[r.IntN(len(awkward))]
			}
		}
		text := strings.ToValidUTF8(string(raw), "é")
		if err := rows.Append([][]byte{[]byte(message.FormatID(uint64(i))), raw[:min(len(raw), 20)], raw, []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	var h message.Hasher
	for table, inserts := range map[string]bool{"a": false, "b": true} {
		k := sink(t, target(t, b.dsn, inserts), table, tab.Schema())
		if w, err := k.Write(t.Context(), rows, true); err != nil || w.Inserted != 3000 {
			t.Errorf("%s: %+v, %v", table, w, err)
		}
		if got, err := k.Fingerprint(t.Context(), 0, math.MaxUint64, nil); err != nil || got != h.Batch(rows, 0, rows.Len()) {
			t.Errorf("%s: %s (%v)", table, got, err)
		}
	}
}
