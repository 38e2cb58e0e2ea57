package adversary

import (
	"strings"
	"syscall"
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// A run that mends ClickHouse and was frozen beyond its lease does nothing more to rows that
// another has mended meanwhile: it neither drops nor doubles them.
func TestFrozenMendingOfClickHouse(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"rebuild.rows.dropping", "rebuild.rows.dropped"} {
		for _, mend := range [][]string{{"rebuild", "clickhouse"}, {"patrol", "--heal", "--grace", "1h"}} {
			t.Run(step+" "+mend[0], func(t *testing.T) {
				t.Parallel()
				e := harness.New(t, harness.Options{Seed: 308, Messages: 150})
				want := e.Truth()
				e.Must("archive")
				forget(e, "1 = 1")
				p := e.Start([]string{"COLDTIER_STOP_AT=" + step}, mend...)
				if !p.Stopped() {
					t.Fatal(p.Wait())
				}
				expire(e)
				if _, err := stack.OpenMySQL(t, e.Manifest).ExecContext(t.Context(), "UPDATE job_leases SET until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE until IS NOT NULL"); err != nil {
					t.Fatal(err)
				}
				e.Must("rebuild", "clickhouse")
				e.Verdict(want)
				p.Signal(syscall.SIGCONT)
				if r := p.Wait(); r.Exit == -1 || step == "rebuild.rows.dropping" && !strings.Contains(r.Stdout+r.Stderr, "lease") {
					t.Errorf("it went on: %s", r)
				}
				e.Verdict(want)
				e.Must("verify")
			})
		}
	}
}
