package segment

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

// The commonest file: one conversation's four messages of a day.
func BenchmarkSmallFile(b *testing.B) {
	rows := chat(b, rand.New(rand.NewPCG(3, 4)), 9, 4)
	w, err := NewWriter(io.Discard, rows.Schema(), testMeta(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		var size int64
		for b.Loop() {
			if err := w.Reset(io.Discard, rows.Schema(), testMeta()); err != nil {
				b.Fatal(err)
			}
			if err := w.Write(rows, 0, rows.Len()); err != nil {
				b.Fatal(err)
			}
			f, _, err := w.Close()
			if err != nil {
				b.Fatal(err)
			}
			size = f.Size
		}
		b.ReportMetric(float64(size), "bytes/file")
	})
	f, _, data := write(b, rows.Schema(), Options{}, rows)
	b.Run("verify", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ReadAll(f, bytes.NewReader(data), ignore); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("page", func(b *testing.B) {
		b.ReportAllocs()
		g := f.RowGroups[0]
		for b.Loop() {
			r, err := Open(f, rows.Schema())
			if err != nil {
				b.Fatal(err)
			}
			if _, err := r.ReadGroup(0, data[g.Offset:g.Offset+g.Length]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkLargeFile(b *testing.B) {
	rows := chat(b, rand.New(rand.NewPCG(3, 4)), 9, 50000)
	b.Run("write", func(b *testing.B) {
		w, err := NewWriter(io.Discard, rows.Schema(), testMeta(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(rows.Bytes()))
		for b.Loop() {
			if err := w.Reset(io.Discard, rows.Schema(), testMeta()); err != nil {
				b.Fatal(err)
			}
			if err := w.Write(rows, 0, rows.Len()); err != nil {
				b.Fatal(err)
			}
			if _, _, err := w.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(rows.Len())*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	})
	f, _, data := write(b, rows.Schema(), Options{}, rows)
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(rows.Bytes()))
		for b.Loop() {
			if _, err := ReadAll(f, bytes.NewReader(data), func(*message.Batch) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(rows.Len())*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	})
}
