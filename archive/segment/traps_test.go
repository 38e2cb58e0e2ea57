package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/coldtier/coldtier/archive/message"
)

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

// P2: files that are written and read at once share no memory.
func TestEightFilesAtOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := smallSchema(t)
	var wg sync.WaitGroup
	for k := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, k))
			var out bytes.Buffer
			w, err := NewWriter(&out, s, testMeta(), Options{})
			if err != nil {
				t.Error(err)
				return
			}
			var want [][32]byte
			b := message.NewBatch(s) // reused: the writer must keep nothing of it
			for i := range 10000 {
				body := noise(r, 1+r.IntN(2000))
				want = append(want, sha256.Sum256(body))
				if err := b.Append([][]byte{fmt.Append(nil, i), []byte("1"), body}); err != nil {
					t.Error(err)
					return
				}
				if b.Len() == 777 || i == 9999 {
					if err := w.Write(b, 0, b.Len()); err != nil {
						t.Error(err)
						return
					}
					b.Reset()
				}
			}
			f, _, err := w.Close()
			if err != nil {
				t.Error(err)
				return
			}
			at := 0
			_, err = ReadAll(f, bytes.NewReader(out.Bytes()), func(b *message.Batch) error {
				for i := range b.Len() {
					if b.MessageID(i) != uint64(at) || sha256.Sum256(b.Value(2, i)) != want[at] {
						return fmt.Errorf("row %d differs", at)
					}
					at++
				}
				return nil
			})
			if err != nil || at != 10000 {
				t.Errorf("file %d: %d rows, %v", k, at, err)
			}
		})
	}
	wg.Wait()
}

// edgeKeys are the keys that bounds get wrong, by message ID; the body says which.
var edgeKeys = []struct {
	id         uint64
	conv, body string
}{
	{1, "b", "one"}, {1 << 63, "c", "middle"}, {1<<64 - 1, "d", "last"},
	{7, strings.Repeat("k", 300), "long"}, // too long for bounds
	{5, strings.Repeat("\xff", 20), "ff"}, // has no greater key of its length
}

// edgeFile has the edge keys in different row groups among many other rows.
func edgeFile(t *testing.T) (File, []Span, []byte, *message.Batch) {
	s := mustSchema(t, []message.Column{{Name: "id", Kind: message.Uint, Bits: 64}, {Name: "conv", Kind: message.Bytes}, {Name: "body", Kind: message.Text}},
		map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Content: "body"})
	r := seeded(t)
	var rows [][]any
	fill := func(conv string, n int) {
		for range n {
			rows = append(rows, []any{1000000 + len(rows), conv, fmt.Sprintf("%x", noise(r, 100))})
		}
	}
	fill("a", 5000)
	for _, k := range edgeKeys[:3] {
		rows = append(rows, []any{k.id, k.conv, k.body})
	}
	fill("e", 5000)
	rows = append(rows, []any{edgeKeys[3].id, edgeKeys[3].conv, edgeKeys[3].body})
	fill("z", 3000)
	rows = append(rows, []any{edgeKeys[4].id, edgeKeys[4].conv, edgeKeys[4].body})
	b := batch(t, s, rows...)
	f, spans, data := write(t, s, Options{RowGroupBytes: 64 << 10}, b)
	if len(f.RowGroups) < 5 {
		t.Fatalf("%d row groups", len(f.RowGroups))
	}
	return f, spans, data, b
}

// P3: keys at the edges of their bounds are found, by us and by readers that skip
// by statistics and page indexes.
func TestEdgeKeysAreFound(t *testing.T) {
	f, spans, data, b := edgeFile(t)
	readBack(t, f, data, b)
	rd, err := Open(f, b.Schema())
	if err != nil {
		t.Fatal(err)
	}
	pf, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	with, without := 0, 0
	for _, g := range pf.Metadata().RowGroups {
		st := g.Columns[1].MetaData.Statistics
		if len(st.MinValue) > maxBound || len(st.MaxValue) > maxBound {
			t.Errorf("bounds of %d and %d bytes", len(st.MinValue), len(st.MaxValue))
		}
		if st.MinValue == nil {
			without++
		} else {
			with++
		}
	}
	if with == 0 || without != 1 {
		t.Errorf("%d row groups have bounds of the conversation, %d have none", with, without)
	}
	for _, k := range edgeKeys {
		i := slices.IndexFunc(spans, func(s Span) bool { return string(s.Conversation) == k.conv })
		if i < 0 {
			t.Fatalf("no span of message %d", k.id)
		}
		sp := spans[i]
		e := f.RowGroups[sp.FirstGroup]
		if sp.MinCursor != k.id || sp.MaxCursor != k.id || k.id < e.MinCursor || k.id > e.MaxCursor {
			t.Errorf("message %d: span %+v in row group %+v", k.id, sp, e)
		}
		gb, err := rd.ReadGroup(sp.FirstGroup, data[e.Offset:e.Offset+e.Length])
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for row := range gb.Len() {
			found = found || gb.MessageID(row) == k.id && string(gb.Conversation(row)) == k.conv && string(gb.Value(2, row)) == k.body
		}
		if !found {
			t.Errorf("message %d is not in its row group", k.id)
		}
	}
}

