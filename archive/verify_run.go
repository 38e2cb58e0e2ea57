package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// VerifyOutcome is what became of one slice in a verification.
type VerifyOutcome struct {
	Slice       manifest.SliceKey `json:"slice"`
	Generation  uint32            `json:"generation"`
	State       manifest.State    `json:"state"` // after it
	Rows        uint64            `json:"rows"`  // of the generation
	Bytes       int64             `json:"bytes"` // of its objects
	Objects     int               `json:"objects"`
	ObjectsLeft int               `json:"objects_left,omitempty"` // due, and beyond the budget: the next run begins with them
	BytesRead   int64             `json:"bytes_read"`             // from the bucket
	Damaged     []Damage          `json:"damaged,omitempty"`      // each object that is not as it was committed
	Seconds     float64           `json:"seconds"`
	Err         error             `json:"-"`
	Error       string            `json:"error,omitempty"`
	elsewhere   bool              // another run has read all that was due
}

// Damage is rows of an object that are not those of its commit.
type Damage struct {
	Key      string `json:"key"`
	FirstRow int64  `json:"first_row"` // in the object
	Rows     int64  `json:"rows"`      // from there on
	Reason   string `json:"reason"`
}

// VerifyReport is what a verification found.
type VerifyReport struct {
	Equal     []VerifyOutcome `json:"equal"`
	Different []VerifyOutcome `json:"different"`      // a store holds something else than was committed
	Unknown   []VerifyOutcome `json:"unknown"`        // could not be read, or another worker has the slice
	Elsewhere int             `json:"elsewhere"`      // due, and being read by another run
	Left      int             `json:"left,omitempty"` // due, and beyond the budget or the run's time
	TimeUp    error           `json:"-"`              // the run's time was up before its end
	Rows      uint64          `json:"rows"`
	Bytes     int64           `json:"bytes"`
	BytesRead int64           `json:"bytes_read"` // from the bucket
	Seconds   float64         `json:"seconds"`
}

// Err joins the errors of the slices that are different or unknown.
func (r *VerifyReport) Err() error {
	var errs []error
	for _, list := range [][]VerifyOutcome{r.Different, r.Unknown} {
		for _, o := range list {
			errs = append(errs, fmt.Errorf("slice %s: %w", o.Slice, o.Err))
		}
	}
	return errors.Join(errs...)
}

func (r *VerifyReport) add(o VerifyOutcome) {
	r.BytesRead += o.BytesRead
	switch {
	case errors.Is(o.Err, ErrTimeUp) && !errors.Is(o.Err, ErrMismatch): // what was read of it is noted
		r.TimeUp = o.Err
		r.Left++
	case o.Err == nil:
		r.Equal = append(r.Equal, o)
		r.Rows, r.Bytes = r.Rows+o.Rows, r.Bytes+o.Bytes
	case errors.Is(o.Err, ErrMismatch):
		o.Error = o.Err.Error()
		r.Different = append(r.Different, o)
	default:
		o.Error = o.Err.Error()
		r.Unknown = append(r.Unknown, o)
	}
}

// Plan lists the slices a verification would read, oldest day first.
func (v *Verifier) Plan(ctx context.Context, sel Selection) ([]manifest.Slice, error) {
	return v.Manifest.Slices(ctx, manifest.Filter{From: sel.From, To: sel.To, Shard: sel.Shard,
		States: []manifest.State{manifest.Committed, manifest.Verified, manifest.Purging, manifest.Purged}})
}

// Run verifies the newest generations of slices, all of each, whenever they were read
// last. A committed slice that is equal becomes verified. A slice whose rows are still in
// MySQL and whose copy is different is copied again by the next archive run; until then
// nothing of it is purged.
func (v *Verifier) Run(ctx context.Context, list []manifest.Slice, progress Progress) (*VerifyReport, error) {
	begun := v.Clock()
	progress.Slices(len(list))
	r := &VerifyReport{}
	for i, s := range list {
		if r.TimeUp = v.timeUp(); r.TimeUp != nil {
			r.Left += len(list) - i
			break
		}
		r.add(v.timed(ctx, manifest.Check{SliceKey: s.SliceKey, SliceID: s.ID, State: s.State, Generation: s.Generation}, &due{}, progress))
	}
	r.Seconds = v.Clock().Sub(begun).Seconds()
	return r, nil
}

