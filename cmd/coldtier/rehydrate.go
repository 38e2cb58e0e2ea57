package main

import (
	"context"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/clickhouse"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/manifest/mirror"
	"github.com/coldtier/coldtier/restore/rehydrate"
	reading "github.com/coldtier/coldtier/restore/selection"
)

// archivedObjects is the bucket for selection.
type archivedObjects struct{ b *bucket.Bucket }

func (o archivedObjects) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b, err := o.b.ReadRange(ctx, key, off, n)
	return b, also(err, [2]error{bucket.ErrNotFound, reading.ErrNotFound}, [2]error{bucket.ErrCorrupt, reading.ErrDamaged}, [2]error{bucket.ErrArchived, reading.ErrArchived})
}

// spareRows is ClickHouse for selection: connected to when the bucket lacks rows, since it
// need not be there as long as it does not.
type spareRows struct {
	a   *app
	p   *parts
	mu  sync.Mutex
	db  *clickhouse.DB
	err error
}

func (r *spareRows) ReadCopy(ctx context.Context, id manifest.CopyID, s *message.Schema, fn func(*message.Batch) error) error {
	r.mu.Lock()
	if r.db == nil && r.err == nil {
		if r.db, r.err = clickhouse.Open(ctx, clickhouseConfig(r.p.cfg.ClickHouse), r.a.log); r.err == nil {
			r.p.closers = append(r.p.closers, r.db)
		}
	}
	db, err := r.db, r.err
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return db.ReadCopy(ctx, id, s, fn)
}

// selected makes the reader of selections; with spare it takes from ClickHouse what the
// bucket lacks.
func (a *app) selected(p *parts, spare bool) *reading.Reader {
	d := reading.Deps{Manifest: p.manifest, Objects: archivedObjects{p.bucket}, Layout: p.cfg.Source.Layout}
	if spare {
		d.Rows = &spareRows{a: a, p: p}
	}
	return reading.New(d, reading.Config{})
}

// keeper holds slices that are restored into live tables.
type keeper struct {
	m      *manifest.Store
	last   time.Duration
	reason string
	by     string
	mirror *mirror.Mirror
	log    *slog.Logger
}

func (k keeper) Keep(ctx context.Context, key manifest.SliceKey) error {
	if _, err := k.m.KeepSlice(ctx, key, k.last, k.reason, k.by); err != nil {
		return err
	}
	// The account of a restore may be one that only reads the bucket.
	if _, err := k.mirror.Holds(ctx); err != nil {
		k.log.WarnContext(ctx, "the hold on a restored slice is not in the bucket yet; the next coldtier archive puts it there", "slice", key.String(), "error", err)
	}
	return nil
}

// live says which tables of a target are warm tables of the configuration; nil when none
// can be. Warm servers that do not answer are in the warnings: they may be what was lost.
func (a *app) live(ctx context.Context, p *parts, t *warm.Target) (l *rehydrate.Live, replicas []string, warnings []string, err error) {
	if err := a.warmOf(p); err != nil {
		return nil, nil, nil, err
	}
	name, is, unknown, err := t.Live(ctx, p.warm)
	if err != nil {
		return nil, nil, nil, err
	}
	if !is {
		for _, e := range unknown {
			warnings = append(warnings, a.redactor.Text(e.Error()))
		}
		return nil, nil, warnings, nil
	}
	for _, d := range p.cfg.Source.Databases {
		if t.SameName(d.DSN.Database(), name) {
			for _, r := range d.Replicas {
				replicas = append(replicas, r.Reveal())
			}
			name = d.DSN.Database() // as shards name it
		}
	}
	return &rehydrate.Live{Database: name, Is: func(table string) bool {
		for _, glob := range p.cfg.Source.Tables {
			plain, _ := path.Match(glob, table) // the configuration was checked
			folded, _ := path.Match(strings.ToLower(glob), strings.ToLower(table))
			if (plain || folded) && !strings.HasPrefix(table, warm.StagingPrefix) {
				return true
			}
		}
		return false
	}}, replicas, warnings, nil
}
