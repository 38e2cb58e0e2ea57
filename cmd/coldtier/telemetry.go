package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
)

// telemetry is what a process tells of its work: metrics, the context of log lines and,
// where it is wanted, traces. It is made once a process, whatever runs there are in it.
type telemetry struct {
	*jobMetrics
	registry *prometheus.Registry
	source   prometheus.Registerer // the registry, with the source's name on what is registered
	tracer   *tracer               // nil: nothing is traced
	now      func() time.Time
}

func newTelemetry(cfg *config.Config, now func() time.Time, log *slog.Logger) (*telemetry, error) {
	tr, err := newTracer(cfg, log)
	if err != nil {
		return nil, err
	}
	reg, source := newRegistry(cfg.Source.Name)
	return &telemetry{jobMetrics: newJobMetrics(source, now), registry: reg, source: source, tracer: tr, now: now}, nil
}

// stage counts what went through a stage, and gives it to the trace of the slice of ctx.
func (t *telemetry) stage(ctx context.Context, stage string, begun time.Time, rows uint64, bytes int64) {
	ended := t.now()
	t.add(stage, rows, bytes, ended.Sub(begun))
	if s, ok := ctx.Value(sliceSpanKey{}).(*sliceSpan); ok {
		s.add(ctx, stage, begun, ended, rows, bytes)
	}
}

// Slice implements archive.Observer.
func (t *telemetry) Slice(ctx context.Context, s manifest.SliceKey) (context.Context, func(error)) {
	ctx = withSlice(ctx, s)
	ctx, end := t.tracer.slice(ctx, s)
	return ctx, func(err error) {
		if errors.Is(err, archive.ErrMismatch) {
			t.failures.Inc()
		}
		end(err)
	}
}

// Stage implements archive.Observer.
func (t *telemetry) Stage(ctx context.Context, stage archive.Stage) func(uint64, int64) {
	begun := t.now()
	return func(rows uint64, bytes int64) { t.stage(ctx, string(stage), begun, rows, bytes) }
}

// observedTable is a warm table whose scans are told.
type observedTable struct {
	archive.Table
	t *telemetry
}

// Scan implements archive.Scanner. The time in which fn has a chunk is not the scan's.
func (o observedTable) Scan(ctx context.Context, from, to uint64, fn func(message.Chunk) error) error {
	begun := o.t.now()
	err := o.Table.Scan(ctx, from, to, func(c message.Chunk) error {
		o.t.stage(ctx, stageScan, begun, uint64(c.Batch.Len()), int64(c.Batch.Bytes())) //nolint:gosec // a count and a length
		err := fn(c)
		begun = o.t.now()
		return err
	})
	o.t.stage(ctx, stageScan, begun, 0, 0)
	return err
}

// observedRows is ClickHouse whose inserts are told.
type observedRows struct {
	archive.Rows
	t *telemetry
}

// Insert implements archive.Rows.
func (o observedRows) Insert(ctx context.Context, id manifest.CopyID, s *message.Schema) (archive.RowWriter, error) {
	w, err := o.Rows.Insert(ctx, id, s)
	if err != nil {
		return nil, err
	}
	return observedWriter{w, o.t}, nil
}

type observedWriter struct {
	archive.RowWriter
	t *telemetry
}

// Write implements archive.RowWriter.
func (o observedWriter) Write(ctx context.Context, b *message.Batch, from, to int) error {
	begun := o.t.now()
	err := o.RowWriter.Write(ctx, b, from, to)
	if err == nil && b.Len() > 0 {
		o.t.stage(ctx, stageInsert, begun, uint64(to-from), int64(b.Bytes())*int64(to-from)/int64(b.Len())) //nolint:gosec // from is not after to
	}
	return err
}

// Close implements archive.RowWriter.
func (o observedWriter) Close(ctx context.Context) error {
	begun := o.t.now()
	err := o.RowWriter.Close(ctx)
	o.t.stage(ctx, stageInsert, begun, 0, 0)
	return err
}

// Job implements purge.Observer.
func (t *telemetry) Job(ctx context.Context, slices []manifest.SliceKey) (context.Context, func([]purge.Result)) {
	ctx = withSlice(ctx, slices...)
	ctx, end := t.tracer.slice(ctx, slices...)
	return ctx, func(results []purge.Result) {
		var err error
		for _, r := range results {
			switch r.Outcome {
			case purge.Drifted:
				t.drift.Inc()
			case purge.Purged:
				t.bytes[stagePurge].Add(float64(max(r.Bytes, 0)))
			}
			if r.Outcome != purge.Purged {
				err = errors.New(string(r.Outcome))
			}
		}
		end(err)
	}
}

// observedPurge is a warm table whose deletes are told.
type observedPurge struct {
	purge.Table
	t *telemetry
}

// again counts what is tried again: a delete whose answer was lost, and one that met a lock.
func (o observedPurge) again(err error) {
	if errors.Is(err, purge.ErrUnclear) || errors.Is(err, purge.ErrLocked) {
		o.t.retries[targetMySQL].Inc()
	}
}

// DeleteChunk implements purge.Deleter.
func (o observedPurge) DeleteChunk(ctx context.Context, g *manifest.PurgeGrant, c manifest.Chunk) error {
	begun, rows := o.t.now(), c.Warm.Rows
	err := o.Table.DeleteChunk(ctx, g, c)
	if err != nil {
		rows = 0
	}
	o.t.stage(ctx, stagePurge, begun, rows, 0)
	o.again(err)
	return err
}

// Exchange implements purge.Partitions.
func (o observedPurge) Exchange(ctx context.Context, r purge.Range, staging string) error {
	begun := o.t.now()
	err := o.Table.Exchange(ctx, r, staging)
	o.t.stage(ctx, stagePurge, begun, 0, 0)
	o.again(err)
	return err
}

// DropStaging implements purge.Isolated.
func (o observedPurge) DropStaging(ctx context.Context, gs []*manifest.PurgeGrant, name string) error {
	begun, rows := o.t.now(), uint64(0)
	err := o.Table.DropStaging(ctx, gs, name)
	if err == nil {
		for _, g := range gs {
			for _, c := range g.Copy().Chunks {
				rows += c.Warm.Rows
			}
		}
	}
	o.t.stage(ctx, stagePurge, begun, rows, 0)
	o.again(err)
	return err
}

// told gives log lines and spans the run that they are of, and watches its pace. The function
// it gives is called at the run's end.
func (a *app) told(ctx context.Context, p *parts, job string, id uint64) (context.Context, func(error)) {
	ctx, forget := a.runs.begin(ctx, id, job)
	ctx, ended := a.telemetry.tracer.run(ctx, job, id)
	unwatch := func() {}
	if p.pace != nil {
		unwatch = a.telemetry.paces.watch(job, p.pace.Pace)
	}
	return ctx, func(err error) {
		unwatch()
		ended(err)
		forget()
	}
}
