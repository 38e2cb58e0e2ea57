package main

import (
	"context"
	"fmt"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/manifest/mirror"
)

// mirrorRule puts a rule for purges into the bucket. That it cannot be done is no failure, but
// something to say: the rule counts already.
func (a *app) mirrorRule(ctx context.Context, p *parts, put func(context.Context, *mirror.Mirror) error) (warning string) {
	ctx, cancel := context.WithTimeout(ctx, mirrorTime)
	defer cancel()
	err := a.openBucket(ctx, p)
	if err == nil {
		err = put(ctx, a.mirror(p))
	}
	if err != nil {
		return a.redactor.Text(fmt.Sprintf("it counts, but it is not in the bucket yet, and would be forgotten with the manifest; the next coldtier archive puts it there: %v", err))
	}
	return ""
}

// recallRules makes the manifest know of revoked plans that only the bucket has, since it was
// set back to before them, and notes whether the bucket says that an approval is required.
// What may be a rule of any kind is refused.
func (a *app) recallRules(ctx context.Context, p *parts) error {
	r, err := a.mirror(p).RecallRules(ctx, mirrored{p.bucket})
	if err != nil {
		return err
	}
	if n := len(r.Unreadable); n > 0 {
		return mark(fmt.Errorf("%s in the bucket cannot be read, the first %s: what they forbid is not known: restore them from a former version; one of a policy is put anew by coldtier plan policy required|none", count(n, "rule"), r.Unreadable[0]), errUnsafe)
	}
	p.approval = r.Policy != nil && r.Policy.Value == manifest.ApprovalRequired
	return nil
}
