package segment

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
)

// A column has one codec in all row groups. parquet-go's row reader takes the first row
// group's for all: where the last, short one had another it gave compressed bytes as
// times, without an error.
func TestOneCodecForAColumnOfAllRowGroups(t *testing.T) {
	r := seeded(t)
	mixed := 0
	for n := 150; n < 250; n += 2 {
		b := chat(t, r, 43, n)
		_, _, data := write(t, b.Schema(), Options{RowGroupBytes: 8 << 10}, b)
		pf, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		groups := pf.Metadata().RowGroups
		if len(groups) < 2 {
			t.Fatalf("%d rows make %d row groups", n, len(groups))
		}
		for _, g := range groups {
			for i, c := range g.Columns {
				if first := groups[0].Columns[i].MetaData; c.MetaData.Codec != first.Codec {
					t.Errorf("column %v of %d rows is %s, and %s in the first row group", c.MetaData.PathInSchema, n, c.MetaData.Codec, first.Codec)
				}
			}
			if g.Columns[0].MetaData.Codec != g.Columns[9].MetaData.Codec {
				mixed++
			}
		}
		at := b.Schema().Index("create_time")
		leaf, _ := pf.Schema().Lookup("create_time")
		row := 0
		for _, g := range pf.RowGroups() {
			rows := g.Rows()
			buf := make([]parquet.Row, 50)
			for {
				k, err := rows.ReadRows(buf)
				for _, x := range buf[:k] {
					got := time.UnixMilli(x[leaf.ColumnIndex].Int64()).UTC().Format("2006-01-02 15:04:05.000")
					if want := string(b.Row(nil, row)[at]); got != want {
						t.Fatalf("row %d of %d: parquet-go reads %s, want %s", row, n, got, want)
					}
					row++
				}
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if row != n {
			t.Errorf("parquet-go reads %d rows of %d", row, n)
		}
	}
	if mixed == 0 {
		t.Error("no file has two codecs, so that nothing was tested")
	}
}
