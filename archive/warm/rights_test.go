package warm

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/stack"
)

// The lines of both servers: escaped names, wildcards, columns, roles, partial revokes.
func TestRightsAreParsed(t *testing.T) {
	t.Parallel()
	const maria, oracle = "10.11.19-MariaDB", "9.7.4"
	for name, c := range map[string]struct {
		version  string
		partial  bool
		lines    []string
		database string
		table    string
		has, not []string
	}{
		"MariaDB, all": {maria, false, []string{"GRANT ALL PRIVILEGES ON *.* TO `test`@`127.0.0.1` IDENTIFIED BY PASSWORD '*94BD' WITH GRANT OPTION"},
			"im_00", "t", []string{"DELETE", "DROP", GrantOption}, nil},
		"MySQL, everywhere": {oracle, false, []string{"GRANT SELECT, CREATE TEMPORARY TABLES, LOCK TABLES ON *.* TO `u`@`%`", "GRANT BACKUP_ADMIN,CLONE_ADMIN ON *.* TO `u`@`%` WITH GRANT OPTION"},
			"im_00", "t", []string{"SELECT", "LOCK TABLES", "CLONE_ADMIN", GrantOption}, []string{"DELETE", "INSERT"}},
		"a pattern":                      {oracle, false, []string{"GRANT SELECT, DELETE ON `im\\_%`.* TO `u`@`%`"}, "im_00", "t", []string{"SELECT", "DELETE"}, []string{"INSERT", GrantOption}},
		"another pattern":                {oracle, false, []string{"GRANT SELECT ON `im\\_%`.* TO `u`@`%`"}, "imx00", "t", nil, []string{"SELECT"}},
		"underscore":                     {oracle, false, []string{"GRANT SELECT ON `im_00`.* TO `u`@`%`"}, "imx00", "t", []string{"SELECT"}, nil},
		"literal":                        {oracle, true, []string{"GRANT SELECT ON `im_00`.* TO `u`@`%`"}, "imx00", "t", nil, []string{"SELECT"}},
		"MySQL takes the later wildcard": {oracle, false, []string{"GRANT INSERT ON `im\\_%`.* TO `u`@`%`", "GRANT DELETE ON `im_00`.* TO `u`@`%`"}, "im_00", "t", []string{"INSERT"}, []string{"DELETE"}},
		"or none at all":                 {oracle, false, []string{"GRANT INSERT ON `im\\_%`.* TO `u`@`%`", "GRANT DELETE ON `im\\_00`.* TO `u`@`%`"}, "im_00", "t", []string{"DELETE"}, []string{"INSERT"}},
		"MariaDB takes the name itself":  {maria, false, []string{"GRANT INSERT ON `im\\_%`.* TO `u`@`%`", "GRANT DELETE ON `im_00`.* TO `u`@`%`"}, "im_00", "t", []string{"DELETE"}, []string{"INSERT"}},
		"MariaDB, of a role beside": {maria, false, []string{"GRANT `r` TO `u`@`%`", "GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*F1'", "GRANT DELETE ON `im_00`.* TO `u`@`%`", "GRANT USAGE ON *.* TO `r`",
			"GRANT SELECT ON `im\\_%`.* TO `r`", "SET DEFAULT ROLE `r` FOR `u`@`%`"}, "im_00", "t", []string{"SELECT", "DELETE"}, []string{"USAGE", "INSERT"}},
		"a role alone":           {oracle, false, []string{"GRANT USAGE ON *.* TO `u`@`%`", "GRANT `DELETE`@`%`,`s`@`%` TO `u`@`%`"}, "im_00", "t", nil, []string{"DELETE"}},
		"columns":                {oracle, false, []string{"GRANT SELECT (`a`, `b, c`), UPDATE (`a`), TRIGGER ON `im_00`.`t` TO `u`@`%`"}, "im_00", "t", []string{"TRIGGER"}, []string{"SELECT", "UPDATE"}},
		"a table":                {oracle, false, []string{"GRANT DELETE ON `im_00`.`t` TO `u`@`%` WITH GRANT OPTION"}, "im_00", "t", []string{"DELETE", GrantOption}, nil},
		"another table":          {oracle, false, []string{"GRANT DELETE ON `im_00`.`t2` TO `u`@`%`"}, "im_00", "t", nil, []string{"DELETE"}},
		"a procedure":            {oracle, false, []string{"GRANT EXECUTE, ALTER ROUTINE ON PROCEDURE `im_00`.`t` TO `u`@`%`"}, "im_00", "t", nil, []string{"EXECUTE", "ALTER ROUTINE"}},
		"a proxy":                {oracle, false, []string{"GRANT PROXY ON ``@`` TO `root`@`localhost` WITH GRANT OPTION"}, "im_00", "t", nil, []string{GrantOption}},
		"a partial revoke":       {oracle, true, []string{"GRANT SELECT, DELETE ON *.* TO `u`@`%`", "REVOKE DELETE ON `im_00`.* FROM `u`@`%`"}, "im_00", "t", []string{"SELECT"}, []string{"DELETE"}},
		"of another database":    {oracle, true, []string{"GRANT SELECT, DELETE ON *.* TO `u`@`%`", "REVOKE DELETE ON `im_00`.* FROM `u`@`%`"}, "im_01", "t", []string{"SELECT", "DELETE"}, nil},
		"a backquote":            {maria, false, []string{"GRANT DELETE ON `a``b TO c`.* TO `u`@`%`"}, "a`b TO c", "t", []string{"DELETE"}, nil},
		"all on a database":      {maria, false, []string{"GRANT ALL PRIVILEGES ON `im_00`.* TO `u`@`%`"}, "im_00", "t", []string{"DELETE", "TRIGGER"}, []string{GrantOption}},
		"old MySQL, with quotes": {"5.7.44", false, []string{"GRANT SELECT ON `im_00`.* TO 'u'@'%'"}, "im_00", "t", []string{"SELECT"}, nil},
	} {
		r := ParseRights(c.version, c.partial, c.lines...)
		if missing := r.Lacks(c.database, c.table, c.has...); len(missing) > 0 {
			t.Errorf("%s: lacks %v", name, missing)
		}
		if missing := r.Lacks(c.database, c.table, c.not...); !slices.Equal(missing, c.not) {
			t.Errorf("%s: lacks only %v of %v", name, missing, c.not)
		}
	}
	r := ParseRights(oracle, false, "GRANT SELECT (`a`, `b, c`), UPDATE (`a`) ON `im_00`.`t` TO `u`@`%` WITH GRANT OPTION")
	if got := r.Columns("im_00", "t", "SELECT"); !slices.Equal(got, []string{"a", "b, c"}) {
		t.Errorf("columns %q", got)
	}
	if got := r.Has("im_00", "t", "UPDATE", "DELETE"); !slices.Equal(got, []string{"UPDATE"}) {
		t.Errorf("has %v", got)
	}
	if got := r.From("im_00", "t", "UPDATE"); !slices.Equal(got, []string{"`im_00`.`t`"}) {
		t.Errorf("UPDATE comes from %v", got)
	}
	if got := r.MayGrant(); !slices.Equal(got, []string{"`im_00`.`t`"}) {
		t.Errorf("may grant on %v", got)
	}
}

