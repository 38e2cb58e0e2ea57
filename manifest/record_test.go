package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// A record has the statuses of its generation, exactly, where its key ever was.
func TestRecordHasStatuses(t *testing.T) {
	t.Parallel()
	c := recordCopy(t, 2)
	at := time.Date(2027, 1, 2, 3, 4, 5, 678901000, time.UTC)
	c.Statuses = []FoldedStatus{
		{Status: Status{Conversation: []byte("c\xff\x00"), MessageID: 1001, Kind: StatusRecalled, Value: new("é \"' <\x00" + sumMark), By: "a", At: at}, Original: &Original{Value: []byte("\xff\x00")}},
		{Status: Status{Conversation: []byte{}, MessageID: 1002, Kind: StatusNone, At: at}, Original: &Original{}},
		{Status: Status{Conversation: []byte("c"), MessageID: 1999, Kind: StatusEdited, Value: new(""), At: at}, Original: &Original{Value: []byte{}}},
		{Status: Status{Conversation: []byte("c"), MessageID: 1003, Kind: StatusDeleted, At: at}},
	}
	back, err := DecodeRecord(encode(t, c))
	if err != nil {
		t.Fatal(err)
	}
	// NULL and the empty text are two values.
	if d := cmp.Diff(c.Statuses, back.Statuses); d != "" {
		t.Errorf("the statuses come back otherwise:\n%s", d)
	}
	if key := RecordKey(c.SliceKey, c.Generation); key != "manifest/day=2026-05-01/shard=im_00.msg_00.g3.parquet" {
		t.Errorf("the record's key is %s", key)
	}
	for _, bad := range []FoldedStatus{{Status: Status{Conversation: []byte("c"), MessageID: 999, Kind: StatusEdited, At: at}}, {Status: Status{Conversation: []byte("c"), MessageID: 1001, Kind: "x", At: at}},
		{Status: Status{Conversation: []byte("c"), MessageID: 1001, Kind: StatusEdited, At: at}, Original: &Original{Value: make([]byte, MaxOriginal+1)}}} {
		c.Statuses = []FoldedStatus{bad}
		if err := EncodeRecord(&bytes.Buffer{}, c); err == nil {
			t.Errorf("%+v is encoded", bad.Status)
		}
	}
}

// A record of before there were statuses reads as ever, and one without any is still
// such a record.
func TestRecordOfBefore(t *testing.T) {
	t.Parallel()
	old, err := os.ReadFile("testdata/record-1.parquet")
	if err != nil {
		t.Fatal(err)
	}
	c := recordCopy(t, 2)
	back, err := DecodeRecord(old)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(c, back); d != "" || back.Statuses != nil {
		t.Errorf("it reads otherwise:\n%s", d)
	}
	if now := encode(t, back); bytes.Contains(now, []byte("statuses")) {
		t.Error("a record without statuses speaks of them")
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

// seal gives any bytes a right checksum, so that what follows it is tried.
func seal(b []byte) []byte {
	b = append(bytes.Clone(b), sumMark...)
	at := len(b)
	b = append(b, bytes.Repeat([]byte("0"), sumDigits)...)
	return reseal(b, at)
}

func reseal(b []byte, at int) []byte {
	copy(b[at:], bytes.Repeat([]byte("0"), sumDigits))
	sum := sha256.Sum256(b)
	hex.Encode(b[at:], sum[:])
	return b
}

// Neither damaged bytes nor wrong ones under a right checksum make it panic.
func FuzzDecodeRecord(f *testing.F) {
	for _, convs := range []int{0, 1, 3} {
		f.Add(encode(f, recordCopy(f, convs)))
	}
	f.Add([]byte("PAR1"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeRecord(b)
		if err == nil {
			if err := EncodeRecord(&bytes.Buffer{}, c); err != nil {
				t.Errorf("what was decoded cannot be encoded: %v", err)
			}
			return
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("not said to be corrupt: %v", err)
		}
		if len(b) > 1<<16 {
			return
		}
		if c, err := DecodeRecord(seal(b)); err == nil && c == nil {
			t.Error("neither a copy nor an error")
		}
	})
}

// A record whose rows are not what its head says, under a right checksum.
func TestRecordThatContradictsItself(t *testing.T) {
	t.Parallel()
	b := encode(t, recordCopy(t, 2))
	at := bytes.Index(b, []byte(sumMark)) + len(sumMark)
	for _, c := range []struct{ old, to string }{
		{`"objects":2`, `"objects":3`}, {`"chunks":4`, `"chunks":5`}, {`"segments":2`, `"segments":1`}, {`"bytes":8192`, `"bytes":8193`},
		{`"hi":"2000"`, `"hi":"2001"`}, {`"attempt":"7-abc"`, `"attempt":"",     `}, {`"lo":"1000"`, `"lo":"x000"`},
	} {
		bad := bytes.Replace(b, []byte(c.old), []byte(c.to), 1)
		if bytes.Equal(bad, b) {
			t.Fatalf("%s is not in the record", c.old)
		}
		if _, err := DecodeRecord(reseal(bad, at)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
	newer := bytes.Replace(b, []byte(`"format_version":1`), []byte(`"format_version":2`), 1)
	if _, err := DecodeRecord(reseal(newer, at)); err == nil || errors.Is(err, ErrCorrupt) {
		t.Errorf("a newer format: %v", err)
	}
}

// The binary form of a file comes back; damaged it is ErrCorrupt or another file, never a panic.
func FuzzParseFile(f *testing.F) {
	c := recordCopy(f, 1)
	f.Add(appendFile(nil, &c.Objects[0].File))
	f.Add([]byte{fileForm, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := parseFile(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		back, err := parseFile(appendFile(nil, &file))
		if err != nil || !cmp.Equal(file, back) {
			t.Errorf("%+v comes back as %+v, %v", file, back, err)
		}
	})
}
