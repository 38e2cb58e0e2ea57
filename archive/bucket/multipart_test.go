package bucket_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/bucket/bucktest"
	"github.com/coldtier/coldtier/tests/stack"
)

func noUploads(t *testing.T, s stack.S3) {
	t.Helper()
	out, err := s.Client().ListMultipartUploads(ctx(t), &s3.ListMultipartUploadsInput{Bucket: &s.Bucket})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range out.Uploads {
		t.Errorf("upload %s of %s is left", aws.ToString(u.UploadId), aws.ToString(u.Key))
	}
}

// S6: an upload that is cancelled, or fails at any step, is an error and leaves no
// parts and no object.
func TestFailedUploadLeavesNoParts(t *testing.T) {
	data := bucktest.Bytes(12<<20, "parts")
	for name, step := range map[string]func(request) bool{
		"part":     func(r request) bool { return r.has("partNumber") && r.URL.Query().Get("partNumber") == "2" },
		"complete": func(r request) bool { return r.Method == http.MethodPost && r.has("uploadId") },
	} {
		for how, act := range map[string]func(cancel func(), w http.ResponseWriter) bool{
			"cancelled": func(cancel func(), _ http.ResponseWriter) bool {
				cancel()
				time.Sleep(50 * time.Millisecond)
				return false
			},
			"refused": func(_ func(), w http.ResponseWriter) bool {
				refuse(w, http.StatusForbidden, "AccessDenied")
				return true
			},
			"cut": func(func(), http.ResponseWriter) bool { panic(http.ErrAbortHandler) },
		} {
			if name == "complete" && how == "cancelled" {
				continue // whether it still took place is not known then: see TestCancelledComplete
			}
			t.Run(name+" "+how, func(t *testing.T) {
				s := stack.Bucket(t)
				m := meddle(t, &s, false)
				cfg := config(s)
				cfg.MultipartAbove, cfg.PartSize = 5<<20, 5<<20
				b, _ := open(t, cfg)
				c, cancel := context.WithCancel(ctx(t))
				defer cancel()
				m.before = func(w http.ResponseWriter, r request) bool { return step(r) && act(cancel, w) }
				err := b.Put(c, "k", bytes.NewReader(data), int64(len(data)), bucket.PutOptions{IfNoneMatch: true})
				kind := map[string]error{"cancelled": context.Canceled, "refused": bucket.ErrDenied, "cut": bucket.ErrUnavailable}[how]
				is(t, err, kind, "im/k")
				noUploads(t, s)
				_, err = b.Head(ctx(t), "k")
				is(t, err, bucket.ErrNotFound)
			})
		}
	}
}

// A cancelled completion is an error; the object is there whole or not at all.
func TestCancelledComplete(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	cfg := config(s)
	cfg.MultipartAbove = 4
	b, _ := open(t, cfg)
	c, cancel := context.WithCancel(ctx(t))
	m.before = func(_ http.ResponseWriter, r request) bool {
		if r.Method == http.MethodPost && r.has("uploadId") {
			cancel()
		}
		return false
	}
	is(t, b.Put(c, "k", strings.NewReader("abcdef"), 6, bucket.PutOptions{}), context.Canceled)
	m.before = nil
	noUploads(t, s)
	if got, err := b.Get(ctx(t), "k"); err == nil && string(got) != "abcdef" {
		t.Errorf("there is %q", got)
	} else if err != nil {
		is(t, err, bucket.ErrNotFound)
	}
}

// An abort that fails is part of the error.
func TestFailedAbortIsSaid(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	cfg := config(s)
	cfg.MultipartAbove = 4
	b, _ := open(t, cfg)
	m.before = func(w http.ResponseWriter, r request) bool {
		if r.has("partNumber") || r.Method == http.MethodDelete {
			refuse(w, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	}
	err := b.Put(ctx(t), "k", strings.NewReader("abcdef"), 6, bucket.PutOptions{})
	if err == nil || !strings.Contains(err.Error(), "parts of an upload may be left") {
		t.Errorf("error is %v", err)
	}
}

// S7: the hash of an object in parts is that of its content, not of its parts' hashes.
func TestHashOfPartsIsTheContents(t *testing.T) {
	s := stack.Bucket(t)
	m := meddle(t, &s, false)
	cfg := config(s)
	cfg.MultipartAbove, cfg.PartSize = 5<<20, 5<<20
	b, _ := open(t, cfg)
	data := bucktest.Bytes(12<<20, "composite")
	if err := b.Put(ctx(t), "k", bytes.NewReader(data), int64(len(data)), bucket.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	info, err := b.Head(ctx(t), "k")
	if err != nil || info.Metadata[bucket.MetaSHA256] != fmt.Sprintf("%x", sha256.Sum256(data)) || info.Size != 12<<20 {
		t.Errorf("%+v, %v", info, err)
	}
	// The SDK does not check composite checksums; this package checks its own.
	m.after = func(r request, a *http.Response) error {
		if r.Method == http.MethodGet {
			return replace(a, flip)
		}
		return nil
	}
	_, err = b.Get(ctx(t), "k")
	is(t, err, bucket.ErrCorrupt, "im/k")
}