// A grant that does not count is told with the one that does; a REVOKE names what was
// granted, and a GRANT the database as the server reads it.
func TestGrantsThatHideOthers(t *testing.T) {
	t.Parallel()
	lines := []string{"GRANT SELECT, DROP ON `im\\_%`.* TO `u`@`%`", "GRANT INSERT ON `im_manifest`.* TO `u`@`%`", "GRANT UPDATE ON `im_manifest`.`runs` TO `u`@`%`", "GRANT SELECT ON `else`.* TO `u`@`%`", "GRANT PROCESS ON *.* TO `u`@`%`"}
	r := ParseRights("9.7.4", false, lines...)
	if by, hidden := r.Hidden("im_manifest"); by != "`im\\_%`" || !slices.Equal(hidden, []string{"`im_manifest`"}) {
		t.Errorf("%s hides %v", by, hidden)
	}
	if by, hidden := r.Hidden("else"); len(hidden) > 0 {
		t.Errorf("%s hides %v", by, hidden)
	}
	if got := r.From("im_manifest", "runs", "DROP", "UPDATE", "INSERT", "PROCESS"); !slices.Equal(got, []string{"`im\\_%`.*", "`im_manifest`.`runs`", "*.*"}) {
		t.Errorf("from %v", got)
	}
	if got := r.Pattern("im_manifest"); got != "`im\\_manifest`" {
		t.Errorf("in a grant it is %s", got)
	}
	if by, hidden := ParseRights("10.11.19-MariaDB", false, lines...).Hidden("im_manifest"); by != "`im_manifest`" || !slices.Equal(hidden, []string{"`im\\_%`"}) {
		t.Errorf("MariaDB: %s hides %v", by, hidden)
	}
	r = ParseRights("9.7.4", true, lines...)
	if got := r.Pattern("im_manifest"); got != "`im_manifest`" {
		t.Errorf("without wildcards it is %s", got)
	}
	if _, hidden := r.Hidden("im_manifest"); len(hidden) > 0 {
		t.Errorf("without wildcards %v is hidden", hidden)
	}
}

