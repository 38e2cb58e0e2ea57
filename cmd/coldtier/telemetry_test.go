package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/manifest"
)

// families are metrics by name.
type families map[string]*dto.MetricFamily

// value is that of the one metric with exactly these labels: name, value, name, value.
func (f families) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	for _, m := range f[name].GetMetric() {
		var has []string
		for _, l := range m.Label {
			has = append(has, l.GetName(), l.GetValue())
		}
		if slices.Equal(has, labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Errorf("no %s%v in %v", name, labels, f[name])
	return 0
}

// gateway is a Pushgateway that keeps what it got, by group.
type gateway struct {
	mu    sync.Mutex
	fail  bool
	puts  map[string]int
	last  map[string]families
	users []string
}

func newGateway(t *testing.T) (*gateway, string) {
	g := &gateway{puts: map[string]int{}, last: map[string]families{}}
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	return g, s.URL
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.Method != http.MethodPut || g.fail {
		http.Error(w, "no", http.StatusServiceUnavailable)
		return
	}
	user, _, _ := r.BasicAuth()
	g.users = append(g.users, user)
	got := families{}
	d := expfmt.NewDecoder(r.Body, expfmt.ResponseFormat(r.Header))
	for {
		f := &dto.MetricFamily{}
		if err := d.Decode(f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		got[f.GetName()] = f
	}
	// A group is a set of labels: they come in any order.
	labels := strings.Split(strings.TrimPrefix(r.URL.Path, "/metrics/"), "/")
	var group []string
	for i := 0; i+1 < len(labels); i += 2 {
		group = append(group, labels[i]+"="+labels[i+1])
	}
	slices.Sort(group)
	name := strings.Join(group, " ")
	g.puts[name]++
	g.last[name] = got
}

// spanTree is a span that was received, with what lies below it.
type spanTree struct {
	*spans.Span
	children []*spanTree
}

func (s *spanTree) attribute(name string) string {
	for _, a := range s.Attributes {
		if a.Key == name {
			if n, ok := a.Value.Value.(*common.AnyValue_IntValue); ok {
				return fmt.Sprint(n.IntValue)
			}
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// names are those of the spans below, sorted.
func (s *spanTree) names() (all []string) {
	for _, c := range s.children {
		all = append(all, c.Name)
	}
	slices.Sort(all)
	return all
}

// receiver takes spans by OTLP over HTTP.
type receiver struct {
	mu   sync.Mutex
	all  []*spans.Span
	raw  []byte
	auth string
}

func newReceiver(t *testing.T) (*receiver, string) {
	r := &receiver{}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return r, s.URL
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body := io.Reader(q.Body)
	if q.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(q.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	data, err := io.ReadAll(body)
	var m collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &m)
	}
	if err != nil || q.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(q.URL.Path, err), http.StatusBadRequest)
		return
	}
	r.raw, r.auth = append(r.raw, data...), q.Header.Get("Authorization")
	for _, rs := range m.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			r.all = append(r.all, ss.Spans...)
		}
	}
}

// roots are the spans that lie below none, as trees.
func (r *receiver) roots() (roots []*spanTree) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byID := map[string]*spanTree{}
	for _, s := range r.all {
		byID[string(s.SpanId)] = &spanTree{Span: s}
	}
	for _, s := range r.all {
		if up := byID[string(s.ParentSpanId)]; up != nil {
			up.children = append(up.children, byID[string(s.SpanId)])
		} else {
			roots = append(roots, byID[string(s.SpanId)])
		}
	}
	return roots
}

