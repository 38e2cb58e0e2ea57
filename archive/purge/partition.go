package purge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

const stagingPrefix = "coldtier_purge_"

// stagingName is new for each exchange: no other run, nor another manifest on the
// same database, may take the table for its own.
func stagingName(id uint64) string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%s%d_%s", stagingPrefix, id, hex.EncodeToString(b[:]))
}

// exchange purges the units, which fill a partition. The manifest hears of the
// staging table before there is one; a crash at any point leaves what recover
// puts right.
func (w *work) exchange(ctx context.Context, r Range) error {
	if err := w.cfg.Pace.Wait(ctx, w.table.Shard()); err != nil {
		return err
	}
	name, marked := w.planned, w.planned != ""
	if w.planned = ""; !marked { // the one that was planned is used, or never was
		name = stagingName(w.units[0].ID)
	}
	for _, u := range w.live() {
		u.by = Partition
		if err := u.grant.Check(ctx); err != nil {
			return err
		}
	}
	for _, u := range w.live() {
		w.isolated = true
		if err := u.grant.Staging(ctx, name); err != nil {
			return errors.Join(err, w.putBack(ctx, name))
		}
		for i := range u.chunks {
			u.chunks[i].State, u.chunks[i].Staged = manifest.ChunkDeleting, true
		}
	}
	if err := w.cfg.step(StepStagingRecorded); err != nil {
		return err
	}
	for _, u := range w.live() {
		if marked {
			break
		}
		if err := w.mark(ctx, u, manifest.MarkPurging, name, nil); err != nil {
			return errors.Join(err, w.putBack(ctx, name))
		}
	}
	if err := w.cfg.step(StepStagingMarked); err != nil {
		return err
	}
	if err := w.table.CreateStaging(ctx, name); err != nil {
		return errors.Join(err, w.unmake(ctx, name))
	}
	if err := w.cfg.step(StepStagingCreated); err != nil {
		return err
	}
	// The leases are looked at once the table is there: who takes the slices over later
	// drops it, and without it nothing is exchanged behind his back.
	for _, u := range w.live() {
		if err := u.grant.Check(ctx); err != nil {
			return errors.Join(err, w.unmake(ctx, name))
		}
	}
	if err := w.table.Exchange(ctx, r, name); err != nil {
		if errors.Is(err, ErrLocked) || errors.Is(err, ErrIncompatible) {
			return errors.Join(err, w.putBack(ctx, name))
		}
		// Whether it was exchanged is unknown, and the server may still be at it.
		w.pending = true
		return fmt.Errorf("%w: exchange of partition %s: %w", ErrUnclear, r.Name, err)
	}
	if err := w.cfg.step(StepExchanged); err != nil {
		return err
	}
	return w.decide(ctx, r, name)
}

// unmake removes a staging table that was not exchanged, also when the slices are no
// longer this worker's: nobody else may know of it.
func (w *work) unmake(ctx context.Context, name string) error {
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if err := w.table.ReturnStaging(ending, name); err != nil {
		return err
	}
	return w.putBack(ctx, name)
}

// live are the units that are still to be purged.
func (w *work) live() []*unit {
	var l []*unit
	for _, u := range w.units {
		if !u.settled && u.err == nil {
			l = append(l, u)
		}
	}
	return l
}

func (w *work) liveGrants() (gs []*manifest.PurgeGrant) {
	for _, u := range w.live() {
		gs = append(gs, u.grant)
	}
	return gs
}

// warm is the fingerprint of all rows that the copy took from warm.
func (u *unit) warm() (f message.Fingerprint) {
	for _, c := range u.chunks {
		f = f.Add(c.Warm)
	}
	return f
}

// decide compares the isolated rows and drops them or puts them back.
func (w *work) decide(ctx context.Context, r Range, name string) error {
	differ, err := w.compare(ctx, r, name)
	if err == nil && differ == nil {
		return w.drop(ctx, name)
	}
	if err != nil && ctx.Err() != nil {
		return err // the next run compares
	}
	if err := w.cfg.step(StepDiffers); err != nil {
		return err
	}
	if back := w.putBack(ctx, name); back != nil {
		return errors.Join(err, back)
	}
	if err != nil {
		return err
	}
	for u, why := range differ {
		if u != nil {
			u.err = why
		}
	}
	return fmt.Errorf("%w: other rows of partition %s differ from their copies", errLeft, r.Name)
}

