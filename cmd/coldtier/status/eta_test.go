package status

import (
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// The totals that are kept may be from before a run began. How long it will take goes by now.
func TestARunThatBeganAfterTheTotals(t *testing.T) {
	t.Parallel()
	m, db := opened(t)
	fill(t, db, 2, 40)
	ctx := t.Context()
	g := gatherer(m)
	if _, err := g.Gather(ctx, Query{}); err != nil {
		t.Fatal(err)
	}
	g.cost = time.Hour // so that they are kept
	lease, err := m.ClaimJob(ctx, manifest.JobClaim{Name: "archive", Owner: "h/1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.BeginRun(ctx, manifest.RunStart{Job: "archive", Host: "h/1", Lease: "archive", Fence: lease.Fence()}); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "UPDATE slices SET verified_at = UTC_TIMESTAMP(6) WHERE state = 'verified'")
	r, err := g.Gather(ctx, Query{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Running) != 1 || r.Running[0].Progress == nil || !r.TotalsAt.Before(r.Running[0].Started) {
		t.Fatalf("running %+v, totals of %s", r.Running, r.TotalsAt)
	}
	if p := r.Running[0].Progress; p.Done == 0 || p.Left == 0 || p.ETA == nil || *p.ETA <= 0 {
		t.Errorf("progress %+v, %v s are left", p, *p.ETA)
	}
}
