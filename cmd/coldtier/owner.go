package main

import (
	"context"
	"errors"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/bucket"
)

func (p *parts) bucketOwner(ctx context.Context) (archive.Owner, error) {
	id, err := p.manifest.Identity(ctx)
	return archive.Owner{Bucket: p.cfg.Bucket.Name, Prefix: p.cfg.Bucket.Prefix, Source: p.cfg.Source.Name, Identity: id}, err
}

// checkOwner refuses a bucket that belongs to another manifest. One that lacks the
// owner mark is noted in p.unowned: what that means differs between verbs.
func (p *parts) checkOwner(ctx context.Context) error {
	w, err := p.bucketOwner(ctx)
	if err != nil {
		return err
	}
	err = archive.CheckOwner(ctx, objects{p.bucket}, w)
	if errors.Is(err, archive.ErrUnowned) {
		p.unowned, err = err, nil
	}
	return err
}

// claimOwner puts the owner mark where checkOwner has found none.
func (p *parts) claimOwner(ctx context.Context) error {
	if p.unowned == nil {
		return nil
	}
	w, err := p.bucketOwner(ctx)
	if err != nil {
		return err
	}
	now, err := p.manifest.Now(ctx)
	if err != nil {
		return err
	}
	return archive.ClaimOwner(ctx, objects{p.bucket}, w, now)
}

// away says that a bucket cannot be used now, or not with these rights: nothing that
// keeps migrate from its work, since archive makes the mark as well.
func away(err error) bool {
	for _, kind := range []error{bucket.ErrUnavailable, bucket.ErrThrottled, bucket.ErrNoBucket, bucket.ErrDenied} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
