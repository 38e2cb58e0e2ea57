package archive

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// Archiver copies slices. It is the only place that knows the order of a copy.
type Archiver struct {
	Deps
	cfg      Config
	verifier *Verifier
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
	return &Archiver{Deps: d, cfg: cfg, verifier: NewVerifier(d, cfg)}, nil
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
	Done    []Outcome `json:"done"`
	Left    []Outcome `json:"left"`   // another worker has them, or the run was stopped before them
	Failed  []Outcome `json:"failed"` // with their errors; the next run tries again
	Rows    uint64    `json:"rows"`
	Objects int       `json:"objects"`
	Bytes   int64     `json:"bytes"`
	Seconds float64   `json:"seconds"`
}

func (r *Report) add(o Outcome) {
	if o.Err != nil {
		o.Error = o.Err.Error()
	}
	switch {
	case o.Err == nil:
		r.Done = append(r.Done, o)
		r.Rows, r.Objects, r.Bytes = r.Rows+o.Rows, r.Objects+o.Objects, r.Bytes+o.Bytes
	case errors.Is(o.Err, manifest.ErrLeased), errors.Is(o.Err, manifest.ErrState), errors.Is(o.Err, context.Canceled):
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

// Run does what the plan lists. A slice that fails does not stop the others; the
// report names it. An error of Run itself means that nothing was begun.
func (a *Archiver) Run(ctx context.Context, p *Plan, progress Progress) (*Report, error) {
	begun := a.Clock()
	var fresh []manifest.Slice
	var schemas []*message.Schema
	seen := map[string]bool{}
	for _, w := range p.Work {
		if w.New {
			fresh = append(fresh, w.Slice)
		}
		if s := w.table.Schema(); !seen[s.Hash()] {
			seen[s.Hash()], schemas = true, append(schemas, s)
		}
	}
	report := &Report{}
	if len(p.Work) == 0 {
		return report, nil
	}
	if err := a.Rows.Fit(ctx, schemas); err != nil {
		return nil, err
	}
	if _, err := a.Manifest.Ensure(ctx, fresh); err != nil {
		return nil, err
	}
	ids, err := a.slicesByKey(ctx, p)
	if err != nil {
		return nil, err
	}
	progress.Slices(len(p.Work))
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(a.cfg.Workers)
	for _, w := range p.Work {
		g.Go(func() error {
			t0 := a.Clock()
			o := Outcome{Slice: w.SliceKey, Action: w.Action}
			if s, ok := ids[w.SliceKey]; !ok {
				o.Err = fmt.Errorf("%w: it is no longer in the manifest", manifest.ErrNotFound)
			} else if w.Slice = s; ctx.Err() != nil {
				o.Err = context.Cause(ctx)
			} else {
				o.Err = a.slice(ctx, w, &o, progress)
			}
			o.Seconds = a.Clock().Sub(t0).Seconds()
			progress.SliceDone(int(o.Rows)) //nolint:gosec // a count of rows
			mu.Lock()
			defer mu.Unlock()
			report.add(o)
			return nil
		})
	}
	_ = g.Wait() // its functions return no errors: each slice's is in the report
	report.sort()
	report.Seconds = a.Clock().Sub(begun).Seconds()
	return report, nil
}

func (a *Archiver) slicesByKey(ctx context.Context, p *Plan) (map[manifest.SliceKey]manifest.Slice, error) {
	from, to := p.Work[0].Day, p.Work[0].Day
	for _, w := range p.Work {
		if w.Day.Before(from) {
			from = w.Day
		}
		if to.Before(w.Day) {
			to = w.Day
		}
	}
	known, err := a.Manifest.Slices(ctx, manifest.Filter{From: &from, To: &to})
	if err != nil {
		return nil, err
	}
	m := make(map[manifest.SliceKey]manifest.Slice, len(known))
	for _, s := range known {
		m[s.SliceKey] = s
	}
	return m, nil
}

// slice does one slice's work under its lease.
func (a *Archiver) slice(ctx context.Context, w Work, o *Outcome, progress Progress) error {
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
	held, stop := lease.Keep(ctx)
	err = a.underLease(held, lease, w.table, o, progress)
	if err != nil && held.Err() != nil {
		err = fmt.Errorf("%w (while: %w)", context.Cause(held), err)
	}
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
	case ctx.Err() != nil: // the run was stopped: no failure of the slice's
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

func (a *Archiver) underLease(ctx context.Context, lease *manifest.Lease, t Table, o *Outcome, progress Progress) error {
	if err := a.step(ctx, "archive.claimed"); err != nil {
		return err
	}
	var c *manifest.Copy
	var err error
	if o.Action == ActionVerify {
		if c, err = a.Manifest.LoadCopy(ctx, lease.Slice().ID, lease.Slice().Generation); err != nil {
			return err
		}
	} else if c, err = a.copyAndCommit(ctx, lease, t, o, progress); err != nil {
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
	if err := a.verifier.Check(ctx, c); err != nil {
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
func (a *Archiver) copyAndCommit(ctx context.Context, lease *manifest.Lease, t Table, o *Outcome, progress Progress) (*manifest.Copy, error) {
	gen, c, err := a.adoptable(ctx, lease)
	if err != nil {
		return nil, err
	}
	if c == nil {
		if c, err = a.copySlice(ctx, lease, t, gen, progress); err != nil {
			return nil, err
		}
	} else {
		o.Adopted = true
	}
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
	if o.Adopted {
		raw, err := a.Objects.Get(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("adopted commit record: %w", err)
		}
		sum = sha256.Sum256(raw)
	}
	if err := a.Manifest.Commit(ctx, lease, c, key, sum); err != nil {
		return nil, err
	}
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
			return gen, nil, nil
		}
		if err != nil {
			return 0, nil, fmt.Errorf("look for a commit record: %w", err)
		}
		c, err := manifest.DecodeRecord(raw)
		if err != nil {
			a.Log.Warn("commit record cannot be read; the next generation supersedes it", "slice", s.SliceKey.String(), "key", key, "error", err)
			continue
		}
		if c.SliceKey != s.SliceKey || c.Lo != s.Lo || c.Hi != s.Hi || c.Generation != gen {
			return 0, nil, fmt.Errorf("commit record %s is of slice %s [%d, %d) of source %q, generation %d: is another installation using this bucket and prefix? Give each its own bucket.prefix",
				key, c.SliceKey, c.Lo, c.Hi, c.Source, c.Generation)
		}
		a.Log.Info("adopting the commit record of a run that died", "slice", s.SliceKey.String(), "generation", gen, "attempt", c.Attempt)
		return gen, c, nil
	}
}
