package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/cmd/coldtier/intomysql"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/drill"
	"github.com/coldtier/coldtier/restore/drill/report"
	reading "github.com/coldtier/coldtier/restore/selection"
)

// PutReport implements report.Putter.
func (r reports) PutReport(ctx context.Context, key, contentType string, data []byte) error {
	return r.b.Put(ctx, key, bytes.NewReader(data), int64(len(data)), bucket.PutOptions{SHA256: sha256.Sum256(data), IfNoneMatch: true, ContentType: contentType})
}

// drillBucket is the bucket for drill: its errors match those of all who read it there.
type drillBucket struct{ b *bucket.Bucket }

func drillError(err error) error {
	return also(objectError(err), [2]error{bucket.ErrNotFound, reading.ErrNotFound}, [2]error{bucket.ErrCorrupt, reading.ErrDamaged}, [2]error{bucket.ErrArchived, reading.ErrArchived})
}

func (o drillBucket) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := o.b.Get(ctx, key)
	return b, drillError(err)
}

func (o drillBucket) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b, err := o.b.ReadRange(ctx, key, off, n)
	return b, drillError(err)
}

func (o drillBucket) List(ctx context.Context, prefix string, fn func(key string, size int64) error) error {
	return o.b.List(ctx, prefix, func(i bucket.Info) error { return fn(i.Key, i.Size) })
}

// drillRows is ClickHouse for drill: one that is not there is for the drill to find.
type drillRows struct {
	a   *app
	p   *parts
	mu  sync.Mutex
	err error
}

func (r *drillRows) open(ctx context.Context) (rows, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.p.rows == nil && r.err == nil {
		r.err = r.a.openRows(context.WithoutCancel(ctx), r.p)
	}
	return rows{r.p.rows}, r.err
}

func (r *drillRows) ReadCopy(ctx context.Context, id manifest.CopyID, s *message.Schema, fn func(*message.Batch) error) error {
	db, err := r.open(ctx)
	if err != nil {
		return err
	}
	return db.ReadCopy(ctx, id, s, fn)
}

func (r *drillRows) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	db, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	return db.Spans(ctx, spans, s, conversation, limit)
}

func (a *app) drillDeps(p *parts) drill.Deps {
	boundMemory(p.cfg)
	return drill.Deps{
		Manifest: p.manifest, Bucket: drillBucket{p.bucket}, Rows: &drillRows{a: a, p: p}, Log: a.log,
		Owner: func(ctx context.Context) (string, error) {
			key := manifest.OwnerKey(p.cfg.Source.Name)
			raw, err := p.bucket.Get(ctx, key)
			if err != nil {
				return "", fmt.Errorf("owner mark: %w", err)
			}
			var m struct {
				Identity string `json:"identity"`
			}
			if err := json.Unmarshal(raw, &m); err != nil {
				return "", fmt.Errorf("owner mark %s: %w", key, err)
			}
			return m.Identity, nil
		},
		OpenManifest: func(ctx context.Context, dsn string) (*manifest.Store, error) {
			return manifest.Open(ctx, manifest.Config{DSN: dsn, Source: p.cfg.Source.Name}, a.log)
		},
		Open: func(ctx context.Context, dsn string) (*drill.Target, error) {
			t, err := warm.OpenTarget(ctx, warm.TargetConfig{DSN: dsn, Now: a.now}, a.log)
			if err != nil {
				return nil, err
			}
			return &drill.Target{Target: intomysql.Target{Target: t}, Server: t, Close: t.Close}, nil
		},
	}
}

func (a *app) drillConfig(p *parts, c config.Drill, seed uint64) drill.Config {
	f := p.cfg.Fetch
	return drill.Config{
		Fraction: drill.Fraction{N: c.Sample.N, Of: c.Sample.Of}, Seed: seed, Layout: p.cfg.Source.Layout, Zone: p.cfg.Source.Zone,
		Fetch: restore.Config{Budget: f.Budget, HedgeAfter: f.HedgeAfter, FillAfter: f.FillTimeout, MaxLimit: f.MaxLimit},
		Pages: c.ReadPages, Memory: p.cfg.Archive.Memory / 2, Prices: pricesOf(c.Prices), Now: a.now, Sleep: sleep, Step: stepHook(),
	}
}

func pricesOf(p config.Prices) report.Prices { return report.Prices(p) }

// estimate is what a drill would cost.
func estimate(prices report.Prices, p *drill.Plan) (*report.Cost, error) {
	var t []report.Traffic
	for _, e := range p.Reads {
		t = append(t, report.Traffic{Store: report.StoreBucket, Operation: report.OpGet, Requests: e.Gets, Bytes: e.Bytes},
			report.Traffic{Store: report.StoreBucket, Operation: report.OpList, Requests: e.Lists})
	}
	c, err := report.PriceOf(prices, t, 0)
	return &c, err
}
