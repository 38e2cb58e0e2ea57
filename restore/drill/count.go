package drill

import (
	"context"
	"sync/atomic"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
)

// countedBucket counts what is asked of a bucket.
type countedBucket struct {
	of                 Bucket
	gets, lists, bytes atomic.Int64
}

// perList is how many keys one request lists.
const perList = 1000

func (b *countedBucket) Get(ctx context.Context, key string) ([]byte, error) {
	b.gets.Add(1)
	data, err := b.of.Get(ctx, key)
	b.bytes.Add(int64(len(data)))
	return data, err
}

func (b *countedBucket) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b.gets.Add(1)
	data, err := b.of.ReadRange(ctx, key, off, n)
	b.bytes.Add(int64(len(data)))
	return data, err
}

func (b *countedBucket) List(ctx context.Context, prefix string, fn func(key string, size int64) error) error {
	n := int64(0)
	err := b.of.List(ctx, prefix, func(key string, size int64) error {
		n++
		return fn(key, size)
	})
	b.lists.Add(n/perList + 1)
	return err
}

// traffic is what was asked so far.
type traffic struct{ gets, lists, bytes int64 }

func (b *countedBucket) now() traffic { return traffic{b.gets.Load(), b.lists.Load(), b.bytes.Load()} }

func (t traffic) since(o traffic) traffic {
	return traffic{t.gets - o.gets, t.lists - o.lists, t.bytes - o.bytes}
}

// countedRows counts what is asked of ClickHouse.
type countedRows struct {
	of             Rows
	queries, bytes atomic.Int64
}

func (r *countedRows) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	r.queries.Add(1)
	b, err := r.of.Spans(ctx, spans, s, conversation, limit)
	if b != nil {
		r.bytes.Add(int64(b.Bytes()))
	}
	return b, err
}

func (r *countedRows) ReadCopy(ctx context.Context, id manifest.CopyID, s *message.Schema, fn func(*message.Batch) error) error {
	r.queries.Add(1)
	return r.of.ReadCopy(ctx, id, s, func(b *message.Batch) error {
		r.bytes.Add(int64(b.Bytes()))
		return fn(b)
	})
}
