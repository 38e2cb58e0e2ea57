package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// schema validates JSON against what docs/drill-report.schema.json uses of JSON Schema; a
// keyword that it does not know is an error.
type schema struct {
	defs map[string]any
	seen map[string]bool // the properties that occurred
}

func (s *schema) check(node map[string]any, v any, path, def string) (errs []string) {
	bad := func(format string, args ...any) { errs = append(errs, path+": "+fmt.Sprintf(format, args...)) }
	if ref, ok := node["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/$defs/")
		d, ok := s.defs[name].(map[string]any)
		if !ok {
			return []string{"no definition " + ref}
		}
		errs = s.check(d, v, path, name)
	}
	for key, want := range node {
		switch key {
		case "$ref", "description", "title", "$schema", "$defs", "properties", "additionalProperties":
		case "type":
			if kind(v) != want && !(want == "number" && kind(v) == "integer") {
				bad("a %s, want %v", kind(v), want)
			}
		case "const":
			if fmt.Sprint(v) != fmt.Sprint(want) {
				bad("%v, want %v", v, want)
			}
		case "enum":
			if !slices.Contains(want.([]any), v) {
				bad("%v, want one of %v", v, want)
			}
		case "pattern":
			if t, ok := v.(string); !ok || !regexp.MustCompile(want.(string)).MatchString(t) {
				bad("%v does not match %v", v, want)
			}
		case "format":
			if t, ok := v.(string); !ok || want != "date-time" {
				bad("format %v", want)
			} else if _, err := time.Parse(time.RFC3339Nano, t); err != nil {
				bad("%v", err)
			}
		case "minimum", "maximum":
			n, _ := v.(json.Number).Float64()
			limit, _ := want.(json.Number).Float64()
			if key == "minimum" && n < limit || key == "maximum" && n > limit {
				bad("%v, %s %v", v, key, want)
			}
		case "items":
			list, _ := v.([]any)
			for i, x := range list {
				errs = append(errs, s.check(want.(map[string]any), x, fmt.Sprintf("%s[%d]", path, i), def)...)
			}
		case "required":
			m, _ := v.(map[string]any)
			for _, k := range want.([]any) {
				if _, ok := m[k.(string)]; !ok {
					bad("%v is missing", k)
				}
			}
		default:
			bad("keyword %s is not known here", key)
		}
	}
	props, _ := node["properties"].(map[string]any)
	if m, ok := v.(map[string]any); ok && props != nil {
		for k, x := range m {
			p, ok := props[k].(map[string]any)
			if !ok {
				bad("%s is not in the schema", k)
				continue
			}
			s.seen[def+"."+k] = true
			errs = append(errs, s.check(p, x, path+"."+k, def)...)
		}
	}
	return errs
}

func kind(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "number"
		}
		return "integer"
	}
	return "null"
}

func parse(t *testing.T, data []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// Real reports have what the schema says, and nothing else; and all that the schema says
// occurs in them.
func TestReportsHaveTheirSchema(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/drill-report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	root := parse(t, text)
	s := &schema{defs: root["$defs"].(map[string]any), seen: map[string]bool{}}
	bare := &Report{Drill: "x", Source: "im", Began: full().Began, Ended: full().Ended}
	signer, _ := pair(t)
	for _, r := range []*Report{full(), red(), small(), bare} {
		for _, e := range s.check(root, parse(t, seal(t, r, signer).JSON), "report", "") {
			t.Error(e)
		}
	}
	for name, node := range s.defs {
		for k := range node.(map[string]any)["properties"].(map[string]any) {
			if !s.seen[name+"."+k] {
				t.Errorf("%s.%s occurs in no report", name, k)
			}
		}
	}
	for k := range root["properties"].(map[string]any) {
		if !s.seen["."+k] {
			t.Errorf("%s occurs in no report", k)
		}
	}
	// What is wrong is found: the validator is no rubber stamp.
	for what, change := range map[string]func(m map[string]any){
		"unknown key":   func(m map[string]any) { m["x"] = "y" },
		"missing key":   func(m map[string]any) { delete(m, "seed") },
		"seed a number": func(m map[string]any) { m["seed"] = json.Number("7") },
		"null list":     func(m map[string]any) { m["trend"] = nil },
		"verdict":       func(m map[string]any) { m["verdict"] = "skipped" },
		"version":       func(m map[string]any) { m["format_version"] = json.Number("2") },
		"big number":    func(m map[string]any) { m["sample"].(map[string]any)["rows"] = json.Number("9007199254740993") },
		"level":         func(m map[string]any) { m["findings"].([]any)[0].(map[string]any)["level"] = "odd" },
	} {
		m := parse(t, seal(t, full(), nil).JSON)
		change(m)
		if len(s.check(root, m, "report", "")) == 0 {
			t.Errorf("%s: taken", what)
		}
	}
	if len(slices.Collect(maps.Keys(s.defs))) < 20 {
		t.Error("the schema has few definitions")
	}
}
