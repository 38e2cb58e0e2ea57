package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// settings are the keys of coldtier.yaml that the pods' limits must agree with.
type settings struct {
	Archive struct{ Memory string }
	Fetch   struct{ Cache, Drain string }
}

// config is the configuration that a pod mounts.
func (c *cluster) config(t *testing.T, pod core.PodTemplateSpec) (s settings) {
	t.Helper()
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		m, ok := c.configs[v.ConfigMap.Name]
		if !ok {
			t.Fatalf("no ConfigMap %s", v.ConfigMap.Name)
		}
		if err := yaml.Unmarshal([]byte(m.Data["coldtier.yaml"]), &s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// bytesOf reads 512MiB as coldtier does, and 512Mi as Kubernetes does.
func bytesOf(t *testing.T, size string) int64 {
	t.Helper()
	q, err := resource.ParseQuantity(strings.TrimSuffix(size, "B"))
	if err != nil {
		t.Fatalf("%q: %v", size, err)
	}
	return q.Value()
}

func (c *cluster) pods() map[string]core.PodTemplateSpec {
	all := map[string]core.PodTemplateSpec{}
	for name, j := range c.cronJobs {
		all[name] = j.Spec.JobTemplate.Spec.Template
	}
	for name, d := range c.deployments {
		all[name] = d.Spec.Template
	}
	return all
}

// Pod Security's level "restricted", a root that cannot be written, no token of the API, and the
// Secret of the role alone.
func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	for _, overlay := range []string{small, fleet} {
		c := load(t, overlay)
		if n := c.namespaces[0]; n.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Errorf("the namespace's labels are %v", n.Labels)
		}
		for name, pod := range c.pods() {
			s, fault := pod.Spec, func(format string, args ...any) {
				t.Helper()
				t.Errorf("%s, %s: %s", overlay, name, fmt.Sprintf(format, args...))
			}
			if p := s.SecurityContext; !set(p.RunAsNonRoot) || p.RunAsUser == nil || *p.RunAsUser != 65532 || p.FSGroup == nil || p.SeccompProfile == nil || p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
				fault("the pod's security context is %v", p)
			}
			if s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken || s.HostNetwork || s.HostPID || s.HostIPC {
				fault("it gets a token of the API, or something of its host")
			}
			if a, ok := c.accounts[s.ServiceAccountName]; !ok || a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
				fault("account %q is not there, or gets a token", s.ServiceAccountName)
			}
			if len(s.Containers) != 1 || s.Containers[0].Name != "coldtier" {
				fault("containers: %v", s.Containers)
				continue
			}
			one := s.Containers[0]
			if p := one.SecurityContext; p.AllowPrivilegeEscalation == nil || *p.AllowPrivilegeEscalation || !set(p.ReadOnlyRootFilesystem) ||
				set(p.Privileged) || len(p.Capabilities.Add) != 0 || !slices.Equal(p.Capabilities.Drop, []core.Capability{"ALL"}) {
				fault("the container's security context is %v", p)
			}
			volumes := map[string]bool{}
			for _, v := range s.Volumes {
				volumes[v.Name] = true
				switch {
				case v.ConfigMap != nil, v.Secret != nil && v.Name != "secrets":
				case v.Secret != nil:
					if v.Secret.SecretName != s.ServiceAccountName {
						fault("account %s gets the Secret %s", s.ServiceAccountName, v.Secret.SecretName)
					}
				case v.EmptyDir != nil:
					if v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Cmp(one.Resources.Limits[core.ResourceEphemeralStorage]) > 0 {
						fault("/tmp has no limit, or one above that of the container's storage")
					}
				default:
					fault("volume %s", v.Name)
				}
			}
			for _, m := range one.VolumeMounts {
				if !volumes[m.Name] {
					fault("mounts %s, which is no volume", m.Name)
				}
				delete(volumes, m.Name)
				if m.ReadOnly == (m.MountPath == "/tmp") {
					fault("%s is mounted with readOnly %t", m.MountPath, m.ReadOnly)
				}
			}
			if len(volumes) != 0 {
				fault("volumes that nothing mounts: %v", volumes)
			}
		}
	}
}

func set(b *bool) bool { return b != nil && *b }

// The program's own bounds of its memory lie below the container's, with room for what the
// collector does not count.
func TestMemoryFits(t *testing.T) {
	t.Parallel()
	for _, overlay := range []string{small, fleet} {
		c := load(t, overlay)
		for name, pod := range c.pods() {
			one := pod.Spec.Containers[0]
			limit := one.Resources.Limits.Memory().Value()
			bound := bytesOf(t, c.config(t, pod).Archive.Memory) + 64<<20 // as the program sets it
			for _, e := range one.Env {
				if e.Name == "GOMEMLIMIT" {
					bound = bytesOf(t, e.Value)
				}
			}
			if limit == 0 || bound > limit*17/20 {
				t.Errorf("%s, %s: the program may take %d MiB of %d MiB", overlay, name, bound>>20, limit>>20)
			}
			if cache := bytesOf(t, c.config(t, pod).Fetch.Cache); name == "coldtier-fetch" && cache > bound*2/3 {
				t.Errorf("%s, %s: the caches may take %d MiB of %d MiB", overlay, name, cache>>20, bound>>20)
			}
			if _, limited := one.Resources.Limits[core.ResourceCPU]; limited == (name == "coldtier-fetch") {
				t.Errorf("%s, %s: CPU limit: %t", overlay, name, limited)
			}
		}
	}
}

