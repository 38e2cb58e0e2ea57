package archive

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// Archiver copies slices. It is the only place that knows the order of a copy.
type Archiver struct {
	Deps
	cfg      Config
	verifier *Verifier
	// do is Archiver.slice, but where the sharing of slices alone is tested.
	do func(context.Context, Work, *slot, *Outcome, Progress) error
}

// New makes an archiver.
func New(d Deps, cfg Config) (*Archiver, error) {
	cfg = cfg.withDefaults()
	if cfg.Verify != VerifyFull && cfg.Verify != VerifyLater {
		return nil, fmt.Errorf("archive.verify %q: want %q or %q", cfg.Verify, VerifyFull, VerifyLater)
	}
	if cfg.Memory < MinMemory {
		return nil, fmt.Errorf("archive.memory %d bytes: at least %d are needed", cfg.Memory, MinMemory)
	}
	if d.Pace == nil {
		d.Pace = unhindered{}
	}
	a := &Archiver{Deps: d, cfg: cfg, verifier: NewVerifier(d, cfg)}
	a.do = a.slice
	return a, nil
}

// Outcome is what became of one slice in a run.
type Outcome struct {
	Slice      manifest.SliceKey `json:"slice"`
	Action     Action            `json:"action"`
	Generation uint32            `json:"generation,omitempty"`
	State      manifest.State    `json:"state,omitempty"`
	Rows       uint64            `json:"rows"`
	Carried    uint64            `json:"carried_rows,omitempty"` // of Rows, taken from the former generation
	Objects    int               `json:"objects"`
	Bytes      int64             `json:"bytes"`
	Seconds    float64           `json:"seconds"`
	Adopted    bool              `json:"adopted,omitempty"` // the commit record of a run that died was taken over
	Err        error             `json:"-"`
	Error      string            `json:"error,omitempty"`
}

// Report is what a run did.
type Report struct {
	Done []Outcome `json:"done"`
	Left []Outcome `json:"left"` // another worker has them, or the run was stopped before them
	// Elsewhere is how many slices of the plan other runs did meanwhile.
	Elsewhere int       `json:"elsewhere,omitempty"`
	Failed    []Outcome `json:"failed"` // with their errors; the next run tries again
	Rows      uint64    `json:"rows"`
	Objects   int       `json:"objects"`
	Bytes     int64     `json:"bytes"`
	Seconds   float64   `json:"seconds"`
	// Throttled is for how many seconds reads of warm were held back, by cause.
	Throttled map[string]float64 `json:"throttled_seconds,omitempty"`
}

func (r *Report) add(o Outcome) {
	if errors.Is(o.Err, ErrElsewhere) {
		r.Elsewhere++
		return
	}
	if o.Err != nil {
		o.Error = o.Err.Error()
	}
	switch {
	case o.Err == nil:
		r.Done = append(r.Done, o)
		r.Rows, r.Objects, r.Bytes = r.Rows+o.Rows, r.Objects+o.Objects, r.Bytes+o.Bytes
	case errors.Is(o.Err, manifest.ErrLeased), errors.Is(o.Err, manifest.ErrState), errors.Is(o.Err, context.Canceled), heldBack(o.Err),
		errors.Is(o.Err, ErrTimeUp), errors.Is(o.Err, ErrTooLarge), errors.Is(o.Err, manifest.ErrSlotLost):
		r.Left = append(r.Left, o)
	default:
		r.Failed = append(r.Failed, o)
	}
}

func (r *Report) sort() {
	for _, list := range [][]Outcome{r.Done, r.Left, r.Failed} {
		slices.SortFunc(list, func(x, y Outcome) int {
			return cmp.Or(x.Slice.Day.Compare(y.Slice.Day), cmp.Compare(x.Slice.Shard.String(), y.Slice.Shard.String()))
		})
	}
}

// Err joins the errors of the slices that failed.
func (r *Report) Err() error {
	var errs []error
	for _, o := range r.Failed {
		errs = append(errs, fmt.Errorf("slice %s: %w", o.Slice, o.Err))
	}
	return errors.Join(errs...)
}

