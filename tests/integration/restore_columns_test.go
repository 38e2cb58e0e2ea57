package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/restore/rehydrate"
	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// Columns of every kind, with their awkward values, come back as they were, in a table
// that is made of the archived definition, also on the other kind of server. M7, M8, M15.
func TestEveryKindOfColumnComesBack(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 60, Seed: 75})
	values := map[string][]string{
		"TINYINT": {"-128"}, "BIGINT UNSIGNED": {"18446744073709551615"}, "INT UNSIGNED ZEROFILL": {"42"}, "DECIMAL(30,10)": {"-12345678901234567890.0123456789"},
		"FLOAT": {"0.1", "16777217"}, "DOUBLE": {"-1.2345678901234567e-100", "5e-324"}, "BIT(12)": {"b'101000101100'"}, "BIT(64)": {"18446744073709551615"},
		"DATE": {"'0000-00-00'", "'2026-02-31'", "'9999-12-31'"}, "DATETIME(6)": {"'0000-00-00 00:00:00'", "'2026-07-24 00:00:00.123456'"},
		"TIMESTAMP(3) NULL": {"'1970-01-01 00:00:01'", "'0000-00-00 00:00:00'"}, "TIME(2)": {"'-838:59:59'", "'-00:00:00.01'"}, "YEAR": {"0", "2155"},
		"CHAR(9)": {"'ab '"}, "VARCHAR(99)": {"'tab\\tnl\\nbs\\\\q\\'nul\\0 😀 '", "''"}, "VARCHAR(9) CHARACTER SET latin1": {"'é€'"}, "VARCHAR(9) CHARACTER SET utf16": {"'é😀'"},
		"BINARY(4)": {"X'00275C'"}, "VARBINARY(300)": {"X'00275CFF800A1A'", "'\\\\N'"}, "LONGTEXT": {"REPEAT('长', 30000)"}, "JSON": {"'{\"b\": [1, null], \"a\": \"é\"}'"},
		"ENUM('a','it''s')": {"'it''s'", "'no such member'"}, "SET('x','y','z')": {"'z,x'", "''"},
	}
	e.SQL("ALTER TABLE " + e.Tables[0] + " ADD twice INT AS (receiver_type * 2) VIRTUAL, ADD blanks INT NULL INVISIBLE")
	ids := e.Truth()
	conn, err := e.Warm.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"); err != nil {
		t.Fatal(err)
	}
	var free []uint64
	for k := range ids {
		free = append(free, k.ID)
	}
	n := 0
	for ddl, list := range values {
		n++
		if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("ALTER TABLE %s ADD k%d %s", e.Tables[0], n, ddl)); err != nil {
			t.Fatalf("%s: %v", ddl, err)
		}
		for _, v := range list {
			if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("UPDATE IGNORE %s SET k%d = %s WHERE msg_id = %d", e.Tables[0], n, v, free[0])); err != nil {
				t.Fatalf("%s %s: %v", ddl, v, err)
			}
			free = free[1:]
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	want := stack.Rows(t, e.Warm, e.Tables[0])
	e.Must("archive")
	e.Must("purge")
	for _, args := range [][]string{{}, {"--inserts"}} {
		into := stack.MySQL(t)
		e.Must(append([]string{"restore", "--into", into, "--create", "--table", "back"}, args...)...)
		got := stack.Rows(t, stack.OpenMySQL(t, into+"?time_zone=%27%2B00%3A00%27"), "back")
		for id, w := range want {
			if got[id] != w {
				t.Errorf("message %s reads\n%.1500s, want\n%.1500s", id, got[id], w)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d rows, want %d", len(got), len(want))
		}
	}
	var version string
	if err := e.Warm.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(version, "MariaDB") {
		other := stack.StartMariaDB(t)
		into, _ := database(t, other)
		r := e.Must("--output", "json", "restore", "--into", into, "--create") // it compares, with the archive's fingerprint
		if rep := report(t, r); rep.Inserted != uint64(len(want)) || rep.Count(rehydrate.Restored) != 1 || len(rep.Tables[0].Notes) == 0 {
			t.Error(r)
		}
	}
}

// P8: rows of before a column was added have NULL in it, or its default; values of a
// column that is called otherwise now are not lost in silence.
func TestColumnsThatChangedBetweenDays(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Days: 2, Messages: 80, Seed: 76})
	e.Must("archive", "--day", e.Days[0].String())
	e.SQL("ALTER TABLE " + e.Tables[0] + " ADD mood VARCHAR(9) NULL, ADD stars INT NOT NULL DEFAULT 5")
	e.SQL("UPDATE " + e.Tables[0] + " SET mood = 'glad', stars = 1")
	e.Must("archive", "--day", e.Days[1].String())
	into := stack.MySQL(t)
	e.Must("restore", "--into", into, "--create")
	db := stack.OpenMySQL(t, into)
	_, name, _ := strings.Cut(e.Tables[0], ".")
	var before, after int
	if err := db.QueryRowContext(t.Context(), "SELECT SUM(mood IS NULL AND stars = 5), SUM(mood = 'glad' AND stars = 1) FROM "+name).Scan(&before, &after); err != nil || before == 0 || after == 0 || before+after != 80 {
		t.Errorf("%d rows of before, %d of after: %v", before, after, err)
	}
	if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+name+" RENAME COLUMN mood TO humour"); err != nil {
		t.Fatal(err)
	}
	e.Expect(4, []string{"no column mood"}, "restore", "--into", into)
	e.Must("restore", "--into", into, "--day", e.Days[0].String())
	if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+name+" RENAME COLUMN client_msg_id TO client_ref"); err != nil {
		t.Fatal(err)
	}
	e.Expect(4, []string{"column client_msg_id", "column client_ref"}, "restore", "--into", into)
}

