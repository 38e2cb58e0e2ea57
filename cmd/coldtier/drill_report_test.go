package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/tests/stack"
)

// keyFiles writes a new pair of keys into a folder.
func keyFiles(t *testing.T, dir, name string) (private, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	write := func(end, kind string, der []byte, err error) string {
		path := filepath.Join(dir, name+end)
		if err == nil {
			err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, err := x509.MarshalPKCS8PrivateKey(key)
	private = write(".pem", "PRIVATE KEY", a, err)
	b, err := x509.MarshalPKIXPublicKey(pub)
	return private, write(".pub", "PUBLIC KEY", b, err)
}

// A drill's report goes from the bucket and from a folder to whoever checks it, and each
// way of spoiling it is told.
func TestDrillReport(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 40, 20, 7)
	l.fill("msg_00", 41, 20, 8)
	dir := t.TempDir()
	private, public := keyFiles(t, dir, "drill")
	_, stranger := keyFiles(t, dir, "stranger")
	l.config["drill"] = map[string]any{"scratch_dsn": strings.Replace(l.dsn, "/"+l.db, "/"+l.db+"_s", 1), "sample": "1", "read_pages": 4, "signing_key": "${file:" + private + "}",
		"prices": map[string]any{"currency": "EUR", "get_per_1000": "0.00043"}}
	l.want(exitDone, "migrate")

	// Before the first.
	var st struct {
		Drill struct {
			LastGood *manifest.Drill `json:"last_good"`
			Overdue  bool            `json:"overdue"`
		} `json:"drill"`
	}
	l.json(exitDone, &st, "status")
	if st.Drill.LastGood != nil || !st.Drill.Overdue {
		t.Errorf("status before the first drill: %+v", st)
	}
	if o := l.want(exitDone, "status"); !strings.Contains(o.stdout, "no drill has found everything right so far: run coldtier drill") {
		t.Errorf("status before the first drill:\n%s", o.stdout)
	}
	if o := l.want(exitDone, "drill", "--history"); !strings.Contains(o.stdout, "no drill has found everything right so far") {
		t.Errorf("history before the first drill:\n%s", o.stdout)
	}

	l.want(exitDone, "archive")
	l.want(exitDone, "purge", "--dry-run")
	local := filepath.Join(dir, "report")
	var d struct {
		Drill string       `json:"drill"`
		Keys  *report.Keys `json:"keys"`
	}
	l.json(exitDone, &d, "drill", "--seed", "1", "--report-dir", local)

	// The same report by its key, its address, the drill's ID, and here, with and without
	// a configuration.
	where := "s3://" + l.s3.Bucket + "/im/" + d.Keys.HTML
	for _, name := range []string{d.Keys.JSON, d.Keys.HTML, where, d.Drill, local, filepath.Join(local, "report.html"), filepath.Join(local, "report.json")} {
		var c checkedReport
		l.json(exitDone, &c, "drill", "--check", name)
		if !c.Verified || !c.Page || c.Drill != d.Drill || c.Verdict != report.Pass || !strings.HasPrefix(c.SignedBy, "ed25519:") {
			t.Errorf("--check %s: %+v", name, c)
		}
	}
	bare := func(args ...string) out {
		return runProgram(t, os.Environ(), append([]string{"--config", filepath.Join(dir, "none.yaml"), "drill", "--check"}, args...)...)
	}
	if o := bare(local, "--trusted-key", public); o.code != exitDone || !strings.Contains(o.stdout, "verified: nothing was changed") || !strings.Contains(o.stdout, "follows from its ") {
		t.Errorf("without a configuration: %+v", o)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"a stranger's key":   {[]string{local, "--trusted-key", stranger}, exitFailed, "is not trusted"},
		"a key that is none": {[]string{local, "--trusted-key", private}, exitUsage, "--trusted-key"},
		"no key":             {[]string{local}, exitUsage, "none.yaml"},
		"an empty folder":    {[]string{t.TempDir(), "--trusted-key", public}, exitUsage, "report.json: no such file"},
		"no such file":       {[]string{filepath.Join(dir, "nothing.json"), "--trusted-key", public}, exitUsage, "none.yaml"},
	} {
		if o := bare(c.args...); o.code != c.code || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%s: %+v, want exit code %d and %s", name, o, c.code, c.want)
		}
	}
	if o := l.want(exitUsage, "drill", "--check", "drills/nothing/report.json"); !strings.Contains(o.stderr, "no object drills/nothing/report.json in the bucket") {
		t.Errorf("no such report:\n%s", o.stderr)
	}
	for _, args := range [][]string{{"--check", "x", "--history"}, {"--check", "x", "--dry-run"}, {"--history", "--last", "0"}, {"--trusted-key", public}, {"--check", "s3://other/x"}} {
		l.want(exitUsage, append([]string{"drill"}, args...)...)
	}

	// Spoilt, here.
	for name, c := range map[string]struct {
		change func(path string) error
		want   string
	}{
		"report.json":     {func(p string) error { return flip(p, 700) }, "report"},
		"report.html":     {func(p string) error { return flip(p, 5000) }, "report.html was changed after it was signed"},
		"report.json.sig": {os.Remove, "report.json.sig is missing"},
		"report.html.sig": {os.Remove, "report.html.sig is missing"},
	} {
		copied := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(copied, os.DirFS(local)); err != nil {
			t.Fatal(err)
		}
		if err := c.change(filepath.Join(copied, name)); err != nil {
			t.Fatal(err)
		}
		if o := l.run("drill", "--check", copied); o.code != exitFailed || !strings.Contains(o.stderr, "report refused") || !strings.Contains(o.stderr, c.want) || strings.Contains(o.stdout, "verified") {
			t.Errorf("%s spoilt: %+v", name, o)
		}
	}

	// The history, the status and the metric know it.
	var h struct {
		LastGood *manifest.Drill `json:"last_good"`
		Overdue  bool            `json:"overdue"`
		Drills   []struct {
			ID       string                `json:"id"`
			Verdict  manifest.DrillVerdict `json:"verdict"`
			Measures report.Key            `json:"measures"`
			SignedBy string                `json:"signed_by"`
			JSON     string                `json:"report_json"`
		} `json:"drills"`
	}
	l.json(exitDone, &h, "drill", "--history")
	if len(h.Drills) != 1 || h.Drills[0].ID != d.Drill || h.Drills[0].Verdict != manifest.DrillGood || h.Drills[0].Measures.Rows != 40 || h.Drills[0].SignedBy == "" || h.Drills[0].JSON != d.Keys.JSON ||
		h.LastGood == nil || h.Overdue {
		t.Errorf("history: %+v", h)
	}
	l.json(exitDone, &st, "status")
	if st.Drill.LastGood == nil || st.Drill.LastGood.ID != d.Drill || st.Drill.Overdue {
		t.Errorf("status: %+v", st)
	}

	// Without a key a drill works, and says what that means.
	delete(l.config["drill"].(map[string]any), "signing_key")
	l.config["drill"].(map[string]any)["trusted_keys"] = []string{"${file:" + public + "}"}
	l.json(exitDone, &d, "drill", "--seed", "2")
	o := l.want(exitFailed, "drill", "--check", d.Drill)
	if !strings.Contains(o.stderr, "the report is unsigned") || !strings.Contains(o.stdout, d.Drill) || strings.Contains(o.stdout, "verified") {
		t.Errorf("unsigned: %+v", o)
	}
	l.json(exitDone, new(checkedReport), "drill", "--check", h.Drills[0].ID) // by drill.trusted_keys
	text := l.want(exitDone, "drill", "--history").stdout
	if strings.Count(text, d.Drill) != 1 || !strings.Contains(text, "rows restored and proven a second") || !strings.Contains(text, "the last good drill ended") {
		t.Errorf("history:\n%s", text)
	}

	// A report that was changed in the bucket is refused, too.
	data, err := os.ReadFile(filepath.Join(local, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	l.put("im/"+h.Drills[0].JSON, bytes.Replace(data, []byte(`"seed": "1"`), []byte(`"seed": "3"`), 1))
	if o := l.want(exitFailed, "drill", "--check", h.Drills[0].ID); !strings.Contains(o.stderr, "report refused") {
		t.Errorf("changed in the bucket:\n%s", o.stderr)
	}

	s := l.serve()
	if got := s.metric(t, drillMetric); got == "" || got == "0" {
		t.Errorf("the metric is %q", got)
	}

	db := stack.OpenMySQL(t, l.config["manifest"].(map[string]any)["dsn"].(string))
	if _, err := db.Exec("UPDATE drills SET began = began - INTERVAL 101 DAY, ended = ended - INTERVAL 101 DAY"); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"status"}, {"drill", "--history"}} {
		if o := l.want(exitDone, verb...); !strings.Contains(o.stdout, "OVERDUE: the last good drill ended ") || !strings.Contains(o.stdout, ", 101 days ago, more than 100 days: run coldtier drill") {
			t.Errorf("%v after 101 days:\n%s", verb, o.stdout)
		}
	}
}

