package bucket

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

// lookTime is how long looking at one thing of a bucket may take.
const lookTime = 15 * time.Second

// Look reads how the bucket is set up: versions, locks, lifecycle rules, who may see it,
// encryption, region. It changes nothing. A store that does not know something, or does
// not tell this account, is a finding of CodeNotLooked.
func (b *Bucket) Look(ctx context.Context) (found []Finding) {
	for _, l := range []struct {
		what, grant string
		look        func(context.Context) ([]Finding, error)
	}{
		{"the versioning", "s3:GetBucketVersioning", b.versioning},
		{"the object lock", "s3:GetBucketObjectLockConfiguration", b.lock},
		{"the lifecycle rules", "s3:GetLifecycleConfiguration, or make sure by hand that no rule expires " + b.url(b.prefix()), b.lifecycle},
		{"the bucket policy", "s3:GetBucketPolicyStatus", b.policy},
		{"the access list", "s3:GetBucketAcl", b.acl},
		{"the block of public access", "s3:GetBucketPublicAccessBlock", b.publicBlock},
		{"the default encryption", "s3:GetEncryptionConfiguration", b.encryption},
		{"the region", "s3:GetBucketLocation", b.region},
	} {
		fs, err := func() ([]Finding, error) {
			ctx, cancel := context.WithTimeout(ctx, lookTime)
			defer cancel()
			return l.look(ctx)
		}()
		if err != nil {
			why, remedy := err.Error(), "grant "+l.grant
			var f *failure
			switch {
			case !errors.As(err, &f):
			case f.code == "NotImplemented" || f.code == "MethodNotAllowed":
				why, remedy = "the store does not know it ("+f.code+")", "nothing, where the store has no such thing; else see to it by hand"
			case errors.Is(f.kind, ErrDenied):
				why = f.detail
			default:
				remedy = "run check again"
			}
			fs = append(fs, Finding{CodeNotLooked, fmt.Sprintf("%s of bucket %s could not be looked at: %s", l.what, b.cfg.Name, why), remedy})
		}
		found = append(found, fs...)
	}
	return append(found, b.Endpoint()...)
}

// ask makes one call that only reads the bucket's set-up. An answer of one of the codes
// says that nothing is set up: ok is false then.
func ask[O any](ctx context.Context, b *Bucket, what string, none []string, call func(ctx context.Context) (O, error)) (out O, ok bool, err error) {
	err = b.try(ctx, b.call("read "+what+" of", ""), func(ctx context.Context, _ *watch) (err error) {
		out, err = call(ctx)
		var api smithy.APIError
		ok = !errors.As(err, &api) || !slices.Contains(none, api.ErrorCode())
		if !ok {
			return nil
		}
		return err
	})
	return out, ok && err == nil, err
}

func (b *Bucket) versioning(ctx context.Context) ([]Finding, error) {
	out, ok, err := ask(ctx, b, "versioning", []string{"VersioningNotConfigured"}, func(ctx context.Context) (*s3.GetBucketVersioningOutput, error) {
		return b.s3.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &b.cfg.Name})
	})
	if err != nil {
		return nil, err
	}
	state := "keeps no former versions"
	switch {
	case !ok: // versitygw, where it keeps none at all
	case out.Status == types.BucketVersioningStatusEnabled:
		return []Finding{{CodeVersioned, fmt.Sprintf("bucket %s keeps former versions", b.cfg.Name), ""}}, nil
	case out.Status == types.BucketVersioningStatusSuspended:
		state = "has its versioning suspended"
	}
	return []Finding{{CodeUnversioned, fmt.Sprintf("bucket %s %s: an object that somebody deletes or overwrites is gone", b.cfg.Name, state),
		"switch versioning on, with a lifecycle rule that keeps former versions for some months"}}, nil
}

func (b *Bucket) lock(ctx context.Context) ([]Finding, error) {
	out, ok, err := ask(ctx, b, "object lock", []string{"ObjectLockConfigurationNotFoundError", "NoSuchObjectLockConfiguration"}, func(ctx context.Context) (*s3.GetObjectLockConfigurationOutput, error) {
		return b.s3.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &b.cfg.Name})
	})
	if err != nil {
		return nil, err
	}
	if !ok || out.ObjectLockConfiguration == nil || out.ObjectLockConfiguration.ObjectLockEnabled != types.ObjectLockEnabledEnabled {
		return []Finding{{CodeUnlocked, fmt.Sprintf("bucket %s has no object lock: whoever may delete objects may delete the cold copies", b.cfg.Name),
			"nothing, unless the law or your policy asks for a lock"}}, nil
	}
	how := "without a default retention"
	if r := out.ObjectLockConfiguration.Rule; r != nil && r.DefaultRetention != nil {
		d := r.DefaultRetention
		how = fmt.Sprintf("%s for %d days", d.Mode, aws.ToInt32(d.Days)+365*aws.ToInt32(d.Years))
	}
	return []Finding{{CodeLocked, fmt.Sprintf("bucket %s has an object lock, %s: what is superseded stays, and is paid for, until then", b.cfg.Name, how), ""}}, nil
}

// allUsers are S3's groups of anybody, and of anybody who has an account there.
const (
	allUsers           = "http://acs.amazonaws.com/groups/global/AllUsers"
	authenticatedUsers = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"
)

func (b *Bucket) policy(ctx context.Context) ([]Finding, error) {
	out, ok, err := ask(ctx, b, "policy status", []string{"NoSuchBucketPolicy"}, func(ctx context.Context) (*s3.GetBucketPolicyStatusOutput, error) {
		return b.s3.GetBucketPolicyStatus(ctx, &s3.GetBucketPolicyStatusInput{Bucket: &b.cfg.Name})
	})
	if ok && out.PolicyStatus != nil && aws.ToBool(out.PolicyStatus.IsPublic) {
		return []Finding{b.public("its policy is for anybody")}, nil
	}
	return nil, err
}

