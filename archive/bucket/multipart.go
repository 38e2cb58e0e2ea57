package bucket

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"
)

const (
	partsAtOnce = 4
	// A store may take minutes to put thousands of parts together, silently.
	completeStalls = 10
	abortTimeout   = 30 * time.Second
	abortRounds    = 3
)

// putParts uploads in parts. Until CompleteMultipartUpload nothing is there under
// the key; whatever ends before it, also this process's context, takes the parts
// away again. (A process that is killed leaves them: Check asks for a lifecycle
// rule that removes such.)
func (b *Bucket) putParts(ctx context.Context, u *upload) (err error) {
	create := &s3.CreateMultipartUploadInput{
		Bucket: &b.cfg.Name, Key: &u.full, ContentType: &u.contentType, Metadata: u.metadata, StorageClass: types.StorageClass(b.cfg.StorageClass),
		ServerSideEncryption: types.ServerSideEncryption(b.cfg.SSE), SSEKMSKeyId: nonEmpty(b.cfg.KMSKey),
	}
	if !b.cfg.Compatible { // must be declared here, or parts that carry one are refused
		create.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	}
	var id string
	err = b.try(ctx, b.call("begin upload of object", u.full), func(ctx context.Context, _ *watch) error {
		out, err := b.s3.CreateMultipartUpload(ctx, create)
		if err != nil {
			return err
		}
		if id = aws.ToString(out.UploadId); id == "" {
			return unavailable("an upload without ID")
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && !errors.Is(err, errNoUpload) {
			err = join(err, b.abort(ctx, u.full, id))
		}
	}()

	parts, err := b.uploadParts(ctx, u, id)
	if err != nil {
		return err
	}
	c := b.call("complete upload of object", u.full)
	c.stall *= completeStalls
	return b.try(ctx, c, func(ctx context.Context, _ *watch) error {
		_, err := b.s3.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &b.cfg.Name, Key: &u.full, UploadId: &id, IfNoneMatch: u.ifNoneMatch(), MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		})
		return err
	})
}

func (b *Bucket) uploadParts(ctx context.Context, u *upload, id string) ([]types.CompletedPart, error) {
	size := b.cfg.PartSize
	if least := (u.src.size + maxParts - 1) / maxParts; size < least {
		size = least
	}
	parts := make([]types.CompletedPart, (u.src.size+size-1)/size)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(partsAtOnce)
	for i := range parts {
		g.Go(func() error {
			off := int64(i) * size
			part, err := b.uploadPart(ctx, u, id, int32(i+1), off, min(size, u.src.size-off)) //nolint:gosec // at most maxParts
			parts[i] = part
			return err
		})
	}
	return parts, g.Wait()
}

func (b *Bucket) uploadPart(ctx context.Context, u *upload, id string, number int32, off, n int64) (types.CompletedPart, error) {
	in := &s3.UploadPartInput{Bucket: &b.cfg.Name, Key: &u.full, UploadId: &id, PartNumber: &number, ContentLength: &n}
	part := types.CompletedPart{PartNumber: &number}
	if b.cfg.Compatible {
		sum, err := u.src.md5(off, n)
		if err != nil {
			return part, fmt.Errorf("put part %d of object %s: %w", number, b.url(u.full), err)
		}
		in.ContentMD5 = &sum
	} else {
		sum, err := u.src.crc32c(off, n)
		if err != nil {
			return part, fmt.Errorf("put part %d of object %s: %w", number, b.url(u.full), err)
		}
		in.ChecksumCRC32C, part.ChecksumCRC32C = &sum, &sum
	}
	err := b.try(ctx, b.call(fmt.Sprintf("put part %d of object", number), u.full), func(ctx context.Context, w *watch) error {
		in.Body = w.reader(u.src.section(off, n))
		out, err := b.s3.UploadPart(ctx, in)
		if err != nil {
			return err
		}
		if part.ETag = out.ETag; aws.ToString(out.ETag) == "" {
			return unavailable("a part without ETag")
		}
		return nil
	})
	return part, err
}

// abort takes an upload's parts away, also after the caller's context has ended.
// A part that was on its way during the first abort may be stored after it, so
// the parts are listed, and the abort repeated, until the upload is gone.
func (b *Bucket) abort(ctx context.Context, full, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	for range abortRounds {
		err := b.try(ctx, b.call("abort upload of object", full), func(ctx context.Context, _ *watch) error {
			_, err := b.s3.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.cfg.Name, Key: &full, UploadId: &id})
			return err
		})
		if err != nil && !errors.Is(err, errNoUpload) {
			return fmt.Errorf("%w: %s: %w", errPartsLeft, id, err)
		}
		left := 0
		err = b.try(ctx, b.call("list parts of object", full), func(ctx context.Context, _ *watch) error {
			out, err := b.s3.ListParts(ctx, &s3.ListPartsInput{Bucket: &b.cfg.Name, Key: &full, UploadId: &id})
			if err == nil {
				left = len(out.Parts)
			}
			return err
		})
		if errors.Is(err, errNoUpload) || errors.Is(err, ErrNotFound) || err == nil && left == 0 {
			return nil
		}
		if err != nil {
			// The abort itself was answered; a role without the right to list parts is no failure.
			b.log.WarnContext(ctx, "object store: parts of an aborted upload cannot be listed", "object", b.url(full), "upload", id, "error", err)
			return nil
		}
	}
	return fmt.Errorf("%w: %s of object %s, after %d aborts", errPartsLeft, id, b.url(full), abortRounds)
}