// The server is drained before it is killed, is not restarted because a store is away, and stays while nodes go.
func TestFetchEndsInTime(t *testing.T) {
	t.Parallel()
	for _, overlay := range []string{small, fleet} {
		c := load(t, overlay)
		d := c.deployments["coldtier-fetch"]
		one := d.Spec.Template.Spec.Containers[0]
		drain, err := time.ParseDuration(c.config(t, d.Spec.Template).Fetch.Drain)
		if err != nil {
			t.Fatal(err)
		}
		if one.Lifecycle == nil || one.Lifecycle.PreStop == nil || one.Lifecycle.PreStop.Sleep == nil {
			t.Fatalf("%s: preStop does not sleep; the image has no shell that could", overlay)
		}
		needs := time.Duration(one.Lifecycle.PreStop.Sleep.Seconds)*time.Second + drain + 10*time.Second
		if grace := time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second; grace <= needs {
			t.Errorf("%s: killed after %s, and needs %s", overlay, grace, needs)
		}
		for probe, path := range map[*core.Probe]string{one.StartupProbe: "/healthz", one.ReadinessProbe: "/readyz", one.LivenessProbe: "/healthz"} {
			if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Scheme != core.URISchemeHTTPS || probe.HTTPGet.Port.String() != one.Ports[0].Name {
				t.Errorf("%s: probe of %s: %v", overlay, path, probe)
			}
		}
		if n := len(d.Spec.Template.Spec.TopologySpreadConstraints); n != 2 {
			t.Errorf("%s: %d spread constraints", overlay, n)
		}
		if overlay == fleet {
			if len(c.scalers) != 1 || c.scalers[0].Spec.ScaleTargetRef.Name != d.Name || d.Spec.Replicas != nil || *c.scalers[0].Spec.MinReplicas < 2 {
				t.Errorf("the autoscaler and %v replicas: %v", d.Spec.Replicas, c.scalers)
			}
		} else if *d.Spec.Replicas < 2 {
			t.Errorf("%s: %d replicas", overlay, *d.Spec.Replicas)
		}
	}
}

// Every selector finds the pods that it is about, and every pod may reach the stores.
func TestSelectorsFindTheirPods(t *testing.T) {
	t.Parallel()
	for _, overlay := range []string{small, fleet, monitored} {
		c := load(t, overlay)
		found := func(s *meta.LabelSelector) (names []string) {
			t.Helper()
			selector, err := meta.LabelSelectorAsSelector(s)
			if err != nil {
				t.Fatal(err)
			}
			for name, pod := range c.pods() {
				if selector.Matches(labels.Set(pod.Labels)) {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			return names
		}
		only := func(what string, got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s selects %v, want %v", overlay, what, got, want)
			}
		}
		only("the deployment", found(c.deployments["coldtier-fetch"].Spec.Selector), "coldtier-fetch")
		only("the budget", found(c.budgets[0].Spec.Selector), "coldtier-fetch")
		only("the service", found(&meta.LabelSelector{MatchLabels: c.services[0].Spec.Selector}), "coldtier-fetch")
		for _, m := range c.monitors {
			only("the monitor", found(&m.Spec.Selector), "coldtier-fetch")
		}
		for name, pod := range c.pods() {
			for _, s := range pod.Spec.TopologySpreadConstraints {
				only("the spread of "+name, found(s.LabelSelector), name)
			}
		}
		all := found(&meta.LabelSelector{})
		for _, p := range c.policies {
			switch got := found(&p.Spec.PodSelector); p.Name {
			case "coldtier-default-deny":
				only(p.Name, got, all...)
				if len(p.Spec.Ingress)+len(p.Spec.Egress) != 0 || len(p.Spec.PolicyTypes) != 2 {
					t.Errorf("%s: %s lets something through: %v", overlay, p.Name, p.Spec)
				}
			case "coldtier-stores":
				only(p.Name, got, all...)
				for _, port := range []int{53, 3306, 9000, 443} {
					if !slices.ContainsFunc(p.Spec.Egress, func(r networking.NetworkPolicyEgressRule) bool {
						return slices.ContainsFunc(r.Ports, func(p networking.NetworkPolicyPort) bool { return p.Port.IntValue() == port })
					}) {
						t.Errorf("%s: port %d cannot be reached", overlay, port)
					}
				}
			case "coldtier-fetch":
				only(p.Name, got, "coldtier-fetch")
				for _, r := range p.Spec.Ingress {
					if len(r.From) == 0 {
						t.Errorf("%s: the server is open to all", overlay)
					}
				}
			default:
				t.Errorf("%s: policy %s", overlay, p.Name)
			}
		}
		if len(c.policies) != 3 {
			t.Errorf("%s: %d policies", overlay, len(c.policies))
		}
	}
}