func TestDuckDBFindsEdgeKeys(t *testing.T) {
	_, _, data, _ := edgeFile(t)
	for _, k := range edgeKeys {
		for _, where := range []string{fmt.Sprintf("id = %d", k.id), fmt.Sprintf("conv = unhex('%X')", k.conv)} {
			if got := duckdb(t, data, "SELECT body FROM FILE WHERE "+where); got != k.body {
				t.Errorf("DuckDB finds %q where %s", got, where)
			}
		}
	}
}

func TestClickHouseFindsEdgeKeys(t *testing.T) {
	_, _, data, _ := edgeFile(t)
	for _, k := range edgeKeys {
		for _, where := range []string{fmt.Sprintf("id = %d", k.id), fmt.Sprintf("conv = unhex('%X')", k.conv)} {
			if got := clickhouseReads(t, data, "SELECT body FROM FILE WHERE "+where); len(got) != 1 || got[0][0] != k.body {
				t.Errorf("ClickHouse finds %v where %s", got, where)
			}
		}
	}
}

// P4: bodies leave nothing outside their data pages, and the file is not larger
// than they are.
func TestBodiesLeaveNoTrace(t *testing.T) {
	r := seeded(t)
	s := chatSchema(t)
	b := message.NewBatch(s)
	marker := []byte("MARKER-OF-A-BODY")
	raw := 0
	for i := range 60 {
		body := append(append([]byte{}, marker...), fmt.Appendf(nil, "%x", noise(r, 1<<19))...)
		if i%2 == 1 {
			body = marker // short, and often the same: tempting for a dictionary
		}
		raw += len(body)
		extra := append(append([]byte{}, marker...), bytes.Repeat([]byte("x"), maxBound)...)
		if err := b.Append([][]byte{fmt.Append(nil, i), []byte("1"), fmt.Append(nil, i), []byte("1"), []byte("1"), []byte("1"), nil, body, extra,
			[]byte("2021-05-01 00:00:00.000"), nil}); err != nil {
			t.Fatal(err)
		}
	}
	f, _, data := write(t, s, Options{}, b)
	readBack(t, f, data, b)
	if len(data) > raw+raw/10 {
		t.Errorf("%d bytes of bodies make a file of %d", raw, len(data))
	}
	if bytes.Contains(data[f.Footer.Offset:], marker) {
		t.Error("a body's bytes are in the footer or the page indexes")
	}
	noTrace(t, data)

	// Short bodies that repeat tempt to a dictionary.
	short := message.NewBatch(s)
	row := b.Row(nil, 1)
	row[8] = nil
	for range 100 {
		if err := short.Append(row); err != nil {
			t.Fatal(err)
		}
	}
	f, _, data = write(t, s, Options{}, short)
	readBack(t, f, data, short)
	noTrace(t, data)
}

// noTrace checks what other readers are told of the columns of a chat file: of IDs
// bounds and indexes, of bodies no bounds, no dictionary and no column index.
func noTrace(t *testing.T, data []byte) {
	t.Helper()
	pf, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range pf.Metadata().RowGroups {
		for _, c := range g.Columns {
			name := c.MetaData.PathInSchema[0]
			if name == "msg_id" || name == "seq" || name == "session_id" {
				if c.MetaData.Statistics.MinValue == nil || c.ColumnIndexOffset == 0 || c.OffsetIndexOffset == 0 {
					t.Errorf("column %s has no bounds or page index", name)
				}
			}
			if name == "content" || name == "extra" || name == exactName {
				if st := c.MetaData.Statistics; st.MinValue != nil || st.MaxValue != nil || st.Min != nil || st.Max != nil || c.ColumnIndexOffset != 0 || c.MetaData.DictionaryPageOffset != 0 {
					t.Errorf("column %s has bounds, a column index or a dictionary: %+v", name, c)
				}
			}
		}
	}
}

