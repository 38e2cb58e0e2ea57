package deploy

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
)

// The CronJobs begin when the program's own scheduler would.
func TestSchedulesAreTheProgramsDefaults(t *testing.T) {
	t.Parallel()
	specs := map[string]string{}
	for _, doc := range resources(t) {
		spec, ok := at(doc, "spec", "schedule").(string)
		if at(doc, "kind") != "CronJob" || !ok || at(doc, "spec", "suspend") == true {
			continue
		}
		name, _ := strings.CutPrefix(at(doc, "metadata", "name").(string), "coldtier-")
		specs[name] = spec
		if zone := at(doc, "spec", "timeZone"); zone != "Etc/UTC" {
			t.Errorf("%s: zone %v", name, zone)
		}
	}
	const base = "kubernetes/base/coldtier.yaml" // which has no schedule
	c, err := config.Parse(base, []byte(read(t, base)), variables())
	if err != nil {
		t.Fatal(err)
	}
	s := c.Schedule
	defaults := map[string]string{"archive": s.Archive.String(), "purge": s.Purge.String(), "verify": s.Verify.String(), "patrol": s.Patrol.String(), "drill": s.Drill.String()}
	if !maps.Equal(specs, defaults) || s.Zone != time.UTC {
		t.Errorf("CronJobs begin at %v, the scheduler's defaults are %v in %s", specs, defaults, s.Zone)
	}
	if !strings.Contains(read(t, "kubernetes/base/verify.yaml"), "--sample="+s.VerifySample.String()) {
		t.Errorf("verify reads another part than the scheduler's %s", s.VerifySample)
	}
}