// slice does one slice's work under its lease.
func (a *Archiver) slice(ctx context.Context, w Work, s *slot, o *Outcome, progress Progress) error {
	want, to := []manifest.State{manifest.Pending, manifest.Copying}, manifest.Copying
	switch w.Action {
	case ActionVerify:
		want, to = []manifest.State{manifest.Committed}, manifest.Committed
	case ActionLate:
		if err := a.Manifest.ReopenLate(ctx, w.ID); err != nil {
			return elsewhere(err)
		}
	case ActionCopy:
	}
	lease, err := a.Manifest.Claim(ctx, w.ID, a.Owner, want, to)
	if err != nil {
		return elsewhere(err)
	}
	if got := lease.Slice(); got.SliceKey != w.SliceKey || got.Lo != w.Lo || got.Hi != w.Hi {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(fmt.Errorf("%w: %w: number %d is slice %s [%d, %d) now: the manifest was set back or rebuilt under this run", ErrElsewhere, manifest.ErrState, w.ID, got.SliceKey, got.Lo, got.Hi),
			release(clean, lease))
	}
	t0 := a.Clock()
	held, stop := lease.Keep(ctx)
	held, drop := s.keep(held)
	j := a.track(held, lease, s, progress)
	err = a.underLease(held, lease, w.table, o, j)
	if err != nil && held.Err() != nil {
		err = fmt.Errorf("%w (while: %w)", context.Cause(held), err)
	}
	s.release(ctx)
	j.end(ctx)
	drop()
	stop()
	if err == nil {
		return nil
	}
	if errors.Is(err, manifest.ErrLeaseLost) {
		return err // another worker's now; nothing of it may be touched
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	switch {
	case errors.Is(err, ErrMismatch):
		return errors.Join(err, a.Manifest.Reopen(clean, lease, manifest.ReasonMismatch))
	case errors.Is(err, ErrTimeUp):
		return errors.Join(err, a.Manifest.Interrupted(clean, lease, a.Clock().Sub(t0)))
	case ctx.Err() != nil, heldBack(err), errors.Is(err, manifest.ErrSlotLost): // the run was stopped: no failure of the slice's
		return errors.Join(err, release(clean, lease))
	}
	return errors.Join(err, a.Manifest.Fail(clean, lease, err))
}

// elsewhere marks a claim's error as another run's doing: since the slices were listed
// this one has left the state in which there was something to do.
func elsewhere(err error) error {
	if errors.Is(err, manifest.ErrState) {
		return fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	return err
}

// release gives a slice back as it is: one that was being copied as pending, unless
// its commit went through and only the answer was cut off.
func release(ctx context.Context, l *manifest.Lease) error {
	if st := l.Slice().State; st != manifest.Copying {
		return l.Release(ctx, st)
	}
	err := l.Release(ctx, manifest.Pending)
	if errors.Is(err, manifest.ErrState) {
		return l.Release(ctx, manifest.Committed)
	}
	return err
}

func (a *Archiver) underLease(ctx context.Context, lease *manifest.Lease, t Table, o *Outcome, j *job) error {
	if err := a.step(ctx, "archive.claimed"); err != nil {
		return err
	}
	var c *manifest.Copy
	var err error
	if o.Action == ActionVerify {
		if c, err = a.Manifest.LoadCopy(ctx, lease.Slice().ID, lease.Slice().Generation); err != nil {
			return err
		}
	} else if c, err = a.copyAndCommit(ctx, lease, t, o, j); err != nil {
		return err
	}
	f := c.Fingerprint()
	o.Generation, o.Rows, o.Objects, o.Bytes, o.State = c.Generation, f.Rows, len(c.Objects), c.Bytes(), manifest.Committed
	for _, ch := range c.Chunks {
		o.Carried += ch.Carried.Rows
	}
	if a.cfg.Verify == VerifyLater {
		return lease.Release(ctx, manifest.Committed)
	}
	verified := a.observer().Stage(ctx, StageVerify)
	j.begin(manifest.StageVerify, 0, uint64(o.Bytes)) //nolint:gosec // a size
	v := *a.verifier
	v.Objects = reading{v.Objects, j}
	err = v.Check(ctx, c)
	verified(o.Rows, o.Bytes)
	if err != nil {
		return err
	}
	if err := a.Manifest.NoteChecked(ctx, lease.Slice().ID, c.Generation); err != nil {
		return err
	}
	if err := a.step(ctx, "archive.checked"); err != nil {
		return err
	}
	if err := a.Manifest.Verified(ctx, lease, c.Generation); err != nil {
		return err
	}
	o.State = manifest.Verified
	if err := a.step(ctx, "archive.verified"); err != nil {
		return err
	}
	return lease.Release(ctx, manifest.Verified)
}

// copyAndCommit makes the next generation of a slice, in this order. What a crash
// leaves behind:
//
//	scan, sort          nothing
//	objects, rows       orphans that no committed generation names
//	commit record       a record that the next run adopts (it is looked for first)
//	manifest            a committed generation; the next run verifies it
func (a *Archiver) copyAndCommit(ctx context.Context, lease *manifest.Lease, t Table, o *Outcome, j *job) (*manifest.Copy, error) {
	gen, c, err := a.adoptable(ctx, lease)
	if err != nil {
		return nil, err
	}
	if c == nil {
		if c, err = a.copySlice(ctx, lease, t, gen, j); err != nil {
			return nil, err
		}
	} else {
		o.Adopted = true
	}
	j.begin(manifest.StageCommit, 0, 0)
	committed := a.observer().Stage(ctx, StageCommit)
	var record bytes.Buffer
	if err := manifest.EncodeRecord(&record, c); err != nil {
		return nil, fmt.Errorf("commit record: %w", err)
	}
	key, sum := manifest.RecordKey(c.SliceKey, c.Generation), sha256.Sum256(record.Bytes())
	if !o.Adopted {
		if err := lease.Renew(ctx); err != nil { // no record by a worker that lost its slice
			return nil, err
		}
		err := a.Objects.Put(ctx, key, bytes.NewReader(record.Bytes()), int64(record.Len()), sum, true)
		if errors.Is(err, ErrExists) {
			// The worker that had the slice before put its record while we copied. It is
			// as good as ours, and it is in the bucket: take it, ours are orphans.
			if _, c, err = a.adoptable(ctx, lease); err == nil && c == nil {
				err = fmt.Errorf("commit record %s: %w, but it cannot be adopted", key, ErrExists)
			}
			o.Adopted = true
		}
		if err != nil {
			return nil, fmt.Errorf("commit record: %w", err)
		}
		if err := a.step(ctx, "archive.record-put"); err != nil {
			return nil, err
		}
	}
	var purged manifest.Progress
	if o.Adopted {
		raw, err := a.Objects.Get(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("adopted commit record: %w", err)
		}
		sum = sha256.Sum256(raw)
		m, err := a.marks(ctx, c.SliceKey, c.Generation)
		if err != nil {
			return nil, err
		}
		if purged = m.Progress(c.SliceKey, c.Generation, c.Attempt); purged.Begun {
			a.Log.WarnContext(ctx, "the bucket knows of a purge of the adopted generation: it is the live one", "slice", c.SliceKey.String(), "generation", c.Generation)
		}
		if err := a.doubt(ctx, c); err != nil {
			return nil, err
		}
	}
	if err := a.Manifest.Adopt(ctx, lease, c, key, sum, purged); err != nil {
		return nil, err
	}
	committed(c.Fingerprint().Rows, int64(record.Len()))
	return c, a.step(ctx, "archive.committed")
}

// adoptable gives the number of the next generation and, where a run died between
// its commit record and the manifest's transaction, that record. A record that
// cannot be read is superseded: its generation's number is not used again.
func (a *Archiver) adoptable(ctx context.Context, lease *manifest.Lease) (uint32, *manifest.Copy, error) {
	s := lease.Slice()
	for gen := s.NextGeneration(); ; gen++ {
		key := manifest.RecordKey(s.SliceKey, gen)
		raw, err := a.Objects.Get(ctx, key)
		if errors.Is(err, ErrNotFound) {
			mark := manifest.MarkKey(s.SliceKey, gen, manifest.MarkPurging)
			if _, err := a.Objects.Get(ctx, mark); err == nil {
				return 0, nil, fmt.Errorf("%w: commit record %s is not in the bucket, and a purge has begun to delete rows of slice %s on its word (%s): restore the object from a backup or a former version",
					ErrMismatch, key, s.SliceKey, mark)
			} else if !errors.Is(err, ErrNotFound) {
				return 0, nil, fmt.Errorf("look for a purge mark: %w", err)
			}
			return gen, nil, nil
		}
		if err != nil {
			return 0, nil, fmt.Errorf("look for a commit record: %w", err)
		}
		c, err := manifest.DecodeRecord(raw)
		if err != nil {
			// Where rows were deleted on its word nothing else knows all of them.
			m, look := a.marks(ctx, s.SliceKey, gen)
			if look != nil {
				return 0, nil, look
			}
			if m.Progress(s.SliceKey, gen, "").Begun {
				return 0, nil, fmt.Errorf("%w: commit record %s cannot be read, and a purge has begun to delete rows of slice %s on its word: restore the object from a backup or a former version: %w",
					ErrMismatch, key, s.SliceKey, err)
			}
			a.Log.WarnContext(ctx, "commit record cannot be read; the next generation supersedes it", "slice", s.SliceKey.String(), "key", key, "error", err)
			continue
		}
		if c.SliceKey != s.SliceKey || c.Lo != s.Lo || c.Hi != s.Hi || c.Generation != gen {
			return 0, nil, fmt.Errorf("commit record %s is of slice %s [%d, %d) of source %q, generation %d: is another installation using this bucket and prefix? Give each its own bucket.prefix",
				key, c.SliceKey, c.Lo, c.Hi, c.Source, c.Generation)
		}
		a.Log.InfoContext(ctx, "adopting the commit record of a run that died", "slice", s.SliceKey.String(), "generation", gen, "attempt", c.Attempt)
		return gen, c, nil
	}
}