// What a real archive and a real purge tell: metrics at a Pushgateway and in a textfile, spans
// that form a tree, and log lines that say where they belong.
func TestTelemetryOfRuns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	push, pushURL := newGateway(t)
	traces, traceURL := newReceiver(t)
	text := t.TempDir()
	l.config["metrics"] = map[string]any{"pushgateway": strings.Replace(pushURL, "http://", "http://me:secret-word@", 1), "textfile": text, "labels": map[string]string{"instance": "w0", "team": "chat"}}
	l.config["traces"] = map[string]any{"endpoint": traceURL, "headers": map[string]string{"Authorization": "Bearer tell-nobody"}}
	l.set("archive.after", "30d")
	l.set("purge.lag", "0s")
	l.set("purge.strategy", "rows")
	const conversation = 4611686018427387905
	l.fill("msg_00", 40, 30, conversation)
	l.fill("msg_00", 39, 20, conversation)
	l.want(0, "migrate")

	// A record that cannot be read makes the archiver say so, of a slice.
	shard := manifest.Shard{Database: l.db, Table: "msg_00"}
	b := l.bucket()
	bad := []byte("no record")
	if err := b.Put(t.Context(), manifest.RecordKey(manifest.SliceKey{Source: "im", Shard: shard, Day: l.day(40)}, 1), bytes.NewReader(bad), int64(len(bad)), bucket.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	o := l.want(0, "--log-format", "json", "archive")
	line := logLine(t, o.stderr, "commit record cannot be read; the next generation supersedes it")
	for key, want := range map[string]any{"run": 1.0, "job": "archive", "shard": shard.String(), "slice": l.day(40).String() + " " + shard.String()} {
		if line[key] != want {
			t.Errorf("the line says %s %v, want %v: %v", key, line[key], want, line)
		}
	}

	at := "instance=w0 job=archive source=im team=chat"
	m := push.last[at]
	if m == nil || push.puts[at] < 2 {
		t.Fatalf("pushed to %v", push.puts)
	}
	for _, stage := range []string{"scan", "encode", "put", "insert", "commit", "verify"} {
		if n := m.value(t, "coldtier_rows_total", "stage", stage); n != 50 {
			t.Errorf("%v rows of stage %s, want 50", n, stage)
		}
		if m.value(t, "coldtier_bytes_total", "stage", stage) <= 0 || m.value(t, "coldtier_stage_seconds_total", "stage", stage) <= 0 {
			t.Errorf("stage %s has no bytes or no seconds", stage)
		}
	}
	if n := m.value(t, "coldtier_slices", "state", "verified"); n < 2 {
		t.Errorf("%v slices are verified", n)
	}
	if m.value(t, "coldtier_cold_bytes") <= 0 || m.value(t, "coldtier_drill_last_good_timestamp_seconds") != 0 || m.value(t, "coldtier_stopped") != 0 || m.value(t, "coldtier_idle_runs_total") != 0 {
		t.Error("numbers of the whole are missing or wrong")
	}
	for name, f := range m {
		for _, x := range f.Metric {
			for _, lb := range x.Label {
				if lb.GetName() == "job" || lb.GetName() == "source" {
					t.Errorf("%s has the label %s of its group", name, lb.GetName())
				}
			}
		}
	}
	if push.users[0] != "me" {
		t.Errorf("pushed as %v", push.users)
	}

	// A row that changed since makes the purge say so, and go on.
	l.exec("UPDATE msg_00 SET content = 'changed' ORDER BY msg_id LIMIT 1")
	o = l.run("--log-format", "json", "purge")
	line = logLine(t, o.stderr, "purge of slice")
	for key, want := range map[string]any{"run": 2.0, "job": "purge", "shard": shard.String(), "slice": l.day(40).String() + " " + shard.String(), "outcome": "drifted"} {
		if line[key] != want {
			t.Errorf("the line says %s %v, want %v: %v", key, line[key], want, line)
		}
	}
	m = push.last["instance=w0 job=purge source=im team=chat"]
	if n := m.value(t, "coldtier_rows_total", "stage", "purge"); n != 20 || m.value(t, "coldtier_drift_total") != 1 || m.value(t, "coldtier_bytes_total", "stage", "purge") <= 0 {
		t.Errorf("%v rows were deleted, drift %v", n, m.value(t, "coldtier_drift_total"))
	}
	if m.value(t, "coldtier_paused", "cause", "lag") != 0 {
		t.Error("paused")
	}

	var names []string
	files, err := os.ReadDir(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	if !slices.Equal(names, []string{"coldtier_im_archive_w0.prom", "coldtier_im_purge_w0.prom"}) {
		t.Fatalf("textfiles %v", names)
	}
	f, err := os.Open(filepath.Join(text, names[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(f)
	if err != nil {
		t.Fatal(err)
	}
	if n := families(parsed).value(t, "coldtier_paused", "cause", "lag", "instance", "w0", "job", "purge", "source", "im", "team", "chat"); n != 0 {
		t.Errorf("paused %v", n)
	}
	if n := families(parsed).value(t, "coldtier_rows_total", "instance", "w0", "job", "purge", "source", "im", "stage", "purge", "team", "chat"); n != 20 {
		t.Errorf("the textfile has %v rows", n)
	}

	// The spans.
	roots := traces.roots()
	var runs []string
	for _, r := range roots {
		runs = append(runs, r.Name+" "+r.attribute("coldtier.run"))
		slicesOf := map[string]*spanTree{}
		for _, s := range r.children {
			if s.Name != "slice" {
				t.Errorf("%s lies below the run", s.Name)
			}
			slicesOf[s.attribute("coldtier.day")] = s
		}
		first, second := slicesOf[l.day(40).String()], slicesOf[l.day(39).String()]
		if first == nil || second == nil {
			t.Fatalf("slices %v", slicesOf)
		}
		want := []string{"commit", "encode", "insert", "put", "scan", "verify"}
		if r.Name == "purge" {
			want = []string{"purge"}
			if first.Status.GetCode() != spans.Status_STATUS_CODE_ERROR || second.Status.GetCode() == spans.Status_STATUS_CODE_ERROR {
				t.Errorf("states of the purged slices: %v, %v", first.Status, second.Status)
			}
		}
		if got := second.names(); !slices.Equal(got, want) {
			t.Errorf("below the slice of run %s lie %v, want %v", r.Name, got, want)
		}
		for _, s := range second.children {
			if s.StartTimeUnixNano < second.StartTimeUnixNano || s.EndTimeUnixNano > second.EndTimeUnixNano || s.EndTimeUnixNano < s.StartTimeUnixNano {
				t.Errorf("span %s is not within its slice's", s.Name)
			}
			if got := s.attribute("coldtier.rows"); got != "20" {
				t.Errorf("span %s has %s rows", s.Name, got)
			}
		}
	}
	slices.Sort(runs)
	if !slices.Equal(runs, []string{"archive 1", "purge 2"}) {
		t.Errorf("runs %v", runs)
	}
	if traces.auth != "Bearer tell-nobody" {
		t.Errorf("sent as %q", traces.auth)
	}
	if bytes.Contains(traces.raw, []byte("message 1 of")) || bytes.Contains(traces.raw, fmt.Append(nil, conversation)) {
		t.Error("a span has a body, or the ID of a conversation")
	}
}

// bucket opens the lab's bucket.
func (l *lab) bucket() *bucket.Bucket {
	l.t.Helper()
	b, err := bucket.Open(l.t.Context(), bucket.Config{Name: l.s3.Bucket, Prefix: "im", Region: l.s3.Region, Endpoint: l.s3.Endpoint, PathStyle: true, Credentials: credentials.NewStaticCredentialsProvider(l.s3.Key, l.s3.Secret, "")}, slog.New(slog.DiscardHandler))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = b.Close() })
	return b
}

// logLine is the first of the JSON lines with a message.
func logLine(t *testing.T, stderr, msg string) map[string]any {
	t.Helper()
	for s := bufio.NewScanner(strings.NewReader(stderr)); s.Scan(); {
		var line map[string]any
		if json.Unmarshal(s.Bytes(), &line) == nil && line["msg"] == msg {
			return line
		}
	}
	t.Fatalf("no line says %q:\n%s", msg, stderr)
	return nil
}

// What metrics and spans are sent to may be away: the run goes on, and says so once.
func TestTelemetryThatNobodyTakes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	push, pushURL := newGateway(t)
	push.fail = true
	text := t.TempDir()
	l.config["metrics"] = map[string]any{"pushgateway": pushURL, "textfile": text}
	l.config["traces"] = map[string]any{"endpoint": pushURL}
	l.fill("msg_00", 40, 3, 7)
	l.want(0, "migrate")
	o := l.want(0, "archive")
	if n := strings.Count(o.stderr, "metrics cannot be pushed"); n != 1 {
		t.Errorf("%d warnings of pushes:\n%s", n, o.stderr)
	}
	if !strings.Contains(o.stderr, "spans cannot be sent") {
		t.Errorf("no warning of spans:\n%s", o.stderr)
	}
	files, err := filepath.Glob(filepath.Join(text, "*.prom"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil || !bytes.Contains(data, []byte(`coldtier_push_failures_total{job="archive",source="im",target="pushgateway"} 2`)) {
		t.Errorf("%v\n%s", err, data)
	}
}

func TestInstance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		labels, env        map[string]string
		worker, host, want string
	}{
		{nil, nil, "", "db7", "db7"},
		{map[string]string{"instance": "a"}, map[string]string{"JOB_COMPLETION_INDEX": "3"}, "w", "h", "a"},
		{nil, map[string]string{"JOB_COMPLETION_INDEX": "3"}, "w", "h", "w"},
		{nil, map[string]string{"JOB_COMPLETION_INDEX": "3", "KUBERNETES_SERVICE_HOST": "x"}, "", "coldtier-archive-29512345-abcde", "3"},
		{nil, map[string]string{"KUBERNETES_SERVICE_HOST": "x"}, "", "coldtier-archive-29512345-abcde", "coldtier-archive"},
		{nil, map[string]string{"KUBERNETES_SERVICE_HOST": "x"}, "", "coldtier-scheduler-6d4cf56db6-x7x2x", "coldtier-scheduler-6d4cf56db6-x7x2x"},
		{nil, nil, "", "coldtier-archive-29512345-abcde", "coldtier-archive-29512345-abcde"},
	} {
		got := instance(c.labels, c.worker, func(n string) (string, bool) { v, ok := c.env[n]; return v, ok }, func() (string, error) { return c.host, nil })
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// Lines say where they belong once, whoever says it.
func TestPlacedLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	var r runs
	log := slog.New(placed{Handler: slog.NewJSONHandler(&out, nil), runs: &r})
	said := func() (line map[string]any) {
		t.Helper()
		text := out.String()
		out.Reset()
		for _, key := range []string{`"run":`, `"shard":`, `"slice":`, `"job":`} {
			if strings.Count(text, key) > 1 {
				t.Errorf("%s is said twice: %s", key, text)
			}
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err, text)
		}
		return line
	}
	log.Info("before")
	if line := said(); line["run"] != nil {
		t.Errorf("before a run: %v", line)
	}
	ctx, end := r.begin(context.Background(), 7, "archive")
	log.Info("without a context")
	if line := said(); line["run"] != 7.0 || line["job"] != "archive" {
		t.Errorf("in the only run: %v", line)
	}
	key := manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "d", Table: "t"}}
	log.InfoContext(withSlice(ctx, key), "m")
	if line := said(); line["run"] != 7.0 || line["shard"] != "d.t" || line["slice"] != key.String() {
		t.Errorf("of a slice: %v", line)
	}
	log.InfoContext(withSlice(ctx, key, key), "m")
	if line := said(); line["shard"] != "d.t" || line["slice"] != nil {
		t.Errorf("of two slices: %v", line)
	}
	log.InfoContext(withSlice(ctx, key), "m", "slice", "mine")
	if line := said(); line["slice"] != "mine" {
		t.Errorf("a line that says its slice: %v", line)
	}
	log.With("job", "mine").InfoContext(ctx, "m")
	if line := said(); line["job"] != "mine" || line["run"] != 7.0 {
		t.Errorf("a logger that says its job: %v", line)
	}
	other, endOther := r.begin(context.Background(), 8, "purge")
	log.Info("whose?")
	if line := said(); line["run"] != nil {
		t.Errorf("of one of two runs: %v", line)
	}
	log.InfoContext(other, "m")
	if line := said(); line["run"] != 8.0 {
		t.Errorf("of the other run: %v", line)
	}
	endOther()
	log.Info("m")
	if line := said(); line["run"] != 7.0 {
		t.Errorf("of the run that is left: %v", line)
	}
	end()
	log.Info("after")
	if line := said(); line["run"] != nil {
		t.Errorf("after: %v", line)
	}
}

