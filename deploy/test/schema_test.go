package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// api is the version of Kubernetes whose description of its API is taken: a field that it does not
// know must not be relied on.
const api = "k8s.io/kubernetes@v1.36.3"

// kinds are those that schemas are made of.
func kinds() []string {
	return []string{"Namespace", "ServiceAccount", "ConfigMap", "Service", "CronJob", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler"}
}

type object = map[string]any

var schemasOnce = sync.OnceValues(makeSchemas)

// schemaFolder has a schema of each kind, as kubeconform looks for it.
func schemaFolder(t *testing.T) string {
	t.Helper()
	all, err := schemasOnce()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, schema := range all {
		if err := os.WriteFile(filepath.Join(dir, name), schema, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// makeSchemas takes the description out of the module's cache, where it is put at the first time.
func makeSchemas() (map[string][]byte, error) {
	c := exec.Command("go", "mod", "download", "-json", api)
	c.Dir, c.Env = os.TempDir(), append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download %s: %w\n%s", api, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "api", "openapi-spec", "swagger.json"))
	if err != nil {
		return nil, err
	}
	var swagger struct{ Definitions map[string]object }
	if err := json.Unmarshal(text, &swagger); err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for name, d := range swagger.Definitions {
		list, _ := d["x-kubernetes-group-version-kind"].([]any)
		for _, x := range list {
			g := x.(object)
			group, version, kind := g["group"].(string), g["version"].(string), g["kind"].(string)
			if !slices.Contains(kinds(), kind) {
				continue
			}
			s := strict(swagger.Definitions, d, []string{name}).(object)
			suffix, apiVersion := "-"+version, version
			if group != "" {
				first, _, _ := strings.Cut(group, ".")
				suffix, apiVersion = "-"+first+suffix, group+"/"+version
			}
			properties := s["properties"].(object)
			properties["apiVersion"], properties["kind"] = object{"enum": []string{apiVersion}}, object{"enum": []string{kind}}
			b, err := json.Marshal(s)
			if err != nil {
				return nil, err
			}
			all[strings.ToLower(kind)+suffix+".json"] = b
		}
	}
	if len(all) < len(kinds()) {
		return nil, fmt.Errorf("%s describes %d of %d kinds", api, len(all), len(kinds()))
	}
	return all, nil
}

// strict puts definitions in the place of references, forbids fields that are not described,
// and allows null for those that are, as the API does.
func strict(definitions map[string]object, node any, within []string) any {
	s, ok := node.(object)
	if !ok {
		return node
	}
	if ref, ok := s["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/definitions/")
		switch {
		case strings.HasSuffix(name, ".resource.Quantity"):
			return object{"type": []string{"string", "number"}}
		case slices.Contains(within, name): // of a kind that nests itself nothing more is said
			return object{}
		}
		return strict(definitions, definitions[name], append(slices.Clone(within), name))
	}
	if s["format"] == "int-or-string" {
		return object{"type": []string{"string", "integer"}}
	}
	out := object{}
	for k, v := range s {
		switch k {
		case "properties":
			properties := object{}
			for name, p := range v.(object) {
				f := strict(definitions, p, within)
				if o, ok := f.(object); ok {
					if one, ok := o["type"].(string); ok {
						o["type"] = []string{one, "null"}
					}
				}
				properties[name] = f
			}
			out[k] = properties
		case "items", "additionalProperties":
			out[k] = strict(definitions, v, within)
		case "type", "required", "enum", "format":
			out[k] = v
		}
	}
	if out["properties"] != nil && out["additionalProperties"] == nil {
		out["additionalProperties"] = false
	}
	return out
}
