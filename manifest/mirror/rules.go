package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/coldtier/coldtier/manifest"
)

// PutPolicy puts the policy for purges into the bucket, over the former one.
func (m *Mirror) PutPolicy(ctx context.Context, p manifest.Policy) error {
	b, err := manifest.EncodePolicy(p)
	if err != nil {
		return err
	}
	if err := m.objects.Put(ctx, manifest.PolicyKey(m.store.Source(), p.Name), b, false); err != nil {
		return fmt.Errorf("put the policy %s into the bucket: %w", p.Name, err)
	}
	return nil
}

// PutRevocation puts the revocation of a plan into the bucket.
func (m *Mirror) PutRevocation(ctx context.Context, r manifest.Revocation) error {
	b, err := manifest.EncodeRevocation(r)
	if err != nil {
		return err
	}
	if err := m.objects.Put(ctx, manifest.RevocationKey(m.store.Source(), r.Plan), b, false); err != nil {
		return fmt.Errorf("put the revocation of plan %s into the bucket: %w", r.Plan, err)
	}
	return nil
}

// RecalledRules is what the bucket and the manifest together know of rules.
type RecalledRules struct {
	Policy     *manifest.Policy // the one that was set last; nil: none was
	Unreadable []string         // objects, each of which may be any rule

	own       manifest.Rules // the manifest's
	inBucket  *manifest.Policy
	forgotten map[string]bool // keys that the bucket lacks
}

// RecallRules enters revocations that are in the bucket and not in the manifest, since it was
// set back to before them, and says which policy was set last.
func (m *Mirror) RecallRules(ctx context.Context, bucket Lister) (*RecalledRules, error) {
	source := m.store.Source()
	var keys []string
	if err := bucket.List(ctx, manifest.RulesPrefix(source), func(key string, _ int64) error {
		keys = append(keys, key)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list rules in the bucket: %w", err)
	}
	own, err := m.store.Rules(ctx) // after the list: a rule is in the manifest before it is in the bucket
	if err != nil {
		return nil, err
	}
	r := &RecalledRules{Policy: own.Policy, own: own, forgotten: map[string]bool{}}
	for _, v := range own.Revocations {
		r.forgotten[manifest.RevocationKey(source, v.Plan)] = true
	}
	for _, key := range keys {
		if r.forgotten[key] {
			delete(r.forgotten, key)
			continue
		}
		raw, err := m.objects.Get(ctx, key)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", key, err)
		}
		policy, revocation, err := manifest.DecodeRule(source, key, raw)
		switch {
		case err != nil:
			r.Unreadable = append(r.Unreadable, key)
		case policy != nil:
			if r.inBucket = policy; r.Policy == nil || policy.At.After(*r.Policy.At) {
				r.Policy = policy
			}
		default:
			if err := m.store.AdoptRevocation(ctx, *revocation); err != nil {
				return nil, err
			}
			m.log.WarnContext(ctx, "the bucket has a revocation that the manifest has forgotten: it counts again", "key", key, "plan", revocation.Plan)
		}
	}
	return r, nil
}

// Rules makes manifest and bucket know the same rules, and gives how many it put.
func (m *Mirror) Rules(ctx context.Context, bucket Lister) (n int, unreadable []string, err error) {
	r, err := m.RecallRules(ctx, bucket)
	if err != nil {
		return 0, nil, err
	}
	for _, v := range r.own.Revocations {
		if !r.forgotten[manifest.RevocationKey(m.store.Source(), v.Plan)] {
			continue
		}
		if err := m.PutRevocation(ctx, v); err != nil {
			return n, nil, err
		}
		n++
	}
	switch {
	case r.Policy == nil || len(r.Unreadable) > 0: // which may be the policy that was set last
	case r.Policy == r.inBucket:
		err = m.store.AdoptPolicy(ctx, *r.Policy)
	case r.inBucket == nil || r.inBucket.At.Before(*r.Policy.At):
		if err = m.PutPolicy(ctx, *r.Policy); err == nil {
			n++
		}
	}
	return n, r.Unreadable, err
}
