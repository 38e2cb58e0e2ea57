package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Finding is something Check saw that is not right. One that is Fatal would lose
// or hide messages.
type Finding struct {
	Fatal  bool
	What   string
	Remedy string
}

// String is one line.
func (f Finding) String() string { return f.What + "; " + f.Remedy }

const (
	maxSkew = time.Minute
	// S3's own rules for objects smaller than this differ: see small.
	smallObject  = 128 << 10
	sampleSmall  = 1000
	probeTimeout = 30 * time.Second
)

// errEnough ends a list that has shown what it should.
var errEnough = errors.New("enough")

// Check tries what the archive will do: it puts, reads, lists and deletes a probe
// object under the prefix, and looks at the bucket's lifecycle rules and clock. An
// error says that the bucket cannot be used; findings say what will go wrong with it.
func (b *Bucket) Check(ctx context.Context) ([]Finding, error) {
	skew, err := b.clock(ctx)
	if err != nil {
		return nil, err
	}
	var found []Finding
	if skew.Abs() > maxSkew {
		found = append(found, Finding{Fatal: true, What: fmt.Sprintf("the clock of bucket %s is %s off from this machine's", b.cfg.Name, skew.Round(time.Second)),
			Remedy: "set the clocks (NTP): requests are refused when they differ by 15 minutes"})
	}
	probed, err := b.probe(ctx)
	if err != nil {
		return nil, err
	}
	found = append(found, probed...)
	rules, err := b.lifecycle(ctx)
	if err != nil {
		return nil, err
	}
	return append(found, rules...), nil
}

// clock is by how much the bucket's clock is ahead of this machine's, to the
// second. It fails as the bucket is missing, denied or not reachable.
func (b *Bucket) clock(ctx context.Context) (skew time.Duration, err error) {
	prefix := b.prefix()
	err = b.try(ctx, b.call("list objects", prefix), func(ctx context.Context, _ *watch) error {
		out, err := b.s3.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.cfg.Name, Prefix: &prefix, MaxKeys: aws.Int32(1)})
		if err != nil {
			return err
		}
		server, ok := awsmiddleware.GetServerTime(out.ResultMetadata)
		at, ok2 := awsmiddleware.GetResponseAt(out.ResultMetadata)
		if ok && ok2 {
			skew = server.Sub(at)
		}
		return nil
	})
	return skew, err
}

// probe puts, reads and deletes an object, and makes sure that the bucket keeps
// what is there from a put "only if it is not there".
func (b *Bucket) probe(ctx context.Context) (found []Finding, err error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	key := "check/probe-" + hex.EncodeToString(id[:])
	first, other := []byte("coldtier check"), []byte("coldtier check, and another")
	if err := b.Put(ctx, key, bytes.NewReader(first), int64(len(first)), PutOptions{IfNoneMatch: true}); err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
		defer cancel()
		err = join(err, b.Delete(ctx, key))
	}()
	switch got, err := b.ReadRange(ctx, key, 0, int64(len(first))); {
	case err != nil:
		return nil, err
	case !bytes.Equal(got, first):
		return nil, fmt.Errorf("read object %s: %w: the probe comes back changed", b.url(b.prefix()+key), ErrCorrupt)
	}
	info, err := b.Head(ctx, key)
	if err != nil {
		return nil, err
	}
	if info.Metadata[MetaSHA256] == "" {
		found = append(found, Finding{What: fmt.Sprintf("bucket %s does not keep metadata", b.cfg.Name),
			Remedy: "whole objects cannot be checked when they are read; use a store that keeps x-amz-meta-* headers"})
	}
	listed := false
	if err := b.List(ctx, key, func(i Info) error { listed = listed || i.Key == key; return nil }); err != nil {
		return nil, err
	}
	if !listed {
		found = append(found, Finding{Fatal: true, What: fmt.Sprintf("bucket %s does not list an object that was just put", b.cfg.Name),
			Remedy: "use a store whose lists are consistent"})
	}
	err = b.Put(ctx, key, bytes.NewReader(other), int64(len(other)), PutOptions{IfNoneMatch: true})
	switch {
	case err == nil:
		found = append(found, Finding{Fatal: true, What: fmt.Sprintf("bucket %s overwrites an object despite If-None-Match", b.cfg.Name),
			Remedy: "use a store with conditional puts: without them two workers could replace each other's commit record"})
	case !errors.Is(err, ErrExists):
		return nil, err
	}
	return found, nil
}

// lifecycle looks for rules that would take our objects away or out of reach.
func (b *Bucket) lifecycle(ctx context.Context) ([]Finding, error) {
	var out *s3.GetBucketLifecycleConfigurationOutput
	err := b.try(ctx, b.call("read lifecycle rules of", ""), func(ctx context.Context, _ *watch) (err error) {
		out, err = b.s3.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &b.cfg.Name})
		return err
	})
	var f *failure
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, err
	case errors.As(err, &f) && f.code == "NoSuchLifecycleConfiguration":
		out = &s3.GetBucketLifecycleConfigurationOutput{}
	default: // a store without such rules, or a role that may not see them
		return []Finding{{What: fmt.Sprintf("the lifecycle rules of bucket %s cannot be read: %v", b.cfg.Name, err),
			Remedy: "grant s3:GetLifecycleConfiguration, or make sure by hand that no rule expires " + b.url(b.prefix())}}, nil
	}
	var found []Finding
	aborts, moves := false, false
	for _, r := range out.Rules {
		s := scopeOf(r)
		if r.Status != types.ExpirationStatusEnabled || !s.meets(b.prefix()) {
			continue
		}
		name := fmt.Sprintf("lifecycle rule %q of bucket %s", aws.ToString(r.ID), b.cfg.Name)
		if e := r.Expiration; e != nil && (aws.ToInt32(e.Days) > 0 || e.Date != nil) {
			found = append(found, Finding{Fatal: true, What: fmt.Sprintf("%s expires objects under %s", name, b.url(b.prefix())),
				Remedy: "take the rule away or keep it from the prefix: it would delete the only copy of old messages"})
		}
		for _, t := range r.Transitions {
			if slow(string(t.StorageClass)) {
				found = append(found, Finding{What: fmt.Sprintf("%s moves objects to %s, from which they cannot be read at once", name, t.StorageClass),
					Remedy: "use GLACIER_IR or INTELLIGENT_TIERING, or keep the rule from " + b.url(b.prefix())})
			}
			moves = moves || !s.small
		}
		// Only a rule for the whole prefix removes what any killed upload left.
		aborts = aborts || r.AbortIncompleteMultipartUpload != nil && strings.HasPrefix(b.prefix(), s.prefix)
	}
	if !aborts {
		found = append(found, Finding{What: fmt.Sprintf("no lifecycle rule of bucket %s aborts incomplete uploads", b.cfg.Name),
			Remedy: "add one with AbortIncompleteMultipartUpload of 7 days: a worker that is killed leaves parts, which are paid for and not listed"})
	}
	small, err := b.small(ctx, moves && out.TransitionDefaultMinimumObjectSize != types.TransitionDefaultMinimumObjectSizeVariesByStorageClass)
	return append(found, small...), err
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
	return []Finding{{What: what, Remedy: "use archive.layout packed, or STANDARD and no transition rules"}}, nil
}
