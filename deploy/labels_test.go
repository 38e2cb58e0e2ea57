package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented are the labels of each metric, by the tables of docs/metrics.md.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(coldtier_[a-z_]+)` \\| [a-z]+ \\| ([^|]*)\\|").FindAllStringSubmatch(read(t, "../docs/metrics.md"), -1) {
		for _, l := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(row[2], -1) {
			all[row[1]] = append(all[row[1]], l[1])
		}
		all[row[1]] = append(all[row[1]], "source", "instance")
	}
	return all
}

// Alerts and dashboard tell series apart by labels that these have, and no metric is without documentation.
func TestLabelsExist(t *testing.T) {
	t.Parallel()
	labels := documented(t)
	if len(labels) < 40 {
		t.Fatalf("%d metrics are documented: %v", len(labels), labels)
	}
	matcher := regexp.MustCompile(`\b(coldtier_[a-z_]+)\{([^}]*)\}`)
	by := regexp.MustCompile(`\bby \(([^)]*)\)`)
	name := regexp.MustCompile(`(\w+)\s*(?:=|!)`)
	check := func(what, expr string) {
		t.Helper()
		var all []string
		for _, m := range metricsOf(expr) {
			if labels[m] == nil {
				t.Errorf("%s: docs/metrics.md does not tell of %s", what, m)
			}
			all = append(all, labels[m]...)
		}
		if len(all) == 0 { // another program's
			return
		}
		for _, m := range matcher.FindAllStringSubmatch(expr, -1) {
			for _, n := range name.FindAllStringSubmatch(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(m[2], ""), -1) {
				if !slices.Contains(labels[strings.TrimSuffix(m[1], "_bucket")], n[1]) {
					t.Errorf("%s: %s has no label %s", what, m[1], n[1])
				}
			}
		}
		for _, m := range by.FindAllStringSubmatch(expr, -1) {
			for l := range strings.SplitSeq(m[1], ", ") {
				if l != "le" && !slices.Contains(all, l) {
					t.Errorf("%s: nothing has the label %s: %s", what, l, expr)
				}
			}
		}
	}
	for _, a := range alerts(t) {
		check(a.Alert, a.Expr)
	}
	for _, p := range panels(t) {
		for _, x := range p.Targets {
			check(p.Title, x.Expr)
		}
	}
}
