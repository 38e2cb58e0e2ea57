package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/grpchealth"

	"github.com/coldtier/coldtier/restore/rpc/coldtier/v1/coldtierv1connect"
)

const (
	probeEvery   = 2 * time.Second
	probeTimeout = time.Second
	// reached is how long ago the manifest may have answered last. It is long, since the
	// manifest is everybody's: were it a short fault of its that made all servers unready
	// at once, callers would find none, where each can still answer PENDING or from its caches.
	reached = time.Minute
)

// health says whether requests may be sent here.
type health struct {
	probe func(context.Context) error
	now   func() time.Time
	log   *slog.Logger
	grpc  *grpchealth.StaticChecker

	mu       sync.Mutex
	answered time.Time // the manifest, last; zero: not yet
	draining bool
	why      error // of the last probe
}

func newHealth(probe func(context.Context) error, now func() time.Time, log *slog.Logger) *health {
	h := &health{probe: probe, now: now, log: log, grpc: grpchealth.NewStaticChecker(coldtierv1connect.ColdHistoryName)}
	h.publish()
	return h
}

// watch probes until ctx ends.
func (h *health) watch(ctx context.Context) {
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	for {
		h.look(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (h *health) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := h.probe(ctx)
	h.mu.Lock()
	if err == nil {
		h.answered = h.now()
	}
	changed := (err == nil) != (h.why == nil)
	h.why = err
	h.mu.Unlock()
	if changed && err != nil {
		h.log.Warn("the manifest does not answer", "error", err)
	}
	h.publish()
}

// drain makes it not ready for good.
func (h *health) drain() {
	h.mu.Lock()
	h.draining = true
	h.mu.Unlock()
	h.publish()
}

// state says why it is not ready, or nothing.
func (h *health) state() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.draining:
		return "draining"
	case h.answered.IsZero():
		return "the manifest has not answered yet"
	case h.now().Sub(h.answered) > reached:
		return "the manifest does not answer"
	}
	return ""
}

// publish tells those who watch by gRPC.
func (h *health) publish() {
	status := grpchealth.StatusServing
	if h.state() != "" {
		status = grpchealth.StatusNotServing
	}
	for _, service := range []string{"", coldtierv1connect.ColdHistoryName} {
		h.grpc.SetStatus(service, status)
	}
}

// ServeHTTP is /readyz.
func (h *health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if why := h.state(); why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