func (b *Bucket) acl(ctx context.Context) (found []Finding, err error) {
	out, _, err := ask(ctx, b, "access list", nil, func(ctx context.Context) (*s3.GetBucketAclOutput, error) {
		return b.s3.GetBucketAcl(ctx, &s3.GetBucketAclInput{Bucket: &b.cfg.Name})
	})
	if err != nil {
		return nil, err
	}
	for _, g := range out.Grants {
		if g.Grantee == nil {
			continue
		}
		who := ""
		switch uri, id := aws.ToString(g.Grantee.URI), aws.ToString(g.Grantee.ID); {
		case uri == allUsers || id == "all-users": // versitygw's name for it
			who = "anybody"
		case uri == authenticatedUsers:
			who = "anybody with an account at the provider"
		default:
			continue
		}
		found = append(found, b.public(fmt.Sprintf("its access list gives %s to %s", g.Permission, who)))
	}
	return found, nil
}

func (b *Bucket) public(why string) Finding {
	return Finding{CodePublic, fmt.Sprintf("bucket %s is public: %s", b.cfg.Name, why), "take that away and block public access"}
}

func (b *Bucket) publicBlock(ctx context.Context) ([]Finding, error) {
	out, ok, err := ask(ctx, b, "block of public access", []string{"NoSuchPublicAccessBlockConfiguration"}, func(ctx context.Context) (*s3.GetPublicAccessBlockOutput, error) {
		return b.s3.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: &b.cfg.Name})
	})
	if err != nil {
		return nil, err
	}
	if ok {
		if c := out.PublicAccessBlockConfiguration; c != nil && aws.ToBool(c.BlockPublicAcls) && aws.ToBool(c.IgnorePublicAcls) && aws.ToBool(c.BlockPublicPolicy) && aws.ToBool(c.RestrictPublicBuckets) {
			return []Finding{{CodeNotPublic, fmt.Sprintf("public access to bucket %s is blocked", b.cfg.Name), ""}}, nil
		}
	}
	return []Finding{{CodeMayBePublic, fmt.Sprintf("bucket %s does not block public access: a policy or an access list could open it", b.cfg.Name),
		"set all four flags of its PublicAccessBlock"}}, nil
}

func (b *Bucket) encryption(ctx context.Context) ([]Finding, error) {
	out, ok, err := ask(ctx, b, "encryption", []string{"ServerSideEncryptionConfigurationNotFoundError"}, func(ctx context.Context) (*s3.GetBucketEncryptionOutput, error) {
		return b.s3.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: &b.cfg.Name})
	})
	if err != nil {
		return nil, err
	}
	algorithm, key := "", ""
	if ok && out.ServerSideEncryptionConfiguration != nil {
		for _, r := range out.ServerSideEncryptionConfiguration.Rules {
			if d := r.ApplyServerSideEncryptionByDefault; d != nil {
				algorithm, key = string(d.SSEAlgorithm), aws.ToString(d.KMSMasterKeyID)
			}
		}
	}
	switch want := b.cfg.SSE; {
	case algorithm == "" && want == "":
		return []Finding{{CodeUnencrypted, fmt.Sprintf("bucket %s encrypts nothing by default, and bucket.sse is not set", b.cfg.Name),
			"set bucket.sse or the bucket's default encryption, unless the store's disks are encrypted"}}, nil
	case algorithm != "" && want != "" && algorithm != want:
		return []Finding{{CodeEncryption, fmt.Sprintf("bucket %s encrypts by %s, and bucket.sse says %s", b.cfg.Name, algorithm, want),
			"make them alike, so that what others put there is encrypted as coldtier's objects are"}}, nil
	case key != "" && b.cfg.KMSKey != "" && !strings.HasSuffix(key, b.cfg.KMSKey) && !strings.HasSuffix(b.cfg.KMSKey, key):
		return []Finding{{CodeEncryption, fmt.Sprintf("bucket %s encrypts with another key than bucket.kms_key", b.cfg.Name), "make them alike"}}, nil
	}
	return nil, nil
}

func (b *Bucket) region(ctx context.Context) ([]Finding, error) {
	out, _, err := ask(ctx, b, "region", nil, func(ctx context.Context) (*s3.GetBucketLocationOutput, error) {
		return b.s3.GetBucketLocation(ctx, &s3.GetBucketLocationInput{Bucket: &b.cfg.Name})
	})
	if err != nil {
		return nil, err
	}
	is := string(out.LocationConstraint)
	switch is {
	case "":
		is = "us-east-1"
	case "EU":
		is = "eu-west-1"
	}
	if set := b.s3.Options().Region; is != set {
		return []Finding{{CodeRegion, fmt.Sprintf("bucket %s lies in %s, and bucket.region is %s", b.cfg.Name, is, set), "set bucket.region to " + is}}, nil
	}
	return nil, nil
}

var awsEndpoint = regexp.MustCompile(`s3[.-](?:dualstack\.|fips\.)?([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com`)

// Endpoint compares the region that an endpoint of AWS names with the one that is set. It asks nobody.
func (b *Bucket) Endpoint() []Finding {
	m := awsEndpoint.FindStringSubmatch(b.cfg.Endpoint)
	if set := b.s3.Options().Region; m != nil && m[1] != set {
		return []Finding{{CodeEndpointNamed, fmt.Sprintf("bucket.endpoint is in %s, and bucket.region is %s", m[1], set), "make them alike, or leave bucket.endpoint empty"}}
	}
	return nil
}