// compare compares the isolated rows with the copies. It returns the units whose
// rows differ and how; under nil, rows that belong to no unit.
func (w *work) compare(ctx context.Context, r Range, name string) (map[*unit]error, error) {
	if err := w.table.Reload(ctx); err != nil {
		return nil, fmt.Errorf("columns of %s: %w", w.table.Shard(), err)
	}
	differ := map[*unit]error{}
	for _, u := range w.live() { // before anything is read: the isolated rows lack a column that was added since
		if !u.grant.Copy().Schema.SameColumns(w.table.Schema()) {
			differ[u] = fmt.Errorf("%w: the columns of %s changed since", ErrDrift, w.table.Shard())
		}
	}
	if len(differ) > 0 {
		return differ, nil
	}
	between := func(from, to uint64) error { // IDs of no unit: purged slices, or before the first slice
		if from == to {
			return nil
		}
		f, err := w.table.StagingFingerprint(ctx, name, from, to)
		if err == nil && f.Rows > 0 {
			differ[nil] = fmt.Errorf("%w: partition %s holds %d rows of no listed slice", errLeft, r.Name, f.Rows)
		}
		return err
	}
	at := r.Lo
	for _, u := range w.live() { // in the order of their days
		if err := between(at, u.Lo); err != nil {
			return nil, err
		}
		at = u.Hi
		f, err := w.table.StagingFingerprint(ctx, name, u.Lo, u.Hi)
		if err != nil {
			return nil, err
		}
		if want := u.warm(); f != want {
			differ[u] = fmt.Errorf("%w: partition %s holds %s, the copy %s", ErrDrift, r.Name, f, want)
		}
	}
	if err := between(at, r.Hi); err != nil {
		return nil, err
	}
	if len(differ) == 0 {
		return nil, nil
	}
	return differ, nil
}

// drop ends the exchange of rows that were found equal. One chunk of each unit is
// marked before: a staging table that is missing later then tells "dropped" from
// "never made".
func (w *work) drop(ctx context.Context, name string) error {
	// A busy server is not waited for here: isolated rows are out of their users' sight.
	if err := w.cfg.Pace.Stopped(ctx); err != nil {
		return errors.Join(err, w.putBack(ctx, name))
	}
	for _, u := range w.live() {
		if err := u.grant.Check(ctx); err != nil {
			return errors.Join(err, w.putBack(ctx, name))
		}
	}
	for _, u := range w.live() {
		if err := u.grant.ChunkState(ctx, u.chunks[0].Seq, manifest.ChunkDeleting); err != nil {
			return err
		}
		u.chunks[0].State, u.chunks[0].Staged = manifest.ChunkDeleting, false
	}
	if err := w.cfg.step(StepCompared); err != nil {
		return err
	}
	if err := w.table.DropStaging(ctx, w.liveGrants(), name); err != nil {
		switch {
		case errors.Is(err, manifest.ErrHeld) || errors.Is(err, manifest.ErrStopped) || errors.Is(err, manifest.ErrUnapproved) || errors.Is(err, ErrLocked):
			return errors.Join(err, w.putBack(ctx, name))
		case errors.Is(err, ErrDrift): // of which slice, the next run finds out
			return errors.Join(fmt.Errorf("%w: %s", errLeft, err.Error()), w.putBack(ctx, name))
		}
		w.pending = true
		if !errors.Is(err, ErrUnclear) { // the server's own answer: nothing was dropped
			return fmt.Errorf("%w: drop of %s: %w", errLeft, name, err)
		}
		return fmt.Errorf("drop of %s: %w", name, err)
	}
	if err := w.cfg.step(StepDropped); err != nil {
		return err
	}
	return w.dropped(ctx, w.live(), true)
}

