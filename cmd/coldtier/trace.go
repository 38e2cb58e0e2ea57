package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
)

// Bounds of traces: for how long it is tried to send spans, how long the last of them may
// take when the process ends, and how many are kept until then.
const (
	traceTimeout = 2 * time.Second
	traceFlush   = 5 * time.Second
	traceQueue   = 4096
)

// tracer makes spans. A nil tracer makes none, and costs nothing.
type tracer struct {
	trace.Tracer
	provider *sdktrace.TracerProvider
}

// newTracer is nil when nothing is to be traced.
func newTracer(cfg *config.Config, log *slog.Logger) (*tracer, error) {
	c := cfg.Traces
	if c.Endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, mark(fmt.Errorf("traces.endpoint: %w", err), errSetup)
	}
	if !strings.HasSuffix(u.Path, "/v1/traces") {
		u = u.JoinPath("v1/traces")
	}
	headers := map[string]string{}
	for name, s := range c.Headers {
		headers[name] = s.Reveal()
	}
	// Nothing is connected to before the first spans are sent.
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithHeaders(headers), otlptracehttp.WithTimeout(traceTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: 300 * time.Millisecond, MaxInterval: time.Second, MaxElapsedTime: traceTimeout}))
	if err != nil {
		return nil, mark(fmt.Errorf("traces.endpoint: %w", err), errSetup)
	}
	return tracerTo(&patient{SpanExporter: exporter, log: log}, c.Sample, cfg.Source.Name), nil
}

func tracerTo(to sdktrace.SpanExporter, sample float64, source string) *tracer {
	p := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(to, sdktrace.WithMaxQueueSize(traceQueue), sdktrace.WithExportTimeout(2*traceTimeout)),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(sample))),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "coldtier"), attribute.String("service.version", version()),
			attribute.String("service.instance.id", owner()), attribute.String("coldtier.source", source))))
	return &tracer{p.Tracer("github.com/coldtier/coldtier"), p}
}

// patient logs what becomes of spans that cannot be sent: of a row of failures the first.
type patient struct {
	sdktrace.SpanExporter
	log    *slog.Logger
	mu     sync.Mutex
	failed bool
}

// ExportSpans implements trace.SpanExporter.
func (p *patient) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := p.SpanExporter.ExportSpans(ctx, spans)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && !p.failed {
		p.log.WarnContext(ctx, "spans cannot be sent and are lost; others like them are not logged", "spans", len(spans), "error", err)
	}
	p.failed = err != nil
	return nil // else the SDK prints it
}

// close sends what is left.
func (t *tracer) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlush)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// run begins the span of a run.
func (t *tracer) run(ctx context.Context, job string, id uint64) (context.Context, func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.Start(ctx, job, trace.WithAttributes(attribute.String("coldtier.job", job), attribute.Int64("coldtier.run", int64(id)))) //nolint:gosec // counts from 1
	return ctx, func(err error) { endSpan(span, err) }
}

// endSpan ends a span. Of an error only its kind is told: its text may quote IDs of
// conversations, which are of persons.
func endSpan(span trace.Span, err error) {
	if err != nil {
		_, kind := exit(err)
		span.SetStatus(codes.Error, kind)
	}
	span.End()
}

// sliceSpan is the span of a slice at work. Its stages become spans when it ends: one for
// each stage, from its first begin to its last end, however many objects or connections
// were at it.
type sliceSpan struct {
	t      *tracer
	mu     sync.Mutex
	stages map[string]*stageSpan
	ended  bool
}

type sliceSpanKey struct{}

// stageSpan is what a stage did so far.
type stageSpan struct {
	begun, ended time.Time
	busy         time.Duration
	steps        int64
	rows         uint64
	bytes        int64
}

// batch is how many chunks of a purge make a span: one each would be thousands, and one in
// all would be seen only at the end, which may be hours away.
const batch = 100

// slice begins the span of a slice, or of several of one table that go together.
func (t *tracer) slice(ctx context.Context, keys ...manifest.SliceKey) (context.Context, func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.String()
	}
	ctx, span := t.Start(ctx, "slice", trace.WithAttributes(attribute.String("coldtier.shard", keys[0].Shard.String()), attribute.String("coldtier.day", keys[0].Day.String()),
		attribute.StringSlice("coldtier.slices", names)))
	if !span.IsRecording() {
		return ctx, func(error) { span.End() }
	}
	s := &sliceSpan{t: t, stages: map[string]*stageSpan{}}
	ctx = context.WithValue(ctx, sliceSpanKey{}, s)
	return ctx, func(err error) {
		s.end(ctx)
		endSpan(span, err)
	}
}

// add notes a step of a stage.
func (s *sliceSpan) add(ctx context.Context, stage string, begun, ended time.Time, rows uint64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended { // a step that was not waited for
		return
	}
	x := s.stages[stage]
	if x == nil {
		x = &stageSpan{begun: begun, ended: ended}
		s.stages[stage] = x
	}
	if begun.Before(x.begun) {
		x.begun = begun
	}
	if ended.After(x.ended) {
		x.ended = ended
	}
	x.busy += ended.Sub(begun)
	x.steps, x.rows, x.bytes = x.steps+1, x.rows+rows, x.bytes+bytes
	if stage == stagePurge && x.steps >= batch {
		s.tell(ctx, stage, x)
		delete(s.stages, stage)
	}
}

// tell makes a span of what a stage did; the lock is held.
func (s *sliceSpan) tell(ctx context.Context, stage string, x *stageSpan) {
	_, span := s.t.Start(ctx, stage, trace.WithTimestamp(x.begun), trace.WithAttributes(attribute.Int64("coldtier.steps", x.steps),
		attribute.Int64("coldtier.rows", int64(x.rows)), attribute.Int64("coldtier.bytes", x.bytes), attribute.Float64("coldtier.busy_seconds", x.busy.Seconds()))) //nolint:gosec // a count of rows
	span.End(trace.WithTimestamp(x.ended))
}

func (s *sliceSpan) end(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, stage := range stages() {
		if x := s.stages[stage]; x != nil {
			s.tell(ctx, stage, x)
		}
	}
}
