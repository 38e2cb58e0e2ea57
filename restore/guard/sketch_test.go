package guard_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/coldtier/coldtier/restore/guard"
)

func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// TestSketchNeverUnderestimates compares with exact counts, which are halved when the
// sketch is.
func TestSketchNeverUnderestimates(t *testing.T) {
	r := random(t)
	for _, c := range []struct {
		width, depth int
		halve        uint64
	}{{0, 0, 0}, {1, 1, 10}, {7, 1, 100}, {64, 3, 0}, {64, 4, 777}, {1000, 4, 3000}} {
		s := guard.NewSketch(c.width, c.depth, c.halve)
		zipf := rand.NewZipf(r, 1.2, 1, 1<<40)
		exact := map[uint64]uint32{}
		var added uint64
		for range 8_000 {
			if c.halve > 0 && added == c.halve {
				for k := range exact {
					exact[k] /= 2
				}
				added = 0
			}
			added++
			k := zipf.Uint64()
			exact[k]++
			if got := s.Add(key(k)); got < exact[k] {
				t.Fatalf("%+v: key %d is said to have come %d times, and it came %d times", c, k, got, exact[k])
			}
		}
	}
}

// TestSketchErrors holds it to the bound of the count-min sketch, and to being better
// than that one is.
func TestSketchErrors(t *testing.T) {
	const width, depth, n = 256, 4, 30_000
	r := random(t)
	s := guard.NewSketch(width, depth, 0)
	zipf := rand.NewZipf(r, 1.1, 1, 1<<20)
	exact := map[uint64]uint32{}
	last := map[uint64]uint32{}
	var plain [depth][width]uint32
	place := make(map[uint64][depth]int)
	for range n {
		k := zipf.Uint64()
		exact[k]++
		last[k] = s.Add(key(k))
		if _, ok := place[k]; !ok {
			place[k] = [depth]int{r.IntN(width), r.IntN(width), r.IntN(width), r.IntN(width)}
		}
		for i, p := range place[k] {
			plain[i][p]++
		}
	}
	bad, ours, theirs := 0, 0.0, 0.0
	for k, got := range last {
		if float64(got-exact[k]) > math.E*n/width {
			bad++
		}
		lowest := uint32(math.MaxUint32)
		for i, p := range place[k] {
			lowest = min(lowest, plain[i][p])
		}
		ours += float64(got - exact[k])
		theirs += float64(lowest - exact[k])
	}
	if limit := math.Exp(-depth) * float64(len(last)); float64(bad) > limit {
		t.Errorf("%d of %d keys are wrong by more than %.0f, want at most %.0f", bad, len(last), math.E*n/width, limit)
	}
	if ours > 0.7*theirs {
		t.Errorf("errors of %.0f in all, and %.0f without the conservative update", ours, theirs)
	}
}

func TestSketchAges(t *testing.T) {
	s := guard.NewSketch(1<<12, 4, 8)
	var got []uint32
	for range 20 {
		got = append(got, s.Add([]byte("hot")))
	}
	want := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8, 9, 10, 11, 12, 7, 8, 9, 10}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("estimates %v, want %v", got, want)
	}
}

func TestSketchDoesNotOverflow(t *testing.T) {
	s := guard.NewSketch(16, 2, 0)
	s.Fill(math.MaxUint32 - 1)
	for range 3 {
		if got := s.Add([]byte("x")); got != math.MaxUint32 {
			t.Fatalf("estimate %d", got)
		}
	}
}

// TestSketchIsSeeded: which keys collide in one sketch says nothing of another one.
func TestSketchIsSeeded(t *testing.T) {
	seen := map[string]bool{}
	for range 8 {
		s := guard.NewSketch(64, 1, 0)
		got := ""
		for k := range uint64(64) {
			got += fmt.Sprint(s.Add(key(k)), " ")
		}
		seen[got] = true
	}
	if len(seen) != 8 {
		t.Fatalf("%d of 8 sketches are different", len(seen))
	}
}

func TestSketchAtOnce(t *testing.T) {
	s := guard.NewSketch(1<<14, 4, 0)
	together(200, func(i int) {
		for range 100 {
			s.Add(key(uint64(i % 2)))
		}
	})
	for k := range uint64(2) {
		if got := s.Add(key(k)); got != 10_001 {
			t.Errorf("key %d: %d additions, want 10,001", k, got)
		}
	}
}

func BenchmarkSketch(b *testing.B) {
	s := guard.NewSketch(1<<14, 4, 10<<14)
	keys := make([][]byte, 1<<16)
	for i := range keys {
		keys[i] = key(rand.Uint64())
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			s.Add(keys[i%len(keys)])
		}
	})
}
