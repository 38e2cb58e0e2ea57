// Package bucktest is the contract of an object store as coldtier uses one: a
// suite that package bucket passes on real stores and package membucket in memory,
// so that a test on the latter says something of the former.
//
// Not promised, and so not tested: what a put leaves that ended with an error, and
// lists while others write.
package bucktest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/bucket"
)

// Store is what the suite tries.
type Store interface {
	Put(ctx context.Context, key string, body io.ReadSeeker, size int64, o bucket.PutOptions) error
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)
	Get(ctx context.Context, key string) ([]byte, error)
	Head(ctx context.Context, key string) (bucket.Info, error)
	List(ctx context.Context, prefix string, fn func(bucket.Info) error) error
	Delete(ctx context.Context, keys ...string) error
}

// Run runs the suite; open gives a store that holds nothing.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, part := range []struct {
		name string
		test func(*testing.T, Store)
	}{
		{"what was put comes back", roundTrip},
		{"ranges are exact", ranges},
		{"missing objects", missing},
		{"put replaces", replaces},
		{"put if not there", ifNotThere},
		{"body and its description must agree", badBodies},
		{"keys and metadata", names},
		{"lists", lists},
		{"2,500 keys", manyKeys},
		{"deletes", deletes},
		{"an ended context ends every call", endedContext},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.test(t, open(t))
		})
	}
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Bytes are n bytes that no compression shortens and that differ by seed.
func Bytes(n int, seed string) []byte {
	out := make([]byte, 0, n+sha256.Size)
	for block := sha256.Sum256([]byte(seed)); len(out) < n; block = sha256.Sum256(block[:]) {
		out = append(out, block[:]...)
	}
	return out[:n]
}

func put(t *testing.T, s Store, key string, data []byte, o bucket.PutOptions) {
	t.Helper()
	if err := s.Put(timeout(t), key, bytes.NewReader(data), int64(len(data)), o); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

func want(t *testing.T, err, kind error, texts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("error is %v, want %v", err, kind)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not name %q", err, text)
		}
	}
}

func roundTrip(t *testing.T, s Store) {
	for _, n := range []int{0, 1, 17, 4096, 1<<20 + 3} {
		key, data := fmt.Sprintf("a/%d", n), Bytes(n, "round trip")
		put(t, s, key, data, bucket.PutOptions{SHA256: sha256.Sum256(data), ContentType: "text/plain", Metadata: map[string]string{"origin": "x y"}})
		got, err := s.Get(timeout(t), key)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v; want %d", key, len(got), err, n)
		}
		info, err := s.Head(timeout(t), key)
		if err != nil || info.Key != key || info.Size != int64(n) || info.Modified.IsZero() || info.StorageClass != "STANDARD" {
			t.Errorf("head %s: %+v, %v", key, info, err)
		}
		if info.Metadata["origin"] != "x y" || info.Metadata[bucket.MetaSHA256] != fmt.Sprintf("%x", sha256.Sum256(data)) {
			t.Errorf("metadata of %s: %v", key, info.Metadata)
		}
	}
}

func ranges(t *testing.T, s Store) {
	data := Bytes(10_000, "ranges")
	put(t, s, "r", data, bucket.PutOptions{})
	for _, r := range [][2]int64{{0, 1}, {0, 10_000}, {9_999, 1}, {5_000, 5_000}, {17, 4096}} {
		got, err := s.ReadRange(timeout(t), "r", r[0], r[1])
		if err != nil || !bytes.Equal(got, data[r[0]:r[0]+r[1]]) {
			t.Errorf("range %v: %d bytes, %v", r, len(got), err)
		}
	}
	if got, err := s.ReadRange(timeout(t), "r", 5, 0); err != nil || len(got) != 0 {
		t.Errorf("empty range: %v, %v", got, err)
	}
	// Past the end there is never a short answer.
	for _, r := range [][2]int64{{9_999, 2}, {10_000, 1}, {0, 10_001}, {20_000, 5}} {
		got, err := s.ReadRange(timeout(t), "r", r[0], r[1])
		want(t, err, bucket.ErrCorrupt, "r")
		if len(got) != 0 {
			t.Errorf("range %v past the end gives %d bytes", r, len(got))
		}
	}
	for _, r := range [][2]int64{{-1, 5}, {5, -1}, {1 << 62, 1 << 62}} {
		if _, err := s.ReadRange(timeout(t), "r", r[0], r[1]); err == nil {
			t.Errorf("range %v is read", r)
		}
	}
}

