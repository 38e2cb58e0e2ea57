package bucket_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/tests/stack"
)

// standIn answers what the real store does not know, as AWS does, by the name of the
// sub-resource; "" is "nothing is set up". Everything else the real store answers.
func standIn(t *testing.T, s *stack.S3, answers map[string]string) {
	t.Helper()
	m := meddle(t, s, false)
	none := map[string]string{"lifecycle": "NoSuchLifecycleConfiguration", "publicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
		"encryption": "ServerSideEncryptionConfigurationNotFoundError", "policyStatus": "NoSuchBucketPolicy"}
	m.before = func(w http.ResponseWriter, r request) bool {
		for name, text := range answers {
			switch {
			case r.Method != http.MethodGet || !r.has(name):
				continue
			case text == "":
				refuse(w, http.StatusNotFound, none[name])
			case strings.HasPrefix(text, "<"):
				_, _ = io.WriteString(w, text)
			default:
				refuse(w, http.StatusForbidden, text)
			}
			return true
		}
		return false
	}
}

// S13: rules that would expire our objects, move them out of reach or take former
// versions away are told, and small objects that nothing moves. Rules for others are not.
func TestLookReadsLifecycleRules(t *testing.T) {
	t.Parallel()
	s := stack.Bucket(t)
	answers := map[string]string{"lifecycle": ""}
	standIn(t, &s, answers)
	b, _ := open(t, config(s))
	rule := func(filter, rest string) string {
		return "<Rule><ID>r</ID><Status>Enabled</Status>" + filter + rest + "</Rule>"
	}
	prefix := func(p string) string { return "<Filter><Prefix>" + p + "</Prefix></Filter>" }
	const expire = "<Expiration><Days>30</Days></Expiration>"
	const abort = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
	move := func(class string) string {
		return "<Transition><Days>30</Days><StorageClass>" + class + "</StorageClass></Transition>"
	}
	former := func(days string) string {
		return "<NoncurrentVersionExpiration><NoncurrentDays>" + days + "</NoncurrentDays></NoncurrentVersionExpiration>"
	}
	const eats, noAbort = bucket.CodeEats, bucket.CodeNoAbort
	for name, c := range map[string]struct {
		rules string
		want  []bucket.Code // of lifecycle rules
	}{
		"none":               {"", []bucket.Code{noAbort}},
		"abort":              {rule(prefix(""), abort), nil},
		"abort elsewhere":    {rule(prefix("other/"), abort), []bucket.Code{noAbort}},
		"expires all":        {rule(prefix(""), expire+abort), []bucket.Code{eats}},
		"expires ours":       {rule(prefix("im/"), expire), []bucket.Code{eats, noAbort}},
		"expires a part":     {rule(prefix("im/messages/day=2026"), expire), []bucket.Code{eats, noAbort}},
		"old form":           {rule("<Prefix>im</Prefix>", expire), []bucket.Code{eats, noAbort}},
		"with a size":        {rule("<Filter><And><Prefix>im/</Prefix><ObjectSizeLessThan>5</ObjectSizeLessThan></And></Filter>", expire), []bucket.Code{eats, noAbort}},
		"by date":            {rule(prefix("im/"), "<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>"), []bucket.Code{eats, noAbort}},
		"expires others":     {rule(prefix("image/"), expire), []bucket.Code{noAbort}},
		"expires tagged":     {rule("<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>", expire), []bucket.Code{noAbort}},
		"tagged, and prefix": {rule("<Filter><And><Prefix>im/</Prefix><Tag><Key>a</Key><Value>b</Value></Tag></And></Filter>", expire), []bucket.Code{noAbort}},
		"disabled":           {strings.Replace(rule(prefix("im/"), expire), "Enabled", "Disabled", 1), []bucket.Code{noAbort}},
		"markers only":       {rule(prefix("im/"), "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"), []bucket.Code{noAbort}},
		"moves out of reach": {rule(prefix("im/"), move("GLACIER")), []bucket.Code{bucket.CodeArchives, noAbort, bucket.CodeSmall}},
		"moves":              {rule(prefix("im/"), move("STANDARD_IA")), []bucket.Code{noAbort, bucket.CodeSmall}},
		"former versions":    {rule(prefix("im/"), former("7")), []bucket.Code{bucket.CodeFormer, noAbort}},
		"former, after long": {rule(prefix("im/"), former("90")), []bucket.Code{noAbort}},
	} {
		answers["lifecycle"] = ""
		if c.rules != "" {
			answers["lifecycle"] = "<LifecycleConfiguration>" + c.rules + "</LifecycleConfiguration>"
		}
		found := codes(t, b)
		for _, code := range []bucket.Code{eats, noAbort, bucket.CodeArchives, bucket.CodeFormer, bucket.CodeSmall} {
			want := false
			for _, w := range c.want {
				want = want || w == code
			}
			if (len(found[code]) > 0) != want {
				t.Errorf("%s: %s is found: %v, want %v", name, code, !want, want)
			}
		}
	}
	answers["lifecycle"] = "AccessDenied"
	if found := codes(t, b); !says(found[bucket.CodeNotLooked], "lifecycle rules", "s3:GetLifecycleConfiguration") {
		t.Errorf("rules that may not be read: %v", found)
	}
	answers["lifecycle"] = ""
	cfg := config(s)
	cfg.StorageClass = "STANDARD_IA"
	ia, _ := open(t, cfg)
	if found := codes(t, ia); !says(found[bucket.CodeSmall], "charged as 128 KiB", "use STANDARD") {
		t.Errorf("small objects in STANDARD_IA: %v", found)
	}
	put(t, b, "messages/a", "small")
	if found := codes(t, ia); !says(found[bucket.CodeSmall], "1 of the first 1") {
		t.Errorf("small objects in STANDARD_IA: %v", found)
	}
}

