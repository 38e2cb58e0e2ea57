package patrol

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/manifest/mirror"
	"github.com/coldtier/coldtier/restore/rebuild"
)

const releaseTime = 10 * time.Second

func (p *patrol) step(name string) error {
	if p.Healer.Step == nil {
		return nil
	}
	return p.Healer.Step(name)
}

// leasedly does something under a slice's lease, with the slice as it is then.
func (p *patrol) leasedly(ctx context.Context, n *manifest.Named, do func(context.Context, *manifest.Lease, *manifest.Named) (string, error)) (done string, err error) {
	if n.State == manifest.Copying {
		return "", fmt.Errorf("%w: slice %s is being copied", manifest.ErrLeased, n.SliceKey)
	}
	l, err := p.Manifest.Claim(ctx, n.ID, p.cfg.Worker, []manifest.State{n.State}, n.State)
	if err != nil {
		return "", err
	}
	held, stop := l.Keep(ctx)
	defer func() {
		stop()
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		if bad := l.Release(clean, n.State); bad != nil && !errors.Is(bad, manifest.ErrLeaseLost) {
			err = errors.Join(err, bad)
		}
	}()
	if err := p.step("patrol.claimed"); err != nil {
		return "", err
	}
	now, ok, err := p.Manifest.NamedSlice(held, n.SliceKey)
	if err == nil && !ok {
		err = fmt.Errorf("slice %s: %w", n.SliceKey, manifest.ErrNotFound)
	}
	if err == nil {
		done, err = do(held, l, &now)
	}
	if err != nil && held.Err() != nil {
		err = fmt.Errorf("%w (while: %w)", context.Cause(held), err)
	}
	return done, err
}

// putRecord puts a lost commit record again: only bytes of the checksum that was committed,
// and never over an object.
func (p *patrol) putRecord(ctx context.Context, n *manifest.Named, c manifest.NamedCopy) (string, error) {
	return p.leasedly(ctx, n, func(ctx context.Context, l *manifest.Lease, now *manifest.Named) (string, error) {
		is, ok := now.Copy(c.Generation)
		if !ok || is != c {
			return "", fmt.Errorf("slice %s generation %d: %w: it has changed since", n.SliceKey, c.Generation, manifest.ErrState)
		}
		raw, err := p.Manifest.Record(ctx, n.ID, c.Generation)
		if err != nil {
			return "", err
		}
		if sha256.Sum256(raw) != c.RecordSum {
			return "", fmt.Errorf("commit record %s: the manifest makes it with another SHA-256 than it had", c.RecordKey)
		}
		if err := l.Renew(ctx); err != nil {
			return "", err
		}
		err = p.Healer.Puts.Put(ctx, c.RecordKey, raw, true)
		if errors.Is(err, mirror.ErrExists) { // another has put it; the next patrol compares it
			return "it is there again", nil
		}
		if err == nil {
			err = p.step("patrol.record-put")
		}
		return "put it again from the manifest", err
	})
}

// rebuildRows makes ClickHouse hold a slice's generations again.
func (p *patrol) rebuildRows(ctx context.Context, n *manifest.Named) (string, error) {
	if n.State == manifest.Copying {
		return "", fmt.Errorf("%w: slice %s is being copied", manifest.ErrLeased, n.SliceKey)
	}
	out, _ := rebuild.Slice(ctx, rebuild.RowConfig{Lease: true, Owner: p.cfg.Worker}, p.Healer.Rows, n.Slice)
	rows := uint64(0)
	var errs []error
	for _, o := range out {
		errs = append(errs, o.Err)
		rows += o.Rows
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return fmt.Sprintf("inserted %d rows anew from the bucket, and found them equal", rows), nil
}

// dropRows drops a copy in ClickHouse that nothing names. Under the lease no worker can
// commit the attempt any more, and what a worker may still put for the next run to take
// over, a commit record, is looked for.
func (p *patrol) dropRows(ctx context.Context, n *manifest.Named, id manifest.CopyID, rows uint64) (string, error) {
	return p.leasedly(ctx, n, func(ctx context.Context, l *manifest.Lease, now *manifest.Named) (string, error) {
		if now.Has(id.Generation, id.Attempt) {
			return "", fmt.Errorf("%s: %w: it has been committed since", id, manifest.ErrState)
		}
		named, err := p.recorded(ctx, now, id)
		if err != nil {
			return "", err
		}
		if named {
			return "", fmt.Errorf("%s: %w: a commit record in the bucket may name it", id, manifest.ErrState)
		}
		// A process that was paused may have lost the lease, and with it all that was looked at.
		if err := l.Renew(ctx); err != nil {
			return "", err
		}
		if err := p.Healer.Rows.Rows.Drop(ctx, id); err != nil {
			return "", err
		}
		return fmt.Sprintf("dropped %d rows", rows), p.step("patrol.dropped")
	})
}

// recorded says whether a commit record of the slice names an attempt, or cannot be read.
func (p *patrol) recorded(ctx context.Context, n *manifest.Named, id manifest.CopyID) (is bool, err error) {
	prefix := manifest.RecordPrefix(n.SliceKey)
	var keys []string
	err = p.Bucket.List(ctx, prefix, func(l Listed) error {
		if strings.HasSuffix(l.Key, ".parquet") {
			keys = append(keys, l.Key)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		r, ok := manifest.ParseRecordKey(key)
		if c, named := n.Copy(r.Generation); ok && named && c.RecordKey == key {
			continue // of a generation that is not the attempt
		}
		raw, err := p.Objects.Get(ctx, key)
		if errors.Is(err, archive.ErrNotFound) {
			continue
		}
		if err != nil && !errors.Is(err, archive.ErrDamaged) {
			return false, err
		}
		c, bad := manifest.DecodeRecord(raw)
		if err != nil || bad != nil || c.Attempt == id.Attempt {
			return true, nil
		}
	}
	return false, nil
}
