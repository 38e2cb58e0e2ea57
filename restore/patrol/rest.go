package patrol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/canary"
)

// rest looks at what belongs to no day.
func (p *patrol) rest(ctx context.Context) error {
	for _, look := range []func(context.Context) error{p.unmirrored, p.holds, p.canaries} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	return nil
}

// unmirrored finds what the manifest alone knows, and has known for longer than the grace.
func (p *patrol) unmirrored(ctx context.Context) error {
	u, err := p.Manifest.UnmirroredFor(ctx, p.cfg.Grace)
	if err != nil || u.None() {
		return err
	}
	f := Finding{Code: Unmirrored, Severity: Different, Count: u.Holds + u.Stops + u.Statuses + u.Purges,
		What:   fmt.Sprintf("%d holds, %d stops, %d statuses and %d purges are not in the bucket, and would be lost with the manifest", u.Holds, u.Stops, u.Statuses, u.Purges),
		Remedy: "coldtier archive, or patrol --heal, puts them there"}
	if h := p.Healer; h != nil {
		f.mend = func(ctx context.Context) (string, error) {
			holds, err := h.Mirror.Holds(ctx)
			if err != nil {
				return "", err
			}
			stops, err := h.Mirror.Stops(ctx)
			if err != nil {
				return "", err
			}
			statuses, err := h.Mirror.Statuses(ctx)
			if err != nil {
				return "", err
			}
			purges, left, err := h.Mirror.Purges(ctx)
			if err == nil && left > 0 {
				err = fmt.Errorf("%w: %d slices", manifest.ErrLeased, left)
			}
			return fmt.Sprintf("put %d holds, %d stops, %d statuses and %d purges into the bucket", holds, stops, statuses, purges), err
		}
	}
	p.settle(ctx, &f)
	return nil
}

// holds compares the holds in the bucket with those that the manifest takes for mirrored.
func (p *patrol) holds(ctx context.Context) error {
	source := p.Manifest.Source()
	there := map[string]bool{}
	err := p.Bucket.List(ctx, manifest.HoldsPrefix(source), func(l Listed) error {
		there[l.Key] = true
		return nil
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		p.unlooked("the holds in the bucket", err)
		return nil
	}
	mirrored, others, err := p.Manifest.MirroredHolds(ctx)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(mirrored)) {
		h := mirrored[id]
		key := manifest.HoldKey(source, id)
		delete(there, key)
		f, err := p.hold(ctx, key, h)
		if err != nil {
			return err
		}
		if f != nil {
			p.settle(ctx, f)
		}
	}
	for id := range others {
		delete(there, manifest.HoldKey(source, id))
	}
	for _, key := range slices.Sorted(maps.Keys(there)) {
		// One whose number was given anew goes on under another.
		if raw, err := p.Objects.Get(ctx, key); err == nil {
			if h, err := manifest.DecodeHold(raw); err == nil && (among(mirrored, h) || among(others, h)) {
				continue
			}
		} else if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f := Finding{Code: HoldUnknown, Severity: Different, Objects: []string{key}, What: "the hold " + key + " is in the bucket, and the manifest does not know it: was it set back to a backup?",
			Remedy: "coldtier patrol --heal, or the next archive or purge, enters it, so that it is in force again"}
		if h := p.Healer; h != nil {
			f.mend = func(ctx context.Context) (string, error) {
				_, unreadable, err := h.Mirror.Recall(ctx, h.Lister)
				if err == nil && slices.Contains(unreadable, key) {
					err = fmt.Errorf("%s cannot be read: restore a former version of it", key)
				}
				return "it is in force again", err
			}
		}
		p.settle(ctx, &f)
	}
	return nil
}

func among(all map[uint64]manifest.Hold, h manifest.Hold) bool {
	for _, o := range all {
		if o.Same(h) {
			return true
		}
	}
	return false
}

