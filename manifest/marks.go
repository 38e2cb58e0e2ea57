package manifest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// MarkVersion is the version of the purge marks' format.
const MarkVersion = 1

// MarkKind says what a purge mark says.
type MarkKind string

// The kinds. A purge puts MarkPurging before it can delete a generation's first row: from
// then on warm may lack any row of it. If it ends before its end it puts MarkStopped with
// what it has taken, and else MarkPurged, after the last delete. A MarkStopped counts only
// for the MarkPurging of the same purge.
const (
	MarkPurging MarkKind = "purging"
	MarkStopped MarkKind = "stopped"
	MarkPurged  MarkKind = "purged"
)

// Bits of copies.marks.
const (
	markedPurging = 1
	markedPurged  = 2
)

func markBit(kind MarkKind) int {
	if kind == MarkPurged {
		return markedPurged
	}
	return markedPurging
}

// PurgeMark is an object beside a generation's commit record. It says in the bucket what
// else the manifest alone would know, which may be lost or set back to a backup.
type PurgeMark struct {
	FormatVersion int `json:"format_version"`
	SliceKey
	Generation uint32    `json:"generation"`
	Attempt    string    `json:"attempt"`
	Kind       MarkKind  `json:"kind"`
	Purge      string    `json:"purge"` // names the purge that put it; see NewPurge
	At         time.Time `json:"at"`
	By         string    `json:"by"`
	// Staging is the table that the slice's partition is about to be exchanged with.
	Staging string `json:"staging,omitempty"`
	// Chunks are those that are not ChunkPresent, in a MarkStopped.
	Chunks []ChunkRun `json:"chunks,omitempty"`
	Sum    string     `json:"sum"` // SHA-256 of the mark with an empty sum
}

// ChunkRun is a run of chunks [From, To) in one state, by their numbers.
type ChunkRun struct {
	From  int        `json:"from"`
	To    int        `json:"to"`
	State ChunkState `json:"state"`
}

// ChunkRuns are the runs of chunks that are not ChunkPresent.
func ChunkRuns(chunks []Chunk) (runs []ChunkRun) {
	for i, c := range chunks {
		last := len(runs) - 1
		switch {
		case c.State == ChunkPresent:
		case last >= 0 && runs[last].To == i && runs[last].State == c.State:
			runs[last].To++
		default:
			runs = append(runs, ChunkRun{i, i + 1, c.State})
		}
	}
	return runs
}

// NewPurge makes a name for a purge.
func NewPurge() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// MarkKey is the key of a purge mark.
func MarkKey(k SliceKey, generation uint32, kind MarkKind) string {
	return RecordPrefix(k) + strconv.FormatUint(uint64(generation), 10) + "." + string(kind)
}

func (m *PurgeMark) sum() (string, error) {
	plain := *m
	plain.Sum = ""
	b, err := json.Marshal(&plain)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// EncodeMark writes a purge mark.
func EncodeMark(m PurgeMark) (b []byte, err error) {
	m.FormatVersion, m.At = MarkVersion, m.At.UTC().Truncate(time.Microsecond)
	if m.Sum, err = m.sum(); err == nil {
		b, err = json.Marshal(&m)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the purge mark of slice %s: %w", m.SliceKey, err)
	}
	return b, nil
}

// DecodeMark reads a purge mark. One that differs from its checksum is ErrCorrupt.
func DecodeMark(b []byte) (*PurgeMark, error) {
	var m PurgeMark
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("purge mark: %w: %w", ErrCorrupt, err)
	}
	if m.FormatVersion != MarkVersion {
		return nil, fmt.Errorf("purge mark of format version %d: this coldtier knows version %d: use a newer coldtier", m.FormatVersion, MarkVersion)
	}
	if want, err := m.sum(); err != nil || want != m.Sum {
		return nil, fmt.Errorf("purge mark: %w: the checksum is wrong", ErrCorrupt)
	}
	return &m, nil
}

// Marks are a generation's purge marks as they are in the bucket; nil: not there.
type Marks struct{ Purging, Stopped, Purged []byte }

