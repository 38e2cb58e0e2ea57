package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// trustedLength is how much memory is taken on a store's word alone.
const trustedLength = 16 << 20

// ReadRange reads the n bytes from off: all of them or an error.
func (b *Bucket) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	full, err := b.full(key)
	if err != nil {
		return nil, err
	}
	if off < 0 || n < 0 || off+n < off {
		return nil, fmt.Errorf("read object %s: range of %d bytes at %d", b.url(full), n, off)
	}
	if n == 0 {
		return []byte{}, nil
	}
	var data []byte
	c := b.call(fmt.Sprintf("read bytes %d to %d of object", off, off+n-1), full)
	err = b.try(ctx, c, func(ctx context.Context, w *watch) error {
		out, err := b.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.cfg.Name, Key: &full, Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1))})
		if err != nil {
			return err
		}
		defer func() { _ = out.Body.Close() }()
		// Before a byte is taken, or memory for it: is this what was asked for?
		if s := status(out.ResultMetadata); s != http.StatusPartialContent {
			return corrupt("status %d instead of 206", s)
		}
		total, err := checkContentRange(aws.ToString(out.ContentRange), off, n)
		if err != nil {
			return err
		}
		if out.ContentLength != nil && *out.ContentLength != n {
			return corrupt("length %d instead of %d", *out.ContentLength, n)
		}
		if data, err = readBody(io.LimitReader(out.Body, n+1), n, w); err != nil {
			return err
		}
		if int64(len(data)) != n {
			return corrupt("%d bytes instead of %d", len(data), n)
		}
		if off == 0 && n == total {
			return checkSum(data, out.Metadata)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// checkContentRange insists on the range that was asked for and gives the
// object's whole size.
func checkContentRange(header string, off, n int64) (total int64, err error) {
	var first, last int64
	if _, err := fmt.Sscanf(header, "bytes %d-%d/%d", &first, &last, &total); err != nil ||
		header != fmt.Sprintf("bytes %d-%d/%d", first, last, total) {
		return 0, corrupt("Content-Range %q", header)
	}
	if first != off || last != min(off+n, total)-1 {
		return 0, corrupt("Content-Range %q for bytes %d-%d", header, off, off+n-1)
	}
	if total < off+n {
		return 0, &problemError{problem{kind: ErrCorrupt, code: "short", tries: 1, detail: fmt.Sprintf("the object has only %d bytes", total),
			remedy: "restore it from a backup or copy its slice again"}}
	}
	return total, nil
}

// Get reads a whole object and checks it by the SHA-256 that it carries. An
// object that was not put by this package carries none; it is as good as its
// length and the store's own checksum say.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, error) {
	full, err := b.full(key)
	if err != nil {
		return nil, err
	}
	return b.get(ctx, full)
}

func (b *Bucket) get(ctx context.Context, full string) (data []byte, err error) {
	err = b.try(ctx, b.call("get object", full), func(ctx context.Context, w *watch) error {
		out, err := b.getWhole(ctx, full)
		if err != nil {
			return err
		}
		defer func() { _ = out.Body.Close() }()
		length := aws.ToInt64(out.ContentLength)
		if data, err = readBody(out.Body, length, w); err != nil {
			return err
		}
		if out.ContentLength != nil && int64(len(data)) != length {
			return corrupt("%d bytes instead of %d", len(data), length)
		}
		return checkSum(data, out.Metadata)
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// sumOf is the SHA-256 of an object's bytes, read without keeping them.
func (b *Bucket) sumOf(ctx context.Context, full string) (sum [32]byte, err error) {
	err = b.try(ctx, b.call("get object", full), func(ctx context.Context, w *watch) error {
		out, err := b.getWhole(ctx, full)
		if err != nil {
			return err
		}
		defer func() { _ = out.Body.Close() }()
		h := sha256.New()
		n, err := io.Copy(h, &progress{out.Body, w})
		if err != nil {
			return err
		}
		if out.ContentLength != nil && n != *out.ContentLength {
			return corrupt("%d bytes instead of %d", n, *out.ContentLength)
		}
		h.Sum(sum[:0])
		return nil
	})
	return sum, err
}

func (b *Bucket) getWhole(ctx context.Context, full string) (*s3.GetObjectOutput, error) {
	out, err := b.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.cfg.Name, Key: &full})
	if err != nil {
		return nil, err
	}
	if s := status(out.ResultMetadata); s != http.StatusOK {
		_ = out.Body.Close()
		return nil, corrupt("status %d instead of 200", s)
	}
	return out, nil
}

// progress tells the watch of each read that brought bytes.
type progress struct {
	r io.Reader
	w *watch
}

func (p *progress) Read(buf []byte) (int, error) {
	n, err := p.r.Read(buf)
	if n > 0 {
		p.w.moved()
	}
	return n, err
}

// readBody reads a body that should have n bytes to its end: it is there that the
// SDK compares checksums.
func readBody(r io.Reader, n int64, w *watch) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(int(min(n, trustedLength)) + bytes.MinRead)
	_, err := buf.ReadFrom(&progress{r, w})
	return buf.Bytes(), err
}

func checkSum(data []byte, metadata map[string]string) error {
	want, ok := metadata[MetaSHA256]
	if !ok {
		return nil
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
		return corrupt("SHA-256 is %x, it was put with %s", sum, want)
	}
	return nil
}

// status is the HTTP status of an answer.
func status(md middleware.Metadata) int {
	if r, ok := awsmiddleware.GetRawResponse(md).(*smithyhttp.Response); ok {
		return r.StatusCode
	}
	return 0
}

// Head says what is known of an object without reading it.
func (b *Bucket) Head(ctx context.Context, key string) (Info, error) {
	full, err := b.full(key)
	if err != nil {
		return Info{}, err
	}
	var info Info
	err = b.try(ctx, b.call("look at object", full), func(ctx context.Context, _ *watch) error {
		out, err := b.s3.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.cfg.Name, Key: &full})
		if err != nil {
			return b.explain(ctx, full, err)
		}
		info = Info{Key: key, Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified), Metadata: out.Metadata,
			StorageClass: storageClass(string(out.StorageClass))}
		return nil
	})
	return info, err
}

// explain finds out what a refused HEAD means. Its answer has no body and so no
// code: a missing bucket looks like a missing object, a skewed clock like a
// missing right. A GET of one byte needs the same rights and has one.
func (b *Bucket) explain(ctx context.Context, full string, err error) error {
	_, _, status, _ := answer(err)
	switch p := diagnose(ctx, err); {
	case status == http.StatusNotFound, errors.Is(p.kind, ErrDenied), errors.Is(p.kind, errRefused), errors.Is(p.kind, ErrNoBucket):
	default:
		return err
	}
	out, gerr := b.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.cfg.Name, Key: &full, Range: aws.String("bytes=0-0")})
	if gerr == nil {
		_ = out.Body.Close()
		return unavailable("HEAD is refused (%s) and GET is not", shorten(err))
	}
	if k := diagnose(ctx, gerr).kind; errors.Is(k, ErrArchived) || errors.Is(k, ErrCorrupt) {
		return err // the object is there; its HEAD alone was refused
	}
	return gerr
}

// storageClass names the standard class, which S3 leaves out.
func storageClass(class string) string {
	if class == "" {
		return string(types.StorageClassStandard)
	}
	return class
}
