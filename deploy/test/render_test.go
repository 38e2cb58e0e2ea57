package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/yannh/kubeconform/pkg/validator"
)

// The overlays, and a kustomization of what is in none of them.
const (
	small      = "overlays/small"
	fleet      = "overlays/fleet"
	monitored  = "monitored" // small with the component for the Prometheus operator
	kubernetes = "../kubernetes"
)

// cluster is one rendered overlay.
type cluster struct {
	cronJobs    map[string]batch.CronJob
	deployments map[string]apps.Deployment
	services    []core.Service
	accounts    map[string]core.ServiceAccount
	configs     map[string]core.ConfigMap
	policies    []networking.NetworkPolicy
	budgets     []policy.PodDisruptionBudget
	scalers     []autoscaling.HorizontalPodAutoscaler
	monitors    []monitoring.PodMonitor
	rules       []monitoring.PrometheusRule
	namespaces  []core.Namespace
}

// render runs Kustomize, which reads nothing outside of an overlay's own folders.
func render(t *testing.T, overlay string) []byte {
	t.Helper()
	fs := filesys.MakeFsOnDisk()
	path := filepath.Join(kubernetes, overlay)
	if overlay == monitored {
		path = t.TempDir()
		root, err := filepath.Abs(kubernetes)
		if err != nil {
			t.Fatal(err)
		}
		base, err := filepath.Rel(path, root)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("resources: [%s/overlays/small]\ncomponents: [%s/components/monitoring]\n", base, base)
		if err := fs.WriteFile(filepath.Join(path, "kustomization.yaml"), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, path)
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decode takes only what the API's types have; kinds that are not listed here are refused.
func decode(rendered []byte) (*cluster, error) {
	c := &cluster{cronJobs: map[string]batch.CronJob{}, deployments: map[string]apps.Deployment{}, accounts: map[string]core.ServiceAccount{}, configs: map[string]core.ConfigMap{}}
	for doc := range bytes.SplitSeq(rendered, []byte("\n---\n")) {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := yaml.Unmarshal(doc, &head); err != nil {
			return nil, err
		}
		var err error
		switch kind := head.APIVersion + " " + head.Kind; kind {
		case "v1 Namespace":
			err = add(doc, &c.namespaces)
		case "v1 ServiceAccount":
			err = put(doc, c.accounts, head.Metadata.Name)
		case "v1 ConfigMap":
			err = put(doc, c.configs, head.Metadata.Name)
		case "v1 Service":
			err = add(doc, &c.services)
		case "batch/v1 CronJob":
			err = put(doc, c.cronJobs, head.Metadata.Name)
		case "apps/v1 Deployment":
			err = put(doc, c.deployments, head.Metadata.Name)
		case "policy/v1 PodDisruptionBudget":
			err = add(doc, &c.budgets)
		case "networking.k8s.io/v1 NetworkPolicy":
			err = add(doc, &c.policies)
		case "autoscaling/v2 HorizontalPodAutoscaler":
			err = add(doc, &c.scalers)
		case "monitoring.coreos.com/v1 PodMonitor":
			err = add(doc, &c.monitors)
		case "monitoring.coreos.com/v1 PrometheusRule":
			err = add(doc, &c.rules)
		default:
			err = fmt.Errorf("unknown kind %s", kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", head.Kind, head.Metadata.Name, err)
		}
	}
	return c, nil
}

// strictly decodes as the API's server does when it is to validate fields strictly: an unknown field, one in other letters
// and one that is there twice are errors.
func strictly(doc []byte, one any) error {
	text, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(text, one)
	return errors.Join(append(unknown, err)...)
}

func add[T any](doc []byte, list *[]T) error {
	var one T
	err := strictly(doc, &one)
	*list = append(*list, one)
	return err
}

func put[T any](doc []byte, all map[string]T, name string) error {
	var one T
	if _, twice := all[name]; twice {
		return fmt.Errorf("it is there twice")
	}
	err := strictly(doc, &one)
	all[name] = one
	return err
}

func load(t *testing.T, overlay string) *cluster {
	t.Helper()
	c, err := decode(render(t, overlay))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The API's types know every field, and its schemas every field and type.
func TestOverlaysAreValid(t *testing.T) {
	t.Parallel()
	schemas := schemaFolder(t)
	for _, overlay := range []string{small, fleet, monitored} {
		t.Run(filepath.Base(overlay), func(t *testing.T) {
			t.Parallel()
			rendered := render(t, overlay)
			if _, err := decode(rendered); err != nil {
				t.Error(err)
			}
			n, bad := conform(t, schemas, rendered)
			for _, err := range bad {
				t.Error(err)
			}
			if want := bytes.Count(rendered, []byte("\n---\n")) + 1; n != want || n < 15 {
				t.Errorf("kubeconform looked at %d of %d resources", n, want)
			}
		})
	}
}

// What is wrong is found by both.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	schemas := schemaFolder(t)
	rendered := string(render(t, small))
	for _, fault := range [][2]string{
		{"concurrencyPolicy: Forbid", "concurencyPolicy: Forbid"},
		{"backoffLimit: 4", "backoffLimit: four"},
		{"restartPolicy: Never", "restartPolicy: Never\n            restartpolicy: Never"},
		{"readOnlyRootFilesystem: true", "readOnlyRootFileSystem: true"},
	} {
		if !strings.Contains(rendered, fault[0]) {
			t.Fatalf("nothing says %q", fault[0])
		}
		bad := []byte(strings.Replace(rendered, fault[0], fault[1], 1))
		if _, err := decode(bad); err == nil {
			t.Errorf("%q is decoded", fault[1])
		}
		if _, errs := conform(t, schemas, bad); len(errs) == 0 {
			t.Errorf("%q conforms", fault[1])
		}
	}
}

// conform asks kubeconform, strictly, and offline. The operator's own kinds are in no schema of Kubernetes.
func conform(t *testing.T, schemas string, rendered []byte) (n int, bad []error) {
	t.Helper()
	v, err := validator.New([]string{filepath.Join(schemas, "{{.ResourceKind}}{{.KindSuffix}}.json")},
		validator.Opts{Strict: true, SkipKinds: map[string]struct{}{"PodMonitor": {}, "PrometheusRule": {}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range v.Validate("rendered", io.NopCloser(bytes.NewReader(rendered))) {
		switch r.Status {
		case validator.Valid, validator.Skipped:
			n++
		default:
			bad = append(bad, fmt.Errorf("%.200s: %w", r.Resource.Bytes, r.Err))
		}
	}
	return n, bad
}
