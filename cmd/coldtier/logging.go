package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/coldtier/coldtier/manifest"
)

// logRun and logSlice are what a line says beside its own attributes: of which run it is,
// and of which slice.
type (
	logRun struct {
		id  uint64
		job string
	}
	logSlice struct{ slice, shard string }
)

type (
	logRunKey   struct{}
	logSliceKey struct{}
)

// withSlice gives the lines that are logged with the context the slice, or the shard alone
// where the work is on several slices of it.
func withSlice(ctx context.Context, keys ...manifest.SliceKey) context.Context {
	s := logSlice{shard: keys[0].Shard.String()}
	if len(keys) == 1 {
		s.slice = keys[0].String()
	}
	return context.WithValue(ctx, logSliceKey{}, s)
}

// runs are the runs that a process has under way.
type runs struct {
	mu  sync.Mutex
	all []logRun
}

// begin gives lines a run: those that are logged with the context and, while no other run
// is under way in the process, all others, too.
func (r *runs) begin(ctx context.Context, id uint64, job string) (_ context.Context, end func()) {
	run := logRun{id, job}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, run)
	return context.WithValue(ctx, logRunKey{}, run), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = slices.DeleteFunc(r.all, func(x logRun) bool { return x == run })
	}
}

func (r *runs) of(ctx context.Context) (logRun, bool) {
	if run, ok := ctx.Value(logRunKey{}).(logRun); ok {
		return run, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) != 1 {
		return logRun{}, false
	}
	return r.all[0], true
}

// placed writes lines with where they belong: run, job, shard and slice. A line that says
// one of them itself is right about it.
type placed struct {
	slog.Handler
	runs  *runs
	given []string // keys of WithAttrs
}

// Handle implements slog.Handler.
func (h placed) Handle(ctx context.Context, r slog.Record) error {
	run, in := h.runs.of(ctx)
	at, on := ctx.Value(logSliceKey{}).(logSlice)
	if !in && !on {
		return h.Handler.Handle(ctx, r)
	}
	said := slices.Clone(h.given)
	r.Attrs(func(a slog.Attr) bool {
		said = append(said, a.Key)
		return true
	})
	r = r.Clone()
	add := func(key string, v slog.Value) {
		if !slices.Contains(said, key) {
			r.AddAttrs(slog.Attr{Key: key, Value: v})
		}
	}
	if in {
		add("run", slog.Uint64Value(run.id))
		add("job", slog.StringValue(run.job))
	}
	if on {
		add("shard", slog.StringValue(at.shard))
		if at.slice != "" {
			add("slice", slog.StringValue(at.slice))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h placed) WithAttrs(attrs []slog.Attr) slog.Handler {
	given := slices.Clone(h.given)
	for _, a := range attrs {
		given = append(given, a.Key)
	}
	return placed{h.Handler.WithAttrs(attrs), h.runs, given}
}

// WithGroup implements slog.Handler.
func (h placed) WithGroup(name string) slog.Handler {
	return placed{h.Handler.WithGroup(name), h.runs, h.given}
}
