package drill

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// fault is something that is wrong. It says what the drill must name, and is undone.
type fault struct {
	name   string
	checks []string // that must fail
	do     func(t *testing.T, r *rig) (names []string, undo func())
}

const (
	listed    = "every object of every live generation is listed with its size"
	recorded  = "every live generation's commit record is listed"
	owned     = "the bucket belongs to this manifest"
	rebuilt   = "the manifest is rebuilt from the bucket alone"
	equal     = "the rebuilt manifest equals the live one"
	restored  = "the sample is restored from the bucket alone"
	bodies    = "bucket, byte for byte"
	rows      = "ClickHouse, byte for byte"
	inBucket  = "/conv="
	inRecords = "manifest/day="
)

// object picks an object of the bucket: the n-th.
func (r *rig) object(part string, n int) (key string, data []byte) {
	r.T.Helper()
	keys := slices.DeleteFunc(r.Keys(), func(k string) bool { return !strings.Contains(k, part) })
	if n >= len(keys) {
		r.T.Fatalf("%d objects have %q in their key", len(keys), part)
	}
	return keys[n], r.Object(keys[n])
}

func (r *rig) remove(key string) {
	r.T.Helper()
	if _, err := r.S3.Client().DeleteObject(r.T.Context(), &s3.DeleteObjectInput{Bucket: &r.S3.Bucket, Key: &key}); err != nil {
		r.T.Fatal(err)
	}
}

// named is a key without the bucket's prefix, as the drill names it.
func named(key string) string { return strings.TrimPrefix(key, "im/") }

// changed changes one object.
func changed(part string, n int, change func([]byte) []byte) func(*testing.T, *rig) ([]string, func()) {
	return func(_ *testing.T, r *rig) ([]string, func()) {
		key, data := r.object(part, n)
		if b := change(slices.Clone(data)); b == nil {
			r.remove(key)
		} else {
			r.PutObject(key, b)
		}
		name := named(key)
		if part == inRecords { // it names what the slice lacks then
			_, day, _ := strings.Cut(key, "/day=")
			day, shard, _ := strings.Cut(day, "/shard=")
			shard, _, _ = strings.Cut(shard, ".g1")
			name = day + " " + shard
		}
		return []string{name}, func() { r.PutObject(key, data) }
	}
}

func missing([]byte) []byte { return nil }

func flipped(b []byte) []byte {
	b[60] ^= 1 << 3 // in the first row group
	return b
}

func truncated(b []byte) []byte { return b[:len(b)-7] }

// inManifest changes the live manifest past the product. The row that is changed is one
// of a slice that the drill must name.
func inManifest(n int, do, undo string) func(*testing.T, *rig) ([]string, func()) {
	return func(t *testing.T, r *rig) ([]string, func()) {
		db := stack.OpenMySQL(t, r.Manifest)
		s := r.Slices()[n]
		run := func(q string) {
			res, err := db.Exec(q, s.ID)
			if err != nil {
				t.Fatalf("%s: %v", q, err)
			}
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				t.Fatalf("%s: it changed %d rows: %v", q, n, err)
			}
		}
		run(do)
		return []string{s.SliceKey.String()}, func() { run(undo) }
	}
}

// groups are faults that are there at once: each must be named all the same.
func groups() map[string][]fault {
	return map[string][]fault{
		"bucket": {
			{"object missing", []string{listed, restored, bodies}, changed(inBucket, 0, missing)},
			{"object altered by a bit", []string{restored, bodies}, changed(inBucket, 9, flipped)},
			{"footer altered by a bit", []string{bodies}, changed(inBucket, 18, func(b []byte) []byte {
				b[len(b)-9] ^= 1
				return b
			})},
			{"object truncated", []string{listed, bodies}, changed(inBucket, 27, truncated)},
			{"commit record missing", []string{recorded, equal}, changed(inRecords, 1, missing)},
		},
		"record": {{"commit record altered by a bit", []string{equal}, changed(inRecords, 2, flipped)}},
		"manifest": {
			{"chunk changed", []string{equal}, inManifest(0, "UPDATE chunks SET warm_lo = warm_lo ^ 1 WHERE slice_id = ? AND seq = 0", "UPDATE chunks SET warm_lo = warm_lo ^ 1 WHERE slice_id = ? AND seq = 0")},
			{"segment changed", []string{equal}, inManifest(1, "UPDATE segments SET max_cursor = max_cursor + 1 WHERE slice_id = ? AND object_seq = 0", "UPDATE segments SET max_cursor = max_cursor - 1 WHERE slice_id = ? AND object_seq = 0")},
			{"object renamed", []string{listed, equal}, inManifest(2, "UPDATE objects SET name = CONCAT(name, '.x') WHERE slice_id = ? AND seq = 0", "UPDATE objects SET name = LEFT(name, LENGTH(name) - 2) WHERE slice_id = ? AND seq = 0")},
		},
		"ClickHouse": {
			{"row altered", []string{rows}, inClickHouse(0, func(day, id string) string {
				return "UPDATE content = 'another' WHERE _day = '" + day + "' AND msg_id = " + id
			})},
			{"generation missing", []string{rows}, inClickHouse(1, func(day, _ string) string { return "DELETE WHERE _day = '" + day + "'" })},
		},
	}
}

