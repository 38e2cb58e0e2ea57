package fault

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
)

// direct is a set-up without a line.
func direct(t *testing.T, strategy string) *env {
	t.Helper()
	return setup(t, "", strategy, 80)
}

// stopAt runs an archive that stops itself at a step, does something meanwhile, and
// gives its end.
func (e *env) stopAt(step string, meanwhile func()) harness.Result {
	e.T.Helper()
	p := e.Start([]string{"COLDTIER_STOP_AT=" + step}, "archive")
	if !p.Stopped() {
		e.T.Fatal(p.Wait())
	}
	meanwhile()
	p.Signal(syscall.SIGCONT)
	return p.Wait()
}

// objects are the keys of the messages' objects.
func (e *env) objects() []string {
	e.T.Helper()
	keys := slices.DeleteFunc(e.Keys(), func(k string) bool { return !strings.Contains(k, "/conv=") })
	if len(keys) == 0 {
		e.T.Fatalf("the bucket has %d message objects", len(keys))
	}
	return keys
}

func (e *env) remove(keys ...string) {
	e.T.Helper()
	for _, k := range keys {
		if _, err := e.S3.Client().DeleteObject(e.T.Context(), &s3.DeleteObjectInput{Bucket: &e.S3.Bucket, Key: &k}); err != nil {
			e.T.Fatal(err)
		}
	}
}

// kept demands that a purge deletes nothing.
func (e *env) kept() {
	e.T.Helper()
	e.Run("purge")
	if n := e.Count(); n != len(e.want) {
		e.T.Fatalf("%d of %d rows are left in warm: rows without a good copy were purged", n, len(e.want))
	}
	e.Verdict(e.want)
}

func base(key string) string { return key[strings.LastIndex(key, "/")+1:] }

// S12: the bucket took an object with 200, and has lost or changed it by the time the
// copy is verified: refused, the object named, nothing deleted, and copied anew.
func TestObjectLostBeforeVerification(t *testing.T) {
	t.Parallel()
	damages := map[string]func(e *env, key, other string){
		"lost":  func(e *env, key, _ string) { e.remove(key) },
		"short": func(e *env, key, _ string) { b := e.Object(key); e.PutObject(key, b[:len(b)/2]) },
		"empty": func(e *env, key, _ string) { e.PutObject(key, nil) },
		"another's": func(e *env, key, other string) {
			b := e.Object(other)
			if other == key { // the slice that comes first may be of one conversation
				b = slices.Concat(b, b)
			}
			e.PutObject(key, b)
		},
		"one bit": func(e *env, key, _ string) {
			b := bytes.Clone(e.Object(key))
			b[e.rng.IntN(len(b))] ^= 1 << e.rng.IntN(8)
			e.PutObject(key, b)
		},
	}
	steps := []string{"archive.stored", "archive.record-put", "archive.committed"}
	for name, damage := range damages {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			e := direct(t, "rows")
			step := steps[e.rng.IntN(len(steps))]
			var key string
			r := e.stopAt(step, func() {
				keys := e.objects()
				i := e.rng.IntN(len(keys))
				key = keys[i]
				damage(e, key, keys[(i+1)%len(keys)])
			})
			if r.Exit != 4 || !strings.Contains(r.Stdout+r.Stderr, base(key)) {
				t.Errorf("%s at %s: want exit 4 and %s named: %s", key, step, base(key), r)
			}
			for _, s := range e.Slices() {
				if s.State == manifest.Verified {
					t.Errorf("slice %s is verified", s.SliceKey)
				}
			}
			e.kept()
			e.cold()
		})
	}
}