// P5: what would make an unreadable file is an error at writing.
func TestTooManyRowGroupsAreRefused(t *testing.T) {
	s := smallSchema(t)
	w, err := NewWriter(io.Discard, s, Meta{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.groups = make([]RowGroup, maxGroups)
	if err := w.Write(batch(t, s, []any{1, 1, "x"}), 0, 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Close(); err == nil || !strings.Contains(err.Error(), "row groups") {
		t.Errorf("row group %d: %v", maxGroups+1, err)
	}
	// Long before, row groups grow.
	w.groups = w.groups[:2*growEvery]
	if got := w.groupTarget(); got != 4*defaultGroup {
		t.Errorf("row group %d is to have %d bytes", 2*growEvery, got)
	}
}

func TestValuesBeyondTheLimitAreRefused(t *testing.T) {
	s := smallSchema(t)
	w, err := NewWriter(io.Discard, s, Meta{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.limit = 1000 // as maxValue would be, without 2 GiB of memory
	b := batch(t, s, []any{77, 1, make([]byte, w.limit+1)})
	if err := w.Write(b, 0, 1); err == nil || !strings.Contains(err.Error(), "message 77") || !strings.Contains(err.Error(), "body") {
		t.Errorf("a body over the limit: %v", err)
	}
}

// readerAt counts reads and gives the end together with io.EOF (P7).
type readerAt struct {
	data  []byte
	reads int
}

func (r *readerAt) ReadAt(p []byte, off int64) (int, error) {
	r.reads++
	n := copy(p, r.data[min(off, int64(len(r.data))):])
	if int(off)+n == len(r.data) {
		return n, io.EOF
	}
	return n, nil
}

// P7, P11: each byte is read once, the footer first, and an end that comes with
// io.EOF is not lost.
func TestNumberOfReads(t *testing.T) {
	b := chat(t, seeded(t), 1, 5000)
	f, _, data := write(t, b.Schema(), Options{RowGroupBytes: 64 << 10}, b)
	in := &readerAt{data: data}
	rows := 0
	if _, err := ReadAll(f, in, func(b *message.Batch) error { rows += b.Len(); return nil }); err != nil {
		t.Fatal(err)
	}
	if rows != 5000 || in.reads != 1+len(f.RowGroups) || len(f.RowGroups) < 2 {
		t.Errorf("%d rows in %d reads of %d row groups", rows, in.reads, len(f.RowGroups))
	}
	// A page: the bytes of its row groups, which lie side by side, and nothing else.
	for i := 1; i < len(f.RowGroups); i++ {
		if before := f.RowGroups[i-1]; before.Offset+before.Length != f.RowGroups[i].Offset {
			t.Errorf("a gap before row group %d", i)
		}
	}
	r, err := Open(f, b.Schema())
	if err != nil {
		t.Fatal(err)
	}
	g := f.RowGroups[1]
	if got, err := r.ReadGroup(1, append([]byte{}, data[g.Offset:g.Offset+g.Length]...)); err != nil || got.Len() != int(g.Rows) {
		t.Errorf("a row group alone: %v", err)
	}
}

// P8: a file keeps the schema it was written with.
func TestOldFilesKeepTheirSchema(t *testing.T) {
	s := smallSchema(t)
	f, _, data := write(t, s, Options{}, batch(t, s, []any{1, 1, "x"}, []any{2, 1, nil}))
	r, err := OpenFooter(f, data[f.Footer.Offset:])
	if err != nil {
		t.Fatal(err)
	}
	if !r.Schema().Equal(s) || r.Schema().Role(message.Content) != 2 || r.Meta() != testMeta() {
		t.Errorf("schema %+v, metadata %+v", r.Schema(), r.Meta())
	}
	e := f.RowGroups[0]
	old, err := r.ReadGroup(0, data[e.Offset:e.Offset+e.Length])
	if err != nil {
		t.Fatal(err)
	}
	cols := append(append([]message.Column{}, s.Columns()...), message.Column{Name: "added", Kind: message.Text, Nullable: true})
	to := mustSchema(t, cols, map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Content: "body"})
	b, err := message.Project(old, to)
	if err != nil || b.Value(3, 0) != nil || string(b.Value(2, 0)) != "x" {
		t.Errorf("projected: %v", err)
	}
	// A row group read with another schema is an error, not other rows.
	wrong, err := Open(f, to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.ReadGroup(0, data[e.Offset:e.Offset+e.Length]); err == nil {
		t.Error("a row group is read with a schema that is not its own")
	}
}

// Row groups have the size that was asked for, whatever is in them.
func TestRowGroupsHaveTheirSize(t *testing.T) {
	r := seeded(t)
	s := smallSchema(t)
	bodies := map[string]func(i int) []byte{
		"noise":        func(int) []byte { return noise(r, 300+r.IntN(1000)) },
		"text":         func(i int) []byte { return fmt.Appendf(nil, "%x %d hello hello %x", noise(r, 100), i, noise(r, 20)) },
		"nothing":      func(int) []byte { return nil },
		"alternating":  func(i int) []byte { return [][]byte{bytes.Repeat([]byte("x"), 500), noise(r, 500)}[i/3000%2] },
		"now and then": func(i int) []byte { return noise(r, map[bool]int{true: 100000, false: 50}[i%500 == 0]) },
	}
	for name, body := range bodies {
		for _, target := range []int{64 << 10, 256 << 10} {
			var out bytes.Buffer
			w, err := NewWriter(&out, s, testMeta(), Options{RowGroupBytes: target})
			if err != nil {
				t.Fatal(err)
			}
			b := message.NewBatch(s)
			for i := 0; out.Len() < 8*target && i < 200000; i++ {
				// IDs that cannot be compressed much either
				if err := b.Append([][]byte{fmt.Append(nil, uint64(i)<<40+uint64(r.Uint32())), []byte("1"), body(i)}); err != nil {
					t.Fatal(err)
				}
				if b.Len() == 500 {
					if err := w.Write(b, 0, b.Len()); err != nil {
						t.Fatal(err)
					}
					b.Reset()
				}
			}
			f, _, err := w.Close()
			if err != nil {
				t.Fatal(err)
			}
			least, most, sum := int64(1<<62), int64(0), int64(0)
			for _, g := range f.RowGroups[:len(f.RowGroups)-1] {
				least, most, sum = min(least, g.Length), max(most, g.Length), sum+g.Length
				if g.Rows == maxGroupRows {
					least = max(least, int64(target)*3/4) // full by rows
				}
			}
			t.Logf("%s: target %d: %d..%d, mean %d", name, target, least, most, sum/int64(max(1, len(f.RowGroups)-1)))
			if slack := int64(target / 4); name != "now and then" && name != "alternating" && (least < int64(target)-slack || most > int64(target)+slack) {
				t.Errorf("%s: row groups of %d..%d bytes instead of %d", name, least, most, target)
			}
		}
	}
}

// P12, in the small: memory does not grow with the file, and a page of 20 lies in
// a piece of bounded size.
func TestMemoryIsBounded(t *testing.T) {
	r := seeded(t)
	s := smallSchema(t)
	w, err := NewWriter(io.Discard, s, testMeta(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := message.NewBatch(s)
	pool := noise(r, 1<<20)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, peak := m.HeapAlloc, uint64(0)
	const rows = 150000
	for i := range rows {
		at := r.IntN(len(pool) - 1000)
		if err := b.Append([][]byte{fmt.Append(nil, i), []byte("1"), pool[at : at+1000]}); err != nil {
			t.Fatal(err)
		}
		if b.Len() == 1000 {
			if err := w.Write(b, 0, b.Len()); err != nil {
				t.Fatal(err)
			}
			b.Reset()
			if i%10000 == 9999 {
				runtime.GC()
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
	}
	f, _, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows, %d MB, %d row groups, footer of %d KB: %d MB of heap", rows, f.Size>>20, len(f.RowGroups), f.Footer.Length>>10, (peak-before)>>20)
	if peak-before > 32<<20 {
		t.Errorf("writing %d MB holds %d MB", f.Size>>20, (peak-before)>>20)
	}
	for i, g := range f.RowGroups {
		if g.Length > 512<<10 {
			t.Errorf("row group %d has %d bytes", i, g.Length)
		}
	}
}

// A row group that compresses well stays of a size that a reader can hold, however
// its rows came; a row larger than that is alone.
func TestRowGroupsFitMemory(t *testing.T) {
	s := smallSchema(t)
	var out bytes.Buffer
	w, err := NewWriter(&out, s, testMeta(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all []*message.Batch
	for i := range 30 {
		size := 3 << 20
		if i == 17 {
			size = maxGroupRaw + 1
		}
		b := batch(t, s, []any{2 * i, 1, make([]byte, size)}, []any{2*i + 1, 1, make([]byte, 3<<20)})
		if err := w.Write(b, 0, 1); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(b, 1, 2); err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	f, _, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	readBack(t, f, out.Bytes(), all...)
	if _, err := ReadAll(f, bytes.NewReader(out.Bytes()), func(b *message.Batch) error {
		if b.Len() > 1 && b.Bytes() > maxGroupRaw {
			t.Errorf("a row group of %d rows has %d MB", b.Len(), b.Bytes()>>20)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
