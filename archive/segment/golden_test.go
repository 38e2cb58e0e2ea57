package segment

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go/format"

	"github.com/coldtier/coldtier/archive/message"
)

var update = flag.Bool("update", false, "write the golden files of the current format version anew")

// golden describes a file under testdata: what a manifest says of it, and with the
// spans' fingerprints every value that it must give for ever.
type golden struct {
	File  File   `json:"file"`
	Spans []Span `json:"spans"`
}

// goldenOptions give small files several row groups.
func goldenOptions(name string) Options {
	if name == "v1-pages" {
		return Options{RowGroupBytes: 64 << 10}
	}
	return Options{RowGroupBytes: 8 << 10}
}

// goldenBatches cover each encoding: PLAIN, differences, dictionaries of numbers
// and of text, a dictionary that is given up, NULLs, several pages, several row
// groups, values beside their type.
func goldenBatches(t testing.TB) map[string]*message.Batch {
	r := rand.New(rand.NewPCG(20260501, 1))
	pages := message.NewBatch(chatSchema(t))
	one := chat(t, r, 1<<63+1, 1).Row(nil, 0)
	for i := range 900 {
		row := append([][]byte{}, one...)
		row[0], row[2] = []byte(message.FormatID(1<<63+uint64(i)*4096)), []byte(message.FormatID(uint64(i)))
		row[3] = []byte(message.FormatID(uint64(i / 300 * 1000)))
		row[7] = bytes.Repeat([]byte{'a' + byte(i%3)}, 700)
		if i < 400 {
			row[6] = [][]byte{[]byte("ios"), nil, []byte("web")}[i%3]
		} else {
			row[6] = bytes.Repeat([]byte{'A' + byte(i%26), 'a' + byte(i/26%26)}, 32+i%8)
		}
		if err := pages.Append(row); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]*message.Batch{
		"v1-small": chat(t, r, 42, 4),
		"v1-chat":  chat(t, r, 43, 120),
		"v1-pages": pages,
		"v1-types": batch(t, allTypes(t), append(typedRows(), inexactRows()...)...),
	}
}

func TestGoldenFilesReadForEver(t *testing.T) {
	if *update {
		for name, b := range goldenBatches(t) {
			f, spans, data := write(t, b.Schema(), goldenOptions(name), b)
			g := golden{File: f, Spans: spans}
			j, err := json.Marshal(g)
			if err != nil {
				t.Fatal(err)
			}
			for ext, b := range map[string][]byte{".parquet": data, ".json": append(j, '\n')} {
				if err := os.WriteFile(filepath.Join("testdata", name+ext), b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	paths, err := filepath.Glob(filepath.Join("testdata", "v*.parquet"))
	if err != nil || len(paths) < 4 {
		t.Fatalf("golden files %v, %v", paths, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		j, err := os.ReadFile(path[:len(path)-len(".parquet")] + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var g golden
		if err := json.Unmarshal(j, &g); err != nil {
			t.Fatal(err)
		}
		at := 0
		var h message.Hasher
		got := map[string]message.Fingerprint{}
		cursors := map[string]uint64{}
		meta, err := ReadAll(g.File, bytes.NewReader(data), func(b *message.Batch) error {
			for i := range b.Len() {
				conv := string(b.Conversation(i))
				got[conv] = got[conv].Add(h.Batch(b, i, i+1))
				if b.Cursor(i) < cursors[conv] {
					t.Errorf("%s: row %d is out of order", path, at+i)
				}
				cursors[conv] = b.Cursor(i)
			}
			at += b.Len()
			return nil
		})
		if err != nil || at != int(g.File.Rows) || meta != testMeta() {
			t.Errorf("%s: %d rows of %d, metadata %+v: %v", path, at, g.File.Rows, meta, err)
		}
		for _, sp := range g.Spans {
			if got[string(sp.Conversation)] != sp.Fingerprint {
				t.Errorf("%s: conversation %s reads %v, was written as %v", path, sp.Conversation, got[string(sp.Conversation)], sp.Fingerprint)
			}
		}
	}
}

// The golden files are worth little unless each of the format's encodings is in one.
func TestGoldenRowsCoverTheEncodings(t *testing.T) {
	seen := map[format.Encoding]bool{}
	pages, groups := 0, 0
	for name, b := range goldenBatches(t) {
		w, err := NewWriter(&bytes.Buffer{}, b.Schema(), testMeta(), goldenOptions(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(b, 0, b.Len()); err != nil {
			t.Fatal(err)
		}
		if err := w.finishPage(); err != nil {
			t.Fatal(err)
		}
		for i := range w.cols {
			pages = max(pages, len(w.cols[i].pages))
			for e, used := range w.cols[i].used {
				seen[format.Encoding(e)] = seen[format.Encoding(e)] || used
			}
			if w.cols[i].used[format.Plain] && w.cols[i].used[format.RLEDictionary] {
				seen[-1] = true // a dictionary that was given up
			}
		}
		groups = max(groups, len(w.groups)+1)
	}
	if !seen[format.Plain] || !seen[format.DeltaBinaryPacked] || !seen[format.RLEDictionary] || !seen[-1] || pages < 2 || groups < 2 {
		t.Errorf("encodings %v, %d pages, %d row groups", seen, pages, groups)
	}
}