// timed verifies what is due of one generation.
func (v *Verifier) timed(ctx context.Context, c manifest.Check, d *due, progress Progress) VerifyOutcome {
	t0 := v.Clock()
	o := VerifyOutcome{Slice: c.SliceKey, Generation: c.Generation, State: c.State}
	if ctx.Err() != nil {
		o.Err = context.Cause(ctx)
	} else {
		sctx, done := v.observer().Slice(ctx, c.SliceKey)
		verified := v.observer().Stage(sctx, StageVerify)
		o.Err = v.slice(sctx, c, d, &o)
		verified(o.Rows, o.BytesRead)
		done(o.Err)
	}
	o.Seconds = v.Clock().Sub(t0).Seconds()
	progress.SliceDone(int(o.Rows)) //nolint:gosec // a count of rows
	return o
}

// slice verifies what is due of a generation, under the claim of its check and, while the
// slice's rows may still be in MySQL, under its lease.
func (v *Verifier) slice(ctx context.Context, c manifest.Check, d *due, o *VerifyOutcome) error {
	claim, err := v.Manifest.ClaimCheck(ctx, c.SliceID, c.Generation, v.Owner)
	if err != nil {
		return fmt.Errorf("%w: %w", errReadElsewhere, err)
	}
	kept, stop := claim.Keep(ctx)
	defer stop()
	s, err := v.Manifest.Slice(ctx, c.SliceID)
	moving := s.State == manifest.Pending || s.State == manifest.Copying
	if err == nil && s.Live != c.Generation && (s.Generation != c.Generation || moving) {
		err = fmt.Errorf("%w: nobody relies on generation %d any more", ErrElsewhere, c.Generation)
	}
	o.State = s.State
	x := &visit{v: v, claim: claim, due: d, out: o}
	if err == nil {
		err = v.visited(kept, s, x, c.Generation)
	}
	if err != nil && kept.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w (while: %w)", context.Cause(kept), err)
	}
	o.elsewhere = x.nothing
	if x.finished {
		return err
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // also of a run that is ended
	defer cancel()
	_, e := x.finish(clean)
	return errors.Join(err, e)
}

func (v *Verifier) visited(ctx context.Context, s manifest.Slice, x *visit, generation uint32) error {
	if s.Generation == generation && (s.State == manifest.Committed || s.State == manifest.Verified) {
		return v.leased(ctx, s, x)
	}
	err := x.generation(ctx, s, generation)
	if errors.Is(err, errSetBack) && s.State == manifest.Purged {
		err = errors.Join(err, v.Manifest.ReopenLate(ctx, s.ID))
		x.out.State = manifest.Pending
	}
	return err
}

// errReadElsewhere says that another verification reads a generation now.
var errReadElsewhere = errors.New("another run reads it back")

// leased verifies the newest generation of a slice that is committed or verified.
func (v *Verifier) leased(ctx context.Context, s manifest.Slice, x *visit) error {
	lease, err := v.Manifest.Claim(ctx, s.ID, v.Owner, []manifest.State{s.State}, s.State)
	if err != nil {
		return elsewhere(err)
	}
	held, stop := lease.Keep(ctx)
	err = x.generation(held, s, s.Generation)
	stop()
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	switch {
	case errors.Is(err, ErrMismatch):
		x.out.State = manifest.Pending
		return errors.Join(err, v.Manifest.Reopen(clean, lease, manifest.ReasonMismatch))
	case err != nil:
		return errors.Join(err, lease.Release(clean, s.State))
	case s.State == manifest.Committed:
		sum, err := x.finish(clean)
		if err != nil || sum.GoodAt == nil || sum.Different { // only a part was read until now
			return errors.Join(err, lease.Release(clean, s.State))
		}
		x.out.State = manifest.Verified
		if err := v.Manifest.Verified(ctx, lease, s.Generation); err != nil {
			return err
		}
		return lease.Release(clean, manifest.Verified)
	}
	return lease.Release(clean, s.State)
}

// errSetBack says that the manifest does not know the newest generation.
var errSetBack = fmt.Errorf("%w: the manifest was set back", ErrMismatch)

// newest looks whether the bucket has the commit record of a later generation than
// the manifest. A manifest that was set back to a backup lacks it, and what that
// generation alone holds nobody would read. The next archive run takes it over.
func (v *Verifier) newest(ctx context.Context, s manifest.Slice) error {
	key := manifest.RecordKey(s.SliceKey, s.NextGeneration())
	_, err := v.Objects.Get(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("look for a later commit record: %w", err)
	}
	return fmt.Errorf("%w: the bucket has the commit record %s, the manifest knows generation %d", errSetBack, key, s.Generation)
}
