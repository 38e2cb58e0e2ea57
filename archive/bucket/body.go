package bucket

import (
	"context"
	"crypto/md5" //nolint:gosec // Content-MD5 is what old stores ask for; nothing relies on it alone
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
)

// source is a body that any number of tries and parts can read from any offset.
type source struct {
	at   io.ReaderAt
	size int64
}

// newSource makes sure that the body has the size that is said of it.
func newSource(body io.ReadSeeker, size int64) (*source, error) {
	end, err := body.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, &bodyError{err}
	}
	if size < 0 || end != size {
		return nil, &bodyError{fmt.Errorf("it has %d bytes, not the %d that are said of it", end, size)}
	}
	at, ok := body.(io.ReaderAt)
	if !ok {
		at = &seekingReaderAt{body: body}
	}
	return &source{at, size}, nil
}

// section is a new reader of a part: no two tries share a position.
func (s *source) section(off, n int64) io.ReadSeeker {
	return io.NewSectionReader(bodyReaderAt{s.at}, off, n)
}

// sum hashes a part.
func (s *source) sum(h hash.Hash, off, n int64) ([]byte, error) {
	got, err := io.Copy(h, s.section(off, n))
	if err != nil {
		return nil, err
	}
	if got != n {
		return nil, &bodyError{io.ErrUnexpectedEOF}
	}
	return h.Sum(nil), nil
}

func (s *source) sha256() (sum [32]byte, err error) {
	b, err := s.sum(sha256.New(), 0, s.size)
	copy(sum[:], b)
	return sum, err
}

func (s *source) md5(off, n int64) (string, error) {
	b, err := s.sum(md5.New(), off, n) //nolint:gosec // see the import
	return base64.StdEncoding.EncodeToString(b), err
}

func (s *source) crc32c(off, n int64) (string, error) {
	b, err := s.sum(crc32.New(crc32.MakeTable(crc32.Castagnoli)), off, n)
	return base64.StdEncoding.EncodeToString(b), err
}

// bodyReaderAt marks the body's own errors.
type bodyReaderAt struct{ at io.ReaderAt }

func (r bodyReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.at.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = &bodyError{err}
	}
	return n, err
}

// seekingReaderAt reads anywhere in a body that can only seek.
type seekingReaderAt struct {
	mu   sync.Mutex
	body io.ReadSeeker
}

func (r *seekingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.body.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(r.body, p)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

// signBody signs a request for a body whose SHA-256 (hexadecimal) is known, so
// that it is not hashed again and a store refuses any other bytes.
func signBody(sum string) func(*s3.Options) {
	return func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("SignBody", func(ctx context.Context, in middleware.InitializeInput,
				next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				return next.HandleInitialize(v4.SetPayloadHash(ctx, sum), in)
			}), middleware.Before)
		})
	}
}