func missing(t *testing.T, s Store) {
	_, err := s.Get(timeout(t), "no/such")
	want(t, err, bucket.ErrNotFound, "no/such")
	_, err = s.ReadRange(timeout(t), "no/such", 0, 5)
	want(t, err, bucket.ErrNotFound, "no/such")
	_, err = s.Head(timeout(t), "no/such")
	want(t, err, bucket.ErrNotFound, "no/such")
}

func replaces(t *testing.T, s Store) {
	put(t, s, "k", []byte("old"), bucket.PutOptions{})
	put(t, s, "k", []byte("newer"), bucket.PutOptions{})
	if got, err := s.Get(timeout(t), "k"); err != nil || string(got) != "newer" {
		t.Errorf("after a replacement: %q, %v", got, err)
	}
}

func ifNotThere(t *testing.T, s Store) {
	o := bucket.PutOptions{IfNoneMatch: true}
	put(t, s, "k", []byte("first"), o)
	put(t, s, "k", []byte("first"), o) // the same again: a try whose answer was lost
	for _, other := range []string{"other", "longer than the first", ""} {
		err := s.Put(timeout(t), "k", strings.NewReader(other), int64(len(other)), o)
		want(t, err, bucket.ErrExists, "k")
	}
	if got, err := s.Get(timeout(t), "k"); err != nil || string(got) != "first" {
		t.Errorf("after refused puts: %q, %v", got, err)
	}
}

func badBodies(t *testing.T, s Store) {
	for _, size := range []int64{-1, 0, 2, 4} {
		if err := s.Put(timeout(t), "bad", strings.NewReader("abc"), size, bucket.PutOptions{}); err == nil {
			t.Errorf("3 bytes said to be %d are put", size)
		}
	}
	err := s.Put(timeout(t), "bad", strings.NewReader("abc"), 3, bucket.PutOptions{SHA256: sha256.Sum256([]byte("abd"))})
	want(t, err, bucket.ErrCorrupt, "bad")
	disk := errors.New("disk on fire")
	err = s.Put(timeout(t), "bad", &failing{Reader: *strings.NewReader("abc"), err: disk}, 3, bucket.PutOptions{})
	want(t, err, disk, "bad")
	_, err = s.Head(timeout(t), "bad")
	want(t, err, bucket.ErrNotFound)
	// From its start, wherever it stands; and a body that can only seek.
	r := strings.NewReader("abc")
	_, _ = r.Seek(2, io.SeekStart)
	if err := s.Put(timeout(t), "good", struct{ io.ReadSeeker }{r}, 3, bucket.PutOptions{}); err != nil {
		t.Error(err)
	}
	if got, err := s.Get(timeout(t), "good"); err != nil || string(got) != "abc" {
		t.Errorf("a body that was read before: %q, %v", got, err)
	}
}

type failing struct {
	strings.Reader
	err error
}

func (f *failing) Read([]byte) (int, error)          { return 0, f.err }
func (f *failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func names(t *testing.T, s Store) {
	for _, key := range []string{"", "/a", "a/", "a//b", "a/../b", ".", "a\x00b", "a\nb", "\xff", strings.Repeat("k", 1025)} {
		if err := s.Put(timeout(t), key, strings.NewReader("x"), 1, bucket.PutOptions{}); err == nil {
			t.Errorf("key %q is put", key)
		}
		if _, err := s.Get(timeout(t), key); err == nil {
			t.Errorf("key %q is read", key)
		}
		if err := s.Delete(timeout(t), key); err == nil {
			t.Errorf("key %q is deleted", key)
		}
	}
	for _, key := range []string{"conv=a%2Fb.parquet", "sp ace+plus&amp;<x>'\"", "日本/emoji😀", "day=2026-05-01/shard=im.t/g1-a/conv=-5.parquet", "q?x=1#f"} {
		put(t, s, key, []byte(key), bucket.PutOptions{})
		if got, err := s.Get(timeout(t), key); err != nil || string(got) != key {
			t.Errorf("key %q: %q, %v", key, got, err)
		}
		if got := keys(t, s, key); !slices.Equal(got, []string{key}) {
			t.Errorf("key %q is listed as %q", key, got)
		}
		if err := s.Delete(timeout(t), key); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
		_, err := s.Head(timeout(t), key)
		want(t, err, bucket.ErrNotFound)
	}
	for k, v := range map[string]string{"": "x", "Upper": "x", "a b": "x", bucket.MetaSHA256: "x", "nl": "a\nb", "cjk": "日", "long": strings.Repeat("x", 2000)} {
		if err := s.Put(timeout(t), "m", strings.NewReader("x"), 1, bucket.PutOptions{Metadata: map[string]string{k: v}}); err == nil {
			t.Errorf("metadata %q=%q is put", k, v)
		}
	}
}

func keys(t *testing.T, s Store, prefix string) (got []string) {
	t.Helper()
	if err := s.List(timeout(t), prefix, func(i bucket.Info) error {
		got = append(got, i.Key)
		return nil
	}); err != nil {
		t.Fatalf("list %q: %v", prefix, err)
	}
	return got
}

func lists(t *testing.T, s Store) {
	if got := keys(t, s, ""); len(got) != 0 {
		t.Errorf("an empty store lists %q", got)
	}
	for _, k := range []string{"b/2", "a", "b/10", "b/1", "bb", "c"} {
		put(t, s, k, []byte(k), bucket.PutOptions{})
	}
	for prefix, want := range map[string][]string{
		"": {"a", "b/1", "b/10", "b/2", "bb", "c"}, "b": {"b/1", "b/10", "b/2", "bb"}, "b/": {"b/1", "b/10", "b/2"}, "b/1": {"b/1", "b/10"}, "d": nil,
	} {
		if got := keys(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("list %q: %q, want %q", prefix, got, want)
		}
	}
	stop := errors.New("stop")
	n := 0
	err := s.List(timeout(t), "", func(i bucket.Info) error {
		n++
		if i.Size != int64(len(i.Key)) || i.StorageClass != "STANDARD" || i.Modified.IsZero() {
			t.Errorf("listed as %+v", i)
		}
		return stop
	})
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("a list that is stopped at once: %d calls, %v", n, err)
	}
}