// A request is a span below its caller's, and below it lie the reads of its page, whoever
// waited for them.
func TestTelemetryOfRequests(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	traces, traceURL := newReceiver(t)
	l.config["fetch"] = map[string]any{"listen": "127.0.0.1:0", "drain": "0s"}
	const conversation = "4611686018427387905"
	l.fill("msg_00", 40, 30, 4611686018427387905)
	l.want(0, "migrate")
	l.want(0, "archive")
	l.config["traces"] = map[string]any{"endpoint": traceURL}
	s := l.serve()
	req, err := http.NewRequest(http.MethodPost, s.url+"/coldtier.v1.ColdHistory/FetchRange", strings.NewReader(`{"conversation": "`+conversation+`", "limit": 5}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !bytes.Contains(page, []byte("COMPLETE")) {
		t.Fatalf("%v: %s", err, page)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.done
	var request *spanTree
	for _, r := range traces.roots() {
		if r.Name != "/coldtier.v1.ColdHistory/FetchRange" {
			t.Errorf("a span of its own: %s", r.Name)
			continue
		}
		request = r
	}
	if request == nil {
		t.Fatalf("no span of the request\n%s", s.log)
	}
	if fmt.Sprintf("%x %x", request.TraceId, request.ParentSpanId) != "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331" || request.attribute("coldtier.state") != "STATE_COMPLETE" || request.attribute("coldtier.rows") != "5" {
		t.Errorf("the request's span: %v", request.Span)
	}
	below := request.names()
	if !slices.Contains(below, "manifest segments") || !slices.Contains(below, "clickhouse query") && !slices.Contains(below, "bucket get") {
		t.Errorf("below the request lie %v", below)
	}
	if bytes.Contains(traces.raw, []byte(conversation)) || bytes.Contains(traces.raw, []byte("message 1 of")) {
		t.Error("a span has a body, or the ID of a conversation")
	}
}

// What a stage costs that is told: with spans, without, and without anybody who looks.
func BenchmarkStage(b *testing.B) {
	key := manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "d", Table: "t"}}
	_, source := newRegistry("im")
	off := &telemetry{jobMetrics: newJobMetrics(source, time.Now), now: time.Now}
	_, source = newRegistry("im")
	on := &telemetry{jobMetrics: newJobMetrics(source, time.Now), now: time.Now, tracer: tracerTo(tracetest.NewNoopExporter(), 1, "im")}
	for name, t := range map[string]*telemetry{"traced": on, "off": off} {
		b.Run(name, func(b *testing.B) {
			ctx, done := t.Slice(context.Background(), key)
			defer done(nil)
			b.ReportAllocs()
			for b.Loop() {
				t.Stage(ctx, archive.StagePut)(10, 1000)
			}
		})
	}
}