// Progress is how far a generation's purge went, by its marks.
type Progress struct {
	Begun   bool // warm may no longer have all rows
	Purged  bool // all were deleted
	Known   bool // Chunks says exactly which may be gone
	Chunks  []ChunkRun
	Staging string    // the table that rows may lie in, if it is there
	At      time.Time // of the newest mark that counts
	// Damaged says which mark could not be read, or is of another copy. It then counts
	// for the worst that it may have said.
	Damaged error
}

// Progress reads the marks of a generation.
func (m Marks) Progress(k SliceKey, generation uint32, attempt string) (p Progress) {
	read := func(b []byte, kind MarkKind) *PurgeMark {
		if b == nil {
			return nil
		}
		p.Begun = true
		d, err := DecodeMark(b)
		if err == nil && (d.SliceKey != k || d.Generation != generation || d.Attempt != attempt || d.Kind != kind) {
			err = fmt.Errorf("purge mark: %w: it is of slice %s of source %q, generation %d, attempt %s, and says %s", ErrCorrupt, d.SliceKey, d.Source, d.Generation, d.Attempt, d.Kind)
		}
		if err != nil {
			p.Damaged = fmt.Errorf("%s: %w", MarkKey(k, generation, kind), err)
			return nil
		}
		if d.At.After(p.At) {
			p.At = d.At
		}
		return d
	}
	purging, stopped, purged := read(m.Purging, MarkPurging), read(m.Stopped, MarkStopped), read(m.Purged, MarkPurged)
	if purging != nil {
		p.Staging = purging.Staging
	}
	switch {
	case purged != nil:
		p.Purged = true
	case purging != nil && stopped != nil && purging.Purge == stopped.Purge && m.Purged == nil:
		p.Known, p.Chunks = true, stopped.Chunks
	}
	return p
}

// bits are those of copies.marks.
func (p Progress) bits() (n int) {
	if p.Begun {
		n |= markedPurging
	}
	if p.Purged {
		n |= markedPurged
	}
	return n
}

// State is what is known of a chunk by its number.
func (p Progress) State(seq int) ChunkState {
	switch {
	case p.Purged:
		return ChunkDeleted
	case !p.Begun:
		return ChunkPresent
	case !p.Known:
		return ChunkDeleting
	}
	for _, r := range p.Chunks {
		if r.From <= seq && seq < r.To {
			return r.State
		}
	}
	return ChunkPresent
}

// What a key below RecordsPrefix names.
const (
	KeyRecord  = "record"
	KeyPurging = string(MarkPurging)
	KeyStopped = string(MarkStopped)
	KeyPurged  = string(MarkPurged)
)

// RecordName is what a key below RecordsPrefix says.
type RecordName struct {
	Day        snowflake.Day
	Shard      string // as the key has it, which may be shortened: the object says the whole
	Generation uint32
	Kind       string // KeyRecord, ...
}

// ParseRecordKey takes the key of a commit record or a purge mark apart.
func ParseRecordKey(key string) (n RecordName, ok bool) {
	rest, ok := strings.CutPrefix(key, RecordsPrefix)
	if !ok {
		return n, false
	}
	day, rest, ok := strings.Cut(rest, "/shard=")
	if !ok {
		return n, false
	}
	var err error
	if n.Day, err = snowflake.ParseDay(day); err != nil {
		return n, false
	}
	dot := strings.LastIndexByte(rest, '.')
	if dot < 0 {
		return n, false
	}
	switch ext := rest[dot+1:]; ext {
	case "parquet":
		n.Kind = KeyRecord
	case KeyPurging, KeyStopped, KeyPurged:
		n.Kind = ext
	default:
		return n, false
	}
	rest = rest[:dot]
	if dot = strings.LastIndex(rest, ".g"); dot <= 0 {
		return n, false
	}
	g, err := strconv.ParseUint(rest[dot+2:], 10, 32)
	if err != nil || g == 0 || rest[dot+2] == '0' {
		return n, false
	}
	n.Shard, n.Generation = rest[:dot], uint32(g)
	return n, true
}