// S9: more keys than a page of the list, or one multi-delete, holds.
func manyKeys(t *testing.T, s Store) {
	const n = 2500
	all := make([]string, n)
	work := make(chan string, n)
	for i := range all {
		all[i] = fmt.Sprintf("many/%05d", i)
		work <- all[i]
	}
	close(work)
	errs := make(chan error, 16)
	for range cap(errs) {
		go func() {
			for key := range work {
				if err := s.Put(timeout(t), key, strings.NewReader(key), int64(len(key)), bucket.PutOptions{}); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "zz", nil, bucket.PutOptions{})
	if got := keys(t, s, "many/"); !slices.Equal(got, all) {
		t.Fatalf("%d of %d keys are listed", len(got), n)
	}
	if err := s.Delete(timeout(t), all...); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, s, ""); !slices.Equal(got, []string{"zz"}) {
		t.Errorf("after the delete %d keys are left: %.3q", len(got), got)
	}
}

func deletes(t *testing.T, s Store) {
	put(t, s, "a", []byte("a"), bucket.PutOptions{})
	put(t, s, "b", []byte("b"), bucket.PutOptions{})
	if err := s.Delete(timeout(t)); err != nil {
		t.Errorf("delete of nothing: %v", err)
	}
	if err := s.Delete(timeout(t), "a", "never/was"); err != nil {
		t.Errorf("delete of one that is there and one that is not: %v", err)
	}
	if got := keys(t, s, ""); !slices.Equal(got, []string{"b"}) {
		t.Errorf("after the delete there is %q", got)
	}
	// A wrong key among them: nothing is deleted.
	if err := s.Delete(timeout(t), "b", ""); err == nil {
		t.Error("an empty key is deleted")
	}
	if got := keys(t, s, ""); !slices.Equal(got, []string{"b"}) {
		t.Errorf("after a refused delete there is %q", got)
	}
}

func endedContext(t *testing.T, s Store) {
	put(t, s, "k", []byte("value"), bucket.PutOptions{})
	lost := errors.New("the lease was lost")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(lost)
	for name, err := range map[string]error{
		"put":    s.Put(ctx, "k2", strings.NewReader("x"), 1, bucket.PutOptions{}),
		"delete": s.Delete(ctx, "k"),
		"list":   s.List(ctx, "", func(bucket.Info) error { return nil }),
		"get":    second(s.Get(ctx, "k")),
		"range":  second(s.ReadRange(ctx, "k", 0, 1)),
		"head":   second(s.Head(ctx, "k")),
	} {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, lost) {
			t.Errorf("%s with an ended context: %v; want that it was cancelled, and why", name, err)
		}
	}
	if got := keys(t, s, ""); !slices.Equal(got, []string{"k"}) {
		t.Errorf("after calls with an ended context there is %q", got)
	}
}

func second[T any](_ T, err error) error { return err }
