package config

import (
	"strings"
	"testing"
)

func TestTelemetry(t *testing.T) {
	t.Parallel()
	c, err := Parse("f", []byte(read(t, "small.yaml")+`
metrics:
  pushgateway: https://coldtier:hunter22@push.example/base
  textfile: /var/lib/node_exporter
  labels: {instance: w0, team: chat}
  skew: 4.5
traces:
  endpoint: http://127.0.0.1:4318
  sample: 0.25
  headers: {authorization: "Bearer abcdefgh"}
`), lookup(nil))
	if err != nil {
		t.Fatal(err)
	}
	if m := c.Metrics; m.Skew != 4.5 || m.Labels["team"] != "chat" || m.Labels["instance"] != "w0" || m.Textfile != "/var/lib/node_exporter" {
		t.Errorf("metrics %+v", m)
	}
	if tr := c.Traces; tr.Sample != .25 || tr.Headers["authorization"].Reveal() != "Bearer abcdefgh" || tr.Endpoint != "http://127.0.0.1:4318" {
		t.Errorf("traces %+v", tr)
	}
	if s := c.Redactor.Text("hunter22 Bearer abcdefgh"); strings.Contains(s, "hunter22") || strings.Contains(s, "abcdefgh") {
		t.Errorf("secrets are shown: %s", s)
	}
	if c, err = Parse("f", []byte(read(t, "small.yaml")), lookup(nil)); err != nil || c.Metrics.Skew != 3 || c.Traces.Sample != 1 || c.Traces.Endpoint != "" {
		t.Errorf("defaults %+v %+v, %v", c.Metrics, c.Traces, err)
	}
	for wrong, want := range map[string]string{
		"metrics: {pushgateway: push:9091}":                           "http or https URL",
		"metrics: {labels: {a: b}}":                                   "no effect without",
		"metrics: {textfile: /x, labels: {job: b}}":                   "set by coldtier",
		"metrics: {textfile: /x, labels: {a-b: c}}":                   "letters, digits",
		"metrics: {textfile: /x, labels: {a: \"\"}}":                  "want a value",
		"metrics: {skew: 1}":                                          "1.5 to 1000",
		"metrics: {skew: NaN}":                                        "1.5 to 1000",
		"metrics: {push: x}":                                          "unknown key",
		"traces: {endpoint: \"http://collector:4318\"}":               "in the clear",
		"traces: {endpoint: \"https://u:p@collector:4318\"}":          "no user and password",
		"traces: {sample: 2}":                                         "0 to 1",
		"traces: {endpoint: \"https://collector:4318\", insecure: 3}": "true or false",
	} {
		if _, err := Parse("f", []byte(read(t, "small.yaml")+"\n"+wrong+"\n"), lookup(nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", wrong, err, want)
		}
	}
	if _, err := Parse("f", []byte(read(t, "small.yaml")+"\n"+"traces: {endpoint: \"http://collector:4318\", insecure: true}\n"), lookup(nil)); err != nil {
		t.Error(err)
	}
}
