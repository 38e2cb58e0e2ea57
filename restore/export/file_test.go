package export_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore/export"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/copies"
)

func TestAFileHasItsNameWhenItIsWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.csv")
	names := func() (n int) {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	create := func(force bool) *export.File {
		t.Helper()
		f, err := export.Create(path, force)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("rows"); err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := create(false)
	if _, err := os.Stat(path); err == nil {
		t.Error("it has its name before it is whole")
	}
	if err := f.Discard(); err != nil || names() != 0 {
		t.Error(err, names())
	}
	f, late := create(false), create(false)
	if err := errors.Join(f.Commit(), f.Discard()); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "rows" {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	if err := late.Commit(); !errors.Is(err, export.ErrExists) { // one came meanwhile
		t.Error(err)
	}
	if err := late.Discard(); err != nil || names() != 1 {
		t.Error(err, names())
	}
	if _, err := export.Create(path, false); !errors.Is(err, export.ErrExists) {
		t.Error(err)
	}
	if err := create(true).Commit(); err != nil || names() != 1 {
		t.Error(err, names())
	}
	for _, force := range []bool{false, true} { // no regular file is ever replaced
		if _, err := export.Create(dir, force); !errors.Is(err, export.ErrExists) {
			t.Error(err)
		}
	}
	if _, err := export.Create(filepath.Join(dir, "none", "x"), false); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// heap looks at the memory each time that some was written.
type heap struct {
	n, next int64
	most    uint64
}

const lookEvery = 8 << 20

func inUse() uint64 {
	runtime.GC()
	runtime.GC() // pools give their memory back at the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (h *heap) Write(p []byte) (int, error) {
	if h.n += int64(len(p)); h.n >= h.next {
		h.next = h.n + lookEvery
		h.most = max(h.most, inUse())
	}
	return len(p), nil
}

// An export takes no more memory the more it writes. Not parallel: it looks at all memory
// of the process.
func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("memory is the same whatever the servers")
	}
	x := copies.New(t)
	rng := rand.NewChaCha8([32]byte{1})
	const each, days = 12 << 20, 7
	for d := range days {
		day, lo := day(t, 1+d)
		var rows [][][]byte
		for i := range each >> 14 {
			body := make([]byte, 1<<14)
			_, _ = rng.Read(body)
			rows = append(rows, append(texts(message.FormatID(lo+uint64(i)), fmt.Sprint("c", i/100), "0"), body))
		}
		x.Commit(copies.Copy{Shard: shard, Day: day, Schema: schema(t, "body"), Rows: rows})
	}
	r := selection.New(selection.Deps{Manifest: x.Store, Objects: x, Layout: copies.Layout()}, selection.Config{Memory: 8 << 20, Requests: 2})
	for format := range readers {
		before := inUse()
		h := &heap{next: lookEvery}
		rep, err := export.Run(t.Context(), r, selection.Selection{}, h, export.Options{Format: format})
		if err != nil || h.n < each*days {
			t.Fatal(rep, err)
		}
		grown := int64(h.most) - int64(before)
		t.Logf("%s: %d MiB written, at most %d MiB more in use", format, h.n>>20, grown>>20)
		// A row group of 32 MiB of a Parquet file, what is read ahead, buffers.
		if grown > 56<<20 {
			t.Errorf("%s: %d MiB of memory for %d MiB of rows", format, grown>>20, h.n>>20)
		}
	}
}
