package rebuild

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/manifest"
)

// statusBatch is how many statuses are entered in one transaction.
const statusBatch = 5000

// rest enters stops, holds and statuses.
func (b *rebuilder) rest(ctx context.Context) error {
	if err := b.stops(ctx); err != nil {
		return err
	}
	if err := b.holds(ctx); err != nil {
		return err
	}
	if err := b.step("rebuild.holds"); err != nil {
		return err
	}
	if err := b.statuses(ctx); err != nil {
		return err
	}
	return b.step("rebuild.statuses")
}

func (b *rebuilder) holds(ctx context.Context) error {
	source := b.Target.Source()
	return mirrored(ctx, b, "hold", manifest.HoldsPrefix(source), manifest.DecodeHold, func(h manifest.Hold) string { return manifest.HoldKey(source, h.ID) }, func(h manifest.Hold) error {
		b.report.Holds++
		if b.cfg.DryRun {
			return nil
		}
		return b.r.Hold(ctx, h)
	})
}

func (b *rebuilder) stops(ctx context.Context) error {
	source := b.Target.Source()
	return mirrored(ctx, b, "stop", manifest.StopsPrefix(source), manifest.DecodeStop, func(st manifest.Stop) string { return manifest.StopKey(source, st.Name) }, func(st manifest.Stop) error {
		if b.cfg.DryRun {
			return nil
		}
		return b.r.Stop(ctx, st)
	})
}

// mirrored reads the objects below a prefix, each of which is one thing and has its key.
// One that cannot be read is a problem.
func mirrored[T any](ctx context.Context, b *rebuilder, what, prefix string, decode func([]byte) (T, error), keyOf func(T) string, enter func(T) error) error {
	var keys []string
	err := b.Objects.List(ctx, prefix, func(key string, _ int64) error {
		keys = append(keys, key)
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range keys {
		raw, err := b.Objects.Get(ctx, key)
		if errors.Is(err, archive.ErrDamaged) {
			b.problem(key, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		x, err := decode(raw)
		if err == nil && keyOf(x) != key {
			err = fmt.Errorf("it is the %s of key %s", what, keyOf(x))
		}
		if err != nil {
			b.problem(key, err)
			continue
		}
		if err := enter(x); err != nil {
			return err
		}
	}
	return nil
}

// statuses reads all status objects. What a compaction replaces meanwhile is found by
// listing again.
func (b *rebuilder) statuses(ctx context.Context) error {
	seen := map[string]bool{}
	for again := true; again; {
		again = false
		var keys []string
		err := b.Objects.List(ctx, manifest.StatusesPrefix(b.Target.Source()), func(key string, _ int64) error {
			if !seen[key] {
				keys = append(keys, key)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, key := range keys {
			seen[key] = true
			raw, err := b.Objects.Get(ctx, key)
			if errors.Is(err, archive.ErrNotFound) {
				again = true
				continue
			}
			if errors.Is(err, archive.ErrDamaged) {
				b.problem(key, err)
				continue
			}
			if err != nil {
				return fmt.Errorf("statuses: %w", err)
			}
			if err := b.statusLines(ctx, key, raw); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *rebuilder) statusLines(ctx context.Context, key string, raw []byte) error {
	batch := make([]manifest.Status, 0, statusBatch)
	flush := func() error {
		b.report.Statuses += len(batch)
		var err error
		if !b.cfg.DryRun && len(batch) > 0 {
			err = b.r.Statuses(ctx, batch)
		}
		batch = batch[:0]
		return err
	}
	in := bufio.NewReader(bytes.NewReader(raw))
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				b.problem(key, fmt.Errorf("line %d is cut off", n))
			}
			return flush()
		}
		var st manifest.Status
		if err = json.Unmarshal(line, &st); err == nil {
			err = st.Check()
		}
		if err != nil {
			b.problem(key, fmt.Errorf("line %d is no status: %w", n, err))
			continue
		}
		if batch = append(batch, st); len(batch) == statusBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}