// A1, A3: everything in the bucket is gone. What is not verified yet is refused;
// what is, is found by verify; and nothing is purged on the word of an empty bucket.
func TestEmptiedBucket(t *testing.T) {
	t.Parallel()
	t.Run("before verification", func(t *testing.T) {
		t.Parallel()
		e := direct(t, "rows")
		if r := e.stopAt("archive.committed", func() { e.remove(e.Keys()...) }); r.Exit != 4 {
			t.Errorf("want exit 4: %s", r)
		}
		e.kept()
		e.cold()
	})
	t.Run("after a crash before verification", func(t *testing.T) {
		t.Parallel()
		e := direct(t, "rows")
		if r := e.Start([]string{"COLDTIER_CRASH_AT=archive.committed"}, "archive").Wait(); r.Exit != -1 {
			t.Fatal(r)
		}
		e.remove(e.Keys()...)
		e.expire()
		r := e.Run("archive")
		if r.Exit != 4 || !strings.Contains(r.Stdout+r.Stderr, "conv=") {
			t.Errorf("want exit 4 and the object named: %s", r)
		}
		e.kept()
		e.cold()
	})
	for _, strategy := range []string{"rows", "partition"} {
		t.Run("after verification/"+strategy, func(t *testing.T) {
			t.Parallel()
			e := direct(t, strategy)
			e.Must("archive")
			e.remove(e.Keys()...)
			e.Expect(4, []string{"conv=", base(e.Tables[0])}, "verify")
			if n := e.Count(); n != len(e.want) {
				t.Errorf("%d of %d rows are left in warm", n, len(e.want))
			}
			e.Run("purge")
			if n := e.Count(); n != len(e.want) {
				t.Fatalf("%d of %d rows are left in warm: purged on the word of an empty bucket", n, len(e.want))
			}
			e.cold()
		})
	}
	t.Run("after the purge", func(t *testing.T) {
		t.Parallel()
		e := direct(t, "rows")
		e.cold()
		saved := map[string][]byte{}
		for _, k := range e.Keys() {
			saved[k] = e.Object(k)
		}
		e.remove(e.Keys()...)
		e.Expect(4, []string{"conv="}, "verify")
		e.Must("archive") // nothing is due, and nothing may be marked as missing work
		for k, b := range saved {
			e.PutObject(k, b)
		}
		e.Must("verify")
		if r := e.Verdict(e.want); r.InCold != len(e.want) {
			t.Error(r)
		}
	})
}

// A bucket that is removed, or a key that is no longer good, in the middle: the error
// names the bucket, and after the repair the next run finishes.
func TestBucketRemovedInTheMiddle(t *testing.T) {
	t.Parallel()
	e := direct(t, "rows")
	c := e.S3.Client()
	r := e.stopAt("archive.scanned", func() {
		e.remove(e.Keys()...)
		if _, err := c.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &e.S3.Bucket}); err != nil {
			t.Fatal(err)
		}
	})
	if r.Exit == 0 || !strings.Contains(r.Stdout+r.Stderr, e.S3.Bucket) {
		t.Errorf("want an error that names the bucket %s: %s", e.S3.Bucket, r)
	}
	e.Expect(2, []string{e.S3.Bucket}, "archive")
	if _, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &e.S3.Bucket}); err != nil {
		t.Fatal(err)
	}
	e.kept()
	secret := e.S3.Secret
	e.S3.Secret = "wrong"
	e.Expect(2, []string{e.S3.Bucket}, "archive")
	e.S3.Secret = secret
	e.cold()
}

// A server that goes away right before a step: the step's error names it.
func TestServerAwayAtAStep(t *testing.T) {
	t.Parallel()
	for server, steps := range map[string][]string{
		warmServer:     {"archive.claimed"},
		manifestServer: {"archive.claimed", "archive.stored", "archive.checked"},
		bucketServer:   {"archive.scanned", "archive.committed"},
		rowsServer:     {"archive.scanned", "archive.committed"},
	} {
		for _, step := range steps {
			t.Run(server+"/"+step, func(t *testing.T) {
				t.Parallel()
				e := setup(t, server, "rows", 60)
				r := e.stopAt(step, e.Cut)
				if r.Exit == 0 || !strings.Contains(r.Stdout+r.Stderr, e.addr) && !strings.Contains(r.Stdout+r.Stderr, e.Days[0].String()) {
					t.Errorf("want an error that names the server %s or the slice: %s", e.addr, r)
				}
				e.ended(r)
				e.Heal()
				e.cold()
				e.one()
			})
		}
	}
}

