package manifest

import (
	"bytes"
	"errors"
	"testing"
)

func encode(t testing.TB, c *Copy) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := EncodeRecord(&b, c); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func recordCopy(t testing.TB, convs int) *Copy {
	t.Helper()
	return testCopy(t, Slice{SliceKey: testKey(1), Lo: 1000, Hi: 2000}, 3, "7-abc", convs)
}

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	for _, convs := range []int{0, 1, 3000} {
		c := recordCopy(t, convs)
		back, err := DecodeRecord(encode(t, c))
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(c, back); d != "" {
			t.Errorf("%d conversations come back otherwise:\n%s", convs, d)
		}
	}
}

// Every flipped bit is found out before anything is parsed.
func TestRecordEachBitFlipIsCorrupt(t *testing.T) {
	t.Parallel()
	b := encode(t, recordCopy(t, 2))
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		if _, err := DecodeRecord(b); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
		b[i/8] ^= 1 << (i % 8)
	}
	for n := range len(b) {
		if _, err := DecodeRecord(b[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}