// flip changes a bit of a file.
func flip(path string, at int) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[min(at, len(data)-1)] ^= 1
	return os.WriteFile(path, data, 0o600)
}

func TestDrillAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	var last *manifest.Drill
	var fail error
	asked := 0
	reg := prometheus.NewRegistry()
	reg.MustRegister(newDrillAge(t.Context(), "im", func() time.Time { return now }, func(context.Context) (*manifest.Drill, error) { asked++; return last, fail }))
	value := func() float64 {
		t.Helper()
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			return -1
		}
		m := all[0].GetMetric()[0]
		if all[0].GetName() != drillMetric || m.GetLabel()[0].GetName() != "source" || m.GetLabel()[0].GetValue() != "im" {
			t.Errorf("%v", all)
		}
		return m.GetGauge().GetValue()
	}
	step := func(what string, want float64) {
		t.Helper()
		now = now.Add(drillEvery)
		if got := value(); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	fail = errors.New("away")
	step("never known", -1)
	fail = nil
	step("never drilled", 0)
	last = &manifest.Drill{Ended: time.UnixMilli(1_790_000_000_500)}
	step("drilled", 1_790_000_000.5)
	fail, last = errors.New("away"), nil
	step("away again", 1_790_000_000.5)
	was := asked
	for range 5 {
		value()
	}
	if asked != was {
		t.Errorf("the manifest was asked %d times within a minute", asked-was)
	}
}

