// Package membucket is an object store in memory with the contract of package
// bucket (see bucktest), for fast tests of what stands above it.
package membucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coldtier/coldtier/archive/bucket"
)

// Bucket holds objects in memory. It is safe for concurrent use. Make one with New.
type Bucket struct {
	now     func() time.Time
	mu      sync.Mutex
	objects map[string]object
}

type object struct {
	data []byte
	info bucket.Info
}

// New makes an empty one. now gives the times at which objects were modified.
func New(now func() time.Time) *Bucket {
	return &Bucket{now: now, objects: map[string]object{}}
}

// call takes the lock for a call, unless its context has ended.
func (b *Bucket) call(ctx context.Context, op, key string) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s %s: %w: %w", op, key, ctx.Err(), context.Cause(ctx))
	}
	b.mu.Lock()
	return b.mu.Unlock, nil
}

// Put is as bucket.Bucket.Put.
func (b *Bucket) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, o bucket.PutOptions) error {
	if err := bucket.CheckPut(key, o); err != nil {
		return fmt.Errorf("put object %s: %w", key, err)
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("put object %s: %w", key, err)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("put object %s: read body: %w", key, err)
	}
	if int64(len(data)) != size {
		return fmt.Errorf("put object %s: the body has %d bytes, not the %d that are said of it", key, len(data), size)
	}
	sum := sha256.Sum256(data)
	if o.SHA256 != ([32]byte{}) && o.SHA256 != sum {
		return fmt.Errorf("put object %s: %w", key, bucket.ErrCorrupt)
	}
	unlock, err := b.call(ctx, "put object", key)
	if err != nil {
		return err
	}
	defer unlock()
	if there, ok := b.objects[key]; ok && o.IfNoneMatch {
		if !bytes.Equal(there.data, data) {
			return fmt.Errorf("put object %s: %w", key, bucket.ErrExists)
		}
		return nil
	}
	meta := maps.Clone(o.Metadata)
	if meta == nil {
		meta = map[string]string{}
	}
	meta[bucket.MetaSHA256] = hex.EncodeToString(sum[:])
	b.objects[key] = object{data, bucket.Info{Key: key, Size: size, Modified: b.now(), Metadata: meta, StorageClass: "STANDARD"}}
	return nil
}

func (b *Bucket) find(ctx context.Context, op, key string) (object, error) {
	if err := bucket.CheckKey(key); err != nil {
		return object{}, fmt.Errorf("%s %s: %w", op, key, err)
	}
	unlock, err := b.call(ctx, op, key)
	if err != nil {
		return object{}, err
	}
	defer unlock()
	o, ok := b.objects[key]
	if !ok {
		return object{}, fmt.Errorf("%s %s: %w", op, key, bucket.ErrNotFound)
	}
	return o, nil
}

// ReadRange is as bucket.Bucket.ReadRange.
func (b *Bucket) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off+n < off {
		return nil, fmt.Errorf("read object %s: range of %d bytes at %d", key, n, off)
	}
	if n == 0 {
		return []byte{}, bucket.CheckKey(key)
	}
	o, err := b.find(ctx, "read object", key)
	if err != nil {
		return nil, err
	}
	if off+n > int64(len(o.data)) {
		return nil, fmt.Errorf("read object %s: %w: it has only %d bytes", key, bucket.ErrCorrupt, len(o.data))
	}
	return bytes.Clone(o.data[off : off+n]), nil
}

// Get is as bucket.Bucket.Get.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, error) {
	o, err := b.find(ctx, "get object", key)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(o.data); hex.EncodeToString(sum[:]) != o.info.Metadata[bucket.MetaSHA256] {
		return nil, fmt.Errorf("get object %s: %w", key, bucket.ErrCorrupt)
	}
	return bytes.Clone(o.data), nil
}

// Head is as bucket.Bucket.Head.
func (b *Bucket) Head(ctx context.Context, key string) (bucket.Info, error) {
	o, err := b.find(ctx, "look at object", key)
	o.info.Metadata = maps.Clone(o.info.Metadata)
	return o.info, err
}

// List is as bucket.Bucket.List.
func (b *Bucket) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	unlock, err := b.call(ctx, "list objects", prefix)
	if err != nil {
		return err
	}
	var infos []bucket.Info
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		if strings.HasPrefix(key, prefix) {
			i := b.objects[key].info
			i.Metadata = nil
			infos = append(infos, i)
		}
	}
	unlock()
	for _, i := range infos {
		if err := fn(i); err != nil {
			return err
		}
	}
	return nil
}

// Delete is as bucket.Bucket.Delete.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := bucket.CheckKey(key); err != nil {
			return fmt.Errorf("delete object %s: %w", key, err)
		}
	}
	unlock, err := b.call(ctx, "delete object", strings.Join(keys, ", "))
	if err != nil {
		return err
	}
	defer unlock()
	for _, key := range keys {
		delete(b.objects, key)
	}
	return nil
}

// Damage changes an object's bytes behind its back, for tests of what must notice.
func (b *Bucket) Damage(key string, change func(data []byte) []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	if !ok {
		return fmt.Errorf("damage object %s: %w", key, bucket.ErrNotFound)
	}
	o.data = change(bytes.Clone(o.data))
	o.info.Size = int64(len(o.data))
	b.objects[key] = o
	return nil
}
