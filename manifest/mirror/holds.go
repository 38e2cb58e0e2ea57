package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/manifest"
)

// Holds puts holds that the bucket does not have as they are, and gives their number.
func (m *Mirror) Holds(ctx context.Context) (n int, err error) {
	list, err := m.store.UnmirroredHolds(ctx)
	if err != nil {
		return 0, err
	}
	for _, h := range list {
		if err := m.makeRoom(ctx, h); err != nil {
			return n, err
		}
		if err := m.putHold(ctx, h); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// putHold puts a hold, notes it, and looks whether it is still what is there. Of two that
// put the same hold, from before and after a change, the first may be the last to arrive:
// before the look, which finds that, or after the other's note, which takes that back.
func (m *Mirror) putHold(ctx context.Context, h manifest.Hold) error {
	b, err := manifest.EncodeHold(h)
	if err != nil {
		return err
	}
	key := manifest.HoldKey(m.store.Source(), h.ID)
	if err := m.objects.Put(ctx, key, b, false); err != nil {
		return fmt.Errorf("put hold %d into the bucket: %w", h.ID, err)
	}
	if err := m.store.HoldMirrored(ctx, h); err != nil {
		return err
	}
	found, err := m.objects.Get(ctx, key)
	if err == nil && bytes.Equal(found, b) {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("look whether hold %d is in the bucket: %w", h.ID, err)
	}
	return errors.Join(err, m.store.RemirrorHold(context.WithoutCancel(ctx), h.ID))
}

// makeRoom moves another hold that has the number of one: the manifest was set back to
// before it, and has given its number anew. It is in force again, under a new number, and
// in the bucket under that one before its object is written over.
func (m *Mirror) makeRoom(ctx context.Context, h manifest.Hold) error {
	key := manifest.HoldKey(m.store.Source(), h.ID)
	raw, err := m.objects.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look whether hold %d is in the bucket: %w", h.ID, err)
	}
	other, err := manifest.DecodeHold(raw)
	if err != nil {
		m.log.WarnContext(ctx, "the object of a hold is damaged and is put anew", "key", key, "error", err)
		return nil
	}
	if other.Same(h) {
		return nil
	}
	if other.ID, _, err = m.store.AdoptHold(ctx, other); err != nil {
		return err
	}
	m.log.WarnContext(ctx, "the bucket has a hold that the manifest has forgotten: it is in force again", "key", key, "hold", other.ID)
	if other.ID == h.ID {
		return nil
	}
	return m.putHold(ctx, other)
}

// Recall enters holds that are in the bucket and not in the manifest, since it was set back
// to before them, and gives how many; and the objects that cannot be read, each of which
// may be a hold on anything. Of those that the manifest has, too, the bucket may know that
// they were prolonged since, or have another of that number. That they were released only the
// manifest's word counts for.
func (m *Mirror) Recall(ctx context.Context, bucket Lister) (n int, unreadable []string, err error) {
	var keys []string
	if err := bucket.List(ctx, manifest.HoldsPrefix(m.store.Source()), func(key string, _ int64) error {
		if strings.HasSuffix(key, ".json") {
			keys = append(keys, key)
		}
		return nil
	}); err != nil {
		return 0, nil, fmt.Errorf("list holds in the bucket: %w", err)
	}
	if len(keys) == 0 {
		return 0, nil, nil
	}
	there, err := m.readHolds(ctx, keys)
	if err != nil {
		return 0, nil, err
	}
	// After the bucket: a hold is in the manifest before it is in the bucket.
	all, err := m.store.Holds(ctx, true)
	if err != nil {
		return 0, nil, err
	}
	known, sure, err := m.sure(ctx, all)
	if err != nil {
		return 0, nil, err
	}
	for i, key := range keys {
		if there[i] == nil {
			continue
		}
		h, err := manifest.DecodeHold(there[i])
		mine, ok := known[key]
		if err != nil {
			if !sure[key] {
				unreadable = append(unreadable, key)
			}
			continue
		}
		if ok && mine.Same(h) {
			if mine.ReleasedAt != nil || !h.Outlasts(mine) {
				continue
			}
			h.ReleasedBy, h.ReleasedAt = "", nil
		}
		id, fresh, err := m.store.AdoptHold(ctx, h)
		if err != nil {
			return n, unreadable, err
		}
		switch {
		case fresh:
			n++
			m.log.WarnContext(ctx, "the bucket has a hold that the manifest has forgotten: it is in force again", "key", key, "hold", id)
		case ok && mine.Same(h):
			n++
			m.log.WarnContext(ctx, "the bucket has a hold as it was prolonged, which the manifest has forgotten: it lasts as long again", "key", key, "hold", id)
		}
	}
	return n, unreadable, nil
}

// sure gives holds by their keys, and those of which the bucket can know nothing that forbids
// more: in force or released, and mirrored, so that the object is not another's.
func (m *Mirror) sure(ctx context.Context, all []manifest.Hold) (known map[string]manifest.Hold, sure map[string]bool, err error) {
	inForce, err := m.store.Holds(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	unmirrored, err := m.store.UnmirroredHolds(ctx)
	if err != nil {
		return nil, nil, err
	}
	known, sure = map[string]manifest.Hold{}, map[string]bool{}
	key := func(h manifest.Hold) string { return manifest.HoldKey(m.store.Source(), h.ID) }
	for _, h := range all {
		known[key(h)], sure[key(h)] = h, h.ReleasedAt != nil
	}
	for _, h := range inForce {
		sure[key(h)] = true
	}
	for _, h := range unmirrored {
		sure[key(h)] = false
	}
	return known, sure, nil
}

// readers is how many holds are read at once.
const readers = 16

// readHolds reads objects; nil for one that is gone.
func (m *Mirror) readHolds(ctx context.Context, keys []string) ([][]byte, error) {
	there := make([][]byte, len(keys))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, key := range keys {
		g.Go(func() error {
			raw, err := m.objects.Get(ctx, key)
			if errors.Is(err, ErrNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("hold %s: %w", key, err)
			}
			there[i] = append([]byte{}, raw...)
			return nil
		})
	}
	return there, g.Wait()
}