// The flags choose exactly their rows, what they cannot mean is said, and no password is
// ever printed.
func TestRestoreFlags(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Tables: 2, Days: 2, Seed: 77})
	want := e.Truth()
	e.Must("archive")
	var conv string
	if err := e.Warm.QueryRowContext(t.Context(), "SELECT session_id FROM "+e.Tables[0]+" GROUP BY session_id ORDER BY COUNT(*) DESC LIMIT 1").Scan(&conv); err != nil {
		t.Fatal(err)
	}
	var in []uint64
	rows, err := e.Warm.QueryContext(t.Context(), "SELECT msg_id FROM "+e.Tables[0]+" WHERE session_id = ?", conv)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		in = append(in, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	into := stack.MySQL(t)
	db := stack.OpenMySQL(t, into)
	restoredIDs := func(args ...string) map[uint64]bool {
		t.Helper()
		e.Must(append([]string{"restore", "--into", into, "--create", "--table", "{database}_{table}"}, args...)...)
		out := map[uint64]bool{}
		for _, name := range restoredTables(t, into) {
			for id := range stack.Rows(t, db, name) {
				var n uint64
				if _, err := fmt.Sscan(id, &n); err != nil {
					t.Fatal(err)
				}
				out[n] = true
			}
			if _, err := db.ExecContext(t.Context(), "DROP TABLE "+name); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	check := func(name string, got map[uint64]bool, pass func(id uint64) bool) {
		t.Helper()
		n := 0
		for k := range want {
			if pass(k.ID) {
				n++
			}
			if pass(k.ID) != got[k.ID] {
				t.Errorf("%s: message %d: restored %t", name, k.ID, got[k.ID])
			}
		}
		if n == 0 || len(got) != n {
			t.Errorf("%s: %d rows, want %d", name, len(got), n)
		}
	}
	check("a conversation", restoredIDs("--conversation", conv), func(id uint64) bool {
		for _, k := range in {
			if k == id {
				return true
			}
		}
		return false
	})
	noon := e.Days[1].Start(time.UTC).Add(12 * time.Hour)
	check("until", restoredIDs("--until", noon.Format("2006-01-02T15:04")+"Z"), func(id uint64) bool { return !chat.Layout().Time(id).After(noon) })
	lo, hi := e.Window(e.Days[1])
	check("IDs", restoredIDs("--ids", fmt.Sprintf("%d-%d", lo, hi)), func(id uint64) bool { return id >= lo })
	cfg, err := mysql.ParseDSN(e.WarmDSN)
	if err != nil {
		t.Fatal(err)
	}
	// The live server by another name; and a password of which nothing is printed.
	cfg.Addr = stack.NewProxy(t, cfg.Addr).Addr
	e.Expect(4, []string{"live warm table"}, "restore", "--into", cfg.FormatDSN())
	e.Expect(4, []string{"live warm table"}, "restore", "--into", cfg.FormatDSN(), "--dry-run")
	e.Expect(4, []string{"holds a manifest"}, "restore", "--into", e.Manifest, "--create")
	e.Must("restore", "--into", cfg.FormatDSN(), "--create", "--table", "aside_{table}", "--dry-run")
	cfg.User, cfg.Passwd = "nobody", "hunter2hunter2"
	e.Environ = append(e.Environ, "RESTORE_PASSWORD="+cfg.Passwd)
	for _, dsn := range []string{cfg.FormatDSN(), strings.Replace(cfg.FormatDSN(), cfg.Passwd, "${RESTORE_PASSWORD}", 1)} {
		for _, format := range []string{"text", "json"} {
			if r := e.Run("--output", format, "restore", "--into", dsn); r.Exit != 2 || strings.Contains(r.Stdout+r.Stderr, "hunter2") {
				t.Error(r)
			}
		}
	}
	for words, args := range map[string][]string{
		"no message ID": {"--ids", "5-4"}, "--ids": {"--ids", "x"}, "--until": {"--until", "yesterday"}, "nothing to restore": {"--conversation", "no such"}, "no warm database": {"--into-warm"},
		"want a duration": {"--into-warm", "--keep-for", "-1h"}, "variable": {"--into", "x:${NO_SUCH}@tcp(h:1)/d"}, "not a MySQL address": {"--into", "nonsense"}, "--rows-per-second": {"--rows-per-second", "-5"},
	} {
		e.Expect(2, []string{words}, append([]string{"restore", "--into", into}, args...)...)
	}
}
