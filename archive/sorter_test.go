package archive

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

func sorterSchema(t testing.TB) *message.Schema {
	t.Helper()
	s, err := message.NewSchema([]message.Column{
		{Name: "msg_id", Kind: message.Uint, Bits: 64}, {Name: "conv", Kind: message.Text}, {Name: "seq", Kind: message.Uint, Bits: 64},
		{Name: "content", Kind: message.Bytes, Nullable: true},
	}, map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "conv", message.Sequence: "seq"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSorter(t *testing.T, s *message.Schema, dir string, limit int) *sorter {
	t.Helper()
	sort, err := newSorter(s, dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	return sort
}

// Whatever the order and the number of runs, the rows come out sorted, all of
// them, once, and unchanged; and nothing is left in the folder.
func TestSorterLosesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rows, limit, feeders int
	}{{0, 1 << 20, 1}, {1, 1, 1}, {5000, 1 << 30, 1}, {20000, 300 << 10, 3}, {20000, 1 << 20, 2}} {
		t.Run(fmt.Sprintf("%d rows, %d bytes", c.rows, c.limit), func(t *testing.T) {
			t.Parallel()
			dir, schema := t.TempDir(), sorterSchema(t)
			s := mustSorter(t, schema, dir, c.limit)
			var want message.Fingerprint
			var mu sync.Mutex
			var wg sync.WaitGroup
			for f := range c.feeders {
				wg.Add(1)
				go func() {
					defer wg.Done()
					rng, h := rand.New(rand.NewPCG(7, uint64(f))), message.Hasher{}
					for at := f; at < c.rows; {
						b := message.NewBatch(schema)
						for range 1 + rng.IntN(400) {
							if at >= c.rows {
								break
							}
							var body []byte
							if rng.IntN(10) > 0 {
								body = make([]byte, rng.IntN(300))
								for i := range body {
									body[i] = byte(rng.Uint32())
								}
							}
							row := [][]byte{[]byte(message.FormatID(uint64(at))), fmt.Appendf(nil, "c%d", rng.IntN(50)), fmt.Append(nil, rng.IntN(1000)), body}
							if err := b.Append(row); err != nil {
								t.Error(err)
							}
							at += c.feeders
						}
						mu.Lock()
						want = want.Add(h.Batch(b, 0, b.Len()))
						mu.Unlock()
						if err := s.add(b); err != nil {
							t.Error(err)
						}
						b.Reset() // the sorter must have its own copy
					}
				}()
			}
			wg.Wait()
			var got message.Fingerprint
			var h message.Hasher
			var last *message.Batch
			err := s.sorted(func(b *message.Batch) error {
				for i := range b.Len() {
					prev, j := b, i-1
					if i == 0 {
						if prev = last; prev == nil {
							continue
						}
						j = prev.Len() - 1
					}
					if message.Compare(prev, j, b, i) >= 0 {
						t.Fatalf("row %d follows row %d", b.MessageID(i), prev.MessageID(j))
					}
				}
				got, last = got.Add(h.Batch(b, 0, b.Len())), b
				return nil
			})
			if err != nil || got != want || got.Rows != uint64(c.rows) {
				t.Fatalf("%s went in, %s came out: %v", want, got, err)
			}
			if c.rows > 1000 && c.limit < 400<<10 && len(s.runs) < 2 {
				t.Errorf("%d runs: the test does not spill", len(s.runs))
			}
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("%d files are left", len(left))
			}
			if s.add(message.NewBatch(schema)) != nil {
				t.Error("an empty batch after the end is an error")
			}
		})
	}
}

// A spilled run that is damaged or cut short on disk is an error, never fewer rows.
func TestSorterSeesDamagedRuns(t *testing.T) {
	t.Parallel()
	schema := sorterSchema(t)
	for _, damage := range []func([]byte) []byte{
		func(b []byte) []byte { return b[:len(b)-1] },
		func(b []byte) []byte { return b[:len(b)/2] },
		func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		func([]byte) []byte { return nil },
	} {
		s := mustSorter(t, schema, t.TempDir(), 1)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 3000 {
			b := message.NewBatch(schema)
			body := make([]byte, 200)
			for j := range body {
				body[j] = byte(rng.Uint32())
			}
			if err := b.Append([][]byte{[]byte(message.FormatID(uint64(i))), []byte("c"), []byte("1"), body}); err != nil {
				t.Fatal(err)
			}
			if err := s.add(b); err != nil {
				t.Fatal(err)
			}
		}
		s.spills.Wait()
		name := s.runs[0]
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, damage(raw), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.sorted(func(*message.Batch) error { return nil }); err == nil {
			t.Error("a damaged run is read without an error")
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}
