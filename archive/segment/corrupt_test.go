package segment

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

// heal gives f the checksums of damaged bytes, so that damage reaches the decoders.
func heal(f File, data []byte) File {
	f.RowGroups = append([]RowGroup{}, f.RowGroups...)
	for i := range f.RowGroups {
		g := &f.RowGroups[i]
		g.Extent = extent(g.Offset, data[g.Offset:g.Offset+g.Length])
	}
	f.Footer = extent(f.Footer.Offset, data[f.Footer.Offset:f.Footer.Offset+f.Footer.Length])
	f.SHA256 = sha256.Sum256(data)
	return f
}

// allocated is the memory that fn asks for in total.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func ignore(*message.Batch) error { return nil }

// P6: every flipped bit is seen, cheaply, before anything is parsed.
func TestEveryFlippedBitIsCorrupt(t *testing.T) {
	for _, n := range []int{1, 40} {
		b := chat(t, seeded(t), 9, n)
		f, _, data := write(t, b.Schema(), Options{}, b)
		for at := range data {
			for bit := range 8 {
				if at < len(data)-400 && bit != at%8 {
					continue // of the rest one bit of each byte will do
				}
				data[at] ^= 1 << bit
				_, err := ReadAll(f, bytes.NewReader(data), ignore)
				if !errors.Is(err, ErrCorrupt) {
					t.Fatalf("bit %d of byte %d of %d flipped: %v", bit, at, len(data), err)
				}
				// The first magic bytes are in no extent; nothing is parsed from them.
				if at >= len(magic) && !strings.HasSuffix(err.Error(), ": wrong checksum") {
					t.Fatalf("bit %d of byte %d of %d flipped: seen only after parsing: %v", bit, at, len(data), err)
				}
				data[at] ^= 1 << bit
			}
		}
		for _, cut := range []int{0, 1, 4, 8, len(data) / 2, len(data) - 1} {
			if _, err := ReadAll(f, bytes.NewReader(data[:cut]), ignore); !errors.Is(err, ErrCorrupt) {
				t.Errorf("cut to %d of %d bytes: %v", cut, len(data), err)
			}
		}
	}
}

// P6: even where the checksum was made to match, damage is an error or other
// values, never a panic nor wild memory.
func TestDamageWithRightChecksums(t *testing.T) {
	r := seeded(t)
	for _, b := range []*message.Batch{chat(t, r, 9, 4), chat(t, r, 9, 100), batch(t, allTypes(t), append(typedRows(), inexactRows()...)...)} {
		f, _, data := write(t, b.Schema(), Options{RowGroupBytes: 64 << 10}, b)
		try := func(damaged []byte, what string, at int) {
			used := allocated(func() {
				if _, err := ReadAll(heal(f, damaged), bytes.NewReader(damaged), ignore); err != nil && !errors.Is(err, ErrCorrupt) {
					t.Fatalf("%s at %d: %v", what, at, err)
				}
			})
			if used > 128<<20 {
				t.Fatalf("%s at %d: reading %d bytes takes %d MB", what, at, len(damaged), used>>20)
			}
		}
		for at := max(0, len(data)-400); at < len(data); at++ {
			for bit := range 8 {
				damaged := bytes.Clone(data)
				damaged[at] ^= 1 << bit
				try(damaged, "bit flipped", at)
			}
		}
		for range 500 {
			damaged := bytes.Clone(data)
			at := r.IntN(len(damaged))
			switch r.IntN(3) {
			case 0:
				damaged[at] ^= 1 << r.IntN(8)
			case 1:
				damaged[at] = byte(r.Uint32())
			case 2: // a varint that says a lot
				copy(damaged[at:], []byte{0xff, 0xff, 0xff, 0xff, 0x0f})
			}
			try(damaged, "damage", at)
		}
	}
}

// Descriptions that no writer makes are refused before anything is sized by them.
func TestDamagedDescriptions(t *testing.T) {
	b := chat(t, seeded(t), 9, 3000)
	f, _, data := write(t, b.Schema(), Options{RowGroupBytes: 64 << 10}, b)
	if len(f.RowGroups) < 2 {
		t.Fatal("want several row groups")
	}
	for name, damage := range map[string]func(f *File){
		"length":  func(f *File) { f.RowGroups[0].Length = 1 << 50 },
		"rows":    func(f *File) { f.RowGroups[0].Rows = 1 << 50; f.Rows += 1<<50 - f.RowGroups[0].Rows },
		"offset":  func(f *File) { f.RowGroups[1].Offset-- },
		"footer":  func(f *File) { f.Footer.Length = -1 },
		"size":    func(f *File) { f.Size++ },
		"missing": func(f *File) { f.RowGroups = f.RowGroups[:1] },
	} {
		bad := heal(f, data)
		damage(&bad)
		if _, err := ReadAll(bad, bytes.NewReader(data), ignore); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := heal(f, data)
	bad.Version = FormatVersion + 1
	if _, err := ReadAll(bad, bytes.NewReader(data), ignore); err == nil || errors.Is(err, ErrCorrupt) {
		t.Errorf("a newer format: %v", err)
	}
	// A file of the same size in its place.
	other := chat(t, rand.New(rand.NewPCG(1, 1)), 10, 3000)
	_, _, swapped := write(t, other.Schema(), Options{RowGroupBytes: 64 << 10}, other)
	if _, err := ReadAll(f, bytes.NewReader(swapped), ignore); !errors.Is(err, ErrCorrupt) {
		t.Errorf("another file: %v", err)
	}
}

// The decoders themselves, without the recover of ReadGroup.
func FuzzReader(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	small := batch(f, smallSchema(f), []any{1, 1, "x"}, []any{2, 1, nil}, []any{3, 1, bytes.Repeat([]byte("body "), 100)})
	schemas := []*message.Schema{smallSchema(f), chatSchema(f), allTypes(f)}
	for i, b := range []*message.Batch{small, chat(f, r, 9, 40), batch(f, allTypes(f), append(typedRows(), inexactRows()...)...)} {
		file, _, data := write(f, b.Schema(), Options{}, b)
		g := file.RowGroups[0]
		f.Add(uint8(i), uint16(g.Rows), data[g.Offset:g.Offset+g.Length], data[file.Footer.Offset:])
	}
	f.Fuzz(func(t *testing.T, which uint8, rows uint16, group, footer []byte) {
		s := schemas[int(which)%len(schemas)]
		rd, err := Open(File{Version: 1, Size: 12, Footer: Extent{Offset: 4, Length: 8}}, s)
		if err != nil {
			t.Fatal(err)
		}
		used := allocated(func() {
			b, err := rd.decode(group, int(rows))
			if err == nil && b.Len() != int(rows) {
				t.Fatalf("%d rows instead of %d", b.Len(), rows)
			}
			_, _ = parseFooter(footer)
		})
		if used > 256<<20 {
			t.Fatalf("%d bytes take %d MB", len(group)+len(footer), used>>20)
		}
	})
}