// A copy in ClickHouse that has a row less, one more, or another value, past the
// product: refused by verify, named, not purged, and copied anew.
func TestDifferentRowsInClickHouse(t *testing.T) {
	t.Parallel()
	doctor := map[string]func(e *env, id uint64){
		"missing":   func(e *env, id uint64) { e.alter(fmt.Sprintf("DELETE WHERE msg_id = %d", id)) },
		"all gone":  func(e *env, _ uint64) { e.alter("DELETE WHERE msg_id != 0") },
		"doubled":   func(e *env, id uint64) { e.insertAgain(id, map[string]string{"seq": "seq + 1"}) },
		"different": func(e *env, id uint64) { e.alter(fmt.Sprintf("UPDATE status = status + 1 WHERE msg_id = %d", id)) },
	}
	for name, change := range doctor {
		for _, verified := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/verified=%v", strings.ReplaceAll(name, " ", "_"), verified), func(t *testing.T) {
				t.Parallel()
				e := direct(t, "rows")
				var id uint64
				if err := e.Warm.QueryRowContext(t.Context(), "SELECT msg_id FROM "+e.Tables[0]+" ORDER BY msg_id LIMIT 1 OFFSET 7").Scan(&id); err != nil {
					t.Fatal(err)
				}
				var r harness.Result
				if verified {
					e.Must("archive")
					change(e, id)
					r = e.Run("verify")
				} else {
					r = e.stopAt("archive.stored", func() { change(e, id) })
				}
				if r.Exit != 4 || !strings.Contains(r.Stdout+r.Stderr, "ClickHouse: ") || !strings.Contains(r.Stdout+r.Stderr, base(e.Tables[0])) {
					t.Errorf("want exit 4, ClickHouse and the slice named: %s", r)
				}
				e.Run("purge")
				if n := e.Count(); n != len(e.want) {
					t.Fatalf("%d of %d rows are left in warm", n, len(e.want))
				}
				e.cold()
			})
		}
	}
}

// C2: the very same row twice is what an interrupted insert leaves: it counts once.
func TestSameRowTwiceInClickHouse(t *testing.T) {
	t.Parallel()
	e := direct(t, "rows")
	e.Must("archive")
	e.insertAgain(0, nil)
	e.Must("verify")
	e.cold()
	e.one()
}

// alter changes rows of ClickHouse's table and waits until it is done: mutations are
// asynchronous on old servers.
func (e *env) alter(what string) {
	e.T.Helper()
	conn := e.ClickHouse.Open(e.T)
	if err := conn.Exec(e.T.Context(), "ALTER TABLE "+e.ClickHouse.Database+".messages "+what); err != nil {
		e.T.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; {
		var n uint64
		if err := conn.QueryRow(e.T.Context(), "SELECT count() FROM system.mutations WHERE is_done = 0 AND database = '"+e.ClickHouse.Database+"'").Scan(&n); err != nil {
			e.T.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			e.T.Fatalf("ALTER ... %s is not done after a minute", what)
		}
		time.Sleep(10 * time.Millisecond) // the server tells nobody
	}
}

// insertAgain inserts a row of ClickHouse's table again, or all when id is 0, with some columns changed.
func (e *env) insertAgain(id uint64, change map[string]string) {
	e.T.Helper()
	conn := e.ClickHouse.Open(e.T)
	rows, err := conn.Query(e.T.Context(), "SELECT name FROM system.columns WHERE database = '"+e.ClickHouse.Database+"' AND table = 'messages'")
	if err != nil {
		e.T.Fatal(err)
	}
	var names, values []string
	for rows.Next() {
		var n string
		if err := rows.Scan(&n); err != nil {
			e.T.Fatal(err)
		}
		names = append(names, n)
		if v, ok := change[n]; ok {
			n = v
		}
		values = append(values, n)
	}
	if err := rows.Err(); err != nil {
		e.T.Fatal(err)
	}
	t := e.ClickHouse.Database + ".messages"
	q := fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s", t, strings.Join(names, ", "), strings.Join(values, ", "), t)
	if id != 0 {
		q += fmt.Sprintf(" WHERE msg_id = %d", id)
	}
	if err := conn.Exec(e.T.Context(), q); err != nil {
		e.T.Fatal(err)
	}
}

// C4: whatever the user's profile says, every insert over HTTP itself says that it is
// synchronous. (Servers with the native protocol here are older than the setting.)
func TestInsertsAreNeverAsynchronous(t *testing.T) {
	t.Parallel()
	e := setup(t, rowsServer, "rows", 60)
	if e.ClickHouse.Protocol != "http" {
		t.Skip("this server knows no asynchronous inserts")
	}
	var mu sync.Mutex
	var sent bytes.Buffer
	e.onSent(func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		sent.Write(b)
	})
	e.Must("archive")
	mu.Lock()
	defer mu.Unlock()
	inserts := regexp.MustCompile(`POST /\S*INSERT\S*`).FindAllString(sent.String(), -1)
	if len(inserts) == 0 {
		t.Fatalf("no insert passed in %d bytes", sent.Len())
	}
	for _, i := range inserts {
		if !strings.Contains(i, "async_insert=0") || !strings.Contains(i, "wait_for_async_insert=1") {
			t.Errorf("an insert leaves it to the profile: %s", i)
		}
	}
	e.Verdict(e.want)
}
