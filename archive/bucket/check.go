package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Code names a kind of finding, for scripts.
type Code string

// The findings of Check and Look. What each means is in docs/check.md.
const (
	CodeNoMetadata    Code = "BUCKET_METADATA_LOST"
	CodeInconsistent  Code = "BUCKET_LIST_INCONSISTENT"
	CodeOverwrites    Code = "BUCKET_OVERWRITES"
	CodeEats          Code = "BUCKET_LIFECYCLE_EATS_PREFIX"
	CodeArchives      Code = "BUCKET_LIFECYCLE_OUT_OF_REACH"
	CodeFormer        Code = "BUCKET_LIFECYCLE_FORMER_VERSIONS"
	CodeNoAbort       Code = "BUCKET_LIFECYCLE_NO_ABORT"
	CodeSmall         Code = "BUCKET_SMALL_OBJECTS"
	CodeUnversioned   Code = "BUCKET_UNVERSIONED"
	CodeVersioned     Code = "BUCKET_VERSIONED"
	CodeUnlocked      Code = "BUCKET_UNLOCKED"
	CodeLocked        Code = "BUCKET_LOCKED"
	CodePublic        Code = "BUCKET_PUBLIC"
	CodeNotPublic     Code = "BUCKET_NOT_PUBLIC"
	CodeMayBePublic   Code = "BUCKET_PUBLIC_NOT_BLOCKED"
	CodeEncryption    Code = "BUCKET_ENCRYPTION_DIFFERS"
	CodeUnencrypted   Code = "BUCKET_UNENCRYPTED"
	CodeRegion        Code = "BUCKET_REGION_DIFFERS"
	CodeNotLooked     Code = "BUCKET_NOT_LOOKED_AT"
	CodeEndpointNamed Code = "BUCKET_ENDPOINT_DIFFERS"
)

// Finding is something Check or Look saw that is not right, or worth knowing.
type Finding struct {
	Code   Code
	What   string
	Remedy string
}

// String is one line.
func (f Finding) String() string { return f.What + "; " + f.Remedy }

const probeTimeout = 30 * time.Second

// Check tries what the archive will do: it puts, reads, lists and deletes a probe
// object under the prefix. An error says that the bucket cannot be used; findings say
// what will go wrong with it.
func (b *Bucket) Check(ctx context.Context) ([]Finding, error) {
	if _, err := b.Clock(ctx); err != nil {
		return nil, err
	}
	return b.probe(ctx)
}

// CheckReading tries only to read, for an account that may not put and delete a probe
// object: an object that is not there, which tells a missing or denied bucket.
func (b *Bucket) CheckReading(ctx context.Context) ([]Finding, error) {
	if _, err := b.Get(ctx, "check/none"); err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	return nil, nil
}

// Clock is by how much the bucket's clock is ahead of this machine's, to the
// second. It fails as the bucket is missing, denied or not reachable.
func (b *Bucket) Clock(ctx context.Context) (skew time.Duration, err error) {
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
		found = append(found, Finding{CodeNoMetadata, fmt.Sprintf("bucket %s does not keep metadata", b.cfg.Name),
			"whole objects cannot be checked when they are read; use a store that keeps x-amz-meta-* headers"})
	}
	listed := false
	if err := b.List(ctx, key, func(i Info) error { listed = listed || i.Key == key; return nil }); err != nil {
		return nil, err
	}
	if !listed {
		found = append(found, Finding{CodeInconsistent, fmt.Sprintf("bucket %s does not list an object that was just put", b.cfg.Name),
			"use a store whose lists are consistent"})
	}
	err = b.Put(ctx, key, bytes.NewReader(other), int64(len(other)), PutOptions{IfNoneMatch: true})
	switch {
	case err == nil:
		found = append(found, Finding{CodeOverwrites, fmt.Sprintf("bucket %s overwrites an object despite If-None-Match", b.cfg.Name),
			"use a store with conditional puts: without them two workers could replace each other's commit record"})
	case !errors.Is(err, ErrExists):
		return nil, err
	}
	return found, nil
}