// hold compares one hold.
func (p *patrol) hold(ctx context.Context, key string, h manifest.Hold) (*Finding, error) {
	f := &Finding{Severity: Different, Objects: []string{key}, Count: 1}
	raw, err := p.Objects.Get(ctx, key)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, archive.ErrNotFound):
		f.Code, f.What = HoldMissing, fmt.Sprintf("hold %d on %s %s is not in the bucket, and would be lost with the manifest", h.ID, h.Kind, h.Subject)
		f.Remedy = "coldtier patrol --heal puts it there"
		if p.Healer != nil {
			f.mend = func(ctx context.Context) (string, error) {
				b, err := manifest.EncodeHold(h)
				if err == nil {
					err = p.Healer.Puts.Put(ctx, key, b, true)
				}
				return "put it", err
			}
		}
		return f, nil
	case err != nil && !errors.Is(err, archive.ErrDamaged):
		p.unlooked(key, err)
		return nil, nil //nolint:nilnil // nothing is known
	}
	var b manifest.Hold
	if err == nil {
		b, err = manifest.DecodeHold(raw)
	}
	same := func(x, y *time.Time) bool { return (x == nil) == (y == nil) && (x == nil || x.Equal(*y)) }
	switch {
	case err != nil:
		f.What = fmt.Sprintf("hold %d in the bucket cannot be read: %v", h.ID, err)
	case b.ID != h.ID || b.Kind != h.Kind || b.Subject != h.Subject || !b.At.Equal(h.At) || !same(b.ReleasedAt, h.ReleasedAt) || !same(b.ExpiresAt, h.ExpiresAt):
		f.What = fmt.Sprintf("hold %d on %s %s is another in the bucket", h.ID, h.Kind, h.Subject)
	default:
		return nil, nil //nolint:nilnil // it is equal
	}
	// It may have been released or prolonged since it was listed.
	mirrored, _, bad := p.Manifest.MirroredHolds(ctx)
	if bad != nil {
		return nil, bad
	}
	if now, ok := mirrored[h.ID]; !ok || !same(now.ReleasedAt, h.ReleasedAt) || !same(now.ExpiresAt, h.ExpiresAt) {
		p.count(func(r *Report) { r.InFlight++ })
		return nil, nil //nolint:nilnil // it is in flight
	}
	f.Code = HoldDifferent
	if err == nil && b.ID == h.ID && before(b, h) {
		f.What = fmt.Sprintf("hold %d on %s %s is in the bucket as it was before it was prolonged or released", h.ID, h.Kind, h.Subject)
		f.Remedy = "coldtier patrol --heal has the next coldtier archive put it there as it is"
		if p.Healer != nil {
			f.mend = func(ctx context.Context) (string, error) {
				return "the next archive puts it there as it is", p.Manifest.RemirrorHold(ctx, h.ID)
			}
		}
		return f, nil
	}
	f.Remedy = "see which of both is right (coldtier hold list; " + key + "); restore a newer backup of the manifest, or move the object away: then --heal puts the manifest's"
	return f, nil
}

// before says whether a hold is what another, the same one, was earlier: two puts may have
// arrived in the wrong order.
func before(earlier, h manifest.Hold) bool {
	longer := h.ExpiresAt != nil && earlier.ExpiresAt != nil && h.ExpiresAt.After(*earlier.ExpiresAt)
	as := (h.ExpiresAt == nil) == (earlier.ExpiresAt == nil) && (h.ExpiresAt == nil || !h.ExpiresAt.Before(*earlier.ExpiresAt))
	return h.Same(earlier) && earlier.ReleasedAt == nil && as && (h.ReleasedAt != nil || longer)
}

// canaries looks for the canaries, byte for byte.
func (p *patrol) canaries(ctx context.Context) error {
	all, err := p.Manifest.Canaries(ctx)
	if err != nil || len(all) == 0 || p.Canaries == nil {
		return err
	}
	found, err := p.Canaries(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		p.unlooked("the canaries", err)
	}
	for i := range found {
		c := &found[i]
		if !p.selected(c.Shard.String()) || p.cfg.Filter.From != nil && c.Day.Before(*p.cfg.Filter.From) || p.cfg.Filter.To != nil && p.cfg.Filter.To.Before(c.Day) {
			continue
		}
		f := Finding{Severity: Lost, Slice: &manifest.SliceKey{Source: p.Manifest.Source(), Shard: c.Shard, Day: c.Day}, What: c.String(), Count: len(c.Messages)}
		switch c.Problem {
		case "":
			continue
		case canary.Unread:
			p.unlooked("canary "+c.Canary, errors.New(c.String()))
			continue
		case canary.Lost:
			f.Code = CanaryLost
		case canary.Changed:
			f.Code = CanaryChanged
		default:
			f.Code, f.Severity, f.Remedy = CanaryUnfinished, Different, "plant it again: coldtier canary plant with the same --id"
		}
		if f.Remedy == "" {
			f.Remedy = fmt.Sprintf("messages of users may be lost or changed alike: coldtier verify --day %s --shard %s; in ClickHouse, coldtier rebuild clickhouse", c.Day, c.Shard)
		}
		p.settle(ctx, &f)
	}
	return nil
}
