package adversary

import (
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

const markKey = "im/manifest/owner=im.json"

// contents are all objects of the bucket.
func contents(e *harness.Env) map[string]string {
	e.T.Helper()
	all := map[string]string{}
	for _, k := range e.Keys() {
		all[k] = string(e.Object(k))
	}
	return all
}

func unput(e *harness.Env, keys ...string) {
	e.T.Helper()
	for _, k := range keys {
		if _, err := e.S3.Client().DeleteObject(e.T.Context(), &s3.DeleteObjectInput{Bucket: &e.S3.Bucket, Key: &k}); err != nil {
			e.T.Fatal(err)
		}
	}
}

func identity(e *harness.Env) string {
	e.T.Helper()
	id, err := e.Store().Identity(e.T.Context())
	if err != nil || id == "" {
		e.T.Fatalf("identity %q, %v", id, err)
	}
	return id
}

func tables(t *testing.T, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW TABLES")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return names
}

// dump copies the manifest into a database of its own and gives its DSN.
func dump(e *harness.Env) string {
	e.T.Helper()
	to := stack.MySQL(e.T)
	from, err := mysql.ParseDSN(e.Manifest)
	if err != nil {
		e.T.Fatal(err)
	}
	db := stack.OpenMySQL(e.T, to)
	for _, name := range tables(e.T.(*testing.T), stack.OpenMySQL(e.T, e.Manifest)) {
		for _, q := range []string{"CREATE TABLE %[2]s LIKE %[1]s.%[2]s", "INSERT INTO %[2]s SELECT * FROM %[1]s.%[2]s"} {
			if _, err := db.ExecContext(e.T.Context(), fmt.Sprintf(q, from.DBName, name)); err != nil {
				e.T.Fatal(err)
			}
		}
	}
	return to
}

// A clone of an installation that kept its bucket, prefix and source name, but has a
// manifest of its own, would adopt the original's commit records, and the original the
// clone's: whatever it is told to do it refuses, and changes nothing anywhere.
func TestCloneWithAManifestOfItsOwn(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 81, Messages: 150})
	want := e.Truth()
	e.Must("archive")
	before := contents(e)

	clone := harness.New(t, harness.Options{Seed: 82, Messages: 1})
	mine := identity(clone)
	clone.WarmDSN, clone.S3 = e.WarmDSN, e.S3
	clone.Change(func(o *harness.Options) { o.Config = map[string]string{} })
	for _, verb := range [][]string{{"archive", "--dry-run"}, {"archive"}, {"verify", "--dry-run"}, {"verify"}, {"purge", "--dry-run"}, {"purge"}, {"check"},
		{"migrate", "--dry-run"}, {"migrate"}} {
		r := clone.Expect(4, []string{e.S3.Bucket, `prefix "im"`, "source im", identity(e), mine, "bucket.prefix"}, verb...)
		if n := strings.Count(r.Stdout+r.Stderr, mine); n != 1 || verb[0] != "check" && strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("the refusal is not one line: %s", r)
		}
	}
	// Begun empty: not even tables are made.
	was := clone.Manifest
	clone.Manifest = stack.MySQL(t)
	clone.Change(func(*harness.Options) {})
	clone.Expect(4, []string{identity(e), "none yet", "bucket.prefix"}, "migrate")
	if names := tables(t, stack.OpenMySQL(t, clone.Manifest)); len(names) != 0 {
		t.Errorf("the refused migrate made %v", names)
	}
	clone.Manifest = was

	if list := clone.Slices(); len(list) != 0 {
		t.Errorf("the clone has slices: %v", list)
	}
	if runs, err := clone.Store().LastRuns(t.Context(), "", 10); err != nil || len(runs) != 0 {
		t.Errorf("the clone has runs: %v, %v", runs, err)
	}
	if !reflect.DeepEqual(contents(e), before) {
		t.Error("the bucket's objects changed")
	}
	if e.Count() != len(want) {
		t.Errorf("%d of %d rows are in warm", e.Count(), len(want))
	}
	e.Must("migrate")
	e.Must("verify")
	gone(e, want)
	if string(e.Object(markKey)) != before[markKey] {
		t.Error("the owner mark changed")
	}
}