// inClickHouse changes rows of one day past the product. It is not undone.
func inClickHouse(n int, do func(day, id string) string) func(*testing.T, *rig) ([]string, func()) {
	return func(t *testing.T, r *rig) ([]string, func()) {
		conn := r.ClickHouse.Open(t)
		table, day := r.ClickHouse.Database+".messages", r.Days[n].String()
		var id string
		if err := conn.QueryRow(t.Context(), "SELECT toString(msg_id) FROM "+table+" WHERE _day = '"+day+"' AND length(content) > 0 ORDER BY msg_id LIMIT 1").Scan(&id); err != nil {
			t.Fatal(err)
		}
		state := func() (s string) {
			if err := conn.QueryRow(t.Context(), "SELECT concat(toString(count()), ' ', toString(sum(cityHash64(msg_id, content)))) FROM "+table).Scan(&s); err != nil {
				t.Fatal(err)
			}
			return s
		}
		before, q := state(), do(day, id)
		if err := conn.Exec(t.Context(), "ALTER TABLE "+table+" "+q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		for end := time.Now().Add(time.Minute); state() == before; time.Sleep(20 * time.Millisecond) { // it is done in the background
			if time.Now().After(end) {
				t.Fatalf("%s: nothing changed", q)
			}
		}
		if strings.HasPrefix(q, "UPDATE") {
			return []string{day, id}, func() {}
		}
		return []string{day}, func() {}
	}
}

func TestRed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config(r.dsn(r.base), "read_pages: 3")
	all := groups()
	for _, group := range []string{"bucket", "record", "manifest", "ClickHouse"} {
		t.Run(group, func(t *testing.T) {
			r.T = t
			var names [][]string
			var undo []func()
			for _, f := range all[group] {
				n, u := f.do(t, r)
				names, undo = append(names, n), append(undo, u)
			}
			o := r.drill(1, "--seed", "5")
			for _, u := range undo {
				u()
			}
			for i, f := range all[group] {
				for _, name := range f.checks {
					c := o.check(t, name)
					if c.Verdict != report.Fail {
						t.Errorf("%s: check %q is %s", f.name, name, c.Verdict)
					}
					text := fmt.Sprint(c.Failures)
					for _, n := range names[i] {
						if !strings.Contains(text, n) {
							t.Errorf("%s: check %q does not name %s: %s", f.name, name, n, text)
						}
					}
				}
			}
			good := 0
			for _, s := range o.Report.Sample.Slices {
				if s.Verdict == report.Pass {
					good++
				}
			}
			if c := o.Report.Sample.Coverage; group == "bucket" && (c.Covered != good || good == len(o.Report.Sample.Slices)) { // no drill was before it
				t.Errorf("%d of %d slices came back equal, and the coverage is %+v", good, len(o.Report.Sample.Slices), c)
			}
			if o.Report.Verdict != report.Fail || len(o.Why) == 0 {
				t.Errorf("the verdict is %s: %v", o.Report.Verdict, o.Why)
			}
		})
	}
	r.T = t
}

// TestAnotherBucket drills on buckets that are not the one that was archived to.
func TestAnotherBucket(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	r := newRig(t)
	mark := named(manifest.OwnerKey("im"))
	own := r.Object("im/" + mark)
	for _, f := range []struct {
		name string
		mark []byte
	}{{"empty", nil}, {"another manifest's", []byte(strings.Replace(string(own), `"identity":"`, `"identity":"f`, 1))}} {
		t.Run(f.name, func(t *testing.T) {
			r.T = t
			r.S3.Bucket = stack.Bucket(t).Bucket
			if f.mark != nil {
				r.PutObject("im/"+mark, f.mark)
			}
			r.config(r.dsn(r.base), "read_pages: 3")
			o := r.drill(1)
			for _, name := range []string{owned, listed, recorded, restored} {
				if c := o.check(t, name); c.Verdict != report.Fail {
					t.Errorf("check %q is %s", name, c.Verdict)
				}
			}
			if c := o.check(t, owned); !strings.Contains(fmt.Sprint(c.Failures), mark) {
				t.Errorf("the owner mark is not named: %v", c.Failures)
			}
		})
	}
	r.T = t
}
