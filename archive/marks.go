package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/manifest"
)

// marks reads the purge marks of a generation.
func (a *Archiver) marks(ctx context.Context, k manifest.SliceKey, generation uint32) (m manifest.Marks, err error) {
	for kind, into := range map[manifest.MarkKind]*[]byte{manifest.MarkPurging: &m.Purging, manifest.MarkStopped: &m.Stopped, manifest.MarkPurged: &m.Purged} {
		key := manifest.MarkKey(k, generation, kind)
		b, err := a.Objects.Get(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
		case errors.Is(err, ErrDamaged):
			*into = []byte{} // counts for the worst that it may have said
		case err != nil:
			return m, fmt.Errorf("purge mark %s: %w", key, err)
		default:
			*into = append([]byte{}, b...) // not nil, also when it is empty
		}
	}
	return m, nil
}

// doubt doubts what an adopted copy says of warm where purges of the generations before it
// went on after it was made.
func (a *Archiver) doubt(ctx context.Context, c *manifest.Copy) error {
	for g := uint32(1); g < c.Generation; g++ {
		m, err := a.marks(ctx, c.SliceKey, g)
		if err != nil {
			return err
		}
		if m.Purging == nil && m.Stopped == nil && m.Purged == nil {
			continue
		}
		var earlier *manifest.Copy
		attempt := ""
		raw, err := a.Objects.Get(ctx, manifest.RecordKey(c.SliceKey, g))
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrDamaged) {
			return fmt.Errorf("commit record of a generation that was purged: %w", err)
		}
		if err == nil {
			if e, bad := manifest.DecodeRecord(raw); bad == nil {
				earlier, attempt = e, e.Attempt
			}
		}
		c.Doubt(earlier, m.Progress(c.SliceKey, g, attempt))
	}
	return nil
}

// remember takes what the bucket knows of a purge of the former generation that the
// manifest does not: it may have been set back to a backup of before, or rebuilt. A chunk
// of which both together do not know that it is untouched is taken for touched.
func (f *former) remember(p manifest.Progress) (news bool) {
	for i := range f.copy.Chunks {
		ch := &f.copy.Chunks[i]
		if p.State(i) == manifest.ChunkPresent || f.touched[i] {
			continue
		}
		f.touched[i], news = true, true
		ch.State = manifest.ChunkDeleting // its delete may still be under way: settle waits
	}
	return news
}
