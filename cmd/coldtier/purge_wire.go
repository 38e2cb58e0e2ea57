package main

import (
	"bytes"
	"context"
	"errors"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/manifest"
)

// cold is the bucket and ClickHouse for purge.
type cold struct{ *parts }

func (c cold) Sizes(ctx context.Context, prefix string) (map[string]int64, error) {
	sizes := map[string]int64{}
	err := c.bucket.List(ctx, prefix, func(i bucket.Info) error {
		sizes[i.Key] = i.Size
		return nil
	})
	return sizes, err
}

func (c cold) Messages(ctx context.Context, id manifest.CopyID, s *message.Schema) (uint64, error) {
	return c.rows.Messages(ctx, id, s)
}

// marks are the purge marks in the bucket.
type marks struct{ b *bucket.Bucket }

func (m marks) PutMark(ctx context.Context, key string, mark []byte) error {
	return m.b.Put(ctx, key, bytes.NewReader(mark), int64(len(mark)), bucket.PutOptions{ContentType: "application/json"})
}

func (m marks) GetMark(ctx context.Context, key string) ([]byte, error) {
	b, err := m.b.Get(ctx, key)
	if errors.Is(err, bucket.ErrNotFound) {
		return nil, nil
	}
	return b, err
}

// purgeTable is a warm table for purge.
type purgeTable struct{ *warm.Table }

func purgeError(err error) error {
	return also(err, [2]error{warm.ErrDrift, purge.ErrDrift}, [2]error{warm.ErrUnclear, purge.ErrUnclear},
		[2]error{warm.ErrLocked, purge.ErrLocked}, [2]error{warm.ErrIncompatible, purge.ErrIncompatible}, [2]error{warm.ErrEpoch, purge.ErrRefused})
}

func (t purgeTable) EpochFits(ctx context.Context) error { return purgeError(t.Table.EpochFits(ctx)) }

func (t purgeTable) DeleteChunk(ctx context.Context, g *manifest.PurgeGrant, c manifest.Chunk) error {
	return purgeError(t.Table.DeleteChunk(ctx, g, c))
}

func (t purgeTable) Partition(ctx context.Context, lo, hi uint64) (purge.Range, bool, error) {
	p, ok, err := t.Table.Partition(ctx, lo, hi)
	return purge.Range(p), ok, purgeError(err)
}

func (t purgeTable) Exchange(ctx context.Context, r purge.Range, staging string) error {
	return purgeError(t.Table.Exchange(ctx, warm.Partition(r), staging))
}

func (t purgeTable) CreateStaging(ctx context.Context, name string) error {
	return purgeError(t.Table.CreateStaging(ctx, name))
}

func (t purgeTable) DropStaging(ctx context.Context, gs []*manifest.PurgeGrant, name string) error {
	return purgeError(t.Table.DropStaging(ctx, gs, name))
}

func (t purgeTable) ReturnStaging(ctx context.Context, name string) error {
	return purgeError(t.Table.ReturnStaging(ctx, name))
}
