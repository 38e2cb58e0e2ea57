package warm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

// M11 and the rest of what cannot be archived exactly or purged safely: one line each, that names
// the thing and the remedy. The good tables are found all the same.
func TestDiscoverRefusesByName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 1)
	const cols = "id BIGINT NOT NULL, conv BIGINT NOT NULL"
	bad := map[string][]string{
		"CREATE TABLE msg_byday (" + cols + ", d DATE NOT NULL, PRIMARY KEY (id, d)) PARTITION BY HASH (TO_DAYS(d))": {"msg_byday: column id", "PRIMARY KEY (id)", "only where the table is partitioned by id alone"},
		"CREATE TABLE msg_nokey (" + cols + ", KEY (id))":                                                            {"msg_nokey", "column id", "add PRIMARY KEY (id)"},
		"CREATE TABLE msg_wide (" + cols + ", PRIMARY KEY (id, conv))":                                               {"msg_wide", "column id", "UNIQUE KEY (id)"},
		"CREATE TABLE msg_prefix (id VARCHAR(20) NOT NULL, conv BIGINT NOT NULL, UNIQUE (id))":                       {"msg_prefix", "id", "want an integer"},
		"CREATE TABLE msg_null (id BIGINT NULL, conv BIGINT NOT NULL, UNIQUE (id))":                                  {"msg_null", "id", "may be NULL"},
		"CREATE TABLE msg_norole (id BIGINT PRIMARY KEY)":                                                            {"msg_norole", "column conv", "conversation_id"},
		"CREATE TABLE msg_geo (" + cols + ", place POINT NULL, area GEOMETRY NULL, PRIMARY KEY (id))":                {"msg_geo: column place", "type point", "leave the table out"},
		"CREATE TABLE msg_gbk (" + cols + ", t TEXT CHARACTER SET gbk, PRIMARY KEY (id))":                            {"msg_gbk: column t", "gbk", "convert the column to utf8mb4"},
		"CREATE TABLE msg_dm (" + cols + ", t DOUBLE(10,2), PRIMARY KEY (id))":                                       {"msg_dm: column t", "double(10,2)", "DECIMAL"},
		"CREATE TABLE msg_enum (" + cols + ", e ENUM('','a'), PRIMARY KEY (id))":                                     {"msg_enum: column e", "ENUM", "rename the member"},
		"CREATE TABLE msg_myisam (" + cols + ", PRIMARY KEY (id)) ENGINE=MyISAM":                                     {"msg_myisam", "MyISAM", "convert it to InnoDB"},
		"CREATE VIEW msg_view AS SELECT * FROM msg":                                                                  {"msg_view", "view", "narrow source.tables"},
	}
	if b.mariadb() {
		bad["CREATE TABLE msg_inet ("+cols+", a INET6 NULL, PRIMARY KEY (id))"] = []string{"msg_inet: column a", "inet6"}
		bad["CREATE TABLE msg_ign ("+cols+", x INT PRIMARY KEY, UNIQUE KEY (id) IGNORED)"] = []string{"msg_ign", "no unique key"}
		bad["CREATE TABLE msg_ver ("+cols+", PRIMARY KEY (id)) WITH SYSTEM VERSIONING"] = []string{"msg_ver", "system versioned"}
	} else {
		bad["CREATE TABLE msg_vec ("+cols+", a VECTOR(3) NULL, PRIMARY KEY (id))"] = []string{"msg_vec: column a", "vector"}
		bad["CREATE TABLE msg_inv ("+cols+", x INT PRIMARY KEY, UNIQUE KEY u (id) INVISIBLE)"] = []string{"msg_inv", "no unique key"}
		bad["CREATE TABLE msg_func ("+cols+", UNIQUE KEY u ((id + 0)))"] = []string{"msg_func", "no unique key"}
	}
	for ddl := range bad {
		b.exec(ddl)
	}
	b.exec("CREATE TABLE msg_parent (" + cols + ", PRIMARY KEY (id))")
	b.exec("CREATE TABLE child (x INT PRIMARY KEY, id BIGINT NOT NULL, FOREIGN KEY (id) REFERENCES msg_parent (id) ON DELETE CASCADE)")
	bad["(parent)"] = []string{"msg_parent", ".child", "ON DELETE"}
	b.exec("CREATE TABLE msg_strict (" + cols + ", PRIMARY KEY (id))")
	b.exec("CREATE TABLE child2 (x INT PRIMARY KEY, id BIGINT NOT NULL, FOREIGN KEY (id) REFERENCES msg_strict (id))")
	b.exec("CREATE TABLE " + StagingPrefix + "x LIKE msg")
	b.cfg.Tables = []string{"msg*", "*purge*", "nothing_[0-9]"}
	ts, err := b.open().Discover(t.Context())
	if err == nil {
		t.Fatal("all tables are taken")
	}
	if len(ts) != 2 || ts[0].Shard().Table != "msg" || ts[1].Shard().Table != "msg_strict" {
		t.Errorf("found %d tables", len(ts))
	}
	all := strings.Split(err.Error(), "\n")
	bad["(glob)"] = []string{"nothing_[0-9]", "correct source.tables"}
	for ddl, parts := range bad {
		found := false
		for _, line := range all {
			is := true
			for _, p := range parts {
				is = is && strings.Contains(line, p)
			}
			found = found || is
		}
		if !found {
			t.Errorf("%s: no line of\n%v\nsays %q", ddl, err, parts)
		}
	}
	if len(all) != len(bad)+1 { // msg_geo has two columns
		t.Errorf("%d problems in %d lines:\n%v", len(bad), len(all), err)
	}
}

func TestDatabasesOfOneNameAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 1)
	b.cfg.Databases = append(b.cfg.Databases, b.cfg.Databases[0])
	if ts, err := b.open().Discover(t.Context()); err == nil || len(ts) != 1 || !strings.Contains(err.Error(), "names of their own") {
		t.Errorf("%d tables, %v", len(ts), err)
	}
}

func saying(fs []Finding, parts ...string) *Finding {
	for i, f := range fs {
		is := true
		for _, p := range parts {
			is = is && strings.Contains(f.String(), p)
		}
		if is {
			return &fs[i]
		}
	}
	return nil
}

func TestCheckFindsNothingInOrder(t *testing.T) {
	t.Parallel()
	b := timed(t, "DATETIME(3)")
	b.times(func(at time.Time) any { return at.Format("2006-01-02 15:04:05.000") })
	if ts, fs := b.open().Check(t.Context()); len(fs) != 0 || len(ts) != 1 {
		t.Errorf("%d tables, findings: %v", len(ts), fs)
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := timed(t, "DATETIME(3) NULL")
	b.times(func(at time.Time) any { return at.Format("2006-01-02 15:04:05.000") })
	now := time.Now().UTC()
	future, err := layout().Lowest(now.Add(2 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	b.exec("INSERT INTO msg VALUES (?, 1, ?)", future, now.Add(2*time.Hour))
	b.exec("CREATE TRIGGER tr BEFORE DELETE ON msg FOR EACH ROW SET @x = 1")
	b.exec("CREATE TABLE child (x INT PRIMARY KEY, id BIGINT NOT NULL, FOREIGN KEY (id) REFERENCES msg (id))")
	b.exec("CREATE TABLE msg_bad (id BIGINT PRIMARY KEY, conv BIGINT NOT NULL, created DATETIME NULL, place POINT NULL)")
	b.exec("CREATE TABLE msg_zero (id BIGINT PRIMARY KEY, conv BIGINT NOT NULL, created DATETIME NULL)")
	b.exec("SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
	b.exec("INSERT INTO msg_zero VALUES (-7, 1, NULL), (5, 1, NULL)")
	b.exec("CREATE TABLE msg_parts (id BIGINT PRIMARY KEY, conv BIGINT NOT NULL, created DATETIME NULL) PARTITION BY RANGE (id) (PARTITION odd VALUES LESS THAN (1500000000000000000), PARTITION rest VALUES LESS THAN MAXVALUE)")
	b.cfg.Databases = append(b.cfg.Databases, Database{DSN: "nobody:geheim@tcp(127.0.0.1:1)/gone", Replicas: nil})
	_, fs := b.open().Check(t.Context())
	for _, want := range []struct {
		code    Code
		subject string
		parts   []string
	}{
		{CodeUnreachable, "127.0.0.1:1/gone", []string{"cannot be reached", "check that the server runs"}},
		{CodeRefused, ".msg_bad", []string{"column place", "leave the table out"}},
		{CodeIDs, ".msg_zero", []string{"-7", "move or delete such rows"}},
		{CodeFuture, ".msg", []string{"future", fmt.Sprint(future)}},
		{CodeTriggers, ".msg", []string{"tr"}},
		{CodeReferenced, ".msg", []string{"foreign key", ".child"}},
		{CodePartitionsOdd, ".msg_parts", []string{"1 of 1 partitions", "odd", "purged by rows"}},
		{CodePartitionsShort, ".msg_parts", []string{"MAXVALUE"}},
		{CodeShape, ".msg", []string{"differs from 2 of", "has `created` datetime(3)"}},
	} {
		f := saying(fs, want.parts...)
		if f == nil || f.Code != want.code || !strings.HasSuffix(f.Subject, want.subject) {
			t.Errorf("no finding %s of %s says %q: %+v", want.code, want.subject, want.parts, f)
		}
	}
	for _, f := range fs {
		if strings.Contains(f.String(), "geheim") || strings.Contains(f.String(), "\n") || strings.Contains(f.String(), "%!") {
			t.Errorf("finding %q", f)
		}
	}
	if len(fs) != 9 {
		t.Errorf("%d findings: %v", len(fs), fs)
	}
}

// What an account lacks is told apart: to read, to purge by rows, to purge by partitions.
func TestCheckTellsThePrivileges(t *testing.T) {
	t.Parallel()
	b := timed(t, "DATETIME(3)")
	b.times(func(at time.Time) any { return at.Format("2006-01-02 15:04:05.000") })
	b.exec("CREATE TABLE msg_parts (id BIGINT PRIMARY KEY, conv BIGINT NOT NULL, created DATETIME NULL) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (0), PARTITION rest VALUES LESS THAN MAXVALUE)")
	b.exec("ALTER TABLE msg_parts REMOVE PARTITIONING")
	end, err := layout().Lowest(time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	b.exec(fmt.Sprintf("ALTER TABLE msg_parts PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (%d))", end))
	cfg, err := mysql.ParseDSN(b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	user := stack.Unique("u")
	b.exec("CREATE USER " + user + "@'%' IDENTIFIED BY 'secret'")
	t.Cleanup(func() {
		if _, err := b.db.ExecContext(context.WithoutCancel(background(t)), "DROP USER "+user+"@'%'"); err != nil {
			t.Error(err)
		}
	})
	cfg.User, cfg.Passwd = user, "secret"
	b.cfg.Databases[0].DSN = cfg.FormatDSN()
	rights := func(table string, want ...string) []string {
		t.Helper()
		r, err := b.open().Places()[0].Rights(background(t))
		if err != nil {
			t.Fatal(err)
		}
		return r.Lacks(cfg.DBName, table, want...)
	}
	exchange := []string{"ALTER", "CREATE", "DROP", "INSERT", "LOCK TABLES"}
	if _, fs := b.open().Check(background(t)); saying(fs, "cannot be reached", "grant the account SELECT") == nil {
		t.Errorf("without any right: %v", fs)
	}
	db := quote(cfg.DBName)
	b.exec("GRANT SELECT ON " + db + ".* TO " + user + "@'%'")
	if got := rights("msg", "SELECT", "DELETE"); !slices.Equal(got, []string{"DELETE"}) {
		t.Errorf("with SELECT: lacks %v", got)
	}
	if got := rights("msg_parts", exchange...); !slices.Equal(got, exchange) {
		t.Errorf("with SELECT: lacks %v", got)
	}
	discover := func() []*Table { // on new connections, since old ones keep their rights
		t.Helper()
		ts, err := b.open().Discover(t.Context())
		if err != nil || len(ts) != 2 {
			t.Fatal(ts, err)
		}
		return ts
	}
	// SELECT is all that a copy needs.
	ts := discover()
	if ids, _, _ := scanAll(t, ts[0], 0, 1<<62); len(ids) != 40 {
		t.Errorf("scan with SELECT alone: %d rows", len(ids))
	}
	b.exec("GRANT DELETE ON " + db + ".* TO " + user + "@'%'")
	if got := rights("msg", "SELECT", "DELETE", "ALTER"); !slices.Equal(got, []string{"ALTER"}) {
		t.Errorf("with DELETE: lacks %v", got)
	}
	// These are all that a purge by rows needs.
	ts = discover()
	g := newBook(t).grant(ts[0], 0, 1<<62)
	for _, c := range g.Copy().Chunks {
		if err := ts[0].DeleteChunk(t.Context(), g, c); err != nil {
			t.Error(err)
		}
	}
	b.exec("GRANT ALTER, CREATE, DROP, INSERT, LOCK TABLES ON " + db + ".* TO " + user + "@'%'")
	if got := rights("msg_parts", exchange...); len(got) != 0 {
		t.Errorf("with all rights: lacks %v", got)
	}
	ts = discover()
	p, ok, err := ts[1].Partition(t.Context(), 0, end)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := ts[1].CreateStaging(t.Context(), staging); err != nil {
		t.Error(err)
	}
	if err := ts[1].Exchange(t.Context(), p, staging); err != nil {
		t.Error(err)
	}
	if err := ts[1].ReturnStaging(t.Context(), staging); err != nil {
		t.Error(err)
	}
}

// Of a table with column privileges information_schema shows an account only some
// columns: a copy of these would be all that is left after the purge. An INVISIBLE
// column is none of those.
func TestUnseenColumnsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE msg (id BIGINT PRIMARY KEY, conv BIGINT NOT NULL, `a``b` INT NULL, secret TEXT NULL INVISIBLE, late INT NULL)")
	b.exec("INSERT INTO msg (id, conv, `a``b`, secret, late) VALUES (1, 1, 2, 'x', 3)")
	cfg, err := mysql.ParseDSN(b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	user, msg := stack.Unique("u"), quote(cfg.DBName)+".`msg`"
	b.exec("CREATE USER " + user + "@'%' IDENTIFIED BY 'secret'")
	t.Cleanup(func() {
		if _, err := b.db.ExecContext(context.WithoutCancel(background(t)), "DROP USER "+user+"@'%'"); err != nil {
			t.Error(err)
		}
	})
	b.exec("GRANT SELECT (id, conv), DELETE ON " + msg + " TO " + user + "@'%'")
	admin := b.cfg.Databases[0].DSN
	cfg.User, cfg.Passwd = user, "secret"
	b.cfg.Databases[0].DSN = cfg.FormatDSN()
	refused := func(columns string) {
		t.Helper()
		ts, err := b.open().Discover(t.Context())
		if err == nil || len(ts) != 0 || !strings.Contains(err.Error(), "may not see the columns "+columns+", so that") || !strings.Contains(err.Error(), "GRANT SELECT ON "+msg) {
			t.Errorf("%d tables, %v", len(ts), err)
		}
	}
	refused("a`b, secret, late")
	if _, fs := b.open().Check(t.Context()); saying(fs, "secret", "GRANT SELECT ON") == nil {
		t.Error("check does not name the columns")
	}
	b.exec("GRANT SELECT (`a``b`, late) ON " + msg + " TO " + user + "@'%'")
	refused("secret")
	b.exec("GRANT SELECT (secret) ON " + msg + " TO " + user + "@'%'")
	tab := b.table()
	if ids, _, _ := scanAll(t, tab, 0, 10); len(ids) != 1 || tab.Schema().Len() != 5 {
		t.Errorf("%d rows of %d columns", len(ids), tab.Schema().Len())
	}
	// A copy that lacks a column is not enough for a delete by an account that lacks it, too.
	b.exec("REVOKE SELECT (secret) ON " + msg + " FROM " + user + "@'%'")
	b.exec("ALTER TABLE msg DROP COLUMN secret")
	tab = b.table()
	g := newBook(t).grant(tab, 0, 10)
	b.exec("ALTER TABLE msg ADD COLUMN secret TEXT NULL INVISIBLE")
	for _, c := range g.Copy().Chunks {
		if err := tab.DeleteChunk(t.Context(), g, c); err == nil || !strings.Contains(err.Error(), "may not see the columns secret") {
			t.Errorf("delete: %v", err)
		}
	}
	b.cfg.Databases[0].DSN = admin
	if n := b.count("SELECT COUNT(*) FROM msg"); n != 1 {
		t.Errorf("%d rows are left", n)
	}
}

// What looks like a column's line within other texts of the definition is none.
func TestDefinitionsAreReadByLine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const odd = "'x\n  `nowhere` INT,\n'"
	b.exec("CREATE TABLE msg (id BIGINT PRIMARY KEY COMMENT " + odd + ", conv BIGINT NOT NULL, `KEY` VARCHAR(40) NOT NULL DEFAULT " + odd + ", g VARCHAR(90) AS (CONCAT(conv, " + odd + ")) VIRTUAL, " +
		"e ENUM(" + odd + ", 'b') NULL, h VARCHAR(40) NOT NULL DEFAULT (CONCAT(" + odd + ")), CHECK (`KEY` <> CONCAT(" + odd + ", 1)), KEY `nokey` (conv)) COMMENT " + odd +
		" PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 (PARTITION `p` VALUES LESS THAN (10) COMMENT " + odd + ", PARTITION `q` VALUES LESS THAN MAXVALUE)")
	if n := b.table().Schema().Len(); n != 6 {
		t.Errorf("%d columns", n)
	}
}

// timed is a table with a created_at of a type.
func timed(t testing.TB, created string) *bench {
	b := newBench(t)
	b.exec("CREATE TABLE msg (id BIGINT PRIMARY KEY, conv BIGINT NOT NULL, created " + created + ")")
	b.cfg.Columns[message.CreatedAt] = "created"
	return b
}

// times fills it with 40 rows of 40 days.
func (b *bench) times(created func(time.Time) any) {
	b.t.Helper()
	for i := range 40 {
		at := time.Date(2026, 3, 10+i, 12, 0, 0, 0, time.UTC)
		id, err := layout().Lowest(at)
		if err != nil {
			b.t.Fatal(err)
		}
		b.exec("INSERT INTO msg VALUES (?, 1, ?)", id+uint64(i), created(at.Add(time.Duration(i%3)*time.Second)))
	}
}

// M17: a wrong epoch or shift is seen by the rows' own time, whatever its form.
func TestEpochIsCompared(t *testing.T) {
	t.Parallel()
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ddl     string
		created func(time.Time) any
		spoil   func(*Config)
		want    string
	}{
		"datetime in UTC":       {"DATETIME(3)", func(t time.Time) any { return t.Format("2006-01-02 15:04:05.000") }, nil, ""},
		"datetime in zone":      {"DATETIME", func(t time.Time) any { return t.In(shanghai).Format(time.DateTime) }, func(c *Config) { c.Zone = shanghai }, ""},
		"datetime in another":   {"DATETIME", func(t time.Time) any { return t.In(shanghai).Format(time.DateTime) }, nil, "timezone"},
		"timestamp":             {"TIMESTAMP", func(t time.Time) any { return t.Format(time.DateTime) }, nil, ""},
		"seconds":               {"INT UNSIGNED", func(t time.Time) any { return t.Unix() }, nil, ""},
		"milliseconds":          {"BIGINT", func(t time.Time) any { return t.UnixMilli() }, nil, ""},
		"microseconds":          {"BIGINT", func(t time.Time) any { return t.UnixMicro() }, nil, ""},
		"nanoseconds":           {"BIGINT UNSIGNED", func(t time.Time) any { return t.UnixNano() }, nil, ""},
		"NULLs":                 {"DATETIME NULL", func(time.Time) any { return nil }, nil, ""},
		"zero dates":            {"DATETIME NULL", func(time.Time) any { return "0000-00-00 00:00:00" }, nil, ""},
		"a text":                {"VARCHAR(30)", func(t time.Time) any { return t.String() }, nil, "cannot be the created_at"},
		"an epoch a year later": {"DATETIME", func(t time.Time) any { return t.Format(time.DateTime) }, func(c *Config) { c.Layout.Epoch = c.Layout.Epoch.AddDate(1, 0, 0) }, "correct epoch"},
		"an epoch an hour off":  {"DATETIME", func(t time.Time) any { return t.Format(time.DateTime) }, func(c *Config) { c.Layout.Epoch = c.Layout.Epoch.Add(time.Hour) }, "correct epoch"},
		"shift 20":              {"DATETIME", func(t time.Time) any { return t.Format(time.DateTime) }, func(c *Config) { c.Layout.Shift = 20 }, "time_shift"},
		"shift 23":              {"BIGINT", func(t time.Time) any { return t.UnixMilli() }, func(c *Config) { c.Layout.Shift = 23 }, "time_shift"},
		"no role, future": {"DATETIME NULL", func(time.Time) any { return nil }, func(c *Config) {
			c.Layout.Epoch = c.Layout.Epoch.AddDate(9, 0, 0)
			delete(c.Columns, message.CreatedAt)
		}, "in the future"},
	} {
		b := timed(t, c.ddl)
		if c.spoil != nil {
			c.spoil(&b.cfg)
		}
		tab := b.table()
		if err := tab.EpochFits(t.Context()); err != nil {
			t.Errorf("%s: an empty table: %v", name, err)
		}
		b.times(c.created)
		err := tab.EpochFits(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), tab.Shard().String()) {
			t.Errorf("%s: %v does not name the table", name, err)
		}
	}
	b := timed(t, "DATETIME NULL")
	b.exec("INSERT INTO msg VALUES (0, 1, NULL), (7, 1, NULL)")
	if err := b.table().EpochFits(t.Context()); err == nil || !strings.Contains(err.Error(), "zero or below") {
		t.Errorf("an ID of zero: %v", err)
	}
}

func TestServerState(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.simple("", 1)
	tab := b.table()
	if now, err := tab.Now(t.Context()); err != nil || time.Since(now).Abs() > time.Minute {
		t.Errorf("the database's clock says %s: %v", now, err)
	}
	if n, err := tab.ThreadsRunning(t.Context()); err != nil || n < 1 {
		t.Errorf("%d threads run: %v", n, err)
	}
	if lag, err := tab.Lag(t.Context()); err != nil || lag != 0 {
		t.Errorf("lag without replicas: %s, %v", lag, err)
	}
	for _, dsn := range []string{b.dsn, "u:geheim@tcp(127.0.0.1:1)/d"} { // no replica; not there
		b.cfg.Databases[0].Replicas = []string{dsn}
		if lag, err := b.table().Lag(t.Context()); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("lag of no replica: %s, %v", lag, err)
		}
	}
}

// A replica whose lag is unknown (NULL: a thread has stopped) must not count as up to date.
func TestLagIsReadByName(t *testing.T) {
	t.Parallel()
	channel := func(kv ...string) map[string][]byte {
		return map[string][]byte{kv[0]: []byte(kv[1]), "channel_name": nil}
	}
	for _, c := range []struct {
		channels []map[string][]byte
		want     time.Duration
		ok       bool
	}{
		{[]map[string][]byte{channel("seconds_behind_source", "7")}, 7 * time.Second, true},
		{[]map[string][]byte{channel("seconds_behind_master", "0")}, 0, true},
		{[]map[string][]byte{channel("seconds_behind_master", "3"), channel("seconds_behind_master", "30")}, 30 * time.Second, true},
		{[]map[string][]byte{channel("seconds_behind_source", "3"), {}}, 0, false},
		{[]map[string][]byte{{}}, 0, false},
		{nil, 0, false},
	} {
		if lag, err := behind(c.channels); lag != c.want || (err == nil) != c.ok {
			t.Errorf("%v: lag %s, %v", c.channels, lag, err)
		}
	}
}
