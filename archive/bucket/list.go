package bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// List calls fn for every object whose key begins with the prefix, in the order
// of the keys' bytes. It ends with fn's error if fn returns one.
func (b *Bucket) List(ctx context.Context, prefix string, fn func(Info) error) error {
	full := b.prefix() + prefix
	in := &s3.ListObjectsV2Input{Bucket: &b.cfg.Name, Prefix: &full}
	last := ""
	for {
		out, err := b.listPage(ctx, full, in, last)
		if err != nil {
			return err
		}
		for _, o := range out.Contents {
			last = aws.ToString(o.Key)
			key, _ := b.short(last)
			info := Info{Key: key, Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified), StorageClass: storageClass(string(o.StorageClass))}
			if err := fn(info); err != nil {
				return err
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// Folders calls fn for every different beginning of the keys that begin with the prefix,
// up to and with the next slash after it, in order.
func (b *Bucket) Folders(ctx context.Context, prefix string, fn func(folder string) error) error {
	full := b.prefix() + prefix
	in := &s3.ListObjectsV2Input{Bucket: &b.cfg.Name, Prefix: &full, Delimiter: aws.String("/")}
	last := ""
	for {
		out, err := b.listPage(ctx, full, in, "")
		if err != nil {
			return err
		}
		for _, p := range out.CommonPrefixes {
			folder := aws.ToString(p.Prefix)
			if !strings.HasPrefix(folder, full) || folder <= last {
				return fmt.Errorf("list folders of %s: %q after %q: %w", full, folder, last, ErrUnavailable)
			}
			last = folder
			short, _ := b.short(folder)
			if err := fn(short); err != nil {
				return err
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// listPage gets one page and makes sure that it leads on: a page that says there
// is more and not where, or that comes again, would make a list that is short or
// has no end.
func (b *Bucket) listPage(ctx context.Context, full string, in *s3.ListObjectsV2Input, last string) (out *s3.ListObjectsV2Output, err error) {
	err = b.try(ctx, b.call("list objects", full), func(ctx context.Context, _ *watch) error {
		if out, err = b.s3.ListObjectsV2(ctx, in); err != nil {
			return err
		}
		if aws.ToBool(out.IsTruncated) {
			switch next := aws.ToString(out.NextContinuationToken); {
			case next == "":
				return unavailable("the list is cut off after %q without a token to go on with", last)
			case next == aws.ToString(in.ContinuationToken):
				return unavailable("the list after %q leads to itself", last)
			}
		}
		at := last
		for _, o := range out.Contents {
			key := aws.ToString(o.Key)
			if !strings.HasPrefix(key, full) {
				return unavailable("the list holds %q", key)
			}
			if key <= at {
				return unavailable("the list has %q after %q: not in order", key, at)
			}
			at = key
		}
		return nil
	})
	return out, err
}

// Delete removes objects; one that is not there is no error. An error names the
// keys that may be left, as many as fit a line.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	full := make([]string, 0, len(keys))
	for _, key := range keys {
		f, err := b.full(key)
		if err != nil {
			return err
		}
		full = append(full, f)
	}
	var errs []error
	for len(full) > 0 {
		n := min(len(full), maxDelete)
		if err := b.deletePage(ctx, full[:n]); err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil {
				break
			}
		}
		full = full[n:]
	}
	return join(errs...)
}

func (b *Bucket) deletePage(ctx context.Context, left []string) error {
	var refused []error
	name := left[0]
	if len(left) > 1 {
		name += fmt.Sprintf(" and %d more", len(left)-1)
	}
	err := b.try(ctx, b.call("delete object", name), func(ctx context.Context, _ *watch) error {
		in := &s3.DeleteObjectsInput{Bucket: &b.cfg.Name, Delete: &types.Delete{Quiet: aws.Bool(false)}}
		for i := range left {
			in.Delete.Objects = append(in.Delete.Objects, types.ObjectIdentifier{Key: &left[i]})
		}
		if !b.cfg.Compatible {
			in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
		}
		out, err := b.s3.DeleteObjects(ctx, in, b.md5Only)
		if err != nil {
			return err
		}
		again, final := sortDeletes(left, out)
		for _, p := range final {
			refused = append(refused, &failure{op: "delete object", object: b.url(p.key), problem: p.problem})
		}
		left = left[:0:0]
		for _, p := range again {
			left = append(left, p.key)
		}
		if len(again) > 0 {
			p := again[0].problem
			p.detail = someKeys(left) + ": " + p.detail
			return &problemError{p}
		}
		return nil
	})
	if len(refused) > 10 {
		refused = append(refused[:10], fmt.Errorf("and %d more", len(refused)-10))
	}
	return join(append(refused, err)...)
}

type deleteProblem struct {
	key string
	problem
}

// sortDeletes goes through what a multi-delete says of each key, since it says
// 200 whatever that is. A key of which it says nothing counts as not deleted.
func sortDeletes(keys []string, out *s3.DeleteObjectsOutput) (again, final []deleteProblem) {
	done := make(map[string]bool, len(keys))
	for _, d := range out.Deleted {
		done[aws.ToString(d.Key)] = true
	}
	failed := map[string]problem{}
	for _, e := range out.Errors {
		code := aws.ToString(e.Code)
		p := byCode(code, 0)
		p.code, p.detail = code, describe(code, aws.ToString(e.Message), 0, "")
		failed[aws.ToString(e.Key)] = p
	}
	for _, key := range keys {
		p, bad := failed[key]
		switch {
		case bad && errors.Is(p.kind, ErrNotFound), !bad && done[key]:
		case bad && p.tries == 1:
			final = append(final, deleteProblem{key, p})
		case bad:
			again = append(again, deleteProblem{key, p})
		default:
			again = append(again, deleteProblem{key, problem{kind: ErrUnavailable, code: "not confirmed", detail: "the store does not say whether it was deleted"}})
		}
	}
	return again, final
}

func someKeys(keys []string) string {
	if len(keys) > 5 {
		return strings.Join(keys[:5], ", ") + fmt.Sprintf(" and %d more", len(keys)-5)
	}
	return strings.Join(keys, ", ")
}

// md5Only makes a request carry Content-MD5 and no other checksum, in compatible
// mode: for a multi-delete the SDK has no option to leave its checksum out.
func (b *Bucket) md5Only(o *s3.Options) {
	if !b.cfg.Compatible {
		return
	}
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		for _, id := range []string{"AWSChecksum:ComputeInputPayloadChecksum", "addInputChecksumTrailer"} {
			if _, ok := stack.Finalize.Get(id); ok {
				if _, err := stack.Finalize.Remove(id); err != nil {
					return err
				}
			}
		}
		return smithyhttp.AddContentChecksumMiddleware(stack)
	})
}
