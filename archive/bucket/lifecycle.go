package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	// S3's own rules for objects smaller than this differ: see small.
	smallObject = 128 << 10
	sampleSmall = 1000
	// formerDays is how long former versions should stay: it is the time in which an
	// object that was deleted or damaged can be brought back.
	formerDays = 30
)

// errEnough ends a list that has shown what it should.
var errEnough = errors.New("enough")

// lifecycle looks for rules that would take our objects away or out of reach.
func (b *Bucket) lifecycle(ctx context.Context) ([]Finding, error) {
	out, ok, err := ask(ctx, b, "lifecycle rules", []string{"NoSuchLifecycleConfiguration"}, func(ctx context.Context) (*s3.GetBucketLifecycleConfigurationOutput, error) {
		return b.s3.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &b.cfg.Name})
	})
	if err != nil {
		return nil, err
	}
	if !ok {
		out = &s3.GetBucketLifecycleConfigurationOutput{}
	}
	found, aborts, moves := b.rules(out.Rules)
	if !aborts {
		found = append(found, Finding{CodeNoAbort, fmt.Sprintf("no lifecycle rule of bucket %s aborts incomplete uploads", b.cfg.Name),
			"add one with AbortIncompleteMultipartUpload of 7 days: a worker that is killed leaves parts, which are paid for and not listed"})
	}
	small, err := b.small(ctx, moves && out.TransitionDefaultMinimumObjectSize != types.TransitionDefaultMinimumObjectSizeVariesByStorageClass)
	return append(found, small...), err
}

// rules judges the rules: whether one aborts what any killed upload left, and whether
// one moves objects only when they are big enough.
func (b *Bucket) rules(all []types.LifecycleRule) (found []Finding, aborts, moves bool) {
	ours := b.url(b.prefix())
	for _, r := range all {
		s := scopeOf(r)
		if r.Status != types.ExpirationStatusEnabled || !s.meets(b.prefix()) {
			continue
		}
		name := fmt.Sprintf("lifecycle rule %q of bucket %s", aws.ToString(r.ID), b.cfg.Name)
		if e := r.Expiration; e != nil && (aws.ToInt32(e.Days) > 0 || e.Date != nil) {
			found = append(found, Finding{CodeEats, fmt.Sprintf("%s expires objects under %s", name, ours),
				"take the rule away or keep it from the prefix: it would delete the only copy of old messages"})
		}
		if e := r.NoncurrentVersionExpiration; e != nil && aws.ToInt32(e.NoncurrentDays) < formerDays {
			found = append(found, Finding{CodeFormer, fmt.Sprintf("%s deletes former versions under %s after %d days", name, ours, aws.ToInt32(e.NoncurrentDays)),
				fmt.Sprintf("let them stay for at least %d days: a former version is what brings back an object that was deleted or overwritten", formerDays)})
		}
		for _, t := range r.Transitions {
			if slow(string(t.StorageClass)) {
				found = append(found, Finding{CodeArchives, fmt.Sprintf("%s moves objects to %s, from which they cannot be read at once", name, t.StorageClass),
					"use GLACIER_IR or INTELLIGENT_TIERING, or keep the rule from " + ours})
			}
			moves = moves || !s.small
		}
		// Only a rule for the whole prefix removes what any killed upload left.
		aborts = aborts || r.AbortIncompleteMultipartUpload != nil && strings.HasPrefix(b.prefix(), s.prefix)
	}
	return found, aborts, moves
}

// slow classes need a restore before a read.
func slow(class string) bool {
	return slices.Contains([]string{"GLACIER", "DEEP_ARCHIVE"}, class)
}

// scope is which objects a lifecycle rule is for.
type scope struct {
	prefix string
	tagged bool // only objects with certain tags; ours have none
	small  bool // a size is named, which overrides S3's own limit of 128 KiB
}

func scopeOf(r types.LifecycleRule) scope {
	s := scope{prefix: aws.ToString(r.Prefix)} //nolint:staticcheck // deprecated, and still obeyed by S3
	if f := r.Filter; f != nil {
		s.prefix = aws.ToString(f.Prefix)
		s.tagged = f.Tag != nil
		s.small = f.ObjectSizeGreaterThan != nil || f.ObjectSizeLessThan != nil
		if a := f.And; a != nil {
			s.prefix, s.tagged = aws.ToString(a.Prefix), len(a.Tags) > 0
			s.small = a.ObjectSizeGreaterThan != nil || a.ObjectSizeLessThan != nil
		}
	}
	return s
}

// meets says whether the rule is for anything under our prefix.
func (s scope) meets(ours string) bool {
	return !s.tagged && (strings.HasPrefix(ours, s.prefix) || strings.HasPrefix(s.prefix, ours))
}

// small looks for objects below 128 KiB where they cost more than their bytes: no
// lifecycle rule moves them to a cheaper class (ruled), and the infrequent-access
// classes charge each as if it had 128 KiB.
func (b *Bucket) small(ctx context.Context, ruled bool) ([]Finding, error) {
	charged := slices.Contains([]string{"STANDARD_IA", "ONEZONE_IA", "GLACIER_IR"}, b.cfg.StorageClass)
	if !ruled && !charged && b.cfg.StorageClass != string(types.StorageClassIntelligentTiering) {
		return nil, nil
	}
	seen, below := 0, 0
	err := b.List(ctx, "messages/", func(i Info) error {
		seen++
		if i.Size < smallObject {
			below++
		}
		if seen == sampleSmall {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	if seen > 0 && below == 0 {
		return nil, nil
	}
	what := "objects under 128 KiB never move to a cheaper class"
	if charged {
		what = "objects under 128 KiB are charged as 128 KiB in " + b.cfg.StorageClass
	}
	if seen > 0 {
		what += fmt.Sprintf(" (%d of the first %d under %s are)", below, seen, b.url(b.prefix()+"messages/"))
	}
	return []Finding{{CodeSmall, what, "use STANDARD, and no transition rules for the prefix"}}, nil
}
