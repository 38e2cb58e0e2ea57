package rpc

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/rpc/coldtier/v1/coldtierv1connect"
)

// metrics of the RPCs. Their labels are of few values, which are all there from the start.
type metrics struct {
	requests *prometheus.CounterVec   // by method and code
	seconds  *prometheus.HistogramVec // by method and result
	running  *prometheus.GaugeVec     // by method
	messages *prometheus.CounterVec   // by method
	panics   prometheus.Counter
	audit    prometheus.Counter
}

// Values of the labels beside the codes' and states' own names.
const (
	codeOK        = "ok"
	codeMalformed = "malformed" // the request did not reach its method: it could not be read
	resultOK      = "ok"
	resultError   = "error"
)

func methods() []string {
	return []string{methodFetch, methodStream, methodMessages, methodBoundary, methodStatus}
}

// methodOf is the method of a path, "" for one that does not exist: a label must not
// take what callers make up.
func methodOf(path string) string {
	name, ok := strings.CutPrefix(path, "/"+coldtierv1connect.ColdHistoryName+"/")
	if !ok {
		return ""
	}
	for _, m := range methods() {
		if m == name {
			return m
		}
	}
	return ""
}

func codes() []string {
	all := []string{codeOK, codeMalformed}
	for c := connect.CodeCanceled; c <= connect.CodeUnauthenticated; c++ {
		switch c {
		case connect.CodeCanceled, connect.CodeDeadlineExceeded, connect.CodeInvalidArgument, connect.CodePermissionDenied,
			connect.CodeUnauthenticated, connect.CodeUnavailable, connect.CodeInternal:
			all = append(all, c.String())
		}
	}
	return all
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coldtier_rpc_requests_total", Help: "Requests by their outcome."}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coldtier_rpc_duration_seconds", Help: "How long requests took, by the state of their answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .15, .2, .3, .4, .5, .6, .7, .8, .82, 1, 2.5, 10}}, []string{"method", "result"}),
		running:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "coldtier_rpc_running", Help: "Requests that are being answered."}, []string{"method"}),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coldtier_rpc_messages_total", Help: "Messages that were given out."}, []string{"method"}),
		panics:   prometheus.NewCounter(prometheus.CounterOpts{Name: "coldtier_rpc_panics_total", Help: "Panics that were turned into an error."}),
		audit:    prometheus.NewCounter(prometheus.CounterOpts{Name: "coldtier_rpc_audit_failures_total", Help: "Lines of the audit log that could not be written."}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.running, m.messages, m.panics, m.audit} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register the RPCs' metrics: %w", err)
	}
	for _, method := range methods() {
		m.running.WithLabelValues(method)
		m.messages.WithLabelValues(method)
		for _, code := range codes() {
			m.requests.WithLabelValues(method, code)
		}
		results := []string{resultOK, resultError}
		if method != methodBoundary && method != methodStatus {
			results = []string{string(restore.Complete), string(restore.Partial), string(restore.Pending), string(restore.Thawing), resultError}
		}
		for _, r := range results {
			m.seconds.WithLabelValues(method, strings.ToLower(r))
		}
	}
	return m, nil
}

// done counts a request that has ended.
func (m *metrics) done(c *call, took time.Duration) {
	m.requests.WithLabelValues(c.method, c.code).Inc()
	m.seconds.WithLabelValues(c.method, strings.ToLower(c.result())).Observe(took.Seconds())
	m.messages.WithLabelValues(c.method).Add(float64(c.rows))
}
