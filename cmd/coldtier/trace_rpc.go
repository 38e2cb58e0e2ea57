package main

import (
	"context"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore"
	v1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
)

// interceptors make a span of each request, below the caller's if he sends one.
func (t *tracer) interceptors() []connect.Interceptor {
	if t == nil {
		return nil
	}
	return []connect.Interceptor{requestSpans{t}}
}

type requestSpans struct{ t *tracer }

func (r requestSpans) begin(ctx context.Context, spec connect.Spec, header propagation.TextMapCarrier) (context.Context, trace.Span) {
	ctx = propagation.TraceContext{}.Extract(ctx, header)
	return r.t.Start(ctx, spec.Procedure, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("rpc.system", "connect"), attribute.String("rpc.method", spec.Procedure)))
}

// end says of an error its code alone.
func (r requestSpans) end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, connect.CodeOf(err).String())
	}
	span.End()
}

// WrapUnary implements connect.Interceptor.
func (r requestSpans) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, span := r.begin(ctx, req.Spec(), propagation.HeaderCarrier(req.Header()))
		resp, err := next(ctx, req)
		if err == nil {
			if page, ok := resp.Any().(*v1.FetchRangeResponse); ok {
				span.SetAttributes(attribute.String("coldtier.state", page.GetState().String()), attribute.Int("coldtier.rows", len(page.GetMessages())))
			}
		}
		r.end(span, err)
		return resp, err
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (r requestSpans) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, span := r.begin(ctx, conn.Spec(), propagation.HeaderCarrier(conn.RequestHeader()))
		err := next(ctx, conn)
		r.end(span, err)
		return err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (requestSpans) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// read begins the span of a read for a request; what belongs to no request is not traced.
func (t *tracer) read(ctx context.Context, what string) (context.Context, trace.Span) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return t.Start(ctx, what, trace.WithSpanKind(trace.SpanKindClient))
}

// watch makes spans of what pages are read by: look-ups in the manifest, ranged GETs and
// ClickHouse's queries.
func (t *tracer) watch(d *restore.Deps) {
	if t == nil {
		return
	}
	d.Trace = func(ctx context.Context, what string) func(error) {
		_, span := t.read(ctx, "manifest "+what)
		return func(err error) { endSpan(span, err) }
	}
	d.Objects = tracedObjects{d.Objects, t}
	if d.Rows != nil {
		d.Rows = tracedRows{d.Rows, t}
	}
}

type tracedObjects struct {
	restore.Objects
	t *tracer
}

// ReadRange implements restore.Objects. The key would tell the conversation.
func (o tracedObjects) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	ctx, span := o.t.read(ctx, "bucket get")
	span.SetAttributes(attribute.Int64("coldtier.bytes", n))
	b, err := o.Objects.ReadRange(ctx, key, off, n)
	endSpan(span, err)
	return b, err
}

type tracedRows struct {
	restore.Rows
	t *tracer
}

// Spans implements restore.Rows.
func (r tracedRows) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	ctx, span := r.t.read(ctx, "clickhouse query")
	span.SetAttributes(attribute.Int("coldtier.copies", len(spans)))
	b, err := r.Rows.Spans(ctx, spans, s, conversation, limit)
	if err == nil {
		span.SetAttributes(attribute.Int("coldtier.rows", b.Len()))
	}
	endSpan(span, err)
	return b, err
}