// On the real store: versions, an object lock, a policy and an access list are seen, and
// seen to be gone.
func TestLookAtARealBucket(t *testing.T) {
	t.Parallel()
	s := stack.Bucket(t)
	b, _ := open(t, config(s))
	c := s.Client()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, have, not bucket.Code) {
		t.Helper()
		if found := codes(t, b); have != "" && len(found[have]) == 0 || not != "" && len(found[not]) > 0 {
			t.Errorf("%s: want %q and not %q: %v", when, have, not, found)
		}
	}
	want("a plain bucket", bucket.CodeUnversioned, bucket.CodeVersioned)
	want("a plain bucket", bucket.CodeUnlocked, bucket.CodePublic)
	versions := func(status types.BucketVersioningStatus) {
		t.Helper()
		must(c.PutBucketVersioning(ctx(t), &s3.PutBucketVersioningInput{Bucket: &s.Bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: status}}))
	}
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::` + s.Bucket + `/*"}]}`
	must(c.PutBucketPolicy(ctx(t), &s3.PutBucketPolicyInput{Bucket: &s.Bucket, Policy: &policy}))
	want("a policy for anybody", bucket.CodePublic, "")
	must(c.DeleteBucketPolicy(ctx(t), &s3.DeleteBucketPolicyInput{Bucket: &s.Bucket}))
	want("no policy", "", bucket.CodePublic)
	must(c.PutBucketOwnershipControls(ctx(t), &s3.PutBucketOwnershipControlsInput{Bucket: &s.Bucket, OwnershipControls: &types.OwnershipControls{
		Rules: []types.OwnershipControlsRule{{ObjectOwnership: types.ObjectOwnershipBucketOwnerPreferred}}}}))
	must(c.PutBucketAcl(ctx(t), &s3.PutBucketAclInput{Bucket: &s.Bucket, ACL: types.BucketCannedACLPublicRead}))
	want("an access list for anybody", bucket.CodePublic, "")
	must(c.PutBucketAcl(ctx(t), &s3.PutBucketAclInput{Bucket: &s.Bucket, ACL: types.BucketCannedACLPrivate}))
	want("a private access list", "", bucket.CodePublic)

	// A bucket of its own, since the lock stays, and versions keep a bucket from being removed.
	locked := s
	locked.Bucket = stack.Unique("t-")
	must(c.CreateBucket(ctx(t), &s3.CreateBucketInput{Bucket: &locked.Bucket, ObjectLockEnabledForBucket: aws.Bool(true)}))
	t.Cleanup(func() { remove(t, locked) })
	b, _ = open(t, config(locked))
	s = locked
	want("with a lock", bucket.CodeLocked, bucket.CodeUnlocked)
	want("with versions, which a lock needs", bucket.CodeVersioned, bucket.CodeUnversioned)
	plain := stack.Bucket(t)
	s, b = plain, nil
	b, _ = open(t, config(plain))
	versions(types.BucketVersioningStatusEnabled)
	t.Cleanup(func() { empty(t, plain) })
	want("with versions", bucket.CodeVersioned, bucket.CodeUnversioned)
	versions(types.BucketVersioningStatusSuspended)
	want("suspended", bucket.CodeUnversioned, bucket.CodeVersioned)
}

// empty takes all versions out of a bucket.
func empty(t *testing.T, s stack.S3) {
	t.Helper()
	out, err := s.Client().ListObjectVersions(ctx(t), &s3.ListObjectVersionsInput{Bucket: &s.Bucket})
	if err != nil {
		t.Error(err)
		return
	}
	for _, v := range out.Versions {
		if _, err := s.Client().DeleteObject(ctx(t), &s3.DeleteObjectInput{Bucket: &s.Bucket, Key: v.Key, VersionId: v.VersionId}); err != nil {
			t.Error(err)
		}
	}
	for _, v := range out.DeleteMarkers {
		if _, err := s.Client().DeleteObject(ctx(t), &s3.DeleteObjectInput{Bucket: &s.Bucket, Key: v.Key, VersionId: v.VersionId}); err != nil {
			t.Error(err)
		}
	}
}

func remove(t *testing.T, s stack.S3) {
	t.Helper()
	empty(t, s)
	if _, err := s.Client().DeleteBucket(ctx(t), &s3.DeleteBucketInput{Bucket: &s.Bucket}); err != nil {
		t.Error(err)
	}
}

// What versitygw does not know, as AWS answers it: public access, encryption, region.
func TestLookReadsWhatAWSAnswers(t *testing.T) {
	t.Parallel()
	s := stack.Bucket(t)
	answers := map[string]string{}
	standIn(t, &s, answers)
	block := func(last string) string {
		return "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>true</IgnorePublicAcls><BlockPublicPolicy>true</BlockPublicPolicy><RestrictPublicBuckets>" + last +
			"</RestrictPublicBuckets></PublicAccessBlockConfiguration>"
	}
	crypt := func(algorithm, key string) string {
		if key != "" {
			key = "<KMSMasterKeyID>" + key + "</KMSMasterKeyID>"
		}
		return "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>" + algorithm + "</SSEAlgorithm>" + key + "</ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>"
	}
	location := func(region string) string { return "<LocationConstraint>" + region + "</LocationConstraint>" }
	acl := func(group string) string {
		return `<AccessControlPolicy><Owner><ID>o</ID></Owner><AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"><URI>http://acs.amazonaws.com/groups/global/` + group +
			`</URI></Grantee><Permission>READ</Permission></Grant></AccessControlList></AccessControlPolicy>`
	}
	public := func(is string) string { return "<PolicyStatus><IsPublic>" + is + "</IsPublic></PolicyStatus>" }
	for name, c := range map[string]struct {
		resource, answer, sse, key string
		have, not                  bucket.Code
	}{
		"blocked":               {"publicAccessBlock", block("true"), "", "", bucket.CodeNotPublic, bucket.CodeMayBePublic},
		"blocked in part":       {"publicAccessBlock", block("false"), "", "", bucket.CodeMayBePublic, bucket.CodeNotPublic},
		"not blocked":           {"publicAccessBlock", "", "", "", bucket.CodeMayBePublic, bucket.CodeNotPublic},
		"block denied":          {"publicAccessBlock", "AccessDenied", "", "", bucket.CodeNotLooked, bucket.CodeMayBePublic},
		"public policy":         {"policyStatus", public("true"), "", "", bucket.CodePublic, ""},
		"private policy":        {"policyStatus", public("false"), "", "", "", bucket.CodePublic},
		"for anybody":           {"acl", acl("AllUsers"), "", "", bucket.CodePublic, ""},
		"for any account":       {"acl", acl("AuthenticatedUsers"), "", "", bucket.CodePublic, ""},
		"for logs":              {"acl", strings.Replace(acl("x"), "global/x", "s3/LogDelivery", 1), "", "", "", bucket.CodePublic},
		"nothing encrypts":      {"encryption", "", "", "", bucket.CodeUnencrypted, ""},
		"coldtier encrypts":     {"encryption", "", "AES256", "", "", bucket.CodeUnencrypted},
		"the bucket encrypts":   {"encryption", crypt("AES256", ""), "", "", "", bucket.CodeUnencrypted},
		"alike":                 {"encryption", crypt("aws:kms", "arn:aws:kms:us-east-1:1:key/k1"), "aws:kms", "k1", "", bucket.CodeEncryption},
		"otherwise":             {"encryption", crypt("AES256", ""), "aws:kms", "", bucket.CodeEncryption, ""},
		"by another key":        {"encryption", crypt("aws:kms", "arn:aws:kms:us-east-1:1:key/k2"), "aws:kms", "k1", bucket.CodeEncryption, ""},
		"another region":        {"location", location("eu-central-1"), "", "", bucket.CodeRegion, ""},
		"the region":            {"location", location(""), "", "", "", bucket.CodeRegion},
		"the old name of a one": {"location", location("EU"), "", "", bucket.CodeRegion, ""},
	} {
		clear(answers)
		answers[c.resource] = c.answer
		cfg := config(s)
		cfg.SSE, cfg.KMSKey = c.sse, c.key
		b, _ := open(t, cfg)
		found := map[bucket.Code][]string{}
		for _, f := range b.Look(ctx(t)) {
			found[f.Code] = append(found[f.Code], f.String())
		}
		if c.have != "" && len(found[c.have]) == 0 || c.not != "" && len(found[c.not]) > 0 {
			t.Errorf("%s: want %q and not %q: %v", name, c.have, c.not, found)
		}
	}
	clear(answers)
	cfg := config(s)
	for endpoint, want := range map[string]bool{"https://s3.eu-west-1.amazonaws.com": true, "https://s3.us-east-1.amazonaws.com": false, s.Endpoint: false} {
		cfg.Endpoint = endpoint
		b, _ := open(t, cfg)
		if found := b.Endpoint(); (len(found) > 0) != want {
			t.Errorf("%s: %v", endpoint, found)
		}
	}
}
