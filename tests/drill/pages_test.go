package drill

import (
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/restore/drill/report"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// Where no page comes within the budget nothing is compared, and nothing is proven.
func TestPagesThatDoNotCome(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	r := newRig(t)
	p := stack.NewProxy(t, addr(r.Manifest))
	p.Latency(6 * time.Millisecond)
	r.Change(func(o *harness.Options) {
		o.ManifestAddr, o.Config = p.Addr, map[string]string{"fetch": "budget: 10ms\nhedge_after: 5ms"}
	})
	r.config(r.dsn(r.base), "read_pages: 10")
	o := r.drill(1)
	c := o.check(t, "healthy: pages are the restored truth")
	if c.Verdict != report.Fail || !strings.Contains(c.Reason, "proves nothing") {
		t.Errorf("%+v", c)
	}
}