// A manifest that was restored from a dump, on whatever server, owns the bucket still.
func TestManifestFromADumpOwnsItsBucket(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 83, Messages: 150})
	want := e.Truth()
	e.Must("archive")
	e.Manifest = dump(e)
	e.Change(func(*harness.Options) {})
	for _, verb := range []string{"check", "migrate", "verify"} {
		e.Must(verb)
	}
	gone(e, want)
}

// Purge deletes nothing when the bucket is not, or no longer, the one that was
// archived to; verify says it, and the next archive makes it good.
func TestPurgeOfABucketWithoutOwner(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(e *harness.Env){
		"emptied":   func(e *harness.Env) { unput(e, e.Keys()...) },
		"another":   func(e *harness.Env) { e.S3 = stack.Bucket(e.T) },
		"mark lost": func(e *harness.Env) { unput(e, markKey) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Seed: 84, Messages: 150})
			want := e.Truth()
			e.Must("archive")
			lose(e)
			e.Change(func(*harness.Options) {})
			words := []string{"owner mark", "manifest/owner=im.json is not in the bucket"}
			e.Expect(4, words, "purge", "--dry-run")
			e.Expect(4, words, "purge")
			e.Expect(0, words, "check")
			e.Expect(0, words, "verify", "--dry-run")
			e.Expect(0, nil, "archive", "--dry-run")
			if slices.Contains(e.Keys(), markKey) {
				t.Error("looking made the mark")
			}
			exit := 4 // the objects are not there
			if name == "mark lost" {
				exit = 0
			}
			e.Expect(exit, words, "verify")
			if n := e.Count(); n != len(want) {
				t.Fatalf("%d of %d rows are in warm", n, len(want))
			}
			gone(e, want)
		})
	}
}

// What cannot be read is nobody's: nothing is done, and nothing is written over it.
func TestDamagedOwnerMark(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 85, Messages: 150})
	want := e.Truth()
	e.Must("archive")
	mark := e.Object(markKey)
	e.PutObject(markKey, mark[:len(mark)/2])
	before := contents(e)
	for _, verb := range []string{"archive", "verify", "purge", "check", "migrate"} {
		e.Expect(2, []string{"damaged", "owner=im.json"}, verb)
	}
	if !reflect.DeepEqual(contents(e), before) || e.Count() != len(want) {
		t.Error("something changed")
	}
	e.PutObject(markKey, mark)
	gone(e, want)
}

// Migrate marks the bucket when it can, and does the rest when it cannot; then archive
// does it before anything else is put.
func TestMigrateMarksTheBucket(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 86, Messages: 150})
	if keys := e.Keys(); !slices.Equal(keys, []string{markKey}) {
		t.Errorf("migrate put %v", keys)
	}
	if !strings.Contains(string(e.Object(markKey)), `"identity":"`+identity(e)+`"`) {
		t.Errorf("the mark says %s", e.Object(markKey))
	}
	unput(e, markKey)
	e.Expect(0, []string{"would put manifest/owner=im.json"}, "migrate", "--dry-run")
	if keys := e.Keys(); len(keys) != 0 {
		t.Errorf("the dry run put %v", keys)
	}
	there := e.S3
	e.S3.Bucket = stack.Unique("t-none-")
	e.Change(func(*harness.Options) {})
	e.Expect(0, []string{"warning: the bucket's owner mark is left to the next archive"}, "migrate")
	e.S3 = there
	e.Change(func(*harness.Options) {})
	if r := e.Start([]string{"COLDTIER_CRASH_AT=archive.claimed"}, "archive").Wait(); r.Exit == 0 {
		t.Fatal(r)
	}
	if keys := e.Keys(); !slices.Equal(keys, []string{markKey}) {
		t.Errorf("archive first put %v", keys)
	}
}