// What is read of a real server is what that server lets the account do.
func TestRightsAreWhatTheServerAllows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE t (a INT PRIMARY KEY, b INT)")
	cfg, err := mysql.ParseDSN(b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	pattern := strings.ReplaceAll(cfg.DBName[:len(cfg.DBName)-1], "_", `\_`) + "%"
	statements := map[string]string{
		"SELECT": "SELECT * FROM t", "INSERT": "INSERT INTO t VALUES (-1, 0)", "UPDATE": "UPDATE t SET b = 1 WHERE a = -2", "DELETE": "DELETE FROM t WHERE b = -1",
		"ALTER": "ALTER TABLE t COMMENT 'x'", "CREATE": "CREATE TABLE IF NOT EXISTS t (a INT)",
	}
	setDefault := func(role, user string) {
		t.Helper()
		if b.mariadb() {
			b.exec("SET DEFAULT ROLE " + role + " FOR " + user)
		} else {
			b.exec("SET DEFAULT ROLE " + role + " TO " + user)
		}
	}
	for name, grant := range map[string]func(user, role string){
		"nothing":    func(user, _ string) { b.exec("GRANT SELECT (a) ON t TO " + user) },
		"a database": func(user, _ string) { b.exec("GRANT SELECT, DELETE ON " + quote(cfg.DBName) + ".* TO " + user) },
		"a pattern": func(user, _ string) {
			b.exec("GRANT SELECT, CREATE ON `" + pattern + "`.* TO " + user)
		},
		"a pattern and a table": func(user, _ string) {
			b.exec("GRANT INSERT ON `" + pattern + "`.* TO " + user)
			b.exec("GRANT SELECT, UPDATE, DELETE ON t TO " + user)
		},
		"a pattern and a database": func(user, _ string) {
			b.exec("GRANT SELECT, INSERT ON `" + pattern + "`.* TO " + user)
			b.exec("GRANT SELECT, DELETE ON " + quote(cfg.DBName) + ".* TO " + user)
		},
		"an active role": func(user, role string) {
			b.exec("GRANT SELECT, ALTER ON `" + pattern + "`.* TO " + role)
			b.exec("GRANT DELETE ON " + quote(cfg.DBName) + ".* TO " + user)
			b.exec("GRANT " + role + " TO " + user)
			setDefault(role, user)
		},
		"a role that is not active": func(user, role string) {
			b.exec("GRANT SELECT, DELETE ON `" + pattern + "`.* TO " + role)
			b.exec("GRANT SELECT (b) ON t TO " + user)
			b.exec("GRANT " + role + " TO " + user)
		},
		"all": func(user, _ string) { b.exec("GRANT ALL ON " + quote(cfg.DBName) + ".* TO " + user) },
	} {
		user, role := stack.Unique("u"), stack.Unique("r")
		b.exec("CREATE USER " + user + "@'%' IDENTIFIED BY 'Secret-1'")
		b.exec("CREATE ROLE " + role)
		t.Cleanup(func() {
			for _, q := range []string{"DROP USER " + user + "@'%'", "DROP ROLE " + role} {
				if _, err := b.db.ExecContext(context.WithoutCancel(background(t)), q); err != nil {
					t.Error(err)
				}
			}
		})
		grant(user+"@'%'", role)
		c := cfg.Clone()
		c.User, c.Passwd = user, "Secret-1"
		db, err := sql.Open("mysql", c.FormatDSN())
		if err != nil {
			t.Fatal(err)
		}
		r, err := ReadRights(t.Context(), db)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r.Account != user+"@%" {
			t.Errorf("%s: account %q", name, r.Account)
		}
		for privilege, q := range statements {
			_, err := db.ExecContext(t.Context(), q)
			allowed, says := !denied(err), len(r.Lacks(cfg.DBName, "t", privilege)) == 0
			if allowed != says {
				t.Errorf("%s: %s is allowed: %v (%v), by the grants: %v: %s", name, privilege, allowed, err, says, fmt.Sprint(r.On(cfg.DBName, "t")))
			}
		}
		_ = db.Close()
	}
}