// The alert asks for the metric that there is.
func TestAlertRule(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.UnmarshalWithOptions(data, &f, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Expr == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("rule %+v lacks something", r)
			}
			if strings.Contains(r.Expr, drillMetric) && strings.Contains(r.Expr, "100 * 86400") {
				found++
			}
		}
	}
	if found != 1 {
		t.Errorf("%d rules ask for %s", found, drillMetric)
	}
}

func TestSparkline(t *testing.T) {
	t.Parallel()
	if got := sparkline([]float64{1, 4, 8, 7.9}); got != "▂▅██" {
		t.Error(got)
	}
	for in, want := range map[time.Duration]string{time.Hour: "1h0m", 25 * time.Hour: "1 day", 100 * 24 * time.Hour: "100 days", 90 * time.Second: "1m", time.Second: "less than a minute"} {
		if got := days(in); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}

// put writes an object past the product.
func (l *lab) put(key string, data []byte) {
	l.t.Helper()
	if _, err := l.s3.Client().PutObject(l.t.Context(), &s3.PutObjectInput{Bucket: &l.s3.Bucket, Key: &key, Body: bytes.NewReader(data)}); err != nil {
		l.t.Fatal(err)
	}
}

// metric is the value of a metric that has no labels but source.
func (s *serving) metric(t *testing.T, name string) string {
	t.Helper()
	resp, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+name+`{source="im"} `)
	value, _, _ := strings.Cut(rest, "\n")
	return value
}
