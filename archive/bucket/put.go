package bucket

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// PutOptions says how an object is put.
type PutOptions struct {
	// IfNoneMatch puts only where nothing is. What is there already and equals the
	// body is a success: it may be the work of a try whose answer was lost.
	IfNoneMatch bool
	// SHA256 is what the body must have; zero: whatever it has.
	SHA256      [32]byte
	ContentType string            // "": application/octet-stream
	Metadata    map[string]string // lower-case names; MetaSHA256 is added
}

// upload is one call of Put.
type upload struct {
	full        string
	src         *source
	sum         [32]byte
	contentType string
	metadata    map[string]string
	onlyNew     bool
}

func (u *upload) hex() string { return hex.EncodeToString(u.sum[:]) }

// ifNoneMatch is the header's value.
func (u *upload) ifNoneMatch() *string {
	if u.onlyNew {
		return aws.String("*")
	}
	return nil
}

// Put puts an object of exactly size bytes, all that body has from its start.
// The body is read several times, also at once when it is an io.ReaderAt, and
// must not change meanwhile; it is not read any more when Put returns.
//
// After ErrExists the object was not put. After any other error it may have been.
func (b *Bucket) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, o PutOptions) error {
	full, err := b.full(key)
	if err != nil {
		return err
	}
	if err := checkMetadata(o.Metadata); err != nil {
		return fmt.Errorf("put object %s: %w", b.url(full), err)
	}
	u := &upload{full: full, contentType: o.ContentType, metadata: maps.Clone(o.Metadata), onlyNew: o.IfNoneMatch}
	if u.contentType == "" {
		u.contentType = "application/octet-stream"
	}
	if u.src, err = newSource(body, size); err != nil {
		return fmt.Errorf("put object %s: %w", b.url(full), err)
	}
	if u.sum, err = u.src.sha256(); err != nil {
		return fmt.Errorf("put object %s: %w", b.url(full), err)
	}
	if o.SHA256 != ([32]byte{}) && o.SHA256 != u.sum {
		return fmt.Errorf("put object %s: %w: the body's SHA-256 is %x, not %x; nothing was sent", b.url(full), ErrCorrupt, u.sum, o.SHA256)
	}
	if u.metadata == nil {
		u.metadata = map[string]string{}
	}
	u.metadata[MetaSHA256] = u.hex()
	for round := 1; ; round++ {
		err := b.putOnce(ctx, u)
		switch {
		case err == nil:
			return nil
		case u.onlyNew && errors.Is(err, errPrecondition), errors.Is(err, errNoUpload):
			settled := b.settle(ctx, u)
			if settled == nil && errors.Is(err, errPartsLeft) {
				b.log.WarnContext(ctx, "object store: the object was put, but", "error", err)
			}
			if settled == nil || u.onlyNew && !errors.Is(settled, ErrNotFound) {
				return settled
			}
		case conflict(err):
		default:
			return err
		}
		if round == putRounds {
			return fmt.Errorf("put object %s: %w: others came between %d times: %w", b.url(full), ErrUnavailable, round, err)
		}
	}
}

// putRounds is how often a put is begun anew because others write, remove or
// abort the same key meanwhile.
const putRounds = 3

// conflict says that another write of the same key was under way. S3 wants the
// whole upload again then.
func conflict(err error) bool {
	var f *failure
	return errors.As(err, &f) && (f.code == "ConditionalRequestConflict" || f.code == "OperationAborted")
}

func (b *Bucket) putOnce(ctx context.Context, u *upload) error {
	if u.src.size > b.cfg.MultipartAbove {
		return b.putParts(ctx, u)
	}
	return b.putWhole(ctx, u)
}

func (b *Bucket) putWhole(ctx context.Context, u *upload) error {
	in := &s3.PutObjectInput{
		Bucket: &b.cfg.Name, Key: &u.full, ContentLength: &u.src.size, ContentType: &u.contentType, Metadata: u.metadata,
		IfNoneMatch: u.ifNoneMatch(), StorageClass: types.StorageClass(b.cfg.StorageClass),
		ServerSideEncryption: types.ServerSideEncryption(b.cfg.SSE), SSEKMSKeyId: nonEmpty(b.cfg.KMSKey),
	}
	if b.cfg.Compatible {
		sum, err := u.src.md5(0, u.src.size)
		if err != nil {
			return fmt.Errorf("put object %s: %w", b.url(u.full), err)
		}
		in.ContentMD5 = &sum
	} else {
		in.ChecksumSHA256 = aws.String(base64.StdEncoding.EncodeToString(u.sum[:]))
	}
	c := b.call("put object", u.full)
	return b.try(ctx, c, func(ctx context.Context, w *watch) error {
		in.Body = w.reader(u.src.section(0, u.src.size))
		_, err := b.s3.PutObject(ctx, in, signBody(u.hex()))
		if err != nil && u.onlyNew && diagnose(ctx, err).lost && b.isThere(ctx, u.full) {
			return &problemError{problem{kind: errPrecondition, tries: 1}}
		}
		return err
	})
}

// isThere looks, after a connection that broke, whether there is an object. A
// store that refuses a conditional put while a large body is still on its way may
// close the connection, so that the refusal is never read, not at any try.
func (b *Bucket) isThere(ctx context.Context, full string) bool {
	_, err := b.s3.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.cfg.Name, Key: &full})
	return err == nil
}

// settle says what a refused "only if it is not there", or an upload that is gone,
// means: a success when the very bytes are there, put by a try whose answer was
// lost, else ErrExists.
func (b *Bucket) settle(ctx context.Context, u *upload) error {
	exists := func(how string) error {
		return &failure{op: "put object", object: b.url(u.full), problem: problem{kind: ErrExists, detail: how}}
	}
	key, _ := b.short(u.full)
	info, err := b.Head(ctx, key)
	if err != nil {
		return fmt.Errorf("put object %s: it was there, and now cannot be compared: %w", b.url(u.full), err)
	}
	if info.Size != u.src.size {
		return exists(fmt.Sprintf("it has %d bytes, not %d", info.Size, u.src.size))
	}
	there, ok := info.Metadata[MetaSHA256]
	if !ok { // not put by this package
		sum, err := b.sumOf(ctx, u.full)
		if err != nil {
			return fmt.Errorf("put object %s: it was there, and now cannot be compared: %w", b.url(u.full), err)
		}
		there = hex.EncodeToString(sum[:])
	}
	if there != u.hex() {
		return exists(fmt.Sprintf("its SHA-256 is %s, not %s", there, u.hex()))
	}
	return nil
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
