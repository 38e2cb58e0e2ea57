package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/manifest"
)

// When status objects are put together: many are those of less than smallBytes when there
// are manySmall of them; at most mergeBytes are read at once.
const (
	manySmall  = 64
	smallBytes = 4 << 20
	mergeBytes = 16 << 20
)

// Compact puts small status objects together when there are many, and gives how many went.
// Any number of processes may do it at once: an object goes only once all that was read of
// it is in another.
func (m *Mirror) Compact(ctx context.Context, bucket Lister) (gone int, err error) {
	bad := map[string]bool{} // not looked at again: they cannot be read as statuses, or are gone though listed
	for {
		var small []string
		total := int64(0)
		n := 0
		err := bucket.List(ctx, manifest.StatusesPrefix(m.store.Source()), func(key string, size int64) error {
			if size >= smallBytes || bad[key] {
				return nil
			}
			if n++; total+size <= mergeBytes {
				total += size
				small = append(small, key)
			}
			return nil
		})
		if err != nil || n < manySmall || len(small) < 2 {
			return gone, err
		}
		merged, err := m.merge(ctx, small, bad)
		if err != nil {
			return gone, err
		}
		if len(merged) < 2 {
			continue
		}
		if err := bucket.Delete(ctx, merged...); err != nil {
			return gone, fmt.Errorf("delete status objects that were put together: %w", err)
		}
		gone += len(merged)
	}
}

// message names a message that has a status.
type message struct {
	conversation string
	id           uint64
}

// merge puts what objects hold into one, and gives those of which it has all.
func (m *Mirror) merge(ctx context.Context, keys []string, bad map[string]bool) (merged []string, err error) {
	last := map[message]*manifest.Status{}
	var order []message
	for _, key := range keys {
		raw, err := m.objects.Get(ctx, key)
		if errors.Is(err, ErrNotFound) { // another process was faster
			bad[key] = true
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("statuses %s: %w", key, err)
		}
		all, err := parse(raw)
		if err != nil {
			bad[key] = true
			m.log.WarnContext(ctx, "an object of statuses is damaged and stays as it is", "key", key, "error", err)
			continue
		}
		for i := range all {
			st := &all[i]
			at := message{string(st.Conversation), st.MessageID}
			was := last[at]
			if was == nil {
				order = append(order, at)
			}
			if was == nil || st.At.After(was.At) {
				last[at] = st
			}
		}
		merged = append(merged, key)
	}
	if len(merged) < 2 {
		return nil, nil
	}
	var b bytes.Buffer
	for _, at := range order {
		if err := writeLine(&b, last[at]); err != nil {
			return nil, err
		}
	}
	return merged, m.putStatuses(ctx, b.Bytes())
}

func parse(raw []byte) (all []manifest.Status, err error) {
	if len(raw) > 0 && raw[len(raw)-1] != '\n' {
		return nil, errors.New("its last line is cut off")
	}
	for line := range bytes.Lines(raw) {
		var st manifest.Status
		if err := json.Unmarshal(line, &st); err != nil {
			return nil, err
		}
		if err := st.Check(); err != nil {
			return nil, err
		}
		all = append(all, st)
	}
	return all, nil
}
