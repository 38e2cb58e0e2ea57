package deploy

import (
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
)

// verdict is what becomes of a job whose pod ended: the first rule that matches decides, and
// what matches none is counted.
func verdict(p *batch.PodFailurePolicy, code int32, condition core.PodConditionType) batch.PodFailurePolicyAction {
	for _, r := range p.Rules {
		for _, c := range r.OnPodConditions {
			if c.Type == condition && c.Status == core.ConditionTrue {
				return r.Action
			}
		}
		if e := r.OnExitCodes; e != nil && code != 0 && slices.Contains(e.Values, code) == (e.Operator == batch.PodFailurePolicyOnExitCodesOpIn) {
			return r.Action
		}
	}
	return batch.PodFailurePolicyActionCount
}

// Each exit code has its consequence: README.md of this folder's parent lists them.
func TestJobsFollowTheExitCodes(t *testing.T) {
	t.Parallel()
	for _, overlay := range []string{small, fleet} {
		for name, j := range load(t, overlay).cronJobs {
			s := j.Spec.JobTemplate.Spec
			stop := batch.PodFailurePolicyActionFailJob
			if indexed := s.CompletionMode != nil && *s.CompletionMode == batch.IndexedCompletion; indexed {
				stop = batch.PodFailurePolicyActionFailIndex
			}
			for _, x := range []struct {
				what      string
				code      int32
				condition core.PodConditionType
				want      batch.PodFailurePolicyAction
			}{
				{"failed", 1, "", batch.PodFailurePolicyActionCount},
				{"set-up", 2, "", batch.PodFailurePolicyActionCount},
				{"in part", 3, "", stop},
				{"refused", 4, "", stop},
				{"leased", 5, "", batch.PodFailurePolicyActionIgnore},
				{"out of memory", 137, "", batch.PodFailurePolicyActionCount},
				{"a drained node", 1, core.DisruptionTarget, batch.PodFailurePolicyActionIgnore},
				{"a drained node during a refusal", 4, core.DisruptionTarget, batch.PodFailurePolicyActionIgnore},
			} {
				if got := verdict(s.PodFailurePolicy, x.code, x.condition); got != x.want {
					t.Errorf("%s, %s: %s (%d) means %s, want %s", overlay, name, x.what, x.code, got, x.want)
				}
			}
			for _, r := range s.PodFailurePolicy.Rules {
				if e := r.OnExitCodes; e != nil && (e.ContainerName == nil || *e.ContainerName != "coldtier") {
					t.Errorf("%s, %s: a rule for %v", overlay, name, e.ContainerName)
				}
			}
		}
	}
}

// Nothing runs twice, for ever, or never.
func TestJobsHaveBounds(t *testing.T) {
	t.Parallel()
	byHand := []string{"coldtier-check", "coldtier-migrate", "coldtier-restore"}
	for _, overlay := range []string{small, fleet} {
		c := load(t, overlay)
		if len(c.cronJobs) != 8 {
			t.Errorf("%s: %d jobs", overlay, len(c.cronJobs))
		}
		for name, j := range c.cronJobs {
			s, job := j.Spec, j.Spec.JobTemplate.Spec
			if _, err := time.LoadLocation(deref(s.TimeZone)); err != nil || deref(s.TimeZone) == "" {
				t.Errorf("%s, %s: time zone %q: %v", overlay, name, deref(s.TimeZone), err)
			}
			if s.ConcurrencyPolicy != batch.ForbidConcurrent || set(s.Suspend) != slices.Contains(byHand, name) {
				t.Errorf("%s, %s: concurrencyPolicy %s, suspend %t", overlay, name, s.ConcurrencyPolicy, set(s.Suspend))
			}
			if deref(s.StartingDeadlineSeconds) < 60 || deref(job.ActiveDeadlineSeconds) < 600 || deref(job.TTLSecondsAfterFinished) < 86400 {
				t.Errorf("%s, %s: deadlines %v, %v, kept for %v", overlay, name, s.StartingDeadlineSeconds, job.ActiveDeadlineSeconds, job.TTLSecondsAfterFinished)
			}
			// What works through many slices ends by itself, between two chunks, before it is cut off.
			if limit := within(job.Template.Spec.Containers[0].Args); limit == 0 && slices.Contains([]string{"coldtier-archive", "coldtier-purge", "coldtier-verify"}, name) ||
				limit > time.Duration(*job.ActiveDeadlineSeconds)*time.Second-time.Hour {
				t.Errorf("%s, %s: ends after %s, is cut off after %d s", overlay, name, limit, *job.ActiveDeadlineSeconds)
			}
			// Another night's job is not kept from beginning for ever.
			if name != "coldtier-drill" && name != "coldtier-restore" && *job.ActiveDeadlineSeconds > 86400-3600 {
				t.Errorf("%s, %s: may run for %d s", overlay, name, *job.ActiveDeadlineSeconds)
			}
			if job.Template.Spec.RestartPolicy != core.RestartPolicyNever || deref(job.PodReplacementPolicy) != batch.Failed {
				t.Errorf("%s, %s: restartPolicy %s, podReplacementPolicy %v", overlay, name, job.Template.Spec.RestartPolicy, job.PodReplacementPolicy)
			}
			if tries := job.BackoffLimit; job.BackoffLimitPerIndex == nil && (tries == nil || *tries > 4) || job.BackoffLimitPerIndex != nil && (tries != nil || *job.BackoffLimitPerIndex > 4) {
				t.Errorf("%s, %s: tried again %v times, an index %v", overlay, name, job.BackoffLimit, job.BackoffLimitPerIndex)
			}
			// The program ends a step by itself after 25 s.
			if grace := deref(job.Template.Spec.TerminationGracePeriodSeconds); grace < 30 {
				t.Errorf("%s, %s: killed after %d s", overlay, name, grace)
			}
		}
		archive := c.cronJobs["coldtier-archive"].Spec.JobTemplate.Spec
		switch overlay {
		case small:
			if archive.CompletionMode != nil || archive.Parallelism != nil {
				t.Errorf("small: %v workers", archive.Parallelism)
			}
		case fleet:
			n := deref(archive.Parallelism)
			if deref(archive.CompletionMode) != batch.IndexedCompletion || n < 2 || deref(archive.Completions) != n || deref(archive.MaxFailedIndexes) != n {
				t.Errorf("fleet: mode %v, %v at once of %v, at most %v failed", deref(archive.CompletionMode), n, archive.Completions, archive.MaxFailedIndexes)
			}
		}
		if purge := c.cronJobs["coldtier-purge"].Spec.JobTemplate.Spec; purge.Parallelism != nil {
			t.Errorf("%s: %d purges at once, each with a rate of its own", overlay, *purge.Parallelism)
		}
	}
}

// within is the value of --max-duration; 0 where there is none.
func within(args []string) (d time.Duration) {
	for _, a := range args {
		if text, ok := strings.CutPrefix(a, "--max-duration="); ok {
			d, _ = time.ParseDuration(text)
		}
	}
	return d
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
