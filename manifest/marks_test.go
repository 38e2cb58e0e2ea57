package manifest

import (
	"slices"
	"testing"
	"time"
)

func testMark(t *testing.T, kind MarkKind, purge string, chunks ...ChunkRun) []byte {
	t.Helper()
	b, err := EncodeMark(PurgeMark{SliceKey: testKey(1), Generation: 2, Attempt: "7-a", Kind: kind, Purge: purge, At: time.Now(), By: "w", Chunks: chunks})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What marks say, and what they do not say, counts for the worst that is possible.
func TestProgressOfMarks(t *testing.T) {
	t.Parallel()
	k := testKey(1)
	runs := []ChunkRun{{0, 2, ChunkDeleted}, {2, 3, ChunkDeleting}}
	purging, stopped, purged := testMark(t, MarkPurging, "p"), testMark(t, MarkStopped, "p", runs...), testMark(t, MarkPurged, "p")
	known := []ChunkState{ChunkDeleted, ChunkDeleted, ChunkDeleting, ChunkPresent}
	all := func(st ChunkState) []ChunkState { return []ChunkState{st, st, st, st} }
	for name, c := range map[string]struct {
		m             Marks
		begun, purged bool
		states        []ChunkState
	}{
		"none":              {Marks{}, false, false, all(ChunkPresent)},
		"purging":           {Marks{Purging: purging}, true, false, all(ChunkDeleting)},
		"stopped":           {Marks{Purging: purging, Stopped: stopped}, true, false, known},
		"stopped alone":     {Marks{Stopped: stopped}, true, false, all(ChunkDeleting)},
		"another's stop":    {Marks{Purging: testMark(t, MarkPurging, "q"), Stopped: stopped}, true, false, all(ChunkDeleting)},
		"stopped by itself": {Marks{Purging: stopped, Stopped: stopped}, true, false, all(ChunkDeleting)},
		"purged":            {Marks{Purging: purging, Stopped: stopped, Purged: purged}, true, true, all(ChunkDeleted)},
		"purged alone":      {Marks{Purged: purged}, true, true, all(ChunkDeleted)},
		"purged, damaged":   {Marks{Purging: purging, Stopped: stopped, Purged: purged[1:]}, true, false, all(ChunkDeleting)},
		"empty":             {Marks{Purging: []byte{}}, true, false, all(ChunkDeleting)},
		"none of these":     {Marks{Purged: stopped}, true, false, all(ChunkDeleting)},
	} {
		p := c.m.Progress(k, 2, "7-a")
		var states []ChunkState
		for i := range 4 {
			states = append(states, p.State(i))
		}
		if p.Begun != c.begun || p.Purged != c.purged || !slices.Equal(states, c.states) {
			t.Errorf("%s: %+v, chunks %v", name, p, states)
		}
	}
	whole := Marks{Purging: purging, Stopped: stopped}
	for what, p := range map[string]Progress{"attempt": whole.Progress(k, 2, "8-b"), "generation": whole.Progress(k, 3, "7-a"), "slice": whole.Progress(testKey(2), 2, "7-a")} {
		if !p.Begun || p.Known || p.Damaged == nil {
			t.Errorf("another %s: %+v", what, p)
		}
	}
	// No bit of a stop can change what is known to be untouched.
	for i := range stopped {
		for bit := range 8 {
			b := slices.Clone(stopped)
			b[i] ^= 1 << bit
			p := Marks{Purging: purging, Stopped: b}.Progress(k, 2, "7-a")
			for n, want := range known {
				if got := p.State(n); got != want && got == ChunkPresent {
					t.Fatalf("bit %d of byte %d: chunk %d is %s", bit, i, n, got)
				}
			}
		}
	}
	if got := ChunkRuns([]Chunk{{State: ChunkDeleted}, {State: ChunkDeleted}, {State: ChunkDeleting}, {State: ChunkPresent}}); !slices.Equal(got, runs) {
		t.Errorf("runs %v", got)
	}
}

func TestParseRecordKey(t *testing.T) {
	t.Parallel()
	k := testKey(1)
	k.Shard.Table = "odd.g3.parquet/\xff"
	for key, kind := range map[string]string{RecordKey(k, 12): KeyRecord, MarkKey(k, 12, MarkPurging): KeyPurging, MarkKey(k, 12, MarkStopped): KeyStopped, MarkKey(k, 12, MarkPurged): KeyPurged} {
		if n, ok := ParseRecordKey(key); !ok || n.Kind != kind || n.Generation != 12 || n.Day != k.Day || n.Shard != ShardName(k.Shard) {
			t.Errorf("%s: %+v, %t", key, n, ok)
		}
	}
	for _, key := range []string{"", "manifest/owner=im.json", "manifest/day=x/shard=a.g1.parquet", "manifest/day=2026-05-01/shard=a.g0.parquet", "manifest/day=2026-05-01/shard=a.g01.parquet",
		"manifest/day=2026-05-01/shard=a.g.parquet", "manifest/day=2026-05-01/shard=.g1.parquet", "manifest/day=2026-05-01/shard=a.g1", "manifest/day=2026-05-01/shard=a.g1.txt",
		"manifest/day=2026-05-01/shard=a.g99999999999.purged", "manifest/day=2026-05-01/", "manifest/day=2026-05-01/shard=parquet"} {
		if n, ok := ParseRecordKey(key); ok {
			t.Errorf("%q: %+v", key, n)
		}
	}
}
