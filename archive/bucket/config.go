package bucket

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Limits of S3 itself.
const (
	minPart     = 5 << 20
	maxPart     = 5 << 30
	maxParts    = 10_000
	maxKey      = 1024
	maxDelete   = 1000
	maxMetadata = 2048
)

// Config says which bucket, and how to speak to it. Name is required, and Region
// where the SDK's own configuration has none.
type Config struct {
	Name         string
	Prefix       string // in front of every key, without slashes around it
	Region       string
	Endpoint     string // URL of a store that is not AWS's
	PathStyle    bool   // bucket in the path, not in the host name
	StorageClass string // "": the bucket's own default
	SSE          string // "", AES256, aws:kms, aws:kms:dsse
	KMSKey       string // with aws:kms: key ID or ARN; "": the account's default key
	Compatible   bool   // for stores that refuse checksum headers and trailers

	MultipartAbove int64 // larger objects go up in parts; default 32 MiB
	PartSize       int64 // default 16 MiB

	Tries        int           // tries of a call in all; default 6
	RetryBase    time.Duration // about the wait before the second try, doubled for each further one; default 100 ms
	StallTimeout time.Duration // a connection on which nothing moves for so long is given up; default 30 s

	Credentials aws.CredentialsProvider // nil: the SDK's default chain

	OnRetry func() // nil, or called whenever a call is tried again
}

const longestWait = 5 * time.Second

func (c Config) withDefaults() Config {
	c.Prefix = strings.Trim(c.Prefix, "/")
	if c.MultipartAbove == 0 {
		c.MultipartAbove = 32 << 20
	}
	if c.PartSize == 0 {
		c.PartSize = 16 << 20
	}
	if c.Tries == 0 {
		c.Tries = 6
	}
	if c.RetryBase == 0 {
		c.RetryBase = 100 * time.Millisecond
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = 30 * time.Second
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name == "" {
		bad("bucket.name is not set")
	}
	if c.Prefix != "" {
		if err := CheckKey(c.Prefix); err != nil {
			bad("bucket.prefix: %w", err)
		}
	}
	if c.Endpoint != "" && !strings.HasPrefix(c.Endpoint, "http://") && !strings.HasPrefix(c.Endpoint, "https://") {
		bad("bucket.endpoint %q: want http://HOST or https://HOST", c.Endpoint)
	}
	switch class := types.StorageClass(c.StorageClass); {
	case class == types.StorageClassGlacier, class == types.StorageClassDeepArchive:
		bad("bucket.storage_class %s: its objects cannot be read without a restore; use STANDARD, STANDARD_IA, INTELLIGENT_TIERING or GLACIER_IR", class)
	case class != "" && !slices.Contains(class.Values(), class):
		bad("bucket.storage_class %q: want one of %v", class, class.Values())
	}
	switch types.ServerSideEncryption(c.SSE) {
	case "", types.ServerSideEncryptionAes256:
		if c.KMSKey != "" {
			bad("bucket.kms_key is set and bucket.sse is %q: set bucket.sse to aws:kms", c.SSE)
		}
	case types.ServerSideEncryptionAwsKms, types.ServerSideEncryptionAwsKmsDsse:
	default:
		bad("bucket.sse %q: want AES256, aws:kms or aws:kms:dsse", c.SSE)
	}
	if c.PartSize < minPart || c.PartSize > maxPart {
		bad("part size %d: want %d to %d", c.PartSize, int64(minPart), int64(maxPart))
	}
	if c.MultipartAbove < 0 || c.MultipartAbove > maxPart {
		bad("multipart above %d: want at most %d", c.MultipartAbove, int64(maxPart))
	}
	if c.Tries < 1 || c.RetryBase < 0 || c.StallTimeout < 0 {
		bad("tries %d, retry base %s, stall timeout %s: want positive ones", c.Tries, c.RetryBase, c.StallTimeout)
	}
	return join(errs...)
}

// CheckKey refuses keys that S3 or a store that keeps objects as files would
// refuse, or change: they are made by programs and a strange one is a mistake.
func CheckKey(key string) error {
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) {
		return fmt.Errorf("key %q: want 1 to %d bytes of UTF-8", key, maxKey)
	}
	for _, r := range key {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("key %q: it has a control character", key)
		}
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("key %q: it has an empty, a `.` or a `..` part", key)
		}
	}
	return nil
}

// CheckPut refuses what Put would refuse before it looks at the body.
func CheckPut(key string, o PutOptions) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	return checkMetadata(o.Metadata)
}

func checkMetadata(m map[string]string) error {
	total := 0
	for k, v := range m {
		if k == "" || k == MetaSHA256 || strings.Trim(k, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return fmt.Errorf("metadata %q: want lower-case letters, digits and dashes, and not %s", k, MetaSHA256)
		}
		for i := range len(v) {
			if v[i] < ' ' || v[i] > '~' {
				return fmt.Errorf("metadata %s: %q is not printable ASCII", k, v)
			}
		}
		total += len(k) + len(v)
	}
	if total > maxMetadata-128 { // room for the checksum
		return fmt.Errorf("metadata takes %d bytes: want at most %d", total, maxMetadata-128)
	}
	return nil
}
