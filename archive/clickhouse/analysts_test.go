package clickhouse

import (
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

// documented is the statements of the package documentation's section for analysts.
func documented(t *testing.T) (statements []string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "// # For analysts\n")
	if !ok {
		t.Fatal("doc.go has no section for analysts")
	}
	section, _, _ = strings.Cut(section, "// # ")
	for block := range strings.SplitSeq(section, "//\n") {
		if strings.HasPrefix(block, "//\tSELECT") {
			statements = append(statements, strings.TrimSpace(strings.ReplaceAll(block, "//\t", "")))
		}
	}
	return statements
}

// What the documentation tells analysts to ask works on a real manifest, and counts the live
// copies' rows once each.
func TestDocumentedQueries(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dsn := stack.MySQL(t)
	store, err := manifest.Open(ctx, manifest.Config{DSN: dsn, Source: "im"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Migrate(ctx, false); err != nil {
		t.Fatal(err)
	}
	db := stack.OpenMySQL(t, dsn)
	for _, q := range []string{
		"INSERT INTO slices (id, source_id, day, db_name, table_name, lo, hi, state, generation, live_generation) VALUES " +
			"(1, 1, '2026-05-01', 'im_00', 'msg_content_00', 0, 9, 'verified', 2, 2), (2, 1, '2026-05-02', 'im_00', 'msg_content_00', 9, 18, 'committed', 1, 0)",
		"INSERT INTO copies (slice_id, generation, token, attempt, schema_hash, show_create, copied_at, row_count, bytes, record_key, record_sum, committed_at) VALUES " +
			"(1, 1, 1, '1-old', '', '', NOW(6), 2, 1, '', '', NOW(6)), (1, 2, 2, '2-live', '', '', NOW(6), 3, 1, '', '', NOW(6)), (2, 1, 3, '3-unverified', '', '', NOW(6), 1, 1, '', '', NOW(6))",
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	s := schema(t, message.Column{Name: "created", Kind: message.DateTime, SourceType: "datetime"})
	d := migrated(t, nil, s)
	id := copyID("1-old")
	id.Shard.Table = "msg_content_00"
	rows := batchOf(t, s, []string{"1", "7", "1", "a", "2026-05-01 10:00:00"}, []string{"2", "7", "2", "b", "2026-05-01 11:00:00"}, []string{"3", "8", "1", "c", "2026-05-01 12:00:00"})
	insert(t, d, id, rows)
	id.Attempt, id.Generation = "2-live", 2
	insert(t, d, id, rows)
	insert(t, d, id, rows) // sent again
	id.Attempt, id.Generation, id.Day = "3-unverified", 1, id.Day.Next()
	insert(t, d, id, rows)

	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	adapt := strings.NewReplacer("'db:3306'", quote(cfg.Addr), "'coldtier'", quote(cfg.DBName), "'reader'", quote(cfg.User), "'...'", quote(cfg.Passwd), "cold.messages", d.qualified(tableName))
	statements := documented(t)
	if len(statements) != 3 {
		t.Fatalf("%d statements are documented, want 3: %q", len(statements), statements)
	}
	perDay, conversation := adapt.Replace(statements[0]), adapt.Replace(statements[1])
	check := func(perDay, conversation string) {
		t.Helper()
		if n, err := d.count(ctx, "SELECT sum(n) FROM ("+strings.Replace(perDay, "count()", "count() AS n", 1)+")"); err != nil || n != 3 {
			t.Errorf("%d rows per day, want 3 (%v) by\n%s", n, err, perDay)
		}
		if n, err := d.count(ctx, "SELECT count() FROM ("+conversation+")"); err != nil || n != 2 {
			t.Errorf("%d rows of the conversation, want 2 (%v) by\n%s", n, err, conversation)
		}
	}
	check(perDay, conversation)
	var attempt string
	if err := db.QueryRowContext(ctx, statements[2]).Scan(&attempt); err != nil {
		t.Fatal(err)
	}
	twoSteps := func(statement string) string {
		before, after, _ := strings.Cut(statement, "SELECT attempt")
		_, after, _ = strings.Cut(after, "))") // of mysql( and of IN (
		return before + quote(attempt) + after
	}
	check(twoSteps(perDay), twoSteps(conversation))
}
