package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coldtier/coldtier/manifest"
)

// Stops puts stops that the bucket does not have as they are, and gives their number.
// A stop's name is its own for ever, so none can be written over another.
func (m *Mirror) Stops(ctx context.Context) (n int, err error) {
	list, err := m.store.UnmirroredStops(ctx)
	if err != nil {
		return 0, err
	}
	for _, st := range list {
		b, err := manifest.EncodeStop(st)
		if err != nil {
			return n, err
		}
		if err := m.objects.Put(ctx, manifest.StopKey(m.store.Source(), st.Name), b, false); err != nil {
			return n, fmt.Errorf("put stop %d into the bucket: %w", st.ID, err)
		}
		if err := m.store.StopMirrored(ctx, st); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// RecallStops enters stops that are in the bucket and not in the manifest, since it was
// set back to before them, and gives how many; and the objects that cannot be read, each of
// which may be a stop of anything.
func (m *Mirror) RecallStops(ctx context.Context, bucket Lister) (n int, unreadable []string, err error) {
	var keys []string
	if err := bucket.List(ctx, manifest.StopsPrefix(m.store.Source()), func(key string, _ int64) error {
		keys = append(keys, key)
		return nil
	}); err != nil {
		return 0, nil, fmt.Errorf("list stops in the bucket: %w", err)
	}
	if len(keys) == 0 {
		return 0, nil, nil
	}
	all, err := m.store.Stops(ctx, true) // after the list: a stop is in the manifest before it is in the bucket
	if err != nil {
		return 0, nil, err
	}
	known := map[string]bool{}
	for _, st := range all {
		known[manifest.StopKey(m.store.Source(), st.Name)] = true
	}
	for _, key := range keys {
		if known[key] || !strings.HasSuffix(key, ".json") {
			continue
		}
		raw, err := m.objects.Get(ctx, key)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return n, unreadable, fmt.Errorf("stop %s: %w", key, err)
		}
		st, err := manifest.DecodeStop(raw)
		if err != nil {
			unreadable = append(unreadable, key)
			continue
		}
		fresh, err := m.store.AdoptStop(ctx, st)
		if err != nil {
			return n, unreadable, err
		}
		if fresh {
			n++
			if st.LiftedAt == nil {
				m.log.WarnContext(ctx, "the bucket has a stop that the manifest has forgotten: it counts again", "key", key, "stop", st.String())
			}
		}
	}
	return n, unreadable, nil
}
