package warm

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

// What a table's partitions hold says how it is purged, as Partition says for one slice.
func TestPurgingSaysWhatPartitionDoes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := func(day, hour int) string {
		t.Helper()
		lo, err := layout().Lowest(time.Date(2026, 5, day, hour, 0, 0, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		return message.FormatID(lo)
	}
	const head = "CREATE TABLE msg_%s (id BIGINT UNSIGNED PRIMARY KEY, conv BIGINT NOT NULL)"
	part := func(name, hi string) string { return "PARTITION " + name + " VALUES LESS THAN (" + hi + ")" }
	const rest = "PARTITION rest VALUES LESS THAN MAXVALUE"
	for name, c := range map[string]struct {
		partition string
		exchange  bool
		want      Purging
		why       string
	}{
		"plain":   {"", false, Purging{}, "not partitioned"},
		"hash":    {"PARTITION BY HASH (id) PARTITIONS 2", false, Purging{}, "not by RANGE"},
		"daily":   {"PARTITION BY RANGE (id) (" + part("a", id(1, 0)) + ", " + part("b", id(2, 0)) + ", " + rest + ")", true, Purging{Single: 2}, "each of its partitions"},
		"weekly":  {"PARTITION BY RANGE (id) (" + part("a", id(1, 0)) + ", " + part("b", id(8, 0)) + ")", true, Purging{Single: 1, Several: 1, Days: 7}, "up to 7"},
		"halves":  {"PARTITION BY RANGE (id) (" + part("a", id(1, 0)) + ", " + part("b", id(1, 12)) + ", " + part("c", id(2, 0)) + ", " + part("d", id(3, 0)) + ")", true, Purging{Single: 2, Odd: 1}, "by rows where"},
		"at noon": {"PARTITION BY RANGE (id) (" + part("a", id(1, 12)) + ", " + part("b", id(2, 12)) + ")", false, Purging{Odd: 2}, "no partition holds a whole day"},
		"one":     {"PARTITION BY RANGE (id) (" + rest + ")", false, Purging{}, "MAXVALUE"},
	} {
		b.exec(strings.Replace(head, "%s", "x", 1) + c.partition)
		tab := b.table()
		p, err := tab.Purging(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		why := p.Why
		p.Why, c.want.Exchange = "", c.exchange
		if p != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %+v %q, want %+v %q", name, p, why, c.want, c.why)
		}
		lo, hi, err := layout().Window(layout().DayOf(mustID(t, id(2, 0)), time.UTC), time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := tab.Partition(t.Context(), lo, hi); err != nil || ok != (name == "weekly" || name == "halves") {
			t.Errorf("%s: a partition for 2 May: %v, %v", name, ok, err)
		}
		b.exec("DROP TABLE msg_x")
	}
	b.exec(strings.Replace(head, "%s", "x", 1) + "PARTITION BY RANGE (id) (" + part("a", id(1, 0)) + ")")
	b.exec("CREATE TRIGGER tr BEFORE DELETE ON msg_x FOR EACH ROW SET @x = 1")
	if p, err := b.table().Purging(t.Context()); err != nil || p.Exchange || !strings.Contains(p.Why, "triggers") {
		t.Errorf("with a trigger: %+v, %v", p, err)
	}
}

func mustID(t *testing.T, text string) uint64 {
	t.Helper()
	n, ok := message.ParseUint([]byte(text))
	if !ok {
		t.Fatal(text)
	}
	return n
}

// Where partitions end: near, far, and behind, with MAXVALUE and without.
func TestCheckTellsWherePartitionsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead time.Duration
		rest  string
		want  Code
	}{
		"far, without":    {60 * 24 * time.Hour, "", CodeNoMaxvalue},
		"near, without":   {3 * 24 * time.Hour, "", CodePartitionsEnd},
		"behind, without": {-3 * 24 * time.Hour, "", CodePartitionsEnd},
		"behind, with":    {-3 * 24 * time.Hour, ", PARTITION rest VALUES LESS THAN MAXVALUE", CodePartitionsShort},
		"far, with":       {60 * 24 * time.Hour, ", PARTITION rest VALUES LESS THAN MAXVALUE", ""},
	} {
		b := newBench(t)
		day := layout().DayOf(mustLowest(t, time.Now().Add(c.ahead)), time.UTC)
		lo, _, err := layout().Window(day, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		b.exec("CREATE TABLE msg (id BIGINT UNSIGNED PRIMARY KEY, conv BIGINT NOT NULL, created DATETIME NULL, g BIGINT AS (conv + 1) VIRTUAL) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (" + message.FormatID(lo) + ")" + c.rest + ")")
		b.cfg.Columns[message.CreatedAt] = "created"
		_, fs := b.open().Check(t.Context())
		for _, code := range []Code{CodeNoMaxvalue, CodePartitionsEnd, CodePartitionsShort, CodePartitionsOdd} {
			if has(fs, code) != (code == c.want) {
				t.Errorf("%s: %s is found: %v: %v", name, code, has(fs, code), fs)
			}
		}
		if !has(fs, CodeGenerated) {
			t.Errorf("%s: the generated column is not told: %v", name, fs)
		}
	}
}

func mustLowest(t *testing.T, at time.Time) uint64 {
	t.Helper()
	lo, err := layout().Lowest(at)
	if err != nil {
		t.Fatal(err)
	}
	return lo
}

func has(fs []Finding, code Code) bool {
	for _, f := range fs {
		if f.Code == code {
			return true
		}
	}
	return false
}

// What is odd about IDs and created_at is told by its code, and gone when it is mended.
func TestCheckOfIDs(t *testing.T) {
	t.Parallel()
	b := timed(t, "DATETIME(3)")
	b.times(func(at time.Time) any { return at.Format("2006-01-02 15:04:05.000") })
	b.exec("INSERT INTO msg VALUES (17, 1, '2015-01-01 00:00:00')")
	if _, fs := b.open().Check(t.Context()); !has(fs, CodeAtEpoch) {
		t.Errorf("an ID that was counted: %v", fs)
	}
	b.exec("DELETE FROM msg WHERE id = 17")
	if _, fs := b.open().Check(t.Context()); len(fs) > 0 {
		t.Errorf("without it: %v", fs)
	}
	b.exec("ALTER TABLE msg MODIFY created VARCHAR(40)")
	if _, fs := b.open().Check(t.Context()); !has(fs, CodeCreatedAt) || len(fs) != 1 {
		t.Errorf("a created_at that tells no time: %v", fs)
	}
	delete(b.cfg.Columns, message.CreatedAt)
	if _, fs := b.open().Check(t.Context()); !has(fs, CodeNoCreatedAt) || len(fs) != 1 {
		t.Errorf("no created_at: %v", fs)
	}
	blind := b.open()
	b.exec("RENAME TABLE msg TO away")
	if _, fs := blind.Check(t.Context()); !has(fs, CodeRefused) {
		t.Errorf("no table: %v", fs)
	}
}

// The odd one among siblings is named with its difference; what tables of one kind may
// differ in is none.
func TestShapesAreCompared(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, n := range []string{"msg_0", "msg_1", "msg_2"} {
		b.exec("CREATE TABLE " + n + " (id BIGINT PRIMARY KEY AUTO_INCREMENT, conv BIGINT NOT NULL, body VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, KEY c (conv, id))")
	}
	b.exec("INSERT INTO msg_1 VALUES (1577204925232840704, 1, 'x')")
	b.exec("ALTER TABLE msg_2 PARTITION BY RANGE (id) (PARTITION rest VALUES LESS THAN MAXVALUE)")
	odd := func() (found []Finding) {
		t.Helper()
		ts, err := b.open().Discover(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return shapes(b.cfg.Tables, ts)
	}
	if fs := odd(); len(fs) > 0 {
		t.Errorf("of one kind: %v", fs)
	}
	for ddl, words := range map[string][]string{
		"ALTER TABLE msg_1 MODIFY body VARCHAR(21) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin":        {"varchar(20)", "varchar(21)"},
		"ALTER TABLE msg_1 MODIFY body VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci": {"utf8mb4_unicode_ci"},
		"ALTER TABLE msg_1 DROP KEY c":                             {"lacks KEY `c`"},
		"ALTER TABLE msg_1 ADD COLUMN more INT":                    {"has `more` int"},
		"ALTER TABLE msg_1 MODIFY conv BIGINT NOT NULL AFTER body": {"order of its columns"},
	} {
		b.exec("CREATE TABLE keep LIKE msg_1")
		b.exec(ddl)
		fs := odd()
		if len(fs) != 1 || !strings.HasSuffix(fs[0].Subject, ".msg_1") || saying(fs, append(words, "differs from 2")...) == nil {
			t.Errorf("%s: %v", ddl, fs)
		}
		b.exec("DROP TABLE msg_1")
		b.exec("RENAME TABLE keep TO msg_1")
		if fs := odd(); len(fs) > 0 {
			t.Errorf("%s, taken back: %v", ddl, fs)
		}
	}
}

// A conversation in two tables and an ID in two tables are met by a sample.
func TestSampleMeetsWhatIsInTwoTables(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, n := range []string{"msg_0", "msg_1", "msg_2"} {
		b.exec("CREATE TABLE " + n + " (id BIGINT UNSIGNED PRIMARY KEY, conv VARCHAR(20) NOT NULL, KEY page (conv, id))")
	}
	b.exec("CREATE TABLE msg_3 (id BIGINT UNSIGNED PRIMARY KEY, conv VARCHAR(20) NOT NULL)")
	b.exec("INSERT INTO msg_0 VALUES (1, 'a'), (2, 'b'), (18446744073709551615, 'c')")
	b.exec("INSERT INTO msg_1 VALUES (3, 'd'), (4, 'A')") // another conversation than a, whatever the collation
	sample := func() *Sample {
		t.Helper()
		w := b.open()
		ts, err := w.Discover(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := w.Sample(t.Context(), ts, rand.Perm)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := sample()
	if len(s.Shared) != 0 || len(s.Twice) != 0 || s.Conversations != 5 || s.IDs != 5 || len(s.NoIndex) != 1 || s.Tables != 3 {
		t.Errorf("%+v", s)
	}
	b.exec("INSERT INTO msg_2 VALUES (5, 'b')")
	b.exec("INSERT INTO msg_3 VALUES (18446744073709551615, 'x')")
	s = sample()
	if in := s.Shared["b"]; len(s.Shared) != 1 || len(in) != 2 || in[0].Table != "msg_0" || in[1].Table != "msg_2" {
		t.Errorf("conversations in two tables: %v", s.Shared)
	}
	if in := s.Twice[1<<64-1]; len(s.Twice) != 1 || len(in) != 2 || in[1].Table != "msg_3" {
		t.Errorf("IDs in two tables: %v", s.Twice)
	}
	tab := b.open()
	ts, err := tab.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if z, err := ts[0].Size(t.Context()); err != nil || z.Days < 1000 || z.Bytes == 0 {
		t.Errorf("size: %+v, %v", z, err)
	}
	if z, err := ts[2].Size(t.Context()); err != nil || z.Days != 1 {
		t.Errorf("size of a day: %+v, %v", z, err)
	}
}

// Replicas for real: the source of each, its lag, who is attached.
func TestReplicasAreLookedAt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts servers of its own, the same on each set")
	}
	primary := stack.StartMariaDB(t, "--log-bin=bin", "--server-id=11")
	replica := stack.StartMariaDB(t, "--server-id=12", "--read-only")
	admin := stack.OpenMySQL(t, primary.DSN())
	on := stack.OpenMySQL(t, replica.DSN())
	host, port, _ := strings.Cut(primary.Addr, ":")
	exec := func(which string, q string) {
		t.Helper()
		db := admin
		if which == "replica" {
			db = on
		}
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	exec("primary", "CREATE DATABASE d")
	exec("replica", "CHANGE MASTER TO master_host='"+host+"', master_port="+port+", master_user='test', master_password='test', master_use_gtid=slave_pos")
	exec("replica", "START SLAVE")
	cfg := Config{Databases: []Database{{DSN: primary.DSN() + "d", Replicas: []string{replica.DSN() + "d", primary.DSN() + "d", "nobody@tcp(127.0.0.1:1)/d"}}}, Tables: []string{"*"},
		Columns: map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv"}, Layout: layout(), Now: time.Now}
	b := &bench{t: t, db: admin, dsn: primary.DSN(), cfg: cfg}
	place := b.open().Places()[0]
	server, err := place.Server(t.Context())
	if err != nil || server.ID != "11" || server.On("read_only") || !server.On("log_bin") || !server.MariaDB() {
		t.Fatalf("%+v, %v", server, err)
	}
	var all []Replica
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if all = place.Replicas(t.Context()); len(all) == 3 && all[0].Err == nil && all[0].Stopped == nil || time.Now().After(end) {
			break
		}
	}
	r := all[0]
	if r.Err != nil || r.Stopped != nil || len(r.Sources) != 1 || !r.Sources[0].IsOf(server) || r.Sources[0].Port != port || !r.Server.On("read_only") || r.Server.ID != "12" || r.Now.Sub(r.Begun).Abs() > time.Minute {
		t.Errorf("the replica: %+v", r)
	}
	if all[1].Err != nil || len(all[1].Sources) != 0 {
		t.Errorf("the primary as a replica: %+v", all[1])
	}
	if all[2].Err == nil {
		t.Errorf("nobody as a replica: %+v", all[2])
	}
	rights, err := place.Rights(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at, err := place.Attached(t.Context(), rights)
	if err != nil || len(at) != 1 || !at[0].Is(r.Server) || at[0].Is(server) {
		t.Errorf("attached: %+v, %v", at, err)
	}
	if s, err := place.Sources(t.Context()); err != nil || len(s) != 0 {
		t.Errorf("the primary's own source: %v, %v", s, err)
	}
	exec("replica", "STOP SLAVE")
	if r := place.Replicas(t.Context())[0]; r.Err != nil || r.Stopped == nil {
		t.Errorf("a stopped replica: %+v", r)
	}
	exec("replica", "START SLAVE")
	// An account without the right to see them, then with PROCESS alone.
	exec("primary", "CREATE USER plain@'%' IDENTIFIED BY 'p'")
	exec("primary", "GRANT SELECT ON d.* TO plain@'%'")
	m, err := mysql.ParseDSN(primary.DSN() + "d")
	if err != nil {
		t.Fatal(err)
	}
	m.User, m.Passwd = "plain", "p"
	b.cfg.Databases = []Database{{DSN: m.FormatDSN(), Replicas: []string{replica.DSN() + "d"}}}
	look := func() ([]Attached, error) {
		t.Helper()
		place := b.open().Places()[0]
		rights, err := place.Rights(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return place.Attached(t.Context(), rights)
	}
	if _, err := look(); !errors.Is(err, ErrUnseen) {
		t.Errorf("without a right: %v", err)
	}
	exec("primary", "GRANT PROCESS ON *.* TO plain@'%'")
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // it connects anew
		if at, err = look(); len(at) == 1 || time.Now().After(end) {
			break
		}
	}
	if err != nil || len(at) != 1 || at[0].ID != "" || at[0].Where == "" {
		t.Errorf("with PROCESS: %+v, %v", at, err)
	}
}

// The names of both servers, old and new.
func TestSourcesAreReadByName(t *testing.T) {
	t.Parallel()
	for _, c := range []map[string][]byte{
		{"source_host": []byte("h"), "source_port": []byte("1"), "source_server_id": []byte("7"), "source_uuid": []byte("u-1")},
		{"master_host": []byte("h"), "master_port": []byte("1"), "master_server_id": []byte("7"), "master_uuid": []byte("u-1")},
	} {
		s := sourcesOf([]map[string][]byte{c})[0]
		if s != (Source{"h", "1", "7", "u-1"}) || !s.IsOf(Server{ID: "8", UUID: "u-1"}) || s.IsOf(Server{ID: "7", UUID: "u-2"}) || !s.IsOf(Server{ID: "7"}) {
			t.Errorf("%+v", s)
		}
	}
	a := Attached{ID: "7", UUID: "u-1"}
	if !a.Is(Server{ID: "9", UUID: "u-1"}) || a.Is(Server{ID: "7", UUID: "u-2"}) || !a.Is(Server{ID: "7"}) || (Attached{}).Is(Server{}) {
		t.Error("attached replicas are told apart wrongly")
	}
}
