package adversary

import (
	"strings"
	"syscall"
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
)

// staged names the staging tables that are there.
func staged(e *harness.Env) (names []string) {
	e.T.Helper()
	rows, err := e.Warm.QueryContext(e.T.Context(), "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'coldtier%'")
	if err != nil {
		e.T.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			e.T.Fatal(err)
		}
		names = append(names, name)
	}
	if rows.Err() != nil {
		e.T.Fatal(rows.Err())
	}
	return names
}

// A table is altered while a purge has a partition out of it. The rows come back, with what
// the ALTER would have given them; nobody has to see to them but where their values would be
// lost, and then it is said how.
func TestAlteredWhileAPartitionIsOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ alter, back, holds string }{
		"added": {"ADD COLUMN lang VARCHAR(8) NOT NULL DEFAULT 'en'", "DROP COLUMN lang", "lang = 'en'"},
		"added in the middle, without defaults, generated": {"ADD COLUMN a INT NOT NULL AFTER msg_id, ADD COLUMN b INT AS (a + 1) VIRTUAL FIRST", "DROP COLUMN b, DROP COLUMN a", "a = 0 AND b = 1"},
		"dropped":   {"DROP COLUMN client_msg_id, ALGORITHM=COPY", "", ""},
		"renamed":   {"CHANGE client_msg_id other VARCHAR(64) NOT NULL", "CHANGE other client_msg_id VARCHAR(64) NOT NULL", "other <> ''"},
		"unchanged": {"COMMENT = 'not of columns'", "COMMENT = ''", "TRUE"},
	} {
		for _, edited := range []bool{false, true} {
			how := name
			if edited {
				how += ", edited"
			}
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				e := harness.New(t, harness.Options{Partitioned: true, Strategy: "auto", Seed: 302, Messages: 150})
				e.Must("archive")
				if edited {
					late(e, edge(e, "MIN")+1, edge(e, "MIN"))
				}
				want := e.Truth()
				p := e.Start([]string{"COLDTIER_STOP_AT=purge.partition.exchanged-before-compared"}, "purge")
				if !p.Stopped() {
					t.Fatal(p.Wait())
				}
				e.SQL("ALTER TABLE " + e.Tables[0] + " " + c.alter)
				p.Signal(syscall.SIGCONT)
				r := p.Wait()
				if name == "unchanged" && !edited {
					if r.Exit != 0 || e.Count() != 0 {
						t.Errorf("%d rows are in warm: %s", e.Count(), r)
					}
					return
				}
				if name == "renamed" {
					for range 2 {
						if r.Exit != 1 || !strings.Contains(r.Stderr, "client_msg_id") || !strings.Contains(r.Stderr, "new names") {
							t.Fatalf("it does not say what is to be done: %s", r)
						}
						expire(e)
						r = e.Run("purge")
					}
					e.SQL("ALTER TABLE " + staged(e)[0] + " " + c.alter)
					expire(e)
					r = e.Run("purge")
				}
				if r.Exit != 4 || !strings.Contains(r.Stdout+r.Stderr, "drift") {
					t.Errorf("it does not say that the table changed: %s", r)
				}
				if names := staged(e); len(names) > 0 || e.Count() != len(want) {
					t.Fatalf("%d of %d rows are in the table, staging tables %v", e.Count(), len(want), names)
				}
				if c.back == "" { // what was dropped is gone, of all rows
					return
				}
				var n int
				if err := e.Warm.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+e.Tables[0]+" WHERE "+c.holds).Scan(&n); err != nil || n != len(want) {
					t.Errorf("%d of %d rows have what the ALTER gives: %v", n, len(want), err)
				}
				e.SQL("ALTER TABLE " + e.Tables[0] + " " + c.back)
				gone(e, want)
			})
		}
	}
}
