package rebuild

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

func key(day snowflake.Day, shard string, generation uint32, ext string) string {
	return fmt.Sprintf("%s%s/shard=%s.g%d.%s", manifest.RecordsPrefix, day, shard, generation, ext)
}

// slice reads what the bucket has of a slice and enters it.
func (b *rebuilder) slice(ctx context.Context, day snowflake.Day, shard string, f found) (rows uint64, err error) {
	weight := int64(0)
	for _, kinds := range f {
		weight += kinds[manifest.KeyRecord]
	}
	weight = min(weight, maxRecords)
	if err := b.memory.Acquire(ctx, weight); err != nil {
		return 0, context.Cause(ctx)
	}
	defer b.memory.Release(weight)
	var sl manifest.RebuiltSlice
	foreign := 0
	for _, g := range slices.Sorted(maps.Keys(f)) {
		c, isForeign, err := b.generation(ctx, day, shard, g, f[g])
		switch {
		case err != nil:
			return 0, err
		case isForeign:
			foreign++
		case c == nil: // named among the problems
		case len(sl.Copies) > 0 && (c.SliceKey != sl.Copies[0].SliceKey || c.Lo != sl.Copies[0].Lo || c.Hi != sl.Copies[0].Hi):
			b.problem(c.RecordKey, fmt.Errorf("it is of slice %s, message IDs [%d, %d), the generation before of [%d, %d)", c.SliceKey, c.Lo, c.Hi, sl.Copies[0].Lo, sl.Copies[0].Hi))
		default:
			sl.Copies = append(sl.Copies, *c)
		}
	}
	b.mu.Lock()
	b.report.Foreign += foreign
	b.mu.Unlock()
	if len(sl.Copies) == 0 {
		return 0, nil
	}
	kept, err := b.r.Slice(ctx, sl)
	if err != nil {
		return 0, err
	}
	newest := sl.Copies[len(sl.Copies)-1]
	b.mu.Lock()
	defer b.mu.Unlock()
	if kept != "" {
		b.report.Kept = append(b.report.Kept, Kept{newest.SliceKey, kept})
		return 0, nil
	}
	r := &b.report
	r.Slices++
	r.Generations += len(sl.Copies)
	for _, c := range sl.Copies {
		r.Objects += len(c.Objects)
		for i := range c.Objects {
			r.Segments += len(c.Objects[i].Segs)
		}
		if c.Progress.Damaged != nil {
			r.Warnings = append(r.Warnings, c.Progress.Damaged.Error()+"; it counts for a purge that was begun")
		}
	}
	rows = newest.Fingerprint().Rows
	r.Rows, r.Bytes = r.Rows+rows, r.Bytes+newest.Bytes()
	switch {
	case newest.Progress.Purged:
		r.Purged++
	case newest.Progress.Begun:
		r.Purging++
		if st := newest.Progress.Staging; st != "" && !newest.Progress.Known {
			r.Warnings = append(r.Warnings, fmt.Sprintf("slice %s: a purge was in the middle of it, and rows may lie in table %s, where nobody sees them: the next coldtier purge puts them back", newest.SliceKey, st))
		}
	}
	return rows, b.step("rebuild.slice")
}

// generation reads a commit record and its marks; nil when the record cannot be used.
func (b *rebuilder) generation(ctx context.Context, day snowflake.Day, shard string, g uint32, kinds map[string]int64) (_ *manifest.RebuiltCopy, foreign bool, err error) {
	var marks manifest.Marks
	for kind, into := range map[string]*[]byte{manifest.KeyPurging: &marks.Purging, manifest.KeyStopped: &marks.Stopped, manifest.KeyPurged: &marks.Purged} {
		if _, ok := kinds[kind]; !ok {
			continue
		}
		m, err := b.Objects.Get(ctx, key(day, shard, g, kind))
		if errors.Is(err, archive.ErrDamaged) {
			m, err = nil, nil // counts for the worst that it may have said
		}
		if err != nil {
			return nil, false, fmt.Errorf("purge mark %s: %w", key(day, shard, g, kind), err)
		}
		*into = append([]byte{}, m...)
	}
	record := key(day, shard, g, "parquet")
	if _, ok := kinds[manifest.KeyRecord]; !ok {
		b.problem(record, errors.New("it is missing, and a purge has deleted rows on its word: restore it from a backup or a former version"))
		return nil, false, nil
	}
	raw, err := b.Objects.Get(ctx, record)
	if errors.Is(err, archive.ErrNotFound) || errors.Is(err, archive.ErrDamaged) {
		b.problem(record, err)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("commit record: %w", err)
	}
	c, err := manifest.DecodeRecord(raw)
	if err != nil {
		b.problem(record, err)
		return nil, false, nil
	}
	if c.Source != b.Target.Source() {
		return nil, true, nil
	}
	if want := manifest.RecordKey(c.SliceKey, c.Generation); want != record {
		b.problem(record, fmt.Errorf("it is the commit record %s under another key", want))
		return nil, false, nil
	}
	return &manifest.RebuiltCopy{Copy: c, RecordKey: record, RecordSum: sha256.Sum256(raw), Progress: marks.Progress(c.SliceKey, g, c.Attempt)}, false, nil
}
