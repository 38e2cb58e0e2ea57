package deploy

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

var update = flag.Bool("update", false, "write kubernetes/components/monitoring/rules.yaml anew")

const (
	operatorRules = "kubernetes/components/monitoring/rules.yaml"
	dashboardFile = "kubernetes/components/monitoring/dashboard.json"
	runbook       = "https://github.com/coldtier/coldtier/blob/main/deploy/README.md#"
)

type rules struct {
	Groups []group `yaml:"groups"`
}

type group struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Alert       string            `yaml:"alert,omitempty"`
	Record      string            `yaml:"record,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

func alerts(t *testing.T) (all []rule) {
	t.Helper()
	var r rules
	if err := yaml.UnmarshalWithOptions([]byte(read(t, "alerts.yaml")), &r, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, g := range r.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// unitTests are alerts.test.yaml.
type unitTests struct {
	Tests []struct {
		Cases []struct {
			Alert string `yaml:"alertname"`
			Want  []struct {
				Labels map[string]string `yaml:"exp_labels"`
			} `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

// promtool runs Prometheus' own tool, which tests/stack fetches once.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.Command("../tests/stack/servers/promtool.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(strings.TrimSpace(string(path)), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, path string, v any) string {
	t.Helper()
	text, ok := v.(string)
	if !ok {
		b, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The unit tests pass. They compare an alert's annotations word by word, so they are run without these.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "alerts.yaml")
	plain := rules{Groups: []group{{Name: "all", Rules: alerts(t)}}}
	for i := range plain.Groups[0].Rules {
		plain.Groups[0].Rules[i].Annotations = nil
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "alerts.yaml"), plain)
	promtool(t, "test", "rules", write(t, filepath.Join(dir, "alerts.test.yaml"), read(t, "alerts.test.yaml")))
}

// Every alert says what to do, and is tested once where it fires and once where it must not.
func TestAlertsAreExplainedAndTested(t *testing.T) {
	t.Parallel()
	var tests unitTests
	if err := yaml.Unmarshal([]byte(read(t, "alerts.test.yaml")), &tests); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string][]map[string]string{}, map[string]bool{}
	for _, x := range tests.Tests {
		for _, c := range x.Cases {
			if len(c.Want) == 0 {
				quiet[c.Alert] = true
			}
			for _, w := range c.Want {
				fires[c.Alert] = append(fires[c.Alert], w.Labels)
			}
		}
	}
	headings := regexp.MustCompile(`(?m)^#+ (Coldtier\w+)$`).FindAllStringSubmatch(read(t, "README.md"), -1)
	var explained, names []string
	for _, h := range headings {
		explained = append(explained, h[1])
	}
	label := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s: labels %v, annotations %v", a.Alert, a.Labels, a.Annotations)
		}
		if want := runbook + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s: %s, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if len(fires[a.Alert]) == 0 || !quiet[a.Alert] {
			t.Errorf("%s: is tested where it fires: %t, where it must not: %t", a.Alert, len(fires[a.Alert]) > 0, quiet[a.Alert])
		}
		for _, m := range label.FindAllStringSubmatch(a.Annotations["summary"]+a.Annotations["description"], -1) {
			for _, labels := range fires[a.Alert] {
				if labels[m[1]] == "" {
					t.Errorf("%s names the label %s, which the alert has not: %v", a.Alert, m[1], labels)
				}
			}
		}
	}
	slices.Sort(names)
	slices.Sort(explained)
	if !slices.Equal(names, explained) {
		t.Errorf("README.md explains %v,\nalerts.yaml has   %v", explained, names)
	}
}

// The operator's rules are the same as Prometheus' own.
func TestOperatorRulesAreTheSame(t *testing.T) {
	t.Parallel()
	type resource struct {
		APIVersion string            `yaml:"apiVersion"`
		Kind       string            `yaml:"kind"`
		Metadata   map[string]string `yaml:"metadata"`
		Spec       rules             `yaml:"spec"`
	}
	want := resource{APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule", Metadata: map[string]string{"name": "coldtier", "namespace": "coldtier"}}
	if err := yaml.Unmarshal([]byte(read(t, "alerts.yaml")), &want.Spec); err != nil {
		t.Fatal(err)
	}
	const head = "# Made of ../../../alerts.yaml by `go test ./deploy -update`.\n"
	if *update {
		text, err := yaml.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		write(t, operatorRules, head+string(text))
	}
	var got resource
	if err := yaml.UnmarshalWithOptions([]byte(read(t, operatorRules)), &got, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is out of date: go test ./deploy -run TestOperatorRules -update", operatorRules)
	}
}

// exported are the metrics whose names are in the program's sources.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	whole := regexp.MustCompile(`"(coldtier_[a-z_]+[a-z])"`)
	prefix := regexp.MustCompile(`"(coldtier_(?:[a-z]+_)?)" ?\+ ?name`)
	part := regexp.MustCompile(`\b(?:vec|counter|histogram|gauge|desc)\(\n?\s*"([a-z_]+)"`)
	for _, dir := range []string{"../cmd/coldtier", "../scheduler", "../restore", "../restore/rpc"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			text := read(t, f)
			for _, m := range whole.FindAllStringSubmatch(text, -1) {
				all[m[1]] = true
			}
			if p := prefix.FindStringSubmatch(text); p != nil {
				for _, m := range part.FindAllStringSubmatch(text, -1) {
					all[p[1]+m[1]] = true
				}
			}
		}
	}
	return all
}

// metricsOf are coldtier's metrics that an expression names.
func metricsOf(expr string) []string {
	all := regexp.MustCompile(`\bcoldtier_[a-z_]+`).FindAllString(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(expr, `""`), -1)
	for i, m := range all {
		all[i] = strings.TrimSuffix(m, "_bucket")
	}
	return all
}

// Alerts and dashboard ask for nothing that the program does not tell.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	known := exported(t)
	if len(known) < 40 {
		t.Fatalf("%d metrics were found: %v", len(known), known)
	}
	for _, a := range alerts(t) {
		for _, m := range metricsOf(a.Expr) {
			if !known[m] {
				t.Errorf("%s: no metric %s", a.Alert, m)
			}
		}
	}
	for _, p := range panels(t) {
		for _, x := range p.Targets {
			for _, m := range metricsOf(x.Expr) {
				if !known[m] {
					t.Errorf("panel %q: no metric %s", p.Title, m)
				}
			}
		}
	}
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ RefID, Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	var d struct {
		UID, Title string
		Panels     []panel
	}
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID != "coldtier" || len(d.Panels) < 20 {
		t.Fatalf("dashboard %q of %d panels", d.UID, len(d.Panels))
	}
	return d.Panels
}

// Prometheus understands each expression of the dashboard, and no panel hides another.
func TestDashboard(t *testing.T) {
	t.Parallel()
	all := rules{Groups: []group{{Name: "dashboard"}}}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range panels(t) {
		if ids[p.ID] {
			t.Errorf("two panels have the number %d", p.ID)
		}
		ids[p.ID] = true
		if (len(p.Targets) == 0) != (p.Type == "row") || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q: %d expressions, at %v", p.Title, len(p.Targets), p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("panel %q lies on %q", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		for _, x := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$source", "im").Replace(x.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q: a variable is left in %s", p.Title, expr)
			}
			all.Groups[0].Rules = append(all.Groups[0].Rules, rule{Record: fmt.Sprintf("panel_%d_%s", p.ID, x.RefID), Expr: expr})
		}
	}
	promtool(t, "check", "rules", write(t, filepath.Join(t.TempDir(), "dashboard.yaml"), all))
}
