package purge

import (
	"context"
	"fmt"
	"path"

	"github.com/coldtier/coldtier/manifest"
)

// Approved is a plan that a second person approved, as the manifest has it. A Plan by it
// lists only slices that are still what was approved, and Execute asks the manifest for
// their grants by its ID; see manifest.Store.GrantPlanned.
//
// One without an ID and slices is what is left where an approval is required and there is
// none: rows that a run which died left isolated are put back, and nothing is deleted.
type Approved struct {
	ID     string
	Slices []manifest.PlanSlice
}

// leave asks the manifest for a slice's grant.
func (w *work) leave(ctx context.Context, u *unit) (*manifest.PurgeGrant, error) {
	if by := w.job.by; by != nil {
		return w.store.GrantPlanned(ctx, u.lease, w.cfg.Lag, by.ID)
	}
	return w.store.GrantPurge(ctx, u.lease, w.cfg.Lag)
}

// approved splits what the manifest has to purge by what was approved. due are slices that
// are still as approved, and those with rows in a staging table: these get no grant unless
// they are in the plan, and go back into their table. others may only have rows put back of
// which a mark alone knows. left are those of the plan that are something else now.
func (p *Purger) approved(ctx context.Context, sel Selection, all []manifest.Slice) (due, others []manifest.Slice, left []Left, err error) {
	planned := map[uint64]manifest.PlanSlice{}
	for _, x := range sel.Approved.Slices {
		if inside(sel, x.SliceKey) {
			planned[x.ID] = x
		}
	}
	for _, s := range all {
		x, ok := planned[s.ID]
		delete(planned, s.ID)
		switch {
		case s.Staging != "" || ok && same(s, x):
			due = append(due, s)
		case ok:
			left = append(left, changed(s, x, sel.Approved.ID))
			others = append(others, s)
		default:
			others = append(others, s)
		}
	}
	if len(planned) == 0 {
		return due, others, left, nil
	}
	rest, err := p.store.Slices(ctx, manifest.Filter{States: []manifest.State{manifest.Pending, manifest.Copying, manifest.Committed, manifest.Purged}, From: sel.From, To: sel.To, Shard: sel.Shard})
	if err != nil {
		return nil, nil, nil, err
	}
	for _, s := range rest {
		if x, ok := planned[s.ID]; ok && (s.State != manifest.Purged || !same(s, x)) {
			left = append(left, changed(s, x, sel.Approved.ID))
		}
		delete(planned, s.ID)
	}
	for _, x := range sel.Approved.Slices { // in order
		if _, ok := planned[x.ID]; ok {
			left = append(left, Left{x.SliceKey, Changed, fmt.Sprintf("plan %s lists it, and the manifest no longer has it", sel.Approved.ID)})
		}
	}
	return due, others, left, nil
}

// inside says whether a slice is in the selection.
func inside(sel Selection, k manifest.SliceKey) bool {
	ok := sel.Shard == ""
	if !ok {
		ok, _ = path.Match(sel.Shard, k.Shard.String()) // Slices tries the pattern
	}
	return ok && (sel.From == nil || !k.Day.Before(*sel.From)) && (sel.To == nil || !sel.To.Before(k.Day))
}

func same(s manifest.Slice, x manifest.PlanSlice) bool {
	return s.SliceKey == x.SliceKey && s.Lo == x.Lo && s.Hi == x.Hi && s.Generation == x.Generation && s.Live == x.Generation && s.Rows == x.Rows && s.Bytes == x.Bytes
}

func changed(s manifest.Slice, x manifest.PlanSlice, plan string) Left {
	what := fmt.Sprintf("is %s, generation %d", s.State, s.Generation)
	if s.Reason != "" {
		what += " (" + s.Reason + ")"
	}
	return Left{s.SliceKey, Changed, fmt.Sprintf("it %s; plan %s lists generation %d with %d rows: it needs a new plan", what, plan, x.Generation, x.Rows)}
}
