package guard

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
)

// Sketch counts how often keys come, in memory that does not grow with their number: a
// count-min sketch (Cormode and Muthukrishnan, "An Improved Data Stream Summary",
// J. Algorithms 55/1, 2005). An estimate is never too low. With conservative update
// (Estan and Varghese, "New Directions in Traffic Measurement and Accounting", SIGCOMM
// 2002) it is never higher than in the plain sketch, where of N additions it is too
// high by more than e*N/width with a probability below exp(-depth).
//
// So that what was hot long ago is forgotten, all counters are halved now and then
// (Einziger, Friedman and Manes, "TinyLFU", ACM TOS 13/4, 2017).
type Sketch struct {
	seed  maphash.Seed // nobody outside can choose keys that collide
	mask  uint64
	halve uint64

	mu        sync.Mutex
	rows      [][]uint32
	cells     []*uint32 // of one key, one a row
	additions uint64    // of this age
}

// NewSketch makes a sketch of depth rows of width counters of four bytes; the width is
// raised to a power of two, both to at least 1. After halve additions, and before the
// next one, all counters are halved; 0 is never.
func NewSketch(width, depth int, halve uint64) *Sketch {
	size := uint64(1) << bits.Len(uint(max(width, 1)-1))
	depth = max(depth, 1)
	s := &Sketch{seed: maphash.MakeSeed(), mask: size - 1, halve: halve, cells: make([]*uint32, depth)}
	for range depth {
		s.rows = append(s.rows, make([]uint32, size))
	}
	return s
}

// Add counts a key and returns how often it came: exactly or too high, with the
// halvings since.
func (s *Sketch) Add(key []byte) uint32 {
	hash := maphash.Bytes(s.seed, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halve > 0 && s.additions >= s.halve {
		s.age()
	}
	s.additions++
	lowest := uint32(math.MaxUint32)
	for i, row := range s.rows {
		hash = mix(hash)
		s.cells[i] = &row[hash&s.mask]
		lowest = min(lowest, *s.cells[i])
	}
	if lowest < math.MaxUint32 {
		lowest++
	}
	for _, c := range s.cells {
		*c = max(*c, lowest) // conservative: only those that would be too low
	}
	return lowest
}

func (s *Sketch) age() {
	for _, row := range s.rows {
		for i := range row {
			row[i] >>= 1
		}
	}
	s.additions = 0
}

// mix is the step of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom
// Number Generators", OOPSLA 2014): a bijection, so that keys of different hashes meet in
// one row by chance and not in all of them.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
