package message

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
)

// Fingerprint is an order-independent checksum of a set of rows.
//
// Of one row: for every column in the schema's order `~` for NULL, else the
// decimal byte length of the canonical text, `:`, and the text; all concatenated;
// the first 16 bytes of the SHA-256 as two big-endian uint64, Hi and Lo. Of a
// set: the sum of each half over its rows modulo 2^64, and the number of rows. It
// is a sum and not an XOR, so that equal rows do not cancel out.
//
// The zero value is the fingerprint of no rows.
type Fingerprint struct {
	Hi, Lo uint64
	Rows   uint64
}

// Add is the fingerprint of the union of two disjoint sets.
func (f Fingerprint) Add(o Fingerprint) Fingerprint {
	return Fingerprint{f.Hi + o.Hi, f.Lo + o.Lo, f.Rows + o.Rows}
}

// Sub is the fingerprint of f's set without o's, which must be part of it.
func (f Fingerprint) Sub(o Fingerprint) Fingerprint {
	return Fingerprint{f.Hi - o.Hi, f.Lo - o.Lo, f.Rows - o.Rows}
}

// Sum is the checksum as 32 hexadecimal digits.
func (f Fingerprint) Sum() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], f.Hi)
	binary.BigEndian.PutUint64(b[8:], f.Lo)
	return hex.EncodeToString(b[:])
}

// String is the checksum and the number of rows: "0a…ff/17".
func (f Fingerprint) String() string { return f.Sum() + "/" + strconv.FormatUint(f.Rows, 10) }

// MarshalText writes String.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what String wrote.
func (f *Fingerprint) UnmarshalText(t []byte) error {
	bad := fmt.Errorf("fingerprint %q: want 32 hexadecimal digits, a slash and the number of rows", t)
	if len(t) < 34 || t[32] != '/' {
		return bad
	}
	var b [16]byte
	if _, err := hex.Decode(b[:], t[:32]); err != nil {
		return bad
	}
	rows, err := strconv.ParseUint(string(t[33:]), 10, 64)
	if err != nil {
		return bad
	}
	*f = Fingerprint{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]), rows}
	return nil
}

// Hasher computes fingerprints of rows; it keeps a buffer between rows. The zero
// value is ready. It is not safe for concurrent use.
type Hasher struct {
	buf []byte
	num [20]byte
}

// Row is the fingerprint of the one row whose canonical texts are given, nil for NULL.
func (h *Hasher) Row(values [][]byte) Fingerprint {
	h.buf = h.buf[:0]
	for _, v := range values {
		h.add(v)
	}
	return h.sum()
}

func (h *Hasher) add(v []byte) {
	if v == nil {
		h.buf = append(h.buf, '~')
		return
	}
	h.buf = append(h.buf, strconv.AppendUint(h.num[:0], uint64(len(v)), 10)...)
	h.buf = append(h.buf, ':')
	h.buf = append(h.buf, v...)
}

func (h *Hasher) sum() Fingerprint {
	s := sha256.Sum256(h.buf)
	return Fingerprint{binary.BigEndian.Uint64(s[:8]), binary.BigEndian.Uint64(s[8:16]), 1}
}

// Batch is the fingerprint of the rows [from, to) of a batch.
func (h *Hasher) Batch(b *Batch, from, to int) (f Fingerprint) {
	for i := from; i < to; i++ {
		h.buf = h.buf[:0]
		for c := range b.cols {
			h.add(b.cols[c].value(i))
		}
		f = f.Add(h.sum())
	}
	return f
}
