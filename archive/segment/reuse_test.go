package segment

import (
	"bytes"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

// A reader of one file after another keeps its memory and none of their rows: neither the
// next file nor the next row group changes a batch that was given, and nothing of a
// former one shows in a later one, its NULLs and dictionary included.
func TestOneReaderOfManyFiles(t *testing.T) {
	r := seeded(t)
	s := chatSchema(t)
	type file struct {
		File
		data []byte
	}
	var files []file
	for i, n := range []int{3000, 1, 40, 700} {
		o := Options{}
		if i == 0 {
			o.RowGroupBytes = smallestGroup // several row groups
		}
		f, _, data := write(t, s, o, chat(t, r, uint64(i+1), n))
		files = append(files, file{f, data})
	}
	one, err := Open(files[0].File, s)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []*message.Batch
	for range 2 {
		for _, f := range files {
			if err := one.Reset(f.File); err != nil {
				t.Fatal(err)
			}
			for i, g := range f.RowGroups {
				data := f.data[g.Offset : g.Offset+g.Length]
				if err := func() error { _, err := one.ReadGroup(i, data[1:]); return err }(); err == nil {
					t.Fatal("a row group without its first byte is read")
				}
				b, err := one.ReadGroup(i, bytes.Clone(data))
				if err != nil {
					t.Fatal(err)
				}
				own, err := Open(f.File, s)
				if err != nil {
					t.Fatal(err)
				}
				w, err := own.ReadGroup(i, data)
				if err != nil {
					t.Fatal(err)
				}
				got, want = append(got, b), append(want, w)
			}
		}
	}
	for i := range got {
		if !bytes.Equal(got[i].AppendBinary(nil), want[i].AppendBinary(nil)) {
			t.Errorf("batch %d of %d differs from what a reader of its own gives", i, len(got))
		}
	}
	bad := files[1].File
	bad.Rows++
	if err := one.Reset(bad); err == nil {
		t.Error("a reader takes a description that is none")
	}
}