// dropped records that the units' rows are gone with their staging table.
func (w *work) dropped(ctx context.Context, units []*unit, now bool) error {
	for _, u := range units {
		if now {
			u.rows = u.warm().Rows
			w.cfg.Progress.Rows(int(u.rows)) //nolint:gosec // a slice's
		}
		u.by = Partition
		if err := w.purged(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// putBack puts isolated rows back into the table and lets the manifest forget the
// staging table, with the marks of the chunks that it stood for.
func (w *work) putBack(ctx context.Context, name string) error {
	exists, err := w.table.StagingExists(ctx, name)
	if err != nil {
		return err
	}
	if exists {
		if err := w.table.ReturnStaging(ctx, name); err != nil {
			return fmt.Errorf("rows of staging table %s are not back yet, the next run goes on: %w", name, err)
		}
	}
	if err := w.cfg.step(StepReturned); err != nil {
		return err
	}
	for i, u := range w.live() {
		if i > 0 {
			if err := w.cfg.step(StepReturnedRecorded); err != nil {
				return err
			}
		}
		if err := u.returned(ctx); err != nil {
			return err
		}
	}
	w.isolated = false
	return nil
}

// returned notes that none of the unit's rows is isolated.
func (u *unit) returned(ctx context.Context) error {
	if err := u.lease.StagingReturned(ctx); err != nil {
		return err
	}
	for i, c := range u.chunks {
		if c.Staged {
			u.chunks[i].State, u.chunks[i].Staged = manifest.ChunkPresent, false
		}
	}
	return nil
}

// compared says whether the unit's isolated rows were found equal, so that their
// staging table may have been dropped.
func (u *unit) compared() bool {
	return slices.ContainsFunc(u.chunks, func(c manifest.Chunk) bool { return c.State != manifest.ChunkPresent && !c.Staged })
}

// withoutGrant ends what a run left isolated when the slices may no longer be
// purged (held, or the lag was lengthened): the rows are put back.
func (w *work) withoutGrant(ctx context.Context, refused error) error {
	w.isolated = true
	exists, err := w.table.StagingExists(ctx, w.job.Staging)
	if err != nil {
		return errors.Join(refused, err)
	}
	if !exists {
		for _, u := range w.units {
			c, err := w.store.LoadCopy(ctx, u.ID, u.Generation)
			if err != nil {
				return errors.Join(refused, err)
			}
			if u.chunks = c.Chunks; u.compared() {
				return fmt.Errorf("its rows are gone already, which will be recorded when it may be purged: %w", refused)
			}
		}
	}
	return errors.Join(refused, w.putBack(ctx, w.job.Staging))
}

// recover finishes an exchange that an ended run left. Units that are not settled
// after it start anew; the range is the partition they can go by, if any.
func (w *work) recover(ctx context.Context) (*Range, error) {
	name := w.job.Staging
	w.isolated = true
	exists, err := w.table.StagingExists(ctx, name)
	if err != nil {
		return nil, err
	}
	if !exists {
		var gone []*unit
		for _, u := range w.live() {
			if u.compared() {
				gone = append(gone, u)
			} else if err := u.returned(ctx); err != nil {
				return nil, err
			}
		}
		if err := w.dropped(ctx, gone, false); err != nil {
			return nil, err
		}
		w.isolated = false
		return w.again(ctx)
	}
	equal, err := w.stillEqual(ctx, name)
	if err != nil {
		return nil, err
	}
	if equal {
		return nil, w.drop(ctx, name)
	}
	// It may have been put back in part, so a difference proves nothing: what the
	// rows are is found by starting anew.
	if err := w.putBack(ctx, name); err != nil {
		return nil, err
	}
	return w.again(ctx)
}

// stillEqual says whether the isolated rows are all there, equal to their copies,
// and none of them in the table.
func (w *work) stillEqual(ctx context.Context, name string) (bool, error) {
	u := w.units[0]
	r, ok, err := w.table.Partition(ctx, u.Lo, u.Hi)
	if err != nil || !ok {
		return false, err
	}
	differ, err := w.compare(ctx, r, name)
	if err != nil || differ != nil {
		return false, err
	}
	for _, u := range w.units {
		f, err := w.table.Fingerprint(ctx, u.Lo, u.Hi)
		if err != nil || f.Rows > 0 && !u.compared() {
			return false, err
		}
	}
	return true, nil
}

// again finds the partition that the units fill.
func (w *work) again(ctx context.Context) (*Range, error) {
	live := w.live()
	if len(live) == 0 || w.cfg.Strategy == Rows {
		return nil, nil
	}
	r, ok, err := w.table.Partition(ctx, live[0].Lo, live[0].Hi)
	if err != nil || !ok {
		return nil, err
	}
	var mine []manifest.Slice
	for _, u := range live {
		s := u.lease.Slice()
		s.Staging = ""
		mine = append(mine, s)
	}
	near, err := w.neighbours(ctx, mine)
	if err != nil {
		return nil, err
	}
	items, why, err := w.fills(ctx, w.table, r, mine, near[w.table.Shard()])
	if err != nil || why != "" || len(items) != len(live) {
		return nil, err
	}
	return &r, nil
}
