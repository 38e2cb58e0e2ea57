package adversary

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// backup copies the manifest; what it gives sets the manifest back to it.
func backup(e *harness.Env) (restore func()) {
	e.T.Helper()
	db := stack.OpenMySQL(e.T, e.Manifest)
	run := func(query string) {
		e.T.Helper()
		if _, err := db.ExecContext(e.T.Context(), query); err != nil {
			e.T.Fatalf("%s: %v", query, err)
		}
	}
	rows, err := db.QueryContext(e.T.Context(), "SHOW TABLES")
	if err != nil {
		e.T.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var tables []string
	for rows.Next() {
		var name sql.NullString
		if err := rows.Scan(&name); err != nil {
			e.T.Fatal(err)
		}
		if name.String != "sources" { // a source keeps its number in any backup that has slices
			tables = append(tables, name.String)
		}
	}
	if rows.Err() != nil {
		e.T.Fatal(rows.Err())
	}
	for _, t := range tables {
		run(fmt.Sprintf("CREATE TABLE old_%s AS SELECT * FROM %s", t, t))
	}
	return func() {
		for _, t := range tables {
			run("DELETE FROM " + t)
			run(fmt.Sprintf("INSERT INTO %s SELECT * FROM old_%s", t, t))
		}
	}
}

// A manifest that is set back to a backup knows nothing of generations that were made
// since, whose rows are in the bucket alone: verify finds their records, and the next
// runs take them over, whatever state the backup has.
func TestManifestSetBack(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"new", "archived", "purged"} {
		for strategy, partitioned := range map[string]bool{"rows": false, "partition": true} {
			t.Run(at+" "+strategy, func(t *testing.T) {
				t.Parallel()
				e := harness.New(t, harness.Options{Partitioned: partitioned, Strategy: strategy, Seed: 78, Messages: 150})
				e.SQL("CREATE TABLE one AS SELECT * FROM "+e.Tables[0]+" WHERE msg_id = ?", edge(e, "MIN"))
				restore := func() {}
				if at == "new" {
					restore = backup(e)
				}
				e.Must("archive")
				if at == "archived" {
					restore = backup(e)
				}
				e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id = ?", edge(e, "MAX"))
				want := e.Truth()
				e.Expect(4, []string{"drift"}, "purge")
				gone(e, want)
				if at == "purged" {
					restore = backup(e)
				}
				e.SQL("UPDATE one SET msg_id = msg_id + 1, seq = seq + 500000, content = 'late'")
				e.SQL("INSERT INTO " + e.Tables[0] + " SELECT * FROM one")
				e.SQL("DROP TABLE one")
				for k, v := range e.Truth() {
					want[k] = v
				}
				gone(e, want)
				restore()
				if at != "new" {
					e.Expect(4, []string{"set back"}, "verify")
				}
				for range 8 {
					e.Must("archive")
					if r := e.Run("purge"); r.Exit != 0 && r.Exit != 4 {
						t.Fatal(r)
					}
					if r := e.Run("verify"); r.Exit == 0 && only(e).State == manifest.Purged {
						break
					} else if r.Exit != 0 && !strings.Contains(r.Stdout+r.Stderr, "set back") {
						t.Fatal(r)
					}
				}
				if s := only(e); s.State != manifest.Purged {
					t.Errorf("the slice is %s, generation %d", s.State, s.Live)
				}
				if r := e.Verdict(want); r.InCold != len(want) || e.Count() != 0 {
					t.Error(r)
				}
			})
		}
	}
}
